"""The autograd nodes of a compiled function.

The one idea: the core's Call keeps what the backward pass needs in one block of its own; torch is
shown the tensors that it reads too, so that it notices a second backward and changes in place.
A node for each part of the backward pass: the first hangs on the outputs, each later one on the one
before it, whose last result, a token, carries the pass.  The engine runs what accumulates gradients
first, so that these are in place, and hooks on them have run, before the next part begins.
csrc/python/torch_node.cpp does the same faster, for the torch that it was built for; the nodes here
serve every other torch.  DCML_AUTOGRAD=python or c++ chooses one.
Must not know: plans, graphs or modules.
"""
import os

import torch


class _Node(torch.autograd.Function):
    @staticmethod
    def forward(ctx, call, part, results, outside, reads, later, *completes):
        """results: what hangs on this node, except those of ``outside``; reads: the tensors that must stay as they are;
        later: the next part's token, or None; completes: the tensors whose gradients this part completes."""
        ctx.call, ctx.first, ctx.last = call, part == 0, later is None
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*outside)
        ctx.save_for_backward(torch.empty(0), *reads)  # one at least, so that a second backward is noticed
        return tuple(results)

    @staticmethod
    def backward(ctx, *grads):
        ctx.saved_tensors  # noqa: B018  (raises if the graph was freed or a tensor changed in place)
        with torch.no_grad():
            run = ctx.call.start(grads) if ctx.first else _pass_of(grads[0])
            found = run.next()
        return (None, None, None, None, None, None if ctx.last else _token(run), *_once(found))


def _token(run=None):
    """A tensor that carries a backward pass."""
    token = torch.zeros(1)
    token.backward_pass = run
    return token


def _pass_of(token):
    run = getattr(token, "backward_pass", None)
    if run is None:
        raise RuntimeError("a hook replaced what a compiled function passes between the parts of its backward pass")
    return run


def _once(grads):
    """Gradients that raise if a graph is asked for (create_graph=True) and they are then differentiated themselves."""
    if not torch.is_grad_enabled():
        return grads
    error = torch._C._functions.DelayedError("a compiled function cannot be differentiated twice", 1)
    return [None if grad is None else error(grad.detach().requires_grad_()) for grad in grads]


def apply_in_python(function, inputs):
    """As apply, by the nodes above."""
    tensors = (*inputs, *(function.params or ()))
    with torch.no_grad():
        results, call = function._run(inputs)
    tape = function.differentiable or [True] * len(results)
    outside = [r for r, on_tape in zip(results, tape) if not on_tape or not r.dtype.is_floating_point]
    later = None
    for part, (completes, reads) in reversed(list(enumerate(call.parts))):
        hanging = [_token()] if part else results
        made = _Node.apply(call, part, hanging, () if part else outside, [tensors[p] for p in reads], later,
                           *[tensors[p] for p in completes])
        later = made[0] if part else None
    return made


def forward_level():
    """Depth of torch.autograd.forward_ad levels in this thread, -1 for none."""
    return torch.autograd.forward_ad._current_level


MODES = (torch.is_grad_enabled, torch._C._is_any_autocast_enabled, torch.is_inference_mode_enabled,
         torch.autograd._profiler_enabled, torch.get_default_dtype, torch._C._functorch.peek_interpreter_stack,
         forward_level)


def _choose():
    """(apply, modes).  apply(function, inputs) runs a core function made with ``wrt`` on a tuple of tensors; the
    results carry an autograd node.  modes: callables that return the same objects as long as torch's modes are the same.

    The node's backward raises RuntimeError when it is run a second time without retain_graph, when an input or
    parameter that it reads was changed in place since, or when it is itself to be differentiated (create_graph=True).
    """
    wanted = os.environ.get("DCML_AUTOGRAD", "")
    if wanted not in ("", "python", "c++"):
        raise ValueError(f"DCML_AUTOGRAD={wanted!r}: expected 'python' or 'c++'")
    if wanted == "python":
        return apply_in_python, MODES
    try:
        from .. import _torch_node
    except ImportError:  # not built, or against another torch
        _torch_node = None
    if _torch_node is not None and torch.__version__.split("+")[0] == _torch_node.torch_version:
        return _torch_node.apply, (_torch_node.modes,)
    if wanted:
        raise ImportError(f"DCML_AUTOGRAD=c++: the node was not built for torch {torch.__version__}")
    return apply_in_python, MODES


apply, modes = _choose()

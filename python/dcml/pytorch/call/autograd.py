"""The autograd nodes of a compiled function.

The one idea: the core's Call keeps what the backward pass needs in one block of its own; torch is
shown the tensors that it reads too, so that it notices a second backward and changes in place.
A node for each part of the backward pass: the first hangs on the outputs, each later one on the one
before it, whose last result, a token, carries the pass.  The engine runs what accumulates gradients
first, so that these are in place, and hooks on them have run, before the next part begins.
torch_node/torch_node.cpp does the same faster, for the torch that it is built for; the nodes here
serve until that is there, and node.py chooses.
Must not know: plans, graphs or modules.
"""
import torch

from ... import _core


class _Node(torch.autograd.Function):
    @staticmethod
    def forward(ctx, call, part, results, outside, reads, sources, later, *completes):
        """results: what hangs on this node, except those of ``outside``; reads: the tensors that must stay as they are;
        sources: [what leads to all tensors with a gradient]; later: the next part's token, or None; completes: the tensors
        whose gradients this part completes."""
        ctx.call, ctx.first, ctx.last, ctx.sources = call, part == 0, later is None, sources
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*outside)
        ctx.save_for_backward(torch.empty(0), *reads)  # one at least, so that a second backward is noticed
        return tuple(results)

    @staticmethod
    def backward(ctx, *grads):
        ctx.saved_tensors  # noqa: B018  (raises if the graph was freed or a tensor changed in place)
        with torch.no_grad():
            run, grads = (ctx.call.start(grads), grads) if ctx.first else _pass_of(grads[0])
            found = run.next()
        if torch.is_grad_enabled():
            found = _Twice.apply(found, *ctx.sources, *grads)
        return (None, None, None, None, None, None, None if ctx.last else _token(run, grads), *found)


class _Sources(torch.autograd.Function):
    """A tensor behind which lie all that a call differentiates, and that holds none of them."""
    @staticmethod
    def forward(ctx, *tensors):
        return torch.empty(0)

    @staticmethod
    def backward(ctx, grad):
        raise AssertionError("nothing is computed of it")


class _Twice(torch.autograd.Function):
    """Gradients that are to be differentiated: those of all that they depend on, which raises, whichever is asked for."""
    @staticmethod
    def forward(ctx, found, sources, *grads):
        return tuple([None if grad is None else grad.detach() for grad in found])

    @staticmethod
    def backward(ctx, *grads):
        raise _core.UnsupportedOpError("a compiled function cannot be differentiated twice: take the second derivative, "
                                       "or a gradient made with create_graph=True, of module.model")


def _token(*carried):
    """A tensor that carries a backward pass and the gradients that it was started with."""
    token = torch.zeros(1)
    token.backward_pass = carried
    return token


def _pass_of(token):
    carried = getattr(token, "backward_pass", None)
    if not carried:
        raise RuntimeError("a hook replaced what a compiled function passes between the parts of its backward pass")
    return carried


def apply_in_python(function, inputs):
    """As node.apply, by the nodes above."""
    tensors = (*inputs, *(function.params or ()))
    with torch.no_grad():
        results, call = function._run(inputs)
    tape = function.differentiable or [True] * len(results)
    outside = [r for r, on_tape in zip(results, tape) if not on_tape or not r.dtype.is_floating_point]
    later, sources = None, [_Sources.apply(*[tensors[p] for completes, _ in call.parts for p in completes])]
    for part, (completes, reads) in reversed(list(enumerate(call.parts))):
        hanging = [_token()] if part else results
        made = _Node.apply(call, part, hanging, () if part else outside, [tensors[p] for p in reads], sources, later,
                           *[tensors[p] for p in completes])
        later = made[0] if part else None
    return made

"""The autograd node of a compiled function.

The one idea: the core's Call keeps what the backward pass needs in one block of its own; torch is
shown the tensors that it reads too, so that it notices a second backward and changes in place.
csrc/python/torch_node.cpp does the same faster, for the torch that it was built for; the node here
serves every other torch.  DCML_AUTOGRAD=python or c++ chooses one.
Must not know: plans, graphs or modules.
"""
import os

import torch


class _Node(torch.autograd.Function):
    @staticmethod
    def forward(ctx, function, n_inputs, *tensors):
        outputs, ctx.call = function._run(tensors[:n_inputs])
        ctx.positions = function.wrt_positions
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*[o for o in outputs if not o.dtype.is_floating_point])
        # what the backward pass reads must stay as it is; one tensor at least, so that a second backward is noticed
        ctx.save_for_backward(torch.empty(0), *[tensors[p] for p in function.backward_reads])
        ctx.n_tensors = len(tensors)
        return outputs

    @staticmethod
    def backward(ctx, *grads):
        ctx.saved_tensors  # noqa: B018  (raises if the graph was freed or a tensor changed in place)
        result = [None] * ctx.n_tensors
        with torch.no_grad():
            found = ctx.call.backward(grads)
        for position, grad in zip(ctx.positions, _once(found)):
            result[position] = grad
        return (None, None, *result)


def _once(grads):
    """Gradients that raise if a graph is asked for (create_graph=True) and they are then differentiated themselves."""
    if not torch.is_grad_enabled():
        return grads
    error = torch._C._functions.DelayedError("a compiled function cannot be differentiated twice", 1)
    return [None if grad is None else error(grad.detach().requires_grad_()) for grad in grads]


def apply_in_python(function, inputs):
    """As apply, by the node above."""
    return _Node.apply(function, len(inputs), *inputs, *(function.params or ()))


def _choose():
    """The function that runs a core function made with ``wrt`` on a tuple of tensors; the results carry an
    autograd node.

    Its backward raises RuntimeError when it is run a second time without retain_graph, when an input or parameter
    that it reads was changed in place since, or when it is itself to be differentiated (create_graph=True).
    """
    wanted = os.environ.get("DCML_AUTOGRAD", "")
    if wanted not in ("", "python", "c++"):
        raise ValueError(f"DCML_AUTOGRAD={wanted!r}: expected 'python' or 'c++'")
    if wanted == "python":
        return apply_in_python
    try:
        from .. import _torch_node
    except ImportError:  # not built, or against another torch
        _torch_node = None
    if _torch_node is not None and torch.__version__.split("+")[0] == _torch_node.torch_version:
        return _torch_node.apply
    if wanted:
        raise ImportError(f"DCML_AUTOGRAD=c++: the node was not built for torch {torch.__version__}")
    return apply_in_python


apply = _choose()

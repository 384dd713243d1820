"""The autograd node of a compiled function, in Python.

The one idea: the core's Call keeps what the backward pass needs in one block of its own; torch is
shown the differentiated tensors too, so that it notices a second backward and changes in place.
Must not know: plans, graphs or modules.
"""
import torch
from torch.autograd.function import once_differentiable


class _Node(torch.autograd.Function):
    @staticmethod
    def forward(ctx, function, n_inputs, *tensors):
        outputs, ctx.call = function._run(tensors[:n_inputs])
        ctx.positions = function.wrt_positions
        ctx.outputs = [(o.shape, o.dtype, o.device) if o.dtype.is_floating_point else None for o in outputs]
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*[o for o in outputs if not o.dtype.is_floating_point])
        ctx.save_for_backward(*[tensors[p] for p in ctx.positions])
        ctx.n_tensors = len(tensors)
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx, *grads):
        ctx.saved_tensors  # noqa: B018  (raises if the graph was freed or a tensor changed in place)
        given = []
        for grad, output in zip(grads, ctx.outputs):
            if output is not None:
                shape, dtype, device = output
                given.append(torch.zeros(shape, dtype=dtype, device=device) if grad is None else grad.contiguous())
        result = [None] * ctx.n_tensors
        for position, grad in zip(ctx.positions, ctx.call.backward(given)):
            result[position] = grad
        return (None, None, *result)


def apply(function, inputs):
    """Runs a core function made with ``wrt`` on a tuple of tensors; the results carry an autograd node.

    Its backward raises RuntimeError when it is run a second time without retain_graph, when an input or parameter
    was changed in place since, or when it is itself to be differentiated (create_graph=True).
    """
    return _Node.apply(function, len(inputs), *inputs, *(function.params or ()))

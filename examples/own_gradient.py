"""A gradient of one's own: quantisation trains, since Round passes gradients on where they are small enough to be believed.

The gradient of rounding is zero almost everywhere; the straight-through estimator (Bengio, Leonard, Courville, 2013) takes that
of the identity instead, here within [-1, 1].  It is stated once, and serves modules, models and SDFGs.
Usage: own_gradient.py
"""
import torch
from torch import nn

import dcml
from dcml.autodiff import BackwardImplementation, BackwardResult, autoregister_params
from dcml.pytorch import DaceModule


@autoregister_params(op="Round", name="straight_through")
class StraightThrough(BackwardImplementation):
    """The gradient at X is that at Y where |X| <= 1, else zero."""

    @staticmethod
    def backward_can_be_applied(node, state, sdfg):
        return len(sdfg.arrays[state.in_edges(node)[0].data.data].shape) == 1

    @staticmethod
    def backward(forward_node, context, given_gradients, required_gradients):
        array = context.forward_sdfg.arrays[context.forward_state.in_edges(forward_node)[0].data.data]
        reverse = dcml.SDFG("straight_through")
        for name in ("X", "grad_Y", "grad_X"):  # X is the node's input, which it is given since its name is the connector's
            reverse.add_array(name, array.shape, array.dtype)
        reverse.add_state().add_mapped_tasklet(
            "pass_on", {"i": f"0:{array.shape[0]}"}, {"x": dcml.Memlet("X[i]"), "g": dcml.Memlet("grad_Y[i]")},
            "d = g if x >= -1 and x <= 1 else 0", {"d": dcml.Memlet("grad_X[i]")}, external_edges=True)
        node = context.backward_state.add_nested_sdfg(reverse, None, {"X", "grad_Y"}, {"grad_X"})
        return node, BackwardResult(required_grad_names={"X": "grad_X"}, given_grad_names={"Y": "grad_Y"})


class Quantised(nn.Module):
    """round(x) / 8, times a weight."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.full((6,), 0.5))

    def forward(self, x):
        return self.weight * (torch.round(x) / 8)


def main():
    x = torch.tensor([-3.0, -0.9, -0.2, 0.4, 1.0, 2.6], requires_grad=True)
    module = Quantised()
    module(x).sum().backward()
    print("eager gradient:", x.grad.tolist())

    x.grad = None
    DaceModule(module, backward=True)(x).sum().backward()
    print("straight through:", x.grad.tolist())


if __name__ == "__main__":
    main()

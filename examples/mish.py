"""The Mish walk-through: a module, an operator of one's own, hooks and transformations, and the time of each.

Usage: mish.py [batch]   (the batch of 32x224x224 images; 8 is what YOLOv4 uses)
"""
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from dcml.onnx import python_pure_op_implementation
from dcml.pytorch import dace_module
from dcml.testing.profiling import print_time_statistics, time_funcs
from dcml.transformation import SubgraphFusion, TaskletFusion, TrivialMapRangeElimination, Vectorization


class Mish(nn.Module):
    """x * tanh(softplus(x)) (Misra, BMVC 2020)."""

    def forward(self, x):
        return x * torch.tanh(F.softplus(x))


@dace_module(backward=True)
class CompiledMish(Mish):
    """The same, compiled."""


@python_pure_op_implementation
def Softplus(X, Y):
    Y[:] = np.log(1 + np.exp(X))


def agree(compiled, eager, x, dy):
    """Raises if outputs or gradients of the two differ."""
    results = []
    for module in (compiled, eager):
        x.grad = None
        y = module(x)
        y.backward(dy)
        results.append((y.detach(), x.grad))
    for got, want in zip(*results):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def measure(runs):
    """Prints the time of each of {name: callable}."""
    print_time_statistics(time_funcs(list(runs.values()), func_names=list(runs), warmups=3, num_iters=9), list(runs))


def main(batch=8):
    x, dy = torch.rand(batch, 32, 224, 224, requires_grad=True), torch.rand(batch, 32, 224, 224)
    compiled, eager = CompiledMish(), Mish()

    def run(module):
        x.grad = None
        module(x).backward(dy)

    agree(compiled, eager, x, dy)
    print("forward graph, by default:", compiled.forward_sdfg.node(0).nodes())
    print("backward graph, by default:", compiled.backward_sdfg.node(0).nodes())
    measure({"dcml": lambda: run(compiled), "torch": lambda: run(eager)})

    compiled.reset_sdfg()
    compiled.append_post_onnx_hook("expand", lambda module: module.sdfg.expand_library_nodes())
    compiled.append_post_onnx_hook("trivial ranges", lambda module: module.sdfg.apply_transformations_repeated(TrivialMapRangeElimination))
    compiled.append_post_onnx_hook("fuse maps", lambda module: SubgraphFusion.apply_to(module.sdfg))
    compiled.append_post_onnx_hook("fuse tasklets", lambda module: module.dace_model.sdfg.apply_transformations_repeated(TaskletFusion))
    compiled.append_post_autodiff_hook("vectorize", lambda forward, backward: [g.apply_transformations(Vectorization) for g in (forward, backward)])
    compiled.append_post_compile_hook("tell", lambda compiled_sdfg: print("compiled"))
    agree(compiled, eager, x, dy)
    print("forward graph, by hooks:", compiled.forward_sdfg.node(0).nodes())
    measure({"dcml": lambda: run(compiled), "torch": lambda: run(eager)})


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))

"""The Mish activation (Misra, BMVC 2020), tuned by hand: hooks apply transformations between capture, differentiation and compilation.

Usage: mish.py [batch]   (the batch of 32x224x224 images; 8 is what YOLOv4 uses)
"""
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from dcml import onnx as donnx
from dcml.library import change_default
from dcml.onnx import python_pure_op_implementation
from dcml.pytorch import dace_module
from dcml.testing.profiling import print_time_statistics, time_funcs
from dcml.transformation import SubgraphFusion, TaskletFusion, TrivialMapRangeElimination, Vectorization
from dcml.util import utils


class Mish(nn.Module):
    """x * tanh(softplus(x))."""

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


def tune(compiled):
    """Adds the hooks, each of which says what it found to do."""
    def expand(module):
        with change_default(donnx, "pure"):
            utils.auto_optimize(module.sdfg, cuda=False, apply_strict=True)
        print("operators are now", module.sdfg.node(0).nodes())

    def fuse_maps(module):
        sdfg = module.sdfg
        print("trivial ranges removed:", sdfg.apply_transformations_repeated(TrivialMapRangeElimination))
        print("subgraphs fused:", SubgraphFusion.apply_to(sdfg, *sdfg.node(0).nodes()))

    def fuse_tasklets(module):
        print("tasklets fused:", module.dace_model.sdfg.apply_transformations_repeated(TaskletFusion))

    def vectorize(forward, backward):
        print("maps vectorized:", forward.apply_transformations(Vectorization), "and", backward.apply_transformations(Vectorization))

    compiled.append_post_onnx_hook("auto_optimize", expand)
    compiled.append_post_onnx_hook("subgraph_fusion", fuse_maps)
    compiled.append_post_onnx_hook("fuse_tasklets", fuse_tasklets)
    compiled.append_post_autodiff_hook("vectorize", vectorize)
    compiled.append_post_compile_hook("tell", lambda compiled_sdfg: print("compiled"))


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
    tune(compiled)
    agree(compiled, eager, x, dy)
    print("forward graph, by hooks:", compiled.forward_sdfg.node(0).nodes())
    traced = torch.jit.trace(Mish(), x.detach())
    measure({"dcml": lambda: run(compiled), "torch": lambda: run(eager), "torch.jit": lambda: run(traced)})


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))

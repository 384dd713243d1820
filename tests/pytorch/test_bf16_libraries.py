"""Products and convolutions in bf16 reach a library of the processor: as they are, or in f32 between casts."""
import os
import subprocess
import sys

import torch
from torch import nn

from dcml.pytorch import DaceModule


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.ConvTranspose2d(32, 16, 2, 2), nn.ReLU(), nn.Flatten(),
                         nn.Linear(16 * 64, 24)), torch.randn(4, 16, 4, 4)


def gradients(module, x, around):
    leaf = x.clone().requires_grad_()
    module.zero_grad()
    with around:
        result = module(leaf)
    result.float().square().mean().backward()
    return [result.detach().float(), leaf.grad.clone(), *(p.grad.clone() for p in module.parameters())]


def runners(function):
    """[(the operator, who runs it)] of both directions' convolutions and products."""
    out = []
    for graph, report in zip((function.forward_graph, function.backward_graph), function.report()):
        labels = {node[0]: node[2] for state in range(graph.n_states) for node in graph.nodes(state)}
        out += [(labels[step["node"]], step["by"]) for step in report["steps"] if step["by"] != "compiled"]
    return out


def check():
    module, x = network()
    wanted = gradients(module, x, torch.autocast("cpu", torch.bfloat16))
    exact = gradients(module, x, torch.autocast("cpu", enabled=False))
    compiled = DaceModule(module, backward=True, precision="bf16")
    got = gradients(compiled, x, torch.autocast("cpu", enabled=False))
    for ours, eager, right in zip(got, wanted, exact):
        error, allowed = (ours - right).norm(), (eager - right).norm()
        assert error <= 1.5 * allowed + 1e-2 * right.norm(), (error, allowed)
    served = runners(compiled._function())
    assert len(served) == 9, served  # each of the three layers forward, and both of its gradients
    return compiled


def test_convolutions_and_products_of_bf16_are_served_forward_and_backward():
    check()


def test_a_processor_without_bf16_computes_in_f32_between_casts():
    command = "import test_bf16_libraries as t; print(t.check()._function().forward_graph.text())"
    folders = os.pathsep.join([os.path.dirname(__file__), *sys.path])
    run = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=False, timeout=300,
                         env={**os.environ, "PYTHONPATH": folders, "ONEDNN_MAX_CPU_ISA": "AVX2"})
    assert run.returncode == 0, run.stderr
    assert '"0.out_wide": f32' in run.stdout

"""Same inputs, module, machine and threads: the same bits, at the first call or a later one, cold or warm cache.

Each module runs forward and backward six times; a digest of all bits must be one.  Run as a program, the file prints
the digests of all modules, so that processes can be compared.
"""
import hashlib
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import dcml.onnx
from dcml.library import change_default
from dcml.pytorch import DaceModule

CALLS = 6


class Said(nn.Module):
    """A module that says what it computes."""

    def __init__(self, function, **children):
        super().__init__()
        self.function = function
        for name, child in children.items():
            self.add_module(name, child)

    def forward(self, *args):
        return self.function(self, *args)


def _tanh_norm(m, x):
    return torch.tanh(m.norm(m.linear(x)))


def _embedded(m, x):
    return m.embedding((x.abs() * 9).long().clamp(max=6)).sum(-2)  # ids that repeat: gradients add up


def _entropy(m, x):
    return F.cross_entropy(m.linear(x), torch.arange(x.shape[0]) % 5)


def _branching(m, x):
    return x.softmax(-1) * x.std(-1, keepdim=True) + x.cumsum(0) + x.norm(dim=0) + x.logsumexp(-1, keepdim=True)


MODULES = {  # module, shape of its input; another shape
    "tanh of LayerNorm": lambda: (Said(_tanh_norm, linear=nn.Linear(12, 16), norm=nn.LayerNorm(16)), (4, 12), (7, 12)),
    "MLP": lambda: (nn.Sequential(nn.Linear(12, 33), nn.GELU(), nn.Linear(33, 5)), (6, 12), (300, 12)),
    "CNN": lambda: (nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 4, 3)),
                    (2, 3, 14, 14), (5, 3, 14, 14)),
    "GroupNorm": lambda: (nn.Sequential(nn.GroupNorm(2, 6), nn.SiLU()), (2, 6, 9, 9), (3, 6, 11, 9)),
    "BatchNorm in training": lambda: (nn.BatchNorm2d(5), (4, 5, 7, 7), (6, 5, 7, 7)),
    "LSTM": lambda: (Said(lambda m, x: m.lstm(x)[0], lstm=nn.LSTM(6, 9, batch_first=True)), (3, 5, 6), (3, 8, 6)),
    "attention": lambda: (nn.TransformerEncoderLayer(16, 2, 24, dropout=0.0, batch_first=True), (2, 5, 16), (3, 7, 16)),
    "embedding": lambda: (Said(_embedded, embedding=nn.Embedding(7, 8)), (3, 20), (4, 31)),
    "cross-entropy": lambda: (Said(_entropy, linear=nn.Linear(10, 5)), (9, 10), (30, 10)),
    "norms and sums": lambda: (Said(_branching), (40, 70), (300, 70)),
    "one scalar": lambda: (Said(lambda m, x: x.exp() + 1), (1,), (2,)),
}


def _make(name):
    torch.manual_seed(3)
    module, *shapes = MODULES[name]()
    return module, [torch.randn(shape) for shape in shapes]


def _digest(compiled, x):
    """Of the bits of the results and all gradients of one call."""
    x = x.clone().requires_grad_()
    compiled.zero_grad()
    y = compiled(x)
    y.backward(torch.linspace(-1, 1, y.numel()).reshape(y.shape))
    tensors = [y.detach(), *[t.grad for t in (x, *compiled.parameters()) if t.grad is not None]]
    return hashlib.sha256(b"".join(t.numpy().tobytes() for t in tensors)).hexdigest()


def _all_digests():
    """{name: digest of the first call}, threads as they are."""
    found = {}
    for name in MODULES:
        module, (x, _) = _make(name)
        found[name] = _digest(DaceModule(module, backward=True), x)
    return found


def _in_new_process(cache):
    done = subprocess.run([sys.executable, __file__], env={**os.environ, "DCML_CACHE": cache}, capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", MODULES)
def test_every_call_gives_the_same_bits_also_after_another_shape(name):
    module, (x, other) = _make(name)
    compiled = DaceModule(module, backward=True)
    first = [_digest(compiled, x) for _ in range(CALLS)]
    second = [_digest(compiled, other) for _ in range(CALLS)]
    assert len(set(first)) == 1 and len(set(second)) == 1
    assert _digest(compiled, x) == first[0]


@pytest.mark.parametrize("name", ["tanh of LayerNorm", "GroupNorm", "norms and sums"])
def test_where_the_data_lie_does_not_show(name):
    module, (x, _) = _make(name)
    compiled = DaceModule(module, backward=True)
    expected = _digest(compiled, x)
    room = torch.empty(x.numel() + 16)
    for gap in range(1, 16):
        moved = room[gap:gap + x.numel()].view(x.shape).copy_(x).requires_grad_()
        y = compiled(moved)
        compiled.zero_grad()
        y.backward(torch.linspace(-1, 1, y.numel()).reshape(y.shape))
        tensors = [y.detach(), moved.grad, *[p.grad for p in compiled.parameters()]]
        assert hashlib.sha256(b"".join(t.numpy().tobytes() for t in tensors)).hexdigest() == expected, gap


@pytest.mark.parametrize("in_python", [False, True])
def test_both_autograd_nodes_and_a_kept_graph_give_the_same_bits(in_python):
    module, (x, _) = _make("tanh of LayerNorm")
    expected = _digest(DaceModule(module, backward=True), x)
    compiled = DaceModule(module, backward=True, compile_torch_extension=not in_python)
    assert _digest(compiled, x) == expected
    x = x.requires_grad_()
    y = compiled(x)
    seed = torch.linspace(-1, 1, y.numel()).reshape(y.shape)
    one, two = (torch.autograd.grad(y, (x, *module.parameters()), seed, retain_graph=True) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one, two))


def test_a_new_process_gives_the_same_bits_with_a_cold_and_a_warm_cache(tmp_path):
    cold = _in_new_process(str(tmp_path))
    assert _in_new_process(str(tmp_path)) == cold
    assert json.loads(cold).keys() == MODULES.keys()


@pytest.mark.parametrize("name", ["tanh of LayerNorm", "LSTM", "GroupNorm"])
def test_gradcheck_holds_with_no_tolerance_for_differences_between_calls(name):
    module, (x, _) = _make(name)
    compiled = DaceModule(module.double(), backward=True)
    assert torch.autograd.gradcheck(compiled, (x.double()[:2].requires_grad_(),), nondet_tol=0.0)


@pytest.mark.parametrize("implementation", ["native", "pure", "interpreted"])
def test_an_onnx_model_gives_the_same_bits_at_every_call(implementation):
    onnx = pytest.importorskip("onnx")
    from onnx import helper
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Softmax", ["a"], ["b"]),
             helper.make_node("ReduceMean", ["b"], ["y"], axes=[0])]
    x, w, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
               for name, shape in (("x", ["n", 24]), ("w", [24, 50]), ("y", None)))
    graph = helper.make_graph(nodes, "g", [x, w], [y])
    rng = np.random.default_rng(0)
    arrays = [[rng.standard_normal(shape).astype(np.float32) for shape in ((n, 24), (24, 50))] for n in (8, 200)]
    with change_default(dcml.onnx, implementation):
        model = dcml.onnx.ONNXModel("g", helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]))
        results = [model(*arrays[k % 2]).tobytes() for k in range(2 * CALLS)]
    assert len(set(results[::2])) == 1 and len(set(results[1::2])) == 1


if __name__ == "__main__":
    print(json.dumps(_all_digests()))

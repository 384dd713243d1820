"""Sums in float32 are as accurate as eager mode's: errors against float64, root mean square over several draws, are at
most twice eager's, or two units in the last place of the largest result.  Where a ReLU or the like multiplies errors by
chance, medians over the draws are compared."""
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import dcml.onnx
from dcml.library import change_default
from dcml.pytorch import DaceModule

DRAWS = 7
FLOOR = 2.0 ** -22


def _error(got, exact):
    """Mean square of the differences."""
    return (got.double() - exact).square().mean().item()


def _check(function, shapes, shift=0.0, dtype=torch.float32, compiled=None):
    """Compares the errors of a compiled function and of eager mode."""
    generator, unit = torch.Generator().manual_seed(1), FLOOR if dtype is torch.float32 else torch.finfo(dtype).eps
    eager, own, largest = 0.0, 0.0, 0.0
    for _ in range(DRAWS):
        inputs = [(torch.randn(shape, generator=generator, dtype=torch.float64) + shift).to(dtype) for shape in shapes]
        exact = function(*[x.double() for x in inputs])
        eager += _error(function(*inputs), exact) / DRAWS
        own += _error(compiled(*inputs), exact) / DRAWS
        largest = max(largest, exact.abs().max().item())
    assert own ** 0.5 <= max(2 * eager ** 0.5, unit * largest), f"error {own ** 0.5:.1e}, eager's is {eager ** 0.5:.1e}"


class Said(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


VALUES = {
    "sum": lambda x: x.sum(), "mean": lambda x: x.mean(), "var": lambda x: x.var(), "norm": lambda x: x.norm(),
    "sums of rows": lambda x: x.reshape(-1, 100).sum(1), "sums of columns": lambda x: x.reshape(-1, 10).sum(0),
    "sums over all but channels": lambda x: x.reshape(-1, 5, 20).sum((0, 2)),
    "softmax": lambda x: F.softmax(x.reshape(2, -1), -1),
    "softmax of columns": lambda x: F.softmax(x.reshape(-1, 4), 0),
    "log_softmax": lambda x: F.log_softmax(x.reshape(2, -1), -1), "logsumexp": lambda x: x.logsumexp(0),
    "cross-entropy": lambda x: F.cross_entropy(x.reshape(-1, 10), torch.arange(x.numel() // 10) % 10),
    "LayerNorm": lambda x: F.layer_norm(x.reshape(2, -1), (x.numel() // 2,)),
    "BatchNorm": lambda x: F.batch_norm(x.reshape(-1, 5, 4), None, None, training=True),
    "cumsum": lambda x: x.cumsum(0), "product of matrices": lambda x: x.reshape(2, -1) @ x.reshape(-1, 2),
    "dot": lambda x: (x * x.flip(0)).sum(),
}


@pytest.mark.parametrize("shift", [0.0, 1.0])
@pytest.mark.parametrize("name", VALUES)
def test_values_are_as_accurate_as_eagers(name, shift):
    with change_default(dcml.onnx, "pure"):  # libraries have sums of their own
        compiled = DaceModule(Said(VALUES[name]))
        for n in (1000, 20_000, 1_000_000):  # the first extent as it is, others as a symbol
            _check(VALUES[name], [(n,)], shift, compiled=compiled)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_small_floats_are_added_in_float32(dtype):
    _check(torch.sum, [(20_000,)], 1.0, dtype, DaceModule(Said(torch.sum)))


@pytest.mark.parametrize("name", ["sum", "mean", "sums of columns", "softmax", "cumsum", "product of matrices"])
def test_the_interpreter_is_as_accurate(name):
    with change_default(dcml.onnx, "interpreted"):
        _check(VALUES[name], [(20_000,)], 1.0, compiled=DaceModule(Said(VALUES[name])))


LAYERS = {
    "bias of a convolution": lambda: (nn.Conv2d(3, 8, 1), (16, 3, 28, 28)),
    "LayerNorm": lambda: (nn.LayerNorm(64), (4000, 64)),
    "BatchNorm": lambda: (nn.BatchNorm2d(6), (32, 6, 16, 16)),
    "Linear": lambda: (nn.Linear(40, 30), (5000, 40)),
}


def _gradients(module, x, dy):
    return torch.cat([g.flatten().double() for g in torch.autograd.grad(module(x), list(module.parameters()), dy)])


def _errors_of_gradients(module, shape):
    """Eager's and ours for each of the draws, relative to the largest gradient."""
    compiled = DaceModule(module, backward=True)
    for _ in range(DRAWS):
        x = torch.randn(shape)
        dy = torch.rand_like(module(x).detach()) - 0.2
        got = [_gradients(m, x, dy) for m in (module, compiled)]
        exact = _gradients(module.double(), x.double(), dy.double())
        module.float()
        yield [_error(g, exact) ** 0.5 / exact.abs().max().item() for g in got]


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_of_parameters_are_as_accurate_as_eagers(name):
    torch.manual_seed(0)
    with change_default(dcml.onnx, "pure"):
        eager, own = np.median(list(_errors_of_gradients(*LAYERS[name]())), axis=0)
    assert own <= max(2 * eager, FLOOR), f"error {own:.1e}, eager's is {eager:.1e}"


def test_the_gradient_of_a_normalisation_is_rounded_to_bfloat16_once():
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(8)
    compiled = DaceModule(norm, backward=True)
    x, dy = (torch.randn(4, 8, 12, 12).bfloat16() for _ in range(2))
    eager, own, exact = (torch.autograd.grad(m(x), x, dy)[0].double() for m, x, dy in (
        (norm, x.requires_grad_(), dy), (compiled, x, dy), (nn.BatchNorm2d(8).double(), x.detach().double().requires_grad_(), dy.double())))
    assert _error(own, exact) <= 1.2 * _error(eager, exact)


class Block(nn.Module):
    """Of a residual network: values near zero decide which way a ReLU goes, and with it whole gradients."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.Conv2d(16, 16, 3, padding=1, bias=False)
        self.na, self.nb = nn.BatchNorm2d(16), nn.BatchNorm2d(16)

    def forward(self, x):
        return F.relu(x + self.nb(self.b(F.relu(self.na(self.a(x))))))


@pytest.mark.parametrize("implementation", ["native", "pure"])
def test_residual_blocks_at_batch_two_have_gradients_as_near_to_float64_as_eagers(implementation):
    torch.manual_seed(0)
    module = nn.Sequential(Block(), Block(), Block())
    with change_default(dcml.onnx, implementation):
        eager, own = np.median(list(_errors_of_gradients(module, (2, 16, 28, 28))), axis=0)
    assert own <= 2 * eager, f"error {own:.1e}, eager's is {eager:.1e}"

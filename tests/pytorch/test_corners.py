"""Corners of single operators where something was once refused or different: results and gradients as in eager PyTorch."""
import math

import pytest
import torch
import torch.nn.functional as F
from captured import Call
from torch.utils import _pytree as pytree

from dcml.pytorch import DaceModule

pytestmark = pytest.mark.usefixtures("interpreted")

NUMBER, NONE, ROWS = torch.tensor(1.5), torch.zeros(2, 0, 3), torch.tensor([[2.0, 1.0], [0.5, 1.0], [2.0, 1.0]])
SQUARE = torch.tensor([[2.0, 1.0], [0.5, 3.0]])
CASES = {
    "pow by a negative base": (lambda a, b: a ** b, torch.tensor([-2.0, -1.5, 3.0]), torch.tensor([2.0, 0.5, 0.5])),
    "pow by a base of zero": (lambda a, b: a ** b, torch.tensor([0.0, 0.0, 0.0]), torch.tensor([0.0, 2.0, -1.0])),
    "power of a negative number": (lambda b: (-2.0) ** b, torch.tensor([2.0, 0.5])),
    "power of zero": (lambda b: 0.0 ** b, torch.tensor([0.0, 2.0, -1.0])),
    "hardswish and hardsigmoid where their pieces meet":
        (lambda a: (F.hardswish(a), F.hardsigmoid(a)), torch.tensor([-4.0, -3.0, -0.0, 3.0, 4.0, -math.inf, math.inf])),
    "running extremes of equal numbers, NaN and booleans":
        (lambda a: (*a.cummax(0), *a.cummin(0), *(a > 1).cummax(0)), torch.tensor([2.0, 2.0, -1.0, 3.0, 3.0, math.nan, 1.0])),
    "nonzero of a number": (torch.nonzero, NUMBER),
    "nonzero of zero": (torch.nonzero, torch.tensor(0.0)),
    "nonzero of no elements": (lambda a: a.nonzero(as_tuple=True), NONE),
    "masked_select of a number": (lambda a: a.masked_select(a > 1), NUMBER),
    "nonzero_static": (lambda a: torch.nonzero_static(a - 1, size=3), ROWS),
    "nonzero_static with more places than elements": (lambda a: torch.nonzero_static(a, size=9, fill_value=7), ROWS),
    "unique of no rows": (lambda a: a.detach().unique(dim=1), NONE),
    "unique rows of bfloat16": (lambda a: a.detach().unique(dim=0, return_inverse=True), ROWS.bfloat16()),
    "unique of bfloat16": (lambda a: a.detach().unique(return_inverse=True, return_counts=True), ROWS.bfloat16()),
    "any along the axis of a number": (lambda a: (a > 1).any(0), NUMBER),
    "norm along the axis of a number": (lambda a: torch.linalg.vector_norm(a.detach(), 0, 0), NUMBER),
    "average pooling with a divisor and ceil_mode":
        (lambda a: F.avg_pool2d(a, 3, 2, 1, ceil_mode=True, divisor_override=2), torch.arange(36.0).reshape(1, 1, 6, 6)),
    "average pooling with a divisor whose last window is dropped":
        (lambda a: F.avg_pool2d(a, 2, 2, 1, ceil_mode=True, divisor_override=3), torch.arange(25.0).reshape(1, 1, 5, 5)),
    "similarity of numbers": (lambda a, b: F.cosine_similarity(a, b, 0), NUMBER, torch.tensor(-2.0)),
    "roll of no elements": (lambda a: a.roll(2), NONE),
    "gather of nothing": (lambda a: a.gather(0, torch.zeros(2, 0, dtype=torch.int64)), NUMBER.expand(5)),
    "places of no values": (lambda a: torch.bucketize(a.detach(), torch.tensor([0.0, 1.0])), NONE),
    "pdist": (lambda a: F.pdist(a, 1.5), ROWS),
    "renorm of halves": (lambda a: torch.renorm(a, 2, 0, 1.0), ROWS.half()),
    "triangular system from the right": (lambda a, b: torch.linalg.solve_triangular(a, b, upper=True, left=False), SQUARE, ROWS[:2]),
    "least squares with singular values": (lambda a, b: torch.linalg.lstsq(a, b, driver="gelsd"),
                                           torch.tensor([[1.0, 2], [3, 1], [0, 1]]), torch.tensor([[1.0], [0], [2]])),
}


def results(module, args):
    """(results, gradients of the floating-point arguments)."""
    args = [a.clone().requires_grad_() for a in args]
    leaves = pytree.tree_leaves(module(*args))
    roots = [t for t in leaves if t.requires_grad]
    seeds = [torch.arange(1.0, t.numel() + 1).reshape(t.shape).to(t.dtype) for t in roots]
    return leaves, torch.autograd.grad(roots, args, seeds, allow_unused=True) if roots else ()


@pytest.mark.parametrize("name", CASES)
def test_a_corner_follows_eager(name):
    function, *args = CASES[name]
    for got, want in zip(results(DaceModule(Call(function), backward=True), args), results(function, args), strict=True):
        torch.testing.assert_close(list(got), list(want), rtol=2e-3, atol=1e-5, equal_nan=True)  # some are of halves


@pytest.mark.parametrize("x", [torch.ones(2, 3, 4, 4), torch.ones(3, 2, 2, 2, 2), torch.ones(2, 5)], ids=lambda x: f"{x.dim()}-d")
def test_dropouts_drop_half_of_all_channels_unless_told(x):
    layer = {2: torch.nn.AlphaDropout, 4: torch.nn.Dropout2d, 5: torch.nn.Dropout3d}[x.dim()]()
    dropped = DaceModule(layer)(x)
    if x.dim() == 2:
        assert len(dropped.unique()) <= 2 and not dropped.equal(x)
    else:
        assert {*dropped.flatten().tolist()} <= {0.0, 2.0} and (dropped == dropped[:, :, :1, :1]).all()


@pytest.mark.parametrize("sizes", [(4, 0, 4), (0, 4)], ids=str)
@pytest.mark.parametrize("momentum", [0.1, None])
def test_batch_norm_of_an_empty_batch_leaves_its_statistics(sizes, momentum):
    plain = torch.nn.BatchNorm1d(3, momentum=momentum)
    ours = DaceModule(torch.nn.BatchNorm1d(3, momentum=momentum), backward=True)
    for size in sizes:
        for module in (plain, ours):
            module(torch.arange(size * 6.0).reshape(size, 3, 2)).sum().backward()
        for (name, got), want in zip(ours.named_buffers(), plain.buffers()):
            torch.testing.assert_close(got, want, msg=lambda text, n=name: f"{n}: {text}")


def test_averages_over_all_calls_stay_averages_in_every_capture():
    plain, module = torch.nn.BatchNorm1d(3, momentum=None), torch.nn.BatchNorm1d(3, momentum=None)
    ours = DaceModule(module)
    for shape in ((2, 3, 2), (4, 3), (0, 3, 2), (5, 3, 2)):
        x = torch.arange(1.0, 1 + torch.Size(shape).numel()).reshape(shape)
        plain(x), ours(x)
        torch.testing.assert_close(ours.running_mean, plain.running_mean)
    assert module.momentum is None


def test_numbers_drawn_around_numbers_have_their_extents():
    drawn = DaceModule(Call(lambda a: a + torch.normal(2.0, 0.1, (3, 2))))(ROWS)
    assert drawn.shape == (3, 2) and ((drawn - ROWS - 2).abs() < 1).all()


@pytest.mark.parametrize("dtype", (torch.float32, torch.float16), ids=str)
def test_statistics_given_to_batch_norm_have_no_history(dtype):
    x, mean, var = torch.rand(4, 2, 3, dtype=dtype).requires_grad_(), torch.zeros(2, dtype=dtype), torch.ones(2, dtype=dtype)
    DaceModule(Call(lambda x, m, v: F.batch_norm(x, m, v, training=True)), backward=True)(x, mean, var)
    assert not mean.requires_grad and not var.requires_grad and mean.any()


def test_large_scores_of_attention_in_bfloat16_are_as_exact_as_in_eager():
    noise = torch.Generator().manual_seed(0)
    q, k, v = (8 * torch.randn(2, 5, 8, generator=noise).bfloat16() for _ in range(3))
    mask = torch.randn(5, 5, generator=noise).bfloat16()
    exact = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), mask.double())
    got, eager = DaceModule(Call(F.scaled_dot_product_attention))(q, k, v, mask), F.scaled_dot_product_attention(q, k, v, mask)
    assert (got - exact).abs().max() <= 2 * (eager - exact).abs().max()

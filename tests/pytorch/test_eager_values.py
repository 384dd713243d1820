"""Values, refusals and extents where a row could silently differ from eager mode: special numbers, ties, booleans, weights
that forward computes, positions by symbolic extents."""
import pytest
import torch
import torch.nn.functional as F
from small import Calls
from torch import nn

import dcml
from dcml.pytorch import DaceModule

arange = torch.arange


def check(function, calls, captures=None):
    compiled = DaceModule(Calls(function), backward=True)
    for args in calls:
        want, got = function(*args), compiled(*args)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4, equal_nan=True)
        leaves = [a for a in args if a.requires_grad]
        if want.requires_grad:
            found = [torch.autograd.grad(y.square().mean(), leaves, allow_unused=True) for y in (got, want)]
            torch.testing.assert_close(*found, rtol=1e-3, atol=1e-4)
    if captures is not None:
        assert len(compiled._captures) == captures


def given(*shape):
    return torch.randn(*shape).requires_grad_()


# -- weights that forward computes -----------------------------------------------------------------
def per_sample(x, z):
    n = x.shape[0]
    kernels = z.tanh().reshape(n * 3, 4, 3, 3)
    return F.conv2d(x.reshape(1, n * 4, *x.shape[2:]), kernels, groups=n, padding=1).reshape(n, 3, *x.shape[2:])


COMPUTED = {
    "kernels by sample": (per_sample, [(given(n, 4, 5, 5), given(n, 3 * 4 * 9)) for n in (2, 3, 4)]),
    "kernels of several sizes": (lambda x, k: F.conv2d(x, k * 2), [(given(2, 4, n, n), given(3, 4, k, k))
                                                                   for n, k in ((8, 3), (8, 5), (9, 2))]),
    "a linear layer": (lambda x, w, b: F.linear(x, w.tanh(), b * 2), [(given(n, 4), given(m, 4), given(m))
                                                                     for n, m in ((2, 3), (5, 6), (5, 7))]),
    "a norm": (lambda x, w, b: F.layer_norm(x, x.shape[-1:], w.tanh(), b * 2), [(given(2, n), given(n), given(n))
                                                                               for n in (4, 6, 7)]),
    "an embedding": (lambda w: F.embedding(arange(3), w.tanh(), padding_idx=1), [(given(n, 5),) for n in (4, 7, 8)]),
}


@pytest.mark.parametrize("what", COMPUTED)
def test_weights_may_be_computed(what):
    check(*COMPUTED[what])


@pytest.mark.parametrize("groups", (1, 2))
@pytest.mark.parametrize("kind", ("conv1d", "conv3d", "conv_transpose2d"))
def test_kernels_may_be_computed(kind, groups):
    space = int(kind[-2])
    shape = (4, 4 // groups) + (3,) * space
    count = torch.Size(shape).numel()
    check(lambda x, z, b: getattr(F, kind)(x, z.tanh().reshape(shape), b * 2, groups=groups),
          [(given(2, 4, *(n,) * space), given(count), given(4)) for n in (6, 7)])


# -- positions by two symbolic extents -------------------------------------------------------------
TABLE = torch.randn(64)
POSITIONS = {
    "relative": lambda q, k: TABLE[(arange(q.size(1))[:, None] - arange(k.size(1))[None]).clamp(-8, 8) + 8],
    "of floats": lambda q, k: arange(q.size(1), dtype=torch.float32)[:, None] - arange(k.size(1)).float(),
    "downwards": lambda q, k: arange(k.size(1) - 1, -1, -1.0),
    "from one": lambda q, k: 1 / arange(1.0, k.size(1) + 1),
    "in logarithms": lambda q, k: (arange(0.0, q.size(1))[:, None] - arange(0.0, k.size(1))).abs().log1p(),
    "with steps": lambda q, k: arange(0.0, 2 * k.size(1), 2),
    "by a cumulative sum": lambda q, k: k.new_ones(k.size(1)).cumsum(0) - 1,
}


@pytest.mark.parametrize("what", POSITIONS)
def test_positions_by_two_extents_are_captured_at_most_twice(what):
    calls = [(given(2, n, 4), given(2, m, 4)) for n, m in ((5, 7), (6, 9), (8, 8), (3, 4))]
    check(lambda q, k: q @ k.mT + POSITIONS[what](q, k), calls, captures=2)


# -- special numbers, ties, booleans ---------------------------------------------------------------
def test_relu_keeps_the_sign_of_zero_and_gives_zeros_no_gradient():
    x = torch.tensor([-1, -0.0, 0, 1, float("nan"), float("inf"), -float("inf")], requires_grad=True)
    (got, grad), (want, right) = [(y, torch.autograd.grad(y.sum(), x)[0]) for y in (DaceModule(nn.ReLU(), backward=True)(x), torch.relu(x))]
    torch.testing.assert_close((got, grad), (want, right), rtol=0, atol=0, equal_nan=True)
    assert torch.signbit(got).tolist() == torch.signbit(want).tolist()


def test_the_sign_of_nan_and_of_zeros_is_zero():
    x = torch.tensor([float("nan"), -0.0, 0.0, 2.0, -2.0, float("-inf")])
    assert DaceModule(Calls(torch.sign))(x).tolist() == torch.sign(x).tolist() == [0, 0, 0, 1, -1, -1]


BOOLEANS = {"1 - x": lambda x: 1 - x, "x - 1": lambda x: x - 1, "a float - x": lambda x: torch.ones(2) - x,
            "argmax": torch.argmax, "argmin": torch.argmin, "ceil": torch.ceil, "trunc": torch.trunc}


@pytest.mark.parametrize("what", BOOLEANS)
def test_what_torch_does_not_compute_of_booleans_is_refused(what):
    x = torch.tensor([True, False])
    with pytest.raises(RuntimeError):
        BOOLEANS[what](x)
    with pytest.raises(dcml.UnsupportedOpError, match="of booleans.*(small|test_eager_values).py"):
        DaceModule(Calls(BOOLEANS[what]))(x)


@pytest.mark.parametrize("mode", ("nearest", "nearest-exact"))
def test_the_nearest_element_is_that_of_torch_for_all_sizes(mode):
    resized = DaceModule(Calls(lambda x, like: F.interpolate(x, size=like.shape[2:], mode=mode)), backward=True)
    for have in (1, 2, 3, 6, 9, 12, 13):
        for want in (1, 2, 3, 4, 6, 8, 15, 18):
            x, weights = arange(2.0 * have).reshape(1, 2, have).requires_grad_(), torch.rand(1, 2, want)
            expected, got = F.interpolate(x, size=want, mode=mode), resized(x, torch.empty(1, 1, want))
            assert got.tolist() == expected.tolist(), (have, want)
            grads = [torch.autograd.grad((y * weights).sum(), x)[0] for y in (got, expected)]
            torch.testing.assert_close(*grads)


@pytest.mark.parametrize("mode", ("nearest", "nearest-exact"))
@pytest.mark.parametrize("factor", (0.3, 0.75, 1 / 3, 1.5, 2.0, (2.0, 1.5)))
def test_the_nearest_element_by_a_factor_is_that_of_torch(mode, factor):
    x = torch.rand(1, 2, 6, 7)
    want = F.interpolate(x, scale_factor=factor, mode=mode)
    assert DaceModule(Calls(lambda x: F.interpolate(x, scale_factor=factor, mode=mode)))(x).equal(want)


@pytest.mark.parametrize("what", [lambda x: torch.linalg.vector_norm(x, 3), lambda x: torch.dist(x, 0.5 * x, 4), lambda x: x.var(),
                                  lambda x: x.std(0, keepdim=True), lambda x: F.cosine_similarity(x, 2 * x, 0)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sums_of_powers_of_short_floats_do_not_leave_their_range(what, dtype):
    x = torch.tensor([300., 1, -250, 290, 280], dtype=dtype)
    ours, theirs, exact = (t.clone().requires_grad_() for t in (x, x, x.double()))
    got, want = DaceModule(Calls(what), backward=True)(ours), what(theirs)
    torch.testing.assert_close(got, want, rtol=1e-2, atol=1e-2)
    got.sum().backward()
    what(exact).sum().backward()  # eager's own gradient of a norm is infinite here
    torch.testing.assert_close(ours.grad, exact.grad.to(dtype), rtol=2e-2, atol=2e-2)


# -- what torch's formulas give where values alone do not tell -------------------------------------
EDGES, NUMBERS = torch.tensor([-3.0, -1, -0.5, 0, 0.5, 1, 2, 6, 7]), torch.tensor([-1.0, 0, 0.5, 1, 2])
SLOPES = {
    "relu6": (F.relu6, EDGES), "hardtanh": (F.hardtanh, EDGES), "leaky_relu": (F.leaky_relu, EDGES), "elu": (lambda x: F.elu(x, 2.0), EDGES),
    "bounds that are tensors": (lambda x, lo, hi: x.clamp(lo, hi), EDGES, torch.full((9,), -1.0), torch.full((9,), 2.0)),
    "a lower bound": (torch.clamp_min, EDGES, torch.zeros(9)), "an upper bound": (torch.clamp_max, EDGES, torch.ones(9)),
    "the first of equals": (lambda x: x.max(1)[0], torch.tensor([[1.0, 2, 2], [0, 0, 0]])),
    "the first of equals below": (lambda x: x.min(0, keepdim=True)[0], torch.tensor([[1.0, 2, 2], [1, 0, 2]])),
    "a deviation of equals": (lambda x: x.std(1), torch.tensor([[1.0, 2, 4], [3, 3, 3]])),
    "prelu": (F.prelu, EDGES, torch.tensor([0.3])),
    "certain and wrong": (F.binary_cross_entropy, torch.tensor([0.0, 0, 1, 1, 0.5, 1]), torch.tensor([0.0, 1, 0, 1, 0, 0.5])),
    "by frequency": (lambda w: F.embedding(torch.tensor([[4, 1], [4, 0]]), w, scale_grad_by_freq=True), torch.randn(5, 2)),
    "by frequency but one": (lambda w: F.embedding(torch.tensor([4, 1, 4, 1]), w, 1, scale_grad_by_freq=True), torch.randn(5, 2)),
    "the peak of sinc": (torch.sinc, EDGES), "logit": (torch.logit, NUMBERS),
    "xlogy": (torch.xlogy, *(t.flatten() for t in torch.meshgrid(NUMBERS, NUMBERS, indexing="ij"))),
    "xlog1py": (torch.special.xlog1py, *(t.flatten() for t in torch.meshgrid(NUMBERS, NUMBERS, indexing="ij"))),
}


@pytest.mark.parametrize("what", SLOPES)
def test_slopes_at_kinks_and_poles_are_torchs(what):
    function, *given = SLOPES[what]
    leaves = [t.clone().requires_grad_() for t in given]
    want, got = function(*leaves), DaceModule(Calls(function), backward=True)(*leaves)
    torch.testing.assert_close(got, want, equal_nan=True)
    found = [torch.autograd.grad(y.sum(), leaves) for y in (got, want)]
    torch.testing.assert_close(*found, equal_nan=True)


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
def test_logarithms_of_powers_and_powers_of_integers_are_exact(dtype):
    numbers = torch.arange(-30, 31, dtype=dtype)
    for function, x in ((torch.exp2, numbers), (torch.log2, 2**numbers), (torch.log10, 10 ** torch.arange(0, 10, dtype=dtype))):
        assert torch.equal(DaceModule(Calls(function))(x), function(x))


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64, torch.bfloat16, torch.float16))
@pytest.mark.parametrize("function", (torch.erfc, torch.exp2, torch.log2, torch.log10), ids=lambda f: f.__name__)
def test_small_results_are_as_exact_as_large_ones(function, dtype):
    x = torch.cat([torch.linspace(-9, 9, 997), torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1e-40, 130])]).to(dtype)
    torch.testing.assert_close(DaceModule(Calls(function))(x), function(x), rtol=4 * torch.finfo(dtype).eps, atol=1e-37, equal_nan=True)


@pytest.mark.parametrize("equation", ("i,j->ij", "i,i->i"))
def test_einsum_of_whole_numbers_and_others_computes_in_the_others_type(equation):
    whole, x = torch.arange(4), torch.randn(4, requires_grad=True)
    module = Calls(lambda a, b: torch.einsum(equation, a, b))
    want = module(whole, x)
    got = DaceModule(module, backward=True)(whole, x)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(*[torch.autograd.grad(y.sum(), x) for y in (got, want)])


def test_only_what_is_converted_has_a_gradient():
    kind, number = torch.ones(2, requires_grad=True), torch.arange(2)
    assert not DaceModule(Calls(lambda x, y: x.type_as(y)), backward=True)(number, kind).requires_grad

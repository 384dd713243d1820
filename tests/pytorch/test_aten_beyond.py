"""Overloads beyond ONNX's operators: complex numbers, Fourier transforms, order statistics, scatters, linear algebra,
special functions and the CTC loss; results and gradients against eager."""
import pytest
import torch
import torch.nn.functional as F
from captured import Call, assert_same
from mpmath import mp
from torch.utils import _pytree as pytree

import dcml
from dcml.pytorch import DaceModule

pytestmark = pytest.mark.usefixtures("interpreted")


def r(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)), dtype=torch.float64)


x, t = r(3, 4, 5), torch.tensor
a, b = r(3, 4, 4), r(3, 4, 2)
spd = a @ a.mT + torch.eye(4, dtype=torch.float64)
signal, window = r(3, 40), torch.hann_window(8, dtype=torch.float64)
image = r(3, 2, 8, 9)
with_nan = x.clone()
with_nan[0, 1, 2] = float("nan")
degrees, special = t([0, 1, 2.7, 9, 4], dtype=torch.float64), torch.special
place = torch.randint(0, 4, (3, 6, 5), generator=torch.Generator().manual_seed(1))


def pair(re, im=None):
    return torch.complex(re, 2 * re + 0.5 if im is None else im)


def stft(v):
    return torch.stft(v, 8, 2, window=window, return_complex=True)


def spectral(v):
    z = torch.fft.rfft(v)
    kept = torch.zeros(*v.shape[:-1], 21, dtype=z.dtype)
    kept[..., :7] = z[..., :7] * (0.3 + 2j)
    return torch.fft.irfft(kept, n=40)


COMPLEX = {
    "parts": lambda v: (pair(v).real, pair(v).imag, pair(v).abs(), pair(v).angle()),
    "product": lambda v: torch.view_as_real(pair(v) * pair(v * v) * 2j + 1),
    "quotient": lambda v: torch.view_as_real(pair(v) / pair(v * v, v + 9) - v),
    "functions": lambda v: torch.view_as_real(pair(v).exp() + pair(v).log() + pair(v) ** 2.5 + pair(v).sqrt()),
    "functions of bases": lambda v: torch.view_as_real(pair(v).exp2() + pair(v).log2() * pair(v).log10()),
    "polar": lambda v: torch.polar(v * v, 2 * v).imag,
    "matmul": lambda v: torch.view_as_real(pair(v) @ pair(v).mH),
    "einsum": lambda v: torch.einsum("bij,bkj->bik", pair(v), pair(v)).real,
    "moved": lambda v: torch.cat([pair(v).transpose(0, 1)[:, :, ::2].flatten(1), pair(v).sum(0)], 1).imag,
    "rotary": lambda v: torch.view_as_real(torch.view_as_complex(v[..., :4].unflatten(-1, (2, 2)).contiguous())
                                           * torch.polar(torch.ones(2), torch.arange(2.0))).flatten(2),
    "results": lambda v: (pair(v), pair(v).conj()),
    "a conjugate's parts": lambda v: pair(v).conj().imag * pair(v).conj().real,
}
FOURIER = {
    "fft": lambda v: torch.view_as_real(torch.fft.fft(v)),
    "fft padded": lambda v: torch.fft.fft(v, n=45, norm="forward").imag,
    "ifft": lambda v: torch.fft.ifft(pair(v), norm="ortho").real,
    "rfft and back": lambda v: torch.fft.irfft(torch.fft.rfft(v, norm="ortho"), n=39),
    "spectral convolution": spectral,
    "hfft": lambda v: torch.fft.hfft(torch.fft.ihfft(v)),
    "2-d": lambda v: torch.fft.irfft2(torch.fft.rfft2(v.unflatten(1, (8, 5))) * 2j),
    "n-d": lambda v: torch.fft.fftshift(torch.fft.fftn(v.unflatten(1, (8, 5)), dim=(1, 2), norm="ortho")).real,
    "stft": lambda v: stft(v).abs(),
    "istft": lambda v: torch.istft(stft(v) * 2, 8, 2, window=window),
}
ORDER = {
    "kthvalue": lambda v: tuple(v.kthvalue(2, 1)),
    "median": lambda v: tuple(v.median(1)),
    "median of all": lambda v: v.relu().median(),
    "nanmedian": lambda v: v.nanmedian(-1, keepdim=True)[0],
    "cdist of itself": lambda v: torch.cdist(v, v),
    "cdist 3": lambda v: torch.cdist(v, v.flip(1), 3.0),
    "cdist inf": lambda v: torch.cdist(v, v.flip(1), float("inf")),
    "mode": lambda v: tuple(v.round().mode(1)),
    "quantile": lambda v: v.quantile(t([0.3, 0.5], dtype=torch.float64), 1),
    "cummax": lambda v: tuple(v.cummax(1)),
    "cummin": lambda v: tuple(v.cummin(-1)),
    "cumprod": lambda v: v.relu().cumprod(-1),
    "logcumsumexp": lambda v: v.logcumsumexp(1),
    "searchsorted": lambda v: torch.searchsorted(v.sort(-1)[0], v * 0.9, right=True),
    "searchsorted by order": lambda v: torch.searchsorted(v, v[..., :2], sorter=v.argsort(), side="left"),
    "bucketize": lambda v: torch.bucketize(v, t([-1.0, 0, 0.5], dtype=torch.float64), out_int32=True),
    "histc": lambda v: v.detach().histc(10, -1, 1),
    "histc of nothing": lambda v: v.detach()[:0].histc(10),
    "histogram": lambda v: _histograms(v.detach()),
    "histogram of edges": lambda v: _histograms_of_edges(v.detach()),
    "histogram of points": lambda v: _histograms_of_points(v.detach()),
    **{f"segment_reduce {kind}": lambda v, kind=kind: torch.segment_reduce(v.mT, kind, lengths=t([[1, 0, 4]] * 3), axis=1, initial=2.0)
       for kind in ("sum", "mean", "max", "min", "prod")},
    "segment_reduce of none": lambda v: torch.segment_reduce(v[0, 0], "mean", lengths=t([2, 0, 3]), unsafe=True),
    "segment_reduce offsets": lambda v: torch.segment_reduce(v[0], "max", offsets=t([0, 3, 4])),
    "cov": lambda v: torch.cov(v[0], aweights=torch.arange(1.0, 6)),
    "corrcoef": lambda v: v[0].corrcoef(),
    "combinations": lambda v: torch.combinations(v[0, 0], 3, with_replacement=True),
}
PRIMS = {
    "quotient": lambda v: torch.ops.prims.div(v, v + 9),
    "spread": lambda v: torch.ops.prims.broadcast_in_dim(v, (2, *v.shape), (1, 2, 3)),
    "sum and least": lambda v: torch.ops.prims.sum(v, [0]) + torch.ops.prims.amin(v, [0]),
    "numbers in a row": lambda v: v[0, 0] * torch.ops.prims.iota(5, start=1, step=2, dtype=torch.int64, device="cpu", requires_grad=False),
}
SCATTERS = {
    "diagonal_scatter": lambda v: v.diagonal_scatter(2 * v[:, :, 0], 1, 1, 2),
    "masked_scatter": lambda v: v.masked_scatter(v > 0, 2 * v.flip(0)),
    "masked_scatter of none": lambda v: v.masked_scatter(v > 100, v[v > 100]),
    "put": lambda v: v.put(t([0, 7, 0]), v[0, 0, :3], accumulate=True),
    "take_along_dim": lambda v: torch.take_along_dim(v, v[:1].argsort(2), 2),
    "assign inner": lambda v: _assigned(v, (slice(None), t([0, 2])), v[:, t([1, 3])] * 2),
    "assign apart": lambda v: _assigned(v, (t([0, 2]), slice(None), t([1, 1])), v[:2, :, 0]),
    "assign masked": lambda v: _assigned(v, v[:, :, 0] > 0, 2 * v[0, 0]),
    "assign masked inner": lambda v: _assigned(v, (slice(None), t([True, False, True, True])), v[:, :3] * 2),
    "searched number": lambda v: torch.searchsorted(v[0, 0].sort()[0], 0.3),
    "scatter into a number": lambda v: v[0, 0, 0].scatter(0, t(0), 2.0),
    **{f"scatter_reduce {kind} {own}": lambda v, kind=kind, own=own: v.scatter_reduce(
        1, place.repeat(v.shape[0] // 3, 1, 1), 2 * v[:, t([0, 1, 2, 3, 0, 1])], kind, include_self=own)
       for kind in ("sum", "prod", "mean", "amax", "amin") for own in (True, False)},
    **{f"index_reduce {kind}": lambda v, kind=kind: v.index_reduce(1, t([0, 2, 0]), 2 * v[:, 1:], kind,
                                                                   include_self=False)
       for kind in ("prod", "mean", "amax")},
}
ALGEBRA = {
    "inv": lambda m, v: torch.linalg.inv(m),
    "det": lambda m, v: torch.linalg.det(m),
    "slogdet": lambda m, v: tuple(torch.linalg.slogdet(m)),
    "solve": lambda m, v: torch.linalg.solve(m, v),
    "solve right": lambda m, v: torch.linalg.solve(m, v.mT, left=False),
    "cholesky": lambda m, v: torch.linalg.cholesky(m @ m.mT + torch.eye(4), upper=True),
    "cholesky_solve": lambda m, v: torch.cholesky_solve(v, m.tril() + 4 * torch.eye(4)),
    "solve_triangular": lambda m, v: torch.linalg.solve_triangular(m + 4 * torch.eye(4), v, upper=True),
    "solve_triangular right": lambda m, v: torch.linalg.solve_triangular(m[0], v.mT, upper=False, left=False,
                                                                         unitriangular=True),
    "lu": lambda m, v: tuple(torch.linalg.lu(m)),
    "lu wide": lambda m, v: tuple(torch.linalg.lu(m[..., :2, :])),
    "lu tall": lambda m, v: tuple(torch.linalg.lu(torch.cat([m, v], -1).mT)),
    "matrix_exp": lambda m, v: torch.matrix_exp(2 * m),
    "matrix_power": lambda m, v: torch.linalg.matrix_power(m, -2),
    "lu_factor": lambda m, v: tuple(torch.linalg.lu_factor(m)),
    "lu_factor wide": lambda m, v: tuple(torch.linalg.lu_factor(m[..., :3, :])),
    "lu_factor tall": lambda m, v: tuple(torch.linalg.lu_factor(torch.cat([m, v], -1).mT)),
    "lu_unpack": lambda m, v: tuple(torch.lu_unpack(*torch.linalg.lu_factor(m))),
    "lu_solve": lambda m, v: torch.linalg.lu_solve(*torch.linalg.lu_factor(m), v),
    "qr": lambda m, v: tuple(torch.linalg.qr(m[..., :3])),
    "qr wide": lambda m, v: tuple(torch.linalg.qr(m[:, :3])),
    "qr complete": lambda m, v: tuple(torch.linalg.qr(v.detach(), "complete")),
    "geqrf": lambda m, v: tuple(torch.geqrf(v.detach())),
    "householder_product": lambda m, v: torch.linalg.householder_product(m, v[:, :, 0]),
    "svdvals": lambda m, v: torch.linalg.svdvals(m @ v),
    "svd": lambda m, v: tuple(q.abs() for q in torch.linalg.svd(m[:, :3], full_matrices=False)),
    "svd full": lambda m, v: tuple(q.abs() for q in torch.linalg.svd(v.detach())[1:]),
    "eigh": lambda m, v: tuple(q.abs() for q in torch.linalg.eigh(m @ m.mT - 3 * torch.eye(4))),
    "eigvalsh": lambda m, v: torch.linalg.eigvalsh(m, UPLO="U"),
    "pinv": lambda m, v: torch.linalg.pinv(m[..., :3]),
    "pinv of little rank": lambda m, v: torch.linalg.pinv(v[..., :1] @ v[..., :1].mT),
    "lstsq": lambda m, v: torch.linalg.lstsq(m[..., :3], v)[0],
    "matrix_rank": lambda m, v: torch.linalg.matrix_rank(v @ v.mT),
    "cond": lambda m, v: torch.linalg.cond(m),
    "nuclear norm": lambda m, v: torch.linalg.matrix_norm(m, "nuc"),
}
EDGES = {
    "logaddexp of infinities": lambda v: torch.logaddexp(*[v.masked_fill(v > 0, -torch.inf)] * 2),
    "statistics of layer_norm": lambda v: torch.native_layer_norm(v.detach(), (5,), None, None, 1e-5),
    "statistics of group_norm": lambda v: torch.native_group_norm(v.detach(), None, None, v.shape[0], 4, 5, 2, 1e-5),
    "squeezed number": lambda v: v.sum().squeeze(0) * v.sum().unfold(0, 1, 1),
    "count of a number": lambda v: torch.linalg.vector_norm(v.sum(), 0),
}
FUNCTIONS = {
    "lgamma": torch.lgamma,
    "digamma": torch.digamma,
    "polygamma": lambda v: torch.polygamma(2, v.exp()),
    "erfinv": lambda v: torch.erfinv(v.tanh()),
    "ndtri": lambda v: torch.special.ndtri(v.sigmoid()),
    "i0": lambda v: (torch.i0(9 * v), torch.special.i0e(900 * v)),
    "i1": lambda v: (torch.special.i1(v), torch.special.i1e(-9 * v)),
    "floor_divide": lambda v: (v.detach() // 0.3, v % 0.3, v.detach() // -0.1, v % -0.1),
    "trunc": lambda v: (v.trunc(), v.frac() + v.angle()),
    "mvlgamma": lambda v: torch.mvlgamma(v.exp() + 3, 3),
    "frexp": lambda v: tuple(torch.frexp(100 * v)),
    "nextafter": lambda v: torch.nextafter(v.round(), v.flip(0)),
    "erfcx": lambda v: special.erfcx(2 * v),
    "log_ndtr": lambda v: special.log_ndtr(3 * v),
    "zeta": lambda v: special.zeta(3.0, v.exp()) + special.zeta(2, v[0] - 30) + special.zeta((v.detach().flip(0) + 4), v.exp()),
    "igamma": lambda v: (torch.igamma(degrees + 0.5, (3 * v).exp()), torch.igammac(30 * v.detach().exp(), 20 * v.flip(0).exp())),
    "bessel": lambda v: tuple(getattr(special, f"bessel_{name}")(v.detach().abs()) for name in ("j0", "j1", "y0", "y1")),
    "bessel of what is negative": lambda v: (special.bessel_j0(v.detach()), special.bessel_j1(v.detach()), special.spherical_bessel_j0(v.detach())),
    "modified bessel": lambda v: tuple(getattr(special, f"{kind}modified_bessel_{name}")((2 * v.detach()).exp())
                                       for kind in ("", "scaled_") for name in ("k0", "k1")),
    "airy": lambda v: special.airy_ai(4 * v.detach().abs()),
    **{name: lambda v, name=name: (getattr(special, name)(v.detach(), degrees.to(v)), getattr(special, name)(v.detach().round(), degrees.to(v)),
                                   getattr(special, name)(v.detach(), 6), getattr(special, name)(v.detach(), -1.0),
                                   getattr(special, name)(0.3, degrees.to(v)))
       for name in (*(f"{shifted}chebyshev_polynomial_{kind}" for shifted in ("", "shifted_") for kind in "tuvw"),
                    "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p")},
}
POOLS = {
    "fractional": lambda v: F.fractional_max_pool2d(v, 2, (4, 5), _random_samples=_samples(v, 2), return_indices=True),
    "fractional 3-d": lambda v: F.fractional_max_pool3d(v.unsqueeze(1).repeat(1, 1, 2, 1, 1), (2, 3, 2), (2, 3, 4),
                                                        _random_samples=_samples(v, 3)[:, :1]),
}
indices, offsets = t([1, 2, 4, 5, 4, 3, 2, 9]), t([0, 3, 3, 6])
BAGS = {f"{mode} {padding}": lambda w, mode=mode, padding=padding: F.embedding_bag(
    indices, w, offsets, mode=mode, padding_idx=padding) for mode in ("sum", "mean", "max") for padding in (None, 2)}
BAGS["weighted"] = lambda w: F.embedding_bag(indices, w, offsets, mode="sum", per_sample_weights=w[:8, 0])
bags = t([[1, 2, 4, 4], [5, 2, 2, 9], [2, 2, 2, 2]])  # of one length; the last one is all padding
BAGS.update({f"{mode} {padding} of one length": lambda w, mode=mode, padding=padding: F.embedding_bag(
    bags, w, mode=mode, padding_idx=padding) for mode in ("sum", "mean", "max") for padding in (None, 2, -8)})
BAGS["weighted, of one length"] = lambda w: F.embedding_bag(bags, w, mode="sum", per_sample_weights=w[:3, :4], padding_idx=4)
labels, lengths, sizes = t([[1, 2, 2, 3], [3, 1, 0, 0], [5, 5, 5, 5]]), t([12, 9, 5]), t([4, 2, 4])
CTC = {
    "mean": lambda v: F.ctc_loss(v[:, :3].log_softmax(-1), labels, t([12, 9, 7]), sizes),
    "logits": lambda v: F.ctc_loss(v[:, :3], labels, t([12, 9, 7]), sizes, reduction="none"),
    "blank": lambda v: F.ctc_loss(v[:, :3].log_softmax(-1), labels, (12, 9, 7), (4, 2, 4), blank=4, reduction="sum"),
    "in a row": lambda v: F.ctc_loss(v[:, :3].log_softmax(-1), t([1, 2, 2, 3, 3, 1, 5, 4, 5, 4]), t([12, 9, 7]), sizes),
    "impossible": lambda v: F.ctc_loss(v[:, :3].log_softmax(-1), labels, lengths, sizes, zero_infinity=True),
    "empty": lambda v: F.ctc_loss(v[:, :3].log_softmax(-1), labels, lengths, t([4, 0, 3])),
    "one sample": lambda v: F.ctc_loss(v[:, 0].log_softmax(-1), labels[0], t(12), t(4)),
}


def _histograms(v):
    return *torch.histogram(v, 7), *v.histogram(5, range=(-1.0, 1.5), weight=v.abs(), density=True), *v[0, 0, 0].histogram(2)


def _histograms_of_edges(v):
    return *v.histogram(t([-1.0, 0.5, 2], dtype=v.dtype)), *v[:0].histogram(3)


def _histograms_of_points(v):
    edges = [t([-1.0, 0, 2], dtype=v.dtype)] * 2
    return [tuple(torch.histogramdd(*given, **more)) for given, more in (
        ((v, 2), {}), ((v[..., :2], [3, 2]), {"range": [-1.0, 1, 0, 2]}), ((v[..., :2], edges), {"density": True}))]


def _samples(v, axes):
    return torch.linspace(0.1, 0.9, v.shape[0] * 2 * axes, dtype=v.dtype).reshape(v.shape[0], 2, axes)


def _assigned(v, where, values):
    v = v.clone()
    v[where] = values
    return v


whole = t([12, -18, 0, 7, -128, 127, 3, -1])
INTEGERS = {
    "gcd": lambda i, j: (torch.gcd(i.clamp(min=-127), j), torch.lcm(i % 8, j % 16)),
    "shifts": lambda i, j: (i << j.abs(), i >> j.abs(), i << 2, 1 << j.abs(), i >> 99),
    "division": lambda i, j: (i // j, i % j, torch.div(i, j, rounding_mode="trunc"), i // -3, i % -3, i.trunc()),
}
numbers = t([1.5, -2.5, 0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-30, 1e300], dtype=torch.float64)
NUMBERS = {
    "atan2": lambda u, w: torch.atan2(u.detach(), w.detach()).reciprocal(),  # the signs of zeros
    "fmax, fmin, hypot": lambda u, w: [f(u.detach(), w.detach()) for f in (torch.fmax, torch.fmin, torch.hypot)],
    "threshold": lambda u, w: F.threshold(u.detach(), 0.1, 20.0),
    "flags": lambda u, w: (torch.max(u > 0, w > 0), torch.min(u > 0, w > 0), (u > 0).sort(stable=True)[1]),
    "flags of none": lambda u, w: (u[:0].any(), u[:0].all(), u[:0].reshape(0, 3).any(0), u[:0].reshape(3, 0).any(1)),
}
GROUPS = (("complex", COMPLEX, (x,)), ("fourier", FOURIER, (signal,)), ("order", ORDER, (x,)),
          ("order nan", {k: ORDER[k] for k in ("median", "nanmedian")}, (with_nan,)), ("scatter", SCATTERS, (x,)),
          ("algebra", ALGEBRA, (a, b)), ("edge", EDGES, (x,)), ("function", FUNCTIONS, (x,)), ("pool", POOLS, (image,)),
          ("number", NUMBERS, (numbers.repeat_interleave(9), numbers.repeat(9))),
          *((f"integer {str(d)[6:]}", INTEGERS, (whole.to(d), t([5, 3, 7, 2, 9, 4, 64, 100]).to(d)))
            for d in (torch.int8, torch.uint8, torch.int64)),
          ("bag", BAGS, (r(10, 4),)), ("ctc", CTC, (r(12, 3, 6),)))
CASES = [(f"{group} {name}", function, args) for group, table, args in GROUPS for name, function in table.items()]


def run(module, args):
    """(results, gradients of a weighted sum of them)."""
    args = [v.detach().clone().requires_grad_(v.is_floating_point()) for v in args]
    results = pytree.tree_leaves(module(*args))
    total = sum(_weighted(v) for v in results if v.requires_grad)
    known = isinstance(total, torch.Tensor)
    wanted = torch.autograd.grad(total, args, allow_unused=True) if known else [None] * len(args)
    return [v.detach() for v in results], [torch.zeros_like(v) if g is None else g for v, g in zip(args, wanted)]


def _weighted(v):
    v = torch.view_as_real(v.resolve_conj()) if v.is_complex() else v
    return (v.flatten() * torch.linspace(0.5, 1.5, v.numel(), dtype=v.dtype)).sum()


@pytest.mark.parametrize("function, args", [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_function_and_gradient_follow_eager(function, args):
    assert_same(run(DaceModule(Call(function), backward=True), args), run(function, args), 1e-8)


EXACT = {
    "selu": F.selu,
    "softplus": lambda v: F.softplus(9 * v) + F.softplus(v, beta=3, threshold=5),
    "scale factor": lambda v: F.interpolate(v, scale_factor=1.7, mode="bilinear"),
    "sizes": lambda v: F.interpolate(v[..., :7], size=(10, 10), mode="bicubic"),
}


@pytest.mark.parametrize("name", EXACT)
def test_double_precision_is_not_lost_to_constants_of_single_precision(name):
    assert_same(run(DaceModule(Call(EXACT[name]), backward=True), (image,)), run(EXACT[name], (image,)), 1e-14)


@pytest.mark.parametrize("name", ["complex product", "fourier rfft and back", "order kthvalue", "order cummax",
                                  "scatter scatter_reduce mean False", "scatter masked_scatter", "algebra solve"])
def test_one_capture_serves_other_batch_sizes(name):
    function, args = next(c[1:] for c in CASES if c[0] == name)
    compiled = DaceModule(Call(function), backward=True)
    for repeats in (1, 2, 3):
        more = [v.repeat(repeats, *[1] * (v.dim() - 1)) for v in args]
        assert_same(run(compiled, more), run(function, more), 1e-8)
    assert len(compiled._captures) == 1


def test_masked_scatter_asks_for_as_many_values_as_it_takes():
    compiled = DaceModule(Call(lambda v, values: v.masked_scatter(v > 0, values)), backward=False)
    v = torch.tensor([1.0, -1.0, 2.0, 3.0])
    assert compiled(v, torch.tensor([5.0, 6.0, 7.0])).tolist() == [5.0, -1.0, 6.0, 7.0]
    with pytest.raises(dcml.Error, match="out of range"):
        compiled(v, torch.tensor([5.0, 6.0]))


@pytest.mark.parametrize("name", [*(f"function {k}" for k in FUNCTIONS), "fourier fft", "algebra inv", "ctc mean"])
def test_function_in_single_precision(name):
    function, args = next(c[1:] for c in CASES if c[0] == name)
    args = [v.float() for v in args]
    assert_same(run(DaceModule(Call(function), backward=True), args), run(function, args), 2e-4)


NAMES = {"bessel_j0": lambda v: mp.besselj(0, v), "bessel_j1": lambda v: mp.besselj(1, v), "bessel_y0": lambda v: mp.bessely(0, v),
         "bessel_y1": lambda v: mp.bessely(1, v), "scaled_modified_bessel_k0": lambda v: mp.besselk(0, v) * mp.exp(v),
         "scaled_modified_bessel_k1": lambda v: mp.besselk(1, v) * mp.exp(v), "airy_ai": mp.airyai,
         "erfcx": lambda v: mp.exp(v * v) * mp.erfc(v), "gammainc": lambda v: mp.gammainc(v, 0, 3, regularized=True)}


@pytest.mark.parametrize("name", NAMES)
def test_a_special_function_is_near_its_exact_values(name):
    v = torch.cat([torch.linspace(0.05, 30, 60, dtype=torch.float64), t([2, 5, 5 + 1e-12, 200.0])])
    v = torch.cat([v, -v[:20]]) if name in ("bessel_j0", "bessel_j1", "airy_ai", "erfcx") else v
    function = getattr(special, name)
    got = DaceModule(Call(lambda v: function(v, torch.full_like(v, 3)) if name == "gammainc" else function(v)))(v)
    want = t([float(NAMES[name](mp.mpf(one))) for one in v.tolist()], dtype=torch.float64)
    torch.testing.assert_close(got, want, rtol=1e-13, atol=1e-14)


def test_a_bessel_function_has_the_slope_that_eager_has_none_of():
    v = torch.tensor([0.3, 1.7, 4.9, 12.0], dtype=torch.float64, requires_grad=True)
    for kind, slope in (("bessel_j0", lambda x: -special.bessel_j1(x)), ("bessel_y0", lambda x: -special.bessel_y1(x)),
                        ("modified_bessel_k0", lambda x: -special.modified_bessel_k1(x)),
                        ("bessel_j1", lambda x: special.bessel_j0(x) - special.bessel_j1(x) / x)):
        function = getattr(special, kind)
        got, = torch.autograd.grad(DaceModule(Call(function), backward=True)(v).sum(), v)
        torch.testing.assert_close(got, slope(v.detach()), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["erfcx", "log_ndtr", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "modified_bessel_k0",
                                  "scaled_modified_bessel_k1", "spherical_bessel_j0", "airy_ai"])
def test_limits_of_a_special_function(name):
    v = t([0.0, -0.0, torch.inf, -torch.inf, torch.nan], dtype=torch.float64)
    assert_same(DaceModule(Call(getattr(special, name)))(v), getattr(special, name)(v), 0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_parts_and_neighbours_are_exact_and_incomplete_gamma_functions_have_limits(dtype):
    v = torch.cat([numbers, t([1e-310, 5e-324, 1e-40, 1.0, 0.5, -1.0, 65504.0])]).to(dtype)
    u, w = v.repeat_interleave(len(v)), v.repeat(len(v))
    got = DaceModule(Call(lambda u, w: (*torch.frexp(u), torch.nextafter(u, w))))(u, w)
    assert_same(got, (*torch.frexp(u), torch.nextafter(u, w)), 0)
    edges = t([0.0, 1.0, 0.5, -1.0, torch.inf, -torch.inf, torch.nan]).to(dtype)
    u, w = edges.repeat_interleave(7), edges.repeat(7)
    assert_same(DaceModule(Call(lambda u, w: (torch.igamma(u, w), torch.igammac(u, w))))(u, w), (torch.igamma(u, w), torch.igammac(u, w)), 1e-3)


@pytest.mark.parametrize("name", ["zeta", "gammainc"])
def test_a_gradient_that_torch_has_not_is_refused_with_the_operator(name):
    v = torch.ones(2, requires_grad=True)
    with pytest.raises(dcml.UnsupportedOpError, match="no gradient with respect to input"):
        DaceModule(Call(getattr(special, name)), backward=True)(v + 1, v)


@pytest.mark.parametrize("kind", [torch.linalg.LinAlgError, dcml.Error])
def test_singular_matrix_is_reported(kind):
    with pytest.raises(kind, match="linalg.inv: a matrix is singular"):
        DaceModule(Call(torch.linalg.inv))(torch.zeros(2, 3, 3))


class Spectral(torch.nn.Module):
    """A layer of complex weights, with a complex buffer that each call changes."""
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.complex(r(4, 5), r(4, 5, seed=1)))
        self.register_buffer("total", torch.zeros(5, dtype=torch.complex128))

    def forward(self, v):
        y = v @ self.weight
        self.total.add_(y.sum(0).detach())
        return y, self.total * 1j, v.shape[0]


def test_complex_inputs_weights_buffers_and_results():
    torch.manual_seed(0)
    eager, compiled = Spectral(), DaceModule(Spectral(), backward=True)
    for rows in (3, 3, 3, 6):
        v, u = (torch.complex(r(rows, 4), r(rows, 4, seed=1)).requires_grad_() for _ in range(2))
        want, got = eager(v), compiled(u)
        assert got[2] == rows and type(got[2]) is int
        assert_same(got[:2], want[:2], 1e-10)
        for y in (want, got):
            y[0].abs().square().sum().backward()
        assert_same((u.grad, compiled.weight.grad, compiled.total), (v.grad, eager.weight.grad, eager.total), 1e-10)
        with torch.no_grad():
            eager.weight.mul_(0.9)
            compiled.weight.mul_(0.9)


@pytest.mark.parametrize("function", [lambda v: v[v > 0], torch.nonzero, lambda v: v.masked_select(v > 0)],
                         ids=["mask", "nonzero", "masked_select"])
def test_what_has_as_many_elements_as_values_say_is_served(function):
    compiled = DaceModule(Call(function))
    for v in (x, -x, x.abs(), x[:2]):
        assert_same(compiled(v), function(v), 0)


@pytest.mark.parametrize("function", [lambda v: v.to_sparse(), lambda v: torch.linalg.eigvals(v[..., :4])], ids=["sparse", "eigvals"])
def test_what_depends_on_values_or_has_no_form_is_refused_with_its_line(function):
    with pytest.raises(dcml.UnsupportedOpError, match=r"\.py:\d+: "):
        DaceModule(Call(function))(x)


EMPTY = {
    "svd": torch.linalg.svd, "thin svd": lambda x: torch.linalg.svd(x, full_matrices=False), "svdvals": torch.linalg.svdvals,
    "qr": torch.linalg.qr, "complete qr": lambda x: torch.linalg.qr(x, mode="complete"),
    "r": lambda x: torch.linalg.qr(x, mode="r"), "eigh": lambda x: torch.linalg.eigh(x[..., :x.shape[-2], :x.shape[-2]]),
    "pinv": torch.linalg.pinv,
}


@pytest.mark.parametrize("what", EMPTY)
@pytest.mark.parametrize("shape", ((0, 4), (2, 0, 3), (0, 3, 3)), ids=str)
def test_decompositions_of_matrices_without_elements(what, shape):
    class Module(torch.nn.Module):
        def forward(self, x):
            return EMPTY[what](x)
    if what == "eigh" and shape == (0, 4):
        shape = 0, 0
    x = torch.zeros(shape)
    got, want = DaceModule(Module())(x), EMPTY[what](x)
    for a, b in zip(*[y if isinstance(y, tuple) else (y,) for y in (got, want)]):
        torch.testing.assert_close(a, b, check_stride=False)


def test_an_angle_has_slopes_on_the_axes_and_the_diagonals():
    axis = torch.tensor([0.0, -0.0, 1.0, -1.0, 2.0])
    y, x = (part.reshape(-1) for part in torch.meshgrid(axis, axis, indexing="ij"))
    keep = (y != 0) | (x != 0)
    args = (y[keep].requires_grad_(), x[keep].requires_grad_())
    assert_same(run(DaceModule(Call(torch.atan2), backward=True), args), run(torch.atan2, args), 1e-6)


@pytest.mark.parametrize("shapes", [((4, 8), (4, 1)), ((8,), (4, 8)), ((4, 1), (1, 8)), ((), (3, 4))], ids=str)
def test_slopes_of_an_angle_are_summed_over_what_was_spread(shapes):
    args = tuple(torch.randn(shape, requires_grad=True) for shape in shapes)
    assert_same(run(DaceModule(Call(torch.atan2), backward=True), args), run(torch.atan2, args), 1e-5)


def test_the_sign_of_a_number_that_is_none_is_its_bit():
    x = torch.tensor([float("nan"), 0.0, 1.0]).repeat(6)
    x = torch.copysign(x, torch.tensor([1.0, -1.0]).repeat_interleave(9))
    for values in (x, x.double(), x.half(), x[1:3].int() - 1):
        assert torch.equal(DaceModule(Call(torch.signbit))(values), torch.signbit(values))

"""The cases of torch's own operator database, and what becomes of one: as in eager, refused, or wrong."""
import contextlib
import functools
import warnings

import modules  # and what torch's database asks for
import torch
from modules import DTYPES, TOLERANCES
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

import dcml.onnx
from dcml.library import change_default
from dcml.pytorch import DaceModule, captures

LARGE = 100_000  # elements of an argument, from which on compiling takes less time than the interpreter

# what draws numbers, or returns memory as it was found: only types and extents can be compared
ANY_VALUE = {"bernoulli", "cauchy", "empty", "empty_like", "empty_permuted", "empty_strided", "exponential", "geometric", "log_normal",
             "multinomial", "nn.functional.alpha_dropout", "nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d",
             "nn.functional.feature_alpha_dropout", "nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d",
             "nn.functional.multi_head_attention_forward",  # with dropout
             "nn.functional.rrelu", "new_empty", "new_empty_strided", "normal", "pca_lowrank", "rand_like", "randint", "randint_like",
             "randn", "randn_like", "svd_lowrank", "uniform"}
# what chooses among equal elements, where torch says of none that it is first
ANY_PLACE = {"argsort", "mode", "msort", "sort", "topk"}
# what eager itself has only so near in float64, between 4 and 9
ROUGH = {f"special.bessel_{kind}": (1e-5, 1e-6) for kind in ("j0", "j1", "y0", "y1")}
# what torch.nn and torch.nn.functional never call, and why it is not compared
_RUNNING = "running statistics that are arguments, not buffers, change with a history here and without one in eager"
EXCEPT = {"native_batch_norm": _RUNNING, "_native_batch_norm_legit": _RUNNING, "_batch_norm_with_update": _RUNNING,
          "as_strided_scatter": "eager's gradient goes to the first elements instead of those that were not replaced"}


def name_of(op):
    return op.name + (f" ({op.variant_test_name})" if op.variant_test_name else "")


def operators():
    """The entries of the database for each of which there is a case in some type of DTYPES."""
    return [op for op in op_db if op.dtypes & set(DTYPES.values())]


class Case(torch.nn.Module):
    """A sample of an operator, its tensors as arguments and everything else built in."""
    def __init__(self, op, sample):
        super().__init__()
        self.draws = op.name in ANY_VALUE or sample.kwargs.get("dropout_p", 0) > 0
        self.name, self.op, self.whole, self.finish = op.name, op.op, op.gradcheck_wrapper, sample.output_process_fn_grad or (lambda y: y)
        leaves, self.spec = pytree.tree_flatten((sample.input, *sample.args, sample.kwargs))
        self.places = [isinstance(leaf, torch.Tensor) for leaf in leaves]
        self.kept = [None if is_tensor else leaf for is_tensor, leaf in zip(self.places, leaves)]
        self.given = [leaf for is_tensor, leaf in zip(self.places, leaves) if is_tensor]

    def forward(self, *tensors):
        tensors = iter(tensors)
        leaves = [next(tensors) if is_tensor else leaf for is_tensor, leaf in zip(self.places, self.kept)]
        *args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        result = self.whole(self.op, *args, **kwargs)
        return self.finish(result)  # where a result is not unique, what is unique of it


class Cases(torch.nn.Module):
    """Several as one, which is traced in less time."""
    def __init__(self, members):
        super().__init__()
        self.members = members

    def forward(self, *tensors):
        tensors = iter(tensors)
        return [case(*[next(tensors) for _ in case.given]) for case in self.members]


def cases(op, dtype, limit=None):
    """(k, Case) of an operator's samples in a type, at most limit of them, spread over all."""
    differentiable = op.supports_autograd and dtype in op.backward_dtypes
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = list(op.sample_inputs("cpu", dtype, requires_grad=differentiable))
    for k in modules.spread_out(len(samples), limit):
        yield k, Case(op, samples[k])


def run(module, some, dtype=None):
    """[(results, gradients or None)] of cases, which the module computes in one call; floats become dtype before it."""
    leaves = [[t.detach().clone() for t in case.given] for case in some]
    leaves = [[t.to(dtype) if dtype and t.is_floating_point() else t for t in own] for own in leaves]
    leaves = [[t.requires_grad_(old.requires_grad) for t, old in zip(own, case.given)] for own, case in zip(leaves, some)]
    results = [pytree.tree_leaves(result) for result in module(*[t for own in leaves for t in own])]
    wanted = [[t for t in own if t.requires_grad] for own in leaves]
    roots = [[t for t in own if isinstance(t, torch.Tensor) and t.requires_grad] if given else [] for own, given in zip(results, wanted)]
    if not any(roots):
        return [(own, None) for own in results]
    found = iter(torch.autograd.grad(sum(roots, []), [t for own, given in zip(roots, wanted) if own for t in given],
                                     sum(map(_seeds, roots), []), allow_unused=True))
    return [(own, [next(found) for _ in given] if tops else None) for own, given, tops in zip(results, wanted, roots)]


def _seeds(roots):
    """Gradients of results, the same whatever is computed beside them."""
    noise = torch.Generator().manual_seed(1)
    return [torch.randn(t.shape, generator=noise, dtype=torch.complex128 if t.is_complex() else torch.float64).to(t.dtype) for t in roots]


def judged(some):
    """What becomes of each case: None where it follows eager, "" where eager itself refuses it, dcml.Error where dcml does;
    AssertionError where it differs, any other exception where dcml raises it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = [_eager(case) for case in some]
        became = _together([pair for pair in zip(some, wanted) if pair[1]])
        return [next(became) if want else "" for want in wanted]


def _eager(case, dtype=None):
    """(results, gradients or None) of eager PyTorch; None where it has none, whatever it raises."""
    try:
        return run(Cases([case]), [case], dtype)[0]
    except Exception:
        return None


@contextlib.contextmanager
def _as_large_as_it_is():
    """Captures have no symbols: what cannot be said of a case's would send all beside it to torch.export, in ten times the time."""
    whose, captures._varying = captures._varying, lambda leaves, known: False
    try:
        yield
    finally:
        captures._varying = whose


def _together(pairs):
    """What becomes of (case, what eager made of it), as few graphs as tell it: eighths where not all are captured."""
    if not pairs:
        return
    some = [case for case, _ in pairs]
    large = any(t.numel() > LARGE for case in some for t in case.given)
    try:
        with change_default(dcml.onnx, "native") if large else contextlib.nullcontext(), \
                _as_large_as_it_is() if len(some) > 1 else contextlib.nullcontext():
            got = run(DaceModule(Cases(some), backward=True), some)
    except Exception as error:
        if len(some) == 1:
            yield error
            return
        part = max(len(some) // 8, 1)
        for k in range(0, len(some), part):
            yield from _together(pairs[k:k + part])
        return
    for (case, want), ours in zip(pairs, got):
        try:
            _compare(case, ours, want)
            yield None
        except AssertionError as error:
            yield error


def _compare(case, got, want):
    tolerance = max((TOLERANCES[t.dtype] for t in [*case.given, *[w for w in want[0] if isinstance(w, torch.Tensor)]] if t.dtype in TOLERANCES),
                    default=TOLERANCES[torch.float32])
    tolerance = max(tolerance, ROUGH.get(case.name, tolerance))
    any_value = case.draws
    if case.name in ANY_PLACE and any(t.is_floating_point() and t.unique().numel() < t.numel() for t in case.given):
        got, want = (([t for t in results if t.is_floating_point()], None) for results, _ in (got, want))
    empty = not any(t.numel() for t in want[0] if isinstance(t, torch.Tensor))
    assert (got[1] is None) == (want[1] is None) or any_value or empty, "only one of the two has a gradient"
    exact = functools.cache(lambda: _eager(case, torch.float64) or (None, None))
    _same("result", got[0], want[0], lambda: exact()[0], any_value, tolerance)
    if want[1] is not None and got[1] is not None and not any_value:
        _same("gradient", got[1], want[1], lambda: exact()[1], any_value, tolerance)


def _same(what, got, want, exact, any_value, tolerance):
    assert len(got) == len(want), f"{len(got)} {what}s, of eager {len(want)}"
    for k, (g, w) in enumerate(zip(got, want)):
        if not isinstance(w, torch.Tensor):
            assert any_value or what == "gradient" and (g is None or not g.any()) or g == w, f"{what} {k}: {g} is not {w}"
            continue
        g = torch.zeros_like(w) if g is None and what == "gradient" else g
        assert g.dtype == w.dtype and (any_value or g.shape == w.shape), f"{what} {k}: {g.dtype} {g.shape}, of eager {w.dtype} {w.shape}"
        try:
            if not any_value:
                torch.testing.assert_close(g, w, rtol=tolerance[0], atol=tolerance[1], equal_nan=True)
        except AssertionError as error:
            better = exact()
            if better is None or not modules.no_worse(g, w, better[k]):
                raise AssertionError(f"{what} {k}: {error}") from error

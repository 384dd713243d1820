"""The cases of torch's own operator database, and what becomes of one: as in eager, refused, or wrong."""
import functools
import warnings

import modules  # and what torch's database asks for
import torch
from modules import DTYPES, TOLERANCES
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

import dcml
from dcml.pytorch import DaceModule

# what draws numbers, or returns memory as it was found: only types and extents can be compared
ANY_VALUE = {"bernoulli", "cauchy", "empty", "empty_like", "empty_permuted", "empty_strided", "exponential", "geometric", "log_normal",
             "multinomial", "nn.functional.alpha_dropout", "nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d",
             "nn.functional.feature_alpha_dropout", "nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d",
             "nn.functional.multi_head_attention_forward",  # with dropout
             "nn.functional.rrelu", "new_empty", "new_empty_strided", "normal", "pca_lowrank", "rand_like", "randint", "randint_like",
             "randn", "randn_like", "svd_lowrank", "uniform"}
# what torch.nn and torch.nn.functional never call, and why it is not compared
_RUNNING = "running statistics that are arguments, not buffers, change with a history here and without one in eager"
EXCEPT = {"native_batch_norm": _RUNNING, "_native_batch_norm_legit": _RUNNING, "_batch_norm_with_update": _RUNNING}


def name_of(op):
    return op.name + (f" ({op.variant_test_name})" if op.variant_test_name else "")


def operators():
    """The entries of the database for each of which there is a case in some type of DTYPES."""
    return [op for op in op_db if op.dtypes & set(DTYPES.values())]


class Case(torch.nn.Module):
    """A sample of an operator, its tensors as arguments and everything else built in."""
    def __init__(self, op, sample):
        super().__init__()
        self.op, self.whole, self.finish = op.op, op.gradcheck_wrapper, sample.output_process_fn_grad or (lambda y: y)
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
        self.members, self.given = members, [t for case in members for t in case.given]

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


def run(function, tensors, dtype=None):
    """(results, gradients or None) of a call; floats become dtype before it."""
    leaves = [t.detach().clone() for t in tensors]
    leaves = [t.to(dtype) if dtype and t.is_floating_point() else t for t in leaves]
    leaves = [t.requires_grad_(old.requires_grad) for t, old in zip(leaves, tensors)]
    results = pytree.tree_leaves(function(*leaves))
    wanted = [t for t in leaves if t.requires_grad]
    roots = [t for t in results if isinstance(t, torch.Tensor) and t.requires_grad]
    if not roots or not wanted:
        return results, None
    noise = torch.Generator().manual_seed(1)
    seeds = [torch.randn(t.shape, generator=noise, dtype=torch.complex128 if t.is_complex() else torch.float64).to(t.dtype) for t in roots]
    return results, torch.autograd.grad(roots, wanted, seeds, allow_unused=True)


def _close(got, want, tolerance):
    torch.testing.assert_close(got, want, rtol=tolerance[0], atol=tolerance[1], equal_nan=True)


def _compare(what, got, want, exact, any_value, tolerance):
    assert len(got) == len(want), f"{len(got)} {what}s, of eager {len(want)}"
    for k, (g, w) in enumerate(zip(got, want)):
        if not isinstance(w, torch.Tensor):
            assert any_value or what == "gradient" and (g is None or not g.any()) or g == w, f"{what} {k}: {g} is not {w}"
            continue
        g = torch.zeros_like(w) if g is None and what == "gradient" else g
        assert g.dtype == w.dtype and (any_value or g.shape == w.shape), f"{what} {k}: {g.dtype} {g.shape}, of eager {w.dtype} {w.shape}"
        try:
            if not any_value:
                _close(g, w, tolerance)
        except AssertionError as error:
            better = exact()
            if better is None or not modules.no_worse(g, w, better[k]):
                raise AssertionError(f"{what} {k}: {error}") from error


def judged(op, dtype, limit=None, together=16):
    """(k, what became of it: see judge, or the exception that is no refusal) of an operator's samples."""
    found = list(cases(op, dtype, limit))
    for begin in range(0, len(found), together):
        some = found[begin:begin + together]
        try:
            alone = len(some) < 2 or judge(op, Cases([case for _, case in some])) is not None
        except Exception:  # said below, of the one that it is
            alone = True
        for k, case in some:
            try:
                yield k, judge(op, case) if alone else None
            except Exception as error:
                yield k, error


def judge(op, case):
    """None where a case follows eager, "" where eager itself refuses it, dcml.Error where dcml refuses; AssertionError where it differs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            want = run(case, case.given)
        except Exception:  # whatever it is, it is torch's
            return ""
        try:
            got = run(DaceModule(case, backward=True), case.given)
        except dcml.Error as error:
            return error
    tolerance = max((TOLERANCES[t.dtype] for t in [*case.given, *[w for w in want[0] if isinstance(w, torch.Tensor)]] if t.dtype in TOLERANCES),
                    default=TOLERANCES[torch.float32])
    any_value = op.name in ANY_VALUE
    assert (got[1] is None) == (want[1] is None) or any_value, "only one of the two has a gradient"
    exact = functools.cache(lambda: _exact(case))
    _compare("result", got[0], want[0], lambda: exact()[0], any_value, tolerance)
    if want[1] is not None and not any_value:
        _compare("gradient", got[1], want[1], lambda: exact()[1], any_value, tolerance)
    return None


def _exact(case):
    """What eager computes in float64, where it does."""
    try:
        return run(case, case.given, torch.float64)
    except Exception:  # whatever it is, it is torch's
        return None, None

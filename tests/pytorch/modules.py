"""The cases of torch's own module database, and how a wrapped module is compared with the module itself."""
import copy
import importlib.util
import sys
import types
import unittest
import warnings

import torch

if importlib.util.find_spec("expecttest") is None:  # a base class of test helpers that the database does not need
    sys.modules["expecttest"] = types.SimpleNamespace(TestCase=unittest.TestCase)
from torch.testing._internal.common_modules import module_db  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402

from dcml.pytorch import DaceModule  # noqa: E402

RANDOM = ("Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout", "RReLU")
DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
# type -> how far a result may be from eager's, relative and absolute
TOLERANCES = {torch.float64: (1e-6, 1e-7), torch.float32: (1e-3, 1e-4), torch.bfloat16: (5e-2, 5e-2), torch.float16: (1e-2, 1e-2)}


def cases(info, per_mode=None, dtype=torch.float32):
    """(name, module, args, kwargs) of a module's samples in eval and train mode, at most per_mode of each."""
    for training in (False, True):
        torch.manual_seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            samples = list(info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=False,
                                                   training=training))
        for k in spread_out(len(samples), per_mode):
            made, given = samples[k].constructor_input, samples[k].forward_input
            torch.manual_seed(k)
            module = info.module_cls(*made.args, **made.kwargs).to(dtype).train(training)
            args, kwargs = given.args, given.kwargs
            if hasattr(module, "_random_samples"):  # made for float64 by the database
                module._random_samples = module._random_samples.to(dtype)
            if any(isinstance(p, torch.nn.parameter.UninitializedTensorMixin) for p in module.parameters()):
                with torch.no_grad():
                    copy.deepcopy(module)  # a lazy module takes its shape from the first call, ours from torch's
                    module(*args, **kwargs)
            yield f"{info.name} {'train' if training else 'eval'} {k}", module, args, kwargs


def spread_out(n, limit):
    """At most limit of range(n), the first and the last among them."""
    if limit is None or n <= limit:
        return range(n)
    return sorted({round(i * (n - 1) / max(limit - 1, 1)) for i in range(limit)})


def floats(tree):
    """The floating-point tensors of a nested structure."""
    return [t for t in pytree.tree_leaves(tree) if isinstance(t, torch.Tensor) and t.is_floating_point()]


def run(module, args, kwargs, wanted=None):
    """(result, buffers after the call, gradients of inputs and parameters), for a fixed gradient of the results.
    wanted: number of leading leaves of the arguments that need one; None: all."""
    leaves, spec = pytree.tree_flatten((args, kwargs))
    leaves = [t.detach().clone().requires_grad_(t.is_floating_point() and (wanted is None or k < wanted))
              if isinstance(t, torch.Tensor) else t for k, t in enumerate(leaves)]
    args, kwargs = pytree.tree_unflatten(leaves, spec)
    result = module(*args, **kwargs)
    wanted = [t for t in floats(leaves) if t.requires_grad] + [p for p in module.parameters() if p.requires_grad]
    roots = [t for t in floats(result) if t.requires_grad]
    if not roots:
        return result, list(module.buffers()), None
    noise = torch.Generator().manual_seed(1)
    seeds = [torch.randn(t.shape, generator=noise, dtype=t.dtype) for t in roots]
    return result, list(module.buffers()), torch.autograd.grad(roots, wanted, seeds, allow_unused=True)


def no_worse(got, want, exact):
    """Is a result as near to the exact one as eager's, by the largest error?"""
    if got is None or exact is None or not got.is_floating_point() or got.shape != exact.shape:
        return False
    exact = exact.double()
    exact, eps = exact.to(got.dtype).double(), torch.finfo(got.dtype).eps  # within the type's range
    got, want = got.double(), want.double()
    far = (got - exact).abs()
    lost = exact.isfinite() & ~want.isfinite()  # by eager, whose steps leave the type's range
    if not (got.isnan() | (got == want) | (far <= 64 * eps * (1 + exact.abs())))[lost].all():
        return False
    odd = ~exact.isfinite()
    if not (_alike(got, want) | _alike(got, exact))[odd].all() and not got[odd].isnan().all():
        return False
    kept = exact.isfinite() & want.isfinite()
    if not kept.any():
        return True
    return bool(far[kept].max() <= 4 * (want - exact)[kept].abs().max() + 16 * eps * (1 + exact[kept].abs().max()))


def _alike(a, b):
    return (a == b) | a.isnan() & b.isnan()


def _exact(module, args, kwargs, wanted):
    """What eager computes in float64."""
    wide = pytree.tree_map(lambda t: t.double() if isinstance(t, torch.Tensor) and t.is_floating_point() else t, (args, kwargs))
    return run(copy.deepcopy(module).double(), *wide, wanted)


def compare(module, args, kwargs, dtype=torch.float32):
    """Raises AssertionError where the wrapped module differs from the module: results, buffers, gradients."""
    rtol, atol = TOLERANCES[dtype]
    wanted = None
    try:
        want = run(copy.deepcopy(module), args, kwargs)
    except RuntimeError as error:
        if "not differentiable with respect to" not in str(error):
            raise
        wanted = 1  # torch itself has a gradient for the first argument only
        want = run(copy.deepcopy(module), args, kwargs, wanted)
    got = run(DaceModule(copy.deepcopy(module), backward=True), args, kwargs, wanted)
    assert (want[2] is None) == (got[2] is None), "only one of the two has a gradient"
    for what, a, b in zip(("result", "buffer", "gradient"), got, want):
        a, b = pytree.tree_leaves(a), pytree.tree_leaves(b)
        assert len(a) == len(b)
        for k, (x, y) in enumerate(zip(a, b)):
            if what == "gradient" and (x is None or y is None):
                zero = x if x is not None else y
                assert zero is None or not zero.any(), f"{what} {k}: one is None"
            elif isinstance(y, torch.Tensor):
                try:
                    torch.testing.assert_close(x, y, rtol=rtol, atol=atol, equal_nan=True,
                                               msg=lambda text, w=f"{what} {k}": f"{w}: {text}")
                except AssertionError:
                    place = ("result", "buffer", "gradient").index(what)
                    if x.dtype != y.dtype or not no_worse(x, y, pytree.tree_leaves(_exact(module, args, kwargs, wanted)[place])[k]):
                        raise
            else:
                assert x == y


def all_infos():
    """The entries of the database, those of torch.nn.quantized and the like left out."""
    return [info for info in module_db if info.module_cls.__module__.startswith("torch.nn")]


def draws_numbers(name):
    """Does this case draw random numbers?  They come from our own stream, so that values differ from torch's."""
    kind = name.split(" ")[0].rsplit(".", 1)[-1]
    return kind in RANDOM and " train " in name


def check_random(module, x):
    """A training call of a dropout or RReLU: every element is one that torch could have drawn, and the gradient is that
    of the same draw."""
    compiled = DaceModule(copy.deepcopy(module), backward=True)
    x = x.detach().clone().requires_grad_()
    y = compiled(x)
    slope, = torch.autograd.grad(y.sum(), x)
    if isinstance(module, torch.nn.RReLU):
        torch.testing.assert_close(y, slope * x)
        assert (slope[x > 0] == 1).all()
        assert ((slope >= module.lower - 1e-6) & (slope <= module.upper + 1e-6))[x < 0].all()
    elif "Alpha" in type(module).__name__:
        negative, p = -1.7580993408473766, module.p  # the value that torch puts for dropped elements
        scale = (1 - p + p * (1 - p) * negative ** 2) ** -0.5
        shift = -scale * negative * p
        torch.testing.assert_close(y, torch.where(slope != 0, scale * x + shift, scale * negative + shift))
    else:
        torch.testing.assert_close(y, slope * x)
        kept = torch.full((), 1 / (1 - module.p))
        assert ((slope == 0) | torch.isclose(slope, kept)).all()
        assert module.p == 0 or x.numel() < 64 or 0 < (slope == 0).sum() < x.numel()

"""Operators that only draw.

The one idea: draws come from the generator that ``random.seed`` starts, and have no gradient.
Must not know: the tape.
"""
import numpy as onp

from ... import _core
from ..random import _drawn
from .rows import inputs, written

__all__ = ["scalar_poisson", "tensor_poisson"]


def _poisson(op, lam, shape, dtype):
    dtype = onp.dtype("float32" if dtype in (None, "None") else dtype)
    if dtype.kind not in "fV":
        raise _core.DTypeError(f"{op}: draws are floats, got dtype {dtype}")
    if onp.any(onp.asarray(lam) < 0) or onp.any(onp.isnan(lam)):
        raise _core.ValueError_(f"{op}: 'lam' is not negative, got {lam}")
    return _drawn(lambda r, n: r.poisson(lam, n), shape, dtype)


def _shape(shape, default):
    return default if shape is None else (int(shape), ) if isinstance(shape, (int, onp.integer)) else tuple(int(n) for n in shape)


@written
def scalar_poisson(lam=1.0, shape=None, ctx="", dtype=None):
    """Draws of the Poisson distribution with rate lam, in float32 unless dtype says else; without a shape: one, [1]."""
    return _poisson("scalar_poisson", float(lam), _shape(shape, (1, )), dtype)


@written
def tensor_poisson(lam=None, shape=(), dtype=None):
    """Draws for each rate in lam: [*lam's shape, *shape]."""
    (rates, ) = inputs("tensor_poisson", lam=lam)
    more = _shape(shape, ())
    rates = rates._value().astype(onp.float64).reshape(rates.shape + (1, ) * len(more))
    return _poisson("tensor_poisson", rates, rates.shape[:rates.ndim - len(more)] + more, dtype)

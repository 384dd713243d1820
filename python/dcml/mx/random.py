"""Random numbers: one generator, from which arrays are drawn, and seeds for operators that draw by themselves.

The one idea: ``seed(n)`` makes all that is drawn afterwards the same again.
Must not know: which operators draw.
"""
import threading

import numpy as onp

from .. import memory
from .array import default_dtype, ndarray

__all__ = ["seed", "normal", "uniform", "randint", "randn", "rand", "permutation", "shuffle", "choice"]

_lock = threading.Lock()
_source = [onp.random.default_rng(0)]


def seed(seed, device="all", ctx=None):
    """Starts the generator anew; seed: an integer; device: there is one."""
    with _lock:
        _source[0] = onp.random.default_rng(int(seed) & 0xFFFFFFFFFFFFFFFF)


def draw_seed():
    """A seed for an operator that draws: an array without dimensions, of int64."""
    with _lock:
        return ndarray(onp.array(_source[0].integers(0, 1 << 31), onp.int64))


def _drawn(draw, shape, dtype):
    shape = () if shape is None else shape
    with _lock:
        return ndarray(memory.copy(draw(_source[0], shape), dtype or default_dtype()))


def _of(value):
    return value._value() if isinstance(value, ndarray) else value


def _size(size, *parameters):
    return size if size is not None else onp.broadcast_shapes(*(onp.shape(p) for p in parameters))


def uniform(low=0.0, high=1.0, size=None, dtype=None, device=None, ctx=None, out=None):
    """Numbers between low and high."""
    low, high = _of(low), _of(high)
    return _drawn(lambda r, n: r.uniform(low, high, n), _size(size, low, high), dtype)


def normal(loc=0.0, scale=1.0, size=None, dtype=None, device=None, ctx=None, out=None):
    """Numbers of a normal distribution."""
    loc, scale = _of(loc), _of(scale)
    return _drawn(lambda r, n: r.normal(loc, scale, n), _size(size, loc, scale), dtype)


def randint(low, high=None, size=None, dtype=None, device=None, ctx=None, out=None):
    """Integers from low to high - 1, or from 0 to low - 1."""
    low, high = (0, low) if high is None else (low, high)
    return _drawn(lambda r, n: r.integers(low, high, n), size, dtype or onp.int64)


def rand(*size):
    """Numbers between 0 and 1."""
    return uniform(size=size)


def randn(*size):
    """Numbers of the standard normal distribution."""
    return normal(size=size)


def permutation(x):
    """A shuffled copy; of an integer, the numbers below it."""
    return _drawn(lambda r, n: r.permutation(_of(x)), None, onp.int64 if isinstance(x, int) else x.dtype)


def shuffle(x):
    """Shuffles an array along its first axis, in place."""
    x[...] = permutation(x)


def choice(a, size=None, replace=True, p=None, device=None, out=None):
    """Elements of an array, or numbers below an integer, each as probable as p says."""
    return _drawn(lambda r, n: r.choice(_of(a), n or None, replace, _of(p)), size, onp.int64 if isinstance(a, int) else a.dtype)

"""NumPy's arrays in the core's memory.

The one idea: NumPy puts arrays where vectors of a kernel cross lines of the cache; those that dcml makes itself lie better.
Must not know: who holds them.
"""
import math

import numpy as onp

from . import _core

_MOST = 1 << 46  # bytes: what is more, NumPy refuses, and says so


def empty(shape, dtype):
    """A new array, whose contents are undefined.

    shape: a tuple of extents; dtype: NumPy's type.  Raises dcml.Error or MemoryError where there is no memory.
    """
    dtype = onp.dtype(dtype)
    count = math.prod(shape) * dtype.itemsize
    return onp.ndarray(shape, dtype, _core.Memory(count)) if _core.POOLED_BYTES <= count <= _MOST else onp.empty(shape, dtype)


def full(shape, value, dtype):
    """One value everywhere."""
    made = empty(shape, dtype)
    made[...] = value
    return made


def copy(data, dtype=None):
    """A copy in the order of C, in another type if one is given, as ``numpy.array`` makes it."""
    data = onp.asarray(data, dtype)
    if data.nbytes < _core.POOLED_BYTES or data.dtype.hasobject:
        return onp.array(data, order="C")
    made = empty(data.shape, data.dtype)
    made[...] = data
    return made

"""Indexing: reading and writing parts of an array.

The one idea: outside a recording NumPy reads and writes the memory, so that slices are views; a recorded index is
operators of the core, which differentiates them.
Must not know: the tape.
"""
import sys

import numpy as onp

from .. import _core
from .array import invoke, ndarray
from .tape import state


def _plain(key):
    """The key as NumPy takes it: arrays by their memory, indices that are floats as integers."""
    if isinstance(key, tuple):
        return tuple(_plain(k) for k in key)
    if isinstance(key, ndarray):
        data = key._value()
        return data.astype(onp.int64) if data.dtype.kind in "fV" else data
    return key


def _cuts(key):
    """Does the key only cut: integers, slices, new axes?"""
    return all(k is None or k is Ellipsis or isinstance(k, (slice, onp.integer)) or (isinstance(k, int) and not isinstance(k, bool))
               for k in (key if isinstance(key, tuple) else (key, )))


def get(array, key):
    """array[key]: a view where nothing is recorded and the key only cuts."""
    key = _plain(key)
    cuts = _cuts(key)
    if state.recording and (array._tape is not None or array._grad_req is not None):
        return _recorded(array, key, cuts)
    data = array._value()
    found = data[key]
    if not cuts or not isinstance(found, onp.ndarray):
        return ndarray(onp.array(found, dtype=data.dtype))
    made = ndarray(found)
    array._shared = made._shared = True
    return made


def put(array, key, value):
    """array[key] = value."""
    if state.recording and (array._tape is not None or array._grad_req is not None):
        raise _core.ValueError_("writing into a part of an array cannot be recorded; npx.index_update and np.where can")
    key, data = _plain(key), array._value()
    if not array._shared and (sys.getrefcount(data) > 3 or not data.flags.writeable):
        data = data.copy()  # others hold this memory: what was recorded, a result of NumPy's
    given = value._value() if isinstance(value, ndarray) else value
    try:
        data[key] = given
    except (ValueError, TypeError) as error:
        what = f"a value of shape {onp.shape(given)} does not go into a part of an array of shape {data.shape}"
        raise _core.ValueError_(f"{what}: {error}") from None
    array._data, array._look, array._tape = data, None, None


# -- recorded -------------------------------------------------------------------------------------------------
def _recorded(array, key, cuts):
    items = list(key) if isinstance(key, tuple) else [key]
    if not cuts:
        return _gathered(array, items)
    return _cut(array, items)


def recorded(array, key):
    """array[key] as operators, of a key that only cuts: never a view."""
    return _cut(array, list(key))


def _cut(array, items):
    items = _spelled_out(items, array.ndim)
    starts, ends, axes, steps, shape, axis = [], [], [], [], [], 0
    for item in items:
        if item is None:
            shape.append(1)
            continue
        extent = array.shape[axis]
        if isinstance(item, slice):
            begin, end, step = item.indices(extent)
            n = len(range(begin, end, step))
            shape.append(n)
        else:
            begin, step, n = _inside(int(item), extent, axis), 1, 1
            end = begin + 1
        if not (begin == 0 and n == extent and step == 1):
            starts.append(begin)
            ends.append(end if end >= 0 else -(1 << 62))
            axes.append(axis)
            steps.append(step)
        axis += 1
    if axes:
        array = invoke("Slice", "", 21, (array, *(onp.array(v, onp.int64) for v in (starts, ends, axes, steps))))[0]
    return _reshaped(array, shape)


def _reshaped(array, shape):
    return invoke("Reshape", "", 21, (array, onp.array(shape, onp.int64)), {"allowzero": 1})[0]


def _inside(index, extent, axis):
    if not -extent <= index < extent:
        raise IndexError(f"index {index} is outside of axis {axis} with {extent} elements")
    return index % extent


def _spelled_out(items, ndim):
    """The items with a slice for each axis that is not named."""
    named = sum(item is not None and item is not Ellipsis for item in items)
    dots = [k for k, item in enumerate(items) if item is Ellipsis]
    if len(dots) > 1 or named > ndim:
        raise IndexError(f"an array of {ndim} dimensions has {named} indices and {len(dots)} ellipses")
    at = dots[0] if dots else len(items)
    return items[:at] + [slice(None)] * (ndim - named) + items[at + len(dots):]


def _gathered(array, items):
    """By arrays: the index of each element in the flat array is known, since keys are values."""
    numbers = onp.arange(array.size, dtype=onp.int64).reshape(array.shape)
    places = numbers[tuple(items)]
    flat = _reshaped(array, [-1])
    return invoke("Gather", "", 21, (flat, ndarray(places)), {"axis": 0})[0]

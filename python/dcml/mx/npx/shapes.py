"""Operators whose results' shapes Python decides: slices, reshapes, selections.

The one idea: the page's codes and defaults are turned into plain shapes and indices, which operators of the core take.
Must not know: how arrays are recorded.
"""
import numpy as onp

from ... import _core
from .. import functions as np
from ..array import cast, invoke, ndarray
from ..indexing import recorded
from ..tape import dtype_of, number_of
from .rows import DOMAIN, inputs, written

__all__ = ["constraint_check", "index_add", "index_update", "nonzero", "one_hot", "pick", "reshape", "reshape_like", "slice",
           "slice_channel", "topk"]
_slice = slice


@written
def constraint_check(data=None, msg="Constraint violated."):
    """array(True) if all elements hold; ValueError_, a ValueError, with msg otherwise."""
    (x, ) = inputs("constraint_check", data=data)
    if not x._value().all():
        raise _core.ValueError_(str(msg))
    return ndarray(onp.array(True))


@written
def nonzero(data=None):
    """The indices of elements that are not zero: [how many, ndim] of int64."""
    (x, ) = inputs("nonzero", data=data)
    return ndarray(onp.argwhere(x._value()).astype(onp.int64))


# -- shapes ---------------------------------------------------------------------------------------------------------
def _fail(shape, codes):
    raise _core.ShapeError(f"reshape: an array of shape {tuple(shape)} does not become {tuple(codes)}")


def _coded(shape, codes):
    """The shape that codes -1 to -6 make of a shape."""
    made, left, rest = [], list(shape), list(codes)
    whole = (tuple(shape), tuple(codes))
    while rest:
        code = rest.pop(0)
        if code >= -1:
            made.append(code)
            if left:
                left.pop(0)
        elif code == -2:
            made.append(left.pop(0) if left else _fail(*whole))
        elif code == -3:
            if not left or left.pop(0) != 1:
                _fail(*whole)
        elif code == -4:
            made += left
            left = []
        elif code == -5:
            if len(left) < 2:
                _fail(*whole)
            made.append(left.pop(0) * left.pop(0))
        elif code == -6:
            if not left or len(rest) < 2:
                _fail(*whole)
            made += _parts(left.pop(0), rest.pop(0), rest.pop(0)) or _fail(*whole)
        else:
            _fail(*whole)
    return made


def _parts(extent, a, b):
    if a == -1 and b > 0 and extent % b == 0:
        return [extent // b, b]
    if b == -1 and a > 0 and extent % a == 0:
        return [a, extent // a]
    return [a, b] if a * b == extent and a >= 0 else None


@written
def reshape(a=None, newshape=None, reverse=False, order="C"):
    """The elements in another shape, whose extents may be codes: -1 what is left, -2 copy an extent, -3 skip an extent of 1, -4 copy
    all that are left, -5 the product of two, -6 split one into the two that follow.  reverse: codes are read from the right."""
    (x, ) = inputs("reshape", a=a)
    if newshape is None or order != "C":
        raise TypeError(f"reshape(): 'newshape' must be given and 'order' is 'C', got {newshape!r} and {order!r}")
    codes = [int(newshape)] if isinstance(newshape, (int, onp.integer)) else [int(n) for n in newshape]
    if reverse:
        turned = _reversed_codes(codes)
        made = _coded(x.shape[::-1], turned)[::-1]
    else:
        made = _coded(x.shape, codes)
    return np.reshape(x, made)


def _reversed_codes(codes):
    """Codes from right to left; the two that follow a -6 stay behind it."""
    made, k = [], 0
    groups = []
    while k < len(codes):
        n = 3 if codes[k] == -6 else 1
        groups.append([codes[k], *codes[k + 1:k + n][::-1]])
        k += n
    for group in reversed(groups):
        made += group
    return made


@written
def reshape_like(lhs=None, rhs=None, lhs_begin=None, lhs_end=None, rhs_begin=None, rhs_end=None):
    """lhs in the shape of rhs, or only its extents from lhs_begin to lhs_end as those of rhs from rhs_begin to rhs_end."""
    x, like = inputs("reshape_like", lhs=lhs, rhs=rhs)
    begin, end, _ = _slice(lhs_begin, lhs_end).indices(x.ndim)
    return np.reshape(x, (*x.shape[:begin], *like.shape[_slice(rhs_begin, rhs_end)], *x.shape[max(begin, end):]))


# -- parts ----------------------------------------------------------------------------------------------------------
def _bounds(name, value):
    if value is None:
        return ()
    return (value, ) if isinstance(value, (int, onp.integer)) else tuple(value)


@written
def slice(data=None, begin=None, end=None, step=()):
    """data[begin:end:step], for as many axes as are given; None: all of it, in that direction."""
    (x, ) = inputs("slice", data=data)
    begin, end, step = _bounds("begin", begin), _bounds("end", end), _bounds("step", step)
    if not begin and not end or len(begin) != len(end) or len(begin) > x.ndim or len(step) not in (0, len(begin)):
        raise _core.ShapeError(f"slice: begin {begin}, end {end} and step {step} for an array of shape {x.shape}")
    if 0 in step:
        raise _core.ValueError_("slice: a step is not 0")
    return recorded(x, tuple(_slice(b, e, s) for b, e, s in zip(begin, end, step or (None, ) * len(begin))))


@written
def slice_channel(data=None, num_outputs=None, axis=1, squeeze_axis=False):
    """A list of equal parts along an axis; squeeze_axis: without it, where they have extent 1 along it."""
    (x, ) = inputs("slice_channel", data=data)
    if not isinstance(num_outputs, (int, onp.integer)) or num_outputs < 1:
        raise TypeError(f"slice_channel(): 'num_outputs' is a positive integer, got {num_outputs!r}")
    if not -x.ndim <= axis < x.ndim or x.shape[axis] % num_outputs or (squeeze_axis and x.shape[axis] != num_outputs):
        raise _core.ShapeError(f"slice_channel: axis {axis} of an array of shape {x.shape} in {num_outputs} parts")
    parts = np.split(x, int(num_outputs), axis)
    if squeeze_axis:
        parts = [np.squeeze(part, axis) for part in parts]
    return parts if num_outputs > 1 else parts[0]


@written
def pick(data=None, index=None, axis=-1, keepdims=False, mode="clip"):
    """The element at an index along an axis, for each place of the others; None: of the flattened array.  index: the other
    extents, with or without the axis as 1; outside of the extent it is clipped or wrapped."""
    x, index = inputs("pick", data=data, index=index)
    if isinstance(keepdims, str):  # as MXNet 2 orders them
        keepdims, mode = mode if isinstance(mode, bool) else False, keepdims
    if axis is None:
        flat = np.reshape(index, (index.size, ))
        place = np.take(np.reshape(x, (1, x.size)), flat, 1, mode)
        return np.reshape(place, index.shape)
    return invoke("pick_", DOMAIN, 1, (x, index), {"axis": int(axis), "keepdims": int(bool(keepdims)), "mode": str(mode)})[0]


def _positions(ind):
    """[indices, positions] of what was given: a vector holds positions along the first axis, a number is one of them."""
    return ind if ind.ndim == 2 else np.reshape(ind, (1, *ind.shape))


def _update(op, a, ind, val):
    x, ind, val = inputs(op, a=a, ind=ind, val=val)
    if ind.ndim > 2 or not x.ndim or (ind.ndim == 2 and not 0 < ind.shape[0] <= x.ndim):
        raise _core.ShapeError(f"{op}: ind has shape [positions] or [indices, positions] with at most {x.ndim} indices, got {ind.shape}")
    if ind.dtype.kind not in "iu":
        raise _core.DTypeError(f"{op}: ind is of integers, got {ind.dtype}")
    ind = _positions(ind)
    places = ind._value()
    for k, extent in enumerate(x.shape[:places.shape[0]]):
        if places[k].size and not (-extent <= places[k].min() and places[k].max() < extent):
            raise _core.ValueError_(f"{op}: an index lies outside of axis {k} with {extent} elements")
    return invoke(op + "_", DOMAIN, 1, (x, ind, cast(val, x.dtype)))[0]


@written
def index_add(a=None, ind=None, val=None):
    """a, with val added at positions, which may repeat.

    ind: [positions along the first axis] or [indices, positions], integers; val: broadcast to what lies there."""
    return _update("index_add", a, ind, val)


@written
def index_update(a=None, ind=None, val=None):
    """a, with val in the place of what lies at positions; of those that repeat, one counts.  Parameters as index_add's."""
    return _update("index_update", a, ind, val)


@written
def one_hot(data=None, depth=None, on_value=1.0, off_value=0.0, dtype="float32"):
    """A new last axis of extent depth: on_value at the index, off_value elsewhere."""
    (x, ) = inputs("one_hot", data=data)
    number = number_of(dtype)
    values = ndarray(onp.array([off_value, on_value], dtype_of(number)))
    places = cast(x, onp.dtype("int64"))
    inside = np.where(places < 0, int(depth), places)  # a negative index is no index from the end
    both = invoke("OneHot", "", 21, (inside, onp.array([depth], onp.int64), values), {"axis": -1})[0]
    return both


# -- orders -----------------------------------------------------------------------------------------------------------
_EXACT = {"uint8": 255, "float16": 2048, "float32": 1 << 24}


@written
def topk(data=None, axis=-1, k=1, ret_typ="indices", is_ascend=False, dtype="float32"):
    """The k greatest elements along an axis (None: of all), or smallest with is_ascend, in order; all of them if k < 1.

    ret_typ: "value", "indices" (in dtype), "both" (a list of the two) or "mask" (1 where they are)."""
    (x, ) = inputs("topk", data=data)
    if ret_typ not in ("value", "indices", "mask", "both"):
        raise _core.ValueError_(f"topk: ret_typ is 'value', 'indices', 'mask' or 'both', got {ret_typ!r}")
    shape = x.shape
    if axis is None:
        x, axis = np.reshape(x, (x.size, )), 0
    if not -x.ndim <= axis < x.ndim:
        raise _core.ShapeError(f"topk: axis {axis} is outside of an array of {x.ndim} dimensions")
    n = x.shape[axis]
    if k > n:
        raise _core.ValueError_(f"topk: k is {k}, the axis has {n} elements")
    kind = dtype_of(number_of(dtype))
    if n - 1 > _EXACT.get(kind.name, n) and ret_typ in ("indices", "both"):
        raise _core.DTypeError(f"topk: {kind} does not represent each index below {n}")
    count = onp.array([k if k >= 1 else n], onp.int64)
    values, places = invoke("TopK", "", 21, (x, count), {"axis": int(axis), "largest": int(not is_ascend)})
    if ret_typ == "mask":
        ones = np.ones_like(values.detach() if values._tape is not None else values)
        return np.reshape(invoke("ScatterElements", "", 21, (np.zeros_like(x), places, ones), {"axis": int(axis)})[0], shape)
    if ret_typ == "value":
        return values
    indices = cast(places, kind)
    return indices if ret_typ == "indices" else [values, indices]

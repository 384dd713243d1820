"""Operators on sequences (lists, never changed in place) and optionals (None or the value).

Sources: ONNX Sequence*, SplitToSequence, ConcatFromSequence, Optional*.
"""
import numpy as np

from ... import _core
from . import values as v
from .budget import PIECE, bytes_of


def construct(node, *items):
    return [list(items)]


def empty(node):
    return [[]]


def _place(sequence, position, last):
    k = int(v.scalar(position))
    if not -len(sequence) <= k <= last:
        raise _core.ShapeError(f"position {k} is out of range for a sequence of {len(sequence)} elements")
    return k + len(sequence) if k < 0 else k


def at(node, sequence, position):
    return [sequence[_place(sequence, position, len(sequence) - 1)]]


def insert(node, sequence, item, position=None):
    k = len(sequence) if position is None else _place(sequence, position, len(sequence))
    return [[*sequence[:k], item, *sequence[k:]]]


def erase(node, sequence, position=None):
    if not sequence:
        raise _core.ShapeError("the sequence is empty")
    k = len(sequence) - 1 if position is None else _place(sequence, position, len(sequence) - 1)
    return [[*sequence[:k], *sequence[k + 1:]]]


def length(node, sequence):
    return [np.asarray(len(sequence), np.int64)]


def split(node, x, sizes=None):
    """Parts of the given sizes, of one size (the last may be smaller), or of extent 1, whose axis may be dropped."""
    axis = v.axis_of(node.get("axis", 0), x.ndim)
    extent = x.shape[axis]
    if sizes is None:
        keep = node.get("keepdims", 1)
        return [[v.piece(x, axis, slice(k, k + 1) if keep else k) for k in range(extent)]]
    parts = v.integers(sizes)
    if as_one := sizes.ndim == 0:
        if parts[0] < 1:
            raise _core.ShapeError(f"parts of extent {parts[0]}")
        parts = [min(parts[0], extent - k) for k in range(0, extent, parts[0])]
    if not as_one and (sum(parts) != extent or min(parts, default=0) < 0):
        raise _core.ShapeError(f"parts of {parts} do not make up extent {extent}")
    ends = np.cumsum([0, *parts]).tolist()
    return [[v.piece(x, axis, slice(a, b)) for a, b in zip(ends, ends[1:])]]


def _pieces(node, x, sizes=None):
    """Bytes of the views that split makes."""
    count = x.shape[v.axis_of(node.get("axis", 0), x.ndim)] if sizes is None or sizes.ndim == 0 else sizes.size
    return PIECE * (-(-count // max(v.integers(sizes)[0], 1)) if sizes is not None and sizes.ndim == 0 else count)


split.estimate = _pieces


def concat_from(node, sequence):
    if not sequence:
        raise _core.ShapeError("the sequence is empty")
    new = node.get("new_axis", 0)
    axis = v.axis_of(node["axis"], v.as_tensor(sequence[0]).ndim + bool(new))
    return [v.stack(sequence, axis) if new else v.concat(sequence, axis)]


concat_from.estimate = lambda node, sequence: bytes_of(sequence)


def optional(node, value=None):
    return [value]


def has_element(node, value=None):
    return [np.asarray(value is not None)]


def get_element(node, value=None):
    if value is None:
        raise _core.ValueError_("the optional is empty")
    return [value]

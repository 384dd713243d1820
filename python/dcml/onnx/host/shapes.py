"""Operators whose result's extents depend on data: NonZero, Unique, Compress, NonMaxSuppression."""
import math

import numpy as np

from ... import _core
from . import values as v
from .budget import PIECE
from .strings import encode


_FEW = 1 << 12  # elements whose places NumPy finds in less time than our first step takes


def non_zero(node, x):
    """ONNX NonZero: indices [rank, count] of the elements that are not zero, in row-major order."""
    array = v.as_numpy(x)
    if array.ndim and array.size <= _FEW:
        return [np.array(array.nonzero(), np.int64)]
    rest = np.flatnonzero(array)
    places = np.empty((array.ndim, len(rest)), np.int64)
    for axis in range(array.ndim - 1 if len(rest) else 0, 0, -1):  # rows come in order: where each ends costs less than a division
        width, rows = array.shape[axis], math.prod(array.shape[:axis])
        if rows <= len(rest):
            ends = np.searchsorted(rest, np.arange(1, rows) * width)
            above = np.repeat(np.arange(rows), np.diff(ends, prepend=0, append=len(rest)))
        else:
            above = rest // width
        places[axis], rest = rest - above * width, above
    places[:1] = rest
    return [places]


def compress(node, x, condition):
    """ONNX Compress: the slices at an axis (or the elements of the flat input) where the condition is true."""
    keep = np.flatnonzero(v.as_numpy(condition))
    axis = node.get("axis")
    if axis is None:
        x, axis = x.reshape(-1), 0
    axis = v.axis_of(axis, x.ndim)
    if len(keep) and keep[-1] >= x.shape[axis]:
        raise _core.ShapeError(f"the condition is true at {keep[-1]}, but the axis has extent {x.shape[axis]}")
    return [v.piece(x, axis, v.like(keep, x))]


def _order(rows):
    """Positions that sort rows of values lexicographically, stable; NaN last."""
    keys = [rows[:, k] for k in reversed(range(rows.shape[1]))]
    return np.lexsort([np.asarray(k, np.float64) if k.dtype.kind == "V" else k for k in keys]) if keys else np.arange(
        len(rows))


def unique(node, x):
    """ONNX Unique: distinct elements (or slices at an axis), first positions, inverse, counts."""
    array, axis = v.as_numpy(x), node.get("axis")
    if v.is_string(array):
        table, (codes,) = encode(array)
        values, *places = unique(node, codes)
        return [table[values], *places]
    if axis is None:
        moved = array.reshape(-1)
        rows = moved.reshape(-1, 1)
    else:
        moved = np.moveaxis(array, v.axis_of(axis, array.ndim), 0)
        rows = moved.reshape(len(moved), math.prod(moved.shape[1:]))
    order = _order(rows)
    ranked = rows[order]
    fresh = np.ones(len(rows), bool)
    same = (ranked[1:] == ranked[:-1]) | (ranked[1:] != ranked[1:]) & (ranked[:-1] != ranked[:-1])  # NaN is NaN
    fresh[1:] = ~same.all(1)
    group = np.cumsum(fresh) - 1
    inverse = np.empty(len(rows), np.int64)
    inverse[order] = group
    first = order[fresh].astype(np.int64)
    counts = np.bincount(group, minlength=len(first)).astype(np.int64)
    if not node.get("sorted", 1):
        by_place = np.argsort(first, kind="stable")
        first, counts = first[by_place], counts[by_place]
        inverse = np.argsort(by_place, kind="stable").astype(np.int64)[inverse]
    values = moved[first]
    return [values if axis is None else np.moveaxis(values, 0, axis), first, inverse, counts]


def _corners(boxes, centered):
    """Boxes as y1, x1, y2, x2 with y1 <= y2 and x1 <= x2."""
    a, b, c, d = boxes.astype(np.float64).T
    if centered:  # x, y of the middle, width, height
        return np.stack([b - d / 2, a - c / 2, b + d / 2, a + c / 2], 1)
    return np.stack([np.minimum(a, c), np.minimum(b, d), np.maximum(a, c), np.maximum(b, d)], 1)


def _overlap(box, others):
    """Intersection over union of a box with others."""
    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    shared = np.clip(high - low, 0, None).prod(1)
    area = (box[2:] - box[:2]).prod() + (others[:, 2:] - others[:, :2]).prod(1)
    union = area - shared
    return np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)


def non_max_suppression(node, boxes, scores, most=None, iou=None, least=None):
    """ONNX NonMaxSuppression: rows (batch, class, box) of the boxes kept, best score first."""
    boxes, scores = v.as_numpy(boxes), v.as_numpy(scores)
    if boxes.ndim != 3 or scores.ndim != 3 or boxes.shape != (scores.shape[0], scores.shape[2], 4):
        raise _core.ShapeError(f"boxes {list(boxes.shape)} and scores {list(scores.shape)}, expected [n, m, 4] and "
                               "[n, c, m]")
    limit = 0 if most is None else int(v.scalar(most))
    threshold = 0.0 if iou is None else float(v.scalar(iou))
    kept = []
    for b in range(len(boxes)):
        corners = _corners(boxes[b], node.get("center_point_box", 0))
        for c, row in enumerate(scores[b]):
            order = np.argsort(-row, kind="stable")
            if least is not None:
                order = order[row[order] > v.scalar(least)]
            taken = 0
            while len(order) and taken < limit:
                kept.append((b, c, order[0]))
                taken += 1
                order = order[1:][_overlap(corners[order[0]], corners[order[1:]]) <= threshold]
    return [np.array(kept, np.int64).reshape(-1, 3)]


# Python looks at each class of each batch.
non_max_suppression.estimate = lambda node, boxes, scores, *limits: PIECE * scores.shape[0] * scores.shape[1] if scores.ndim == 3 else 0

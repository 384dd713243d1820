"""Rows whose results' extents depend on values: the places where a mask holds, and counts of numbers.

The one idea: such an extent is a symbol that no input has; the builder learns from the results which value tells it, and
the graph is run in parts (see call/hosted.py), each of which knows the extents of what it is given.
"""
import numpy as np
import torch

from .builder import INT64_MAX, Decline, Symbolic, dims, is_empty, meta, norm_axis, rank, row


def places_of(b, mask):
    """Indices [count, rank] of the elements that are not zero, in row-major order; of a number [count, 1]."""
    flags = b(mask, torch.bool)
    return b.transpose(b.op("NonZero", flags if rank(mask) else b.unsqueeze(flags, 0)), [1, 0])


@row("nonzero.default")
def _(b, n, x):
    places = _few_or_none(b, x)
    return places if rank(x) else b.slice(places, 0, 0, 1)


def _few_or_none(b, mask):
    """Of a tensor without elements torch knows the count: it is no symbol."""
    return b.const(np.zeros((0, rank(mask)), np.int64)) if is_empty(mask) else places_of(b, mask)


@row("where.default", "nonzero_numpy.default")
def _(b, n, mask):
    places = _few_or_none(b, mask)
    return [b.op("Gather", places, b.const(axis), axis=1) for axis in range(len(meta(n)))]


@row("masked_select.default")
def _(b, n, x, mask):
    if rank(x) == rank(mask) == 0:
        return b.op("Gather", b.unsqueeze(b(x), 0), b.op("Reshape", places_of(b, mask), b.const([-1])), axis=0)
    if dims(x) == dims(mask):
        return select_masked(b, n, x, mask, 0)
    shape = b.ints(torch.broadcast_shapes(meta(x).shape, meta(mask).shape))
    places = b.op("NonZero", b.op("Expand", b(mask, torch.bool), shape))
    return b.op("GatherND", b.op("Expand", b(x), shape), b.transpose(places, [1, 0]))


def select_masked(b, n, x, mask, first):
    """x[:, mask], where ``first`` axes stand before the mask."""
    if rank(mask) == 0:
        raise Decline("a mask of no dimension")
    r, taken = rank(x), range(first, first + rank(mask))
    rest = [a for a in range(r) if a not in taken]
    y = b.op("GatherND", b.transpose(b(x), [*taken, *rest]), places_of(b, mask))
    return b.transpose(y, [*range(1, first + 1), 0, *range(first + 1, rank(n))])


@row("bincount.default")
def _(b, n, x, weights=None, minlength=0):
    dtype, numbers = meta(n).dtype, b(x, torch.int64)
    negative = b.cast(b.op("Less", numbers, b.const(0)), torch.bool, torch.int64)
    none_negative = b.op("Equal", b.op("ReduceSum", negative, keepdims=0), b.const(0))
    b.check(none_negative, "bincount only supports 1-d non-negative integral inputs.")
    last = b.op("Max", b.op("ReduceMax", numbers, keepdims=1), b.const([minlength - 1]))
    none = b.op("Expand", b.const(0, dtype), b.op("Add", last, b.const([1])))
    ones = b(weights, dtype) if weights is not None else b.op("Expand", b.const(1, dtype), b.shape(x))
    y = b.op("ScatterElements", none, numbers, ones, axis=0, reduction="add")
    return b.stop(y) if dtype.is_floating_point else y


# -- numbers ---------------------------------------------------------------------------------------
@row("item.default", "_local_scalar_dense.default")
def _(b, n, x):
    """A number that a value tells; without a gradient."""
    have = meta(x).dtype
    dtype = have if have == torch.bool else torch.float64 if have.is_floating_point else torch.int64

    def number():
        name = b(x, dtype)
        name = b.op("Reshape", name, b.const(np.zeros(0))) if rank(x) else name
        return b.stop(name) if dtype == torch.float64 else name
    return Symbolic(number)


# -- distinct elements, and repeated ones ----------------------------------------------------------
def _begins(b, rows, axis, others, size):
    """1 where a row differs from the one before it, and at the first one; a row lies along the axes ``others``."""
    before, behind = (b.slice(rows, start, end, axis) for start, end in ((0, -1), (1, INT64_MAX)))
    differs = b.cast(b.op("Not", b.op("Equal", before, behind)), torch.bool, torch.int64)
    if others:
        differs = b.op("ReduceMax", differs, b.const(others), keepdims=0)
    first = b.op("Expand", b.const(1), b.op("Min", size, b.const([1])))  # none of an empty tensor
    return b.op("Concat", first, differs, axis=0)


def _places_of_ones(b, flags):
    return b.op("Reshape", b.op("NonZero", flags), b.const([-1]))


@row("_unique2.default")
def _(b, n, x, ordered=True, inverse=False, counts=False):
    if not inverse and not counts:  # torch gives empty ones
        dtype, none = meta(x).dtype, b.const(np.zeros(0, np.int64))
        number = torch.uint8 if dtype == torch.bool else dtype
        flat = b.op("Reshape", b(x, number), b.const([-1]))
        size = b.op("Reshape", b.extent(flat, 0), b.const([1]))
        values = b.op("TopK", flat, size, outs=2, axis=0, largest=0, sorted=1)[0]
        places = _places_of_ones(b, _begins(b, values, 0, [], size))
        return [b.stop(b.cast(b.op("Gather", values, places, axis=0), number, dtype)), none, none]
    y, _, places, often = b.op("Unique", b(x), outs=4, sorted=1)
    return [b.stop(y), b.op("Reshape", places, b.shape(x)), often]


@row("unique_dim.default")
def _(b, n, x, axis, ordered=True, inverse=False, counts=False):
    y, _, places, often = b.op("Unique", b(x), outs=4, sorted=1, axis=norm_axis(axis, rank(x)))
    return [b.stop(y), places, often]


@row("unique_consecutive.default")
def _(b, n, x, inverse=False, counts=False, axis=None):
    """The first of each run: where a row differs from the one before it."""
    rows = b.op("Reshape", b(x), b.const([-1])) if axis is None else b(x)
    axis = 0 if axis is None else norm_axis(axis, rank(x))
    flat = 1 if rank(x) < 2 else None
    others = [k for k in range(rank(x)) if k != axis] if flat is None and rank(meta(n)[0]) > 1 else []
    size = b.op("Reshape", b.extent(rows, axis), b.const([1]))
    first = _begins(b, rows, axis, others, size)
    places = _places_of_ones(b, first)
    number = b.op("Sub", b.op("CumSum", first, b.const(0)), b.const(1))
    ends = b.op("Concat", b.slice(places, 1, INT64_MAX, 0), size, axis=0)
    often = b.op("Sub", b.slice(ends, 0, INT64_MAX, 0), places)
    number = number if others or rank(meta(n)[0]) > 1 else b.op("Reshape", number, b.shape(x))
    return [b.stop(b.op("Gather", rows, places, axis=axis)), number, often]


@row("repeat_interleave.Tensor")
def _(b, n, repeats, output_size=None):
    """k as often as repeats[k] says: how many ends lie at or before a place."""
    repeats = b(repeats, torch.int64)
    wrong = b.op("ReduceSum", b.cast(b.op("Less", repeats, b.const(0)), torch.bool, torch.int64), keepdims=0)
    b.check(b.op("Equal", wrong, b.const(0)), "repeats can not be negative")
    total = b.op("ReduceSum", repeats, keepdims=1)
    none = b.op("Expand", b.const(0), b.op("Add", total, b.const([1])))
    ends = b.op("CumSum", repeats, b.const(0))
    ones = b.op("Expand", b.const(1), b.op("Shape", ends))
    passed = b.op("CumSum", b.op("ScatterElements", none, ends, ones, axis=0, reduction="add"), b.const(0))
    return b.op("Slice", passed, b.const([0]), total, b.const([0]))

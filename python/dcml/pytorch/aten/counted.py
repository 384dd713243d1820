"""Rows whose results' extents depend on values: the places where a mask holds, and counts of numbers.

The one idea: such an extent is a symbol that no input has; the builder learns which value tells it, and the graph is run
in parts (see call/hosted.py), each of which knows the extents of what it is given.
"""
import torch

from .builder import Decline, dims, meta, rank, row


def places_of(b, mask):
    """Indices [count, rank] of the elements that are not zero, in row-major order."""
    flags = b(mask, torch.bool)
    return b.transpose(b.op("NonZero", flags if rank(mask) else b.unsqueeze(flags, 0)), [1, 0])


@row("nonzero.default")
def _(b, n, x):
    if rank(x) == 0:
        raise Decline("nonzero of a 0-dimensional tensor")
    places = places_of(b, x)
    b.counts(n, places, 0)
    return places


@row("where.default", "nonzero_numpy.default")
def _(b, n, mask):
    places = places_of(b, mask)
    b.counts(meta(n)[0], places, 0)
    return [b.op("Gather", places, b.const(axis), axis=1) for axis in range(len(meta(n)))]


@row("masked_select.default")
def _(b, n, x, mask):
    if dims(x) != dims(mask) or rank(x) == 0:
        raise Decline("masked_select that broadcasts")
    return select_masked(b, n, x, mask, 0)


def select_masked(b, n, x, mask, first):
    """x[:, mask], where ``first`` axes stand before the mask."""
    if rank(mask) == 0:
        raise Decline("a mask of no dimension")
    r, taken = rank(x), range(first, first + rank(mask))
    rest = [a for a in range(r) if a not in taken]
    y = b.op("GatherND", b.transpose(b(x), [*taken, *rest]), places_of(b, mask))
    y = b.transpose(y, [*range(1, first + 1), 0, *range(first + 1, rank(n))])
    b.counts(n, y, first)
    return y


@row("bincount.default")
def _(b, n, x, weights=None, minlength=0):
    dtype, numbers = meta(n).dtype, b(x, torch.int64)
    negative = b.cast(b.op("Less", numbers, b.const(0)), torch.bool, torch.int64)
    none_negative = b.op("Equal", b.op("ReduceSum", negative, keepdims=0), b.const(0))
    b.checks.append((none_negative, "bincount only supports 1-d non-negative integral inputs."))
    last = b.op("ReduceMax", b.op("Concat", numbers, b.const([minlength - 1]), axis=0), keepdims=1)
    none = b.op("Expand", b.const(0, dtype), b.op("Add", last, b.const([1])))
    ones = b(weights, dtype) if weights is not None else b.op("Expand", b.const(1, dtype), b.shape(x))
    y = b.op("ScatterElements", none, numbers, ones, axis=0, reduction="add")
    b.counts(n, y, 0)
    return b.stop(y) if dtype.is_floating_point else y

"""Where the elements of a view lie, said so that a graph can read and write them.

The one idea: arguments of graphs have no gaps.  A view without gaps is one, its dimensions in the order in which they lie; of
any other view the argument is the whole stretch of memory that it lies in, flat, and the graph reads elements of it
by their distances.  Views of one memory may lie in one common stretch.  Must not know: tensors and trees.
"""
import numpy as np


def in_whole_elements(ary):
    """Do elements lie a whole number of elements from each other, in this machine's byte order?"""
    return ary.dtype.isnative and ary.flags.aligned and all(s % ary.itemsize == 0 for s in ary.strides)


def argument_of(ary):
    """(argument, layout) of a view.

    The layout is a hashable tuple: (type,  extents of the argument, order), where the view is the argument with
    dimensions transposed so that dimension order[k] of the view is the k-th of the argument, or () for the same order;
    or (type, extents of the argument, extents of the view, distances, place of the first element).
    """
    if ary.flags.c_contiguous:
        return ary, (ary.dtype.char, ary.shape, ())
    order = sorted(range(ary.ndim), key=lambda d: -abs(ary.strides[d]))
    packed = ary.transpose(order)
    if packed.flags.c_contiguous:
        return packed, (ary.dtype.char, packed.shape, tuple(order))
    low, high = stretch(ary)
    return flat_stretch(ary, low, high), layout_in(ary, low, high)


def root_of(ary):
    """The array that owns the memory of a view."""
    while type(ary.base) is np.ndarray:
        ary = ary.base
    return ary


def _first(ary):
    return ary.__array_interface__["data"][0] // ary.itemsize


def stretch(ary):
    """The first and the last place of a view's elements, in elements from address 0; (0, -1) for a view of nothing."""
    if not ary.size:
        return 0, -1
    steps = [s // ary.itemsize * (n - 1) for s, n in zip(ary.strides, ary.shape)]
    return _first(ary) + sum(s for s in steps if s < 0), _first(ary) + sum(s for s in steps if s > 0)


def flat_stretch(ary, low, high):
    """The memory from ``low`` to ``high``, where ``ary`` begins at ``low`` or, with negative distances, ends there."""
    rising = ary[tuple(slice(None, None, -1 if s < 0 else 1) for s in ary.strides)]
    return np.lib.stride_tricks.as_strided(rising, (high - low + 1,), (ary.itemsize,))


def layout_in(ary, low, high):
    """The layout of a view in the stretch from ``low`` to ``high``."""
    return ary.dtype.char, (high - low + 1,), ary.shape, tuple(s // ary.itemsize for s in ary.strides), _first(ary) - low


def common_argument(views):
    """(argument, layouts) of views of one memory and type in one stretch."""
    stretches = [stretch(ary) for ary in views]
    low, high = min(s[0] for s in stretches), max(s[1] for s in stretches)
    first = views[min(range(len(views)), key=lambda k: stretches[k])]
    return flat_stretch(first, low, high), [layout_in(ary, low, high) for ary in views]


def index_text(layout, indices):
    """The element of an argument as text of a graph's index: ``indices`` are those of the view, as text."""
    if len(layout) == 3:
        order = layout[2] or range(len(indices))
        return ", ".join(indices[d] for d in order)
    *_, distances, first = layout
    return " + ".join([str(first), *(f"{s} * {i}" for s, i in zip(distances, indices))]).replace("+ -", "- ")

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
    """(argument, layout, owner of the memory) of a view; the argument of a view with gaps is None: see stretched().

    The layout is a hashable tuple: (type, extents of the argument, order), where the view is the argument with
    dimensions transposed so that dimension order[k] of the view is the k-th of the argument, or () for the same order;
    or (type, extents of the argument, extents of the view, distances, place of the first element).
    """
    if ary.flags.c_contiguous:
        return ary, (ary.dtype.char, ary.shape, ()), root_of(ary)
    order = sorted(range(ary.ndim), key=lambda d: -abs(ary.strides[d]))
    packed = ary.transpose(order)
    if packed.flags.c_contiguous:
        return packed, (ary.dtype.char, packed.shape, tuple(order)), root_of(ary)
    distances = tuple(s // ary.itemsize for s in ary.strides)
    before, behind = _reach(ary.shape, distances)
    return None, (ary.dtype.char, (before + behind + 1,), ary.shape, distances, before), root_of(ary)


def root_of(ary):
    """The array that owns the memory of a view."""
    while type(ary.base) is np.ndarray:
        ary = ary.base
    return ary


def _reach(shape, distances):
    """How many places before, and behind, the first element a view has elements."""
    before = behind = 0
    for n, s in zip(shape, distances):
        if s < 0:
            before -= s * (n - 1)
        else:
            behind += s * (n - 1)
    return before, behind


def _address(ary):
    return ary.__array_interface__["data"][0]


def stretched(ary, before, length):
    """The memory that a view lies in, flat: ``length`` elements, of which ``before`` come before the view's first.

    The view has elements at the beginning.
    """
    root = root_of(ary)
    if root.flags.c_contiguous:
        return np.ndarray((length,), ary.dtype, root, _address(ary) - _address(root) - before * ary.itemsize)
    rising = ary[tuple(slice(None, None, -1 if s < 0 else 1) for s in ary.strides)]  # begins with the lowest element
    return np.lib.stride_tricks.as_strided(rising, (length,), (ary.itemsize,))


def stretch(ary):
    """The first and the last place of a view's elements, in elements from address 0."""
    first = _address(ary) // ary.itemsize
    before, behind = _reach(ary.shape, [s // ary.itemsize for s in ary.strides])
    return first - before, first + behind


def common_argument(views, stretches):
    """(argument, layouts) of views of one memory and type in one stretch."""
    low, high = min(s[0] for s in stretches), max(s[1] for s in stretches)
    places = []
    for ary in views:
        distances = tuple([s // ary.itemsize for s in ary.strides])
        places.append((ary.dtype.char, (high - low + 1,), ary.shape, distances, _address(ary) // ary.itemsize - low))
    first = min(range(len(views)), key=stretches.__getitem__)
    return stretched(views[first], places[first][4], high - low + 1), places


def index_text(layout, indices):
    """The element of an argument as text of a graph's index: ``indices`` are those of the view, as text."""
    if len(layout) == 3:
        order = layout[2] or range(len(indices))
        return ", ".join(indices[d] for d in order)
    *_, distances, first = layout
    return " + ".join([str(first), *(f"{s} * {i}" for s, i in zip(distances, indices))]).replace("+ -", "- ")

"""Operators whose results' extents values tell, in terms of others once Python is told these extents.

The one idea: where an element of a result comes from is found in the running sum of counts, of which the last is the extent.
Must not know: graphs, or how Python is told.
"""
import math

import torch

from .symbols import Beyond

aten = torch.ops.aten
ROWS = {}


def _row(*overloads):
    """Serves overloads by a function of call(overload, *args, **kwargs), count(tensor of one element) and their arguments; what it gives
    None for is not served."""
    def register(function):
        ROWS.update(dict.fromkeys(overloads, function))
        return function
    return register


def _chosen(call, count, counts):
    """Each place as often as its count says."""
    ends = call(aten.cumsum.default, counts, 0)
    total = count(call(aten.sum.default, counts))
    places = call(aten.arange.default, total, device=counts.device)
    chosen = call(aten.searchsorted.Tensor, ends, places, right=True)
    if type(counts.shape[0]) is int:  # a call of less finds no place, before it tells
        chosen = call(aten.clamp.default, chosen, 0, max(counts.shape[0] - 1, 0))
    return chosen


@_row(aten.repeat_interleave.Tensor)
def _(call, count, counts, output_size=None):
    return _chosen(call, count, counts)


@_row(aten.repeat_interleave.self_Tensor)
def _(call, count, x, counts, dim=None, output_size=None):
    x, dim = (call(aten.flatten.using_ints, x), 0) if dim is None else (x, dim)
    return call(aten.index_select.default, x, dim, _chosen(call, count, call(aten.expand.default, counts, [x.shape[dim]])))


def _places(call, count, mask):
    """Of the elements that are not zero, among all."""
    flat = call(aten.flatten.using_ints, mask)
    flat = flat if flat.dtype is torch.bool else call(aten.ne.Scalar, flat, 0)
    return _chosen(call, count, call(aten.to.dtype, flat, torch.int64))


@_row(aten.where.default, aten.nonzero_numpy.default)
def _columns(call, count, mask):
    shape = tuple(mask.shape) or (1,)
    places, columns = _places(call, count, mask), []
    for axis, extent in enumerate(shape):
        inner = math.prod(shape[axis + 1:])
        column = places if type(inner) is int and inner == 1 else call(aten.div.Scalar_mode, places, inner, rounding_mode="floor")
        columns.append(call(aten.remainder.Scalar, column, extent) if axis else column)
    return columns


@_row(aten.nonzero.default, aten.argwhere.default)
def _(call, count, mask):
    if mask.dim():
        return call(aten.stack.default, _columns(call, count, mask), 1)
    places = _places(call, count, mask)
    return call(aten.new_zeros.default, places, [places.shape[0], 0])


@_row(aten.masked_select.default)
def _(call, count, x, mask):
    shape = torch.broadcast_shapes(x.shape, mask.shape)
    x, mask = (call(aten.expand.default, one, shape) for one in (x, mask))
    return call(aten.index_select.default, call(aten.flatten.using_ints, x), 0, _places(call, count, mask))


@_row(aten.index.Tensor)
def _(call, count, x, indices):
    if not any(_is_mask(one) for one in indices):
        return None
    found = []
    for one in indices:
        if _is_mask(one) and (not one.dim() or tuple(one.shape) != tuple(x.shape[len(found):len(found) + one.dim()])):
            raise Beyond("a mask of other extents than those it is for")
        found += _columns(call, count, one) if _is_mask(one) else [one]
    return call(aten.index.Tensor, x, found)


def _is_mask(index):
    return index is not None and index.dtype in (torch.bool, torch.uint8)


@_row(aten.unique_consecutive.default)
def _runs(call, count, x, return_inverse=False, return_counts=False, dim=None):
    x = call(aten.flatten.using_ints, x) if dim is None else x
    if x.dim() != 1 or type(x.shape[0]) is int and x.shape[0] == 0:
        return None
    n = x.shape[0]
    first = call(aten.new_ones.default, x, [1], dtype=torch.bool)
    others = call(aten.ne.Tensor, call(aten.slice.Tensor, x, 0, 1), call(aten.slice.Tensor, x, 0, 0, n - 1))
    begins = call(aten.cat.default, [first, others])
    places = _places(call, count, begins)
    ends = call(aten.cat.default, [call(aten.slice.Tensor, places, 0, 1), call(aten.new_full.default, places, [1], n)])
    numbers = call(aten.sub.Scalar, call(aten.cumsum.default, begins, 0), 1)
    return call(aten.index_select.default, x, 0, places), numbers, call(aten.sub.Tensor, ends, places)


@_row(aten._unique2.default)
def _(call, count, x, sorted=True, return_inverse=False, return_counts=False):
    values, order = call(aten.sort.stable, call(aten.flatten.using_ints, x), stable=True)
    runs = _runs(call, count, values)
    if runs is None:
        return None
    inverse = call(aten.scatter.src, call(aten.zeros_like.default, order), 0, order, runs[1])
    return runs[0], call(aten.reshape.default, inverse, x.shape), runs[2]


@_row(aten.one_hot.default)
def _(call, count, x, num_classes=-1):
    return call(aten.one_hot.default, x, count(call(aten.max.default, x)) + 1) if num_classes == -1 else None


@_row(aten.narrow.Tensor)
def _(call, count, x, dim, start, length):
    return call(aten.narrow.default, x, dim, count(start), length)


@_row(aten.tensor_split.tensor_indices_or_sections)
def _(call, count, x, places, dim=0):
    if not places.dim():
        return call(aten.tensor_split.sections, x, count(places), dim)
    return call(aten.tensor_split.indices, x, [count(call(aten.select.int, places, 0, k)) for k in range(places.shape[0])], dim)

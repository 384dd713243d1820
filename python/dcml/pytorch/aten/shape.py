"""Rows that move data without computing: reshapes, slices, joins, pads, gathers, scatters, creation of constants."""
import functools

import numpy as np
import torch

from .builder import (INT64_MAX, ONNX_DTYPE, TABLE, Decline, dims, is_empty, meta, norm_axes, norm_axis, rank, row, same_extent,
                      settled, static_dims, used_outputs)
from .counted import select_masked


# -- reshapes --------------------------------------------------------------------------------------
@row("view.default", "reshape.default", "_unsafe_view.default", "unsafe_view.default", "_reshape_copy.default")
def _(b, n, x, sizes):
    known = [d if isinstance(d, int) else s for d, s in zip(dims(n), sizes)]  # export may know what -1 stands for
    return b.reshape(b(x), known, dims(x))


@row("view_as.default", "reshape_as.default")
def _(b, n, x, other):
    return b.op("Reshape", b(x), b.shape(other))


@row("view.dtype")
def _(b, n, x, dtype):
    """The same bits as another type; between types of different sizes, see decomposed.py."""
    have = meta(x).dtype
    if have == dtype:
        return b.stop(b(x))  # as in eager mode, of the same type too
    if have.itemsize != dtype.itemsize or have not in ONNX_DTYPE or dtype not in ONNX_DTYPE:
        raise Decline(f"the bits of {str(have)[6:]} as {str(dtype)[6:]}")
    made = b.op("BitCast", b(x), to=ONNX_DTYPE[dtype])
    b.stopped.add(made)  # also between floats
    return made


@row("flatten.using_ints")
def _(b, n, x, start=0, end=-1):
    r = rank(x)
    start, end = norm_axis(start, r), norm_axis(end, r)
    if r == 0:
        return b.reshape(b(x), [1])
    return b.reshape(b(x), dims(x)[:start] + [-1] + dims(x)[end + 1:], dims(x))


@row("unflatten.int")
def _(b, n, x, axis, sizes):
    return b.reshape_like(b(x), n)


@row("unsqueeze.default")
def _(b, n, x, axis):
    return b.unsqueeze(b(x), norm_axis(axis, rank(n)))


@row("squeeze.dim", "squeeze.dims", "squeeze.default")
def _(b, n, x, axes=None):
    extents = dims(x) or [0]
    drop = [a for a in norm_axes(axes, rank(x)) if isinstance(extents[a], int) and extents[a] == 1]
    if isinstance(axes, (list, tuple)) and not axes or rank(x) == 0:
        drop = []
    return b.squeeze(b(x), *drop) if drop else b(x)


@row("permute.default")
def _(b, n, x, perm):
    return b.transpose(b(x), [norm_axis(p, len(perm)) for p in perm])


@row("transpose.int", "swapaxes.default", "swapdims.default")
def _(b, n, x, i, j):
    perm = list(range(rank(x)))
    if perm:
        perm[i], perm[j] = perm[j], perm[i]
    return b.transpose(b(x), perm)


@row("t.default", "numpy_T.default", "matrix_H.default", "mT.default", "mH.default")
def _(b, n, x):
    perm = list(range(rank(x)))
    if "numpy_T" in str(n.target):
        perm.reverse()
    elif len(perm) > 1:
        perm[-1], perm[-2] = perm[-2], perm[-1]
    return b.transpose(b(x), perm)


@row("movedim.int", "movedim.intlist")
def _(b, n, x, source, target):
    r = rank(x)
    source = [norm_axis(s, r) for s in ([source] if isinstance(source, int) else source)]
    target = [norm_axis(t, r) for t in ([target] if isinstance(target, int) else target)]
    perm = [a for a in range(r) if a not in source]
    for t, s in sorted(zip(target, source)):
        perm.insert(t, s)
    return b.transpose(b(x), perm)


@row("expand.default", "broadcast_to.default")
def _(b, n, x, sizes, **_):
    lead = len(sizes) - rank(x)
    have = [1] * lead + dims(x)
    want = [1 if isinstance(s, int) and s == -1 else s for s in sizes]
    want = [1 if not isinstance(s, int) and same_extent(meta(s), have[i]) else s for i, s in enumerate(want)]
    if lead == 0 and all(isinstance(w, int) and (w == 1 or w == h) for w, h in zip(want, have)):
        return b(x)
    return b.op("Expand", b(x), b.ints(want))


@row("expand_as.default")
def _(b, n, x, other):
    return b.op("Expand", b(x), b.shape(other))


@row("broadcast_tensors.default")
def _(b, n, tensors):
    results = meta(n)
    names = []
    for x, result in zip(tensors, results):
        if list(result.shape) == dims(x):
            names.append(b(x))
            continue
        full = next((t for t in tensors if dims(t) == list(result.shape)), None)
        names.append(b.op("Expand", b(x), b.shape(full) if full is not None else b.ints(result.shape)))
    return names


@row("meshgrid.default", "meshgrid.indexing")
def _(b, n, tensors, indexing="ij"):
    r = len(tensors)
    order = [1, 0, *range(2, r)] if indexing == "xy" and r > 1 else list(range(r))
    full = b.ints(meta(n)[0].shape)
    columns = [b.reshape(b(t), [-1 if a == order.index(i) else 1 for a in range(r)]) for i, t in enumerate(tensors)]
    return [b.op("Expand", column, full) for column in columns]


@row("repeat.default", "tile.default")
def _(b, n, x, repeats):
    lead = len(repeats) - rank(x)
    repeats = [1] * -lead + list(repeats)
    name = b.unsqueeze(b(x), *range(lead)) if lead > 0 else b(x)
    return b.op("Tile", name, b.ints(repeats))


@row("repeat_interleave.self_int")
def _(b, n, x, repeats, axis=None, **_):
    if axis is None or not isinstance(repeats, int):
        raise Decline("repeat_interleave without an axis")
    axis = norm_axis(axis, rank(x))
    sizes = [1] * (rank(x) + 1)
    sizes[axis + 1] = repeats
    name = b.op("Expand", b.unsqueeze(b(x), axis + 1), b.const(sizes))
    return b.op("Reshape", name, b.const([0] * axis + [-1] + static_dims(x, axis + 1)))


# -- slices and joins ------------------------------------------------------------------------------
@row("slice.Tensor")
def _(b, n, x, axis=0, start=None, end=None, step=1):
    start, end = 0 if start is None else start, INT64_MAX if end is None else end
    if isinstance(start, int) and start == 0 and isinstance(end, int) and end == INT64_MAX and step == 1:
        return b(x)
    return b.op("Slice", b(x), b.ints([start]), b.ints([end]), b.const([norm_axis(axis, rank(x))]), b.const([step]))


@row("select.int")
def _(b, n, x, axis, index):
    return b.op("Gather", b(x), b(index, torch.int64), axis=norm_axis(axis, rank(x)))


@row("narrow.default")
def _(b, n, x, axis, start, length):
    if isinstance(start, int) and isinstance(length, int):
        return b.slice(b(x), start, start + length, norm_axis(axis, rank(x)))
    first = b.ints([start])
    return b.op("Slice", b(x), first, b.op("Add", first, b.ints([length])), b.const([norm_axis(axis, rank(x))]))


@row("cat.default", "concat.default", "concatenate.default")
def _(b, n, tensors, axis=0):
    dtype = meta(n).dtype
    tensors = [t for t in tensors if not (rank(n) != 1 and rank(t) == 1 and dims(t) == [0])]  # torch's legacy empties
    return b.op("Concat", *[b(t, dtype) for t in tensors], axis=norm_axis(axis, rank(n)))


@row("stack.default")
def _(b, n, tensors, axis=0):
    axis, dtype = norm_axis(axis, rank(n)), meta(n).dtype
    return b.op("Concat", *[b.unsqueeze(b(t, dtype), axis) for t in tensors], axis=axis)


def _split(b, x, lengths, axis):
    if len(lengths) == 1:
        return [b(x)]
    return b.op("Split", b(x), b.ints(lengths), outs=len(lengths), axis=axis)


@row("split.Tensor", "chunk.default", "tensor_split.sections", "split_with_sizes.default", "split.sizes",
     "unsafe_split.Tensor", "unsafe_chunk.default", "split_with_sizes_copy.default", "split_copy.Tensor")
def _(b, n, x, lengths, axis=0):
    axis = norm_axis(axis, rank(x))
    sizes = [t.shape[axis] for t in meta(n)]
    if "sizes" in str(n.target) and not all(isinstance(size, int) for size in sizes):
        sizes = lengths  # as numbers that are computed, not as extents that would be asked of the result
    if len(sizes) > 1 and not all(isinstance(size, int) for size in sizes) and "sizes" not in str(n.target):
        raise Decline("split along a symbolic extent")
    return _split(b, x, sizes, axis)


@row("unbind.int")
def _(b, n, x, axis=0):
    axis, used = norm_axis(axis, rank(x)), used_outputs(n)
    if len(used) == len(meta(n)) > 1:
        return [b.squeeze(part, axis) for part in _split(b, x, [1] * len(used), axis)]
    return [b.op("Gather", b(x), b.const(i), axis=axis) if i in used else None for i in range(len(meta(n)))]


@row("flip.default")
def _(b, n, x, axes):
    axes = norm_axes(axes, rank(x)) if axes else []
    if not axes:
        return b(x)
    k = len(axes)
    return b.op("Slice", b(x), b.const([-1] * k), b.const([-INT64_MAX] * k), b.const(axes), b.const([-1] * k))


@row("roll.default")
def _(b, n, x, shifts, axes=()):
    shifts, axes = [shifts] if isinstance(shifts, int) else shifts, [axes] if isinstance(axes, int) else axes
    name = b(x) if axes else b.reshape(b(x), [-1])
    for shift, axis in zip(shifts, axes or [0]):
        axis = norm_axis(axis, max(rank(x), 1)) if axes else 0
        extent = dims(x)[axis] if axes else None
        if isinstance(extent, int):
            shift %= max(extent, 1)
        if shift == 0:
            continue
        name = b.op("Concat", b.slice(name, -shift, INT64_MAX, axis), b.slice(name, 0, -shift, axis), axis=axis)
    return name if axes else b.op("Reshape", name, b.shape(x), allowzero=1)


@row("pad.default", "constant_pad_nd.default")
def _(b, n, x, pads, mode="constant", value=None):
    if not isinstance(mode, str):  # constant_pad_nd(x, pads, value)
        mode, value = "constant", mode
    return _pad(b, x, pads, {"constant": "constant", "reflect": "reflect", "replicate": "edge",
                             "circular": "wrap"}[mode], value)


def _pad(b, x, pads, mode, value=None):
    if all(isinstance(p, int) and p == 0 for p in pads):
        return b(x)
    r, dtype = rank(x), meta(x).dtype
    begin, end = [0] * r, [0] * r
    for k in range(len(pads) // 2):  # torch lists the last axis first
        begin[r - 1 - k], end[r - 1 - k] = pads[2 * k], pads[2 * k + 1]
    fill, name = b.const(value or 0, dtype) if mode == "constant" else None, b(x)
    if mode == "wrap" and all(isinstance(p, int) for p in pads):  # torch crops first, and wraps what is left
        crop = [min(p, 0) for p in begin + end]
        name = b.op("Pad", name, b.ints(crop), b.const(0, dtype)) if any(crop) else name
        begin, end = [max(p, 0) for p in begin], [max(p, 0) for p in end]
    return b.op("Pad", name, b.ints(begin + end), fill, mode=mode)


for _n in (1, 2, 3):
    TABLE[f"aten.reflection_pad{_n}d.default"] = lambda b, n, x, pads: _pad(b, x, pads, "reflect")
    TABLE[f"aten.replication_pad{_n}d.default"] = lambda b, n, x, pads: _pad(b, x, pads, "edge")


@row("diagonal.default")
def _(b, n, x, offset=0, axis1=0, axis2=1):
    r = rank(x)
    axis1, axis2 = norm_axis(axis1, r), norm_axis(axis2, r)
    rows, columns, length = dims(x)[axis1], dims(x)[axis2], dims(n)[-1]
    if not all(isinstance(d, int) for d in (rows, columns, length)):
        raise Decline("a diagonal of symbolic extents")
    rest = [a for a in range(r) if a not in (axis1, axis2)]
    name = b.transpose(b(x), rest + [axis1, axis2])
    flat = b.op("Reshape", name, b.const([0] * len(rest) + [rows * columns]))
    first = offset if offset >= 0 else -offset * columns
    return b.op("Gather", flat, b.const([first + k * (columns + 1) for k in range(length)]), axis=len(rest))


@row("diag_embed.default")
def _(b, n, x, offset=0, axis1=-2, axis2=-1):
    r = rank(n)
    axis1, axis2 = norm_axis(axis1, r), norm_axis(axis2, r)
    places = [*[a for a in range(r) if a not in (axis1, axis2)], axis1, axis2]
    name = b.op("DiagonalOf", b(x), domain="dcml", offset=offset)
    return name if places == list(range(r)) else b.transpose(name, [places.index(a) for a in range(r)])


@row("tril.default", "triu.default")
def _(b, n, x, k=0):
    upper = int("triu" in str(n.target))
    return b.op("Trilu", b(x), b.const(k), upper=upper)


@row("pixel_unshuffle.default")
def _(b, n, x, factor):
    if rank(x) != 4 or is_empty(x):
        raise Decline("pixel_unshuffle of a tensor that is not NCHW, or empty")
    channels, height, width = static_dims(x, 1)
    name = b.reshape(b(x), [-1, channels, height // factor, factor, width // factor, factor])
    name = b.transpose(name, [0, 1, 3, 5, 2, 4])
    return b.reshape(name, [-1, channels * factor * factor, height // factor, width // factor])


@row("channel_shuffle.default")
def _(b, n, x, groups):
    channels, *space = static_dims(x, 1)
    name = b.reshape(b(x), [-1, groups, channels // groups, *space])
    return b.reshape(b.transpose(name, [0, 2, 1, *range(3, rank(x) + 1)]), [-1, channels, *space])


@row("unfold.default")
def _(b, n, x, axis, size, step):
    if rank(x) == 0 and size == 1:
        return b.reshape(b(x), [1])
    return b.op("Windows", b(x), domain="dcml", axis=norm_axis(axis, rank(x)), size=size, step=step)


_PLACES = 2**14  # a graph holds no more numbers that say where elements lie; they are computed of where each axis goes


def _is_windows(x, shape, wanted, strides):
    """Windows of the last axis of x, whose memory has no gaps, behind all the others."""
    own = meta(x).stride()
    return (shape and len(wanted) == len(shape) + 1 and meta(x).is_contiguous() and list(wanted[:-2]) == list(shape[:-1])
            and list(strides[:-2]) == list(own[:-1]) and strides[-1] == 1 and strides[-2] > 0 and min(wanted) > 0
            and (wanted[-2] - 1) * strides[-2] + wanted[-1] <= shape[-1])


@row("as_strided.default", "as_strided_copy.default")
def _(b, n, x, sizes, strides, offset=None):
    """By where torch's own tensor, which has no gaps, keeps each element."""
    owner = x
    while owner.op == "call_function" and getattr(owner.target, "is_view", False):
        owner = owner.args[0]
    if offset is not None and owner.op == "placeholder":
        raise Decline("its storage_offset counts from where the memory of an argument begins, which another call may have elsewhere")
    start = 0 if offset is None else offset - meta(x).storage_offset()
    shape, wanted = static_dims(x), static_dims(n)
    lies = sorted(range(rank(x)), key=lambda axis: -meta(x).stride(axis))
    if not meta(x).permute(lies).is_contiguous():
        raise Decline("of a tensor with gaps in its memory")
    if start == 0 and _is_windows(x, shape, wanted, strides):
        name = b.op("Windows", b(x), domain="dcml", axis=rank(x) - 1, size=wanted[-1], step=strides[-2])
        return name if (shape[-1] - wanted[-1]) // strides[-2] + 1 == wanted[-2] else b.slice(name, 0, wanted[-2], rank(x) - 1)
    steps = [(np.arange(extent) * stride).reshape([-1] + [1] * (len(wanted) - 1 - axis))
             for axis, (extent, stride) in enumerate(zip(wanted, strides))]
    ends = [start + sum(end(part) for part in steps) for end in (np.min, np.max)] if 0 not in wanted else [0, -1]
    if not (0 <= ends[0] and ends[1] < np.prod(shape, dtype=int)):
        raise Decline("it reads memory that is not its argument's")
    flat = b.reshape(b.transpose(b(x), lies), [-1] if 0 not in shape else [0])
    if np.prod(wanted, dtype=int) <= _PLACES:
        return b.op("Gather", flat, b.const(sum(steps, np.full(wanted, start))), axis=0)
    return b.op("Gather", flat, functools.reduce(lambda a, c: b.op("Add", a, c), map(b.const, steps), b.const(start)), axis=0)


@row("im2col.default")
def _(b, n, x, kernel, dilation, padding, stride):
    if rank(x) != 4:
        raise Decline("unfold of a tensor that is not NCHW")
    static_dims(x, 1)
    return b.op("Im2Col", b(x), domain="dcml", kernel_shape=list(kernel), dilations=list(dilation), pads=list(padding) * 2,
                strides=list(stride))


@row("col2im.default")
def _(b, n, x, output, kernel, dilation, padding, stride):
    return b.op("Col2Im", b(x), b.const(output), b.const(kernel), dilations=list(dilation),
                pads=list(padding) * 2, strides=list(stride))


# -- gathers and scatters --------------------------------------------------------------------------
def _by_frequency(b, rows, weight, index):
    """Rows of an embedding whose gradients are divided by how often each is read."""
    dtype, flat = meta(weight).dtype, b.reshape(b(index, torch.int64), [-1])
    none, one = b.fill(0, dims(weight)[:1], dtype), b.op("Expand", b.const(1, dtype), b.op("Shape", flat))
    counts = b.op("ScatterElements", none, flat, one, axis=0, reduction="add")
    share = b.unsqueeze(b.op("Reciprocal", b.op("Gather", counts, b(index), axis=0)), -1)
    still = b.stop(rows)
    return b.op("Add", still, b.op("Mul", b.op("Sub", rows, still), share))


@row("embedding.default")
def _(b, n, weight, index, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    rows = b.op("Gather", b(weight), b(index), axis=0)
    if scale_grad_by_freq:
        rows = _by_frequency(b, rows, weight, index)
    if padding_idx < 0:
        return rows
    # the padding row gets no gradient
    pads = b.unsqueeze(b.op("Equal", b(index), b.const(padding_idx, meta(index).dtype)), -1)
    return b.op("Where", pads, b.stop(rows), rows)


@row("index_select.default")
def _(b, n, x, axis, index):
    if rank(x) == 0:
        return b(x)
    return b.op("Gather", b(x), b(index), axis=norm_axis(axis, rank(x)))


@row("gather.default")
def _(b, n, x, axis, index, **_):
    if is_empty(index):  # which may have any rank then
        return b.fill(0, dims(index), meta(n).dtype)
    source, places = b(x), b(index, torch.int64)
    if rank(x) and rank(index):
        return b.op("GatherElements", source, places, axis=norm_axis(axis, rank(x)))
    found = b.op("GatherElements", *[v if rank(t) else b.reshape(v, [1]) for t, v in ((x, source), (index, places))], axis=0)
    return found if rank(index) else b.reshape(found, [])


@row("take_along_dim.default")
def _(b, n, x, index, axis=None):
    pairs = enumerate(zip(dims(x), dims(index)))
    if axis is None or any(a != i for k, (a, i) in pairs if k != norm_axis(axis, rank(x))):
        raise Decline("take_along_dim that broadcasts")
    return b.op("GatherElements", b(x), b(index, torch.int64), axis=norm_axis(axis, rank(x)))


def _tensor_index(b, x, indices):
    """(axes indexed by tensors, their broadcast index of shape [..., len(axes)], result axis order needs a move)."""
    axes = [a for a, i in enumerate(indices) if i is not None]
    if any(meta(indices[a]).dtype in (torch.bool, torch.uint8) for a in axes):
        raise Decline("indexing by a mask along with others")
    lead = torch.broadcast_shapes(*[meta(indices[a]).shape for a in axes])
    names = []
    for a in axes:
        name = b(indices[a], torch.int64)
        if list(meta(indices[a]).shape) != list(lead):
            full = next((indices[k] for k in axes if dims(indices[k]) == list(lead)), None)
            name = b.op("Expand", name, b.shape(full) if full is not None else b.ints(lead))
        names.append(b.unsqueeze(name, len(lead)))
    index = names[0] if len(names) == 1 else b.op("Concat", *names, axis=len(lead))
    return axes, index, len(lead)


@row("index.Tensor", "_unsafe_index.Tensor")
def _(b, n, x, indices):
    given = [i for i in indices if i is not None]
    if len(given) == 1 and meta(given[0]).dtype not in (torch.bool, torch.uint8):
        return b.op("Gather", b(x), b(given[0], torch.int64), axis=list(indices).index(given[0]))
    if len(given) == 1 and meta(given[0]).dtype == torch.bool:
        return select_masked(b, n, x, given[0], list(indices).index(given[0]))
    axes, index, lead = _tensor_index(b, x, list(indices))
    rest = [a for a in range(rank(x)) if a not in axes]
    y = b.op("GatherND", b.transpose(b(x), axes + rest), index)  # index axes first, then the rest
    first = axes[0]
    if first and axes == list(range(first, first + len(axes))):  # adjacent: the index axes go where they were
        y = b.transpose(y, list(range(lead, lead + first)) + list(range(lead)) + list(range(lead + first, rank(n))))
    return y


@row("index_put.default", "_unsafe_index_put.default")
def _(b, n, x, indices, values, accumulate=False):
    indices, dtype = list(indices), meta(x).dtype
    given = [a for a, i in enumerate(indices) if i is not None]
    if len(given) == 1 and meta(indices[given[0]]).dtype == torch.bool:
        return _put_masked(b, x, given[0], indices[given[0]], values, accumulate)
    axes, index, lead = _tensor_index(b, x, indices)
    rest = [a for a in range(rank(x)) if a not in axes]
    first = axes[0] if axes == list(range(axes[0], axes[0] + len(axes))) else 0  # where the indexed axes stand
    found = torch.broadcast_shapes(*[meta(indices[a]).shape for a in axes])
    shape = [*[dims(x)[a] for a in rest[:first]], *found, *[dims(x)[a] for a in rest[first:]]]
    update = b(values, dtype)
    if shape != dims(values):
        update = b.op("Expand", update, b.ints(shape))
    update = b.transpose(update, [*range(first, first + lead), *range(first), *range(first + lead, len(shape))])
    perm = axes + rest
    y = b.op("ScatterND", b.transpose(b(x), perm), index, update, reduction="add" if accumulate else None)
    return b.transpose(y, [perm.index(a) for a in range(rank(x))])


def _put_masked(b, x, first, flags, values, accumulate):
    """x[:, mask] = values, where ``first`` axes stand before the mask."""
    dtype, behind = meta(x).dtype, rank(x) - first - rank(flags)
    if first and rank(values) > behind or rank(values) > behind and dims(values)[-1 - behind] != 1:
        raise Decline("index_put by a mask with several values")
    mask = b.unsqueeze(b(flags), *range(rank(flags), rank(flags) + behind)) if behind else b(flags)
    value = b(values, dtype)
    if rank(values) > behind:  # one value for all places
        value = b.reshape(value, dims(values)[rank(values) - behind:])
    return b.op("Where", mask, b.op("Add", b(x), value) if accumulate else value, b(x))


def _scatter_elements(b, x, axis, index, update, reduction=None):
    if rank(x) == 0:
        raise Decline("scattering into a number")
    return b.op("ScatterElements", b(x), b(index, torch.int64), update, axis=norm_axis(axis, rank(x)),
                reduction=reduction)


def _cropped(b, source, index):
    """torch lets the source be larger than the index."""
    if dims(source) == dims(index):
        return b(source)
    extents = [d if isinstance(d, int) else None for d in dims(index)]
    if None in extents:
        raise Decline("scatter with a source larger than a symbolic index")
    return b.op("Slice", b(source), b.const([0] * len(extents)), b.const(extents))


_REDUCTION = {"sum": "add", "add": "add", "prod": "mul", "multiply": "mul", "amax": "max", "amin": "min"}


@row("scatter.src", "scatter.reduce")
def _(b, n, x, axis, index, source, reduce=None):
    return _scatter_elements(b, x, axis, index, _cropped(b, source, index), _REDUCTION.get(reduce))


@row("scatter.value", "scatter.value_reduce")
def _(b, n, x, axis, index, value, reduce=None):
    update = b.op("Expand", b.const(value, meta(x).dtype), b.shape(index))
    return _scatter_elements(b, x, axis, index, update, _REDUCTION.get(reduce))


@row("scatter_add.default")
def _(b, n, x, axis, index, source):
    return _scatter_elements(b, x, axis, index, _cropped(b, source, index), "add")


@row("scatter_reduce.two")
def _(b, n, x, axis, index, source, reduce, include_self=True):
    if reduce == "mean" or not include_self:
        raise Decline(f"scatter_reduce {reduce} without the destination")
    return _scatter_elements(b, x, axis, index, _cropped(b, source, index), _REDUCTION[reduce])


@row("take.default")
def _(b, n, x, index):
    return b.op("Gather", b.op("Reshape", b(x), b.const([-1])), b(index, torch.int64), axis=0)


@row("index_fill.int_Scalar", "index_fill.int_Tensor")
def _(b, n, x, axis, index, value):
    # torch's own way has another gradient of the value where a position is named twice, so it serves none of these
    have, dtype = dims(x) or [1], meta(x).dtype
    axis = norm_axis(axis, len(have))
    where = b.op("Reshape", b(index, torch.int64), b.const([-1]))
    none = b.op("Expand", b.const(False, torch.bool), b.ints([have[axis]]) if isinstance(have[axis], int) else
                b.op("Reshape", b.size(x, axis), b.const([1])))
    every = b.op("Expand", b.const(True, torch.bool), b.op("Shape", where))
    mask = b.op("ScatterElements", none, where, every, axis=0)  # one flag for a position that is named twice
    mask = b.unsqueeze(mask, *range(1, len(have) - axis)) if axis + 1 < len(have) else mask
    mask = mask if rank(x) else b.squeeze(mask, 0)
    return b.op("Where", mask, b(value, dtype), b(x))


@row("index_add.default", "index_copy.default")
def _(b, n, x, axis, index, source, alpha=1):
    if rank(x) == 0:
        raise Decline("indexing into a 0-dimensional tensor")
    axis, dtype = norm_axis(axis, rank(x)), meta(x).dtype
    perm = [axis] + [a for a in range(rank(x)) if a != axis]
    update = b.transpose(b(source, dtype), perm)
    if alpha != 1:
        update = b.op("Mul", update, b.const(alpha, dtype))
    where = b.unsqueeze(b(index, torch.int64), 1) if rank(index) else b.reshape(b(index, torch.int64), [1, 1])
    y = b.op("ScatterND", b.transpose(b(x), perm), where, update,
             reduction="add" if "index_add" in str(n.target) else None)
    return b.transpose(y, [perm.index(a) for a in range(rank(x))])


@row("slice_scatter.default")
def _(b, n, x, source, axis=0, start=None, end=None, step=1):
    axis = norm_axis(axis, rank(x))
    extent, rows, start = dims(x)[axis], dims(source)[axis], 0 if start is None else start
    if same_extent(extent, rows):
        return b(source, meta(x).dtype)
    if not all(isinstance(v, (int, type(None))) for v in (extent, rows, start, end)):
        steps = b.op("Range", b.const(0), b.size(source, axis), b.const(1))  # as many as there are rows to put
        begin = b.ints([start])
        if isinstance(start, int) and start < 0:
            begin = b.op("Max", b.op("Add", begin, b.size(x, axis)), b.const([0]))
        return _put_rows(b, x, axis, b.op("Add", begin, b.op("Mul", steps, b.const(step))), b(source, meta(x).dtype))
    positions = list(range(*slice(start, end, step).indices(extent)))
    if positions == list(range(extent)):
        return b(source, meta(x).dtype)
    return _put_rows(b, x, axis, b.const(positions, torch.int64), b(source, meta(x).dtype))


@row("select_scatter.default")
def _(b, n, x, source, axis, index):
    axis = norm_axis(axis, rank(x))
    return _put_rows(b, x, axis, b.ints([index]), b.unsqueeze(b(source, meta(x).dtype), axis))


def _put_rows(b, x, axis, positions, update):
    """x with the slices at the positions along one axis replaced that a value of one dimension holds."""
    perm = [axis] + [a for a in range(rank(x)) if a != axis]
    y = b.op("ScatterND", b.transpose(b(x), perm), b.unsqueeze(positions, 1), b.transpose(update, perm))
    return b.transpose(y, [perm.index(a) for a in range(rank(x))])


@row("one_hot.default")
def _(b, n, x, classes=-1):
    if classes < 0:
        raise Decline("one_hot without a number of classes")
    return b.op("OneHot", b(x), b.const(classes), b.const([0, 1]), axis=-1)


@row("bucketize.Tensor", "bucketize.Scalar", "searchsorted.Tensor", "searchsorted.Scalar")
def _(b, n, x, y, *, out_int32=False, right=False, side=None, sorter=None):
    values, edges = (x, y) if "bucketize" in str(n.target) else (y, x)
    dtype, name = meta(edges).dtype, b(edges)
    if sorter is not None:
        name = b.op("GatherElements", name, b(sorter), axis=-1)
    many = isinstance(values, torch.fx.Node)
    given = b(values, dtype) if many else b.const([values], dtype)
    if rank(edges) == 1 and many:  # one line of edges for all values
        given = b.op("Reshape", given, b.const([-1]))
    places = b.op("SearchSorted", name, given, domain="dcml", right=int(right or side == "right"))
    if rank(edges) == 1:
        places = b.op("Reshape", places, b.ints(meta(n).shape), allowzero=1)
    return b.cast(places, torch.int64, meta(n).dtype)


# -- creation --------------------------------------------------------------------------------------
@row("full.default", "new_full.default")
def _(b, n, *args, **_):
    sizes, value = args[-2:]
    return b.fill(value, sizes, meta(n).dtype)


@row("zeros.default", "_efficientzerotensor.default", "empty.memory_format", "new_zeros.default", "new_empty.default", "ones.default",
     "new_ones.default", "empty_permuted.default", "new_empty_strided.default", "empty_strided.default")
def _(b, n, *args, **_):
    sizes = args[1] if isinstance(args[0], torch.fx.Node) else args[0]
    return b.fill(1 if "ones" in str(n.target) else 0, sizes, meta(n).dtype)


@row("zeros_like.default", "ones_like.default", "full_like.default", "empty_like.default", "fill.Scalar",
     "fill.Tensor", "zero.default")
def _(b, n, x, value=None, **_):
    value = value if value is not None else int("ones" in str(n.target))
    scalar = b(value, meta(n).dtype)
    return b.op("Expand", scalar, b.shape(x)) if rank(x) else scalar


@row("arange.default", "arange.start", "arange.start_step")
def _(b, n, *args, **_):
    start, stop, step = map(settled, (0, *args, 1) if len(args) == 1 else (*args, 1) if len(args) == 2 else args)
    dtype = meta(n).dtype
    if all(isinstance(v, (int, float)) for v in (start, stop, step)):
        count = dims(n)[0]
        return b.const(start + np.arange(count) * step, dtype)
    if any(isinstance(v, float) and v != int(v) for v in (start, stop, step)):
        raise Decline("steps between numbers that are not whole, of a symbolic extent")
    # extents are computed of integers only
    return b.cast(b.op("Range", *[b(v, torch.int64) for v in (start, stop, step)]), torch.int64, dtype)


@row("linspace.default")
def _(b, n, start, stop, steps, **_):
    return b.const(np.linspace(start, stop, steps), meta(n).dtype)


@row("eye.default", "eye.m")
def _(b, n, rows, columns=None, **_):
    if not all(isinstance(v, int) for v in (rows, columns or rows)):
        raise Decline("an identity matrix of symbolic extents")
    return b.const(np.eye(rows, columns), meta(n).dtype)

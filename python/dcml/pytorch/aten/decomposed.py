"""Overloads said in other overloads, where torch has no such decomposition, or one that cannot be captured.

The one idea: what is written in torch needs no gradient and no types of its own.
Must not know: graphs or operators.
"""
import functools
import math

import torch

aten = torch.ops.aten
DECOMPOSED = {}  # "aten.diagonal_scatter.default" -> function of the same arguments, or NotImplemented


def of(*overloads):
    """Registers the decorated function for ``overloads``, e.g. ``of("median.dim")``."""
    def register(function):
        DECOMPOSED.update({"aten." + name: on_device_of_first(function) for name in overloads})
        return function
    return register


def on_device_of_first(function):
    """The function, which makes its new tensors where its first argument that is a tensor lies."""
    @functools.wraps(function)
    def placed(*args, **kwargs):
        first = next((a for a in (*args, *kwargs.values()) if isinstance(a, torch.Tensor)), None)
        if first is None or first.device.type == "cpu":
            return function(*args, **kwargs)
        with torch.device(first.device):
            return function(*args, **kwargs)
    return placed


def _at(x, axis, index, keepdim):
    """The element of x that index chooses along an axis; index has an extent of 1 there."""
    value = x.gather(axis, index)
    return (value, index) if keepdim else (value.squeeze(axis), index.squeeze(axis))


# -- products of groups of rows --------------------------------------------------------------------
@of("_grouped_mm.default")
def _grouped_product(x, weight, offs=None, bias=None, out_dtype=None):
    """Rows with the matrix of their group; each group's product has all rows, those of others as zeros, since their number is
    known at run time only."""
    if x.dim() != 2 or weight.dim() != 3 or offs is None or bias is not None:
        return NotImplemented
    row = torch.arange(x.shape[0]).unsqueeze(0)
    begin = torch.cat([torch.zeros_like(offs[:1]), offs[:-1]])
    own = ((row >= begin.unsqueeze(1)) & (row < offs.unsqueeze(1))).unsqueeze(-1)
    y = (torch.where(own, x, 0) @ weight).sum(0)
    return y if out_dtype is None else y.to(out_dtype)


DECOMPOSED["transformers.grouped_mm_fallback.default"] = DECOMPOSED["aten._grouped_mm.default"]  # what that package gives compilers


# -- bits ------------------------------------------------------------------------------------------
@of("view.dtype")
def _bits(x, dtype):
    """Between types of different sizes: the last axis has the parts of a wider element, lowest first."""
    have, want = 8 * x.dtype.itemsize, 8 * dtype.itemsize
    if have == want or x.is_complex() or dtype.is_complex:
        return NotImplemented
    whole = {8: torch.uint8, 16: torch.int16, 32: torch.int32, 64: torch.int64}
    narrow, wide = min(have, want), max(have, want)
    shifts = torch.arange(0, wide, narrow)
    number = x.view(whole[have]).to(torch.int64)
    if have > want:
        number = (number.unsqueeze(-1) >> shifts).flatten(-2)
    else:
        number = ((number.unflatten(-1, (-1, len(shifts))) & 2**narrow - 1) << shifts).sum(-1)
    return number.to(whole[want]).view(dtype)


# -- statistics of a normalisation -----------------------------------------------------------------
@of("native_layer_norm.default")
def _layer_norm(*args):
    """torch's own decomposition; but the statistics carry no gradient."""
    y, mean, scale = torch._decomp.decomposition_table[aten.native_layer_norm.default](*args)
    return y, mean.detach(), scale.detach()


# -- order statistics ------------------------------------------------------------------------------
def _chosen(x, axis, keepdim, choose):
    """(value, index) at a position in the order, which choose(sorted values) gives with an extent of 1."""
    if x.dim() == 0:
        return x.clone(), torch.zeros((), dtype=torch.int64)
    values, order = x.sort(dim=axis, stable=True)
    return _at(x, axis, order.gather(axis, choose(values)), keepdim)


def _like_one(values, axis, number):
    """number as an index with an extent of 1 along the axis."""
    return torch.full_like(values.narrow(axis, 0, 1), number, dtype=torch.int64)


@of("kthvalue.default")
def _kthvalue(x, k, axis=-1, keepdim=False):
    if x.dim() == 0:
        return x.clone(), torch.zeros((), dtype=torch.int64)
    return _at(x, axis, torch.ops.dcml.place_of_kth(x, k, axis), keepdim)


@of("median.dim")
def _median(x, axis, keepdim=False):
    """Of an even count the lower one; the first NaN where there is one."""
    if x.dim() == 0:
        return x.clone(), torch.zeros((), dtype=torch.int64)
    place = torch.ops.dcml.place_of_kth(x, (x.shape[axis] + 1) // 2, axis)
    if x.is_floating_point():
        greatest = x.detach().argmax(axis, True)  # the first NaN, where there is one
        place = torch.where(x.detach().gather(axis, greatest).isnan(), greatest, place)
    return _at(x, axis, place, keepdim)


@of("nanmedian.dim")
def _nanmedian(x, axis, keepdim=False):
    if not x.is_floating_point():
        return _median(x, axis, keepdim)
    return _chosen(x, axis, keepdim, lambda values: ((values.isnan().logical_not().sum(axis, True) - 1) // 2).clamp(0))


def _of_all(function):
    """A statistic of all elements; equal ones share its gradient."""
    def of_all(x):
        flat = x.reshape(-1)
        value = function(flat, 0)[0]
        if not x.is_floating_point():
            return value
        return torch.where((flat == value) | (flat.isnan() & value.isnan()), flat, -math.inf).amax()
    return of_all


of("median.default")(_of_all(_median))
of("nanmedian.default")(_of_all(_nanmedian))


@of("mode.default")
def _mode(x, axis=-1, keepdim=False):
    """The most frequent value, of several the least, at its last place."""
    if x.dim() == 0:
        return x.clone(), torch.zeros((), dtype=torch.int64)
    last = x.movedim(axis, -1)
    counts = (last.unsqueeze(-1) == last.unsqueeze(-2)).sum(-1)
    often = counts == counts.amax(-1, True)
    least = torch.where(often, last, _greatest(x.dtype)).amin(-1, True)
    where = torch.where(last == least, torch.arange(x.shape[axis]), -1).amax(-1, True)
    return _at(x, axis, where.movedim(-1, axis), keepdim)


def _greatest(dtype):
    return math.inf if dtype.is_floating_point else True if dtype == torch.bool else torch.iinfo(dtype).max


def _least(dtype):
    return -math.inf if dtype.is_floating_point else False if dtype == torch.bool else torch.iinfo(dtype).min


# -- gathers and scatters --------------------------------------------------------------------------
@of("as_strided_scatter.default")
def _as_strided_scatter(x, source, size, stride, offset=None):
    """Of a tensor without gaps: elements are found by their places in memory."""
    if not x.is_contiguous() or x.storage_offset() != 0:
        return NotImplemented
    place = torch.full([], offset or 0, dtype=torch.int64)
    for extent, step in zip(size, stride):
        place = place.unsqueeze(-1) + torch.arange(extent) * step
    return x.reshape(-1).index_put((place.reshape(-1),), source.reshape(-1)).reshape(x.shape)


@of("diagonal_scatter.default")
def _diagonal_scatter(x, source, offset=0, axis1=0, axis2=1):
    full = x.movedim((axis1, axis2), (-2, -1))
    rows, columns = torch.arange(full.shape[-2]).unsqueeze(1), torch.arange(full.shape[-1])
    if source.shape[-1] == 0:
        return x.clone()
    place = (rows if offset >= 0 else columns).expand(full.shape[-2:]).clamp(max=source.shape[-1] - 1)
    spread = source.index_select(-1, place.reshape(-1)).reshape(full.shape)
    return torch.where(columns - rows == offset, spread, full).movedim((-2, -1), (axis1, axis2))


def _touched(x, axis, index):
    return torch.zeros_like(x, dtype=torch.bool).scatter(axis, index, True)


@of("scatter_reduce.two")
def _scatter_reduce(x, axis, index, source, reduce, include_self=True):
    """The row does all but means, and all but those without x."""
    if x.dim() == 0:
        return x.reshape(1).scatter_reduce(0, index.reshape(1), source.reshape(1), reduce,
                                           include_self=include_self).reshape(())
    if reduce != "mean" and include_self:
        return NotImplemented
    start = {"sum": 0, "mean": 0, "prod": 1, "amax": _least(x.dtype), "amin": _greatest(x.dtype)}[reduce]
    base = x if include_self else torch.where(_touched(x, axis, index), start, x)
    if reduce != "mean":
        return base.scatter_reduce(axis, index, source, reduce)
    counts = torch.full_like(x, int(include_self)).scatter_add(axis, index, torch.ones_like(source))
    total = base.scatter_add(axis, index, source)
    return torch.div(total, counts.clamp(1), rounding_mode=None if x.is_floating_point() else "floor")


@of("index_reduce.default")
def _index_reduce(x, axis, index, source, reduce, *, include_self=True):
    if x.dim() == 0:
        return _index_reduce(x.reshape(1), 0, index.reshape(-1), source.reshape(1), reduce,
                             include_self=include_self).reshape(())
    shape = [1] * x.dim()
    shape[axis] = -1
    return x.scatter_reduce(axis, index.reshape(shape).expand_as(source), source, reduce, include_self=include_self)


def _by_turn(values, mask):
    """values, one after the other, at the places of a mask along its leading axes, and zeros elsewhere; there may be no values."""
    flags = mask.reshape(-1)
    nothing = values.new_zeros([1, *values.shape[1:]])
    picked = torch.cat([nothing, values]).index_select(0, torch.where(flags, flags.cumsum(0), 0))
    return picked.reshape(*mask.shape, *values.shape[1:])


@of("masked_scatter.default")
def _masked_scatter(x, mask, source):
    x, mask = torch.broadcast_tensors(x, mask)
    return torch.where(mask, _by_turn(source.reshape(-1), mask), x)


@of("index_put.default", "_unsafe_index_put.default")
def _index_put(x, indices, values, accumulate=False):
    """The row does all but several values behind one mask."""
    given = [a for a, i in enumerate(indices) if i is not None]
    if len(given) != 1 or indices[given[0]].dtype != torch.bool or values.dim() == 0:
        return NotImplemented
    first, mask = given[0], indices[given[0]]
    whole = list(range(first, first + mask.dim()))
    full = x.movedim(whole, list(range(mask.dim())))
    values = values.expand([*[1] * (full.dim() - mask.dim() + 1 - values.dim()), *values.shape])
    values = _by_turn(values.movedim(first, 0), mask)
    flags = mask.reshape(*mask.shape, *[1] * (full.dim() - mask.dim()))
    return torch.where(flags, full + values if accumulate else values, full).movedim(list(range(mask.dim())), whole)


@of("put.default")
def _put(x, index, source, accumulate=False):
    flat = x.reshape(-1).index_put((index.reshape(-1),), source.reshape(-1), accumulate)
    return flat.reshape(x.shape)


def _of_number(overload):
    """Scattering into a tensor without dimensions, which has no row."""
    def scattered(x, axis, index, source, *args, **kwargs):
        if x.dim():
            return NotImplemented
        source = source.reshape(1) if isinstance(source, torch.Tensor) else source
        return overload(x.reshape(1), 0, index.reshape(1), source, *args, **kwargs).reshape(())
    DECOMPOSED[str(overload)] = scattered


for _overload in (aten.scatter.src, aten.scatter.value, aten.scatter.reduce, aten.scatter.value_reduce,
                  aten.scatter_add.default):
    _of_number(_overload)


# -- bags, bins and random numbers -----------------------------------------------------------------
@of("_embedding_bag.default", "_embedding_bag_forward_only.default")
def _embedding_bag(weight, indices, offsets, scale_grad_by_freq=False, mode=0, sparse=False, per_sample_weights=None,
                   include_last_offset=False, padding_idx=-1):
    """mode: 0 sum, 1 mean, 2 max."""
    if scale_grad_by_freq:
        return NotImplemented
    n_bags = offsets.shape[0] - int(include_last_offset)
    begins = torch.zeros(indices.shape[0] + 1, dtype=torch.int64).index_add(0, offsets[:n_bags], torch.ones_like(offsets[:n_bags]))
    bag = begins.cumsum(0)[:-1] - 1  # an empty bag begins where the next one does, the last ones perhaps behind all
    rows = weight.index_select(0, indices)
    counted = (indices != padding_idx).unsqueeze(1)
    rows = rows if per_sample_weights is None else rows * per_sample_weights.unsqueeze(1)
    empty = weight.new_zeros(n_bags, weight.shape[1])
    counts = weight.new_zeros(n_bags, 1).index_add(0, bag, counted.to(weight.dtype))
    if mode == 2:
        rows = torch.where(counted, rows, -math.inf)
        result = empty.index_reduce(0, bag, rows, "amax", include_self=False)
        result = torch.where(counts == 0, 0, result)
    else:
        result = empty.index_add(0, bag, torch.where(counted, rows, 0) if padding_idx >= 0 else rows)
        result = result / counts.clamp(1) if mode == 1 else result
    return result, bag, counts.squeeze(1).to(torch.int64), indices.new_zeros(0)


@of("segment_reduce.default")
def _segment_reduce(x, reduce, *, lengths=None, indices=None, offsets=None, axis=0, unsafe=False, initial=None):
    """Elements go to the row of their segment, those behind the last to one more, which is left out."""
    if indices is not None or lengths is None and offsets is None:
        return NotImplemented
    axis = axis + x.dim() if axis < 0 else axis
    ends = lengths.cumsum(-1) if offsets is None else offsets[..., 1:]
    counts = lengths if offsets is None else offsets.diff()
    n, segments = x.shape[axis], ends.shape[-1]
    place = torch.searchsorted(ends.contiguous(), torch.arange(n).expand(*x.shape[:axis], n).contiguous(), right=True)
    place, counts = (t.reshape(*t.shape, *[1] * (x.dim() - axis - 1)) for t in (place, counts))
    rest = x.shape[axis + 1:]
    kinds = {"max": ("amax", -math.inf), "min": ("amin", math.inf), "prod": ("prod", 1)}
    kind, first = kinds.get(reduce, ("sum", 0))
    start = x.new_full((*x.shape[:axis], segments + 1, *rest), first if initial is None else initial)
    y = start.scatter_reduce(axis, place.expand(x.shape), x, kind).narrow(axis, 0, segments)
    if reduce != "mean":
        return y
    none = y if initial is not None else torch.full_like(y, math.nan)
    return torch.where(counts > 0, y / counts.clamp(1).to(x.dtype), none)


@of("histc.default")
def _histc(x, bins=100, low=0, high=0):
    flat = x.reshape(-1)
    if not flat.shape[0]:
        return torch.zeros(bins, dtype=x.dtype)
    if low == high == 0:
        low, high = flat.amin(), flat.amax()
        low, high = torch.where(low == high, low - 1, low), torch.where(low == high, high + 1, high)
    inside = (flat >= low) & (flat <= high)
    place = ((flat - low) * (bins / (high - low))).floor().clamp(0, bins - 1)
    place = torch.where(inside, place, 0).to(torch.int64)
    return torch.zeros(bins, dtype=x.dtype).scatter_add(0, place, inside.to(x.dtype))


@of("uniform.default")
def _uniform(x, low=0.0, high=1.0, *, generator=None):
    return torch.rand_like(x) * (high - low) + low


@of("exponential.default")
def _exponential(x, rate=1.0, *, generator=None):
    return -torch.log1p(-torch.rand_like(x)) / rate


@of("geometric.default")
def _geometric(x, p, *, generator=None):
    return (torch.log1p(-torch.rand_like(x, dtype=torch.float32)) / math.log1p(-p)).floor().to(x.dtype) + 1


@of("cauchy.default")
def _cauchy(x, median=0.0, sigma=1.0, *, generator=None):
    return median + sigma * torch.tan(math.pi * (torch.rand_like(x) - 0.5))


@of("normal_functional.default")
def _normal(x, mean=0.0, std=1.0, *, generator=None):
    return mean + std * torch.randn_like(x)


@of("log_normal.default")
def _log_normal(x, mean=1.0, std=2.0, *, generator=None):
    return (mean + std * torch.randn_like(x)).exp()


def _normal_numbers(shape, *, mean, std, dtype, device, requires_grad=False, generator=None):
    return mean + std * torch.randn(shape, dtype=dtype, device=device)


DECOMPOSED["prims.normal.default"] = _normal_numbers


@of("normal.Tensor_float", "normal.Tensor_Tensor")
def _normal_around(mean, std=1.0, *, generator=None):
    return mean + std * torch.randn_like(mean + 0 * std)


@of("normal.float_Tensor")
def _normal_spread(mean, std, *, generator=None):
    return mean + std * torch.randn_like(std)


@of("randint_like.default")
def _randint_like(x, high, **kwargs):
    return _randint_between(x, 0, high, **kwargs)


@of("randint_like.low_dtype")
def _randint_between(x, low, high, *, dtype=None, **_):
    chance = torch.rand_like(x, dtype=torch.float64)
    return (low + (chance * (high - low)).floor()).to(dtype or x.dtype)


@of("randperm.default")
def _randperm(n, *, dtype=torch.int64, **_):
    return torch.rand(n).argsort().to(dtype)


@of("multinomial.default")
def _multinomial(x, count, replacement=False, *, generator=None):
    if not replacement or count == 1:  # the first arrivals of competing exponentials
        return (x / _exponential(x)).topk(count, -1)[1]
    total = x.cumsum(-1)
    chance = torch.rand(*x.shape[:-1], count, dtype=x.dtype) * total[..., -1:]
    return torch.searchsorted(total, chance, right=True).clamp(max=x.shape[-1] - 1)


@of("rrelu_with_noise_functional.default", "rrelu_with_noise.default")
def _rrelu(x, noise, lower=0.125, upper=0.3333333333333333, training=False, generator=None):
    slope = _uniform(x, lower, upper) if training else torch.full_like(x, (lower + upper) / 2)
    noise = torch.where(x <= 0, slope, 1)
    return x * noise, noise


# -- pooling ---------------------------------------------------------------------------------------
def _fractional_starts(samples, extent, out, window):
    """Where windows begin, as a function of one random number a plane: [..., out]."""
    steps = torch.arange(out, dtype=samples.dtype)
    if out == 1:
        return torch.full_like(samples.unsqueeze(-1), extent - window, dtype=torch.int64)
    alpha = (extent - window) / (out - 1)
    shift = samples.unsqueeze(-1)
    starts = ((steps + shift) * alpha).to(torch.int64) - (shift * alpha).to(torch.int64)
    return torch.where(steps == out - 1, extent - window, starts)


@of("fractional_max_pool2d.default", "fractional_max_pool3d.default")
def _fractional_max_pool(x, window, output, samples):
    """Gathers all windows and takes the greatest of each; samples: [batch, channels, axes], in 2-d reversed."""
    k = len(window)
    batched = x if x.dim() == k + 2 else x.unsqueeze(0)
    space, samples = batched.shape[2:], samples[:batched.shape[0]]
    place = torch.zeros((), dtype=torch.int64)
    for a in range(k):  # axes are outs..., then windows...
        starts = _fractional_starts(samples[..., k - 1 - a if k == 2 else a], space[a], output[a], window[a])
        inside = torch.arange(window[a]).reshape([-1] + [1] * (k - 1 - a))
        shape = [1] * (2 * k)
        shape[a] = output[a]
        place = place * space[a] + starts.reshape(*starts.shape[:2], *shape) + inside
    planes = place.flatten(2 + k).flatten(2, 1 + k)  # batch, channels, outs, windows
    flat = batched.flatten(2)
    found = flat.gather(2, planes.flatten(2)).reshape(planes.shape)
    best = found.argmax(-1, True)
    where = planes.gather(-1, best).squeeze(-1)
    shape = [*batched.shape[:2], *output]
    value, where = flat.gather(2, where).reshape(shape), where.reshape(shape)
    return (value, where) if x.dim() == k + 2 else (value.squeeze(0), where.squeeze(0))


# -- places and distances ---------------------------------------------------------------------------
@of("nonzero_static.default")
def _nonzero_static(x, *, size, fill_value=-1):
    """The first places that are not zero, of which a stable order of the flags tells."""
    flat = (x != 0).reshape(-1)
    first = torch.sort(flat, descending=True, stable=True)[1][:size]
    first = torch.cat([first, first.new_zeros(size - first.shape[0])])
    inside = torch.arange(size) < flat.sum()
    places = []
    for extent in reversed(x.shape):
        places.append(torch.where(inside, first % max(extent, 1), fill_value))
        first = torch.div(first, max(extent, 1), rounding_mode="floor")
    return torch.stack(places[::-1], 1) if places else torch.zeros(size, 0, dtype=torch.int64)


@of("_pdist_forward.default")
def _pdist(x, p=2.0):
    """Distances between rows, each pair once; torch takes 0 for the gradient where rows are equal."""
    n = x.shape[0]
    first, second = torch.triu_indices(n, n, 1)
    if p == 2 and x.shape[1]:
        return torch.cdist(x, x).flatten().index_select(0, first * n + second)
    return torch.linalg.vector_norm(x.index_select(0, first) - x.index_select(0, second), p, dim=-1)


# -- statistics of samples, and others -------------------------------------------------------------
@of("special_ndtri.default")
def _ndtri(x):
    return math.sqrt(2) * torch.erfinv(2 * x - 1)


@of("lcm.default")
def _lcm(x, y):
    common = torch.gcd(x, y)
    return (torch.div(x, torch.where(common == 0, 1, common), rounding_mode="trunc") * y).abs()

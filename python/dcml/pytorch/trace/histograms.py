"""Histograms, of which torch cannot tell what their results look like.

The one idea: an element's bin is the last one that begins at or before it; they are counted by a scatter.
Must not know: graphs or operators.
"""
import torch


def histogram(input, bins=100, *, range=None, weight=None, density=False):
    """As torch.histogram, which gives no gradient."""
    x, numbers = input.detach().reshape(-1), None if weight is None else weight.detach().reshape(-1)
    edges = bins.detach().clone() if isinstance(bins, torch.Tensor) else _edges(x, bins, range)
    place = torch.searchsorted(edges, x, right=True) - 1
    return torch.return_types.histogram((_counted([x], [edges], [place], numbers, density), edges))


def histogramdd(input, bins, range=None, weight=None, density=False):
    """As torch.histogramdd; of a number of equal bins the place is a quotient."""
    points, numbers = input.detach().reshape(-1, input.shape[-1]), None if weight is None else weight.detach().reshape(-1)
    axes = points.unbind(1)
    bins = [bins] * len(axes) if isinstance(bins, int) else list(bins)
    ranges = [None if range is None else range[2 * k:2 * k + 2] for k, _ in enumerate(axes)]
    if isinstance(bins[0], torch.Tensor):
        edges = [one.detach().clone() for one in bins]
        places = [torch.searchsorted(own, x.contiguous(), right=True) - 1 for x, own in zip(axes, edges)]
    else:
        edges = [_edges(x, count, own) for x, count, own in zip(axes, bins, ranges)]
        places = [((x - own[0]) * count / (own[-1] - own[0])).nan_to_num(0).to(torch.int64) for x, own, count in zip(axes, edges, bins)]
    return torch.return_types.histogramdd((_counted(axes, edges, places, numbers, density), tuple(edges)))


def _edges(x, bins, range):
    """Of equal bins: as torch.linspace has them, from either end to the middle."""
    if bins < 1 or range is not None and not range[0] <= range[1]:
        raise ValueError("torch.histogram: bins must be > 0 and max must be larger than min")
    if range is not None:
        low, high = (torch.full((), end, dtype=x.dtype, device=x.device) for end in range)
    elif x.shape[0]:
        low, high = x.amin(), x.amax()
        torch._assert_async((high - low).isfinite(), "torch.histogram: the range of values is not finite")
    else:
        low, high = x.new_zeros(()), x.new_ones(())
    low, high = torch.where(low == high, low - 0.5, low), torch.where(low == high, high + 0.5, high)
    k, step = torch.arange(bins + 1, device=x.device), (high - low) / bins
    return torch.where(k < (bins + 1) // 2, low + step * k, high - step * (bins - k))


def _counted(axes, edges, places, weight, density):
    """The histogram of values along axes, whose places among bins are known; the last edge belongs to the last bin."""
    counts = [own.shape[0] - 1 for own in edges]
    inside, flat, total = True, 0, 1
    for count in counts:
        total *= count
    for x, own, place, count in zip(axes, edges, places, counts):
        inside = (x >= own[0]) & (x <= own[-1]) & inside
        flat = flat * count + place.clamp(0, count - 1)
    ones = torch.ones_like(axes[0]) if weight is None else weight
    y = torch.zeros(total, dtype=axes[0].dtype, device=axes[0].device)
    y = y.scatter_add(0, torch.where(inside, flat, 0), torch.where(inside, ones, 0)).reshape(counts)
    if density:
        y = y / y.sum()
        for k, own in enumerate(edges):
            y = y / own.diff().reshape([-1 if a == k else 1 for a, _ in enumerate(counts)])
    return y


REPLACED = {torch.histogram: histogram, torch.Tensor.histogram: histogram, torch.histogramdd: histogramdd}

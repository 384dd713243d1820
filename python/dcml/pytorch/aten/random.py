"""Rows that draw random numbers: dropouts, samples.

The one idea: all numbers of a call come from one seed input and a stream number per operator, so a
mask is recomputed in the backward pass instead of being stored.
"""
import math

import torch

from .builder import meta, rank, row


def _dropout(b, x, p, shape):
    """y = x / (1 - p) where kept; the mask costs one random number an element and is recomputed, not stored."""
    dtype = meta(x).dtype
    keep = b.op("GreaterOrEqual", b.uniform(shape), b.const(p, torch.float32))
    scaled = b.op("Mul", b(x), b.const(0.0 if p == 1 else 1 / (1 - p), dtype))
    return b.op("Where", keep, scaled, b.const(0, dtype)), keep


@row("dropout.default")
def _(b, n, x, p, train):
    return _dropout(b, x, p, b.shape(x))[0] if train and p > 0 else b(x)


@row("native_dropout.default")
def _(b, n, x, p, train):
    if train and p > 0:
        return list(_dropout(b, x, p, b.shape(x)))
    return [b(x), b.op("Expand", b.const(True, torch.bool), b.shape(x))]


@row("feature_dropout.default")
def _(b, n, x, p, train):
    if not train or p == 0:
        return b(x)
    lead = b.op("Slice", b.shape(x), b.const([0]), b.const([2]))  # one number per (batch, channel)
    return _dropout(b, x, p, b.op("Concat", lead, b.const([1] * (rank(x) - 2)), axis=0))[0]


@row("alpha_dropout.default")
def _(b, n, x, p, train):
    return _alpha_dropout(b, x, p, b.shape(x)) if train and p > 0 else b(x)


@row("feature_alpha_dropout.default")
def _(b, n, x, p, train):
    if not train or p == 0:
        return b(x)
    lead = b.op("Slice", b.shape(x), b.const([0]), b.const([2]))
    return _alpha_dropout(b, x, p, b.op("Concat", lead, b.const([1] * (rank(x) - 2)), axis=0))


def _alpha_dropout(b, x, p, shape):
    """Dropped elements become SELU's negative limit, then mean and variance are restored."""
    dtype, limit = meta(x).dtype, -1.7580993408473766
    keep = b.op("GreaterOrEqual", b.uniform(shape), b.const(p, torch.float32))
    a = 0.0 if p == 1 else 1 / math.sqrt((limit * limit * p + 1) * (1 - p))
    kept = b.op("Where", keep, b(x), b.const(limit, dtype))
    return b.op("Add", b.op("Mul", kept, b.const(a, dtype)), b.const(-a * limit * p, dtype))


@row("rand.default", "rand_like.default")
def _(b, n, x, **_):
    return b.cast(b.uniform(_random_shape(b, x)), torch.float32, meta(n).dtype)


@row("randn.default", "randn_like.default")
def _(b, n, x, **_):
    # Box-Muller; 1 - u lies in (0, 1], so the logarithm is finite
    shape, c = _random_shape(b, x), lambda v: b.const(v, torch.float32)
    radius = b.op("Sqrt", b.op("Mul", c(-2), b.op("Log", b.op("Sub", c(1), b.uniform(shape)))))
    angle = b.op("Cos", b.op("Mul", c(2 * math.pi), b.uniform(shape)))
    return b.cast(b.op("Mul", radius, angle), torch.float32, meta(n).dtype)


def _random_shape(b, x):
    return b.shape(x) if isinstance(x, torch.fx.Node) else b.ints(x)


@row("bernoulli.default", "bernoulli.p")
def _(b, n, x, p=None, **_):
    chance = b(x, torch.float32) if p is None else b.const(p, torch.float32)
    return b.cast(b.op("Less", b.uniform(b.shape(x)), chance), torch.bool, meta(n).dtype)


@row("randint.default", "randint.low")
def _(b, n, *args, **_):
    low, high, sizes = (0, *args) if len(args) == 2 else args
    spread = b.op("Mul", b.uniform(b.ints(sizes)), b.const(high - low, torch.float32))
    whole = b.op("Add", b.op("Floor", spread), b.const(low, torch.float32))
    return b.cast(whole, torch.float32, meta(n).dtype)

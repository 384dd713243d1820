"""Rows of convolutions, pooling, normalisation, softmax, losses and resizing."""
import math

import numpy as np
import torch

from .builder import TABLE, Decline, computed_in, dims, meta, norm_axes, norm_axis, rank, row, spread, static_dims, used_outputs
from .reduce import reduce, safe_softmax


def _batched(b, x, n_space):
    """The value of x with a batch axis, and the function that takes the axis off again if it was added."""
    if rank(x) == n_space + 2:
        return b(x), lambda y: y
    return b.unsqueeze(b(x), 0), lambda y: b.squeeze(y, 0)


# -- convolution -----------------------------------------------------------------------------------
def _conv(b, x, weight, bias, stride, padding, dilation, groups):
    k = rank(weight) - 2
    kernel = static_dims(weight, 2)
    dilation = spread(dilation, k)
    if isinstance(padding, str):  # torch puts the odd element of "same" at the end
        total = [d * (size - 1) if padding == "same" else 0 for d, size in zip(dilation, kernel)]
        pads = [t // 2 for t in total] + [t - t // 2 for t in total]
    else:
        pads = spread(padding, k) * 2
    name, unbatch = _batched(b, x, k)
    return unbatch(b.op("Conv", name, b(weight), b(bias), kernel_shape=kernel, strides=spread(stride, k), pads=pads,
                        dilations=dilation, group=groups))


@row("conv1d.default", "conv2d.default", "conv3d.default", "conv1d.padding", "conv2d.padding", "conv3d.padding")
def _(b, n, x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    return _conv(b, x, weight, bias, stride, padding, dilation, groups)


def _conv_transpose(b, x, weight, bias, stride, padding, output_padding, groups, dilation):
    k = rank(weight) - 2
    name, unbatch = _batched(b, x, k)
    return unbatch(b.op("ConvTranspose", name, b(weight), b(bias), kernel_shape=static_dims(weight, 2),
                        strides=spread(stride, k), pads=spread(padding, k) * 2, dilations=spread(dilation, k),
                        output_padding=spread(output_padding, k), group=groups))


@row("conv_transpose1d.default", "conv_transpose2d.input", "conv_transpose3d.input")
def _(b, n, x, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    return _conv_transpose(b, x, weight, bias, stride, padding, output_padding, groups, dilation)


@row("convolution.default")
def _(b, n, x, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    if transposed:
        return _conv_transpose(b, x, weight, bias, stride, padding, output_padding, groups, dilation)
    return _conv(b, x, weight, bias, stride, padding, dilation, groups)


# -- pooling ---------------------------------------------------------------------------------------
def _max_pool(k):
    def max_pool(b, n, x, kernel, stride=(), padding=0, dilation=1, ceil_mode=False):
        kernel = spread(kernel, k)
        name, unbatch = _batched(b, x, k)
        want_index = "indices" in str(n.target) and 1 in used_outputs(n)
        pads, outs = spread(padding, k) * 2, 2 if want_index else 1
        y = b.op("MaxPool", name, outs=outs, kernel_shape=kernel, strides=spread(stride or kernel, k),
                 pads=pads, dilations=spread(dilation, k), ceil_mode=int(ceil_mode))
        if "indices" not in str(n.target):
            return unbatch(y)
        if not want_index:
            return [unbatch(y), None]
        # ONNX counts positions over the whole tensor, torch inside one channel
        plane = math.prod(static_dims(x, rank(x) - k))
        return [unbatch(y[0]), unbatch(b.op("Mod", y[1], b.const(plane)))]
    return max_pool


def _average_pool(k):
    def average_pool(b, n, x, kernel, stride=(), padding=0, ceil_mode=False, count_include_pad=True, divisor=None):
        kernel = spread(kernel, k)
        stride, padding = spread(stride or kernel, k), spread(padding, k)
        name, unbatch = _batched(b, x, k)
        if divisor is not None:
            # zeros made explicit, so that every window has the same count
            behind = padding
            if ceil_mode:
                given, made = static_dims(x, rank(x) - k), static_dims(n, rank(n) - k)
                behind = [max((m - 1) * s + w - g - p, 0) for m, s, w, g, p in zip(made, stride, kernel, given, padding)]
            name = b.op("Pad", name, b.const([0, 0, *padding, 0, 0, *behind])) if any(padding + behind) else name
            padding, ceil_mode = [0] * k, False
        y = b.op("AveragePool", name, kernel_shape=kernel, strides=stride, pads=padding * 2,
                 ceil_mode=int(ceil_mode), count_include_pad=int(count_include_pad))
        if divisor is not None:
            y = b.op("Mul", y, b.const(math.prod(kernel) / divisor, meta(x).dtype))
        return unbatch(y)
    return average_pool


def _adaptive(k, kind):
    """Equal windows are a pool; of unequal or unknown ones there is an operator of our own."""
    def adaptive(b, n, x, output):
        name, unbatch = _batched(b, x, k)
        pair = isinstance(meta(n), (tuple, list))
        indexed = pair and 1 in used_outputs(n)
        wrap = (lambda y: [unbatch(y), None]) if pair else unbatch
        output, extents = spread(output, k), dims(x)[rank(x) - k:]
        if 0 in output:
            empty = [b.fill(0, list(v.shape), v.dtype) for v in (meta(n) if pair else [meta(n)])]
            return empty if pair else empty[0]
        if output == [1] * k and not indexed:
            return wrap(b.op("GlobalAveragePool" if kind == "Average" else "GlobalMaxPool", name))
        known = all(isinstance(e, int) for e in extents)
        output = [o if o is not None else e if known else 0 for o, e in zip(output, extents)]
        if not known or any(o == 0 or e % o for e, o in zip(extents, output)):
            results = b.op(f"Adaptive{kind}Pool", name, outs=2 if pair else 1, domain="dcml", output_size=output)
            return [unbatch(y) for y in results] if pair else unbatch(results)
        size = [e // o for e, o in zip(extents, output)]
        if indexed:
            y, index = b.op("MaxPool", name, outs=2, kernel_shape=size, strides=size)
            return [unbatch(y), unbatch(b.op("Mod", index, b.const(math.prod(extents))))]
        return wrap(b.op(kind + "Pool", name, kernel_shape=size, strides=size))
    return adaptive


for _k in (1, 2, 3):
    TABLE[f"aten.max_pool{_k}d.default"] = TABLE[f"aten.max_pool{_k}d_with_indices.default"] = _max_pool(_k)
    TABLE[f"aten.avg_pool{_k}d.default"] = _average_pool(_k)
    TABLE[f"aten.adaptive_max_pool{_k}d.default"] = _adaptive(_k, "Max")
    for _prefix in ("", "_"):
        TABLE[f"aten.{_prefix}adaptive_avg_pool{_k}d.default"] = _adaptive(_k, "Average")


# -- normalisation ---------------------------------------------------------------------------------
def _channel(b, given, value, channels, dtype):
    return b(given, dtype) if given is not None else b.const(np.full(channels, value), dtype)


def _affine(b, x, weight, bias, channels, dtype=None):
    """Scale and bias per channel, made up where the module has none; of the type of the weights if not told."""
    dtype = dtype or (meta(x).dtype if weight is None else meta(weight).dtype)
    return _channel(b, weight, 1, channels, dtype), _channel(b, bias, 0, channels, dtype)


@row("_native_batch_norm_legit_no_training.default", "batch_norm.default")
def _(b, n, x, weight, bias, mean, var, *rest):
    train, momentum, eps = rest[:3] if len(rest) > 2 else (False, *rest)  # batch_norm has a flag and a cudnn switch
    if train:
        raise Decline("batch_norm that was not made functional")
    _no_statistics(n)
    scale, shift = _affine(b, x, weight, bias, dims(x)[1])
    y = b.op("BatchNormalization", b(x), scale, shift, b(mean), b(var), epsilon=eps)
    return [y, None, None] if isinstance(meta(n), (tuple, list)) else y


def _no_statistics(n):
    if used_outputs(n) & {1, 2}:
        raise Decline("the statistics of a normalisation as results")


@row("_native_batch_norm_legit.no_stats")
def _(b, n, x, weight, bias, train, momentum, eps):
    _no_statistics(n)
    dtype = meta(weight if weight is not None else x).dtype
    zeros = b.const(np.full(dims(x)[1], 0), dtype)
    return [b.op("BatchNorm", b(x), b(weight), b(bias), zeros, zeros, outs=3, domain="dcml", epsilon=eps)[0], None, None]


@row("_native_batch_norm_legit_functional.default")
def _(b, n, x, weight, bias, mean, var, train, momentum, eps):
    _no_statistics(n)
    if not train:
        scale, shift = _affine(b, x, weight, bias, dims(x)[1])
        y = b.op("BatchNormalization", b(x), scale, shift, b(mean), b(var), epsilon=eps)
        return [y, None, None, b(mean), b(var)]
    calls, factor = b.cumulative.get(b.fqn.get(mean)), None
    if calls:  # momentum=None: the average over all calls, this one included
        factor = b.op("Reciprocal", b.cast(b.op("Add", calls, b.const(1)), torch.int64, meta(mean).dtype))
    y, new_mean, new_var = b.op("BatchNorm", b(x), b(weight), b(bias), b(mean), b(var), factor, outs=3, domain="dcml", epsilon=eps,
                                momentum=None if calls else momentum)
    b.stopped.update((new_mean, new_var))
    return [y, None, None, new_mean, new_var]


def _blend(b, old, new, momentum):
    return b.op("Add", old, b.op("Mul", b.op("Sub", new, old), momentum))


def _unbiased(b, x, axes, var, dtype):
    """A population variance as torch keeps it: times count / (count - 1)."""
    extents = [dims(x)[a] for a in axes]
    if all(isinstance(d, int) for d in extents):
        count = math.prod(extents)
        return b.op("Mul", var, b.const(count / (count - 1) if count > 1 else math.nan, dtype))
    count = b.count(x, axes, dtype)
    return b.op("Mul", var, b.op("Div", count, b.op("Sub", count, b.const(1, dtype))))


@row("instance_norm.default")
def _(b, n, x, weight, bias, mean, var, use_input_stats, momentum, eps, *_):
    channels = dims(x)[1]
    if not use_input_stats:
        scale, shift = _affine(b, x, weight, bias, channels)
        return b.op("BatchNormalization", b(x), scale, shift, b(mean), b(var), epsilon=eps)
    if mean is not None:  # export does not report that these change
        _instance_statistics(b, x, mean, var, momentum)
    dtype = _statistics_type(x, weight)
    scale, shift = _affine(b, x, weight, bias, channels, dtype)
    return b.cast(b.op("InstanceNormalization", b(x, dtype), scale, shift, epsilon=eps), dtype, meta(x).dtype)


def _instance_statistics(b, x, mean, var, momentum):
    axes, dtype = list(range(2, rank(x))), meta(mean).dtype
    center = reduce(b, "ReduceMean", b(x, dtype), axes, True)
    gap = b.op("Sub", b(x, dtype), center)
    spread_ = reduce(b, "ReduceMean", b.op("Mul", gap, gap), axes, False)
    new_mean = reduce(b, "ReduceMean", b.squeeze(center, *axes), [0], False)
    new_var = reduce(b, "ReduceMean", _unbiased(b, x, axes, spread_, dtype), [0], False)
    c = b.const(momentum, dtype)
    for node, value in ((mean, new_mean), (var, new_var)):
        if node in b.fqn:
            b.mutated[b.fqn[node]] = _blend(b, b(node), value, c)


def _statistics_type(x, weight):
    """The type of the weights, which autocast leaves wide.  Halves are normalised in float32 and rounded once, gradients too."""
    return computed_in(meta(x).dtype if weight is None else meta(weight).dtype)


@row("layer_norm.default", "native_layer_norm.default")
def _(b, n, x, shape, weight=None, bias=None, eps=1e-5, *_):
    _no_statistics(n)
    dtype = _statistics_type(x, weight)
    scale = b(weight, dtype) if weight is not None else b.const(np.ones(shape), dtype)
    y = b.op("LayerNormalization", b(x, dtype), scale, b(bias, dtype), axis=-len(shape), epsilon=eps)
    y = b.cast(y, dtype, meta(x).dtype)
    return [y, None, None] if isinstance(meta(n), (tuple, list)) else y


@row("rms_norm.default", "_fused_rms_norm.default")
def _(b, n, x, shape, weight=None, eps=None):
    dtype = _statistics_type(x, weight)
    scale = b(weight, dtype) if weight is not None else b.const(np.ones(shape), dtype)
    eps = torch.finfo(computed_in(meta(x).dtype)).eps if eps is None else eps
    y = b.cast(b.op("RMSNormalization", b(x, dtype), scale, axis=-len(shape), epsilon=eps), dtype, meta(x).dtype)
    return [y, None] if isinstance(meta(n), (tuple, list)) else y


@row("group_norm.default")
def _(b, n, x, groups, weight=None, bias=None, eps=1e-5, *_):
    y = _group_norm(b, x, weight, bias, dims(x)[1], groups, eps)
    return y if rank(x) > 2 else b.squeeze(y, 2)


def _group_norm(b, x, weight, bias, channels, groups, eps):
    dtype = _statistics_type(x, weight)
    scale, shift = _affine(b, x, weight, bias, channels, dtype)
    image = b(x, dtype) if rank(x) > 2 else b.unsqueeze(b(x, dtype), 2)
    return b.cast(b.op("GroupNormalization", image, scale, shift, num_groups=groups, epsilon=eps), dtype, meta(x).dtype)


@row("native_group_norm.default")
def _(b, n, x, weight, bias, batch, channels, space, groups, eps):
    _no_statistics(n)
    return [_group_norm(b, x, weight, bias, channels, groups, eps), None, None]


# -- softmax and losses ----------------------------------------------------------------------------
@row("softmax.int", "_softmax.default", "log_softmax.int", "_log_softmax.default")
def _(b, n, x, axis, *_, **__):
    kind = "LogSoftmax" if "log_softmax" in str(n.target) else "Softmax"
    if rank(x) == 0:  # of one element
        return b.const(0 if kind == "LogSoftmax" else 1, meta(n).dtype)
    return b.op(kind, b(x, meta(n).dtype), axis=norm_axis(axis, rank(x)))


@row("_safe_softmax.default")
def _(b, n, x, axis, *_, **__):
    """Where all of a row is masked out (-inf) it is 0, and so is its gradient."""
    dtype = meta(n).dtype
    return safe_softmax(b, b(x, dtype), norm_axis(axis, rank(x)), dtype) if rank(x) else b.const(1, dtype)


_REDUCTION = {0: "none", 1: "mean", 2: "sum", "none": "none", "mean": "mean", "sum": "sum"}


def _reduced(b, name, r, reduction):
    if reduction in (0, "none"):
        return name
    return reduce(b, "ReduceMean" if reduction == 1 else "ReduceSum", name, range(r), False) if r else name


def _class_loss(kind, b, x, target, weight, reduction, ignore_index):
    name, index = b(x), b(target, torch.int64)
    if rank(x) == 1:  # one sample without a batch axis
        y = b.op(kind, b.unsqueeze(name, 0), b.unsqueeze(index, 0), b(weight), reduction=_REDUCTION[reduction],
                 ignore_index=ignore_index)
        return b.squeeze(y, 0) if reduction == 0 else y
    return b.op(kind, name, index, b(weight), reduction=_REDUCTION[reduction], ignore_index=ignore_index)


@row("nll_loss_nd.default", "nll_loss.default", "nll_loss2d.default")
def _(b, n, x, target, weight=None, reduction=1, ignore_index=-100):
    return _class_loss("NegativeLogLikelihoodLoss", b, x, target, weight, reduction, ignore_index)


@row("nll_loss_forward.default", "nll_loss2d_forward.default")
def _(b, n, x, target, weight, reduction, ignore_index):
    if 1 in used_outputs(n):
        raise Decline("the total weight of nll_loss")
    return [_class_loss("NegativeLogLikelihoodLoss", b, x, target, weight, reduction, ignore_index), None]


@row("cross_entropy_loss.default")
def _(b, n, x, target, weight=None, reduction=1, ignore_index=-100, smoothing=0.0):
    axis = 0 if rank(x) == 1 else 1
    if not meta(target).dtype.is_floating_point and smoothing == 0:
        return _class_loss("SoftmaxCrossEntropyLoss", b, x, target, weight, reduction, ignore_index)
    dtype, classes = meta(x).dtype, static_dims(x, axis)[0]
    logp = b.op("LogSoftmax", b(x), axis=axis)
    if weight is not None:
        shape = [1] * rank(x)
        shape[axis] = classes
        logp = b.op("Mul", logp, b.reshape(b(weight), shape))
    if meta(target).dtype.is_floating_point:  # a distribution over classes
        goal = b(target, dtype)
        if smoothing:
            goal = b.op("Add", b.op("Mul", goal, b.const(1 - smoothing, dtype)), b.const(smoothing / classes, dtype))
        loss = b.op("Neg", reduce(b, "ReduceSum", b.op("Mul", goal, logp), [axis], False))
        if reduction != 1:
            return _reduced(b, loss, rank(x) - 1, reduction)
        axes = [a for a in range(rank(x)) if a != axis]
        return b.op("Div", _reduced(b, loss, rank(x) - 1, 2), b.count(x, axes, dtype))
    # label smoothing mixes the loss of the class with the mean over classes
    sharp = _class_loss("SoftmaxCrossEntropyLoss", b, x, target, weight, reduction, ignore_index)
    index, zero = b(target, torch.int64), b.const(0, dtype)
    ignored = b.op("Equal", index, b.const(ignore_index))
    total = b.op("Where", ignored, zero, b.op("Neg", reduce(b, "ReduceSum", logp, [axis], False)))
    if reduction:
        total = _reduced(b, total, rank(target), 2)
    if reduction == 1:
        if weight is None:
            share = b.cast(b.op("Not", ignored), torch.bool, dtype)
        else:
            safe = b.op("Where", ignored, b.const(0), index)
            share = b.op("Where", ignored, zero, b.op("Gather", b(weight), safe, axis=0))
        total = b.op("Div", total, _reduced(b, share, rank(target), 2))
    return b.op("Add", b.op("Mul", sharp, b.const(1 - smoothing, dtype)),
                b.op("Mul", total, b.const(smoothing / classes, dtype)))


def _loss(*overloads):
    """Registers f(b, x, y, const, **others) -> unreduced loss; the arguments' names are those of torch's schema."""
    def register(f):
        @row(*overloads)
        def loss(b, n, *args, **kwargs):
            kwargs.update(zip([a.name for a in n.target._schema.arguments], args))
            x, y, reduction = kwargs.pop("self"), kwargs.pop("target"), kwargs.pop("reduction", 1)
            dtype = meta(n).dtype
            r = len(torch.broadcast_shapes(meta(x).shape, meta(y).shape))
            each = f(b, b(x, dtype), b(y, dtype), lambda v: b.const(v, dtype), **kwargs)
            return _reduced(b, each, r, reduction)
        return loss
    return register


@_loss("mse_loss.default")
def _(b, x, y, c):
    gap = b.op("Sub", x, y)
    return b.op("Mul", gap, gap)


@_loss("l1_loss.default")
def _(b, x, y, c):
    return b.op("Abs", b.op("Sub", x, y))


@_loss("huber_loss.default")
def _(b, x, y, c, delta=1.0):
    gap = b.op("Abs", b.op("Sub", x, y))
    near = b.op("Mul", b.op("Mul", gap, gap), c(0.5))
    far = b.op("Mul", b.op("Sub", gap, c(0.5 * delta)), c(delta))
    return b.op("Where", b.op("LessOrEqual", gap, c(delta)), near, far)


@_loss("smooth_l1_loss.default")
def _(b, x, y, c, beta=1.0):
    gap = b.op("Abs", b.op("Sub", x, y))
    if beta == 0:
        return gap
    near = b.op("Mul", b.op("Mul", gap, gap), c(0.5 / beta))
    return b.op("Where", b.op("Less", gap, c(beta)), near, b.op("Sub", gap, c(0.5 * beta)))


@_loss("kl_div.default")
def _(b, x, y, c, log_target=False):
    if log_target:
        return b.op("Mul", b.op("Exp", y), b.op("Sub", y, x))
    # 0 log 0 counts as 0
    log = b.op("Log", b.op("Where", b.op("Equal", y, c(0)), c(1), y))
    return b.op("Mul", y, b.op("Sub", log, x))


@_loss("soft_margin_loss.default")
def _(b, x, y, c):
    return b.op("Softplus", b.op("Neg", b.op("Mul", x, y)))


@_loss("hinge_embedding_loss.default")
def _(b, x, y, c, margin=1.0):
    far = b.op("Clip", b.op("Sub", c(margin), x), c(0))
    return b.op("Add", b.op("Where", b.op("Equal", y, c(1)), c(0), far),
                b.op("Where", b.op("Equal", y, c(-1)), c(0), x))


@row("margin_ranking_loss.default")
def _(b, n, x, y, target, margin=0.0, reduction=1):
    dtype = meta(n).dtype
    gap = b.op("Mul", b(target, dtype), b.op("Sub", b(y, dtype), b(x, dtype)))
    loss = b.op("Clip", b.op("Add", gap, b.const(margin, dtype)), b.const(0, dtype))
    return _reduced(b, loss, len(torch.broadcast_shapes(*[meta(t).shape for t in (x, y, target)])), reduction)


@row("binary_cross_entropy.default")
def _(b, n, x, y, weight=None, reduction=1):
    dtype = meta(n).dtype
    loss = b.op("BinaryCrossEntropy", b(x, dtype), b(y, dtype), domain="dcml")
    loss = loss if weight is None else b.op("Mul", loss, b(weight, dtype))
    return _reduced(b, loss, rank(x), reduction)


@row("binary_cross_entropy_with_logits.default")
def _(b, n, x, y, weight=None, pos_weight=None, reduction=1):
    dtype = meta(n).dtype
    x_, y_, one = b(x, dtype), b(y, dtype), b.const(1, dtype)
    # -log sigmoid(x) = softplus(-x)
    if pos_weight is None:
        loss = b.op("Sub", b.op("Softplus", x_), b.op("Mul", x_, y_))
    else:
        share = b.op("Add", one, b.op("Mul", b.op("Sub", b(pos_weight, dtype), one), y_))
        loss = b.op("Add", b.op("Mul", b.op("Sub", one, y_), x_),
                    b.op("Mul", share, b.op("Softplus", b.op("Neg", x_))))
    loss = loss if weight is None else b.op("Mul", loss, b(weight, dtype))
    r = max(rank(x), rank(weight) if weight is not None else 0)
    return _reduced(b, loss, r, reduction)


# -- resizing --------------------------------------------------------------------------------------
def _factors(args, extents, result):
    """The factors that a call gives, as a list or one by one at its end, where None leaves one to the extents; or None."""
    if args and isinstance(args[-1], (list, tuple)):
        return args[-1]
    last = args[-len(extents):]
    if len(last) < len(extents) or not any(isinstance(f, float) for f in last):
        return None
    if None in last and not all(isinstance(e, int) for e in [*extents, *result]):
        raise Decline(f"factors {last} for symbolic extents")
    return [r / e if f is None else f for f, e, r in zip(last, extents, result)]


def _fitting(factor, extent, result):
    """The float32 nearest to a factor by which an extent becomes the result, rounded down; None where it does not."""
    nearest = np.float32(factor)
    near = (nearest, *[np.nextafter(nearest, np.float32(end)) for end in (np.inf, 0)])
    return next((float(f) for f in near if math.floor(float(f) * extent) == result), None)


def _by_weights(b, n, x, mode, align, axes):
    """An antialiased image as products with constants, the axis of rows and that of columns by itself."""
    if not all(isinstance(e, int) for extent, result, _ in axes for e in (extent, result)):
        raise Decline("antialias by these factors, or with align_corners, for symbolic extents")
    rows, columns = (b.const(_weights(mode, align, *axis), meta(n).dtype) for axis in axes)
    return b.op("MatMul", b.op("MatMul", rows, b(x)), b.transpose(columns, [1, 0]))


def _weights(mode, align, extent, result, factor):
    """[result, extent]: the kernel around each place, stretched where there are less of them, as torch cuts it off."""
    step = (extent - 1) / max(result - 1, 1) if align else 1 / factor if factor else extent / result
    wide = max(step, 1.0)
    reach = (1 if mode == "linear" else 2) * wide
    center = step * (np.arange(result)[:, None] + 0.5)
    at = np.arange(extent)
    far = np.abs(at - center + 0.5) / wide
    if mode == "linear":
        weights = np.clip(1 - far, 0, None)
    else:  # with a = -0.5
        weights = np.where(far < 1, (1.5 * far - 2.5) * far * far + 1, np.where(far < 2, ((-0.5 * far + 2.5) * far - 4) * far + 2, 0))
    inside = (at >= np.floor(np.maximum(center - reach + 0.5, 0))) & (at < np.floor(center + reach + 0.5))
    weights = np.where(inside, weights, 0)
    return weights / weights.sum(axis=1, keepdims=True)


def _resize(k, mode, coordinates, **attrs):
    def resize(b, n, x, output, *args):
        align = args[0] if coordinates is None else False
        extents, result = dims(x)[rank(x) - k:], dims(n)[rank(x) - k:]
        factors = _factors(args, extents, result)
        double, given = meta(n).dtype == torch.float64, factors is not None
        known = all(isinstance(e, int) for e in [*extents, *result])
        if "antialias" in attrs and (align or given and (double or not known)):  # ONNX has no such corners, and factors in float32
            return _by_weights(b, n, x, mode, align, [*zip(extents, result, factors or [None] * k)])
        if known and not given:
            factors = [r / e for r, e in zip(result, extents)]
        how = coordinates or ("align_corners" if align else "half_pixel")
        if known:
            fitting = [_fitting(f, e, r) for f, e, r in zip(factors, extents, result)]
            exact = None not in fitting
        else:  # few bits: the product with an extent is exact
            exact, fitting = given and all(f * 256 == int(f * 256) for f in factors), factors
        if given and not exact and "antialias" in attrs:
            return _by_weights(b, n, x, mode, align, [*zip(extents, result, factors)])
        if given and not exact and not align:
            raise Decline(f"factors {factors} for extents {extents} of which {result} shall be made")
        if exact and not align and (given or not double):
            if double and any(float(np.float32(f)) != f for f in factors):
                raise Decline("a factor that is no float32")  # torch decomposes it
            scales = b.const(np.array([1.0, 1.0, *fitting]), torch.float32)
            return b.op("Resize", b(x), None, scales, mode=mode, coordinate_transformation_mode=how, **attrs)
        sizes = b.ints([*dims(x)[:rank(x) - k], *result])
        return b.op("Resize", b(x), None, None, sizes, mode=mode, coordinate_transformation_mode=how, **attrs)
    return resize


def _nearest(k, shift, how):
    """By whole factors an operator; else positions as torch computes them, in float32."""
    by_operator = _resize(k, "nearest", *how[:1], nearest_mode=how[1])

    def nearest(b, n, x, output, *args):
        pairs = list(zip(dims(x)[rank(x) - k:], dims(n)[rank(x) - k:]))
        factors = _factors(args, *zip(*pairs))
        known = all(isinstance(e, int) for pair in pairs for e in pair)
        if all(f == int(f) for f in factors) if factors else known and all(e and r % e == 0 for e, r in pairs):
            return by_operator(b, n, x, output, *args)
        name = b(x)
        for axis, (have, want) in enumerate(pairs, rank(x) - k):
            step = b.const(1 / factors[axis - rank(x)], torch.float32) if factors else b.op(
                "Div", *[b.cast(b(e, torch.int64), torch.int64, torch.float32) for e in (have, want)])
            places = b.cast(b.op("Range", b.const(0), b(want, torch.int64), b.const(1)), torch.int64, torch.float32)
            places = b.op("Add", places, b.const(shift, torch.float32)) if shift else places
            places = b.cast(b.op("Floor", b.op("Mul", places, step)), torch.float32, torch.int64)
            name = b.op("Gather", name, b.op("Min", places, b.op("Sub", b(have, torch.int64), b.const(1))), axis=axis)
        return name
    return nearest


for _k, _name in ((1, "linear1d"), (2, "bilinear2d"), (3, "trilinear3d")):
    TABLE[f"aten.upsample_{_name}.vec"] = TABLE[f"aten.upsample_{_name}.default"] = _resize(_k, "linear", None)
    for _overload in ("vec", "default"):
        TABLE[f"aten.upsample_nearest{_k}d.{_overload}"] = _nearest(_k, 0, ("asymmetric", "floor"))
        TABLE[f"aten._upsample_nearest_exact{_k}d.{_overload}"] = _nearest(_k, 0.5, ("half_pixel", "round_prefer_ceil"))
TABLE["aten.upsample_bicubic2d.vec"] = _resize(2, "cubic", None, cubic_coeff_a=-0.75)
for _overload in ("vec", "default"):  # torch leaves out what lies beyond the border
    TABLE[f"aten._upsample_bilinear2d_aa.{_overload}"] = _resize(2, "linear", None, antialias=1, exclude_outside=1)
    TABLE[f"aten._upsample_bicubic2d_aa.{_overload}"] = _resize(2, "cubic", None, antialias=1, exclude_outside=1,
                                                                cubic_coeff_a=-0.5)


@row("grid_sampler.default", "grid_sampler_2d.default", "grid_sampler_3d.default")
def _(b, n, x, grid, mode, padding, align):
    return b.op("GridSample", b(x), b(grid), mode=("linear", "nearest", "cubic")[mode],
                padding_mode=("zeros", "border", "reflection")[padding], align_corners=int(align))


@row("cosine_similarity.default")
def _(b, n, x, y, axis=1, eps=1e-8):
    dtype, axes = computed_in(meta(n).dtype), norm_axes(axis, max(rank(x), rank(y)))
    product = b.op("Mul", b(x, dtype), b(y, dtype))
    common = None if dims(x) == dims(y) else b.op("Shape", product)
    whole = [b(t, dtype) if common is None else b.op("Expand", b(t, dtype), common) for t in (x, y)]
    dot = reduce(b, "ReduceSum", product, axes, False)
    sizes = [b.op("Clip", reduce(b, "ReduceL2", t, axes, False), b.const(eps, dtype)) for t in whole]
    return b.cast(b.op("Div", dot, b.op("Mul", *sizes)), dtype, meta(n).dtype)

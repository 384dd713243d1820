"""Backward overloads, which torch.func writes into a trace, said in other overloads where torch has no such decomposition.

The one idea: what is linear in each axis by itself, as pooling by means and interpolation are, is there a matrix, which the operator
itself tells of the unit matrix; its gradient is a product with that.
Must not know: graphs or operators.
"""
import math

import torch

from .decomposed import of

aten = torch.ops.aten


def _by_axis(grad, extents, matrix):
    """The gradient of an operator on the last axes, of these extents before it.  matrix(k, unit): what it makes of the rows of a unit
    matrix, float[1, extent, extent], along the k-th of them."""
    axes = range(-len(extents), 0)
    if not all(isinstance(extent, int) for extent in [*extents, *grad.shape[-len(extents):]]):
        return NotImplemented
    for k, (axis, extent) in enumerate(zip(axes, extents)):
        spread = matrix(k, torch.eye(extent, dtype=grad.dtype).unsqueeze(0))[0]
        grad = (grad.movedim(axis, -1) @ spread.mT).movedim(-1, axis)
    return grad


def _each(value, k, default=None):
    """Of an argument for all axes, what holds for one."""
    value = [] if value is None else [value] if isinstance(value, (int, float)) else list(value)
    return value[k if len(value) > 1 else 0] if value else default


@of("avg_pool2d_backward.default", "avg_pool3d_backward.default")
def _avg_pool(grad, x, size, stride, padding, ceil_mode, count_include_pad, divisor_override):
    n = len(size) if len(size) > 1 else x.dim() - 2

    def matrix(k, unit):
        window = _each(size, k)
        return aten.avg_pool1d(unit, [window], [_each(stride, k, window)], [_each(padding, k)], ceil_mode,
                               count_include_pad or divisor_override is not None)
    made = _by_axis(grad, x.shape[-n:], matrix)
    if divisor_override is None or made is NotImplemented:
        return made
    return made * (math.prod(_each(size, k) for k in range(n)) / divisor_override)


def _adaptive(n):
    def backward(grad, x):
        return _by_axis(grad, x.shape[-n:], lambda k, unit: aten.adaptive_avg_pool1d(unit, [grad.shape[k - n]]))
    return backward


def _nearest(name, n):
    def backward(grad, output_size, input_size, *scales):
        return _by_axis(grad, input_size[-n:], lambda k, unit: getattr(aten, name)(unit, [output_size[k]], scales[k] if scales else None))
    return backward


def _linear(n):
    def backward(grad, output_size, input_size, align_corners, *scales):
        return _by_axis(grad, input_size[-n:], lambda k, unit: aten.upsample_linear1d(
            unit, [output_size[k]], align_corners, scales[k] if scales else None))
    return backward


def _of_two_axes(overload):
    """Overloads that torch has for images alone: of a column."""
    def backward(grad, output_size, input_size, align_corners, *scales):
        return _by_axis(grad, input_size[-2:], lambda k, unit: overload(
            unit.unsqueeze(-1), [output_size[k], 1], align_corners, scales[k] if scales else None, None).squeeze(-1))
    return backward


for _name, _function in {
        "_adaptive_avg_pool2d_backward": _adaptive(2), "_adaptive_avg_pool3d_backward": _adaptive(3),
        **{f"upsample_nearest{n}d_backward": _nearest("upsample_nearest1d", n) for n in (1, 2, 3)},
        **{f"_upsample_nearest_exact{n}d_backward": _nearest("_upsample_nearest_exact1d", n) for n in (1, 2, 3)},
        "upsample_linear1d_backward": _linear(1), "upsample_bilinear2d_backward": _linear(2), "upsample_trilinear3d_backward": _linear(3),
        "upsample_bicubic2d_backward": _of_two_axes(aten.upsample_bicubic2d),
        "_upsample_bilinear2d_aa_backward": _of_two_axes(aten._upsample_bilinear2d_aa),
        "_upsample_bicubic2d_aa_backward": _of_two_axes(aten._upsample_bicubic2d_aa)}.items():
    of(_name + ".default")(_function)


def _padded(n):
    def backward(grad, x, padding):
        return _by_axis(grad, x.shape[-n:], lambda k, unit: aten.replication_pad1d(unit, padding[2 * (n - 1 - k):][:2]))
    return backward


for _n in (1, 2, 3):
    of(f"replication_pad{_n}d_backward.default")(_padded(_n))


@of("max_pool3d_with_indices_backward.default", "adaptive_max_pool2d_backward.default", "adaptive_max_pool3d_backward.default")
def _largest(grad, x, *options):
    """options: of the window, and the places of the largest elements among those of an image."""
    places = options[-1]
    n = 2 if len(options) == 1 and x.dim() - 2 == 2 else 3
    flat = torch.zeros_like(x).flatten(-n)
    return flat.scatter_add(-1, places.flatten(-n), grad.flatten(-n)).view_as(x)


@of("hardshrink_backward.default", "softshrink_backward.default")
def _hardshrink(grad, x, lambd):
    return torch.where((x >= -lambd) & (x <= lambd), 0, grad)


@of("convolution_backward.default")
def _convolution(grad, x, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, output_mask):
    """Of a convolution, the gradient of its input is the transposed one, and that of its weight a convolution of both with strides
    and dilations exchanged; a transposed convolution is the same with input and cotangent exchanged."""
    n = weight.dim() - 2
    extents = [*x.shape[2:], *grad.shape[2:], *weight.shape]
    if not all(isinstance(extent, int) for extent in extents):
        return NotImplemented
    stride, padding, dilation = ([_each(value, k) for k in range(n)] for value in (stride, padding, dilation))
    wide, narrow = (grad, x) if transposed else (x, grad)  # what a window moves over, and what it gives there
    given = [None, None, None]
    if output_mask[0] and transposed:
        made = aten.convolution(grad, weight, None, stride, padding, dilation, False, [0] * n, groups)
        given[0] = made[(..., *map(slice, x.shape[2:]))]
    elif output_mask[0]:
        rest = [x.shape[2 + k] - ((grad.shape[2 + k] - 1) * stride[k] - 2 * padding[k] + dilation[k] * (weight.shape[2 + k] - 1) + 1)
                for k in range(n)]
        given[0] = _with_rest(grad, weight, stride, padding, dilation, rest, groups)
    if output_mask[1]:
        moved = wide.unflatten(1, (groups, weight.shape[1])).permute(2, 1, 0, *range(3, n + 3)).flatten(1, 2)
        filters = narrow.transpose(0, 1)  # of a group, the images are the channels
        made = aten.convolution(moved, filters, None, dilation, padding, stride, False, [0] * n, groups)
        given[1] = made.transpose(0, 1)[(..., *map(slice, weight.shape[2:]))]
    if output_mask[2]:
        given[2] = grad.sum([0, *range(2, n + 2)])
    return tuple(given)


def _with_rest(grad, weight, stride, padding, dilation, rest, groups):
    """A transposed convolution, whose result has so many elements more at each end, which no window of a convolution reached."""
    n = len(rest)
    if all(0 <= r < max(s, d) for r, s, d in zip(rest, stride, dilation)):
        return aten.convolution(grad, weight, None, stride, padding, dilation, True, rest, groups)
    made = aten.convolution(grad, weight, None, stride, padding, dilation, True, [0] * n, groups)
    return aten.constant_pad_nd(made, [number for r in reversed(rest) for number in (0, r)])


@of("_scaled_dot_product_flash_attention_for_cpu_backward.default")
def _attention(grad, q, k, v, out, logsumexp, dropout_p, is_causal, *, attn_mask=None, scale=None):
    if dropout_p:
        return NotImplemented
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = q @ k.mT * scale
    if is_causal:
        rows, columns = torch.arange(q.shape[-2]).unsqueeze(-1), torch.arange(k.shape[-2])
        scores = torch.where(columns > rows, -math.inf, scores)
    if attn_mask is not None:
        scores = scores + attn_mask
    weights = scores.softmax(-1)
    of_weights = grad @ v.mT
    of_scores = weights * (of_weights - (of_weights * weights).sum(-1, keepdim=True)) * scale
    return of_scores @ k, of_scores.mT @ q, weights.mT @ grad

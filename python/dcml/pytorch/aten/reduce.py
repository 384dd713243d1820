"""Rows of reductions, scans, sorting and matrix products."""
import string

import numpy as np
import torch

from ... import _core
from .builder import (TABLE, Decline, computed_in, dims, meta, norm_axes, norm_axis, rank, row, static_dims,
                      used_outputs)


def reduce(b, kind, name, axes, keepdim):
    return b.op(kind, name, b.const(list(axes)) if len(axes) else None, keepdims=int(keepdim))


def _reduction(kind):
    def reduction(b, n, x, axes=None, keepdim=False, **_):
        dtype = meta(n).dtype
        if rank(x) == 0:
            return b(x, dtype)
        return reduce(b, kind, b(x, dtype), norm_axes(axes, rank(x)), keepdim)
    return reduction


for _overload, _kind in (("sum.default", "ReduceSum"), ("sum.dim_IntList", "ReduceSum"), ("mean.default", "ReduceMean"),
                         ("mean.dim", "ReduceMean"), ("amax.default", "ReduceMax"), ("amin.default", "ReduceMin"),
                         ("prod.default", "ReduceProd"), ("prod.dim_int", "ReduceProd"),
                         ("max.default", "ReduceMax"), ("min.default", "ReduceMin"),
                         ("logsumexp.default", "ReduceLogSumExp"), ("special_logsumexp.default", "ReduceLogSumExp")):
    TABLE["aten." + _overload] = _reduction(_kind)


def _ordinary(dtype):  # max and min are not defined for booleans before opset 20 in all runtimes
    return torch.uint8 if dtype == torch.bool else dtype


@row("any.default", "any.dim", "any.dims", "_is_any_true.default")
def _(b, n, x, axes=None, keepdim=False):
    flags = b.cast(b(x, torch.bool), torch.bool, torch.int64)  # a sum, since the greatest of none is undefined
    count = reduce(b, "ReduceSum", flags, norm_axes(axes, rank(x)), keepdim)
    return b.op("Greater", count, b.const(0))


@row("all.default", "all.dim", "all.dims", "_is_all_true.default")
def _(b, n, x, axes=None, keepdim=False):
    flags = b.cast(b(x, torch.bool), torch.bool, torch.int32)
    return b.cast(reduce(b, "ReduceMin", flags, norm_axes(axes, rank(x)), keepdim), torch.int32, torch.bool)


def _extreme(kind, arg_kind, own_kind):
    def extreme(b, n, x, axis, keepdim=False):
        if rank(x) == 0:
            return [b(x), b.const(0)]
        axis, used = norm_axis(axis, rank(x)), used_outputs(n)
        value = index = None
        if 1 in used:
            index = b.op(arg_kind, b(x, _ordinary(meta(x).dtype)), axis=axis, keepdims=1)
            value = b.op("GatherElements", b(x), index, axis=axis) if 0 in used else None
            if not keepdim:
                index = b.squeeze(index, axis)
                value = value and b.squeeze(value, axis)
        elif meta(x).dtype.is_floating_point:
            value = b.op(own_kind, b(x), domain="dcml", axis=axis, keepdims=int(keepdim))
        else:
            value = reduce(b, kind, b(x), [axis], keepdim)
        return [value, index]
    return extreme


TABLE["aten.max.dim"] = _extreme("ReduceMax", "ArgMax", "Greatest")
TABLE["aten.min.dim"] = _extreme("ReduceMin", "ArgMin", "Least")


@row("argmax.default", "argmin.default")
def _(b, n, x, axis=None, keepdim=False):
    kind, name = "ArgMax" if "argmax" in str(n.target) else "ArgMin", b(x)
    if meta(x).dtype == torch.bool:
        raise _core.UnsupportedOpError(f"{kind} of booleans, which torch does not compute either")
    if axis is None:
        flat = b.op(kind, b.reshape(name, [-1]), axis=0, keepdims=0)
        return b.reshape(flat, [1] * rank(x)) if keepdim else flat
    if rank(x) == 0:
        return b.const(0)
    return b.op(kind, name, axis=norm_axis(axis, rank(x)), keepdims=int(keepdim))


def _moments(b, x, axes, correction, dtype):
    """Mean and variance over axes with extents kept; ``correction`` is subtracted from the count."""
    mean = reduce(b, "ReduceMean", b(x, dtype), axes, True)
    gap = b.op("Sub", b(x, dtype), mean)
    square = b.op("Mul", gap, gap)
    if not correction:
        return mean, reduce(b, "ReduceMean", square, axes, True)
    count = b.op("Sub", b.count(x, axes, dtype), b.const(correction, dtype))
    return mean, b.op("Div", reduce(b, "ReduceSum", square, axes, True), b.op("Max", count, b.const(0, dtype)))


@row("var.correction", "std.correction", "var.dim", "std.dim", "var.default", "std.default", "var_mean.correction",
     "std_mean.correction", "var_mean.dim", "std_mean.dim", "var_mean.default", "std_mean.default")
def _(b, n, x, axes=None, unbiased=None, keepdim=False, correction=1):
    target = str(n.target)
    if ".default" in target:  # var.default(x, unbiased)
        axes, unbiased = None, axes if axes is not None else True
    correction = int(unbiased) if unbiased is not None else 1 if correction is None else correction
    axes = norm_axes(axes, rank(x))
    dtype = (meta(n)[0] if "mean" in target else meta(n)).dtype
    mean, y = _moments(b, x, axes, correction, computed_in(dtype))
    y = b.op("Root", y, domain="dcml") if "std" in target else y
    mean, y = (b.cast(value, computed_in(dtype), dtype) for value in (mean, y))
    if not keepdim and axes:
        y, mean = b.squeeze(y, *axes), b.squeeze(mean, *axes) if "mean" in target else None
    return [y, mean] if "mean" in target else y


@row("linalg_vector_norm.default", "norm.ScalarOpt_dim", "norm.Scalar", "norm.ScalarOpt_dim_dtype",
     "frobenius_norm.dim")
def _(b, n, x, order=2, axes=None, keepdim=False, dtype=None):
    if "frobenius" in str(n.target):
        order, axes, keepdim = 2, order, bool(axes)
    dtype, order = meta(n).dtype, 2 if order is None else order
    return _norm(b, b(x, dtype), order, norm_axes(axes, rank(x)), keepdim, dtype) if rank(x) or order == 0 else b.op(
        "Abs", b(x, dtype))


def _norm(b, name, order, axes, keepdim, dtype):
    if order in (1, 2):
        return reduce(b, f"ReduceL{int(order)}", name, axes, keepdim)
    if order in (float("inf"), float("-inf")):
        return reduce(b, "ReduceMax" if order > 0 else "ReduceMin", b.op("Abs", name), axes, keepdim)
    if order == 0:
        flags = b.cast(b.op("Not", b.op("Equal", name, b.const(0, dtype))), torch.bool, dtype)
        return reduce(b, "ReduceSum", flags, axes, keepdim)
    own, dtype = dtype, computed_in(dtype)
    name = b.cast(name, own, dtype)
    size, zero, one = b.op("Abs", name), b.const(0, dtype), b.const(1, dtype)
    of_zero = zero if order > 0 else b.const(np.inf, dtype)
    if order < 1:  # the power of a zero has no slope, and counts as one of 0
        is_zero = b.op("Equal", name, zero)
        powers = b.op("Where", is_zero, of_zero, b.op("Pow", b.op("Where", is_zero, one, size), b.const(order, dtype)))
    else:
        powers = b.op("Pow", size, b.const(order, dtype))
    total = reduce(b, "ReduceSum", powers, axes, keepdim)
    none = b.op("Equal", total, of_zero)  # a norm of 0, whose gradient is 0
    some = b.op("Where", none, one, total)
    return b.cast(b.op("Where", none, zero, b.op("Pow", some, b.const(1 / order, dtype))), dtype, own)


@row("cumsum.default", "cumprod.default")
def _(b, n, x, axis, **_):
    kind = "CumSum" if "cumsum" in str(n.target) else "CumProd"
    return b.op(kind, b(x, meta(n).dtype), b.const(norm_axis(axis, rank(x)))) if rank(x) else b(x, meta(n).dtype)


@row("count_nonzero.default", "count_nonzero.dim_IntList")
def _(b, n, x, axes=None):
    flags = b.cast(b(x, torch.bool), torch.bool, torch.int64)
    return reduce(b, "ReduceSum", flags, norm_axes(axes, rank(x)), False)


@row("topk.default")
def _(b, n, x, k, axis=-1, largest=True, ordered=True):
    if rank(x) == 0:
        return [b(x), b.const(0)]
    return b.op("TopK", b(x), b.ints([k]), outs=2, axis=norm_axis(axis, rank(x)), largest=int(largest),
                sorted=int(ordered))


@row("sort.default", "sort.stable", "argsort.default", "argsort.stable")
def _(b, n, x, axis=-1, descending=False, stable=None, dim=None):
    if rank(x) == 0:
        return b.const(0) if "argsort" in str(n.target) else [b(x), b.const(0)]
    axis = norm_axis(axis if dim is None else dim, rank(x))
    dtype = meta(x).dtype
    values, order = b.op("TopK", b(x, _ordinary(dtype)), b.ints([dims(x)[axis]]), outs=2, axis=axis, largest=int(descending),
                         sorted=1)
    return order if "argsort" in str(n.target) else [b.cast(values, _ordinary(dtype), dtype), order]


# -- matrix products -------------------------------------------------------------------------------
@row("linear.default")
def _(b, n, x, weight, bias=None):
    if rank(x) == 2 and rank(weight) == 2:
        return b.op("Gemm", b(x), b(weight), b(bias), transB=1)
    y = b.op("MatMul", b(x), b.transpose(b(weight), [1, 0] if rank(weight) == 2 else [0]))
    return y if bias is None else b.op("Add", y, b(bias))


@row("addmm.default")
def _(b, n, c, x, y, beta=1, alpha=1):
    return b.op("Gemm", b(x), b(y), b(c) if beta else None, alpha=float(alpha), beta=float(beta))


@row("baddbmm.default", "addbmm.default", "addmv.default", "addr.default")
def _(b, n, c, x, y, beta=1, alpha=1):
    dtype, target = meta(n).dtype, str(n.target)
    if "addr" in target:
        product = b.op("Mul", b.unsqueeze(b(x, dtype), 1), b(y, dtype))
    else:
        product = b.op("MatMul", b(x, dtype), b(y, dtype))
    if "addbmm" in target and "baddbmm" not in target:
        product = reduce(b, "ReduceSum", product, [0], False)
    product = product if alpha == 1 else b.op("Mul", product, b.const(alpha, dtype))
    if beta == 0:
        return product
    return b.op("Add", product, b(c) if beta == 1 else b.op("Mul", b(c), b.const(beta, dtype)))


@row("outer.default", "ger.default")
def _(b, n, x, y):
    dtype = meta(n).dtype
    return b.op("Mul", b.unsqueeze(b(x, dtype), 1), b(y, dtype))


@row("einsum.default")
def _(b, n, equation, tensors, **_):
    return b.op("Einsum", *[b(t, meta(n).dtype) for t in tensors], equation=equation.replace(" ", ""))


@row("tensordot.default")
def _(b, n, x, y, axes_x, axes_y):
    letters = string.ascii_letters
    if rank(x) + rank(y) > len(letters):
        raise Decline(f"{rank(x)} and {rank(y)} dimensions, together more than there are letters")
    left, right = list(letters[:rank(x)]), list(letters[rank(x):rank(x) + rank(y)])
    for i, j in zip(axes_x, axes_y):
        right[j] = left[i]
    kept = [c for i, c in enumerate(left) if i not in norm_axes(axes_x, rank(x))] + [
        c for i, c in enumerate(right) if i not in norm_axes(axes_y, rank(y))]
    return b.op("Einsum", b(x), b(y), equation=f"{''.join(left)},{''.join(right)}->{''.join(kept)}")


@row("bilinear.default")
def _(b, n, x, y, weight, bias=None):
    z = b.op("Einsum", b(x), b(weight), b(y), equation="...i,oij,...j->...o")
    return z if bias is None else b.op("Add", z, b(bias))


@row("cdist.default", "_cdist_forward.default")
def _(b, n, x, y, p=2.0, mode=None):
    if p == 2 and dims(x)[:-2] == dims(y)[:-2] and meta(n).dtype in (torch.float32, torch.float64):
        return b.op("Distance", b(x), b(y), domain="dcml")
    gap = b.op("Sub", b.unsqueeze(b(x), rank(x) - 1), b.unsqueeze(b(y), rank(y) - 2))
    return _norm(b, gap, p, [rank(n)], False, meta(n).dtype)


def safe_softmax(b, scores, axis, dtype):
    """Softmax that gives 0 where all is masked by -inf, and passes no gradient there."""
    zero = b.const(0, dtype)
    dead = b.op("Equal", reduce(b, "ReduceMax", scores, [axis], True), b.const(float("-inf"), dtype))
    return b.op("Where", dead, zero, b.op("Softmax", b.op("Where", dead, zero, scores), axis=axis))


# -- attention -------------------------------------------------------------------------------------
@row("scaled_dot_product_attention.default")
def _(b, n, q, k, v, mask=None, dropout=0.0, causal=False, scale=None, enable_gqa=False):
    """Of halves in float32, as eager keeps the scores: rounded to eight bits, large ones would choose other keys.  Not on a GPU,
    whose fast products are of halves."""
    own = meta(n).dtype
    dtype = own if meta(n).device.type == "cuda" else computed_in(own)
    scale = dims(q)[-1] ** -0.5 if scale is None else scale
    key, value = b(k, dtype), b(v, dtype)
    if enable_gqa and dims(q)[-3] != dims(k)[-3]:
        key, value = _repeat_heads(b, q, k, key), _repeat_heads(b, q, v, value)
    perm = list(range(rank(k)))
    perm[-1], perm[-2] = perm[-2], perm[-1]
    scores = b.op("MatMul", b.op("Mul", b(q, dtype), b.const(scale, dtype)), b.transpose(key, perm))
    if causal:
        scores = b.op("Where", _causal_mask(b, q, k), scores, b.const(float("-inf"), dtype))
    if mask is not None:
        if meta(mask).dtype == torch.bool:
            scores = b.op("Where", b(mask), scores, b.const(float("-inf"), dtype))
        else:
            scores = b.op("Add", scores, b(mask, dtype))
    weights = b.op("Softmax", scores, axis=-1) if mask is None else safe_softmax(b, scores, -1, dtype)
    if dropout > 0:
        keep = b.op("GreaterOrEqual", b.uniform(b.op("Shape", weights)), b.const(dropout, torch.float32))
        weights = b.op("Where", keep, b.op("Mul", weights, b.const(1 / (1 - dropout), dtype)), b.const(0, dtype))
    return b.cast(b.op("MatMul", weights, value), dtype, own)


def _causal_mask(b, q, k):
    rows, columns = dims(q)[-2], dims(k)[-2]
    if isinstance(rows, int) and isinstance(columns, int):
        return b.const(np.tril(np.ones((rows, columns), bool)), torch.bool)
    steps = [b.op("Range", b.const(0), b.size(t, -2), b.const(1)) for t in (q, k)]
    return b.op("GreaterOrEqual", b.unsqueeze(steps[0], 1), steps[1])


def _repeat_heads(b, q, k, name):
    """Each key head serves a group of consecutive query heads."""
    axis = rank(k) - 3
    heads, length, width = static_dims(k, axis)
    group = dims(q)[-3] // heads
    name = b.op("Expand", b.unsqueeze(name, axis + 1), b.const([1] * (axis + 1) + [group, 1, 1]))
    return b.op("Reshape", name, b.const([0] * axis + [heads * group, length, width]))

"""Operators of ONNX Runtime (domain com.microsoft, and SimplifiedLayerNormalization) against their definitions in NumPy; against
ONNX Runtime itself where it is installed."""
import functools
import importlib.util
import zlib

import numpy as np
import onnx
import pytest
import torch
from onnx import helper

import dcml
from dcml.onnx import ONNXModel

erf = np.vectorize(__import__("math").erf, otypes=[np.float64])
CASES = {}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def gelu(x):
    return 0.5 * x * (1 + erf(x / np.sqrt(2)))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3)))


def normalised(x, gamma, beta=0, epsilon=1e-12):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + epsilon) * gamma + beta


def scaled(x, gamma, epsilon=1e-12):
    return x / np.sqrt((x ** 2).mean(-1, keepdims=True) + epsilon) * gamma


def case(name, *inputs, outputs=1, here=True, tolerance=1e-5, **attributes):
    """A line of the table: the decorated function computes the outputs in float64 from inputs and attributes.  here: whether ONNX
    Runtime has a kernel for processors that computes this exactly: some sums of products of u8 and i8 saturate in 16 bits there."""
    def add(function):
        CASES.setdefault(f"{name}-{len(CASES)}", []).append((name, inputs, outputs, here, tolerance, attributes, function))
        return function
    return add


def array(given, rng):
    """A tuple of extents is normal numbers, ("u8", ...) and ("i8", ...) are integers."""
    if isinstance(given, tuple):
        kinds = {"u8": (0, 256, np.uint8), "i8": (-128, 128, np.int8)}
        if given and given[0] in kinds:
            low, high, kind = kinds[given[0]]
            return rng.integers(low, high, given[1:]).astype(kind)
        return rng.standard_normal(given).astype(np.float32)
    return given


F = np.float32
X = (2, 5, 8)


@case("Gelu", X)
def _(x):
    return gelu(x)


@case("QuickGelu", X)
@case("QuickGelu", X, alpha=0.5)
def _(x, alpha=1.702):
    return x * sigmoid(alpha * x)


@case("FastGelu", X)
@case("FastGelu", X, (8,))
def _(x, bias=0):
    return gelu_tanh(x + bias)


@case("BiasGelu", X, (8,))
def _(x, bias):
    return gelu(x + bias)


@case("BiasSplitGelu", X, (8,), here=False)
def _(x, bias):
    left, right = np.split(x + bias, 2, -1)
    return left * gelu(right)


@case("BiasAdd", X, (8,), X, here=False)
def _(x, bias, skip):
    return x + bias + skip


@case("SkipLayerNormalization", X, X, (8,), (8,), (8,))
@case("SkipLayerNormalization", X, (5, 8), (8,), epsilon=1e-2)
def _(x, skip, gamma, beta=0, bias=0, epsilon=1e-12):
    return normalised(x + skip + bias, gamma, beta, epsilon)


@case("SkipSimplifiedLayerNormalization", X, X, (8,), (8,))
def _(x, skip, gamma, bias):
    return scaled(x + skip + bias, gamma)


@case("SimplifiedLayerNormalization", X, (8,))
def _(x, gamma):
    return scaled(x, gamma, 1e-5)


IDS, PLACES = np.int32([[3, 1, 0, 2, 4], [4, 4, 1, 0, 2]]), np.int32([[0, 1, 0, 1, 1], [0, 0, 0, 1, 1]])
KEPT = np.int32([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])


@case("EmbedLayerNormalization", IDS, PLACES, (5, 8), (6, 8), (2, 8), (8,), (8,), KEPT, outputs=2)
@case("EmbedLayerNormalization", IDS, None, (5, 8), (6, 8), None, (8,), (8,), outputs=2)
def _(ids, segments, words, positions, of_segments, gamma, beta, mask=None):
    total = words[ids] + positions[:5] + (0 if segments is None else of_segments[segments])
    return normalised(total, gamma, beta), np.zeros(2) if mask is None else mask.sum(-1)


@case("GroupNorm", (2, 4, 3, 8), (8,), (8,), here=False, activation=1, groups=2)
@case("GroupNorm", (2, 8, 4, 3), (8,), (8,), here=False, activation=0, groups=4, channels_last=0)
def _(x, gamma, beta, activation, groups, channels_last=1):
    x = x if channels_last else np.moveaxis(x, 1, -1)
    parts = x.reshape(2, -1, groups, 8 // groups)
    parts = (parts - parts.mean((1, 3), keepdims=True)) / np.sqrt(parts.var((1, 3), keepdims=True) + 1e-5)
    y = parts.reshape(x.shape) * gamma + beta
    y = y * sigmoid(y) if activation else y
    return y if channels_last else np.moveaxis(y, -1, 1)


@case("CDist", (4, 3), (5, 3))
@case("CDist", (4, 3), (5, 3), metric="euclidean")
def _(a, b, metric="sqeuclidean"):
    squares = ((a[:, None] - b) ** 2).sum(-1)
    return np.sqrt(squares) if metric == "euclidean" else squares


@case("Affine", (3, 4), alpha=0.5, beta=0.25)
@case("ScaledTanh", (3, 4), alpha=0.5, beta=0.25)
@case("ParametricSoftplus", (3, 4), alpha=0.5, beta=0.25)
def _(x, alpha, beta, op):
    return {"Affine": alpha * x + beta, "ScaledTanh": alpha * np.tanh(beta * x), "ParametricSoftplus": alpha * np.log1p(np.exp(beta * x))}[op]


@case("ImageScaler", (2, 3, 4, 4), scale=0.5, bias=[1.0, 2.0, 3.0])
def _(x, scale, bias):
    return scale * x + np.array(bias)[:, None, None]


# -- products ----------------------------------------------------------------------------------------
@case("FusedMatMul", (3, 4), (5, 4), transB=1, alpha=0.5)
@case("FusedMatMul", (2, 4, 3), (2, 4, 5), transA=1)
@case("FusedMatMul", (2, 1, 5, 4), (3, 6, 4), transB=1)
@case("FusedMatMul", (2, 3, 4), (4,), alpha=2.0)
@case("TransposeMatMul", (3, 4), (5, 4), transB=1, alpha=0.5)
def _(a, b, alpha=1, transA=0, transB=0):
    return alpha * (np.swapaxes(a, -1, -2) if transA else a) @ (np.swapaxes(b, -1, -2) if transB else b)


def activated(x, activation, first, second):
    return {"Relu": np.maximum(x, 0), "Tanh": np.tanh(x), "Sigmoid": sigmoid(x), "LeakyRelu": np.where(x < 0, (first or 0) * x, x),
            "HardSigmoid": np.clip((first or 0) * x + (second or 0), 0, 1), "Clip": np.clip(x, first, second), "": x}[activation]


ACTIVATIONS = [("Relu", []), ("Tanh", []), ("Sigmoid", []), ("LeakyRelu", [0.25]), ("HardSigmoid", [0.3, 0.4]), ("", [])]


def fused_gemm(a, b, c, alpha, beta, activation="", activation_alpha=None, activation_beta=None):
    return activated(alpha * a @ b + beta * c, activation, activation_alpha, activation_beta)


def fused_conv(x, w, b, z=0, activation="", activation_params=(), group=1, pads=(0, 0, 0, 0)):
    y = torch.nn.functional.conv2d(*map(torch.from_numpy, (x, w, b)), groups=group, padding=tuple(pads[:2])).numpy() + z
    return activated(y, activation, *[*activation_params, None, None][:2])


for _activation, _numbers in ACTIVATIONS:
    _given = {"activation": _activation} if _activation else {}
    case("FusedGemm", (3, 4), (4, 5), (5,), here=bool(_activation), alpha=0.5, beta=0.25, **_given,
         **dict(zip(("activation_alpha", "activation_beta"), _numbers)))(fused_gemm)
    case("FusedConv", (2, 3, 7, 7), (4, 3, 3, 3), (4,), pads=[1, 1, 1, 1], **_given,
         **({"activation_params": _numbers} if _numbers else {}))(fused_conv)
case("FusedConv", (2, 3, 7, 7), (4, 3, 3, 3), (4,), activation="Clip", activation_params=[-0.5, 0.5])(fused_conv)
case("FusedConv", (2, 4, 7, 7), (4, 2, 3, 3), (4,), (2, 4, 5, 5), activation="Relu", group=2)(fused_conv)


# -- attention ---------------------------------------------------------------------------------------
def heads(x, n):
    return np.moveaxis(x.reshape(*x.shape[:2], n, -1), 2, 1)


def joined(x):
    return np.moveaxis(x, 1, 2).reshape(x.shape[0], x.shape[2], -1)


def seen(mask, batch, queries, keys):
    """Which keys are seen, as [batch, 1, queries or 1, keys]."""
    if mask is None:
        return np.ones((1, 1, 1, keys), bool)
    if mask.ndim == 1:
        ends, begins = mask[:batch], mask[batch:] if mask.size > batch else np.zeros(batch)
        places = np.arange(keys)
        return ((places < ends[:, None]) & (places >= begins[:, None]))[:, None, None]
    return (mask != 0)[:, None, None] if mask.ndim == 2 else (mask != 0)[:, None]


def attended(q, k, v, mask, bias, scale, causal):
    scores = (scale or 1 / np.sqrt(q.shape[-1])) * q @ np.swapaxes(k, -1, -2) + (0 if bias is None else bias)
    scores = scores + np.where(seen(mask, len(q), q.shape[2], k.shape[2]), 0, -10000.0)
    if causal:
        scores = np.where(np.tri(q.shape[2], k.shape[2], k.shape[2] - q.shape[2], dtype=bool), scores, -np.inf)
    return joined(softmax(scores) @ v)


@case("Attention", X, (8, 24), (24,), num_heads=2)
@case("Attention", X, (8, 24), (24,), np.int32([3, 5]), num_heads=2)
@case("Attention", X, (8, 24), (24,), np.int32([3, 5, 1, 0]), num_heads=2)
@case("Attention", X, (8, 24), (24,), KEPT, num_heads=2)
@case("Attention", X, (8, 24), (24,), np.int32(np.broadcast_to(np.tri(5), (2, 5, 5))), num_heads=2)
@case("Attention", X, (8, 24), (24,), num_heads=2, unidirectional=1)
@case("Attention", X, (8, 24), (24,), None, (2, 2, 2, 3, 4), outputs=2, num_heads=2, unidirectional=1)
@case("Attention", X, (8, 24), (24,), None, None, (1, 2, 5, 5), num_heads=2, scale=0.25)
@case("Attention", X, (8, 20), (20,), num_heads=2, qkv_hidden_sizes=[8, 8, 4])
def _(x, w, b, mask=None, past=None, bias=None, num_heads=0, unidirectional=0, scale=None, qkv_hidden_sizes=(8, 8, 8)):
    q, k, v = (heads(part, num_heads) for part in np.split(x @ w + b, np.cumsum(qkv_hidden_sizes)[:2], -1))
    if past is None:
        return attended(q, k, v, mask, bias, scale, unidirectional)
    k, v = np.concatenate([past[0], k], 2), np.concatenate([past[1], v], 2)
    return attended(q, k, v, mask, bias, scale, unidirectional), np.stack([k, v])


@case("MultiHeadAttention", X, (2, 7, 8), (2, 7, 8), num_heads=2)
@case("MultiHeadAttention", X, (2, 7, 8), (2, 7, 4), (20,), np.int32([[1] * 4 + [0] * 3, [1] * 7]), num_heads=2)
@case("MultiHeadAttention", X, (2, 7, 8), (2, 7, 8), None, np.int32([4, 7]), (2, 2, 5, 7), num_heads=2, scale=0.5)
@case("MultiHeadAttention", X, X, X, None, None, None, (2, 2, 3, 4), (2, 2, 3, 4), outputs=3, num_heads=2, unidirectional=1)
@case("MultiHeadAttention", (2, 5, 2, 3, 4), here=False, num_heads=2)
def _(q, k=None, v=None, bias=None, mask=None, scores=None, past_k=None, past_v=None, num_heads=0, scale=None, unidirectional=0):
    if k is None:
        q, k, v = (q[:, :, :, part].reshape(2, 5, 8) for part in range(3))
    parts = [0, 0, 0] if bias is None else np.split(bias, [8, 16])
    q, k, v = (heads(x + part, num_heads) for x, part in zip((q, k, v), parts))
    if past_k is None:
        return attended(q, k, v, mask, scores, scale, unidirectional)
    k, v = np.concatenate([past_k, k], 2), np.concatenate([past_v, v], 2)
    return attended(q, k, v, mask, scores, scale, unidirectional), k, v


def turned(x, cos, sin, interleaved):
    """x: [..., 2 J (and what stays)] by the angles [..., J]."""
    n = cos.shape[-1]
    a, b = (x[..., 0:2 * n:2], x[..., 1:2 * n:2]) if interleaved else (x[..., :n], x[..., n:2 * n])
    pair = cos * a - sin * b, sin * a + cos * b
    first = np.stack(pair, -1).reshape(*x.shape[:-1], 2 * n) if interleaved else np.concatenate(pair, -1)
    return np.concatenate([first, x[..., 2 * n:]], -1)


AT = np.int64([[3, 1, 0, 9, 2], [0, 5, 5, 1, 8]])


@case("RotaryEmbedding", (2, 5, 16), AT, (10, 4), (10, 4))
@case("RotaryEmbedding", (2, 2, 5, 8), AT, (10, 4), (10, 4), interleaved=1)
@case("RotaryEmbedding", (2, 2, 5, 8), np.int64([3]), (10, 4), (10, 4))
@case("RotaryEmbedding", (2, 5, 24), AT, (10, 4), (10, 4), num_heads=2, rotary_embedding_dim=8)
def _(x, at, cos, sin, interleaved=0, num_heads=2, rotary_embedding_dim=0):
    at = at if at.ndim == 2 else at + np.arange(5)[None]
    q = x if x.ndim == 4 else heads(x, num_heads)
    y = turned(q, cos[at][:, None], sin[at][:, None], interleaved)
    return y if x.ndim == 4 else joined(y)


def grouped(*, new, past, lengths, **attributes):
    """GroupQueryAttention with 4 heads of queries and 2 of keys, of width 16."""
    inputs = [(2, new, 64), (2, new, 32), (2, new, 32), *([(2, 2, past, 16)] * 2 if past is not None else [None, None]),
              np.int32(lengths) - 1, np.int32(new + (past or 0)), *([(32, 8)] * 2 if attributes.get("do_rotary") else [])]
    return case("GroupQueryAttention", *inputs, outputs=3, num_heads=4, kv_num_heads=2, **attributes)


@grouped(new=5, past=None, lengths=[5, 5])
@grouped(new=5, past=0, lengths=[5, 5], do_rotary=1, rotary_interleaved=1)
@grouped(new=1, past=6, lengths=[7, 7], do_rotary=1)
@grouped(new=1, past=6, lengths=[5, 7], here=False, do_rotary=1)
@grouped(new=5, past=None, lengths=[5, 5], softcap=2.0, scale=0.25)
@grouped(new=5, past=None, lengths=[5, 5], local_window_size=2)
@grouped(new=1, past=6, lengths=[7, 7], local_window_size=3)
@grouped(new=5, past=None, lengths=[5, 5], smooth_softmax=1)
def _(q, k, v, past_k, past_v, last, total, cos=None, sin=None, num_heads=0, kv_num_heads=0, do_rotary=0, rotary_interleaved=0,
      softcap=0, scale=None, local_window_size=-1, smooth_softmax=0):
    new, q, k, v = q.shape[1], heads(q, num_heads), heads(k, kv_num_heads), heads(v, kv_num_heads)
    keys, values, results = np.zeros((2, 2, int(total), 16)), np.zeros((2, 2, int(total), 16)), []
    for b in range(2):
        before = int(last[b]) + 1 - new
        places = before + np.arange(new)
        qb, kb = ((turned(x[b], cos[places], sin[places], rotary_interleaved) for x in (q, k)) if do_rotary else (q[b], k[b]))
        if before:
            keys[b, :, :before], values[b, :, :before] = past_k[b, :, :before], past_v[b, :, :before]
        keys[b, :, before:before + new], values[b, :, before:before + new] = kb, v[b]
        scores = (scale or 0.25) * qb @ np.repeat(np.swapaxes(keys[b], -1, -2), 2, 0)
        scores = softcap * np.tanh(scores / softcap) if softcap else scores
        m, n = np.arange(int(total)), places[:, None]
        scores = np.where((m <= n) & ((local_window_size < 0) | (m > n - local_window_size)), scores, -np.inf)
        weights = np.exp(scores) / (np.exp(scores).sum(-1, keepdims=True) + (smooth_softmax == 1))
        results.append(weights @ np.repeat(values[b], 2, 0))
    return joined(np.stack(results)), keys, values


# -- levels ------------------------------------------------------------------------------------------
def level(x, zero, like):
    limits = np.iinfo(like.dtype)
    return np.clip(np.round(x) + int(zero), limits.min, limits.max)


def meaning(x, zero, scale):
    return (x.astype(np.int64) - np.int64(zero)) * np.float64(scale)


def bits_of(x, bits):
    """The numbers that lie in bytes, the lowest bits first."""
    return (x[..., None] >> np.arange(0, 8, bits, dtype=np.uint8) & (1 << bits) - 1).reshape(*x.shape[:-1], -1)


def of_bits(bits, *more, **attributes):
    return case("MatMulNBits", (2, 5, 48), ("u8", 6, 3, 2 * bits), (18,), *more, tolerance=2e-3, K=48, N=6, bits=bits, block_size=16,
                **attributes)


@of_bits(2)
@of_bits(4)
@of_bits(8)
@of_bits(4, ("u8", 12), None, (6,))
@of_bits(2, ("u8", 6), None, (6,))
def _(a, w, scales, zeros=None, order=None, bias=0, K=0, N=0, bits=4, block_size=16):
    zeros = 1 << bits - 1 if zeros is None else bits_of(zeros.reshape(N, -1), bits)[:, :3, None].astype(np.int64)
    levels = bits_of(w, bits).astype(np.int64)
    return a @ ((levels - zeros) * scales.reshape(N, 3, 1)).reshape(N, K).T + bias


LEVELS = [("u8", 3, 4), F(0.1), np.uint8(128), ("u8", 4), F(0.05), np.uint8(100), F(0.2), np.uint8(90)]
SIGNED = [("i8", 3, 4), F(0.1), np.int8(3), ("i8", 3, 4), F(0.05), np.int8(-4), F(0.2), np.int8(9)]


@case("QLinearAdd", *LEVELS, tolerance=1)
@case("QLinearAdd", *SIGNED, tolerance=1)
@case("QLinearMul", *LEVELS, tolerance=1)
@case("QLinearMul", *SIGNED, tolerance=1)
def _(a, of_a, za, b, of_b, zb, of_c, zc, op):
    x, y = meaning(a, za, of_a), meaning(b, zb, of_b)
    return level((x + y if op == "QLinearAdd" else x * y) / of_c, zc, a)


@case("QLinearSigmoid", ("u8", 3, 4), F(0.05), np.uint8(128), F(1 / 256), np.uint8(0), tolerance=1)
@case("QLinearLeakyRelu", ("i8", 3, 4), F(0.05), np.int8(8), F(0.04), np.int8(0), tolerance=1, alpha=0.125)
@case("QLinearSoftmax", ("u8", 3, 7), F(0.05), np.uint8(128), F(1 / 256), np.uint8(0), here=False, tolerance=1, opset=13)
def _(x, of_x, zx, of_y, zy, op, alpha=0, opset=13):
    v = meaning(x, zx, of_x)
    y = {"QLinearSigmoid": sigmoid, "QLinearLeakyRelu": lambda v: np.where(v < 0, alpha * v, v), "QLinearSoftmax": softmax}[op](v)
    return level(y / of_y, zy, x)


@case("QLinearGlobalAveragePool", ("u8", 2, 3, 4, 5), F(0.05), np.uint8(128), F(0.01), np.uint8(128), tolerance=1)
@case("QLinearGlobalAveragePool", ("u8", 2, 4, 5, 3), F(0.05), np.uint8(128), F(0.01), np.uint8(128), tolerance=1, channels_last=1)
def _(x, of_x, zx, of_y, zy, channels_last=0):
    return level(meaning(x, zx, of_x).mean((1, 2) if channels_last else (2, 3), keepdims=True) / of_y, zy, x)


@case("QLinearWhere", np.array([[True], [False], [True]]), ("u8", 3, 4), F(0.05), np.uint8(128), ("u8", 4), F(0.1), np.uint8(100), F(0.15),
      np.uint8(90), tolerance=1)
def _(condition, x, of_x, zx, y, of_y, zy, of_z, zz):
    return level(np.where(condition, meaning(x, zx, of_x), meaning(y, zy, of_y)) / of_z, zz, x)


@case("QLinearConcat", F(0.08), np.uint8(100), ("u8", 2, 3, 4), F(0.05), np.uint8(128), ("u8", 2, 1, 4), F(0.1), np.uint8(90), tolerance=1, axis=1)
@case("QLinearConcat", F(0.08), np.int8(3), ("i8", 3, 4), F(0.05), np.int8(-8), tolerance=1, axis=-1)
def _(of_y, zy, *parts, axis):
    return level(np.concatenate([meaning(x, z, s) for x, s, z in zip(*[iter(parts)] * 3)], axis) / of_y, zy, np.asarray(zy))


@case("QLinearReduceMean", ("u8", 2, 3, 4), F(0.05), np.uint8(128), F(0.04), np.uint8(90), here=False, tolerance=1, axes=[-1, 0], keepdims=1)
@case("QLinearReduceMean", ("i8", 2, 3, 4), F(0.05), None, F(0.04), here=False, tolerance=1, axes=[1], keepdims=0)
def _(x, of_x, zx, of_y, zy=0, axes=(), keepdims=1):
    return level(meaning(x, zx or 0, of_x).mean(tuple(axes), keepdims=bool(keepdims)) / of_y, zy, x)


POOLED = [F(0.05), np.uint8(128), F(0.04), np.uint8(100)]


@case("QLinearAveragePool", ("u8", 2, 3, 6, 7), *POOLED, tolerance=1, kernel_shape=[2, 3])
@case("QLinearAveragePool", ("u8", 2, 6, 7, 3), *POOLED, tolerance=1, kernel_shape=[2, 3], strides=[2, 1], channels_last=1)
@case("QLinearAveragePool", ("u8", 2, 3, 6, 7), *POOLED, tolerance=1, kernel_shape=[3, 3], pads=[1, 0, 1, 2])
@case("QLinearAveragePool", ("u8", 2, 3, 6, 7), *POOLED, tolerance=1, kernel_shape=[3, 3], pads=[1, 0, 1, 2], count_include_pad=1)
def _(x, of_x, zx, of_y, zy, kernel_shape, strides=None, pads=None, count_include_pad=0, channels_last=0):
    v = torch.from_numpy(meaning(x, zx, of_x).transpose(0, 3, 1, 2) if channels_last else meaning(x, zx, of_x))
    top, left, bottom, right = pads or [0] * 4
    add = functools.partial(torch.nn.functional.pad, pad=(left, right, top, bottom))
    mean = functools.partial(torch.nn.functional.avg_pool2d, kernel_size=kernel_shape, stride=strides or 1)
    y = (mean(add(v)) if count_include_pad else mean(add(v)) / mean(add(torch.ones_like(v)))).numpy()
    return level((y.transpose(0, 2, 3, 1) if channels_last else y) / of_y, zy, x)


ATTENDED = [("u8", 2, 5, 8), ("u8", 8, 24), (24,), F(0.01), F(0.02)]


@case("QAttention", *ATTENDED, None, np.uint8(128), np.uint8(120), tolerance=1e-3, num_heads=2)
@case("QAttention", *ATTENDED, np.int32([3, 5]), np.uint8(128), np.uint8(120), tolerance=1e-3, num_heads=2)
@case("QAttention", *ATTENDED, None, np.uint8(128), np.uint8(120), outputs=2, tolerance=1e-3, num_heads=4, unidirectional=1)
@case("QAttention", *ATTENDED, None, np.uint8(128), np.uint8(120), (2, 2, 2, 3, 4), outputs=2, tolerance=1e-3, num_heads=2, unidirectional=1)
def _(x, w, bias, of_x, of_w, lengths=None, zx=0, zw=0, past=None, num_heads=1, unidirectional=0):
    p = meaning(x, zx, of_x) @ meaning(w, zw, of_w) + bias
    q, k, v = (h.reshape(2, 5, num_heads, -1).transpose(0, 2, 1, 3) for h in np.split(p, 3, -1))
    if past is not None:
        k, v = np.concatenate([past[0], k], 2), np.concatenate([past[1], v], 2)
    scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(q.shape[-1])
    if lengths is not None:
        scores = scores + np.where(np.arange(k.shape[2]) < lengths[:, None, None, None], 0, -10000.0)
    if unidirectional:
        scores = np.where(np.arange(k.shape[2]) > np.arange(5)[:, None] + k.shape[2] - 5, -np.inf, scores)
    y = (softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(2, 5, 8)
    return (y, np.stack([k, v])) if unidirectional else y


def experts(hidden, fused=1):
    return [(3, 2, 8), (6, 4), (4, hidden * fused, 8), (4, hidden * fused), (4, 8, hidden), (4, 8)]


@case("MoE", *experts(6), k=2)
@case("MoE", (6, 8), *experts(6)[1:3], None, experts(6)[4], activation_type="silu")
@case("MoE", *experts(6), k=3, activation_type="gelu", normalize_routing_weights=1)
@case("MoE", *experts(6, 2), k=2, activation_type="swiglu", swiglu_fusion=1, activation_alpha=1.702, activation_beta=1.0, swiglu_limit=0.5)
@case("MoE", *experts(6, 2), here=False, k=2, activation_type="swiglu", swiglu_fusion=2)
def _(x, router, w, bw, v, bv=None, k=1, activation_type="relu", normalize_routing_weights=0, swiglu_fusion=0, activation_alpha=1.0,
      activation_beta=0.0, swiglu_limit=np.inf):
    chosen, token, y = np.argsort(-router, kind="stable")[:, :k], x.reshape(-1, 8), 0
    gates = np.where((np.arange(4) == chosen[..., None]).any(1), softmax(router), 0)
    gates = gates / gates.sum(1, keepdims=True) if normalize_routing_weights else gates
    for e in range(4):
        a = token @ w[e].T + (0 if bw is None else bw[e])
        g, up = (a[:, ::2], a[:, 1::2]) if swiglu_fusion == 1 else np.split(a, 2, 1)
        g, up = np.minimum(g, swiglu_limit), np.clip(up, -swiglu_limit, swiglu_limit)
        b = {"relu": lambda a: np.maximum(a, 0), "silu": lambda a: a * sigmoid(a), "gelu": gelu_tanh,
             "swiglu": lambda a, g=g, up=up: g * sigmoid(activation_alpha * g) * (up + activation_beta)}[activation_type](a)
        y = y + gates[:, e:e + 1] * (b @ v[e].T + (0 if bv is None else bv[e]))
    return y.reshape(x.shape)


@case("MatMulIntegerToFloat", ("u8", 3, 8), ("u8", 8, 4), F(0.05), F(0.1), np.uint8(128), np.uint8(120), (4,), tolerance=1e-3)
@case("MatMulIntegerToFloat", ("u8", 3, 8), ("i8", 8, 4), F(0.05), np.float32([0.1, 0.2, 0.3, 0.4]), np.uint8(128), here=False, tolerance=1e-3)
def _(a, b, of_a, of_b, za, zb=0, bias=0):
    return meaning(a, za, of_a) @ meaning(b, zb, 1) * of_b + bias


@case("DynamicQuantizeMatMul", (3, 8), ("u8", 8, 4), F(0.05), np.uint8(128), (4,), tolerance=1e-3)
@case("DynamicQuantizeMatMul", (2, 3, 8), ("i8", 8, 4), np.float32([0.1, 0.2, 0.3, 0.4]), np.int8([1, 2, 3, 4]), here=False, tolerance=1e-3)
def _(a, b, of_b, zb, bias=0):
    low, high = min(a.min(), 0), max(a.max(), 0)
    scale = F((high - low) / 255)
    zero = np.round(np.clip(-low / scale, 0, 255))
    levels = np.clip(np.round(a.astype(F) / scale) + zero, 0, 255) - zero
    return levels @ (b.astype(np.int64) - zb.astype(np.int64)) * scale * of_b + bias


def bytes_of(x):
    """x as differences of bytes from their zero point, and what one stands for."""
    low, high = min(x.min(), 0), max(x.max(), 0)
    scale = F((high - low) / 255) if high > low else F(1 / 255)
    zero = np.round(-F(low) / scale)
    return np.clip(np.round(x.astype(F) / scale) + zero, 0, 255) - zero, scale


ONE, TWO = (F([0.02]), np.int8([3]), F([0.03]), np.int8([-2])), (F([0.02, 0.03]), np.uint8([120, 130]), F([0.03, 0.01]), np.uint8([99, 128]))
EACH = (np.linspace(0.01, 0.04, 12, dtype=F)[None], np.zeros((1, 12), np.int8), np.linspace(0.04, 0.01, 12, dtype=F)[None], None)


@case("DynamicQuantizeLSTM", (4, 2, 5), ("i8", 1, 5, 12), ("i8", 1, 3, 12), (1, 24), None, None, None, None, *ONE, outputs=3, hidden_size=3,
      tolerance=3e-3)  # ONNX Runtime makes bytes of each thread's part of the batch by itself
@case("DynamicQuantizeLSTM", (4, 1, 5), ("u8", 2, 5, 12), ("u8", 2, 3, 12), (2, 24), None, (2, 1, 3), (2, 1, 3), None, *TWO, outputs=3,
      hidden_size=3, direction="bidirectional")
@case("DynamicQuantizeLSTM", (3, 2, 5), ("i8", 1, 5, 12), ("i8", 1, 3, 12), None, None, None, None, None, *EACH, outputs=3, here=False,
      hidden_size=3, direction="reverse")
def _(x, w, r, b, lengths, h0, c0, peepholes, sw, zw, sr, zr=None, hidden_size=3, direction="forward"):
    def weight(values, zero, scale, d):
        zero = 0 if zero is None else zero.astype(np.int64)[d]
        return values[d].astype(np.int64) - zero, scale[d]

    levels, step = bytes_of(x)
    ys, hs, cs = [], [], []
    for d in range(len(w)):
        (wd, of_w), (rd, of_r) = weight(w, zw, sw, d), weight(r, zr, sr, d)
        h, c = (np.zeros((x.shape[1], 3)) if s is None else s[d].astype(np.float64) for s in (h0, c0))
        y = [None] * len(x)
        for t in reversed(range(len(x))) if d or direction == "reverse" else range(len(x)):
            state, of_h = bytes_of(h)
            g = levels[t] @ wd * (step * of_w) + state @ rd * (of_h * of_r) + (0 if b is None else b[d, :12] + b[d, 12:])
            i, o, f, new = np.split(g, 4, -1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(new)
            y[t] = h = sigmoid(o) * np.tanh(c)
        ys, hs, cs = [*ys, np.stack(y)], [*hs, h], [*cs, c]
    return np.stack(ys, 1), np.stack(hs), np.stack(cs)


@case("QGemm", ("u8", 3, 8), F(0.05), np.uint8(128), ("i8", 8, 4), F(0.02), np.int8(0), np.int32([5, -99, 7, 0]), here=False, tolerance=1e-3,
      alpha=0.5)
@case("QGemm", ("u8", 3, 8), F(0.05), np.uint8(128), ("u8", 4, 8), F(0.02), np.uint8(100), None, F(0.3), np.uint8(100), tolerance=1, transB=1)
def _(a, of_a, za, b, of_b, zb, c=None, of_y=None, zy=None, alpha=1, transB=0):
    sums = meaning(a, za, 1) @ (meaning(b, zb, 1).T if transB else meaning(b, zb, 1)) + (0 if c is None else c)
    y = alpha * of_a * of_b * sums
    return y if of_y is None else level(y / of_y, zy, a)


@case("QuantizeLinear", (3, 4), F(0.05), np.uint8(128), tolerance=1)
def _(x, scale, zero):
    return level(x / scale, zero, zero)


@case("DequantizeLinear", ("u8", 3, 4), np.float32([0.1, 0.2, 0.3, 0.4]), np.uint8([1, 200, 3, 4]), axis=1)
def _(x, scale, zero, axis):
    return (x.astype(np.int64) - zero) * scale


# -- the tests ---------------------------------------------------------------------------------------
OF_ONNX = {"SimplifiedLayerNormalization", "Affine", "ScaledTanh", "ParametricSoftplus", "ImageScaler"}  # they stand in its domain


def model_of(op, values, outputs, attributes):
    names, results = [f"i{k}" if v is not None else "" for k, v in enumerate(values)], [f"o{k}" for k in range(outputs)]
    feeds = {n: np.asarray(v) for n, v in zip(names, values) if n}
    node = helper.make_node(op, names, results, domain="" if op in OF_ONNX else "com.microsoft", **attributes)
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
                                            for n, v in feeds.items()], [onnx.ValueInfoProto(name=r) for r in results])
    opset = 9 if op in OF_ONNX - {"SimplifiedLayerNormalization"} else 17
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)], ir_version=8), feeds


@functools.lru_cache(maxsize=None)
def made(key):
    op, inputs, outputs, here, tolerance, attributes, function = CASES[key][0]
    rng = np.random.default_rng(zlib.crc32(key.encode()))
    values = [array(given, rng) for given in inputs]
    if op == "MatMulNBits":
        values[2] = np.abs(values[2])
    return op, values, outputs, here, tolerance, attributes, function


def results(key):
    op, values, outputs, _, tolerance, attributes, _ = made(key)
    model, feeds = model_of(op, values, outputs, attributes)
    found = ONNXModel(op, model)(**feeds)
    return model, feeds, [np.asarray(r) for r in (found if isinstance(found, (tuple, list)) else [found])], tolerance


@pytest.mark.parametrize("key", CASES)
def test_an_operator_is_what_its_definition_says(key):
    op, values, _, _, tolerance, attributes, function = made(key)
    wide = [v.astype(np.float64) if v is not None and np.asarray(v).dtype == F and np.ndim(v) else v for v in values]
    named = {"op": op} if "op" in function.__code__.co_varnames[:function.__code__.co_argcount] else {}
    expected = function(*wide, **attributes, **named)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for found, want in zip(results(key)[2], expected, strict=True):
        np.testing.assert_allclose(found.astype(np.float64), want, rtol=1e-4 if tolerance < 1 else 0, atol=tolerance)


@pytest.mark.skipif(not importlib.util.find_spec("onnxruntime"), reason="ONNX Runtime is not installed")
@pytest.mark.parametrize("key", [key for key in CASES if CASES[key][0][3]])
def test_an_operator_is_what_onnxruntime_computes(key):
    import onnxruntime
    model, feeds, found, tolerance = results(key)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for ours, theirs in zip(found, session.run(None, feeds), strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        np.testing.assert_allclose(ours.astype(np.float64), theirs.astype(np.float64), rtol=1e-4 if tolerance < 1 else 0, atol=tolerance)


def test_a_domain_that_is_not_imported_has_its_newest_version():
    model, feeds = model_of("Gelu", [np.ones((2, 3), F)], 1, {})
    del model.opset_import[1]
    np.testing.assert_allclose(ONNXModel("gelu", model)(**feeds), gelu(np.ones((2, 3))), rtol=1e-6)
    model.graph.node[0].op_type, model.graph.node[0].domain = "TreeEnsemble", "ai.onnx.ml"  # since version 5
    with pytest.raises(dcml.Error, match="leaf_targetids"):
        ONNXModel("trees", model)


@pytest.mark.parametrize(("op", "inputs", "attributes", "says"), [
    ("Attention", [(2, 5, 8), (8, 24), (24,)], {"num_heads": 3}, "Attention"),
    ("Attention", [(2, 5, 8), (8, 24), (24,)], {"num_heads": 2, "do_rotary": 1}, "do_rotary"),
    ("MultiHeadAttention", [(2, 5, 8), (2, 7, 8), (2, 6, 8)], {"num_heads": 2}, "MultiHeadAttention"),
    ("MatMulNBits", [(2, 48), ("u8", 6, 3, 8), (17,)], {"K": 48, "N": 6, "block_size": 16}, "MatMulNBits"),
    ("MatMulNBits", [(2, 48), ("u8", 6, 3, 8), (18,)], {"K": 48, "N": 6, "block_size": 16, "bits": 3}, "bits"),
    ("FusedMatMul", [(2, 3, 4), (2, 4, 5)], {"transBatchA": 1}, "batch"),
    ("FusedConv", [(2, 3, 7, 7), (4, 3, 3, 3)], {"activation": "Sin"}, "activation"),
    ("BiasSplitGelu", [(2, 3, 7), (7,)], {}, "BiasSplitGelu"),
])
def test_what_cannot_be_is_an_error_that_names_the_node(op, inputs, attributes, says):
    rng = np.random.default_rng(0)
    model, feeds = model_of(op, [array(given, rng) for given in inputs], 1, attributes)
    with pytest.raises(dcml.Error, match=says):
        ONNXModel(op, model)(**feeds)

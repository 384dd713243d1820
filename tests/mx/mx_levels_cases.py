"""Cases of npx: numbers of eight bits with the ranges that they stand for."""
import numpy as onp
from mx_harness import Case

_rng = onp.random.default_rng(4)
I8, U8 = "int8", "uint8"


def signed(*shape):
    return _rng.integers(-127, 128, shape).astype(I8)


def unsigned(*shape):
    return _rng.integers(0, 256, shape).astype(U8)


def one(value):
    return onp.array([value], dtype="float32")


def size(values):
    """How many levels a type has on one side."""
    return 255 if values.dtype == onp.uint8 else 127


def widest(low, high):
    return max(abs(float(low[0])), abs(float(high[0])))


def level(values, end):
    """Of real numbers, the page's formula."""
    if end == 0:
        return onp.zeros(values.shape, I8)
    return (onp.sign(values) * onp.floor(onp.minimum(onp.abs(values) * (127 / end) + 0.5, 127))).astype(I8)


def unsigned_level(values, low, high):
    return onp.clip(onp.floor((values - low) * (255 / (high - low)) + 0.5), 0, 255).astype(U8)


def typed(out_type, low):
    return out_type == "uint8" or (out_type == "auto" and low is not None and low >= 0)


def quantize_v2(data, out_type="int8", min_calib_range=None, max_calib_range=None):
    given = min_calib_range is not None
    if data.dtype.kind in "iu":
        ends = (min_calib_range, max_calib_range) if given else (0, 255) if data.dtype == onp.uint8 else (-127, 127)
        return data, one(ends[0]), one(ends[1])
    low, high = (min_calib_range, max_calib_range) if given else (data.min(), data.max())
    if typed(out_type, min_calib_range):
        return unsigned_level(data, low, high), one(low), one(high)
    end = max(abs(low), abs(high))
    return level(data, end), one(-end), one(end)


def requantize(data, min_range, max_range, out_type="int8", min_calib_range=None, max_calib_range=None):
    real = data * (widest(min_range, max_range) / 2147483647)
    end = max(abs(min_calib_range), abs(max_calib_range)) if min_calib_range is not None else onp.abs(real).max()
    if typed(out_type, min_calib_range):
        return unsigned_level(real, 0, end), one(0), one(end)
    return level(real, end), one(-end), one(end)


def unit(data, low, high, weight, weight_low, weight_high):
    return widest(low, high) / size(data) * widest(weight_low, weight_high) / size(weight)


def with_range(sums, per_unit, bias=None, low=None, high=None):
    """Sums of products, a bias in their units, and the range of 2^31 - 1 units."""
    if bias is not None:
        real = bias * (widest(low, high) / 127) / per_unit
        sums = sums + (onp.sign(real) * onp.floor(onp.abs(real) + 0.5)).reshape(1, -1, *[1] * (sums.ndim - 2))
    end = per_unit * 2147483647
    return sums.astype("int32"), one(-end), one(end)


def quantized_conv(data, weight, bias, low, high, weight_low, weight_high, *bias_range, kernel, num_filter, stride=(1, 1), dilate=(1, 1), pad=(0, 0),
                   num_group=1, **_):
    padded = onp.pad(data.astype(int), ((0, 0), (0, 0), (pad[0], pad[0]), (pad[1], pad[1])))
    extents = [(padded.shape[2 + d] - (kernel[d] - 1) * dilate[d] - 1) // stride[d] + 1 for d in range(2)]
    sums, group = onp.zeros((len(data), num_filter, *extents), int), num_filter // num_group
    for m, j, i, y, x in onp.ndindex(num_filter, *kernel, *extents):
        first = m // group * weight.shape[1]
        seen = padded[:, first:first + weight.shape[1], y * stride[0] + j * dilate[0], x * stride[1] + i * dilate[1]]
        sums[:, m, y, x] += seen @ weight[m, :, j, i].astype(int)
    return with_range(sums, unit(data, low, high, weight, weight_low, weight_high), bias, *bias_range)


def quantized_fully_connected(data, weight, bias, low, high, weight_low, weight_high, *bias_range, num_hidden, no_bias=False, flatten=True):
    rows = data.reshape(len(data), -1) if flatten else data
    return with_range(rows.astype(int) @ weight.astype(int).T, unit(data, low, high, weight, weight_low, weight_high), bias, *bias_range)


def real(values, low, high):
    return values * (widest(low, high) / size(values))


def calibrated(values, lhs, rhs, low, high):
    made = unsigned_level(values, 0, max(abs(low), abs(high))) if lhs.dtype == rhs.dtype == onp.uint8 else level(values, max(abs(low), abs(high)))
    return made, one(low), one(high)


def quantized_add(lhs, rhs, lhs_min, lhs_max, rhs_min, rhs_max, min_calib_range=None, max_calib_range=None):
    total = real(lhs, lhs_min, lhs_max) + real(rhs, rhs_min, rhs_max)
    if min_calib_range is not None:
        return calibrated(total, lhs, rhs, min_calib_range, max_calib_range)
    end = widest(lhs_min, lhs_max) + widest(rhs_min, rhs_max)
    return onp.rint(total * (2147483647 / end)).astype("int32"), one(-end), one(end)


def quantized_mul(lhs, rhs, lhs_min, lhs_max, rhs_min, rhs_max, min_calib_range=None, max_calib_range=None, enable_float_output=False):
    product = real(lhs, lhs_min, lhs_max) * real(rhs, rhs_min, rhs_max)
    if enable_float_output:
        return product
    if min_calib_range is not None:
        return calibrated(product, lhs, rhs, min_calib_range, max_calib_range)
    return with_range(lhs.astype(int) * rhs, unit(lhs, lhs_min, lhs_max, rhs, rhs_min, rhs_max))


def quantized_pooling(data, low, high, kernel=(), pool_type="max", global_pool=False, pooling_convention="valid", stride=(1, 1), pad=(0, 0),
                      count_include_pad=True, **_):
    if global_pool:
        kernel, stride, pad = data.shape[2:], (1, 1), (0, 0)
    up = onp.ceil if pooling_convention == "full" else onp.floor
    extents = [int(up((data.shape[2 + d] + 2 * pad[d] - kernel[d]) / stride[d])) + 1 for d in range(2)]
    result = onp.zeros((*data.shape[:2], *extents))
    for y, x in onp.ndindex(*extents):
        begin = y * stride[0] - pad[0], x * stride[1] - pad[1]
        rows, columns = (slice(max(b, 0), max(b + k, 0)) for b, k in zip(begin, kernel))
        window = data[:, :, rows, columns].astype(float)
        whole = onp.prod([min(b + k, n + p) - b for b, k, n, p in zip(begin, kernel, data.shape[2:], pad)])
        parts = whole if count_include_pad else onp.prod(window.shape[2:])
        result[:, :, y, x] = window.max((2, 3)) if pool_type == "max" else window.sum((2, 3)) / max(parts, 1)
    return (result if data.dtype.kind == "f" else onp.rint(result)).astype(data.dtype), low, high


_RANGE = one(-2.0), one(1.5)
_WEIGHT = one(-0.5), one(0.25)
_SEVERAL = onp.array([-3, -1.26, -1, -0.5, 0, 0.3, 0.5, 1, 2.5])
_SUMS = onp.array([-100000000, -5, 0, 7, 1234567, 2000000000], "int32")
_DATA, _POSITIVE = signed(2, 4, 5, 6), unsigned(2, 4, 5, 6)
_A, _B, _C, _D = signed(3, 4), signed(3, 4), unsigned(3, 4), unsigned(3, 4)
_POOL = {"kernel": (2, 3), "stride": (2, 2), "pad": (1, 1)}
_FLOATS = _rng.standard_normal((2, 2, 5, 6))
_NO = {"gradients": False}

CASES = [
    Case("quantize_v2", [_SEVERAL], {}, quantize_v2, **_NO),
    Case("quantize_v2", [_SEVERAL], {"min_calib_range": -2.0, "max_calib_range": 1.5}, quantize_v2, **_NO),
    Case("quantize_v2", [_SEVERAL], {"out_type": "uint8"}, quantize_v2, **_NO),
    Case("quantize_v2", [abs(_SEVERAL)], {"out_type": "auto", "min_calib_range": 0.0, "max_calib_range": 2.0}, quantize_v2, **_NO),
    Case("quantize_v2", [_SEVERAL], {"out_type": "auto", "min_calib_range": -1.0, "max_calib_range": 2.0}, quantize_v2, **_NO),
    Case("quantize_v2", [_SEVERAL], {"out_type": "auto"}, quantize_v2, **_NO),
    Case("quantize_v2", [0 * _SEVERAL], {}, quantize_v2, name="zeros", **_NO),
    Case("quantize_v2", [_A], {}, quantize_v2, name="levels", **_NO),
    Case("quantize_v2", [_C], {}, quantize_v2, name="unsigned levels", **_NO),
    Case("quantize_v2", [_C], {"min_calib_range": 0.0, "max_calib_range": 2.0}, quantize_v2, name="unsigned levels", **_NO),
    Case("requantize", [_SUMS, *_RANGE], {}, requantize, **_NO),
    Case("requantize", [_SUMS, *_RANGE], {"min_calib_range": -1.0, "max_calib_range": 0.5}, requantize, **_NO),
    Case("requantize", [_SUMS, *_RANGE], {"min_calib_range": 0.0, "max_calib_range": 1.5, "out_type": "auto"}, requantize, **_NO),
    Case("requantize", [_SUMS, *_RANGE], {"out_type": "uint8"}, requantize, **_NO),
    Case("quantized_act", [_A, *_RANGE], {"act_type": "relu"}, lambda x, a, b, act_type: (onp.maximum(x, 0), a, b), **_NO),
    Case("quantized_conv", [_DATA, signed(4, 4, 3, 2), None, *_RANGE, *_WEIGHT], {"kernel": (3, 2), "num_filter": 4, "no_bias": True}, quantized_conv, **_NO),
    Case("quantized_conv", [_POSITIVE, signed(4, 4, 3, 2), signed(4), *_RANGE, *_WEIGHT, one(-1), one(0.5)],
         {"kernel": (3, 2), "num_filter": 4, "stride": (2, 1), "pad": (1, 2), "dilate": (1, 2)}, quantized_conv, **_NO),
    Case("quantized_conv", [_DATA, signed(6, 2, 3, 2), signed(6), *_RANGE, *_WEIGHT, one(-1), one(0.5)],
         {"kernel": (3, 2), "num_filter": 6, "num_group": 2}, quantized_conv, **_NO),
    Case("quantized_fully_connected", [_DATA, signed(3, 120), signed(3), *_RANGE, *_WEIGHT, one(-1), one(0.5)], {"num_hidden": 3}, quantized_fully_connected,
         **_NO),
    Case("quantized_fully_connected", [_POSITIVE, signed(3, 6), None, *_RANGE, *_WEIGHT], {"num_hidden": 3, "no_bias": True, "flatten": False},
         quantized_fully_connected, **_NO),
    Case("quantized_elemwise_add", [_A, _B, *_RANGE, *_WEIGHT], {}, quantized_add, tolerance=2e-6, **_NO),
    Case("quantized_elemwise_add", [_A, _C, *_RANGE, *_WEIGHT], {}, quantized_add, name="of both kinds", **_NO),
    Case("quantized_elemwise_add", [_A, _B, *_RANGE, *_WEIGHT], {"min_calib_range": -1.0, "max_calib_range": 1.5}, quantized_add, **_NO),
    Case("quantized_elemwise_add", [_C, _D, *_RANGE, *_WEIGHT], {"min_calib_range": 0.0, "max_calib_range": 1.5}, quantized_add, name="unsigned", **_NO),
    Case("quantized_npi_add", [_A, signed(4), *_RANGE, *_WEIGHT], {}, quantized_add, **_NO),
    Case("quantized_npi_add", [signed(3, 1), _B, *_RANGE, *_WEIGHT], {"min_calib_range": -1.0, "max_calib_range": 1.5}, quantized_add, **_NO),
    Case("quantized_elemwise_mul", [_A, _B, *_RANGE, *_WEIGHT], {}, quantized_mul, **_NO),
    Case("quantized_elemwise_mul", [_A, _B, *_RANGE, *_WEIGHT], {"min_calib_range": -1.0, "max_calib_range": 0.5}, quantized_mul, **_NO),
    Case("quantized_elemwise_mul", [_A, _B, *_RANGE, *_WEIGHT], {"enable_float_output": True}, quantized_mul, **_NO),
    Case("quantized_embedding", [onp.array([[0, 2], [9, -1.0]]), signed(4, 3), *_RANGE], {"input_dim": 4, "output_dim": 3},
         lambda x, w, a, b, input_dim, output_dim: (w[onp.clip(x, 0, 3).astype(int)], a, b), **_NO),
    Case("quantized_pooling", [_DATA, *_RANGE], _POOL, quantized_pooling, **_NO),
    Case("quantized_pooling", [_DATA, *_RANGE], {**_POOL, "pool_type": "avg"}, quantized_pooling, **_NO),
    Case("quantized_pooling", [_POSITIVE, *_RANGE], {**_POOL, "pool_type": "avg", "count_include_pad": False, "pooling_convention": "full"}, quantized_pooling,
         **_NO),
    Case("quantized_pooling", [_POSITIVE, *_RANGE], {"global_pool": True, "pool_type": "avg"}, quantized_pooling, **_NO),
    Case("quantized_pooling", [_DATA, *_RANGE], {"global_pool": True, "kernel": (2, 2), "pad": (1, 1)}, quantized_pooling, **_NO),
    Case("quantized_pooling", [_FLOATS, *_RANGE], _POOL, quantized_pooling, gradients=(0, )),
    Case("quantized_pooling", [_FLOATS, *_RANGE], {**_POOL, "pool_type": "avg", "count_include_pad": False}, quantized_pooling, gradients=(0, )),
    Case("quantized_pooling", [_FLOATS, *_RANGE], _POOL, quantized_pooling, gradients=(1, 2), exact={1: [0], 2: [0]}, name="no gradient of the range"),
]


# -- intgemm ----------------------------------------------------------------------------------------------
def gemm_level(values, end):
    return onp.clip(onp.rint(values * (127 / end)), -127, 127).astype(I8)


def intgemm(data, weight, scaling=None, bias=None, num_hidden=0, no_bias=False, flatten=True, out_type="float32"):
    scale = 1 if scaling is None else scaling[0]
    if data.dtype.kind == "f":
        end = onp.abs(data).max()
        data, scale = gemm_level(data, end), scale * end / 127
    rows = data.reshape(len(data), -1) if flatten else data
    sums = rows.astype(int) @ weight.astype(int).T
    sums = sums * scale if out_type == "float32" else sums
    return (sums if bias is None else sums + onp.ravel(bias)).astype(out_type)


_TALL, _NARROW, _SIDE = 3 * _rng.standard_normal((4, 64)), _rng.standard_normal((8, 64)), _rng.standard_normal(8)
CASES += [
    Case("intgemm_maxabsolute", [_TALL], {}, lambda x: onp.abs(x).max(keepdims=True)[0], gradients=False),
    Case("intgemm_prepare_data", [_TALL, one(2.5)], {}, lambda x, m: gemm_level(x, m[0]), **_NO),
    Case("intgemm_prepare_weight", [_NARROW, one(2.5)], {}, lambda x, m: gemm_level(x, m[0]), **_NO),
    Case("intgemm_prepare_weight", [signed(8, 64)], {"already_quantized": True}, lambda x, already_quantized: x, **_NO),
    Case("intgemm_fully_connected", [_TALL, signed(8, 64), one(0.02), _SIDE], {"num_hidden": 8}, intgemm, tolerance=1e-5, **_NO),
    Case("intgemm_fully_connected", [signed(4, 64), signed(8, 64), one(0.0002), _SIDE], {"num_hidden": 8}, intgemm, tolerance=1e-5, **_NO),
    Case("intgemm_fully_connected", [signed(4, 64), signed(8, 64)], {"num_hidden": 8, "no_bias": True, "out_type": "int32"}, intgemm, **_NO),
    Case("intgemm_fully_connected", {"data": signed(2, 2, 64), "weight": signed(8, 64), "bias": onp.arange(8, dtype="int32")},
         {"num_hidden": 8, "flatten": False, "out_type": "int32"}, lambda data, weight, bias, **how: intgemm(data, weight, None, bias, **how), **_NO),
    Case("intgemm_fully_connected", [_TALL, signed(8, 64), one(0.02), _SIDE], {"num_hidden": 8}, intgemm, gradients=(0, 3),
         exact={0: 0 * _TALL, 3: onp.full(8, 4.0)}, tolerance=1e-5, name="gradients"),
]


# -- recurrent --------------------------------------------------------------------------------------------
def sigmoid(x):
    return 1 / (1 + onp.exp(-x))


def quantized_rnn(data, parameters, state, state_cell, scale, shift, state_size, num_layers, bidirectional=False, state_outputs=False, **_):
    if scale[0] > 0:
        x = (data.astype(float) - shift[0]) / scale[0]
    else:
        x = scale[0] + data.astype(float) * (shift[0] - scale[0]) / 255
    directions, gates, at, weights, last = 2 if bidirectional else 1, 4 * state_size, 0, [], ([], [])
    for layer in range(num_layers):
        width = x.shape[2] if layer == 0 else directions * state_size
        for _ in range(directions):
            pair = onp.concatenate([parameters[at:at + gates * width].reshape(gates, width),
                                    parameters[at + gates * width:at + gates * (width + state_size)].reshape(gates, state_size)], 1)
            end = onp.abs(pair).max(1, keepdims=True)
            weights.append((onp.sign(pair) * onp.floor(onp.abs(pair) * 127 / end + 0.5) * end / 127, width))
            at += pair.size
    biases = parameters[at:].reshape(len(weights), 2, gates).sum(1)
    for layer in range(num_layers):
        made = []
        for d in range(directions):
            k = layer * directions + d
            (pair, width), h, c, steps = weights[k], state[k], state_cell[k], []
            for row in x[::-1] if d else x:
                i, f, g, o = onp.split(row @ pair[:, :width].T + h @ pair[:, width:].T + biases[k], 4, 1)
                c = sigmoid(f) * c + sigmoid(i) * onp.tanh(g)
                h = sigmoid(o) * onp.tanh(c)
                steps.append(h)
            made.append(onp.stack(steps[::-1] if d else steps))
            last[0].append(h)
            last[1].append(c)
        x = onp.concatenate(made, 2)
    return (x, onp.stack(last[0]), onp.stack(last[1])) if state_outputs else x


def vector(width, size, layers, directions):
    return 0.5 * _rng.standard_normal(sum(directions * 4 * size * ((width if k == 0 else directions * size) + size + 2) for k in range(layers)))


def states(*shape):
    return _rng.standard_normal((2, *shape))


_LSTM = {"state_size": 4, "num_layers": 1, "mode": "lstm"}
CASES += [
    Case("quantized_rnn", [unsigned(3, 2, 5), vector(5, 4, 1, 1), *states(1, 2, 4), one(60.0), one(128.0)], _LSTM, quantized_rnn, gradients=(2, 3)),
    Case("quantized_rnn", [unsigned(3, 2, 5), vector(5, 4, 1, 1), *states(1, 2, 4), one(-1.0), one(2.0)], _LSTM, quantized_rnn, name="by ends", gradients=(2, 3)),
    Case("quantized_rnn", [unsigned(3, 2, 5), vector(5, 4, 2, 2), *states(4, 2, 4), one(60.0), one(128.0)],
         {**_LSTM, "num_layers": 2, "bidirectional": True, "state_outputs": True}, quantized_rnn, gradients=(2, 3)),
    Case("quantized_reshape", [_A, *_RANGE], {"newshape": (2, -1)}, lambda x, a, b, newshape: (x.reshape(2, -1), a, b), **_NO),
    Case("quantized_reshape", [_C, *_RANGE], {"newshape": (-6, 1, 3, -4)}, lambda x, a, b, newshape: (x.reshape(1, 3, 4), a, b), **_NO),
]

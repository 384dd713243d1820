"""What torch computes of convolutions, windows and recurrent layers, in MXNet's parameters."""
import math

import numpy as onp
import torch
from torch.nn import functional as F


def tensors(*arrays):
    return [None if a is None else torch.from_numpy(onp.ascontiguousarray(a)) for a in arrays]


def convolved(x, w, b=None, kernel=None, num_filter=None, stride=None, pad=None, dilate=None, num_group=1, no_bias=False, layout=None):
    if layout:
        x, w = onp.moveaxis(x, -1, 1), onp.moveaxis(w, -1, 1)
    f = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[x.ndim - 2]
    out = f(*tensors(x, w, b), stride=stride or 1, padding=pad or 0, dilation=dilate or 1, groups=num_group).numpy()
    return onp.moveaxis(out, 1, -1) if layout else out


def deconvolved(x, w, b=None, kernel=None, num_filter=None, stride=None, pad=None, dilate=None, adj=None, target_shape=None, num_group=1, no_bias=True):
    f = {1: F.conv_transpose1d, 2: F.conv_transpose2d}[x.ndim - 2]
    if target_shape:
        full = f(*tensors(x, w), stride=stride).shape[2:]
        over = [a - t for a, t in zip(full, target_shape)]
        pad, adj = tuple((o + 1) // 2 for o in over), tuple(o % 2 for o in over)
    return f(*tensors(x, w, b), stride=stride or 1, padding=pad or 0, dilation=dilate or 1, output_padding=adj or 0, groups=num_group).numpy()


def pooled(x, kernel=None, pool_type="max", global_pool=False, pooling_convention="valid", stride=None, pad=None, p_value=None,
           count_include_pad=True, layout=None):
    """Window by window."""
    if layout:
        return onp.moveaxis(pooled(onp.moveaxis(x, -1, 1), kernel, pool_type), 1, -1)
    spatial = x.shape[2:]
    n = len(spatial)
    if global_pool:
        kernel, stride, pad = spatial, (1, ) * n, (0, ) * n
    stride, pad = stride or (1, ) * n, pad or (0, ) * n
    sizes = [{"valid": (e + 2 * p - k) // s + 1, "full": math.ceil((e + 2 * p - k) / s) + 1, "same": math.ceil((e + 2 * p) / s)}[pooling_convention]
             for e, k, s, p in zip(spatial, kernel, stride, pad)]
    out = onp.zeros((*x.shape[:2], *sizes))
    for place in onp.ndindex(*sizes):
        begin = [o * s - p for o, s, p in zip(place, stride, pad)]
        end = [min(b + k, e + p) for b, k, e, p in zip(begin, kernel, spatial, pad)]
        window = x[(slice(None), slice(None), *(slice(max(b, 0), min(c, e)) for b, c, e in zip(begin, end, spatial)))].reshape(*x.shape[:2], -1)
        count = math.prod(c - b for b, c in zip(begin, end)) if count_include_pad else window.shape[2]
        if pool_type == "lp":
            total = (window**p_value).sum(2)
            out[(..., *place)] = onp.sign(total) * abs(total)**(1 / p_value)
        else:
            out[(..., *place)] = {"max": window.max(2), "sum": window.sum(2), "avg": window.sum(2) / count}[pool_type]
    return out


def _sigmoid(x):
    return 1 / (1 + onp.exp(-x))


def _gates(mode):
    return {"lstm": 4, "gru": 3}.get(mode, 1)


def vector_length(mode, layers, directions, width, size, projection=None):
    total, out = 0, projection or size
    for layer in range(layers):
        one = _gates(mode) * size * ((width if layer == 0 else directions * out) + out + 2) + (out * size if projection else 0)
        total += directions * one
    return total


def recurrent(given, state_size, num_layers, mode, bidirectional=False, state_outputs=False, use_sequence_length=False, projection_size=None,
              lstm_state_clip_min=None, lstm_state_clip_max=None):
    """Step by step."""
    x, vector, state, cell = given["data"], given["parameters"], given["state"], given.get("state_cell")
    directions, rows, out = 2 if bidirectional else 1, _gates(mode) * state_size, projection_size or state_size
    at = 0

    def take(*shape):
        nonlocal at
        at += math.prod(shape)
        return vector[at - math.prod(shape):at].reshape(shape)
    weights = [[(take(rows, x.shape[2] if layer == 0 else directions * out), take(rows, out), take(out, state_size) if projection_size else None)
                for _ in range(directions)] for layer in range(num_layers)]
    biases = [[(take(rows), take(rows)) for _ in range(directions)] for _ in range(num_layers)]
    lengths = given["sequence_length"].astype(int) if use_sequence_length else onp.full(x.shape[1], x.shape[0])
    ends, cells = [], []
    for layer in range(num_layers):
        made = []
        for d in range(directions):
            h, c = state[layer * directions + d].copy(), None if cell is None else cell[layer * directions + d].copy()
            result = onp.zeros((*x.shape[:2], out))
            for t in (reversed(range(x.shape[0])) if d else range(x.shape[0])):
                new, new_c = _step(mode, x[t], h, c, weights[layer][d], biases[layer][d], lstm_state_clip_min, lstm_state_clip_max)
                inside = (t < lengths)[:, None]
                h = onp.where(inside, new, h)
                c = None if c is None else onp.where(inside, new_c, c)
                result[t] = onp.where(inside, h, 0)
            made.append(result)
            ends.append(h)
            cells.append(c)
        x = onp.concatenate(made, 2)
    states = [onp.stack(ends)] + ([onp.stack(cells)] if mode == "lstm" else [])
    return [x, *states] if state_outputs else x


def _step(mode, x, h, c, weights, biases, low, high):
    w, r, projection = weights
    a, b = x @ w.T + biases[0], h @ r.T + biases[1]
    if mode == "lstm":
        i, f, g, o = onp.split(a + b, 4, 1)
        c = _sigmoid(f) * c + _sigmoid(i) * onp.tanh(g)
        c = c if low is None else onp.clip(c, low, high)
        out = _sigmoid(o) * onp.tanh(c)
        return out if projection is None else out @ projection.T, c
    if mode == "gru":
        (ra, za, na), (rb, zb, nb) = onp.split(a, 3, 1), onp.split(b, 3, 1)
        reset, update = _sigmoid(ra + rb), _sigmoid(za + zb)
        return (1 - update) * onp.tanh(na + reset * nb) + update * h, None
    return onp.maximum(a + b, 0) if mode == "rnn_relu" else onp.tanh(a + b), None

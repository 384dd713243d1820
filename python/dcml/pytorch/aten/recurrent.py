"""Rows of recurrent layers: each layer of an RNN or GRU is one ONNX node, each direction of an LSTM one of our own.

ONNX keeps the gates in another order than torch.  A GRU's weights are cut and joined by gate: for fixed weights that is folded
away, for trained ones it is one pass over the weights.
"""

import torch

from .builder import dims, rank, row
from .private import of_library, operator

# torch's gate order -> ONNX's: rzn -> zrh
_GATES = {"GRU": (1, 0, 2), "RNN": (0,)}


def _regate(b, name, kind, hidden, axis=0):
    order = _GATES[kind]
    if len(order) == 1:
        return name
    gates = b.op("Split", name, b.const([hidden] * len(order)), outs=len(order), axis=axis)
    return b.op("Concat", *[gates[g] for g in order], axis=axis)


def _direction(b, kind, hidden, weights):
    """(W, R, B) of one direction with ONNX's leading direction axis; weights: w_ih, w_hh and two biases, which may be None."""
    w, r = (b.unsqueeze(_regate(b, b(weight), kind, hidden), 0) for weight in weights[:2])
    if weights[2] is None:
        return w, r, None
    bias = b.op("Concat", *[_regate(b, b(weight), kind, hidden) for weight in weights[2:4]], axis=0)
    return w, r, b.unsqueeze(bias, 0)


def _node(b, kind, x, parts, hidden, state, activation, lengths=None):
    """One node over all directions: returns its outputs Y [T, D, N, H] and final states [D, N, H]."""
    def joined(values):
        return values[0] if len(values) == 1 or values[0] is None else b.op("Concat", *values, axis=0)
    w, r, bias = (joined(values) for values in zip(*parts))
    attrs = {"GRU": {"linear_before_reset": 1},
             "RNN": {"activations": [activation] * len(parts)}}.get(kind, {})
    direction = "bidirectional" if len(parts) == 2 else "forward"
    return b.op(kind, x, w, r, bias, lengths, *state, outs=2, hidden_size=hidden, direction=direction, **attrs)


def _lstm(b, x, parts, states, lengths=None):
    """A layer of LSTM, of the weights of each direction: returns its outputs Y [T, N, D H] and final states [D, N, H]."""
    made = []
    for k, weights in enumerate(parts):
        given = [b.squeeze(s, 0) if len(parts) == 1 else b.op("Gather", s, b.const(k), axis=0) for s in states]
        made.append(b.op("LSTM", x, *[b(w) for w in weights], *given, lengths, outs=3, domain="dcml", reverse=k))
    y, *last = zip(*made)
    last = [b.unsqueeze(s[0], 0) if len(s) == 1 else b.op("Concat", *[b.unsqueeze(v, 0) for v in s], axis=0) for s in last]
    return y[0] if len(y) == 1 else b.op("Concat", *y, axis=2), *last


def _layer(kind, activation=None):
    """An operator of the library ``dcml`` (traceable.py) and its row."""
    def kinds(x, states, weights, has_bias, bidirectional, batch_first, lengths=None):
        width = states[0].shape[-1] * (2 if bidirectional else 1)
        return x.new_empty((*x.shape[:2], width)), *[x.new_empty(s.shape) for s in states]

    def layer(b, n, x, states, weights, has_bias, bidirectional, batch_first, lengths=None):
        hidden, per, r = dims(weights[1])[1], 4 if has_bias else 2, [1, 0, 2]
        groups = [_padded(weights[k:k + per]) for k in range(0, len(weights), per)]
        given, states, lengths = b.transpose(b(x), r) if batch_first else b(x), [b(s) for s in states], b(lengths, torch.int32)
        if kind == "LSTM":
            y, *last = _lstm(b, given, groups, states, lengths)
        else:
            out, *last = _node(b, kind, given, [_direction(b, kind, hidden, g) for g in groups], hidden, states, activation, lengths)
            # [T, D, N, H] -> [T, N, D H]
            y = b.squeeze(out, 1) if len(groups) == 1 else \
                b.op("Reshape", b.transpose(out, [0, 2, 1, 3]), b.const([0, 0, len(groups) * hidden]))
        return [b.transpose(y, r) if batch_first else y, *last]
    return kinds, layer


for _name, _kind, _activation in (("lstm", "LSTM", None), ("gru", "GRU", None), ("rnn_tanh", "RNN", "Tanh"),
                                  ("rnn_relu", "RNN", "Relu")):
    _kinds, _row = _layer(_kind, _activation)
    of_library(_name)(_row)
    operator(f"{_name}(Tensor x, Tensor[] states, Tensor[] weights, bool has_bias, bool bidirectional, bool batch_first, "
             "Tensor? lengths=None)"
             f" -> (Tensor, Tensor{', Tensor' if _kind == 'LSTM' else ''})")(_kinds)


def _cell(b, kind, x, states, weights, activation=None):
    """A cell is a layer of one step."""
    hidden = dims(weights[1])[1]
    lead = rank(x) == 1
    y = b.unsqueeze(b(x), 0, 1) if lead else b.unsqueeze(b(x), 0)
    state = [b.unsqueeze(b(s), 0, 1) if lead else b.unsqueeze(b(s), 0) for s in states]
    _, *last = _lstm(b, y, [weights], state) if kind == "LSTM" else \
        _node(b, kind, y, [_direction(b, kind, hidden, weights)], hidden, state, activation)
    return [b.squeeze(v, 0, 1) if lead else b.squeeze(v, 0) for v in last]


@row("gru_cell.default")
def _(b, n, x, state, *weights):
    return _cell(b, "GRU", x, [state], _padded(weights))[0]


@row("rnn_tanh_cell.default", "rnn_relu_cell.default")
def _(b, n, x, state, *weights):
    return _cell(b, "RNN", x, [state], _padded(weights), "Tanh" if "tanh" in str(n.target) else "Relu")[0]


@row("lstm_cell.default")
def _(b, n, x, states, *weights):
    return _cell(b, "LSTM", x, states, _padded(weights))


def _padded(weights):
    return list(weights) + [None] * (4 - len(weights))

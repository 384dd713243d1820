"""Recurrent layers: MXNet's fused vector of parameters, taken apart.

The one idea: each layer and direction is one operator; gru and the plain ones are ONNX's with other orders of gates.
Must not know: how arrays are recorded.
"""
import itertools
import math

import numpy as onp

from ... import _core
from .. import functions as np
from ..array import cast, invoke
from .layers import dropout
from .rows import inputs, written

__all__ = ["rnn"]
_I32 = onp.dtype("int32")
_GATES = {"lstm": 4, "gru": 3, "rnn_relu": 1, "rnn_tanh": 1}


def _cut(vector, sizes):
    """Consecutive parts of a vector, each in its shape."""
    counts = [math.prod(shape) for shape in sizes]
    if vector.ndim != 1 or vector.size != sum(counts):
        raise _core.ShapeError(f"rnn: 'parameters' is a vector of {sum(counts)} elements, got shape {vector.shape}")
    return [np.reshape(part, shape) for part, shape in zip(np.split(vector, list(itertools.accumulate(counts[:-1]))), sizes)]


@written
def rnn(data=None, parameters=None, state=None, state_cell=None, sequence_length=None, state_size=None,
        num_layers=None, bidirectional=False, mode=None, p=0.0, state_outputs=False, projection_size=None,
        lstm_state_clip_min=None, lstm_state_clip_max=None, lstm_state_clip_nan=False, use_sequence_length=False):
    """Recurrent layers: mode is lstm (gates i, f, g, o), gru (r, z, n), rnn_tanh or rnn_relu.

    data: [length, batch, input]; parameters: a vector of, by layer and direction, the weights of the input [gates * size, .] and
    of the state [gates * size, .] (and of the projection), then by layer and direction their biases; state, state_cell:
    [layers * directions, batch, size].  sequence_length: [batch], counts with use_sequence_length: what lies behind is 0.
    p: dropout between layers in training.  Returns [length, batch, directions * size]; with state_outputs a list of it and the
    last states."""
    if mode not in _GATES:
        raise _core.ValueError_(f"rnn: mode is one of {', '.join(_GATES)}, got {mode!r}")
    for name, value in (("state_size", state_size), ("num_layers", num_layers)):
        if not isinstance(value, int) or value < 1:
            raise TypeError(f"rnn(): {name!r} is a positive integer, got {value!r}")
    x, vector, hidden = inputs("rnn", data=data, parameters=parameters, state=state)
    cell = inputs("rnn", state_cell=state_cell)[0] if mode == "lstm" else None
    lengths = inputs("rnn", sequence_length=sequence_length)[0] if use_sequence_length else None
    directions, gates, size = (2 if bidirectional else 1), _GATES[mode], state_size
    width = projection_size or size
    if projection_size and mode != "lstm":
        raise _core.ValueError_("rnn: only lstm has a projection_size")
    if (lstm_state_clip_min is None) != (lstm_state_clip_max is None):
        raise _core.ValueError_("rnn: lstm_state_clip_min and lstm_state_clip_max go together")
    if x.ndim != 3:
        raise _core.ShapeError(f"rnn: data is [length, batch, input], got shape {x.shape}")
    for name, value, extent in (("state", hidden, width), ("state_cell", cell, size)):
        if value is not None and value.shape != (num_layers * directions, x.shape[1], extent):
            raise _core.ShapeError(f"rnn: {name!r} has shape {(num_layers * directions, x.shape[1], extent)}, got {value.shape}")
    shapes = []
    for layer in range(num_layers):
        of_input = x.shape[2] if layer == 0 else directions * width
        shapes += [(gates * size, of_input), (gates * size, width), *([(width, size)] if projection_size else [])] * directions
    parts = _cut(vector, shapes + [(gates * size, )] * (2 * num_layers * directions))
    weights, biases = parts[:len(shapes)], parts[len(shapes):]
    each = len(weights) // (num_layers * directions)
    clip = {} if lstm_state_clip_min is None else {"clip_min": float(lstm_state_clip_min), "clip_max": float(lstm_state_clip_max),
                                                   "clip_nan": int(bool(lstm_state_clip_nan))}
    last = [[], []]
    for layer in range(num_layers):
        if layer and p:
            x = dropout(x, p)
        made = []
        for k in range(layer * directions, (layer + 1) * directions):
            states = [hidden[k], None if cell is None else cell[k]]
            of_k = weights[k * each:(k + 1) * each], biases[2 * k:2 * k + 2]
            results = _direction(mode, k % directions, x, *of_k, states, lengths, size, clip)
            made.append(results[0])
            for place, value in zip(last, results[1:]):
                place.append(value)
        x = made[0] if directions == 1 else np.concatenate(made, 2)
    return [x, *(np.stack(values) for values in last if values)] if state_outputs else x


def _direction(mode, reverse, x, weights, biases, states, lengths, size, clip):
    """A layer in one direction: its results for all steps, and the last states."""
    if mode == "lstm":
        given = (x, *weights[:2], *biases, *states, lengths, *weights[2:])
        return invoke("LSTM", "dcml", 1, given if given[-1] is not None else given[:-1], {"reverse": reverse, **clip}, 3)
    w, r = weights
    bw, br = biases
    if mode == "gru":  # ONNX has z before r
        w, r, bw, br = (np.concatenate([v[size:2 * size], v[:size], v[2 * size:]]) for v in (w, r, bw, br))
    attributes = {"hidden_size": size, "direction": "reverse" if reverse else "forward"}
    if mode == "gru":
        attributes["linear_before_reset"] = 1
    else:
        attributes["activations"] = ("Relu" if mode == "rnn_relu" else "Tanh", )
    b = np.expand_dims(np.concatenate([bw, br]), 0)
    h = np.expand_dims(states[0], 0)
    lengths = None if lengths is None else cast(lengths, _I32)
    given = (x, np.expand_dims(w, 0), np.expand_dims(r, 0), b, lengths, h)
    made, end = invoke("GRU" if mode == "gru" else "RNN", "", 21, given, attributes, 2)
    return [np.squeeze(made, 1), np.squeeze(end, 0)]

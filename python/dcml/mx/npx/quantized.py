"""Operators on numbers of eight bits that are more than a row.

The one idea: the number of results depends on attributes, or operators on floats do the work behind what rows make of the levels.
Must not know: how rows compute.
"""
from ... import _core
from ..array import invoke
from .recurrent import rnn
from .rows import DOMAIN, inputs, signature_of, written
from .shapes import reshape

__all__ = ["quantized_elemwise_mul", "quantized_reshape", "quantized_rnn"]


@written
def quantized_elemwise_mul(*args, **kwargs):
    """The product of two arrays of int8, with its range: [int32, min, max], each range of shape (1,).

    Arguments: lhs, rhs, lhs_min, lhs_max, rhs_min, rhs_max; with min_calib_range and max_calib_range the product is int8
    in that range; with enable_float_output it is one array of float32.
    Raises TypeError for arguments that do not fit, dcml.ShapeError for shapes that cannot be broadcast.
    Source: MXNet's npx.quantized_elemwise_mul."""
    given, attributes = signature_of("quantized_elemwise_mul_", "quantized_elemwise_mul").bind(args, kwargs)
    made = invoke("quantized_elemwise_mul_", DOMAIN, 1, given, attributes)
    return made[0] if attributes.get("enable_float_output") else made


@written
def quantized_reshape(data=None, min_data=None, max_data=None, newshape=None, reverse=False, order="C"):
    """The elements in another shape, whose codes are those of ``reshape``, and their range: [array, min, max].

    Raises TypeError without an input or a shape, dcml.ShapeError for a shape that does not fit.
    Source: MXNet's npx.quantized_reshape."""
    levels, *ends = inputs("quantized_reshape", data=data, min_data=min_data, max_data=max_data)
    return [reshape(levels, newshape, reverse, order), *(reshape(end, 1) for end in ends)]


@written
def quantized_rnn(data=None, parameters=None, state=None, state_cell=None, data_scale=None, data_shift=None, state_size=None,
                  num_layers=None, bidirectional=False, mode=None, p=0.0, state_outputs=False, projection_size=None,
                  lstm_state_clip_min=None, lstm_state_clip_max=None, lstm_state_clip_nan=False, use_sequence_length=False):
    """An LSTM of ``rnn`` on uint8, [length, batch, input], with weights rounded to int8; states and results are float32.

    A level q of data stands for (q - data_shift) / data_scale; where data_scale is not positive the two are the ends of the
    range instead, of which data has 255ths.  Weights have 127ths of the greatest of their gate's row, in each layer and direction.
    Returns what ``rnn`` returns.  Raises TypeError without an input, dcml.ValueError_ for another mode, a projection or
    sequence lengths, dcml.DTypeError for data that is not uint8, dcml.ShapeError.
    Source: MXNet's npx.quantized_rnn."""
    if mode != "lstm" or projection_size or use_sequence_length:
        raise _core.ValueError_(f"quantized_rnn: mode is 'lstm', without projection_size or use_sequence_length, got mode {mode!r}")
    for name, value in (("state_size", state_size), ("num_layers", num_layers)):
        if not isinstance(value, int) or value < 1:
            raise TypeError(f"quantized_rnn(): {name!r} is a positive integer, got {value!r}")
    levels, vector, scale, shift = inputs("quantized_rnn", data=data, parameters=parameters, data_scale=data_scale, data_shift=data_shift)
    if levels.ndim != 3:
        raise _core.ShapeError(f"quantized_rnn: data is [length, batch, input], got shape {levels.shape}")
    if num_layers * 8 * state_size > vector.size:  # the biases alone: nobody waits for layers that are not there
        raise _core.ShapeError(f"quantized_rnn: 'parameters' of {vector.size} elements are too few for {num_layers} layers of {state_size}")
    sizes = {"input_size": levels.shape[2], "state_size": state_size, "num_layers": num_layers, "directions": 2 if bidirectional else 1}
    real, = invoke("quantized_rnn_data_", DOMAIN, 1, (levels, scale, shift, vector))
    weights, = invoke("quantized_rnn_weights_", DOMAIN, 1, (vector, ), sizes)
    return rnn(real, weights, state, state_cell, None, state_size, num_layers, bidirectional, mode, p, state_outputs, None,
               lstm_state_clip_min, lstm_state_clip_max, lstm_state_clip_nan)

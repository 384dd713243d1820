"""Values of attributes, as Python holds them and as the core takes them.

Must not know: operators or nodes.
"""
import numbers

from ..schema import ONNXAttributeType as Type

_ONE = {Type.Int: numbers.Integral, Type.Float: numbers.Real, Type.String: (str, bytes)}
_MANY = {Type.Ints: Type.Int, Type.Floats: Type.Float, Type.Strings: Type.String}
_MADE = {Type.Int: int, Type.Float: float, Type.String: lambda v: v.decode("utf-8", "surrogateescape") if isinstance(v, bytes) else v}
_WORDS = {Type.Int: "int", Type.Float: "float", Type.String: "str", Type.Ints: "List[int]", Type.Floats: "List[float]",
          Type.Strings: "List[str]", Type.Tensor: "numpy.ndarray", Type.Unsupported: "a value that dcml does not support"}


def type_word(kind):
    """How an ONNXAttributeType is written in Python."""
    return _WORDS[kind]


def attribute_value(what, kind, value):
    """The value as the core takes it.

    what: names the attribute in messages; kind: its ONNXAttributeType; value: a Python value, also numpy's.
    Returns int, float, str, a list of them or a numpy array.  Raises TypeError if the value is of another type.
    """
    if kind in _ONE and isinstance(value, _ONE[kind]):
        return _MADE[kind](value)
    if kind in _MANY and not isinstance(value, (str, bytes)) and hasattr(value, "__iter__"):
        return [attribute_value(f"{what}[{k}]", _MANY[kind], item) for k, item in enumerate(value)]
    if kind is Type.Tensor and not isinstance(value, (str, bytes, dict)):
        return _array(what, value)
    if kind is Type.Unsupported and (isinstance(value, (int, float, str, list, tuple)) or hasattr(value, "dtype")):
        return value
    raise TypeError(f"{what} is {_WORDS[kind]}, not {value!r}")


def _array(what, value):
    import numpy as np
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{what} is numpy.ndarray, not {value!r}: {error}") from None
    if array.dtype.kind not in "biufcOV":
        raise TypeError(f"{what} is an array of {array.dtype}, which ONNX lacks")
    return array


__all__ = ["attribute_value", "type_word"]

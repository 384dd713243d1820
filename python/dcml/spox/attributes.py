"""Attributes: what a caller may give for each kind, what a node keeps of it, and how a model writes it.

The one idea: a value is checked and frozen at the call, so that an error comes from the line that is wrong.
Must not know: operators.
"""
import numbers

import numpy as np

from . import types

HINTS = {"int": "int", "float": "float", "text": "str", "tensor": "np.ndarray", "type": "Type", "dtype": "npt.DTypeLike",
         "ints": "Iterable[int]", "floats": "Iterable[float]", "texts": "Iterable[str]", "tensors": "Iterable[np.ndarray]",
         "type_protos": "Iterable[Type]"}
_KINDS = {"INT": "int", "FLOAT": "float", "STRING": "text", "TENSOR": "tensor", "TYPE_PROTO": "type", "GRAPH": "graph", "INTS": "ints",
          "FLOATS": "floats", "STRINGS": "texts", "TENSORS": "tensors", "SPARSE_TENSOR": "sparse", "SPARSE_TENSORS": "sparse",
          "TYPE_PROTOS": "type_protos"}
_FIELDS = {"int": ("INT", "i"), "dtype": ("INT", "i"), "float": ("FLOAT", "f"), "ints": ("INTS", "ints"), "floats": ("FLOATS", "floats")}


def kind_of(name, kind):
    """The kind of an attribute by its name and the type that its schema gives; an integer that names an element type is
    given as numpy gives it."""
    return "dtype" if kind == "INT" and name in ("to", "dtype") else _KINDS[kind]


# -- from a caller ------------------------------------------------------------------------------------
def _int(value):
    if not isinstance(value, numbers.Integral) and not (isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype.kind in "biu"):
        raise TypeError
    number = int(value)
    if not -1 << 63 <= number < 1 << 63:
        raise TypeError(f"{number} has more than 64 bits")
    return number


def _float(value):
    if isinstance(value, (numbers.Real, np.floating)) or (isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype.kind in "biuf"):
        return float(value)
    raise TypeError


def _text(value):
    if isinstance(value, str):
        return str(value)
    raise TypeError


def _array(value):
    if not isinstance(value, (np.ndarray, np.generic)):
        raise TypeError
    array = np.array(value, order="C")
    if array.dtype.kind == "O":
        if not all(isinstance(item, str) for item in array.ravel()):
            raise TypeError("an array of objects other than str")
        return array.astype(str)
    types.code_of(array.dtype)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return array.view(f"{array.dtype.kind}{array.dtype.itemsize}") if array.dtype.kind in "iu" else array  # C's long long is an int64


def _type(value):
    if isinstance(value, types.Type):
        return value
    raise TypeError


def _dtype(value):
    return types.code_of(value)


def _each(one):
    def convert(value):
        if isinstance(value, (str, bytes, dict)) or not hasattr(value, "__iter__"):
            raise TypeError
        return tuple([one(item) for item in (value.ravel() if isinstance(value, np.ndarray) and value.ndim == 1 else value)])
    return convert


_CONVERT = {"int": _int, "float": _float, "text": _text, "tensor": _array, "type": _type, "dtype": _dtype, "ints": _each(_int),
            "floats": _each(_float), "texts": _each(_text), "tensors": _each(_array), "type_protos": _each(_type)}


def convert(operator, name, kind, value):
    """What a node keeps of a value; TypeError that tells what was expected, and what came."""
    try:
        return _CONVERT[kind](value)
    except (TypeError, ValueError, OverflowError) as error:
        came = type(value).__name__
        if kind.endswith("s") and isinstance(value, (list, tuple)) and value:
            came += f" of {', '.join(sorted({type(item).__name__ for item in value}))}"
        detail = f": {error}" if str(error) else ""
        raise TypeError(f"{operator.function}(): attribute {name!r} is {HINTS[kind]}, got {came}{detail}") from None


# -- into a model -------------------------------------------------------------------------------------
def write(proto, name, kind, value):
    """Fills an AttributeProto."""
    proto.name = name
    if kind in _FIELDS:
        word, field = _FIELDS[kind]
        proto.type = getattr(type(proto), word)
        if kind in ("ints", "floats"):
            getattr(proto, field).extend(value)
        else:
            setattr(proto, field, value)
    elif kind == "text":
        proto.type, proto.s = type(proto).STRING, value.encode()
    elif kind == "texts":
        proto.type = type(proto).STRINGS
        proto.strings.extend([item.encode() for item in value])
    elif kind == "tensor":
        proto.type = type(proto).TENSOR
        proto.t.CopyFrom(tensor_proto(value))
    elif kind == "tensors":
        proto.type = type(proto).TENSORS
        proto.tensors.extend(map(tensor_proto, value))
    elif kind == "type":
        proto.type = type(proto).TYPE_PROTO
        proto.tp.CopyFrom(types.to_proto(value))
    else:
        proto.type = type(proto).TYPE_PROTOS
        proto.type_protos.extend(map(types.to_proto, value))


def tensor_proto(array, name=""):
    """A TensorProto of an array, strings included."""
    from onnx import numpy_helper
    return numpy_helper.from_array(array.astype(object) if array.dtype.kind == "U" else array, name)


def for_core(kind, value):
    """The attribute as the core takes it."""
    return list(value) if isinstance(value, tuple) else value

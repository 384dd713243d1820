"""Python values as tensors and attributes, the same in a model and when a script runs eagerly.

The one idea: an int is an int64, a float a float32, a list one tensor; what is not told by that is numpy's to say.
Must not know: scripts.
"""
import numpy as np

from .onnx_types import is_type

_PYTHON = {bool: np.bool_, int: np.int64, float: np.float32}


def is_proto(value, kind="TensorProto"):
    """Whether a value is ONNX's message of a kind; onnx need not be there to ask."""
    return type(value).__name__ == kind


def is_number(value):
    """A Python number or text, or numpy's scalar."""
    return isinstance(value, (bool, int, float, str, np.generic))


def is_numbers(value):
    """A list of Python numbers or texts, or of such lists."""
    return isinstance(value, (list, tuple)) and all([is_number(item) or is_numbers(item) for item in value])


def is_constant(value):
    """Whether array_of takes it."""
    return is_number(value) or is_numbers(value) or isinstance(value, np.ndarray) or is_proto(value)


def array_of(value, dtype=None):
    """The array that a constant is; dtype: of a list without elements.  Raises TypeError, or ValueError for a ragged list."""
    if is_proto(value):
        from onnx import numpy_helper
        return numpy_helper.to_array(value)
    if isinstance(value, (list, tuple)):
        return _of_list(value, dtype)
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "O" and not all([isinstance(item, (str, bytes)) for item in value.ravel()]):
            raise TypeError("an array of objects other than str is no tensor")
        return value.astype(object) if value.dtype.kind == "U" else value
    if isinstance(value, str):
        return np.array(value, object)
    if isinstance(value, int) and not -1 << 63 <= value < 1 << 63:
        raise TypeError(f"{value} has more than 64 bits")
    if is_number(value):
        return np.asarray(value, _PYTHON.get(type(value)))
    raise TypeError(f"{type(value).__name__} is no tensor")


def _of_list(value, dtype):
    kinds = set(map(type, _flat(value)))
    if not kinds:
        return np.zeros(np.shape(value), dtype or np.int64)
    if kinds == {str}:
        return np.array(value, object)
    if str in kinds:
        raise TypeError("a list of texts and numbers is no tensor")
    if kinds <= _PYTHON.keys():
        return np.array(value, _PYTHON[next(k for k in (float, int, bool) if k in kinds)])
    array = np.array(value)
    if array.dtype.kind not in "biufcV":
        raise TypeError(f"a list of {' and '.join(sorted(kind.__name__ for kind in kinds))} is no tensor")
    return array


def _flat(value):
    for item in value:
        if isinstance(item, (list, tuple)):
            yield from _flat(item)
        else:
            yield item


def tensor_proto(value, name):
    """The TensorProto of a constant."""
    from onnx import TensorProto, numpy_helper
    if is_proto(value):
        proto = TensorProto()
        proto.CopyFrom(value)
        proto.name = name
        return proto
    return numpy_helper.from_array(np.asarray(array_of(value), order="C"), name)


# -- attributes -------------------------------------------------------------------------------------
def _int(value):
    if is_type(value):
        return int(value.dtype)
    if isinstance(value, (bool, int, np.integer, np.bool_)) or hasattr(value, "__index__"):
        return int(value)
    raise TypeError


def _float(value):
    if isinstance(value, (bool, int, float, np.integer, np.floating)):
        return float(value)
    raise TypeError


def _text(value):
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, str):
        return value
    raise TypeError


def _each(one):
    def convert(value):
        if isinstance(value, (str, bytes, dict)) or not hasattr(value, "__iter__"):
            raise TypeError
        return [one(item) for item in value]
    return convert


def _tensor(value):
    return value if is_proto(value) else array_of(value)


def _as_given(value):
    return value


def _type(value):
    if is_type(value):
        return value.to_type_proto()
    if is_proto(value, "TypeProto"):
        return value
    raise TypeError


_CONVERT = {"INT": _int, "FLOAT": _float, "STRING": _text, "INTS": _each(_int), "FLOATS": _each(_float), "STRINGS": _each(_text),
            "TENSOR": _tensor, "TENSORS": _each(_tensor), "TYPE_PROTO": _type, "TYPE_PROTOS": _each(_type)}
_WORDS = {"INT": "an int", "FLOAT": "a float", "STRING": "a str", "INTS": "a list of ints", "FLOATS": "a list of floats",
          "STRINGS": "a list of str", "TENSOR": "a tensor", "TYPE_PROTO": "a type", "GRAPH": "a function under @graph()"}


def attribute_value(name, kind, value):
    """The value as an attribute of ONNX's kind ("INT", ...) holds it; TypeError that tells what was expected."""
    try:
        return _CONVERT.get(kind, _as_given)(value)
    except (TypeError, ValueError, OverflowError) as error:
        detail = f": {error}" if str(error) else ""
        raise TypeError(f"attribute {name!r} is {_WORDS.get(kind, kind)}, not {type(value).__name__} {value!r:.60}{detail}") from None


def kind_of(value):
    """The kind of an attribute that nothing declares; TypeError."""
    if is_proto(value) or isinstance(value, np.ndarray):
        return "TENSOR"
    items = value if isinstance(value, (list, tuple)) else ()
    for kinds, name in (((bool, int, np.integer, np.bool_), "INT"), ((float, int, np.floating), "FLOAT"), ((str, bytes), "STRING")):
        if isinstance(value, kinds):
            return name
        if items and all([isinstance(item, kinds) for item in items]):
            return name + "S"
    if is_type(value):
        return "INT"
    if isinstance(value, (list, tuple)) and not value:
        return "INTS"
    for kind, message in (("TYPE_PROTO", "TypeProto"), ("GRAPH", "GraphProto"), ("SPARSE_TENSOR", "SparseTensorProto")):
        if is_proto(value, message):
            return kind
    raise TypeError(f"{type(value).__name__} is no attribute of ONNX's")


def attribute_proto(name, kind, value):
    """The AttributeProto of a value that attribute_value gave."""
    from onnx import AttributeProto, helper
    if kind == "TENSOR" and not is_proto(value):
        value = tensor_proto(value, name)
    return helper.make_attribute(name, value, attr_type=getattr(AttributeProto, kind))

"""Values between segments: numpy arrays and torch tensors (mixed as they come), lists for sequences, None for an
empty optional, dicts for maps, arrays of objects for strings.

Must not know: graphs or operators.
"""
import functools
import sys

import numpy as np

# Names of element types, as numpy and torch spell them, to ONNX's codes.
CODES = {"float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "bool": 9, "float16": 10,
         "float64": 11, "uint32": 12, "uint64": 13, "bfloat16": 16, "float8_e4m3fn": 17, "float8_e4m3fnuz": 18,
         "float8_e5m2": 19, "float8_e5m2fnuz": 20, "uint4": 21, "int4": 22, "float4_e2m1fn": 23, "float8_e8m0fnu": 24,
         "uint2": 25, "int2": 26}
NAMES = {code: name for name, code in CODES.items()}
STRING, COMPLEX = 8, {14: "complex64", 15: "complex128"}
# The kinds of values of table.py.
KINDS = {"t": "a tensor", "s": "strings", "x": "a tensor", "q": "a sequence", "m": "a map", "a": "a value"}


def dtype_of(code):
    """The numpy type of an ONNX element type; KeyError for one that numpy lacks."""
    if code == STRING:
        return np.dtype(object)
    name = COMPLEX.get(code) or NAMES[code]
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes
        return np.dtype(getattr(ml_dtypes, name))


def code_of(value):
    """ONNX's element type of an array or tensor; 0 for what the core does not compute with."""
    return _code(getattr(value, "dtype", None))


@functools.lru_cache(256)
def _code(dtype):
    return CODES.get(str(dtype).removeprefix("torch."), 0)


def is_torch(value):
    torch = sys.modules.get("torch")
    return torch is not None and issubclass(type(value), torch.Tensor)


def is_string(value):
    return isinstance(value, np.ndarray) and value.dtype.kind in "OUS"


def is_complex(value):
    return isinstance(value, np.ndarray) and value.dtype.kind == "c"


def as_value(value):
    """What a caller gives, in the forms above."""
    if is_torch(value):
        return as_numpy(value) if value.is_complex() else value
    if value is None or issubclass(type(value), dict):
        return value
    if issubclass(type(value), (list, tuple)):
        return [as_value(v) for v in value]
    array = np.asarray(value)
    if array.dtype.kind == "S":
        return np.array([s.decode("utf-8", "surrogateescape") for s in array.ravel()], object).reshape(array.shape)
    return array.astype(object) if array.dtype.kind == "U" else array


def as_numpy(value):
    if not is_torch(value):
        return np.asarray(value)
    value, code = value.detach().cpu().resolve_conj().resolve_neg(), code_of(value)
    if code and dtype_of(code).kind == "V":  # a type that torch has and numpy has not
        import torch
        return value.contiguous().view(getattr(torch, f"uint{8 * value.element_size()}")).numpy().view(dtype_of(code))
    return value.numpy()


def scalar(value):
    """The only element of an array."""
    if not code_of(value) or as_numpy(value).size != 1:
        raise TypeError(f"expected a single number, got {describe(value)}")
    return value.item()


def as_tensor(value):
    """The value itself, which must be a tensor of numbers or strings."""
    if not is_kind(value, "x"):
        raise TypeError(f"expected a tensor, got {describe(value)}")
    return value


def integers(value):
    return [int(v) for v in as_numpy(value).ravel()]


def like(value, template):
    """A value as the template's kind: a torch tensor where the template lies, if that is one."""
    return to_device(value, template.device) if is_torch(template) else value


def gpu_of(values):
    """Where the first tensor that lies on a GPU does; None: there is none."""
    return next((value.device for value in values if is_torch(value) and value.is_cuda), None)


def to_device(value, device):
    """A value with its arrays of numbers as tensors on a device."""
    if isinstance(value, list):
        return [to_device(item, device) for item in value]
    return to_torch(value).to(device) if is_torch(value) or code_of(value) else value


def to_torch(value):
    """A result as a caller with torch tensors wants it: strings and other host values stay."""
    if isinstance(value, list):
        return [to_torch(item) for item in value]
    if is_torch(value) or not (code_of(value) or is_complex(value)):
        return value
    import torch
    array = np.require(value, requirements=("C", "W")).reshape(np.shape(value))
    if array.dtype.kind != "V":
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(f"u{array.itemsize}")).view(getattr(torch, array.dtype.name))


def _joined(name, numpy_function, values, axis):
    values = [as_tensor(value) for value in values]
    if not any(is_torch(v) for v in values):
        return numpy_function([np.asarray(v) for v in values], axis)
    import torch
    template = next(v for v in values if is_torch(v))
    return getattr(torch, name)([like(v, template) for v in values], axis)


def concat(values, axis):
    return _joined("cat", np.concatenate, values, axis)


def stack(values, axis):
    return _joined("stack", np.stack, values, axis)


def piece(value, axis, index):
    """value[..., index, ...] with an integer, a slice or an index array at an axis; differentiable in torch."""
    part = value[(slice(None),) * axis + (index,)]
    return part if is_torch(value) else np.asarray(part, value.dtype)


def axis_of(axis, rank):
    """The axis counted from the front."""
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} is out of range for {rank} dimensions")
    return axis % rank


def is_kind(value, kind):
    """Whether a value is of a kind as table.py names them."""
    if kind in "qma":
        return kind == "a" or isinstance(value, list if kind == "q" else dict)
    return kind in "tx" and code_of(value) != 0 or kind in "sx" and is_string(value) or kind == "x" and is_complex(value)


def describe(value):
    """A value's kind and shape, for messages."""
    if value is None or isinstance(value, (list, dict)):
        return {type(None): "absent or an empty optional", list: "a sequence", dict: "a map"}[type(value)]
    return f"{'string' if is_string(value) else str(value.dtype)}{list(value.shape)}"

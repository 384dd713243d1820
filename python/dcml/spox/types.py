"""Types of values: tensors of a numpy type and a shape with symbols, sequences, optionals.

The one idea: a type is a value, immutable and compared by what it says; an unknown extent is None, an unknown shape too.
Must not know: operators, variables or models.
"""
import functools

import numpy as np

from .. import _core
from ..onnx.host.values import CODES, COMPLEX, STRING, dtype_of

_CODES = {**CODES, **{name: code for code, name in COMPLEX.items()}}


class Type:
    """Base of the types; itself it stands for any type."""

    __slots__ = ()

    def unwrap_tensor(self):
        """The type itself, if it is a Tensor; else TypeError."""
        return self._unwrap(Tensor)

    def unwrap_sequence(self):
        """The type itself, if it is a Sequence; else TypeError."""
        return self._unwrap(Sequence)

    def unwrap_optional(self):
        """The type itself, if it is an Optional; else TypeError."""
        return self._unwrap(Optional)

    def _unwrap(self, kind):
        if not isinstance(self, kind):
            raise TypeError(f"expected a {kind.__name__} type, got {self!r}")
        return self

    def _accepts(self, other):
        """May a value of the other type stand where this type is declared?  What is unknown fits."""
        return type(self) is Type or self == other

    def __setattr__(self, name, value):
        raise AttributeError(f"a {type(self).__name__} type cannot be changed")

    def __delattr__(self, name):
        raise AttributeError(f"a {type(self).__name__} type cannot be changed")

    def __eq__(self, other):
        return type(self) is type(other) and self._key() == other._key() if isinstance(other, Type) else NotImplemented

    def __hash__(self):
        return hash((type(self), self._key()))

    def _key(self):
        return ()

    def __repr__(self):
        return f"{type(self).__name__}()"

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        return type(self), self._key()


class Tensor(Type):
    """A tensor.

    dtype: what numpy.dtype takes; ``float`` is float64, ``int`` int64, ``str`` a tensor of strings.
    shape: a tuple of lengths: an int, the name of a symbol, or None for any length; None: of any rank.
    Raises TypeError for an element type that ONNX lacks, or something else as a length.
    """

    __slots__ = ("_code", "_shape")

    def __init__(self, dtype, shape=None):
        _set_code(self, code_of(dtype))
        _set_shape(self, None if shape is None else _checked(shape))

    @property
    def dtype(self):
        """The numpy.dtype of the elements; of strings numpy.dtype(str)."""
        return _dtype(self._code)

    @property
    def shape(self):
        """A tuple of lengths, names and None; None if the rank is not known."""
        return self._shape

    @property
    def _elem_type(self):
        return self.dtype.type

    def _accepts(self, other):
        if not isinstance(other, Tensor) or self._code != other._code:
            return False
        if self._shape is None or other._shape is None:
            return True
        same = all(not isinstance(a, int) or not isinstance(b, int) or a == b for a, b in zip(self._shape, other._shape))
        return len(self._shape) == len(other._shape) and same

    def _key(self):
        return self._code, self._shape

    def __reduce__(self):
        return Tensor, (self.dtype, self._shape)

    def __repr__(self):
        return f"Tensor(dtype={self.dtype.type.__name__}, shape={self._shape})"

    def __str__(self):
        extents = "[...]" if self._shape is None else "".join(f"[{'?' if d is None else d}]" for d in self._shape)
        return self.dtype.type.__name__.rstrip("_") + extents


class _Of(Type):
    __slots__ = ("_elem",)

    def __init__(self, elem_type):
        if not isinstance(elem_type, Type):
            raise TypeError(f"the elements of a {type(self).__name__} have a Type, not {elem_type!r}")
        _set_elem(self, elem_type)

    @property
    def elem_type(self):
        """The type of the elements."""
        return self._elem

    def _accepts(self, other):
        return type(self) is type(other) and self._elem._accepts(other._elem)

    def _key(self):
        return (self._elem,)

    def __repr__(self):
        return f"{type(self).__name__}(elem_type={self._elem!r})"


class Sequence(_Of):
    """A sequence of values of one type.  elem_type: that type."""

    __slots__ = ()

    def __str__(self):
        return f"[{self._elem}]"


class Optional(_Of):
    """A value that may be absent.  elem_type: the type of the value."""

    __slots__ = ()

    def __str__(self):
        return f"{self._elem}?"


_set_code, _set_shape, _set_elem = Tensor._code.__set__, Tensor._shape.__set__, _Of._elem.__set__
_new = Tensor.__new__


def tensor(code, shape):
    """A Tensor type of ONNX's element type and a tuple that needs no check."""
    made = _new(Tensor)
    _set_code(made, code)
    _set_shape(made, shape)
    return made


def _checked(shape):
    if isinstance(shape, (str, bytes)) or not hasattr(shape, "__iter__"):
        raise TypeError(f"a shape is a tuple of lengths, not {shape!r}")
    lengths = []
    for d in shape:
        if isinstance(d, (int, np.integer)) and not isinstance(d, bool):
            d = int(d)
        elif d is not None and not isinstance(d, str):
            raise TypeError(f"a length is an int, the name of a symbol or None, not {d!r}")
        if isinstance(d, int) and d < 0:
            raise TypeError(f"a length is not negative: {d}")
        lengths.append(d or None if isinstance(d, str) else d)
    return tuple(lengths)


def code_of(dtype):
    """ONNX's number for an element type given as numpy.dtype takes it; TypeError for one that ONNX lacks."""
    try:
        return _code(dtype)
    except TypeError as error:
        if dtype.__hash__ is None:
            raise TypeError(f"{dtype!r} is no element type") from error
        raise


@functools.lru_cache(256)
def _code(dtype):
    if dtype is None:  # numpy would take it for float64
        raise TypeError("None is no element type")
    try:
        found = np.dtype(dtype)
    except TypeError:
        raise TypeError(f"{dtype!r} is no element type") from None
    if found.kind == "U":
        return STRING
    if found.kind == "O":
        raise TypeError("object is no element type; strings are of type str")
    name = np.dtype(found.type).name if found.kind in "biufc" else found.name
    if name not in _CODES:
        raise TypeError(f"{dtype!r} is no element type of ONNX")
    return _CODES[name]


@functools.lru_cache(None)
def _dtype(code):
    return np.dtype(str) if code == STRING else dtype_of(code)


def of_array(array):
    """The type of a constant."""
    return tensor(code_of(array.dtype), array.shape)


# -- ONNX's TypeProto ---------------------------------------------------------------------------------
def to_proto(kind):
    """A TypeProto of a type."""
    import onnx
    proto = onnx.TypeProto()
    _write(kind, proto)
    return proto


def _write(kind, proto):
    if isinstance(kind, Tensor):
        proto.tensor_type.elem_type = kind._code
        if kind._shape is not None:
            shape = proto.tensor_type.shape
            shape.SetInParent()
            for d in kind._shape:
                dim = shape.dim.add()
                if isinstance(d, int):
                    dim.dim_value = d
                elif d is not None:
                    dim.dim_param = d
    elif isinstance(kind, _Of):
        _write(kind._elem, (proto.sequence_type if isinstance(kind, Sequence) else proto.optional_type).elem_type)
    else:
        raise TypeError(f"a value needs a Tensor, Sequence or Optional type, not {kind!r}")


def from_proto(proto, symbols=True):
    """The type that a TypeProto describes; None if it says nothing.  symbols: keep the names of extents."""
    kind = proto.WhichOneof("value")
    if kind == "tensor_type":
        if not proto.tensor_type.elem_type:
            return None
        return tensor(proto.tensor_type.elem_type, _shape_of(proto.tensor_type, symbols))
    if kind in ("sequence_type", "optional_type"):
        inner = from_proto(getattr(proto, kind).elem_type, symbols)
        return inner and (Sequence if kind == "sequence_type" else Optional)(inner)
    if kind is None:
        return None
    raise _core.UnsupportedOpError(f"a value of {kind} has no type here: tensors, sequences and optionals have")


def _shape_of(proto, symbols):
    if not proto.HasField("shape"):
        return None
    return tuple([d.dim_value if d.HasField("dim_value") else
                  d.dim_param or None if symbols and not d.dim_param.startswith("unk__") else None for d in proto.shape.dim])


def strip_symbols(kind):
    """The type without the names of extents."""
    if isinstance(kind, Tensor) and kind._shape is not None:
        return tensor(kind._code, tuple(None if isinstance(d, str) else d for d in kind._shape))
    return type(kind)(strip_symbols(kind._elem)) if isinstance(kind, _Of) else kind

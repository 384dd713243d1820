"""Types that annotate scripts: FLOAT["N", 3], FLOAT (a scalar), FLOAT[...] (of unknown rank).

The one idea: a type is a class, one for each element type and shape, so that two annotations of one type are one object.
Must not know: scripts, operators.
"""
import enum

_ROWS = """
FLOAT 1 float, UINT8 2 uint8, INT8 3 int8, UINT16 4 uint16, INT16 5 int16, INT32 6 int32, INT64 7 int64, STRING 8 string, BOOL 9 bool,
FLOAT16 10 float16, DOUBLE 11 double, UINT32 12 uint32, UINT64 13 uint64, COMPLEX64 14 complex64, COMPLEX128 15 complex128,
BFLOAT16 16 bfloat16, FLOAT8E4M3FN 17 float8e4m3fn, FLOAT8E4M3FNUZ 18 float8e4m3fnuz, FLOAT8E5M2 19 float8e5m2,
FLOAT8E5M2FNUZ 20 float8e5m2fnuz, UINT4 21 uint4, INT4 22 int4, FLOAT4E2M1 23 float4e2m1, FLOAT8E8M0 24 float8e8m0,
UINT2 25 uint2, INT2 26 int2"""
_NAMES = {int(code): (name, text) for name, code, text in (row.split() for row in _ROWS.split(","))}
DataType = enum.IntEnum("DataType", {name: code for code, (name, _) in _NAMES.items()}, module=__name__)
DataType.__doc__ = "Numbers of element types, as onnx.TensorProto has them."
DataType.__str__ = DataType.__repr__ = lambda self: self.name
tensor_type_registry = {}  # element type -> its type without a shape


class _Kind(type):
    """The class of types: what they show, how they are given a shape."""

    def __call__(cls, *args, **kwargs):
        raise NotImplementedError(f"{cls.__name__} is a type of tensors and has no objects; a tensor is dcml.script.tensor.Tensor")

    def __getitem__(cls, shape):
        return cls.__class_getitem__(shape)

    def __repr__(cls):
        if cls.shape is None or cls.dtype is None:
            return cls.__name__
        extents = "..." if cls.shape is ... else ", ".join(repr(d) for d in cls.shape)
        return f"{cls.__name__}[{extents}]"

    def __or__(cls, other):
        import typing
        return typing.Union[cls, other]

    def __ror__(cls, other):
        import typing
        return typing.Union[other, cls]


class TensorType(metaclass=_Kind):
    """Base of the types.

    dtype: ONNX's element type.  shape: a tuple of lengths (an int, the name of a symbol, None for any), ``...`` where the
    rank is not known, None for a type that was given no shape: a scalar.
    ``FLOAT["N", 3]`` gives the type with a shape; ValueError if it has one, TypeError for what is no length.
    """
    dtype = shape = default_shape = None
    _shaped = {}

    def __init_subclass__(cls, dtype=None, shape=None):
        if shape is None and dtype in tensor_type_registry:
            raise ValueError(f"element type {dtype} is {tensor_type_registry[dtype].__name__}'s")
        if dtype is None:
            raise ValueError(f"{cls.__name__}: a type of tensors needs an element type, dtype=")
        cls.dtype, cls.shape = dtype, shape
        if shape is None:
            tensor_type_registry[dtype], cls._shaped = cls, {}

    @classmethod
    def __class_getitem__(cls, shape):
        if cls.dtype is None:
            raise TypeError("TensorType has no element type; write FLOAT[...] or another type's name")
        if cls.shape is not None:
            raise ValueError(f"{cls!r} has a shape already")
        if shape is not ...:
            shape = shape if isinstance(shape, tuple) else (shape,)
            wrong = [d for d in shape if not (d is None or isinstance(d, str) or isinstance(d, int) and not isinstance(d, bool) and d >= 0)]
            if wrong:
                raise TypeError(f"{cls.__name__}: a length is an int, a name or None, not {wrong[0]!r}")
        if shape not in cls._shaped:
            made = _Kind.__new__(_Kind, cls.__name__, (cls,), {"__module__": __name__, "__qualname__": cls.__qualname__},
                                 dtype=cls.dtype, shape=shape)
            cls._shaped[shape] = made
        return cls._shaped[shape]

    @classmethod
    def to_type_proto(cls):
        """An onnx.TypeProto."""
        import onnx
        proto = onnx.TypeProto()
        proto.tensor_type.elem_type = cls.dtype
        if cls.shape is not ...:
            proto.tensor_type.shape.SetInParent()
            for d in cls.shape or ():
                dim = proto.tensor_type.shape.dim.add()
                if isinstance(d, int):
                    dim.dim_value = d
                elif d is not None:
                    dim.dim_param = d
        return proto

    @classmethod
    def to_ir_type_and_shape(cls):
        """An onnx_ir.TypeAndShape; needs the package onnx_ir."""
        import onnx_ir
        shape = None if cls.shape is ... else onnx_ir.Shape(cls.shape or ())
        return onnx_ir.TypeAndShape(onnx_ir.TensorType(onnx_ir.DataType(cls.dtype)), shape)

    @classmethod
    def to_string(cls):
        """The type of its elements as ONNX writes it: tensor(float)."""
        return f"tensor({_NAMES[cls.dtype][1]})"


for _code, (_name, _text) in _NAMES.items():
    _fields = {"__module__": __name__, "__qualname__": _name, "__doc__": f"Tensors of {_text}."}
    globals()[_name] = _Kind.__new__(_Kind, _name, (TensorType,), _fields, dtype=DataType(_code))

ONNXType = TensorType
__all__ = ["DataType", "ONNXType", "TensorType", "onnx_type_to_onnxscript_repr", "tensor_type_registry",
           *(cls.__name__ for cls in tensor_type_registry.values())]


def onnx_type_to_onnxscript_repr(onnx_type, *, reversible=True):
    """An onnx.TypeProto as scripts write it: FLOAT['N', 3].

    reversible: NotImplementedError for what is no tensor; False: sequences are List[FLOAT[...]].
    """
    if onnx_type.HasField("tensor_type"):
        tensor = onnx_type.tensor_type
        if tensor.elem_type in _NAMES:
            name = _NAMES[tensor.elem_type][0]
            extents = [str(d.dim_value) if d.HasField("dim_value") else repr(d.dim_param or None) for d in tensor.shape.dim]
            return f"{name}[...]" if not tensor.HasField("shape") else f"{name}[{','.join(extents)}]" if extents else name
    if onnx_type.HasField("sequence_type") and not reversible:
        return f"List[{onnx_type_to_onnxscript_repr(onnx_type.sequence_type.elem_type, reversible=False)}]"
    raise NotImplementedError(f"scripts have no name for the type {onnx_type!r}")


def is_type(value):
    """Whether a value is one of these types."""
    return isinstance(value, _Kind)


def type_proto(kind):
    """The onnx.TypeProto of what to_model_proto takes as a type: one of these, or a TypeProto; TypeError for others."""
    if is_type(kind) and kind.dtype is not None:
        return kind.to_type_proto()
    if type(kind).__name__ == "TypeProto":
        return kind
    raise TypeError(f"a type of a value is FLOAT[...] or the like, or an onnx.TypeProto, not {kind!r}")

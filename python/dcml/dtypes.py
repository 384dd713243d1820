"""Element types, where arrays lie and how maps run, under the names that users of SDFGs know.

The one idea: a type is its ONNX number, so that the core takes it as it is; it equals what numpy calls the same type.
Must not know: graphs.
"""
import enum
import sys


class typeclass:
    """An element type: ``float32``.

    Equal to numpy's type and dtype of that name, to the core's number (``int(float32) == 1``) and to other typeclasses
    of the same number.  ``float32(3)`` is a numpy scalar, ``float32[N, 4]`` a descriptor of an array.
    ``bytes``: of an element; ``ctype``: the type in C; ``dtype``: numpy's.
    """
    __slots__ = ("name", "code", "bytes", "ctype")

    def __init__(self, name, code, bytes, ctype):
        self.name, self.code, self.bytes, self.ctype = name, code, bytes, ctype

    @property
    def dtype(self):
        """numpy's dtype; ml_dtypes' where numpy has none.  Raises DTypeError where neither has one."""
        import numpy as np
        if self.name in _ONLY_ML_DTYPES:
            ml_dtypes = _need("ml_dtypes", self)
            return np.dtype(getattr(ml_dtypes, self.name))
        return np.dtype("str" if self.name == "string" else self.name)

    @property
    def type(self):
        """numpy's scalar type."""
        return self.dtype.type

    def as_numpy_dtype(self):
        return self.dtype

    def to_string(self):
        return self.name

    def __call__(self, value=0):
        """The value as a numpy scalar of this type."""
        return self.type(value)

    def __getitem__(self, shape):
        """A descriptor of an array of this type: ``float32[N, 4]``, and ``float32[[N, 4]]`` for a list."""
        from .sdfg.data import Array
        return Array(self, shape if isinstance(shape, (tuple, list)) else (shape,))

    def __index__(self):
        return self.code

    __int__ = __index__

    def __eq__(self, other):
        if isinstance(other, typeclass):
            return self.code == other.code
        if type(other) is int:
            return self.code == other
        other = _known(other)
        return NotImplemented if other is None else self.code == other.code

    def __hash__(self):
        return hash(self.code)

    def __repr__(self):
        return self.name

    def __reduce__(self):
        return of, (self.code,)


_ONLY_ML_DTYPES = {"bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "uint4", "int4",
                   "float4_e2m1fn", "float8_e8m0fnu", "uint2", "int2"}
_ROWS = """
float32 1 4 float, uint8 2 1 uint8_t, int8 3 1 int8_t, uint16 4 2 uint16_t, int16 5 2 int16_t, int32 6 4 int32_t,
int64 7 8 int64_t, string 8 0 char*, bool 9 1 bool, float16 10 2 _Float16, float64 11 8 double, uint32 12 4 uint32_t,
uint64 13 8 uint64_t, complex64 14 8 complex-float, complex128 15 16 complex-double, bfloat16 16 2 uint16_t,
float8_e4m3fn 17 1 uint8_t, float8_e4m3fnuz 18 1 uint8_t, float8_e5m2 19 1 uint8_t, float8_e5m2fnuz 20 1 uint8_t,
uint4 21 1 uint8_t, int4 22 1 int8_t, float4_e2m1fn 23 1 uint8_t, float8_e8m0fnu 24 1 uint8_t, uint2 25 1 uint8_t,
int2 26 1 int8_t"""
_TYPES = [typeclass(name, int(code), int(size), ctype.replace("-", " "))
          for name, code, size, ctype in (row.split() for row in _ROWS.split(","))]
_BY_CODE = {t.code: t for t in _TYPES}
_BY_NAME = {t.name: t for t in _TYPES}
_BY_NAME["bool_"], _BY_NAME["str"] = _BY_NAME["bool"], _BY_NAME["string"]
_PYTHON = {bool: "bool", int: "int64", float: "float64", complex: "complex128", str: "string"}

(float32, uint8, int8, uint16, int16, int32, int64, string, bool_, float16, float64, uint32, uint64, complex64,
 complex128, bfloat16) = _TYPES[:16]
NAMES = tuple(t.name if t is not bool_ else "bool_" for t in _TYPES[:16])


def of(what):
    """The typeclass of a typeclass, a core number, a name, a numpy or torch dtype, a numpy scalar type or Python's
    bool, int, float, complex and str.  Raises DTypeError for anything else."""
    found = what if isinstance(what, typeclass) else _BY_CODE.get(what) if type(what) is int else _known(what)
    if found is None:
        from . import _core
        raise _core.DTypeError(f"{what!r} is no element type; types are dcml.{', dcml.'.join(NAMES)}")
    return found


def _known(what):
    """As ``of``, but None for what is no type; a number is none."""
    if isinstance(what, str):
        return _BY_NAME.get(what.removeprefix("dcml.").removeprefix("dace."))
    if isinstance(what, type) and what in _PYTHON:
        return _BY_NAME[_PYTHON[what]]
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(what, torch.dtype):
        return _BY_NAME.get(str(what).removeprefix("torch."))
    numpy = sys.modules.get("numpy")
    if numpy is not None and (isinstance(what, numpy.dtype) or isinstance(what, type) and issubclass(what, numpy.generic)):
        if issubclass(what if isinstance(what, type) else what.type, numpy.str_):
            return string
        try:
            return _BY_NAME.get(numpy.dtype(what).name)
        except TypeError:  # an abstract class such as numpy.generic
            return None
    return None


def _need(package, why):
    import importlib
    try:
        return importlib.import_module(package)
    except ImportError as error:
        from . import _core
        raise _core.DTypeError(f"{why} is no type of numpy's, and the package {package} is not installed") from error


class StorageType(enum.Enum):
    """Where an array lies: in the processor's memory or its registers, or in that of a GPU, whose kernels decide themselves
    what of GPU_Shared lies on the chip."""
    Default = "Default"
    Register = "Register"
    CPU_Pinned = "CPU_Pinned"
    CPU_Heap = "CPU_Heap"
    CPU_ThreadLocal = "CPU_ThreadLocal"
    GPU_Global = "GPU_Global"
    GPU_Shared = "GPU_Shared"


class ScheduleType(enum.Enum):
    """How a map runs: Sequential in order, the others in any order; one named GPU writes arrays on the GPU."""
    Default = "Default"
    Sequential = "Sequential"
    MPI = "MPI"
    CPU_Multicore = "CPU_Multicore"
    Unrolled = "Unrolled"
    GPU_Default = "GPU_Default"
    GPU_Device = "GPU_Device"
    GPU_ThreadBlock = "GPU_ThreadBlock"


class Language(enum.Enum):
    """What code of tasklets is written in."""
    Python = "Python"

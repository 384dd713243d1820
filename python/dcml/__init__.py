"""dcml: a deep-learning compiler.

``dcml.pytorch`` runs PyTorch modules, ``dcml.onnx`` runs ONNX models, ``dcml.autodiff`` differentiates
graphs, ``dcml.sdfg`` builds and looks at them, ``dcml.transformation`` changes them.  ``import dcml as dace`` has what
DaCe's users expect at the top: SDFG, Memlet, symbol, float32, ...  Submodules and the compiled
core load on first use, so that ``import dcml`` is cheap and pulls in neither torch nor onnx.
``@dcml.program``, or ``@dcml`` itself, compiles functions of NumPy.
"""
import importlib
import sys
import types

__version__ = "0.1.0"

_SUBMODULES = frozenset(("autodiff", "dtypes", "library", "mx", "neon", "onnx", "op", "optim", "program", "pytorch", "registry", "script",
                         "sdfg", "spox", "testing", "torch", "transformation", "util"))
_ELSEWHERE = {"data": "dcml.sdfg.data", "memlet": "dcml.sdfg.memlet", "nodes": "dcml.sdfg.nodes", "subsets": "dcml.sdfg.subset",
              "symbolic": "dcml.sdfg.symbolic"}  # modules that DaCe has at the top
_SPELLED = {"bool": "bool_"}  # DaCe's names that are not among those of a star import
_ERRORS = {"Error": "Error", "ModelError": "ModelError", "UnsupportedOpError": "UnsupportedOpError",
           "ShapeError": "ShapeError", "DTypeError": "DTypeError", "CompileError": "CompileError",
           "DeviceError": "DeviceError", "ValueError_": "ValueError_"}
_LAZY = {"DaceModule": "dcml.pytorch", "dace_module": "dcml.pytorch", "ONNXModel": "dcml.onnx", "SDFG": "dcml.sdfg",
         "vjp": "dcml.autodiff", **dict.fromkeys(("InterstateEdge", "Memlet", "SDFGState", "symbol"), "dcml.sdfg"),
         **dict.fromkeys(("DeviceType", "Language", "StorageType", "ScheduleType", "typeclass", "bool_", "int8", "int16", "int32", "int64",
                          "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
                          "string"), "dcml.dtypes"),
         **dict.fromkeys(("define_local", "define_local_scalar", "elementwise", "map", "mapscope", "reduce", "tasklet"), "dcml.program")}

__all__ = sorted([*_ERRORS, *_LAZY, "program"])


def __getattr__(name):
    if name in _SUBMODULES:
        return importlib.import_module("dcml." + name)
    if name in _ELSEWHERE:
        return importlib.import_module(_ELSEWHERE[name])
    if name in _ERRORS:
        value = getattr(importlib.import_module("dcml._core"), _ERRORS[name])
    elif name in _SPELLED:
        value = __getattr__(_SPELLED[name])
    elif name in _LAZY:
        value = getattr(importlib.import_module(_LAZY[name]), name)
    else:
        raise AttributeError(f"module 'dcml' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__():
    return sorted([*globals(), *_SUBMODULES, *_ELSEWHERE, *_ERRORS, *_LAZY])


class _Decorator(types.ModuleType):
    """``@dcml`` is ``@dcml.program``."""

    def __call__(self, function=None, **options):
        return self.program(function, **options)


sys.modules[__name__].__class__ = _Decorator

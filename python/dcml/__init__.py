"""dcml: a deep-learning compiler.

``dcml.pytorch`` runs PyTorch modules, ``dcml.onnx`` runs ONNX models, ``dcml.autodiff`` differentiates
graphs, ``dcml.transformation`` and ``dcml.sdfg`` inspect and change them.  Submodules and the compiled
core load on first use, so that ``import dcml`` is cheap and pulls in neither torch nor onnx.
``@dcml.program``, or ``@dcml`` itself, compiles functions of NumPy.
"""
import importlib
import sys
import types

__version__ = "0.1.0"

_SUBMODULES = frozenset(("autodiff", "library", "onnx", "program", "pytorch", "sdfg", "testing", "torch", "transformation", "util"))
_ERRORS = {"Error": "Error", "ModelError": "ModelError", "UnsupportedOpError": "UnsupportedOpError",
           "ShapeError": "ShapeError", "DTypeError": "DTypeError", "CompileError": "CompileError",
           "DeviceError": "DeviceError", "ValueError_": "ValueError_"}
_LAZY = {"DaceModule": "dcml.pytorch", "dace_module": "dcml.pytorch", "ONNXModel": "dcml.onnx", "SDFG": "dcml.sdfg",
         "vjp": "dcml.autodiff"}
_LAZY.update(dict.fromkeys(("define_local", "define_local_scalar", "elementwise", "map", "reduce", "tasklet"), "dcml.program"))

__all__ = sorted([*_ERRORS, *_LAZY])


def __getattr__(name):
    if name in _SUBMODULES:
        return importlib.import_module("dcml." + name)
    if name in _ERRORS:
        value = getattr(importlib.import_module("dcml._core"), _ERRORS[name])
    elif name in _LAZY:
        value = getattr(importlib.import_module(_LAZY[name]), name)
    else:
        raise AttributeError(f"module 'dcml' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__():
    return sorted([*globals(), *_SUBMODULES, *_ERRORS, *_LAZY])


class _Decorator(types.ModuleType):
    """``@dcml`` is ``@dcml.program``."""

    def __call__(self, function=None, **options):
        return self.program(function, **options)


sys.modules[__name__].__class__ = _Decorator

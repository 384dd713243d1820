"""dcml: a deep-learning compiler.

``dcml.pytorch`` runs PyTorch modules, ``dcml.onnx`` runs ONNX models, ``dcml.autodiff`` differentiates
graphs, ``dcml.transformation`` and ``dcml.sdfg`` inspect and change them.  Submodules and the compiled
core load on first use, so that ``import dcml`` is cheap and pulls in neither torch nor onnx.
"""
import importlib

__version__ = "0.1.0"

_SUBMODULES = frozenset(("autodiff", "library", "onnx", "op", "pytorch", "sdfg", "spox", "testing", "torch", "transformation", "util"))
_ERRORS = {"Error": "Error", "ModelError": "ModelError", "UnsupportedOpError": "UnsupportedOpError",
           "ShapeError": "ShapeError", "DTypeError": "DTypeError", "CompileError": "CompileError",
           "DeviceError": "DeviceError", "ValueError_": "ValueError_"}
_LAZY = {"DaceModule": "dcml.pytorch", "dace_module": "dcml.pytorch", "ONNXModel": "dcml.onnx", "SDFG": "dcml.sdfg",
         "vjp": "dcml.autodiff"}

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

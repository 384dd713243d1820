"""ONNX Script on dcml: ONNX functions and models written as Python functions, which also run.

``from dcml.script import script, graph, opset18 as op, FLOAT`` are ONNX Script's names; docs/script.md says what differs.
"""
import importlib

from . import onnx_opset, onnx_types
from .decorator import graph, script
from .values import OnnxFunction, TracedOnnxFunction

_SUBMODULES = ("tensor", "values")
_LAZY = {"Tensor": "tensor", "TranslationError": "source"}

globals().update({name: getattr(onnx_types, name) for name in onnx_types.__all__})
__all__ = ["OnnxFunction", "TracedOnnxFunction", *_LAZY, "graph", "onnx_opset", "onnx_types", "script", *_SUBMODULES,
           *onnx_types.__all__]


def __getattr__(name):
    if name in _SUBMODULES:
        return importlib.import_module("." + name, __name__)
    if name in _LAZY:
        value = getattr(importlib.import_module("." + _LAZY[name], __name__), name)
    elif name.startswith("opset"):
        value = getattr(onnx_opset, name, None)
        if value is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}; the newest opset is {onnx_opset.default_opset!r}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *__all__, *onnx_opset.names()})

"""Spox on dcml: ONNX models are made by calling operators on variables.

``from dcml.spox import argument, build, inline, Var, Tensor, Sequence, Optional, Type`` and
``import dcml.spox.opset.ai.onnx.v17 as op`` are Spox's names; docs/spox.md says what differs.
"""
import importlib

_HOMES = {"BuildError": "model", "InferenceError": "infer", "InferenceWarning": "infer", "Optional": "types", "Sequence": "types",
          "Tensor": "types", "Type": "types", "Var": "var", "argument": "model", "build": "model", "inline": "inlining"}

__all__ = sorted(_HOMES)


def __getattr__(name):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module("." + _HOMES[name], __name__), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *__all__})

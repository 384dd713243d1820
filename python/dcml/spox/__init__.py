"""Spox on dcml: ONNX models are made by calling operators on variables.

``from dcml.spox import argument, build, inline, Var, Tensor, Sequence, Optional, Type`` and
``import dcml.spox.opset.ai.onnx.v17 as op`` are Spox's names; docs/spox.md says what differs.
"""
from .build import BuildError, argument, build
from .infer import InferenceError, InferenceWarning
from .inlining import inline
from .types import Optional, Sequence, Tensor, Type
from .var import Var

__all__ = ["BuildError", "InferenceError", "InferenceWarning", "Optional", "Sequence", "Tensor", "Type", "Var", "argument",
           "build", "inline"]

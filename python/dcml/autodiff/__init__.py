"""Reverse-mode differentiation of graphs: vjp and jvp of an ONNX model, add_backward_pass on an SDFG, gradients of one's own."""
from ..registry import autoregister_params
from .api import AutoDiffException, add_backward_pass, jvp, make_backward_function, vjp
from .base_abc import BackwardContext, BackwardImplementation, BackwardResult

__all__ = ["AutoDiffException", "BackwardContext", "BackwardImplementation", "BackwardResult", "add_backward_pass", "autoregister_params",
           "jvp", "make_backward_function", "vjp"]

"""Reverse-mode differentiation of graphs: vjp of an ONNX model, add_backward_pass on an SDFG."""
from .api import AutoDiffException, add_backward_pass, vjp

__all__ = ["AutoDiffException", "add_backward_pass", "vjp"]

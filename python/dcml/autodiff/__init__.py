"""Reverse-mode differentiation of graphs: vjp of an ONNX model, add_backward_pass on an SDFG."""
from .api import add_backward_pass, vjp

__all__ = ["add_backward_pass", "vjp"]

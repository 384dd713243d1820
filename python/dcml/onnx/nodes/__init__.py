"""Operators as nodes of SDFGs."""
from .onnx_op import ONNXOp, get_onnx_node, has_onnx_node

__all__ = ["ONNXOp", "get_onnx_node", "has_onnx_node"]

"""ONNX front end: ONNXModel runs a model; python_pure_op_implementation adds an operator written with numpy."""
from .model import ONNXModel
from .pure import python_pure_op_implementation

default_implementation = "native"

__all__ = ["ONNXModel", "python_pure_op_implementation"]

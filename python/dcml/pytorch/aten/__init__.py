"""ATen rows: ``TABLE`` maps the name of an overload to the function that appends its ONNX operators."""
from . import control, elementwise, neural, random, recurrent, reduce, shape, symbolic  # noqa: F401  (each fills TABLE)
from .builder import ONNX_DTYPE, OPSET, TABLE, Builder, Decline, Symbolic, extent

__all__ = ["Builder", "Decline", "ONNX_DTYPE", "OPSET", "Symbolic", "TABLE", "extent"]

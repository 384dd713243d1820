"""Implementations of ONNX operators in Python: their registry, and the core's own under the manual's names."""
from .utils import implementations_of, op_implementation

__all__ = ["implementations_of", "op_implementation"]

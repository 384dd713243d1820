"""ONNX front end: ONNXModel runs a model; ONNX<Op> are operators as nodes of an SDFG; implementations can be chosen and
registered.  What needs the onnx package loads at first use."""
import importlib

from .model import ONNXModel
from .pure import python_pure_op_implementation

default_implementation = "native"

_SCHEMA = ("ONNXAttribute", "ONNXAttributeType", "ONNXParameter", "ONNXParameterType", "ONNXSchema", "ONNXTypeConstraint",
           "onnx_representation")
_NODES = ("ONNXOp", "get_onnx_node", "has_onnx_node")
_SUBMODULES = ("environments", "forward_implementation_abc", "nodes", "op_implementations", "schema")

__all__ = ["ONNXModel", "python_pure_op_implementation", *_NODES, *_SCHEMA]


def __getattr__(name):
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _SCHEMA:
        return getattr(importlib.import_module(".schema", __name__), name)
    if name in _NODES or name.startswith("ONNX"):
        found = getattr(importlib.import_module(".nodes.onnx_op", __name__), name, None)
        if found is not None:
            return found
    raise AttributeError(f"module 'dcml.onnx' has no attribute {name!r}")


def __dir__():
    nodes = importlib.import_module(".nodes.onnx_op", __name__)
    return sorted({*globals(), *__all__, *_SUBMODULES, *(name for name in dir(nodes) if name.startswith("ONNX"))})

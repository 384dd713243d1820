"""ONNX front end: ONNXModel runs a model; ONNX<Op> are operators as nodes of an SDFG; implementations can be chosen and
registered.  What needs the onnx package loads at first use."""
import importlib

from .model import ONNXModel
from .pure import python_pure_op_implementation

default_implementation = "native"

_SCHEMA = ("ONNXAttribute", "ONNXAttributeType", "ONNXParameter", "ONNXParameterType", "ONNXSchema", "ONNXTypeConstraint",
           "onnx_representation")
_NODES = ("ONNXOp", "get_onnx_node", "has_onnx_node")
_SUBMODULES = ("forward_implementation_abc", "nodes", "op_implementations", "schema")

__all__ = ["ONNXModel", "python_pure_op_implementation", *_NODES, *_SCHEMA]


def __getattr__(name):
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _SCHEMA:
        return getattr(importlib.import_module(".schema", __name__), name)
    if name.startswith("__") or not (name in _NODES or name.startswith("ONNX")):
        raise AttributeError(f"module 'dcml.onnx' has no attribute {name!r}")
    nodes = importlib.import_module(".nodes", __name__)
    return getattr(nodes, name) if name in _NODES else nodes.class_named(name)


def __dir__():
    from .nodes import class_names
    return sorted({*globals(), *__all__, *_SUBMODULES, *class_names()})

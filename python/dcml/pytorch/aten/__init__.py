"""ATen rows: ``TABLE`` maps the name of an overload to the function that appends its ONNX operators.  ``decomposition``
gives an overload in others, where that is our own."""
from . import (control, counted, elementwise, named, neural, private, random, recurrent, reduce, shape,  # noqa: F401
               symbolic)  # each fills TABLE
from . import backward, complexes, decomposed, matrices  # noqa: F401  (backward and matrices fill decomposed's table)
from .builder import ONNX_DTYPE, OPSET, TABLE, Builder, Decline, Symbolic, extent


def served(node):
    """Is there a row for an fx node?"""
    return str(node.target) in TABLE and complexes.served(node)


def decompositions(node):
    """{overload: function that computes it by others}, with one for ``node``; empty if only torch may have one."""
    if not complexes.served(node):
        return complexes.DECOMPOSED if node.target in complexes.DECOMPOSED else {}
    function = decomposed.DECOMPOSED.get(str(node.target))
    return {} if function is None else {node.target: function}


__all__ = ["Builder", "Decline", "ONNX_DTYPE", "OPSET", "Symbolic", "TABLE", "decompositions", "extent", "served"]

"""Handles on graphs, in the vocabulary of SDFGs: they look at a core Graph and hold no copy."""
from .handles import SDFG, Array, Node, State

__all__ = ["Array", "Node", "SDFG", "State"]

"""Handles on graphs, in the vocabulary of SDFGs: SDFG, State, Node and Array look at a core Graph, they hold no copy."""
from .handles import SDFG, Array, Node, State

__all__ = ["Array", "Node", "SDFG", "State"]

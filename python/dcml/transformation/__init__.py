"""Transformations of graphs by hand; the compiler runs the same ones by itself.

``dataflow`` has those of what is in a state, ``subgraph`` those of several nodes at once, ``interstate`` those of states;
here are all of them.  An own one is a subclass of ``SingleStateTransformation`` with ``can_be_applied`` and ``apply``.

>>> from dcml.transformation import SubgraphFusion
>>> sdfg.expand_library_nodes()  # doctest: +SKIP
>>> sdfg.apply_transformations(SubgraphFusion)  # doctest: +SKIP
2
"""
from . import dataflow, interstate, subgraph
from .base import Transformation
from .dataflow import *  # noqa: F403
from .interstate import *  # noqa: F403
from .parameters import parameter_to_transient
from .subgraph import *  # noqa: F403
from .transformation import PatternNode, SingleStateTransformation, node_path_graph


def known():
    """The names of the transformations that there are."""
    return sorted([*dataflow.__all__, *interstate.__all__, *subgraph.__all__])


__all__ = ["PatternNode", "SingleStateTransformation", "Transformation", "known", "node_path_graph", "parameter_to_transient",
           *dataflow.__all__, *interstate.__all__, *subgraph.__all__]

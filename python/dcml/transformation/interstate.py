"""Transformations of states, and of graphs inside graphs."""
from .. import _core
from .base import CoreTransformation, Transformation


class StateFusion(CoreTransformation):
    """Makes one state of states that follow one another."""


class InlineSDFG(Transformation):
    """Puts nested SDFGs into the states that hold them."""

    @classmethod
    def _apply(cls, sdfg, nodes, options):
        if options:
            raise _core.ValueError_(f"InlineSDFG has no option {sorted(options)[0]!r}: it has none")
        nested = [node for state in sdfg.states() for node in state.nodes() if node.kind == "nested"]
        count = sum(1 for node in nested if not nodes or any(node is one for one in nodes))
        if count:
            graph = sdfg.graph  # building it is inlining
            for index in range(graph.n_states):
                graph.flow(index).renew()
        return count


__all__ = ["InlineSDFG", "StateFusion"]

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


class GPUTransformSDFG(Transformation):
    """Puts every array on the GPU, nested SDFGs' included: the program runs there when it is called."""

    @classmethod
    def _apply(cls, sdfg, nodes, options):
        if options or nodes:
            raise _core.ValueError_("GPUTransformSDFG takes a whole SDFG, and has no options")
        count = 0
        for one in list(sdfg.all_sdfgs_recursive()):
            graph = one.graph
            names = [name for name in graph.arrays if graph.device(name) != "cuda" and name not in graph.host_values]
            for name in names:
                graph.set_device(name, "cuda")
            count += bool(names)
        if count:
            sdfg._edited()
        return min(count, 1)


__all__ = ["GPUTransformSDFG", "InlineSDFG", "StateFusion"]

"""Transformations of graphs by hand; the compiler runs the same passes by itself.

>>> from dcml.transformation import SubgraphFusion
>>> sdfg.expand_library_nodes()  # doctest: +SKIP
>>> sdfg.apply_transformations(SubgraphFusion)  # doctest: +SKIP
3
"""
import re
from collections import Counter


class Transformation:
    """Base of the transformations: ``apply_to(sdfg)`` changes the graph and returns the number of matches."""

    passes = ()  # of the core, in order

    @classmethod
    def apply_to(cls, sdfg, *nodes, **options):
        """Applies wherever it can.

        sdfg: SDFG, changed in place; operators are left alone until they are expanded.
        nodes: accepted for source compatibility; the whole graph is looked at.
        Returns the number of nodes that were replaced.  Raises ValueError_ for options, of which there are none.
        """
        if options:
            from .. import _core
            raise _core.ValueError_(f"{cls.__name__} has no option {sorted(options)[0]!r}")
        before = _nodes(sdfg)
        for name in cls.passes:
            sdfg.graph.run_pass(name)
        return sum((before - _nodes(sdfg)).values())


def _nodes(sdfg):
    """The texts of all nodes of all states, with how often each occurs."""
    return Counter(re.findall(r"^    \S.*(?:\n     .*|\n    }.*)*", str(sdfg), re.MULTILINE))


class TaskletFusion(Transformation):
    """Makes one expression of element-wise operators that feed each other."""
    passes = ("fuse",)


class SubgraphFusion(Transformation):
    """Makes one map of maps over the same domain, reductions with what comes before and after them included."""
    passes = ("fuse",)


class MapFusion(Transformation):
    """Moves a producing map into the map that consumes its result."""
    passes = ("fuse",)


class Vectorization(Transformation):
    """Orders loops for unit stride and frees them of guards, so that the generated code works on whole vectors."""
    passes = ("loops",)


class TrivialMapRangeElimination(Transformation):
    """Drops map dimensions of extent one, and maps that do nothing."""
    passes = ("simplify", "loops")


__all__ = ["MapFusion", "SubgraphFusion", "TaskletFusion", "Transformation", "TrivialMapRangeElimination",
           "Vectorization"]

"""Transformations of graphs by hand; the compiler runs the same ones by itself.

>>> from dcml.transformation import SubgraphFusion
>>> sdfg.expand_library_nodes()  # doctest: +SKIP
>>> sdfg.apply_transformations(SubgraphFusion)  # doctest: +SKIP
2
"""


class Transformation:
    """Base of the transformations: ``apply_to(sdfg)`` changes the graph and returns the number of matches."""

    @classmethod
    def apply_to(cls, sdfg, *nodes, **options):
        """Applies wherever it can.

        sdfg: SDFG, changed in place; operators are left alone until they are expanded.
        nodes: if given, only these nodes are looked at.
        Returns the number of places where it applied.  Raises ValueError_ for options, of which there are none.
        """
        if options:
            from .. import _core
            raise _core.ValueError_(f"{cls.__name__} has no option {sorted(options)[0]!r}")
        ids = list({node.id: None for node in nodes if node.kind != "access"})
        return sdfg.graph.apply(cls.__name__, ids) if ids else sdfg.graph.apply(cls.__name__)


class TaskletFusion(Transformation):
    """Makes one expression of element-wise operators that feed each other."""


class SubgraphFusion(Transformation):
    """Makes one map of maps over the same domain, reductions with what comes before and after them included."""


class MapFusion(Transformation):
    """Moves a producing map into the map that consumes its result."""


class Vectorization(Transformation):
    """Orders loops for unit stride, so that the generated code works on whole vectors."""


class TrivialMapRangeElimination(Transformation):
    """Drops map dimensions of extent one."""


__all__ = ["MapFusion", "SubgraphFusion", "TaskletFusion", "Transformation", "TrivialMapRangeElimination",
           "Vectorization"]

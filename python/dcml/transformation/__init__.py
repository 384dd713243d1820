"""Transformations of graphs by name; each is a pass of the core with a count of the places where it applied.

>>> from dcml.transformation import TaskletFusion
>>> sdfg.apply_transformations_repeated(TaskletFusion)  # doctest: +SKIP
3
"""


class Transformation:
    """Base of the transformations: ``apply_to(sdfg)`` changes the graph and returns the number of matches."""

    @classmethod
    def apply_to(cls, sdfg, *nodes, **options):
        """Applies to the whole SDFG, or, if nodes are given, among those nodes only.

        Returns the number of places where it applied.  Raises ValueError_ if the core has no such
        transformation, and for options, of which there are none.
        """
        from .. import _core
        if options:
            raise _core.ValueError_(f"{cls.__name__} has no option {sorted(options)[0]!r}")
        ids = [node.id for node in nodes]
        return sdfg.graph.apply(cls.__name__, ids) if ids else sdfg.graph.apply(cls.__name__)


class TaskletFusion(Transformation):
    """Makes one expression of element-wise operators that feed each other."""


class SubgraphFusion(Transformation):
    """Makes one map of maps over the same domain."""


class MapFusion(Transformation):
    """Moves a producing map into the map that consumes its result."""


class Vectorization(Transformation):
    """Lets the innermost loops work on several elements at once."""


class TrivialMapRangeElimination(Transformation):
    """Drops map dimensions of extent one."""


__all__ = ["MapFusion", "SubgraphFusion", "TaskletFusion", "Transformation", "TrivialMapRangeElimination",
           "Vectorization"]

"""Transformations of what is in a state."""
from .base import CoreTransformation


class MapFusion(CoreTransformation):
    """Moves a map into the one over the same domain that reads its result.

    Their tasklets stay, joined through a register where nobody else reads the result.
    """


class MapExpansion(CoreTransformation):
    """Makes a nest of maps, one a parameter, of a map of several.  A reduction stays as it is."""


class MapCollapse(CoreTransformation):
    """Makes one map of a map and the only one in it, if the inner range does not depend on the outer parameters."""


class MapTiling(CoreTransformation):
    """Cuts the loops of a map into tiles: a map over tiles around a map over what is in one.

    Options: ``tile_sizes``, a number or one for each parameter (the last serves those that are left; 128), and
    ``divides_evenly``, True to leave out the bound of the last tile; ValueError_ where ranges are not known to be
    multiples of the tiles.  A reduction stays one map over both.
    """


class TaskletFusion(CoreTransformation):
    """Makes one tasklet of one and the only one that reads what it computes."""


class TaskletFission(CoreTransformation):
    """Gives each operation of a tasklet a tasklet of its own, joined through registers."""


class RedundantArray(CoreTransformation):
    """Removes a temporary that is nothing but a copy, of another array or into one."""


class ConstantFolding(CoreTransformation):
    """Computes nodes that read constants only; their results become constants."""


class InputToConstant(CoreTransformation):
    """Makes weights whose contents the graph holds constants, as they are now."""


class TrivialMapRangeElimination(CoreTransformation):
    """Drops map dimensions of extent one."""


class Vectorization(CoreTransformation):
    """Orders loops for unit stride, so that the generated code works on whole vectors.

    Counts the innermost maps that now have it, and others that changed.
    """


__all__ = ["ConstantFolding", "InputToConstant", "MapCollapse", "MapExpansion", "MapFusion", "MapTiling", "RedundantArray",
           "TaskletFission", "TaskletFusion", "TrivialMapRangeElimination", "Vectorization"]

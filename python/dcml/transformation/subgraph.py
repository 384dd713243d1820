"""Transformations of several nodes at once."""
from .base import CoreTransformation


class SubgraphFusion(CoreTransformation):
    """Makes one map of maps over the same domain, reductions with what comes before and after them included.

    Maps that share no data are fused only if they are given as nodes.  Counts the maps that are gone.
    """


__all__ = ["SubgraphFusion"]

"""Transformations of states, and of graphs inside graphs."""
from .base import CoreTransformation, Transformation


class StateFusion(CoreTransformation):
    """Makes one state of states that follow one another."""


__all__ = ["StateFusion"]

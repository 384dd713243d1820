"""Integers that are known only when a program runs: symbols, loop variables, and arithmetic on them.

The one idea: they are the symbolic expressions of SDFGs; loop variables are names in them, and an integer that the
program computes is an atom with the text of its element.
Must not know: arrays or Python source.
"""
import numbers
import re

from ..sdfg.symbolic import Symbolic as Index
from ..sdfg.symbolic import minimum


class NeedsValue(Exception):
    """The number of an extent must be known here; whoever chose to leave it open may translate again with it.

    error: what to tell where that cannot be.
    """
    error = None


def atom(text):
    """The value of a name, or of any other text of the core that stands for itself."""
    return Index({(text if text.isidentifier() else ("opaque", text),): 1})


def least(a, b):
    """The smaller of two integers."""
    return minimum(a, b)


def is_index(value):
    """An integer, known or not (and no bool)."""
    return isinstance(value, (Index, numbers.Integral)) and not isinstance(value, bool)


def names(value):
    """The words in an index: symbols, loop variables, and those of texts."""
    return set(re.findall(r"[A-Za-z_]\w*", str(value))) if isinstance(value, Index) else set()


def mentions(value, name):
    return name in names(value)


def factor(value, name):
    """What a name is multiplied with, as an int; None if the value is not linear in it."""
    if not isinstance(value, Index):
        return 0
    slope = value.subs({name: 1}) - value.subs({name: 0})
    linear = isinstance(slope, int) and not mentions(value - slope * atom(name), name)
    return slope if linear else None


def ceil_div(a, b):
    return a if b == 1 else (a + (b - 1)) // b


def product(values):
    out = 1
    for value in values:
        out = value * out
    return out

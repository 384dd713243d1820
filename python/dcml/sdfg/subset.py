"""Subsets of arrays: a range for each dimension.

The one idea: a subset is a list of (first, last, step), as in DaCe with the last element included; its text is Python's
slices, where the end is not.
Must not know: the array that it is a part of.
"""
import ast

from .. import _core
from . import symbolic
from .symbolic import Symbolic, parse


class Range:
    """A subset.  ranges: (first, last, step) or (first, last) of each dimension: ints, Symbolics or texts.

    Equal to its text: ``Range([(0, 4, 1), ("i", "i", 1)]) == "0:5, i"``.  A range of one element that was written as one,
    ``"2:3"``, stays one in its text, since operators see a dimension there; it is equal to ``"2"``.
    """
    __slots__ = ("_ranges", "_written")

    def __init__(self, ranges, written=()):
        self._ranges = tuple(tuple(parse(x, True) for x in (*r, 1)[:3]) for r in ranges)
        self._written = frozenset(written)  # dimensions that were written as a range

    @classmethod
    def from_string(cls, text, shape=None):
        """Reads ``0:5, i, 0:N:2``; ends that are left out, as in ``:``, are those of ``shape``.
        Raises ValueError_ for a text that is no subset, ShapeError for ``:`` without a shape."""
        items = _slices(text, shape)
        return cls([r for r, _ in items], [d for d, (_, written) in enumerate(items) if written])

    @classmethod
    def from_array(cls, desc):
        """The whole array."""
        return cls.of_shape(desc.shape)

    @classmethod
    def of_shape(cls, shape):
        return cls([(0, parse(extent) - 1, 1) for extent in shape])

    @classmethod
    def from_indices(cls, indices):
        """One element, of a sequence of indices or another subset of one element."""
        return cls([(index, index, 1) for index in (indices.min_element() if isinstance(indices, Range) else indices)])

    @property
    def ranges(self):
        """[(first, last, step)] as ints and Symbolics; last is included."""
        return list(self._ranges)

    def size(self):
        """The extent of each dimension."""
        return [_extent(*r) for r in self._ranges]

    bounding_box_size = size

    def num_elements(self):
        """How many elements it names."""
        product = 1
        for extent in self.size():
            product = extent * product
        return product

    def dims(self):
        return len(self._ranges)

    def min_element(self):
        """The first index of each dimension."""
        return [r[0] for r in self._ranges]

    def max_element(self):
        """The last index of each dimension."""
        return [r[1] for r in self._ranges]

    def strides(self):
        """The step of each dimension."""
        return [r[2] for r in self._ranges]

    ndrange = ranges.fget

    @property
    def free_symbols(self):
        """Names in it."""
        found = set()
        for r in self._ranges:
            for x in r:
                if isinstance(x, Symbolic):
                    found |= x.free_symbols
        return found

    def subs(self, values):
        """The subset with symbols replaced."""
        return Range([tuple(x.subs(values) if isinstance(x, Symbolic) else x for x in r) for r in self._ranges], self._written)

    def __len__(self):
        return len(self._ranges)

    def __iter__(self):
        return iter(self._ranges)

    def __getitem__(self, index):
        return self._ranges[index]

    def __eq__(self, other):
        if isinstance(other, str):
            try:
                other = Range.from_string(other)
            except _core.Error:
                return False
        return isinstance(other, Range) and self._ranges == other._ranges

    def __hash__(self):
        return hash(self._ranges)

    def __str__(self):
        return ", ".join(_dimension_text(*r, d in self._written) for d, r in enumerate(self._ranges))

    def __repr__(self):
        return f"Range({str(self)})"


Indices = Range.from_indices


def _extent(first, last, step):
    return (last - first) // step + 1 if step != 1 else last - first + 1


def _dimension_text(first, last, step, written):
    if first == last and not written:
        return str(first)
    return f"{first}:{last + 1}" + (f":{step}" if step != 1 else "")


def _slices(text, shape):
    """((first, last, step), whether it is written as a range) of each dimension of a text."""
    if not text.strip():
        return []
    try:
        node = ast.parse(f"_[{text.strip()}]", mode="eval").body
        if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name):
            raise ValueError
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _core.ValueError_(f"{text[:200]!r} is no subset: expected an index or begin:end:step for each dimension") from None
    items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    return [_slice(item, text, None if shape is None or d >= len(shape) else shape[d]) for d, item in enumerate(items)]


def _slice(item, text, extent):
    try:
        if not isinstance(item, ast.Slice):
            index = symbolic.of_ast(item, True)
            return (index, index, 1), False
        begin = 0 if item.lower is None else symbolic.of_ast(item.lower, True)
        step = 1 if item.step is None else symbolic.of_ast(item.step, True)
        if item.upper is None and extent is None:
            raise _core.ShapeError("the end of a range is left out, and the shape is not known")
        end = parse(extent) if item.upper is None else symbolic.of_ast(item.upper, True)
    except _core.Error as error:
        raise type(error)(f"subset {text[:200]!r}: {error}") from None
    if type(step) is int and step < 1:
        raise _core.ValueError_(f"subset {text[:200]!r}: expected a positive step")
    return (begin, end - 1, step), True

"""Arrays inside a program, and what indexing makes of them.

The one idea: an array is a shape, a type, and a function from the index of an element to its text; one that lies in a
container also says where the element lies, so that a slice of it can be written, and two can be compared.
Must not know: Python source, or how statements are emitted.
"""
import numpy as np

from .. import _core
from .index import Index, NeedsValue, atom, ceil_div, is_index, least, product

NAMES = {"float32": "f32", "float64": "f64", "float16": "f16", "int8": "i8", "int16": "i16", "int32": "i32",
         "int64": "i64", "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64", "bool": "bool",
         "complex64": "c64", "complex128": "c128"}


def type_name(dtype):
    """The name of a NumPy type in the text form; DTypeError for what programs do not compute with."""
    try:
        return NAMES[np.dtype(dtype).name]
    except (KeyError, TypeError):
        raise _core.DTypeError(f"programs do not compute with {dtype}; there are {', '.join(NAMES)}") from None


def literal(value, dtype):
    """A number as text of a type.  Raises ValueError_ for one that the type does not hold."""
    name = type_name(dtype)
    if name == "bool":
        return "true" if value else "false"
    if np.dtype(dtype).kind == "c":
        value, part = complex(value), np.float32 if name == "c64" else np.float64
        return f"complex({literal(value.real, part)}, {literal(value.imag, part)})"
    if np.dtype(dtype).kind == "f":
        try:
            with np.errstate(over="ignore"):
                number = np.dtype(dtype).type(value)
        except OverflowError as error:
            raise _core.ValueError_(f"{error}") from error
        text = repr(float(number)).replace("e+", "e")
        if name == "f32" and np.isfinite(number):
            text = repr(number.item()) if float(str(number)) != number else str(number).replace("e+", "e")
        text = text + ".0" if not any(c in text for c in ".ein") else text
        if name == "f32":
            text += "f"
        return f"f16({text})" if name == "f16" else f"({text})" if text.startswith("-") else text
    info = np.iinfo(dtype)
    if not info.min <= int(value) <= info.max:
        raise _core.ValueError_(f"{value} is no {np.dtype(dtype).name}")
    text = f"({int(value)})" if value < 0 else str(int(value))
    if name == "u64" and value > np.iinfo(np.int64).max:
        text = f"({int(value) - 2 ** 64})"
    return text if name == "i64" else f"{name}({text})"


def converted(text, have, want):
    """Text of one type as text of another."""
    return text if np.dtype(have) == np.dtype(want) else f"{type_name(want)}({text})"


def reference(name):
    """A container in text that names are filled into at the end."""
    return f"\x01{name}\x02"


def element(name, index):
    return f"{reference(name)}[{', '.join(map(str, index))}]"


class Array:
    """shape: ints and Index; dtype: NumPy's.

    text(index) is the element's; place(index), where there is one, is (container, index in it).
    leaves: functions like place, for all that text reads.  weak: int, float or complex for a number of Python, whose type gives
    way.  frozen: why it cannot be written.  write: writes the array into a given whole container, instead of text.
    """
    __slots__ = ("shape", "dtype", "text", "place", "leaves", "weak", "frozen", "write", "whole", "gathers", "label")

    def __init__(self, shape, dtype, *, text=None, place=None, leaves=(), weak=None, frozen=None, write=None,
                 whole=None, gathers=False, label=None):
        self.shape, self.dtype, self.place, self.weak, self.frozen = tuple(shape), np.dtype(dtype), place, weak, frozen
        self.write, self.whole, self.gathers, self.label = write, whole, gathers, label
        self.leaves = [place, *leaves] if place else list(leaves)
        self.text = text or (lambda index: element(*place(index)))

    @property
    def ndim(self):
        return len(self.shape)

    @property
    def size(self):
        return product(self.shape)

    @property
    def is_stored(self):
        return self.place is not None

    def __repr__(self):
        return f"array of {self.dtype.name}{list(self.shape)}"

    def __bool__(self):
        raise NotImplementedError("the truth of an array")

    __array_ufunc__ = None


def stored(name, shape, dtype, prefix=(), **more):
    """All of a container; prefix: indices before the array's own."""
    prefix = list(prefix)
    return Array(shape, dtype, place=lambda index: (name, [*prefix, *index]), whole=None if prefix else name, **more)


def broadcast(shapes, same):
    """The shape that NumPy gives; same(a, b) is the extent of two that must be equal, or raises."""
    rank = max(map(len, shapes), default=0)
    out = []
    for d in range(rank):
        extent = 1
        for shape in shapes:
            at = d - rank + len(shape)
            if at >= 0 and shape[at] != 1:
                extent = shape[at] if extent == 1 else same(extent, shape[at])
        out.append(extent)
    return tuple(out)


def aligned(array, index):
    """The index into an operand of a broadcast operation."""
    own = list(index)[len(index) - array.ndim:] if array.ndim else []
    return [0 if extent == 1 else at for at, extent in zip(own, array.shape)]


def moved(array, shape, back, **more):
    """A view: back gives the index in the array for one in the view."""
    place = array.place and (lambda index: array.place(back(index)))
    leaves = [lambda index, leaf=leaf: leaf(back(index)) for leaf in (array.leaves[1:] if array.place else array.leaves)]
    return Array(shape, array.dtype, text=lambda index: array.text(back(index)), place=place, leaves=leaves,
                 weak=array.weak, frozen=array.frozen, gathers=array.gathers, label=array.label, **more)


def transposed(array, axes):
    axes = [a % array.ndim for a in axes]
    return moved(array, [array.shape[a] for a in axes], lambda index: [index[axes.index(d)] for d in range(len(axes))])


# -- subscripts ------------------------------------------------------------------------------------
def _range(item, extent):
    """(first, step, count) of a slice."""
    step = 1 if item.step is None else item.step
    if isinstance(step, Index) or step == 0:
        raise _core.ValueError_("a slice needs a step that is a known number, and not 0")
    if all(isinstance(v, (int, np.integer, type(None))) for v in (item.start, item.stop)) and not isinstance(extent, Index):
        numbers = range(*slice(item.start, item.stop, step).indices(extent))
        return numbers.start, step, len(numbers)
    if step < 0 and (item.start is not None or item.stop is not None):
        raise NeedsValue("where a backward slice ends")
    if step < 0:
        return extent - 1, step, ceil_div(extent, -step)

    def bound(value, missing):  # a symbolic extent is taken to reach to where a slice begins
        if value is None:
            return missing
        if isinstance(value, Index):
            return value
        return value + extent if value < 0 else value if missing == 0 else least(value, extent)
    first, last = bound(item.start, 0), bound(item.stop, extent)
    return first, step, ceil_div(last - first, step)


def _position(item, extent, array, extents):
    """An integer index, from the front."""
    if isinstance(item, Index):
        return item
    if isinstance(extent, Index):
        extents.at_least(extent, item + 1 if item >= 0 else -item)
        return item + extent if item < 0 else item
    if not -extent <= item < extent:
        raise _core.ShapeError(f"index {item} is outside {array.label or 'a dimension'} with {extent} elements there")
    return item % extent


def _is_mask(item):
    return isinstance(item, Array) and item.dtype == bool


def subscript(array, items, extents):
    """What NumPy's array[items] is: a view, or, with arrays of indices, values of a view that is gathered.

    items: integers, slices, None, Ellipsis, arrays of integers.  extents: has ``same``, as for broadcast, and
    ``at_least(extent, number)``, which notes what an extent must be.
    """
    items = _spread(array, list(items))
    if all(isinstance(i, slice) and i == slice(None) for i in items):
        return array
    advanced = [i for i in items if isinstance(i, Array) and i.ndim]
    shared = broadcast([i.shape for i in advanced], extents.same)
    shape, sources, d, front = [], [], 0, None  # sources: for each dimension of the array, its index from that of the view
    places = [k for k, i in enumerate(items) if advanced and i is not None and not isinstance(i, slice)]  # numbers broadcast along
    together = not places or places == list(range(places[0], places[-1] + 1))
    if places and not together:
        front, shape = 0, list(shared)
    for item in items:
        at = len(shape)
        if item is None:
            shape.append(1)
            continue
        extent = array.shape[d]
        if isinstance(item, slice):
            first, step, count = _range(item, extent)
            shape.append(count)
            sources.append(lambda index, at=at, first=first, step=step: first + step * index[at])
        elif isinstance(item, Array) and item.ndim:
            if front is None:
                front = at
                shape += shared
            sources.append(lambda index, item=item, at=front: _gathered(
                item, aligned(item, index[at:at + len(shared)])))
        elif isinstance(item, Array):
            sources.append(lambda index, item=item: _gathered(item, []))
        else:
            position = _position(item, extent, array, extents)
            sources.append(lambda index, position=position: position)
        d += 1
    view = moved(array, shape, lambda index: [source(index) for source in sources])
    for item in items:
        if isinstance(item, Array):
            at = front if item.ndim else 0
            view.leaves += [lambda index, leaf=leaf, item=item, at=at: leaf(
                aligned(item, index[at:at + len(shared)] if item.ndim else [])) for leaf in item.leaves]
    view.gathers |= bool(advanced)
    return view


def _gathered(item, index):
    return atom(f"i64({item.text(index)})")


def _spread(array, items):
    """Ellipsis written out, with a slice for each dimension that is not named; a scalar's only element may be named as in DaCe."""
    if not array.ndim and len(items) == 1 and isinstance(items[0], (slice, int)) and items[0] in (slice(None), 0):
        return []
    named = sum(i is not None and i is not Ellipsis for i in items)
    if items.count(Ellipsis) > 1 if not any(isinstance(i, Array) for i in items) else sum(i is Ellipsis for i in items) > 1:
        raise _core.ValueError_("an index with two '...'")
    if named > array.ndim:
        raise _core.ShapeError(f"{named} indices for {array.label or 'an array'} with {array.ndim} dimensions")
    at = next((k for k, i in enumerate(items) if i is Ellipsis), None)
    rest = [slice(None)] * (array.ndim - named)
    items = [*items[:at], *rest, *items[at + 1:]] if at is not None else [*items, *rest]
    for item in items:
        known = item is None or isinstance(item, slice) or is_index(item)
        if _is_mask(item):
            raise _core.UnsupportedOpError("an array of bool as an index; write np.where(mask, a, b)")
        if not known and not (isinstance(item, Array) and item.dtype.kind in "iu"):
            raise _core.ValueError_(f"an index that is {item!r}; write integers, slices, '...' or arrays of integers")
    return items

"""Descriptors of arrays: element type, shape, strides, where they lie, and whether they last longer than a call.

The one idea: a descriptor says what it is itself until it is added to an SDFG; then it is a handle, a graph and a name,
and asks the graph.
Must not know: nodes.
"""
from .. import _core, dtypes
from ..dtypes import StorageType
from .symbolic import Symbolic, free_symbols, parse

_HEAP = (StorageType.Default, StorageType.CPU_Heap, StorageType.CPU_Pinned, StorageType.CPU_ThreadLocal)
_GPU = (StorageType.GPU_Global, StorageType.GPU_Shared)


class Data:
    """A descriptor.

    ``dtype``: a type such as dcml.float32, None where it has not been inferred; ``shape``: a tuple of ints and symbolic
    expressions; ``transient``: it exists inside a call only; ``strides`` in elements; ``storage``; ``total_size``: its
    elements.  ``transient`` and ``storage`` can be set.  In an SDFG it also has a ``name`` and a ``role`` (temp, input,
    param, const, saved).
    """
    _graph = name = None

    def __init__(self, dtype, shape, transient, storage, strides):
        self._dtype, self._shape = dtypes.of(dtype), sizes(shape)
        self._transient, self._storage = bool(transient), _storage(storage)
        self._strides = None if strides is None else sizes(strides)
        if strides is not None and len(self._strides) != len(self._shape):
            raise _core.ShapeError(f"an array of {len(self._shape)} dimensions cannot have {len(self._strides)} strides")

    @staticmethod
    def _handle(graph, name):
        """The descriptor of a container."""
        self = object.__new__(Array if graph.info(name)[1] else Scalar)
        self._graph, self.name = graph, name
        return self

    def _info(self):
        """(dtype, shape, role) of a handle.  Raises ValueError_ naming it if the array is gone."""
        return self._graph.info(self.name)

    @property
    def role(self):
        return None if self._graph is None else self._info()[2]

    @property
    def dtype(self):
        if self._graph is None:
            return self._dtype
        code = self._info()[0]
        return dtypes.of(code) if code else None

    @property
    def shape(self):
        if self._graph is None:
            return self._shape
        return tuple([parse(extent, True) for extent in self._info()[1]])

    @property
    def transient(self):
        if self._graph is None:
            return self._transient
        return self.role in ("temp", "saved", "const") and not self._graph.layout(self.name)[2]

    @transient.setter
    def transient(self, transient):
        self._transient = bool(transient)
        if self._graph is not None:
            self._graph.set_transient(self.name, bool(transient))

    @property
    def strides(self):
        given = self._strides if self._graph is None else self._graph.layout(self.name)[0]
        return row_major(self.shape) if given is None else tuple(parse(s, True) for s in given)

    @property
    def storage(self):
        if self._graph is None:
            return self._storage
        if self._graph.layout(self.name)[1]:
            return StorageType.Register
        return StorageType.GPU_Global if self._graph.device(self.name) == "cuda" else StorageType.Default

    @storage.setter
    def storage(self, storage):
        self._storage = _storage(storage)
        if self._graph is not None:
            place(self._graph, self.name, self._storage, self._graph.layout(self.name)[0])

    @property
    def total_size(self):
        total = 1
        for extent in self.shape:
            total = extent * total
        return total

    @property
    def free_symbols(self):
        return set().union(*(free_symbols(extent) for extent in self.shape if isinstance(extent, Symbolic)))

    @property
    def ctype(self):
        return self.dtype.ctype

    def clone(self):
        """A descriptor of its own, in no SDFG."""
        copy = object.__new__(type(self))
        copy._dtype, copy._shape, copy._transient = self.dtype, tuple(self.shape), self.transient
        copy._storage, copy._strides = self.storage, self._explicit_strides()
        return copy

    def __deepcopy__(self, memo):
        return self.clone()

    def _explicit_strides(self):
        strides = self._strides if self._graph is None else self._graph.layout(self.name)[0]
        return None if strides is None else tuple(parse(s, True) for s in strides)

    def is_equivalent(self, other):
        return isinstance(other, Data) and (self.dtype, self.shape) == (other.dtype, other.shape)

    def __repr__(self):
        text = f"{type(self).__name__}({self.dtype}[{', '.join(map(str, self.shape))}]{', transient' if self.transient else ''})"
        return text if self.name is None else f"{self.name}: {text}"


class Array(Data):
    """An array.  dtype: a type of dcml, numpy or torch; shape: integers, symbols and expressions of them; strides: in
    elements, by default row-major.  Raises DTypeError, ShapeError and ValueError_ for others."""

    def __init__(self, dtype, shape, transient=False, allow_conflicts=False, storage=StorageType.Default, location=None,
                 strides=None, **_):
        super().__init__(dtype, shape, transient, storage, strides)


class Scalar(Data):
    """One number; a container without dimensions, though ``shape`` is (1,), as in DaCe."""

    def __init__(self, dtype, transient=False, storage=StorageType.Default, **_):
        super().__init__(dtype, (), transient, storage, None)

    @property
    def shape(self):
        return (1,)

    def __repr__(self):
        text = f"Scalar({self.dtype}{', transient' if self.transient else ''})"
        return text if self.name is None else f"{self.name}: {text}"


def sizes(shape):
    """A shape as a tuple of ints and Symbolics.  Raises ShapeError for negative extents, ValueError_ for no sizes."""
    extents = tuple([parse(extent) for extent in (shape if isinstance(shape, (tuple, list)) else (shape,))])
    if any(type(extent) is int and not 0 <= extent < 2**62 for extent in extents):
        raise _core.ShapeError(f"shape {list(extents)} has a negative extent, or one that no memory holds")
    return extents


def row_major(shape):
    """The strides of an array that lies row by row."""
    strides, stride = [], 1
    for extent in reversed(shape):
        strides.append(stride)
        stride = extent * stride
    return tuple(reversed(strides))


def core_shape(desc):
    """The shape as the core takes it: ints and texts."""
    shape = () if isinstance(desc, Scalar) else desc.shape
    return tuple([extent if type(extent) is int else str(extent) for extent in shape])


def create_datadescriptor(value):
    """The descriptor of a descriptor, an array or tensor, or a number."""
    if isinstance(value, Data):
        return value
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return Array(value.dtype, tuple(value.shape)) if len(value.shape) else Scalar(value.dtype)
    if isinstance(value, (bool, int, float, complex)):
        return Scalar(type(value))
    raise _core.DTypeError(f"{type(value).__name__} is no array and no number")


def place(graph, name, storage, strides):
    """Puts an array of a core graph where a StorageType says; strides: as the core takes them."""
    graph.set_layout(name, strides, storage is StorageType.Register)
    graph.set_device(name, "cuda" if storage in _GPU else "cpu")


def _storage(storage):
    if storage is None:
        return StorageType.Default
    try:
        storage = storage if isinstance(storage, StorageType) else StorageType(getattr(storage, "name", storage))
    except ValueError:
        raise _core.ValueError_(f"storage={storage!r}: expected a StorageType") from None
    return storage

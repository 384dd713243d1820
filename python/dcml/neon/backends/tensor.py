"""Tensors: arrays with at least two dimensions, whose slices, reshapes and transposes are views.

The one idea: a tensor is an array of numpy's that shares memory with its views.  Must not know: what trees compute, and how
they see views (layout.py).
"""
import numpy as np

from ... import _core, memory
from .layout import argument_of, in_whole_elements, stretched
from .tree import Operand, assigned, is_number

_TYPES = frozenset(np.dtype(t) for t in ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"))
_EVERYTHING = slice(None)


class Tensor(Operand):
    """An array of a backend.

    backend: the Backend that it belongs to.  shape: extents, where ``ary`` is None.  dtype: type of the elements.
    ary: an array of numpy's, whose memory is shared if it has the type; fewer than two dimensions are filled up with 1 at the end.
    name: for printing.  persist_values: kept, without effect.  base: the tensor that this one is a view of, or None.
    Raises DTypeError for a type that no backend has, ShapeError for extents that are no whole numbers.
    """

    def __init__(self, backend, shape=None, dtype=np.float32, ary=None, name=None, persist_values=True, base=None):
        try:
            dtype = np.dtype(dtype)
        except TypeError as error:
            raise _core.DTypeError(f"tensor: {dtype!r} is no type") from error
        if dtype not in _TYPES:
            raise _core.DTypeError(f"tensor: type {dtype} is none of {', '.join(sorted(map(str, _TYPES)))}")
        if ary is None:
            ary = memory.full(extents_from(shape), 0, dtype)
        if type(ary) is not np.ndarray or ary.dtype != dtype:
            ary = memory.copy(ary, dtype)
        if not in_whole_elements(ary):
            ary = ary.copy()
        self._take(backend, ary.reshape(ary.shape + (1,) * (2 - ary.ndim)) if ary.ndim < 2 else ary, base)
        self.name, self.persist_values = name, persist_values

    def _take(self, backend, ary, base):
        self.backend, self.base, self._tensor = backend, base, ary
        self.shape, self.dtype = ary.shape, ary.dtype
        self.name, self.persist_values = None, True
        self._argument = None  # see argument()

    def _view(self, ary):
        view = object.__new__(type(self))
        view._take(self.backend, ary, self)
        return view

    # -- what it is --------------------------------------------------------------------------------
    @property
    def size(self):
        """The number of elements."""
        return self._tensor.size

    @property
    def is_contiguous(self):
        """Whether the elements lie without gaps, the last dimension innermost."""
        return self._tensor.flags.c_contiguous

    @property
    def _original_base(self):
        tensor = self
        while tensor.base is not None:
            tensor = tensor.base
        return tensor

    def __len__(self):
        return self.shape[0]

    def __repr__(self):
        return f"Tensor(name={self.name!r}, shape={self.shape}, dtype={self.dtype})"

    __str__ = __repr__

    def __bool__(self):
        raise ValueError("a tensor has no truth value; tensor.get() gives its array")

    def argument(self):
        """(the array that a compiled tree takes, or None; how the tensor lies in it; who owns the memory): see layout.py."""
        found = self._argument = argument_of(self._tensor)
        return found

    def array(self):
        """The array that a compiled tree takes for the tensor, also where that is the stretch of memory around a view with gaps."""
        layout = self._argument[1]
        return stretched(self._tensor, layout[4], layout[1][0])

    # -- reading and writing -----------------------------------------------------------------------
    def get(self):
        """A copy of the elements, as an array of numpy."""
        return self._tensor.copy()

    def asnumpyarray(self):
        """The elements as an array of numpy that shares their memory."""
        return self._tensor

    def raw(self):
        """The address of the first element."""
        return self._tensor.ctypes.data

    def set(self, value):
        """Copies an array of as many elements, or a number, into the tensor; returns the tensor.

        Raises ShapeError for another number of elements, TypeError for what is no array.
        """
        if isinstance(value, Tensor):
            value = value._tensor
        if isinstance(value, (list, tuple)) or is_number(value):
            value = np.asarray(value)
        if not isinstance(value, np.ndarray):
            raise TypeError(f"set(): expected an array or a number, got {type(value).__name__}")
        if value.ndim and value.shape != self.shape:
            if value.size != self.size:
                raise _core.ShapeError(f"set(): an array of shape {value.shape} for a tensor of shape {self.shape}")
            value = value.reshape(self.shape)
        np.copyto(self._tensor, value, casting="unsafe")
        return self

    def fill(self, value):
        """Gives every element a value; returns the tensor."""
        self._tensor.fill(value)
        return self

    def copy_from(self, a):
        """Assigns a Tensor, an op-tree, an array or a number; returns this tensor."""
        return self._assign(a)

    copy = copy_from

    def _assign(self, value):
        if isinstance(value, Operand):
            self.backend._assign(self, value)
            return self
        if isinstance(value, np.ndarray) and value.ndim:
            try:
                value = np.broadcast_to(value, self.shape) if value.size != self.size else value
            except ValueError as error:
                raise _core.ShapeError(f"an array of shape {value.shape} does not fit a tensor of shape {self.shape}") from error
        return self.set(value)

    def __setitem__(self, index, value):
        target = self if type(index) is slice and index == _EVERYTHING else self[index]
        if isinstance(value, Operand):
            self.backend._assign(target, value)
        else:
            target._assign(value)

    # -- views -------------------------------------------------------------------------------------
    def __getitem__(self, index):
        """A view.  An integer takes its dimension away where more than two are left, and leaves an extent of 1 elsewhere.

        index: integers, slices, an ellipsis, or several.  Raises IndexError for one outside or of another kind.
        """
        if type(index) is slice and index == _EVERYTHING:
            return self
        keys, rank = self._keys(index if isinstance(index, tuple) else (index,)), len(self.shape)
        kept, points = [], []
        for d, key in enumerate(keys):
            if type(key) is not slice:
                k = self._point(d, key)
                points.append(d)
                key = slice(k, k + 1)
            kept.append(key)
        ary = self._tensor[tuple(kept)]
        if points and rank > 2:
            gone = points[:rank - 2]
            ary = ary.reshape([n for d, n in enumerate(ary.shape) if d not in gone])
        return self._view(ary)

    def _keys(self, keys):
        """Indices with slices in the place of an ellipsis."""
        dots = [k for k, key in enumerate(keys) if key is Ellipsis]
        if len(dots) > 1 or len(keys) - len(dots) > len(self.shape):
            raise IndexError(f"{len(keys)} indices for {len(self.shape)} dimensions")
        if not dots:
            return keys
        return keys[:dots[0]] + (_EVERYTHING,) * (len(self.shape) - len(keys) + 1) + keys[dots[0] + 1:]

    def _point(self, d, key):
        """An index of one element as a number from 0."""
        if not hasattr(key, "__index__") or isinstance(key, bool):
            raise IndexError(f"index {key!r} of dimension {d}: expected an integer or a slice; take() takes several")
        k, n = key.__index__(), self.shape[d]
        if not -n <= k < n:
            raise IndexError(f"index {k} is outside of dimension {d}, which has {n}")
        return k % n

    def reshape(self, *shape):
        """A view of other extents; -1 is what is left.

        Of a view whose elements do not lie in a row it is a copy, which cannot be written.  Raises ShapeError for another
        number of elements.
        """
        shape = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        if shape == self.shape:
            return self
        try:
            ary = self._tensor.reshape(shape)
        except ValueError as error:
            raise _core.ShapeError(f"reshape(): shape {self.shape} has {self.size} elements, which {shape} does not fit") from error
        if ary.ndim < 2:
            ary = ary.reshape(ary.shape + (1,) * (2 - ary.ndim))
        if ary.size and not np.may_share_memory(ary, self._tensor):
            ary.flags.writeable = False
        return self._view(ary)

    @property
    def T(self):
        """The transposed view; of three dimensions and more, that of the second and the third."""
        return self._view(self._tensor.T if len(self.shape) == 2 else self._tensor.swapaxes(1, 2))

    def transpose(self, out=None):
        """``T``, assigned to ``out`` if that is given."""
        if out is not None and not isinstance(out, Tensor):
            raise TypeError(f"transpose(): out= takes a Tensor, not {type(out).__name__}")
        return self.T if out is None else out._assign(self.T)

    def share(self, shape, dtype=None, name=None):
        """A view of the first elements as a tensor of this shape; the type stays.

        Raises ShapeError where there are fewer elements, ValueError_ for a view whose elements do not lie in a row.
        """
        shape = extents_from(shape)
        size = int(np.prod(shape, dtype=np.int64))
        if size > self.size:
            raise _core.ShapeError(f"share(): {shape} has {size} elements, the tensor {self.size}")
        if not self.is_contiguous:
            raise _core.ValueError_("share(): the elements of this view do not lie in a row")
        view = self._view(self._tensor.reshape(-1)[:size].reshape(shape + (1,) * (2 - len(shape))))
        view.name = name
        return view

    def take(self, indices, axis=None, out=None):
        """Elements at indices along an axis, or, for None, of the flat tensor, as a new Tensor or in ``out``.

        indices: Tensor, array or list of whole numbers.  Raises IndexError for one outside.
        """
        tree = self.backend.take(self, indices, axis)
        if out is None:
            out = type(self)(self.backend, tree.shape, self.dtype)
        return assigned(tree, out)


def extents_from(shape):
    """A tuple of extents; raises ShapeError for what is none."""
    shape = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    out = []
    for n in shape:
        if isinstance(n, bool) or not hasattr(n, "__index__") and not (isinstance(n, float) and n.is_integer()) or n < 0:
            raise _core.ShapeError(f"shape {shape}: expected extents of 0 or more")
        out.append(int(n))
    return tuple(out)

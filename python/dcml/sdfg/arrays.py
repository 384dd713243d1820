"""The arrays of an SDFG as a mapping, and what declares them.

The one idea: a name in the core's graph; the descriptor of a name is the same object each time.
Must not know: nodes.
"""
import collections.abc

from .. import _core, dtypes
from ..dtypes import StorageType
from . import data
from .symbolic import symbol


class Arrays(collections.abc.Mapping):
    """{name: descriptor} of an SDFG.  ``del arrays[name]`` removes an array that no node uses, ``arrays[name] = descriptor``
    adds one."""
    __slots__ = ("_sdfg",)

    def __init__(self, sdfg):
        self._sdfg = sdfg

    def __getitem__(self, name):
        graph, kept = self._sdfg._graph, self._sdfg._descriptors
        found = kept.get(name)
        if found is None or found.name != name:
            try:
                found = kept[name] = data.Data._handle(graph, name)
            except (_core.ValueError_, TypeError):
                raise KeyError(name) from None
        return found

    def __contains__(self, name):
        try:
            self._sdfg._graph.info(name)
        except (_core.ValueError_, TypeError):
            return False
        return True

    def __iter__(self):
        return iter(self._sdfg._graph.arrays)

    def __len__(self):
        return len(self._sdfg._graph.arrays)

    def __setitem__(self, name, desc):
        self._sdfg.add_datadesc(name, desc)

    def __delitem__(self, name):
        """Raises KeyError for an unknown array, ValueError_ naming a node that uses it."""
        if name not in self:
            raise KeyError(name)
        self._sdfg.graph.remove(name)
        self._sdfg._descriptors.pop(name, None)

    def pop(self, name):
        desc = self[name].clone()
        del self[name]
        return desc

    def __repr__(self):
        return "{" + ", ".join(map(repr, self.values())) + "}"


class Declaring:
    """Mixed into SDFG: what adds arrays, symbols and constants.  Each returns (name, descriptor).

    find_new_name: take another name if there is such an array already; else that raises ValueError_.
    """

    def add_array(self, name, shape, dtype, storage=StorageType.Default, location=None, transient=False, strides=None,
                  offset=None, lifetime=None, debuginfo=None, allow_conflicts=False, total_size=None, find_new_name=False,
                  alignment=0, may_alias=False):
        """An array that the caller gives, and that what writes it changes in place; ``__return`` is a result instead.

        shape, strides (in elements): integers, symbols and expressions of them; transient: of a call's own.
        Raises ShapeError, DTypeError, DeviceError or ValueError_ for what there is not.
        """
        return self.add_datadesc(name, data.Array(dtype, shape, transient, storage=storage, strides=strides), find_new_name)

    def add_transient(self, name, shape, dtype, storage=StorageType.Default, location=None, strides=None, offset=None,
                      lifetime=None, debuginfo=None, allow_conflicts=False, total_size=None, find_new_name=False,
                      alignment=0, may_alias=False):
        """An array that exists inside a call only."""
        return self.add_datadesc(name, data.Array(dtype, shape, True, storage=storage, strides=strides), find_new_name)

    def add_temp_transient(self, shape, dtype, storage=StorageType.Default, strides=None, **_):
        """A transient with a name of its own."""
        return self.add_transient("__tmp0", shape, dtype, storage, strides=strides, find_new_name=True)

    def add_scalar(self, name, dtype, storage=StorageType.Default, transient=False, lifetime=None, debuginfo=None,
                   find_new_name=False):
        """One number."""
        return self.add_datadesc(name, data.Scalar(dtype, transient, storage), find_new_name)

    def add_symbol(self, name, stype=None, find_new_name=False):
        """A size that shapes, ranges and code may name; its value comes from the arguments' shapes or by name."""
        if name in self._graph.symbols and not find_new_name:
            raise _core.ValueError_(f"{self!r} has a symbol {name!r} already")
        name = self._new_name(name) if find_new_name else name
        self._graph.add_symbol(name)
        self._edited()
        return name, symbol(name, stype)

    def add_datadesc(self, name, datadesc, find_new_name=False):
        """What a descriptor says."""
        if not isinstance(datadesc, data.Data):
            raise _core.ValueError_(f"array {name!r}: {datadesc!r} is no descriptor")
        name = self._free_name(name, find_new_name)
        for free in sorted(datadesc.free_symbols | set().union(*(data.free_symbols(s) for s in datadesc.strides))):
            self._graph.add_symbol(free)
        self._graph.add_array(name, int(datadesc.dtype), data.core_shape(datadesc), datadesc.transient)
        strides = datadesc._explicit_strides()
        strides = None if strides is None else [s if type(s) is int else str(s) for s in strides]
        data.place(self._graph, name, datadesc.storage, strides)
        self._edited()
        return name, self.arrays[name]

    def add_constant(self, name, value, dtype=None):
        """An array of fixed contents."""
        import numpy as np
        name = self._free_name(name, False)
        self._graph.add_const(name, np.asarray(value, None if dtype is None else dtypes.of(dtype).dtype))
        self._edited()
        return name, self.arrays[name]

    def _free_name(self, name, find_new_name):
        if not isinstance(name, str) or not name:
            raise _core.ValueError_(f"{name!r} is no name for an array")
        if find_new_name:
            return self._new_name(name)
        if name in self.arrays or name in self._graph.symbols:
            raise _core.ValueError_(f"{self!r} has {'a symbol' if name in self._graph.symbols else 'an array'} {name!r} already")
        return name

    def _new_name(self, name):
        taken, k, found = {*self._graph.arrays, *self._graph.symbols}, 0, name
        while found in taken:
            found, k = f"{name}_{k}", k + 1
        return found

    def replace(self, name, new_name):
        """Renames an array or a symbol everywhere.  Raises ValueError_ if there is no such, or the new name is taken."""
        self.graph.rename(str(name), str(new_name))
        self._descriptors.pop(str(name), None)
        self._edited()

    def replace_dict(self, names):
        for name, new_name in names.items():
            self.replace(name, new_name)

    @property
    def symbols(self):
        """{name: type} of the symbols."""
        return {name: dtypes.int64 for name in self._graph.symbols}

    @property
    def free_symbols(self):
        return set(self._graph.symbols)

    def arglist(self):
        """{name: descriptor} of what a call is given, in order."""
        return {name: self.arrays[name] for name in self._graph.inputs}

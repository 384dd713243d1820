"""Edges of a state, and of an SDFG between its states.

The one idea: an edge is a handle, a state and the edge's number in the core's flat view, with its ends; the state hands
out the same object for the same edge.
Must not know: what a memlet says.
"""
from .memlet import Memlet


class Edge:
    """``src``, ``src_conn``, ``dst``, ``dst_conn``, and the memlet ``data``, which can be set."""
    __slots__ = ("_src", "_src_conn", "_dst", "_dst_conn", "_state", "_id", "_core", "_memlet", "__weakref__")

    def __init__(self, state, id, src, src_conn, dst, dst_conn, core):
        self._state, self._id, self._core, self._memlet = state, id, core, None
        self._src, self._src_conn, self._dst, self._dst_conn = src, src_conn, dst, dst_conn

    src, src_conn = property(lambda self: self._src), property(lambda self: self._src_conn)
    dst, dst_conn = property(lambda self: self._dst), property(lambda self: self._dst_conn)

    @property
    def data(self):
        if self._memlet is None:
            self._memlet = Memlet._of_core(self._core, self._state.sdfg._shape_of, self._changed)
        return self._memlet

    @data.setter
    def data(self, memlet):
        self._changed(memlet)
        self._memlet = None

    def _changed(self, memlet):
        self._core = self._state._core_memlet(memlet)
        self._state._edit().set_memlet(self._id, self._core)

    def _refresh(self, core):
        """What the core says now."""
        if core != self._core:
            self._core, self._memlet = core, None

    def __iter__(self):
        return iter((self.src, self.src_conn, self.dst, self.dst_conn, self.data))

    def __repr__(self):
        conns = [f".{c}" if c else "" for c in (self.src_conn, self.dst_conn)]
        return f"Edge({self.src}{conns[0]} -> {self.dst}{conns[1]}: {self.data})"


class InterstateEdge:
    """What an edge between states says: nothing, since states run in order."""

    def __init__(self, condition=None, assignments=None):
        from .. import _core
        if (condition is not None and str(condition).strip() not in ("1", "True")) or assignments:
            raise _core.UnsupportedOpError("states run one after the other: an edge between them has no condition and no assignments")

    assignments = property(lambda self: {})

    def is_unconditional(self):
        return True

    def __repr__(self):
        return "InterstateEdge()"


class StateEdge:
    """An edge from a state to the next: ``src``, ``dst``, ``data``."""
    __slots__ = ("src", "dst", "data")

    def __init__(self, src, dst):
        self.src, self.dst, self.data = src, dst, InterstateEdge()

    def __eq__(self, other):
        return isinstance(other, StateEdge) and (self.src, self.dst) == (other.src, other.dst)

    def __hash__(self):
        return hash((self.src, self.dst))

    def __repr__(self):
        return f"Edge({self.src} -> {self.dst})"

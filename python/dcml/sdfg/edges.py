"""Edges of a state, and of an SDFG between its states.

The one idea: an edge is a handle, a state and the edge's number in the core's flat view, with its ends; the state hands
out the same object for the same edge.
Must not know: what a memlet says.
"""
import ast

from .. import _core
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
    """What an edge between states says.

    condition: of symbols and elements of arrays, as ``"i < N"``; None: always.
    assignments: {symbol: its value from then on}.
    """

    def __init__(self, condition=None, assignments=None):
        always = condition is None or str(condition).strip() in ("1", "True")
        self.condition = "1" if always else str(getattr(condition, "as_string", condition)).strip()
        self.assignments = {str(symbol): str(value) for symbol, value in (assignments or {}).items()}

    def is_unconditional(self):
        return self.condition == "1"

    @property
    def free_symbols(self):
        """Names in the condition and in what is assigned.  Raises ValueError_ for what is no expression."""
        found = set()
        for text in (self.condition, *self.assignments.values()):
            try:
                found |= {node.id for node in ast.walk(ast.parse(text, mode="eval")) if isinstance(node, ast.Name)}
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                raise _core.ValueError_(f"{text[:200]!r} on an edge between states is no expression") from None
        return found

    def __repr__(self):
        said = [] if self.is_unconditional() else [repr(self.condition)]
        said += [f"assignments={self.assignments}"] if self.assignments else []
        return f"InterstateEdge({', '.join(said)})"


class StateEdge:
    """An edge from a state to another: ``src``, ``dst``, ``data``."""
    __slots__ = ("src", "dst", "data")

    def __init__(self, src, dst, data=None):
        self.src, self.dst, self.data = src, dst, data or InterstateEdge()

    def __eq__(self, other):
        return isinstance(other, StateEdge) and (self.src, self.dst) == (other.src, other.dst)

    def __hash__(self):
        return hash((self.src, self.dst))

    def __repr__(self):
        return f"Edge({self.src} -> {self.dst}: {self.data})"

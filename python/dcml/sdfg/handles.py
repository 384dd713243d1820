"""SDFG and its parts as thin handles on a core Graph.

The one idea: the graph is the only copy of the program; a handle is a graph and an index.
Must not know: passes or operators; transformations are named, the core applies them.
"""
from dataclasses import dataclass


@dataclass(frozen=True)
class Array:
    """A container: dtype (ONNX element type), shape (ints and symbol names), role (input, param, ...)."""
    name: str
    dtype: int
    shape: tuple
    role: str

    @property
    def transient(self):
        """True if the value exists inside a call only."""
        return self.role in ("temp", "saved")


@dataclass(frozen=True)
class Node:
    """A node of a state: id, kind (library, map, tasklet), label, names of containers read and written."""
    graph: object
    id: int
    kind: str
    label: str
    reads: tuple
    writes: tuple

    def __repr__(self):
        return f"{self.label}({', '.join(self.reads)}) -> {', '.join(self.writes)}"


@dataclass(frozen=True)
class State:
    """A dataflow graph inside an SDFG."""
    graph: object
    index: int

    def nodes(self):
        """The nodes in execution order."""
        return [Node(self.graph, *fields) for fields in self.graph.nodes(self.index)]

    def node(self, index):
        return self.nodes()[index]

    @property
    def label(self):
        return f"{self.graph.name}_{self.index}"


class SDFG:
    """A program: containers and states.

    graph: a core Graph; changes made through the handle are changes of the graph.
    """

    def __init__(self, graph):
        self.graph = graph

    @property
    def name(self):
        return self.graph.name

    @property
    def arrays(self):
        """{name: Array} of all containers."""
        return {name: Array(name, *self.graph.info(name)) for name in self.graph.arrays}

    def nodes(self):
        """The states, in order."""
        return [State(self.graph, index) for index in range(self.graph.n_states)]

    states = nodes

    def node(self, index):
        """The state at ``index``."""
        return self.nodes()[index]

    def apply_transformations(self, transformations, options=None, **_):
        """Applies each transformation (a class of dcml.transformation, or a list of them) once, everywhere it
        matches.  Returns the number of matches; raises ValueError_ for an unknown transformation."""
        from ..transformation.base import apply_once
        return apply_once(self, transformations, options)

    def apply_transformations_repeated(self, transformations, options=None, **_):
        """As apply_transformations, until nothing matches or changes any more."""
        from ..transformation.base import apply_repeated
        return apply_repeated(self, transformations, options)

    def apply_strict_transformations(self):
        """Removes what has no effect: dead nodes and identities."""
        self.graph.run_pass("tidy")

    simplify = apply_strict_transformations

    def expand_library_nodes(self):
        """Replaces operators by the maps and tasklets that define them."""
        self.graph.run_pass("infer")
        self.graph.run_pass("expand")

    def save(self, path):
        """Writes the text form, which dcml._core.parse reads back; for a path ending in .onnx, the ONNX form."""
        if str(path).endswith(".onnx"):
            graph = self.graph.clone()
            graph.run_pass("infer")  # a file states the types of its outputs
            with open(path, "wb") as file:
                file.write(graph.to_onnx())
            return
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.graph.text())

    @classmethod
    def from_file(cls, path):
        """Reads what save wrote.  Raises ModelError if the text is not a graph."""
        from .. import _core
        if str(path).endswith(".onnx"):
            with open(path, "rb") as file:
                return cls(_core.import_onnx(file.read(), None, False))
        with open(path, encoding="utf-8") as file:
            return cls(_core.parse(file.read()))

    def __str__(self):
        return self.graph.text()

    def __repr__(self):
        return f"SDFG({self.name!r})"

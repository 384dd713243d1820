"""SDFGs: programs as containers and states, as handles on a core Graph.

The one idea: the graph is the only copy of the program.  An SDFG is the same object for the same graph, as long as
somebody holds it; edits of its states' flat views become the program when someone asks for ``graph``.
Must not know: passes or operators; transformations are named, the core applies them.
"""
import weakref

from .. import _core
from . import control
from .arrays import Arrays, Declaring
from .compiled import CompiledSDFG
from .edges import InterstateEdge, StateEdge
from .state import SDFGState
from .symbolic import MADE

_SIMPLIFYING = ("StateFusion", "RedundantArray")  # transformations of the core
_HANDLES = weakref.WeakValueDictionary()  # id of a graph -> its SDFG, which keeps the graph alive


class SDFG(Declaring):
    """A program.

    name: of a new, empty one; or a core Graph, whose SDFG this then is.
    ``graph``: the core Graph with all edits built into it, which raises a dcml.Error naming what is wrong in them;
    changes made to it are changes of the SDFG.  ``arrays``: {name: descriptor}.
    """

    def __new__(cls, name="sdfg", constants=None, propagate=True, parent=None):
        graph = name if isinstance(name, _core.Graph) else _core.Graph(_name(name))
        self = _HANDLES.get(id(graph))
        if self is None:
            self = super().__new__(cls)
            self._graph, self._states = graph, []
            self._descriptors, self._compiled, self.parent = {}, None, parent
            self._stale_states, self._mentioned, self._params, self._nested, self._nested_in = False, set(), set(), [], []
            self._gpu_maps = []  # maps that somebody gave a schedule of the GPU, until their results are put there
            self._control = []  # edges between states that somebody added, until they are in the graph
            _HANDLES[id(graph)] = self
        return self

    @property
    def graph(self):
        self.build()
        return self._graph

    def build(self):
        """Puts the edits of all states into the graph.  Raises a dcml.Error naming what is wrong in them."""
        for inner in self._nested:
            inner.build()
        while self._gpu_maps:
            self._gpu_maps.pop()._place_results()
        if self._graph.has_drafts:
            self._declare_mentioned()
            for index in range(self._graph.n_states):
                flow = self._graph.flow(index)
                if flow.is_draft:
                    flow.build()
        if self._control and control.is_needed(self):
            control.lower(self)

    def _edited(self):
        self._compiled = None
        for state, node in self._nested_in:
            state._touch(node)

    def _nest(self, inner, state, node):
        """Notes that a node of a state is another SDFG.  Raises ValueError_ if that holds this one."""
        holds = [inner]
        for sdfg in holds:
            if sdfg is self:
                raise _core.ValueError_(f"{self!r} cannot be nested in itself")
            holds += [one for one in sdfg._nested if one not in holds]
        if inner not in self._nested:
            self._nested.append(inner)
        inner._nested_in.append((state, node))
        inner.parent = inner.parent or self

    def _mention(self, names, params=()):
        """Notes names that ranges, memlets and code take from around them, and the parameters of maps."""
        self._mentioned |= names
        self._params.update(params)

    def _declare_mentioned(self):
        """Symbols that somebody made by dcml.symbol need not be added by hand."""
        for name in sorted((self._mentioned - self._params) & MADE):
            if name not in self.arrays:
                self._graph.add_symbol(name)
        self._mentioned.clear()

    # -- what it is -----------------------------------------------------------------------------
    @property
    def name(self):
        return self._graph.name

    @name.setter
    def name(self, name):
        self._graph.name = _name(name)

    label = name

    @property
    def arrays(self):
        """{name: descriptor} of all arrays."""
        return Arrays(self)

    def _shape_of(self, name):
        try:
            return self._graph.info(name)[1]
        except _core.ValueError_:
            raise _core.ValueError_(f"{self!r} has no array {name!r} for a memlet") from None

    # -- states ---------------------------------------------------------------------------------
    def _sync(self):
        """Brings the handles of states in line with the graph, where passes join and drop states."""
        if self._graph.n_states == len(self._states) and not self._stale_states:
            return
        left = {}
        for state in self._states:
            left.setdefault(state._label, []).append(state)
            state._index = None
        self._states = []
        for index, name in enumerate(self._graph.states):
            state = left[name].pop(0) if left.get(name) else SDFGState(self, name)
            state._index = index
            self._states.append(state)
        self._stale_states = False

    def nodes(self):
        """The states, in the order in which they run."""
        self._sync()
        return list(self._states)

    states = nodes

    def node(self, node_id):
        """The state at a position."""
        return self.nodes()[node_id]

    def node_id(self, state):
        return state.index

    def number_of_nodes(self):
        return self._graph.n_states

    @property
    def start_state(self):
        return self.node(0)

    def add_state(self, label=None, is_start_state=False):
        """A state that runs after those there are, or, as start state, before.  Returns it."""
        return self._add_state(label, 0 if is_start_state else self._graph.n_states)

    def add_state_before(self, state, label=None, **_):
        """A state that runs just before another one."""
        return self._add_state(label, state.index)

    def add_state_after(self, state, label=None, **_):
        """A state that runs just after another one."""
        return self._add_state(label, state.index + 1)

    def _add_state(self, label, at):
        taken, k = set(self._graph.states), self._graph.n_states
        wanted = name = str(label or "state")
        while name in taken:
            name, k = f"{wanted}_{k}", k + 1
        self._sync()
        self._graph.add_state(name, at)
        state = SDFGState(self, name)
        self._states.insert(at, state)
        for index in range(at, len(self._states)):
            self._states[index]._index = index
        self._edited()
        return state

    def remove_node(self, state):
        """Removes a state with what it holds."""
        self._graph.remove_state(state.index)
        self._stale_states = True
        self._states.remove(state)
        state._index = None
        self._sync()
        self._edited()

    def edges(self):
        """The edges that were added, until they are built into the graph; then one from each state to the next."""
        self._sync()
        if self._control and control.is_needed(self):
            return list(self._control)
        states = self.nodes()
        return [StateEdge(a, b) for a, b in zip(states, states[1:])]

    @staticmethod
    def _plain_edge(u, v):
        return StateEdge(u, v)

    def in_edges(self, state):
        return [edge for edge in self.edges() if edge.dst is state]

    def out_edges(self, state):
        return [edge for edge in self.edges() if edge.src is state]

    def in_degree(self, state):
        return len(self.in_edges(state))

    def out_degree(self, state):
        return len(self.out_edges(state))

    def predecessors(self, state):
        return [edge.src for edge in self.in_edges(state)]

    def successors(self, state):
        return [edge.dst for edge in self.out_edges(state)]

    def source_nodes(self):
        return self.nodes()[:1]

    def sink_nodes(self):
        return self.nodes()[-1:]

    def add_edge(self, u, v, edge=None):
        """Says that v runs after u, if the condition of the InterstateEdge holds, with the symbols that it assigns.

        Edges that make loops that count, and branches, become sequential maps around what the states hold, when the
        SDFG is next built: validated, transformed, saved or run.  Raises UnsupportedOpError, then, for other circles.
        """
        made = StateEdge(u, v, edge)
        u.index, v.index  # they are states of this SDFG
        for symbol in made.data.assignments:
            if symbol not in self.symbols:
                self._graph.add_symbol(symbol)
        self._mention(made.data.free_symbols)
        self._control.append(made)
        self._edited()
        return made

    def add_loop(self, before_state, loop_state, after_state, loop_var, initialize_expr, condition_expr, increment_expr,
                 loop_end_state=None):
        """States that run for each value of a symbol: ``add_loop(before, body, None, "i", "0", "i < N", "i + 1")``.

        before_state, after_state: None for new ones; loop_end_state: the last of the loop, if it is not loop_state.
        Returns (before_state, the guard that is made between them, after_state).
        """
        before_state, after_state = before_state or self.add_state(), after_state or self.add_state()
        guard = self.add_state("guard")
        self.add_edge(before_state, guard, InterstateEdge(assignments={loop_var: initialize_expr}))
        self.add_edge(guard, loop_state, InterstateEdge(condition_expr))
        self.add_edge(guard, after_state, InterstateEdge(f"not ({condition_expr})"))
        self.add_edge(loop_end_state or loop_state, guard, InterstateEdge(assignments={loop_var: increment_expr}))
        return before_state, guard, after_state

    def add_nedge(self, u, v, data=None):
        return self.add_edge(u, v, data or InterstateEdge())

    def all_nodes_recursive(self):
        """(node, parent): each state with this SDFG, each node with its state, and what nested SDFGs hold."""
        for state in self.nodes():
            yield state, self
            yield from state.all_nodes_recursive()

    def all_edges_recursive(self):
        """(edge, parent) of each edge between states and in them, those of nested SDFGs included."""
        for edge in self.edges():
            yield edge, self
        for state in self.nodes():
            yield from state.all_edges_recursive()

    def all_sdfgs_recursive(self):
        """This SDFG and those nested in it."""
        yield self
        for node, _ in self.all_nodes_recursive():
            if getattr(node, "kind", None) == "nested":
                yield node.sdfg

    def arrays_recursive(self):
        """(SDFG, name, descriptor) of all arrays."""
        for sdfg in self.all_sdfgs_recursive():
            for name, desc in sdfg.arrays.items():
                yield sdfg, name, desc

    def make_array_memlet(self, array):
        """A memlet of all of an array.  Raises KeyError for an unknown one."""
        from .memlet import Memlet
        return Memlet.from_array(array, self.arrays[array])

    # -- changing -------------------------------------------------------------------------------
    def validate(self):
        """Raises a dcml.Error naming the array, connector or node that is not right."""
        self._check_library_nodes()
        self.graph.verify()

    def is_valid(self):
        try:
            self.validate()
        except _core.Error:
            return False
        return True

    def _check_library_nodes(self):
        for node, state in self.all_nodes_recursive():
            if getattr(node, "kind", None) == "library":
                node.validate(state.sdfg, state)

    def apply_transformations(self, transformations, options=None, **_):
        """Applies each transformation (a class of dcml.transformation, or a list of them) once, everywhere it
        matches.  Returns the number of matches; raises ValueError_ for an unknown transformation."""
        from ..transformation.base import apply_once
        return apply_once(self, transformations, options)

    def apply_transformations_repeated(self, transformations, options=None, **_):
        """As apply_transformations, until nothing matches or changes any more."""
        from ..transformation.base import apply_repeated
        return apply_repeated(self, transformations, options)

    def apply_gpu_transformations(self, states=None, validate=True, validate_all=False, permissive=False, sequential_innermaps=True,
                                  register_transients=True, simplify=True):
        """Puts every array on the GPU: the program runs there when it is called, with arrays of either memory.

        simplify: drop what has no effect afterwards.  The other arguments say nothing here: kernels are made for the
        device when the program is compiled.  Returns the number of matches, 0 where all is there already.
        """
        from ..transformation import GPUTransformSDFG
        count = GPUTransformSDFG.apply_to(self)
        if simplify:
            self.simplify()
        return count

    def simplify(self, validate=True, **_):
        """Makes the program shorter: joins states, inlines nested SDFGs, drops what has no effect, copies, and arrays
        that nobody uses."""
        graph = self.graph
        graph.run_pass("tidy")
        while sum([graph.apply(name) for name in _SIMPLIFYING]):
            pass
        for name in graph.unused():
            graph.remove(name)
            self._descriptors.pop(name, None)

    apply_strict_transformations = simplify

    def expand_library_nodes(self, recursive=True):
        """Replaces operators by the maps and tasklets that define them."""
        from ..library import defined, implement
        graph, made = self.graph, defined(self.graph)
        if made is not graph:
            graph.become(made)
        graph.run_pass("infer")
        implement(graph)
        graph.run_pass("expand")

    # -- running --------------------------------------------------------------------------------
    def compile(self, output_file=None, validate=True, optimize=True):
        """A CompiledSDFG.  Raises a dcml.Error naming what is wrong in the program."""
        return CompiledSDFG(self, optimize).prepare()

    def __call__(self, *args, **kwargs):
        """Compiles the program if it has changed, and runs it; see CompiledSDFG."""
        compiled = self._compiled
        if compiled is None or compiled._version != self._graph.version:
            compiled = self.compile()
            self._compiled = compiled
        return compiled(*args, **kwargs)

    # -- saving ---------------------------------------------------------------------------------
    def save(self, path, use_pickle=False, hash=None, exception=None, compress=False):
        """Writes the text form, which from_file reads back; for a path ending in .onnx the ONNX form, in .json JSON."""
        from . import saving
        saving.save(self, path)

    @classmethod
    def from_file(cls, filename):
        """Reads what save wrote.  Raises ModelError if the text is not a graph."""
        from . import saving
        return cls(saving.load(filename))

    def to_json(self, hash=False):
        """The program as a dictionary of lists, numbers and texts."""
        from . import saving
        return saving.to_json(self)

    @classmethod
    def from_json(cls, json_obj, context=None):
        """The program of a dictionary, or a JSON text, that to_json made.  Raises ModelError for another."""
        from . import saving
        return cls(saving.from_json(json_obj))

    def __deepcopy__(self, memo):
        return SDFG(self.graph.clone())

    def __reduce__(self):
        return SDFG.from_json, (self.to_json(),)

    def view(self, filename=None, open=True):
        """Writes a page of HTML that shows the SDFG, drafts included, and asks a browser to open it.

        filename: where the page is written; None: a file in the folder for temporary files.
        open: False only writes.  Where there is no browser, the path is printed.
        Returns the path.
        """
        from . import view
        self._sync()
        return view.view(self._graph, filename, open)

    def _repr_html_(self):
        from . import view
        self._sync()
        return view.notebook(self._graph)

    def __str__(self):
        return self.graph.text()

    def __repr__(self):
        return f"SDFG({self.name!r})"


def _name(name):
    if not isinstance(name, str) or not name:
        raise _core.ValueError_(f"{name!r} is no name for an SDFG")
    return name

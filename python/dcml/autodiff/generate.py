"""Puts gradients that users state into a graph, before the core differentiates it.

The one idea: the core draws a border around an operator (``graph.border``), and what the implementation made takes its
place inside; the core's sweep then finds a gradient there instead of deriving one.
Must not know: how a gradient is derived.
"""
from .. import _core
from ..verbose import say
from .base_abc import BackwardContext, any_registered, implementations_for

_WISH = "__backward_implementation"
_FLOATS = (1, 10, 11, 16)


class BackwardPassGenerator:
    """Asks implementations for the operators of a core Graph whose types and shapes are known."""

    def __init__(self, graph):
        self.graph = graph

    def state_gradients(self, state=None):
        """Gives each operator (of a state by its position, or of all) that an implementation serves the gradient that it
        makes.  Raises what implementations raise, ModelError for a result that does not fit."""
        from ..sdfg import SDFG
        if not any_registered():
            return
        sdfg = SDFG(self.graph)
        operators = {row[0]: row for row in self.graph.operators(True)}
        served = []
        for holder in sdfg.nodes() if state is None else [sdfg.node(state)]:
            for node in holder.nodes():
                row = operators.get(node._node()[2][3]) if node.kind == "library" else None
                if row is None or not implementations_for(row[1], type(node)):
                    continue
                if holder.entry_node(node) is not None:
                    say("dispatch", f"{row[4]}: inside a map its gradient is derived")
                else:
                    served.append((row, holder, node))
        for row, holder, node in served:
            self._serve(row, holder, node, sdfg)

    def _serve(self, row, state, node, sdfg):
        id, op, _, _, description, inputs, outputs = row[:7]
        known = implementations_for(op, type(node))
        wishes = (self.graph.attributes(id).get(_WISH), getattr(type(node), "default_backward_implementation", None))
        for wish in wishes:
            if wish is not None and wish not in known:
                say("dispatch", f"{description}: there is no backward implementation {wish!r}")
        for name in dict.fromkeys([*(w for w in wishes if w in known), *known]):
            if not known[name].backward_can_be_applied(node, state, sdfg):
                say("dispatch", f"{description}: backward implementation {name} ({known[name].__name__}) cannot be applied")
                continue
            places = _places(node.in_connectors, inputs), _places(node.out_connectors, outputs)
            self._state_one(known[name], id, description, node, state, sdfg, places, (inputs, outputs))
            say("dispatch", f"{description}: backward implementation {name} ({known[name].__name__})")
            return

    def _state_one(self, implementation, id, description, node, state, sdfg, places, arrays):
        from ..sdfg import SDFG
        required = [c for c, k in places[0].items() if self._is_variable(arrays[0][k])]
        given = [c for c, k in places[1].items() if self.graph.info(arrays[1][k])[0] in _FLOATS]
        if not required or not given:
            return
        own = SDFG(f"{node.label}_backward")
        context = BackwardContext(sdfg, state, own, own.add_state(), self)
        what = f"{description}: {implementation.__name__}.backward"
        made = implementation.backward(node, context, list(given), list(required))
        made, result = _checked(what, made)
        required = [c for c in required if c in result.required_grad_names]
        values = {c: arrays[0][k] for c, k in places[0].items()} | {c: arrays[1][k] for c, k in places[1].items()}
        if not required:
            raise _core.ModelError(f"{what} gives no gradient: required_grad_names is {result.required_grad_names}")
        placeholder, computed, cotangents, gradients = self.graph.border(
            id, [places[0][c] for c in required], [places[1][c] for c in given])
        values.update(zip(given, computed))
        outer = dict(values)
        outer.update((result.given_grad_names[c], a) for c, a in zip(given, cotangents) if c in result.given_grad_names)
        outer.update((result.required_grad_names[c], a) for c, a in zip(required, gradients))
        inner, names = _contents(what, made, context, outer, self.graph, [result.required_grad_names[c] for c in required])
        for array in [a for a, there in names.items() if there in gradients and _adds_first(inner.graph, a)]:
            _zero_before(inner, array)
        self.graph.replace(placeholder, inner.graph, names)

    def _is_variable(self, array):
        dtype, _, role = self.graph.info(array)
        return dtype in _FLOATS and role != "const"


def _places(connectors, operands):
    """{connector: position among the operands}: connectors come in their order, without those that are absent."""
    present = [k for k, name in enumerate(operands) if name]
    return dict(zip(connectors, present))


def _checked(what, made):
    from .base_abc import BackwardResult
    if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[1], BackwardResult)):
        raise TypeError(f"{what} gave {made!r}, expected a node and a BackwardResult")
    return made


def _contents(what, made, context, outer, graph, gradients):
    """(SDFG, {its array: array of the outer graph}) of what an implementation made."""
    from ..sdfg import SDFG
    from ..sdfg.nodes import NestedSDFG, Node
    if isinstance(made, NestedSDFG) and (made.state is None or made.state.number_of_nodes() == 1):
        made = made.sdfg  # nothing else is there
    if isinstance(made, SDFG):
        unknown = [n for n in made._graph.inputs if n not in outer]
        lacking = [n for n in gradients if n not in made.arrays]
        _refuse(what, "array", unknown, lacking, outer)
        return made, {n: outer[n] for n in made.arrays if n in outer}
    if not isinstance(made, Node):
        raise TypeError(f"{what} gave {made!r}, expected a node or an SDFG")
    own, state = context.backward_sdfg, context.backward_state
    state.add_node(made)
    into = [c for c in made.in_connectors if not list(state.in_edges_by_connector(made, c))]
    out = [c for c in made.out_connectors if not list(state.out_edges_by_connector(made, c))]
    _refuse(what, "connector", [c for c in [*into, *out] if c not in outer], [c for c in gradients if c not in made.out_connectors], outer)
    names = {}
    for connector, is_input in [*((c, True) for c in into), *((c, False) for c in out)]:
        array = _array_like(own, connector, graph, outer[connector], names)
        memlet = own.make_array_memlet(array)
        if is_input:
            state.add_edge(state.add_read(array), None, made, connector, memlet)
        else:
            state.add_edge(made, connector, state.add_write(array), None, memlet)
    return own, names


def _adds_first(graph, array):
    """Does the first node that writes an array add to what is there?"""
    for index in range(graph.n_states):
        for _, _, _, reads, writes in graph.nodes(index):
            if array in writes:
                return array in reads
    return False


def _zero_before(sdfg, array):
    """Gradients are added to nothing: their arrays begin as zeros."""
    from ..sdfg import Memlet
    shape = sdfg.arrays[array].shape
    params = [f"__z{k}" for k in range(len(shape))]
    ranges = {p: f"0:{extent}" for p, extent in zip(params, shape)} or {"__z": "0:1"}
    state = sdfg.add_state_before(sdfg.node(0))
    subset = ", ".join(params) or "0"
    state.add_mapped_tasklet("zero", ranges, {}, "__out = 0", {"__out": Memlet(f"{array}[{subset}]")}, external_edges=True)


def _refuse(what, kind, unknown, lacking, outer):
    if unknown:
        raise _core.ModelError(f"{what} gave the {kind} {unknown[0]!r}, which is neither a gradient nor a connector of the node; "
                               f"those are {', '.join(outer)}")
    if lacking:
        raise _core.ModelError(f"{what} names the gradient {lacking[0]!r}, but gave no {kind} of that name")


def _array_like(own, connector, graph, array, names):
    """An array of the implementation's SDFG that stands for one outside; entered in names."""
    dtype, shape, _ = graph.info(array)
    known = [inner for inner, there in names.items() if there == array]
    if known:
        return known[0]
    name, k = connector, 0
    while name in own.arrays:
        k += 1
        name = f"{connector}_{k}"
    own._graph.add_array(name, dtype, list(shape), False)
    names[name] = array
    return name


def state_gradients(graph):
    """Before a core Graph is differentiated: the gradients that users state."""
    BackwardPassGenerator(graph).state_gradients()

"""The choice of an implementation for each operator of a graph, and the replacement of those that are written in Python.

The one idea: a node has a list of names, the first that can be applied wins; one of the core is left in the graph as the
node's wish, one in Python is called and its SDFG takes the node's place.
Must not know: how the core expands operators, or which libraries there are for one.
"""
import sys

from .. import _core
from ..verbose import say

MASKS = {"native": None, "pure": "none", "interpreted": None,  # natives of _core.Function
         **{name: name for name in _core.libraries()}}
_WISH = "__implementation"
_DEEPEST = 16  # implementations that give nodes which have implementations


class Chooser:
    """Chooses by the default of the library and those of classes, {operator: name}, as they were when it was made."""

    def __init__(self, default, of_class):
        self._default, self._of_class = "native" if default == "interpreted" else default, of_class
        self._of_core = self._default if default in MASKS else "native"  # what the core does with nodes without a wish

    def implement(self, graph):
        """Replaces, in a core Graph, nodes whose implementation is in Python, and notes the choice of the others."""
        done = set()
        for _ in range(_DEEPEST):
            waiting = [node for node in graph.operators(True) if node[0] not in done]
            done.update(node[0] for node in waiting)
            shown = _Shown(graph)
            replaced = [node[1] for node in waiting if self._choose(graph, shown, *node[:2], node[4])]
            if not replaced:
                return
            graph.run_pass("infer")
        raise _core.ModelError(f"the implementation of {replaced[0]} gives nodes without end: it makes itself again")

    def _names(self, op, wish):
        names = (wish, self._of_class.get(op), self._default, "native")
        return list(dict.fromkeys(name for name in names if name is not None))

    def _choose(self, graph, shown, node, op, description):
        """True if the node was replaced."""
        wish = graph.wish(node)
        if wish is None and op not in self._of_class and self._default in MASKS and not _registered(op, self._default):
            return False
        for name in self._names(op, wish):
            implementation = _registered(op, name)
            reason = _refusal(graph, node, op, name) if implementation is None else None
            if reason is not None:
                say("dispatch", f"{description}: {reason}")
            elif implementation is None:
                own = name if name != self._of_core else None
                if own != wish:
                    graph.set_attribute(node, _WISH, own)
                return False
            elif _replace(graph, shown, node, description, name, implementation):
                return True
        return False


def _registered(op, name):
    """The class that is registered for an operator under a name, or None."""
    registry = sys.modules.get("dcml.onnx.op_implementations")
    return registry.implementations_of(op).get(name) if registry else None


def _refusal(graph, node, op, name):
    """Why the core cannot give a node this implementation; None if it can."""
    if name == "onnxruntime":
        from ..onnx.environments.onnxruntime import refuses
        reason = refuses(graph, node)
        return reason and f"onnxruntime is not used: {reason}"
    if name in MASKS and name != "interpreted":
        return None
    return f"there is no implementation {name!r} of {op}"


# -- replacing ------------------------------------------------------------------------------------
class _Shown:
    """A graph as an SDFG of its own, for implementations, which may change it: then the next gets another."""

    def __init__(self, graph):
        self._graph, self._sdfg = graph.clone(), None

    def find(self, id):
        """(SDFG, state, handle) of an operator by its id in the graph."""
        from ..sdfg import SDFG
        if self._sdfg is None or self._sdfg._graph.has_drafts or self._sdfg._graph.version != self._version:
            self._sdfg = SDFG(self._graph.clone())
            self._version = self._sdfg._graph.version
            self._nodes = {node._node()[2][3]: (state, node) for state in self._sdfg.nodes() for node in state.nodes()
                           if node.kind == "library"}
        if id not in self._nodes:
            raise _core.ValueError_(f"{self._sdfg!r} has no operator {id}")
        return self._sdfg, *self._nodes[id]


def _replace(graph, shown, id, description, name, implementation):
    """Puts what the implementation gives in the node's place; False if it cannot be applied to the node."""
    sdfg, state, node = shown.find(id)
    node.validate(sdfg, state)
    who = f"{name} ({implementation.__name__})"
    if not implementation.forward_can_be_applied(node, state, sdfg):
        say("dispatch", f"{description}: {who} cannot be applied")
        return False
    arrays = {edge.dst_conn: edge.data.data for edge in state.in_edges(node)}
    arrays.update((edge.src_conn, edge.data.data) for edge in state.out_edges(node))
    inner = _as_graph(implementation.forward(node, state, sdfg), f"{description}: {implementation.__name__}.forward", node, sdfg, arrays)
    say("dispatch", f"{description}: {who}")
    graph.replace(id, inner, arrays)
    return True


def _as_graph(made, what, node, sdfg, arrays):
    """The core Graph of what an implementation gave: of an SDFG its own, of a node one that holds just that."""
    from ..sdfg import SDFG
    from ..sdfg.nodes import Node
    if isinstance(made, Node):
        made = _around(_detached(made, what), node, sdfg, arrays)
    if not isinstance(made, SDFG):
        raise TypeError(f"{what} gave {made!r}, expected an SDFG or a node")
    graph = made.graph
    for name in graph.arrays:
        if graph.info(name)[2] == "input" and name not in arrays:
            raise _core.ModelError(f"{what} gave an SDFG with the array {name!r}, which is neither transient nor a connector of the "
                                   f"node; those are {', '.join(arrays)}")
    return graph


def _detached(made, what):
    """The node, or, of one that was added to the state, one like it."""
    if made.state is None:
        return made
    if made.state.in_edges(made) or made.state.out_edges(made):
        raise _core.ModelError(f"{what} gave {made!r} with edges; expected a node without, it gets those of the operator")
    return made.copy()


def _around(made, node, sdfg, arrays):
    """An SDFG with an array for each connector and one node between them."""
    from ..sdfg import SDFG
    around = SDFG(node.op)
    state = around.add_state()
    for connector, array in arrays.items():
        outer = sdfg.arrays[array]
        around.add_array(connector, outer.shape, outer.dtype)
    state.add_node(made)
    for connector in node.in_connectors:
        state.add_edge(state.add_read(connector), None, made, connector, around.make_array_memlet(connector))
    for connector in node.out_connectors:
        state.add_edge(made, connector, state.add_write(connector), None, around.make_array_memlet(connector))
    return around

"""The choice of an implementation for each operator of a graph, and the replacement of those that are written in Python.

The one idea: a node has a list of names, the first that can be applied wins; one of the core is left in the graph as the
node's wish, one in Python is called and its SDFG takes the node's place.
Must not know: how the core expands operators, or which libraries there are for one.
"""
import importlib.util
import sys

from .. import _core
from ..verbose import say

MASKS = {"native": None, "pure": "none", "onednn": "onednn", "openblas": "openblas", "interpreted": None}  # natives of _core.Function
_WISH = "__implementation"
_DEEPEST = 16  # implementations that give nodes which have implementations


class Chooser:
    """Chooses by the default of the library and those of classes, {operator: name}, as they were when it was made."""

    def __init__(self, default, of_class):
        self._default, self._of_class = default, of_class

    def implement(self, graph):
        """Replaces, in a core Graph, nodes whose implementation is in Python, and notes the choice of the others."""
        done = set()
        for _ in range(_DEEPEST):
            waiting = [node for node in graph.operators() if node[0] not in done]
            done.update(node[0] for node in waiting)
            replaced = [node[1] for node in waiting if self._choose(graph, *node[:2], node[4])]
            if not replaced:
                return
            graph.run_pass("infer")
        raise _core.ModelError(f"the implementation of {replaced[0]} gives nodes without end: it makes itself again")

    def _names(self, op, wish):
        names = (wish, self._of_class.get(op), self._default, "native")
        return list(dict.fromkeys(name for name in names if name is not None))

    def _choose(self, graph, node, op, description):
        """True if the node was replaced."""
        wish = graph.wish(node)
        if wish is None and op not in self._of_class and self._default in MASKS and not _registered(op, self._default):
            return False
        for name in self._names(op, wish):
            implementation = _registered(op, name)
            if implementation is not None:
                if _replace(graph, node, description, name, implementation):
                    return True
            elif name in MASKS and name != "interpreted":
                say("dispatch", f"{description}: {name}")
                graph.set_attribute(node, _WISH, name)
                return False
            elif name != "interpreted":
                say("dispatch", f"{description}: {_why_not(op, name)}")
        return False


def _registered(op, name):
    """The class that is registered for an operator under a name, or None."""
    registry = sys.modules.get("dcml.onnx.op_implementations")
    return registry.implementations_of(op).get(name) if registry else None


def _why_not(op, name):
    if name != "onnxruntime":
        return f"there is no implementation {name!r} of {op}"
    installed = importlib.util.find_spec("onnxruntime") is not None
    return "onnxruntime is not used: " + ("it takes whole models only" if installed else "the package is not installed")


# -- replacing ------------------------------------------------------------------------------------
def _replace(graph, id, description, name, implementation):
    """Puts what the implementation gives in the node's place; False if it cannot be applied to the node."""
    from ..sdfg import SDFG
    sdfg = SDFG(graph)
    state, node = _find(sdfg, id)
    node.validate(sdfg, state)
    if not implementation.forward_can_be_applied(node, state, sdfg):
        say("dispatch", f"{description}: {name} ({implementation.__name__}) cannot be applied")
        return False
    made = implementation.forward(node, state, sdfg)
    arrays = {edge.dst_conn: edge.data.data for edge in state.in_edges(node)}
    arrays.update((edge.src_conn, edge.data.data) for edge in state.out_edges(node))
    inner = _as_sdfg(made, implementation, node, sdfg, arrays)
    unknown = [n for n, a in inner.arrays.items() if not a.transient and n not in arrays and graph_role(inner, n) not in ("const", "param")]
    if unknown:
        raise _core.ModelError(f"{description}: {implementation.__name__}.forward gave an SDFG with the array {unknown[0]!r}, which is not "
                               f"transient and no connector of the node; those are {', '.join(arrays)}")
    say("dispatch", f"{description}: {name} ({implementation.__name__})")
    graph.replace(id, inner.graph, arrays)
    return True

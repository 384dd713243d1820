"""Pure<Op> for each operator of the table: the expansion of its row, as an SDFG.

They are what the implementation "pure" of a node is where nobody has registered another, so they are not registered
themselves: the core expands nodes without asking them.  They are for looking at, and for implementations that build on them.
Must not know: what rows say.
"""
from ... import _core
from ..forward_implementation_abc import ONNXForward
from ..nodes import operators
from ..nodes.onnx_op import connectors_in_order


class _Expansion(ONNXForward):
    """Implementation name "pure": the expansion of the operator's row."""
    _operator, _rank = None, None

    @classmethod
    def forward_can_be_applied(cls, node, state, sdfg):
        """Is the node of this operator, with arrays of the rank that the class is for?"""
        if node.op != cls._operator:
            return False
        if cls._rank is None:
            return True
        first = node.iter_inputs_in_onnx_order(state)[0].dst_conn
        return len(sdfg.graph.info(_arrays(node, state)[first])[1]) == cls._rank

    @classmethod
    def forward(cls, node, state, sdfg):
        """The expansion of the node.

        node: a node of this operator; state, sdfg: where it is.
        Returns an SDFG with an array for each connector.  Raises what shape inference raises.
        """
        from ...sdfg import SDFG
        graph = _core.Graph(node.op, node.opset)
        arrays = _arrays(node, state)
        inputs = connectors_in_order(node.schema.inputs, node.in_connectors)
        for name in filter(None, inputs):
            number, shape, role = sdfg.graph.info(arrays[name])
            data = sdfg.graph.data(arrays[name]) if role == "const" else None
            if data is None:
                graph.add_input(name, number, list(shape))
            else:
                graph.add_const(name, data)
        op, domain, opset = node._op
        attributes = {name: value for name, value in node._attributes().items() if not name.startswith("__")}
        outputs = connectors_in_order(node.schema.outputs, node.out_connectors)
        outputs = [name or f"unused{k}" for k, name in enumerate(outputs)]
        for name in graph.add_node(op, inputs, outputs, attributes, domain=domain, opset=opset):
            if name in node.out_connectors:
                graph.mark_output(name)
        graph.run_pass("infer")
        graph.run_pass("expand")
        return SDFG(graph)


def _arrays(node, state):
    """{connector: array} of a node."""
    arrays = {edge.dst_conn: edge.data.data for edge in state.in_edges(node)}
    return {**arrays, **{edge.src_conn: edge.data.data for edge in state.out_edges(node)}}


def expansion(name, operator, rank=None):
    """The class ``name`` for an operator, of arrays of a rank if one is given."""
    doc = f'Implementation name "pure" of {operator}: the expansion of its row.'
    return type(name, (_Expansion,), {"__module__": __name__, "__doc__": doc, "_operator": operator, "_rank": rank})


def __getattr__(name):
    operator = name[len("Pure"):]
    if not name.startswith("Pure") or not operators.exists(operator):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = expansion(name, operator)
    return globals()[name]


def __dir__():
    return sorted([*globals(), *("Pure" + name for name in operators.names())])

"""Graphs as attributes of nodes: what is given as a body, as the core takes it.

The one idea: whatever a body is given as becomes a core graph, and the names of the values around it that it reads.
Must not know: nodes or operators.
"""
from ... import _core


def is_graph(value):
    """Is it a graph in one of the forms that body() takes?"""
    from ...sdfg import SDFG
    from ..model import ONNXModel
    if isinstance(value, (_core.Graph, SDFG, ONNXModel)):
        return True
    if isinstance(value, tuple):
        return len(value) == 2 and isinstance(value[0], _core.Graph)
    return type(value).__name__ in ("GraphProto", "ModelProto") and hasattr(value, "SerializeToString")


def body(value, opset, n_given):
    """(core graph, names of the values that its last inputs stand for).

    value: an SDFG, ONNXModel, ModelProto or GraphProto, whose operators are of ``opset``; n_given: how many inputs the
        operator gives to a body, None if that depends on its connectors; then all inputs of an SDFG or model are given.
    Raises TypeError for a graph without results, and what reading a model raises.
    """
    from ...sdfg import SDFG
    from ..model import ONNXModel
    if isinstance(value, tuple):
        return value
    if isinstance(value, ONNXModel):
        graph = value._graph
    elif isinstance(value, (SDFG, _core.Graph)):
        graph = value.graph if isinstance(value, SDFG) else value
    elif type(value).__name__ == "ModelProto":
        graph = _core.import_onnx(value.SerializeToString())
    else:
        return _of_proto(value, opset)
    if not graph.outputs:
        raise TypeError(f"the graph {graph.name!r} has no results that an operator could give on")
    return graph, [] if n_given is None else list(graph.inputs)[n_given:]


def _of_proto(proto, opset):
    """Of a GraphProto; it is read as a branch, for which the reader finds what it takes of the graph around."""
    import onnx
    make, outer = onnx.helper, _free_names(proto, set())
    # where the node is put into a state, the types are those of the arrays
    given = [make.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in outer]
    free = "condition"
    while free in outer:
        free += "_"
    holder = make.make_node("If", [free], [f"result_{k}" for k in range(len(proto.output))], then_branch=proto, else_branch=proto)
    condition = make.make_tensor_value_info(free, onnx.TensorProto.BOOL, [])
    around = make.make_graph([holder], "around", [condition, *given], [make.make_empty_tensor_value_info(name) for name in holder.output])
    graph = _core.import_onnx(make.make_model(around, opset_imports=[make.make_opsetid("", opset)]).SerializeToString())
    return graph.attributes(graph.operators()[0][0])["then_branch"]


def _free_names(graph, known):
    """Names that a GraphProto reads and does not make, in the order of their first reads."""
    known = {*known, *(i.name for i in graph.input), *(t.name for t in graph.initializer), ""}
    known.update(t.values.name for t in graph.sparse_initializer)
    free = {}
    for node in graph.node:
        read = [*node.input, *(name for a in node.attribute for g in (a.g, *a.graphs) for name in _free_names(g, known))]
        free.update(dict.fromkeys(name for name in read if name not in known))
        known.update(node.output)
    free.update(dict.fromkeys(o.name for o in graph.output if o.name not in known))
    return list(free)


__all__ = ["body", "is_graph"]

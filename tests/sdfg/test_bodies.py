"""Graphs as attributes of nodes: bodies of If, Loop, Scan and SequenceMap."""
import numpy as np
import pytest

import dcml

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper  # noqa: E402

from dcml.onnx import ONNXIf, ONNXLoop, ONNXModel, ONNXRelu, ONNXScan  # noqa: E402


def branch(op):
    """A body that reads A of the graph around it."""
    return helper.make_graph([helper.make_node(op, ["A", "two"], ["b"])], op, [], [helper.make_tensor_value_info("b", 1, None)],
                             [helper.make_tensor("two", 1, [], [2.0])])


def with_choice(then_branch, else_branch):
    sdfg = dcml.SDFG("choice")
    sdfg.add_array("A", [3], dcml.float32)
    sdfg.add_array("c", [1], dcml.bool_)
    sdfg.add_array("__return", [3], dcml.float32)
    state, node = sdfg.add_state("only"), ONNXIf("choose", then_branch=then_branch, else_branch=else_branch)
    state.add_node(node)
    node.add_out_connector("outputs__0")
    state.add_edge(state.add_read("c"), None, node, "cond", dcml.Memlet("c[0]"))
    state.add_edge(node, "outputs__0", state.add_write("__return"), None, dcml.Memlet("__return[0:3]"))
    return sdfg


def halved():
    @dcml.program
    def halved(A: dcml.float32[3]):
        return A / 2
    return halved.to_sdfg()


def model_of(op):
    inputs = [helper.make_tensor_value_info("A", 1, [3])]
    graph = helper.make_graph(branch(op).node, op, inputs, [helper.make_tensor_value_info("b", 1, [3])], branch(op).initializer)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


A = np.float32([1, 2, 3])


@pytest.mark.parametrize("body", (lambda: branch("Div"), halved, lambda: ONNXModel("half", model_of("Div")), lambda: model_of("Div")),
                         ids=("GraphProto", "SDFG", "ONNXModel", "ModelProto"))
def test_a_choice_between_graphs_runs(body):
    sdfg = with_choice(body(), branch("Mul"))
    sdfg.validate()
    for condition, want in ((True, A / 2), (False, A * 2), (True, A / 2)):
        assert np.array_equal(sdfg(A=A, c=np.array([condition])), want)


def test_graphs_are_kept_and_read_back(tmp_path):
    sdfg = with_choice(branch("Div"), branch("Mul"))
    sdfg.validate()
    node, = [n for n in sdfg.node(0).nodes() if isinstance(n, ONNXIf)]
    assert isinstance(node.then_branch, dcml.SDFG) and "Div" in node.then_branch.graph.text()
    sdfg.save(tmp_path / "choice.sdfg")
    again = dcml.SDFG.from_file(tmp_path / "choice.sdfg")
    assert np.array_equal(again(A=A, c=np.array([False])), A * 2)
    node.else_branch = branch("Add")
    assert np.array_equal(sdfg(A=A, c=np.array([False])), A + 2)


def loop_body():
    return helper.make_graph([helper.make_node("Add", ["x", "A"], ["y"])], "body",
                             [helper.make_tensor_value_info("i", TensorProto.INT64, []),
                              helper.make_tensor_value_info("go", TensorProto.BOOL, []),
                              helper.make_tensor_value_info("x", 1, None)],
                             [helper.make_tensor_value_info("go", TensorProto.BOOL, []), helper.make_tensor_value_info("y", 1, None)])


def test_a_loop_over_a_graph_runs():
    sdfg = dcml.SDFG("loop")
    sdfg.add_array("A", [3], dcml.float32)
    sdfg.add_array("times", [1], dcml.int64)
    sdfg.add_array("__return", [3], dcml.float32)
    state, node = sdfg.add_state("only"), ONNXLoop("again", body=loop_body())
    state.add_node(node)
    for name, array in (("M", "times"), ("v_initial__0", "A")):
        node.add_in_connector(name)
        state.add_edge(state.add_read(array), None, node, name, dcml.Memlet(f"{array}[0:{1 if name == 'M' else 3}]"))
    node.add_out_connector("v_final_and_scan_outputs__0")
    state.add_edge(node, "v_final_and_scan_outputs__0", state.add_write("__return"), None, dcml.Memlet("__return[0:3]"))
    for times in (0, 3):
        assert np.array_equal(sdfg(A=A, times=np.array([times])), A * (times + 1))


def test_what_is_no_body_is_refused():
    with pytest.raises(TypeError, match="then_branch"):
        ONNXIf("n", then_branch=object(), else_branch=branch("Mul"))
    with pytest.raises(TypeError, match="needs the attribute 'else_branch'"):
        ONNXIf("n", then_branch=branch("Mul"))
    with pytest.raises(TypeError, match="no results"):
        ONNXScan("n", body=dcml.SDFG("empty"), num_scan_inputs=1)
    with pytest.raises(TypeError):
        ONNXRelu("n", alpha=branch("Mul"))
    with pytest.raises(dcml.Error, match="Q"):
        body = helper.make_graph([helper.make_node("Relu", ["Q"], ["b"])], "g", [], [helper.make_tensor_value_info("b", 1, None)])
        with_choice(body, body).validate()


def test_a_map_over_a_sequence_runs_and_hands_gradients_on():
    body = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["y"])], "scale", [helper.make_tensor_value_info("x", 1, None),
                             helper.make_tensor_value_info("w", 1, None)], [helper.make_tensor_value_info("y", 1, None)])
    nodes = [helper.make_node("SplitToSequence", ["X"], ["parts"], axis=0), helper.make_node("SequenceMap", ["parts", "W"], ["scaled"], body=body),
             helper.make_node("ConcatFromSequence", ["scaled"], ["Y"], axis=0)]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("X", 1, [3, 2]), helper.make_tensor_value_info("W", 1, [2])],
                              [helper.make_tensor_value_info("Y", 1, [3, 2])])
    model = ONNXModel("mapped", helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    x, w = np.float32([[1, 2], [3, 4], [5, 6]]), np.float32([2, -1])
    assert np.array_equal(model(x, w), x * w) and np.array_equal(model.sdfg(X=x, W=w), x * w)
    torch = pytest.importorskip("torch")
    x, w = torch.from_numpy(x).requires_grad_(), torch.from_numpy(w).requires_grad_()
    model(x, w).sum().backward()
    assert torch.equal(x.grad, w.detach().expand(3, 2)) and torch.equal(w.grad, x.detach().sum(0))


def test_a_map_over_a_sequence_is_a_node_of_an_sdfg():
    from dcml.onnx import ONNXConcatFromSequence, ONNXSequenceMap, ONNXSplitToSequence
    body = helper.make_graph([helper.make_node("Add", ["x", "A"], ["y"])], "shift", [helper.make_tensor_value_info("x", 1, None)],
                             [helper.make_tensor_value_info("y", 1, None)])
    node = ONNXSequenceMap("each", body=body)
    assert isinstance(node.body, dcml.SDFG) and "input_sequence" in node.in_connectors
    with pytest.raises(TypeError, match="body"):
        ONNXSequenceMap("each")
    assert ONNXSplitToSequence("s", axis=0).axis == 0 and ONNXConcatFromSequence("c", axis=0).axis == 0

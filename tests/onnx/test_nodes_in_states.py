"""Operators in states and in models: validation, order of edges, versions and attributes of what is there."""
import numpy as np
import pytest
from onnx import helper, numpy_helper

import dcml
import dcml.onnx as donnx


def sdfg_of(node, inputs, outputs, **types):
    """An SDFG of one node; inputs, outputs: connectors, whose arrays have their names."""
    sdfg = dcml.SDFG("one")
    state = sdfg.add_state("main")
    state.add_node(node)
    for name in [*inputs, *outputs]:
        sdfg.add_array(name, (3,), types.get(name, dcml.float32))
        side = "in" if name in inputs else "out"
        getattr(node, f"add_{side}_connector")(name)
    for name in inputs:
        state.add_edge(state.add_read(name), None, node, name, sdfg.make_array_memlet(name))
    for name in outputs:
        state.add_edge(node, name, state.add_write(name), None, sdfg.make_array_memlet(name))
    return sdfg


@pytest.mark.parametrize("node, inputs, outputs, types, error, part", [
    (donnx.ONNXSum, ["data_0__0", "data_0__2"], ["sum"], {}, dcml.ModelError, "ONNXSum 'n': variadic input 'data_0' has a gap: data_0__1 is missing"),
    (donnx.ONNXSum, ["data_0__00"], ["sum"], {}, dcml.ModelError, "leading zero, expected data_0__0"),
    (donnx.ONNXSum, ["data_0"], ["sum"], {}, dcml.ModelError, "no input 'data_0'"),
    (donnx.ONNXAbs, ["X__0"], ["Y"], {}, dcml.ModelError, "no input 'X__0'; its inputs are X"),
    (donnx.ONNXAbs, ["X", "Z"], ["Y"], {}, dcml.ModelError, "no input 'Z'"), (donnx.ONNXAbs, ["X"], ["Y", "Z"], {}, dcml.ModelError, "no output 'Z'"),
    (donnx.ONNXAbs, [], ["Y"], {}, dcml.ModelError, "input 'X' has 0 edges, expected one"),
    (donnx.ONNXAbs, ["X"], [], {}, dcml.ModelError, "output 'Y' has 0 edges"),
    (donnx.ONNXAnd, ["A", "B"], ["C"], {}, dcml.DTypeError, "'A' is the array 'A' of float32, expected bool"),
    (donnx.ONNXAdd, ["A", "B"], ["C"], {"B": dcml.float64, "C": dcml.float64}, dcml.DTypeError, "'B' is of float64, but 'A' of float32; both are T"),
    (donnx.ONNXShape, ["data"], ["shape"], {"shape": dcml.int32}, dcml.DTypeError, "'shape' is the array 'shape' of int32, expected int64")])
def test_what_does_not_fit_fails_validate_and_is_named(node, inputs, outputs, types, error, part):
    made = node("n")
    sdfg = sdfg_of(made, inputs, outputs, **types)
    with pytest.raises(error, match=part):
        made.validate(sdfg, sdfg.node(0))


def test_what_fits_is_valid():
    node = donnx.ONNXClip("clip")
    sdfg = sdfg_of(node, ["input", "max"], ["output"])
    node.validate(sdfg, sdfg.node(0))
    sdfg.validate()


def test_edges_come_in_the_order_of_onnx():
    node = donnx.ONNXSum("sum")
    sdfg = sdfg_of(node, [f"data_0__{k}" for k in (10, 2, 0, 1, *range(3, 10))], ["sum"])
    state = sdfg.node(0)
    assert [e.dst_conn for e in node.iter_inputs_in_onnx_order(state)] == [f"data_0__{k}" for k in range(11)]
    assert [e.src_conn for e in node.iter_outputs_in_onnx_order(state)] == ["sum"]
    assert [is_input for _, is_input in node.iter_edges(state)] == [True] * 11 + [False]
    batch = donnx.ONNXBatchNormalization("b")
    state = sdfg_of(batch, ["in_var", "X", "B", "in_mean", "scale"], ["Y"]).node(0)
    assert [e.dst_conn for e in batch.iter_inputs_in_onnx_order(state)] == ["X", "scale", "B", "in_mean", "in_var"]


def test_a_node_in_a_state_keeps_what_it_is_given():
    node = donnx.ONNXLeakyRelu("leaky", alpha=0.5)
    sdfg = sdfg_of(node, ["X"], ["Y"])
    x, y = np.float32([-1, 0, 2]), np.zeros(3, np.float32)
    sdfg(X=x, Y=y)
    np.testing.assert_array_equal(y, [-0.5, 0, 2])
    node.alpha = 0.25
    assert node.alpha == 0.25 and sdfg.node(0).nodes()[1] is node
    sdfg(X=x, Y=y)
    np.testing.assert_array_equal(y, [-0.25, 0, 2])
    with pytest.raises(TypeError, match="'alpha'"):
        node.alpha = "steep"


def test_a_node_in_a_state_may_become_of_a_later_version():
    node = donnx.ONNXReshape("r")
    sdfg = sdfg_of(node, ["data", "shape"], ["reshaped"], shape=dcml.int64)
    assert node.opset == 12 and "Reshape@12" in str(sdfg)
    node.allowzero = 1
    assert node.opset == 14 and "Reshape@14" in str(sdfg)


def test_requests_last_in_files(tmp_path):
    node = donnx.ONNXAbs("a")
    sdfg = sdfg_of(node, ["X"], ["Y"])
    node.implementation = "pure"
    sdfg.save(tmp_path / "abs.sdfg")
    (again,) = [n for n in dcml.SDFG.from_file(tmp_path / "abs.sdfg").node(0).nodes() if isinstance(n, donnx.ONNXOp)]
    assert again.implementation == "pure" and again.backward_implementation is None


def model():
    nodes = [helper.make_node("Sum", ["A", "B", "A"], ["S"], name="sum"), helper.make_node("Clip", ["S", "", "top"], ["C"]),
             helper.make_node("BatchNormalization", ["C", "w", "w", "w", "w"], ["Y"], epsilon=0.5)]
    values = [helper.make_tensor_value_info(name, 1, [2, 3]) for name in "ABY"]
    constants = [numpy_helper.from_array(np.ones(3, np.float32), "w"), numpy_helper.from_array(np.float32(1), "top")]
    graph = helper.make_graph(nodes, "g", values[:2], values[2:], constants)
    return donnx.ONNXModel("m", helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]))


def test_nodes_of_models_are_of_these_classes_and_keep_their_versions():
    m = model()
    total, clip, batch = [node for node in m.state.nodes() if isinstance(node, donnx.ONNXOp)]
    assert [type(n) for n in (total, clip, batch)] == [donnx.ONNXSum, donnx.ONNXClip, donnx.ONNXBatchNormalization]
    assert list(total.in_connectors) == ["data_0__0", "data_0__1", "data_0__2"] and list(clip.in_connectors) == ["input", "max"]
    assert total.label == "sum" and (batch.opset, batch.schema.since_version, donnx.ONNXBatchNormalization.schema.since_version) == (21, 15, 9)
    assert list(batch.in_connectors) == ["X", "scale", "B", "input_mean", "input_var"] and batch.epsilon == 0.5 and batch.training_mode == 0
    for node in (total, clip, batch):
        node.validate(m.sdfg, m.state)
    batch.epsilon = 0.25
    assert "epsilon = 0.25" in str(m.sdfg)


def test_an_attribute_of_another_version_is_none_of_the_nodes():
    batch = donnx.ONNXBatchNormalization("b")
    with pytest.raises(AttributeError, match="'training_mode' in opset 12"):
        batch.training_mode  # noqa: B018


def test_operators_that_are_not_in_the_table_are_library_nodes():
    graph = dcml._core.parse('graph g opset 12 { input X: f32[3] temp Y: f32[3] outputs Y state s { Y = Example::Mine@1(X) } }')
    (node,) = [n for n in dcml.SDFG(graph).node(0).nodes() if n.kind == "library"]
    assert not isinstance(node, donnx.ONNXOp) and node.op == "Mine"


def test_nodes_of_captured_modules_have_classes():
    import torch
    module = dcml.DaceModule(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU()), dummy_inputs=(torch.ones(2, 3),))
    kinds = {type(n).__name__ for n in module.sdfg.node(0).nodes() if n.kind == "library"}
    assert "ONNXRelu" in kinds and kinds & {"ONNXGemm", "ONNXMatMul"}


def test_gradients_are_library_nodes_without_a_schema():
    import torch
    module = dcml.DaceModule(torch.nn.Linear(64, 32), backward=True)
    module(torch.randn(16, 64, requires_grad=True)).sum().backward()
    sdfg = module.backward_sdfg
    sdfg.validate()
    assert not any(isinstance(node, donnx.ONNXOp) for node in sdfg.node(0).nodes())


def test_hosts_operators_have_the_names_of_their_parameters():
    values = helper.make_tensor_value_info("X", 1, [3]), helper.make_tensor_value_info("Y", 7, [1, None])
    graph = helper.make_graph([helper.make_node("NonZero", ["X"], ["Y"])], "g", values[:1], values[1:])
    m = donnx.ONNXModel("m", helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]))
    (node,) = [n for n in m.state.nodes() if isinstance(n, donnx.ONNXOp)]
    assert type(node) is donnx.ONNXNonZero and list(node.in_connectors) == ["X"] and list(node.out_connectors) == ["Y"]
    node.validate(m.sdfg, m.state)


def test_every_model_of_onnxs_own_cases_is_valid():
    import backend_cases
    models = [case.model for case in backend_cases.collect()][::7]
    assert len(models) > 200
    for model in models:
        loaded = donnx.ONNXModel("m", model)
        if loaded.sdfg.nodes():
            assert all(isinstance(n, donnx.ONNXOp) for n in loaded.state.nodes() if n.kind == "library")
            loaded.sdfg.validate()

"""Graphs that train: Gradient and the optimizers of ai.onnx.preview.training, and graphs that an operator calls."""
import numpy as np
import pytest
from onnx import TensorProto, helper

import dcml
from dcml.onnx import ONNXModel

pytestmark = pytest.mark.usefixtures("interpreted")

TRAINING = "ai.onnx.preview.training"


def _value(name, shape, dtype=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


def _model(nodes, inputs, outputs, name="graph"):
    opsets = [helper.make_opsetid("", 22), helper.make_opsetid(TRAINING, 1), helper.make_opsetid("ai.onnx.preview", 1)]
    return helper.make_model(helper.make_graph(nodes, name, inputs, outputs), opset_imports=opsets, ir_version=10)


def test_a_step_of_gradient_descent_inside_the_graph():
    nodes = [helper.make_node("MatMul", ["x", "w"], ["z"]), helper.make_node("Sub", ["z", "t"], ["e"]),
             helper.make_node("Mul", ["e", "e"], ["s"]), helper.make_node("ReduceSum", ["s"], ["loss"], keepdims=0),
             helper.make_node("Gradient", ["w"], ["dw"], domain=TRAINING, xs=["w"], y="loss"),
             helper.make_node("Momentum", ["r", "n", "w", "dw", "v"], ["w1", "v1"], domain=TRAINING, alpha=0.5, beta=1.0,
                              mode="standard", norm_coefficient=0.0)]
    model = _model(nodes, [_value("x", [6, 3]), _value("t", [6, 2]), _value("w", [3, 2]), _value("v", [3, 2]), _value("r", []),
                           _value("n", [], TensorProto.INT64)], [_value("w1", [3, 2]), _value("v1", [3, 2]), _value("loss", [])])
    rng = np.random.default_rng(0)
    x, t, w, v = (rng.standard_normal(s).astype(np.float32) for s in ((6, 3), (6, 2), (3, 2), (3, 2)))
    w1, v1, loss = map(np.asarray, ONNXModel("descent", model)(x, t, w, v, np.float32(0.01), np.int64(3)))
    momentum = 0.5 * v + 2 * x.T @ (x @ w - t)
    np.testing.assert_allclose(v1, momentum, rtol=1e-5)
    np.testing.assert_allclose(w1, w - 0.01 * momentum, rtol=1e-5)
    np.testing.assert_allclose(loss, ((x @ w - t) ** 2).sum(), rtol=1e-5)


def test_a_value_that_nothing_reaches_has_a_zero_gradient():
    nodes = [helper.make_node("Mul", ["a", "a"], ["y"]), helper.make_node("Neg", ["b"], ["c"]),
             helper.make_node("Gradient", ["a", "b"], ["da", "db"], domain=TRAINING, xs=["a", "b"], y="y")]
    model = _model(nodes, [_value("a", [3]), _value("b", [2])], [_value("da", [3]), _value("db", [2]), _value("c", [2])])
    da, db, _ = map(np.asarray, ONNXModel("zero", model)(np.float32([1, 2, 3]), np.float32([4, 5])))
    assert da.tolist() == [2, 4, 6] and db.tolist() == [0, 0]


@pytest.mark.parametrize("attributes, message", [({"xs": ["q"], "y": "y"}, "no value 'q'"), ({"xs": ["a"], "y": "none"}, "no value 'none'"),
                                                 ({"xs": ["a", "a"], "y": "y"}, "as many values"), ({"xs": ["y"], "y": "y"}, "another point")])
def test_gradient_refuses_what_it_cannot_do(attributes, message):
    nodes = [helper.make_node("Mul", ["a", "a"], ["y"]), helper.make_node("Gradient", ["a"], ["da"], domain=TRAINING, **attributes)]
    with pytest.raises(dcml.Error, match=message):
        ONNXModel("bad", _model(nodes, [_value("a", [3])], [_value("da", [3])]))(np.float32([1, 2, 3]))


def _flex(body, inputs=("s",)):
    graph = helper.make_graph(body, "mod", [_value(i, ["B", "H", "L", "S"]) for i in inputs], [_value("o", ["B", "H", "L", "S"])])
    node = helper.make_node("FlexAttention", ["Q", "K", "V"], ["Y"], domain="ai.onnx.preview", score_mod=graph)
    shapes = [_value(n, [1, 2, 4, 8]) for n in "QKV"]
    return _model([node], [*shapes, _value("bias", [4, 4])], [_value("Y", [1, 2, 4, 8])])


def test_a_graph_that_attention_calls_sees_outer_values_and_is_differentiable():
    torch = pytest.importorskip("torch")
    model = ONNXModel("flex", _flex([helper.make_node("Add", ["s", "bias"], ["o"])]))
    q, k, v, bias = (torch.randn(s, requires_grad=True) for s in ((1, 2, 4, 8),) * 3 + ((4, 4),))
    wanted = torch.softmax(q @ k.transpose(-1, -2) / 8 ** 0.5 + bias, -1) @ v
    found = model(q, k, v, bias)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
    seed = torch.randn_like(wanted)
    for ours, theirs in zip(torch.autograd.grad(found, (q, k, v, bias), seed), torch.autograd.grad(wanted, (q, k, v, bias), seed)):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_attention_without_queries_is_refused():
    model = _flex([helper.make_node("Neg", ["s"], ["o"])])
    model.graph.node[0].input[0] = ""
    with pytest.raises(dcml.Error, match="expected input"):
        ONNXModel("flex", model)


def test_a_graph_of_two_inputs_is_refused():
    with pytest.raises(dcml.ModelError, match="one input and one output"):
        ONNXModel("flex", _flex([helper.make_node("Add", ["s", "b"], ["o"])], ("s", "b")))

"""Random operators of a model without seeds."""
import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info

from dcml.onnx import ONNXModel


def _twice(op, extra=(), **attributes):
    """Two nodes of one operator on an input x of 64 halves."""
    names = [name for name, _ in extra]
    nodes = [make_node(op, [] if "shape" in attributes else ["x", *names], [y], **attributes) for y in ("a", "b")]
    kind = TensorProto.INT32 if op == "Multinomial" else TensorProto.FLOAT
    graph = make_graph(nodes, "g", [make_tensor_value_info("x", TensorProto.FLOAT, [1, 64])], [make_tensor_value_info(y, kind, None) for y in ("a", "b")],
                       [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in extra])
    return ONNXModel("twice", make_model(graph, opset_imports=[make_opsetid("", 20)]))


@pytest.mark.parametrize("op, attributes", [
    ("RandomUniform", {"shape": [64]}), ("RandomNormal", {"shape": [64]}), ("RandomUniformLike", {}), ("RandomNormalLike", {}),
    ("Bernoulli", {}), ("Multinomial", {"sample_size": 64}), ("Dropout", {"extra": (("ratio", np.float32(0.5)), ("train", np.True_))})])
def test_two_nodes_without_a_seed_draw_different_numbers(op, attributes):
    model, x = _twice(op, **attributes), np.full((1, 64), 0.5, np.float32)
    a, b = model(x)
    assert (a != b).any()
    np.testing.assert_array_equal(model(x), (a, b))  # each call the same ones


def test_a_seed_of_the_model_stays():
    a, b = _twice("RandomUniform", shape=[64], seed=3.0)(np.zeros((1, 64), np.float32))
    np.testing.assert_array_equal(a, b)

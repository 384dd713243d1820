"""dcml.autodiff as a user meets it."""
import numpy as np
import pytest

import dcml
from dcml.autodiff import vjp

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402


def model(dtype=TensorProto.FLOAT):
    kind = helper.tensor_dtype_to_np_dtype(dtype)
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "w"], ["p"]), helper.make_node("Tanh", ["p"], ["y"]),
         helper.make_node("Exp", ["p"], ["z"])], "g", [helper.make_tensor_value_info("x", dtype, [2, 3])],
        [helper.make_tensor_value_info(n, dtype, [2, 3]) for n in "yz"],
        [numpy_helper.from_array(np.full(3, 2, kind), "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


X = np.linspace(-1, 1, 6).reshape(2, 3)


@pytest.mark.parametrize("dtype, tolerance", [(TensorProto.FLOAT, 1e-5), (TensorProto.DOUBLE, 1e-12)])
def test_vjp_gives_outputs_and_gradients(dtype, tolerance):
    x = X.astype(helper.tensor_dtype_to_np_dtype(dtype))
    g = np.ones_like(x)
    outputs, grads = vjp(model(dtype), {"x": x}, {"y": g, "z": 2 * g}, ["x", "w"])
    np.testing.assert_allclose(outputs["y"], np.tanh(2 * x), rtol=tolerance)
    d = 1 - np.tanh(2 * x) ** 2 + 2 * np.exp(2 * x)
    assert grads["x"].dtype == x.dtype
    np.testing.assert_allclose(grads["x"], 2 * d, rtol=10 * tolerance)
    np.testing.assert_allclose(grads["w"], (d * x).sum(0), rtol=10 * tolerance, atol=tolerance)


def test_outputs_without_gradient_count_as_zero():
    x = X.astype(np.float32)
    _, grads = vjp(model(), {"x": x}, {"y": np.ones_like(x)})
    np.testing.assert_allclose(grads["x"], 2 * (1 - np.tanh(2 * x) ** 2), rtol=1e-5)


def test_unknown_names_are_refused():
    x = X.astype(np.float32)
    with pytest.raises(dcml.Error, match="'q' is no differentiable"):
        vjp(model(), {"x": x}, {"y": x}, ["q"])
    with pytest.raises(dcml.Error, match="'p' is no"):
        vjp(model(), {"x": x}, {"p": x})

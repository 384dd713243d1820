"""dcml.autodiff as a user meets it."""
import numpy as np
import pytest

import dcml
from dcml import _core
from dcml.autodiff import add_backward_pass, jvp, vjp

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


def test_a_gradient_that_is_zero_is_an_array_of_zeros():
    graph = helper.make_graph(
        [helper.make_node("Floor", ["x"], ["y"])], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])])
    x = X.astype(np.float32)
    _, grads = vjp(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), {"x": x}, {"y": x})
    np.testing.assert_array_equal(grads["x"], np.zeros_like(x))


def sdfg():
    return dcml.ONNXModel("g", model(TensorProto.DOUBLE)).sdfg


def test_add_backward_pass_adds_a_state():
    program = sdfg()
    add_backward_pass(program, program.node(0), ["y"], ["x", program.arrays["w"]])
    assert len(program.nodes()) == 2
    assert program.graph.inputs == ["x", "gradient_y", "gradient_x", "gradient_w"]
    assert program.graph.outputs == ["y", "z"]
    dx, dw = np.ones_like(X), np.ones(3)
    results = _core.Function(program.graph)(X, np.ones_like(X), gradient_x=dx, gradient_w=dw)
    np.testing.assert_allclose(results[0], np.tanh(2 * X))
    d = 1 - np.tanh(2 * X) ** 2
    np.testing.assert_allclose(dx, 2 * d, rtol=1e-12)
    np.testing.assert_allclose(dw, (d * X).sum(0), rtol=1e-12, atol=1e-15)


def test_add_backward_pass_starts_at_intermediate_values():
    program = sdfg()
    add_backward_pass(program, program.node(0), ["p"], ["x"])
    dx = np.zeros_like(X)
    _core.Function(program.graph)(X, np.ones_like(X), dx)
    np.testing.assert_allclose(dx, np.full_like(X, 2))


def test_add_backward_pass_leaves_the_program_when_it_fails():
    program = sdfg()
    before = str(program)
    with pytest.raises(dcml.Error, match="no container 'q'"):
        add_backward_pass(program, program.node(0), ["y"], ["q"])
    with pytest.raises(dcml.Error, match="no state 3"):
        program.graph.add_backward(3, ["y"], ["x"])
    assert str(program) == before


def test_jvp_is_the_derivative_along_a_direction():
    value, rng = helper.make_tensor_value_info, np.random.default_rng(1)
    proto = helper.make_model(helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Tanh", ["h"], ["y"]), helper.make_node("ReduceSum", ["y"], ["z"])],
        "g", [value("x", TensorProto.DOUBLE, ["N", 3]), value("w", TensorProto.DOUBLE, [3, 2])],
        [value("y", TensorProto.DOUBLE, ["N", 2]), value("z", TensorProto.DOUBLE, None)]), opset_imports=[helper.make_opsetid("", 18)])
    given = {"x": rng.standard_normal((4, 3)), "w": rng.standard_normal((3, 2))}
    tangents = {"x": rng.standard_normal((4, 3))}
    outputs, along = jvp(proto, given, tangents)
    slope = 1 - np.tanh(given["x"] @ given["w"]) ** 2
    np.testing.assert_allclose(outputs["y"], np.tanh(given["x"] @ given["w"]))
    np.testing.assert_allclose(along["y"], slope * (tangents["x"] @ given["w"]))
    np.testing.assert_allclose(along["z"].sum(), along["y"].sum())
    with pytest.raises(dcml.ValueError_, match="'v' is no floating-point input"):
        jvp(proto, given, {"v": tangents["x"]})


@pytest.mark.parametrize("wrt", (None, ["x", "w"]), ids=("inputs", "weights too"))
@pytest.mark.parametrize("counted", (False, True), ids=("compiled", "with a host operator"))
def test_vjp_with_a_history_is_differentiated_to_any_order(wrt, counted):
    import torch
    weight = np.random.default_rng(0).standard_normal((3, 3)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Tanh", ["a"], ["b"]),
             helper.make_node("Mul", ["b", "x"], ["c"])]
    nodes += [helper.make_node("Compress", ["c", "some"], ["y"], axis=0) if counted else helper.make_node("Identity", ["c"], ["y"])]
    constants = [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(np.array([True, False, True]), "some")]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, [None, 3])],
                              [helper.make_tensor_value_info("y", 1, [None, 3])], constants)
    model = dcml.onnx.ONNXModel("m", helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    torch.manual_seed(0)
    for rows in (3, 3, 4):
        x, seed = torch.randn(rows, 3, requires_grad=True), torch.randn(2 if counted else rows, 3, requires_grad=True)
        outputs, gradients = dcml.autodiff.vjp(model, {"x": x}, {"y": seed}, wrt, create_graph=True)
        w = torch.tensor(weight, requires_grad=True)
        y = torch.tanh(x @ w) * x
        y = y[[0, 2]] if counted else y
        first = [gradients["x"], torch.autograd.grad(y, x, seed, create_graph=True)[0]]
        torch.testing.assert_close(outputs["y"], y)
        for inner in (lambda g: g.square().sum(), lambda g: g.sin().sum()):
            torch.testing.assert_close(*first, rtol=1e-3, atol=1e-4)
            again = [torch.autograd.grad(inner(g), [x, seed], create_graph=True) for g in first]
            torch.testing.assert_close(again[0][1], again[1][1], rtol=1e-3, atol=1e-4)
            first = [g[0] for g in again]
        if wrt:
            torch.testing.assert_close(gradients["w"], torch.autograd.grad(y, w, seed)[0])

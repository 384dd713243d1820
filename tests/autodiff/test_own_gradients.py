"""BackwardImplementation: gradients that users state, in SDFGs, ONNX models and torch modules."""
import numpy as np
import pytest
import torch

import dcml
from dcml import _core
from dcml import onnx as donnx
from dcml.autodiff import (AutoDiffException, BackwardContext, BackwardImplementation, BackwardResult, add_backward_pass,
                           autoregister_params, make_backward_function)
from dcml.sdfg import SDFG, Memlet, nodes

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

X = np.linspace(-1, 1, 6).reshape(2, 3).astype(np.float32)


@pytest.fixture(autouse=True)
def forget():
    before = list(BackwardImplementation._registered)
    yield
    BackwardImplementation._registered[:] = before


def reverse_sdfg(node, scale):
    """gradient_X = scale * gradient_Y * X."""
    sdfg = SDFG("reverse")
    for name in "X", "gY", "gX":
        sdfg.add_array(name, [2, 3], dcml.float32)
    state = sdfg.add_state()
    state.add_mapped_tasklet("reverse", {"i": "0:2", "j": "0:3"}, {"x": Memlet("X[i, j]"), "g": Memlet("gY[i, j]")},
                             f"o = {scale} * x * g", {"o": Memlet("gX[i, j]")}, external_edges=True)
    return sdfg


def register(scale=10.0, name="mine", op="Relu", seen=None, applies=True):
    @autoregister_params(op=op, name=name)
    class Mine(BackwardImplementation):
        @staticmethod
        def backward_can_be_applied(node, state, sdfg):
            return applies

        @staticmethod
        def backward(forward_node, context, given_gradients, required_gradients):
            if seen is not None:
                seen.append((forward_node, context, given_gradients, required_gradients))
            node = context.backward_state.add_nested_sdfg(reverse_sdfg(forward_node, scale), None, {"X", "gY"}, {"gX"})
            return node, BackwardResult({"X": "gX"}, {"Y": "gY"})
    return Mine


def model(op="Relu"):
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "two"], ["p"]), helper.make_node(op, ["p"], ["q"], "middle"), helper.make_node("Mul", ["q", "two"], ["y"])],
        "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])],
        [numpy_helper.from_array(np.full(1, 2, np.float32), "two")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def expected(scale):
    return 2 * scale * 2 * (2 * X)  # dy/dq * scale * p * dp/dx


def gradient_of_program(program=None):
    program = program or dcml.ONNXModel("g", model()).sdfg
    add_backward_pass(program, program.node(0), ["y"], ["x"])
    dx = np.zeros_like(X)
    y, = _core.Function(program.graph)(X, np.ones_like(X), dx)
    np.testing.assert_allclose(y, 2 * np.maximum(2 * X, 0), rtol=1e-6)
    return dx


def test_it_wins_over_the_derived_gradient_of_an_sdfg():
    register(10.0)
    np.testing.assert_allclose(gradient_of_program(), expected(10.0), rtol=1e-6)


def test_and_of_a_model():
    register(10.0)
    x = torch.tensor(X, requires_grad=True)
    y = dcml.ONNXModel("g", model())(x)
    y.sum().backward()
    np.testing.assert_allclose(y.detach(), 2 * np.maximum(2 * X, 0), rtol=1e-6)
    np.testing.assert_allclose(x.grad, expected(10.0), rtol=1e-6)


def test_and_of_a_module():
    register(10.0)
    module = dcml.DaceModule(torch.nn.ReLU(), backward=True)
    x = torch.tensor(X, requires_grad=True)
    module(x).sum().backward()
    np.testing.assert_allclose(x.grad, 10 * X, rtol=1e-6)


def test_what_it_is_given():
    seen = []
    register(seen=seen)
    program = dcml.ONNXModel("g", model()).sdfg
    gradient_of_program(program)
    node, context, given, required = seen[0]
    assert isinstance(node, donnx.ONNXRelu) and given == ["Y"] and required == ["X"]
    assert isinstance(context, BackwardContext) and list(vars(context)) == [
        "forward_sdfg", "forward_state", "backward_sdfg", "backward_state", "backward_generator"]
    assert isinstance(context.forward_sdfg, SDFG) and context.backward_state.sdfg is context.backward_sdfg


def test_inference_does_not_run_it():
    register(10.0)
    np.testing.assert_allclose(dcml.ONNXModel("g", model())(X), 2 * np.maximum(2 * X, 0), rtol=1e-6)


def test_a_node_chooses_by_name():
    register(10.0, "first"), register(20.0, "second")
    np.testing.assert_allclose(gradient_of_program(), expected(10.0), rtol=1e-6)
    program = dcml.ONNXModel("g", model()).sdfg
    node = next(n for n in program.node(0).nodes() if isinstance(n, donnx.ONNXRelu))
    node.backward_implementation = "second"
    np.testing.assert_allclose(gradient_of_program(program), expected(20.0), rtol=1e-6)


def test_a_class_chooses_too(monkeypatch):
    register(10.0, "first"), register(20.0, "second")
    monkeypatch.setattr(donnx.ONNXRelu, "default_backward_implementation", "second")
    np.testing.assert_allclose(gradient_of_program(), expected(20.0), rtol=1e-6)


def test_one_that_cannot_be_applied_is_passed_over():
    register(10.0, "first", applies=False)
    np.testing.assert_allclose(gradient_of_program(), np.where(X > 0, 4, 0), rtol=1e-6)
    register(20.0, "second")
    np.testing.assert_allclose(gradient_of_program(), expected(20.0), rtol=1e-6)


def test_it_is_registered_for_a_class_of_nodes():
    mine = register(10.0, op="Nothing")
    BackwardImplementation.register(mine, node_type=donnx.ONNXRelu, name="by class")
    np.testing.assert_allclose(gradient_of_program(), expected(10.0), rtol=1e-6)


def test_it_may_give_operators_and_read_the_forward_results():
    @autoregister_params(op="Exp", name="product")
    class ExpBackward(BackwardImplementation):
        @staticmethod
        def backward(forward_node, context, given_gradients, required_gradients):
            sdfg = SDFG("reverse")
            state = sdfg.add_state()
            for name in "output", "g", "d":
                sdfg.add_array(name, [2, 3], dcml.float32)
            mul = donnx.ONNXMul("mul")
            for connector, name in (("A", "output"), ("B", "g")):
                state.add_edge(state.add_read(name), None, mul, connector, sdfg.make_array_memlet(name))
            state.add_edge(mul, "C", state.add_write("d"), None, sdfg.make_array_memlet("d"))
            return sdfg, BackwardResult({"input": "d"}, {"output": "g"})
    program = dcml.ONNXModel("g", model("Exp")).sdfg
    add_backward_pass(program, program.node(0), ["y"], ["x"])
    dx = np.zeros_like(X)
    _core.Function(program.graph)(X, np.ones_like(X), dx)
    np.testing.assert_allclose(dx, 4 * np.exp(2 * X), rtol=1e-5)


def test_a_gradient_that_is_summed_up_begins_at_zero():
    @autoregister_params(op="Relu", name="sums")
    class Sums(BackwardImplementation):
        @staticmethod
        def backward(forward_node, context, given_gradients, required_gradients):
            sdfg = SDFG("sums")
            sdfg.add_array("g", [2, 3], dcml.float32), sdfg.add_array("d", [2, 3], dcml.float32)
            sdfg.add_state().add_mapped_tasklet(
                "sum", {"i": "0:2", "j": "0:3", "k": "0:3"}, {"x": Memlet("g[i, k]")}, "y = x", {"y": Memlet("d[i, j]", wcr="lambda a, b: a + b")},
                external_edges=True)
            return sdfg, BackwardResult({"X": "d"}, {"Y": "g"})
    np.testing.assert_allclose(gradient_of_program(), np.full_like(X, 12), rtol=1e-6)


def test_a_detached_operator_is_connected():
    @autoregister_params(op="Neg", name="neg")
    class NegBackward(BackwardImplementation):
        @staticmethod
        def backward(forward_node, context, given_gradients, required_gradients):
            return donnx.ONNXAbs("abs"), BackwardResult({"X": "Y"}, {"Y": "X"})
    program = dcml.ONNXModel("g", model("Neg")).sdfg
    add_backward_pass(program, program.node(0), ["y"], ["x"])
    dx = np.zeros_like(X)
    _core.Function(program.graph)(X, -np.ones_like(X), dx)
    np.testing.assert_allclose(dx, np.full_like(X, 4), rtol=1e-6)


@pytest.mark.parametrize("result, says", [
    (BackwardResult({}, {"Y": "gY"}), "gives no gradient"),
    (BackwardResult({"X": "other"}, {"Y": "gY"}), "'gX', which is neither"),
    (BackwardResult({"X": "gX"}, {}), "'gY', which is neither"),
    (BackwardResult({"X": "gX", "Q": "gQ"}, {"Y": "gY"}), None),
])
def test_results_that_do_not_fit_are_named(result, says):
    @autoregister_params(op="Relu", name="wrong")
    class Wrong(BackwardImplementation):
        @staticmethod
        def backward(forward_node, context, given_gradients, required_gradients):
            return context.backward_state.add_nested_sdfg(reverse_sdfg(forward_node, 1), None, {"X", "gY"}, {"gX"}), result
    program = dcml.ONNXModel("g", model()).sdfg
    before = program.graph.text()
    if says is None:
        gradient_of_program(program)
        return
    with pytest.raises(dcml.ModelError, match=says):
        gradient_of_program(program)
    assert program.graph.text() == before


def test_wrong_registrations_are_refused():
    mine = register()
    with pytest.raises(TypeError, match="no subclass"):
        BackwardImplementation.register(int, op="Relu", name="x")
    with pytest.raises(TypeError, match="has no method 'backward'"):
        BackwardImplementation.register(type("Half", (BackwardImplementation,), {}), op="Relu", name="x")
    with pytest.raises(dcml.ValueError_, match="name="):
        BackwardImplementation.register(mine, op="Relu")
    with pytest.raises(dcml.ValueError_, match="op="):
        BackwardImplementation.register(mine, name="x")
    with pytest.raises(TypeError, match="library nodes"):
        BackwardImplementation.register(mine, node_type=nodes.Tasklet, name="x")
    with pytest.raises(TypeError, match="no base"):
        autoregister_params(name="x")(int)


def test_make_backward_function_gives_both_programs():
    forward, backward, result, arrays = make_backward_function(dcml.ONNXModel("g", model("Exp")))
    assert isinstance(forward, SDFG) and isinstance(backward, SDFG)
    assert result == BackwardResult({"x": "gradient_x"}, {"y": "gradient_y"})
    kept = {name: np.zeros([2, 3], np.float32) for name in arrays}
    y = forward(x=X, **{n: a for n, a in kept.items() if n != "x"})
    np.testing.assert_allclose(y, 2 * np.exp(2 * X), rtol=1e-5)
    dx = np.zeros_like(X)
    backward(gradient_y=np.ones_like(X), gradient_x=dx, **{**kept, **({"x": X} if "x" in arrays else {})})
    np.testing.assert_allclose(dx, 4 * np.exp(2 * X), rtol=1e-5)
    assert all(tuple(d.shape) == (2, 3) for d in arrays.values())


def test_make_backward_function_takes_stated_gradients():
    register(10.0)
    forward, backward, result, arrays = make_backward_function(dcml.ONNXModel("g", model()), apply_strict=True)
    kept = {name: np.zeros([2, 3], np.float32) for name in arrays if name != "x"}
    forward(x=X, **kept)
    dx = np.zeros_like(X)
    backward(gradient_y=np.ones_like(X), gradient_x=dx, **{**kept, **({"x": X} if "x" in arrays else {})})
    np.testing.assert_allclose(dx, expected(10.0), rtol=1e-6)


def test_operators_without_gradient_are_an_exception_of_ours():
    graph = helper.make_graph([helper.make_node("Det", ["x"], ["y"])], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 2])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [])])
    program = dcml.ONNXModel("g", helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    try:
        make_backward_function(program)
    except AutoDiffException as error:
        assert isinstance(error, dcml.Error)

"""Implementations in Python: an SDFG or a node takes the place of an operator, in SDFGs, models and modules."""
import numpy as np
import onnx
import pytest
import torch
from onnx import helper

import dcml
import dcml.onnx as donnx
from dcml.library import change_default
from dcml.onnx.forward_implementation_abc import ONNXForward
from dcml.onnx.op_implementations import img_op_implementations, op_implementation, pure_implementations

MANUALS = ["Cast", "Einsum", "Erf", "Flatten", "Gemm", "Log", "LogSoftmax", "MatMul", "Pow", "Reciprocal", "ReduceMax", "ReduceMean", "ReduceMin",
           "ReduceSum", "Relu", "Reshape", "Sigmoid", "Softmax", "Sqrt", "Sum", "Transpose"]


pytestmark = pytest.mark.usefixtures("registrations")


def random(*shape):
    return np.random.default_rng(sum(shape)).random(shape).astype(np.float32)


def sdfg_of(node, inputs, outputs, types=None):
    """An SDFG of one node.  inputs, outputs: {connector: shape}; arrays are called like connectors."""
    sdfg = dcml.SDFG("one")
    state = sdfg.add_state()
    state.add_node(node)
    for name, shape in {**inputs, **outputs}.items():
        sdfg.add_array(name, shape, (types or {}).get(name, dcml.float32))
    for name in inputs:
        node.add_in_connector(name)
        state.add_edge(state.add_read(name), None, node, name, sdfg.make_array_memlet(name))
    for name in outputs:
        node.add_out_connector(name)
        state.add_edge(node, name, state.add_write(name), None, sdfg.make_array_memlet(name))
    return sdfg


def unary(name, operator, code, calls=None, can=None):
    """Registers an element-wise implementation; ``calls`` receives the shapes that it was called with."""
    @op_implementation(op=operator, name=name)
    class Own(ONNXForward):
        @staticmethod
        def forward(node, state, sdfg):
            (edge,) = state.in_edges(node)
            shape = sdfg.arrays[edge.data.data].shape
            if calls is not None:
                calls.append(shape)
            inner = dcml.SDFG("own")
            x, y = node.iter_inputs_in_onnx_order(state)[0].dst_conn, node.iter_outputs_in_onnx_order(state)[0].src_conn
            inner.add_array(x, shape, dcml.float32)
            inner.add_array(y, shape, dcml.float32)
            index = ", ".join(f"i{k}" for k in range(len(shape)))
            inner.add_state().add_mapped_tasklet("own", {f"i{k}": f"0:{n}" for k, n in enumerate(shape)}, {"x": dcml.Memlet(f"{x}[{index}]")},
                                                 f"y = {code}", {"y": dcml.Memlet(f"{y}[{index}]")}, external_edges=True)
            return inner

        @staticmethod
        def forward_can_be_applied(node, state, sdfg):
            return can is None or can(node, state, sdfg)
    return Own


def relu_model(*shape):
    values = [helper.make_tensor_value_info(name, 1, shape) for name in "XY"]
    graph = helper.make_graph([helper.make_node("Relu", ["X"], ["R"]), helper.make_node("Neg", ["R"], ["Y"])], "relu", values[:1], values[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 12)])


# -- where they serve ---------------------------------------------------------------------------------
def test_an_sdfg_takes_the_place_of_a_node_in_an_sdfg():
    unary("mine", "Relu", "x * 3")
    node = donnx.ONNXRelu("r")
    sdfg = sdfg_of(node, {"X": (2, 3)}, {"Y": (2, 3)})
    x, y = random(2, 3), np.zeros((2, 3), np.float32)
    sdfg(X=x, Y=y)
    np.testing.assert_array_equal(y, x)
    node.implementation = "mine"
    sdfg(X=x, Y=y)
    np.testing.assert_allclose(y, 3 * x)


@pytest.mark.parametrize("optimize", [True, False])
def test_a_model_is_served_and_shapes_may_be_symbols(optimize):
    calls = []
    unary("mine", "Relu", "x * 3", calls)
    with change_default(donnx.ONNXRelu, "mine"):
        model = donnx.ONNXModel("m", relu_model("N", 3), auto_optimize=optimize)
        for n in (2, 5):
            np.testing.assert_allclose(model(random(n, 3)), -3 * random(n, 3))
    assert [str(shape) for shape in calls] == ["(N, 3)"]
    np.testing.assert_allclose(donnx.ONNXModel("m", relu_model("N", 3))(random(2, 3)), -random(2, 3))


def test_a_module_is_served_and_differentiated():
    unary("square", "Relu", "x * x")
    with change_default(donnx, "square"):
        module = dcml.DaceModule(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU()), backward=True)
        x = torch.randn(5, 3, requires_grad=True)
        got = module(x)
        got.sum().backward()
    linear = module.model[0](x)
    torch.testing.assert_close(got, linear ** 2)
    torch.testing.assert_close(x.grad, (2 * linear) @ module.model[0].weight)


def test_a_models_gradient_is_that_of_the_implementation():
    unary("square", "Relu", "x * x")
    with change_default(donnx.ONNXRelu, "square"):
        model = donnx.ONNXModel("m", relu_model(2, 3))
        x = torch.rand(2, 3, requires_grad=True)
        model(x).sum().backward()
    torch.testing.assert_close(x.grad, -2 * x.detach())


def test_expanding_by_hand_asks_implementations_too():
    unary("mine", "Relu", "x * 3")
    with change_default(donnx.ONNXRelu, "mine"):
        sdfg = sdfg_of(donnx.ONNXRelu("r"), {"X": (2, 3)}, {"Y": (2, 3)})
        sdfg.expand_library_nodes()
    assert "* 3" in str(sdfg) and not any(node.kind == "library" for node in sdfg.node(0).nodes())


def test_the_pure_of_a_class_comes_before_its_row_where_pure_is_asked_for():
    unary("pure", "Relu", "x * 3")
    model = relu_model(2, 3)
    np.testing.assert_allclose(donnx.ONNXModel("m", model)(random(2, 3)), -random(2, 3))
    with change_default(donnx, "pure"):
        np.testing.assert_allclose(donnx.ONNXModel("m", model)(random(2, 3)), -3 * random(2, 3))


def test_a_node_takes_the_place_of_a_node():
    @op_implementation(op="Relu", name="by clip")
    class ByLeaky(ONNXForward):
        @staticmethod
        def forward(node, state, sdfg):
            return donnx.ONNXLeakyRelu("leaky", alpha=0.5)
    with change_default(donnx.ONNXRelu, "by clip"):
        x = random(2, 3) - 0.5
        np.testing.assert_allclose(donnx.ONNXModel("m", relu_model(2, 3))(x), -np.where(x < 0, x / 2, x))


def test_implementations_may_build_on_operators_that_have_some():
    unary("mine", "Relu", "x * 3")

    @op_implementation(op="Neg", name="mine")
    class ByRelu(ONNXForward):
        @staticmethod
        def forward(node, state, sdfg):
            return donnx.ONNXRelu("again")
    with change_default(donnx, "mine"):
        np.testing.assert_allclose(donnx.ONNXModel("m", relu_model(2, 3))(random(2, 3)), 9 * random(2, 3), rtol=1e-6)


# -- where they do not ----------------------------------------------------------------------------------
def test_what_cannot_be_applied_falls_back_and_says_so(monkeypatch, capfd):
    monkeypatch.setenv("DCML_VERBOSE", "dispatch")
    unary("mine", "Relu", "x * 3", can=lambda node, state, sdfg: len(sdfg.arrays[state.in_edges(node)[0].data.data].shape) == 1)
    with change_default(donnx.ONNXRelu, "mine"):
        np.testing.assert_allclose(donnx.ONNXModel("m", relu_model(2, 3))(random(2, 3)), -random(2, 3))
        assert "mine (Own) cannot be applied" in capfd.readouterr().err
        np.testing.assert_allclose(donnx.ONNXModel("m", relu_model(3))(random(3)), -3 * random(3))
        assert "mine (Own)\n" in capfd.readouterr().err


def forward(function):
    op_implementation(op="Relu", name="mine")(type("Given", (ONNXForward,), {"forward": staticmethod(function)}))


@pytest.mark.parametrize("function, error, part", [
    (lambda node, state, sdfg: 3, TypeError, "Given.forward gave 3, expected an SDFG or a node"),
    (lambda node, state, sdfg: 1 / 0, ZeroDivisionError, "division"),
    (lambda node, state, sdfg: donnx.ONNXRelu("again"), dcml.ModelError, "makes itself again")])
def test_what_an_implementation_does_wrong_is_said(function, error, part):
    forward(function)
    with change_default(donnx.ONNXRelu, "mine"), pytest.raises(error, match=part):
        donnx.ONNXModel("m", relu_model(2, 3))(random(2, 3))


@pytest.mark.parametrize("arrays, error, part", [
    ({"X": (2, 3), "Y": (2, 3), "Z": (2,)}, dcml.ModelError, "'Z', which is neither transient nor a connector of the node; those are X, Y"),
    ({"X": (2, 4), "Y": (2, 3)}, dcml.ShapeError, "'X': dimension 1 is 4"), ({"X": (2,), "Y": (2, 3)}, dcml.ShapeError, "'X' has 1 dim")])
def test_arrays_that_do_not_fit_are_named(arrays, error, part):
    def function(node, state, sdfg):
        inner = dcml.SDFG("inner")
        for name, shape in arrays.items():
            inner.add_array(name, shape, dcml.float32)
        return inner
    forward(function)
    with change_default(donnx.ONNXRelu, "mine"), pytest.raises(error, match=part):
        donnx.ONNXModel("m", relu_model(2, 3))(random(2, 3))


# -- the core's own ---------------------------------------------------------------------------------
def test_the_manuals_pure_implementations_are_there():
    for name in MANUALS:
        assert issubclass(getattr(pure_implementations, "Pure" + name), ONNXForward)
    for name in ("PureBatchNormalization", "PureConv2D", "PureMaxPool2D"):
        assert issubclass(getattr(img_op_implementations, name), ONNXForward)
    assert not hasattr(pure_implementations, "PureNothing") and "PureGelu" in dir(pure_implementations)


@pytest.mark.parametrize("node, inputs, outputs", [
    (lambda: donnx.ONNXSoftmax("s"), {"input": (3, 4)}, {"output": (3, 4)}), (lambda: donnx.ONNXGemm("g", transB=1), {"A": (2, 3), "B": (4, 3)}, {"Y": (2, 4)}),
    (lambda: donnx.ONNXSum("s"), {"data_0__0": (3,), "data_0__1": (2, 3)}, {"sum": (2, 3)}),
    (lambda: donnx.ONNXClip("c"), {"input": (5,), "max": ()}, {"output": (5,)}),
    (lambda: donnx.ONNXBatchNormalization("b"), {"X": (2, 3, 4), "scale": (3,), "B": (3,), "in_mean": (3,), "in_var": (3,)}, {"Y": (2, 3, 4)}),
    (lambda: donnx.ONNXReduceSum("r", axes=[1], keepdims=0), {"data": (2, 3)}, {"reduced": (2,)})])
def test_the_expansion_computes_what_the_node_computes(node, inputs, outputs):
    made = node()
    sdfg = sdfg_of(made, inputs, outputs)
    arrays = {name: random(*shape) for name, shape in inputs.items()}
    (name, shape), = outputs.items()
    want = np.zeros(shape, np.float32)
    sdfg(**arrays, **{name: want})
    inner = getattr(pure_implementations, "Pure" + made.op).forward(made, sdfg.node(0), sdfg)
    assert not any(n.kind == "library" for n in inner.node(0).nodes()) and set(inner.arrays) >= {*inputs, name}
    np.testing.assert_allclose(inner(**arrays), want, rtol=1e-5, atol=1e-6)


def test_images_have_two_dimensions():
    two, three = ((5, 3, *[8] * n) for n in (2, 3))
    for shape in (two, three):
        node = donnx.ONNXConv("c")
        sdfg = sdfg_of(node, {"X": shape, "W": (4, 3, *[3] * (len(shape) - 2))}, {"Y": (5, 4, *[6] * (len(shape) - 2))})
        assert img_op_implementations.PureConv2D.forward_can_be_applied(node, sdfg.node(0), sdfg) == (shape == two)


def test_own_implementations_may_build_on_the_expansion():
    @op_implementation(op="Relu", name="mine")
    class Logged(ONNXForward):
        seen = []

        @staticmethod
        def forward(node, state, sdfg):
            Logged.seen.append(node.label)
            return pure_implementations.PureRelu.forward(node, state, sdfg)
    with change_default(donnx, "mine"):
        np.testing.assert_allclose(donnx.ONNXModel("m", relu_model(2, 3))(random(2, 3)), -random(2, 3))
    assert len(Logged.seen) == 1


def test_constants_of_shapes_stay_known():
    shape = onnx.numpy_helper.from_array(np.int64([3, 2]), "shape")
    values = helper.make_tensor_value_info("X", 1, [2, 3]), helper.make_tensor_value_info("Y", 1, [3, 2])
    graph = helper.make_graph([helper.make_node("Reshape", ["X", "shape"], ["Y"])], "g", values[:1], values[1:], [shape])

    @op_implementation(op="Reshape", name="mine")
    class Mine(ONNXForward):
        forward = staticmethod(lambda node, state, sdfg: pure_implementations.PureReshape.forward(node, state, sdfg))
    with change_default(donnx, "mine"):
        got = donnx.ONNXModel("m", helper.make_model(graph, opset_imports=[helper.make_opsetid("", 12)]))(random(2, 3))
    np.testing.assert_array_equal(got, random(2, 3).reshape(3, 2))

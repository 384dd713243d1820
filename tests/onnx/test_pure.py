"""Operators written with numpy."""
import numpy as np
import onnx
import pytest
import torch
from onnx import helper

import dcml
import dcml.onnx as donnx
from dcml.library import change_default
from dcml.onnx import ONNXModel, python_pure_op_implementation

pytestmark = pytest.mark.usefixtures("registrations")
SCALE = 3


def Softmax(X, Y):
    E = np.exp(X - np.max(X, axis=-1, keepdims=True))
    Y[:] = E / np.sum(E, axis=-1, keepdims=True)


def Dense(X, W, B, Y):
    Y[...] = np.maximum(X @ W.T + B, 0)


def Leaky(X, Y, alpha=0.01):
    Y[:] = np.where(X < 0, alpha * X, SCALE * X)


def Stats(X, M, V):
    """Two outputs."""
    m = X.mean(axis=0)
    M[:] = m
    V[:] = np.mean((X - m) ** 2)


def model(op, arrays, n_outputs=1, shape=None, initializers=(), **attrs):
    """An ONNXModel of one operator between an identity and a negation, so that it is inside a graph."""
    kind = {np.dtype(np.float32): 1, np.dtype(bool): 9, np.dtype(np.int64): 7, np.dtype(np.float64): 11}
    names = [f"i{k}" if a is not None else "" for k, a in enumerate(arrays)]
    inputs = [helper.make_tensor_value_info(n, kind[a.dtype], shape or a.shape) for n, a in zip(names, arrays) if n]
    outputs = [f"o{k}" for k in range(n_outputs)]
    nodes = [helper.make_node("Identity", [names[0]], ["first"]),
             helper.make_node(op, ["first", *names[1:]], outputs, **attrs),
             *[helper.make_node("Identity", [o], [f"r{o}"]) for o in outputs]]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info(f"r{o}", 1, None) for o in outputs])
    return ONNXModel("m", helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))


def run(op, arrays, n_outputs=1, **attrs):
    found = model(op, arrays, n_outputs, **attrs)(*[a for a in arrays if a is not None])
    return found if isinstance(found, tuple) else (found,)


def f32(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("function, inputs, attrs, want", [
    (Softmax, [f32(2, 3, 4)], {}, lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True)),
    (Dense, [f32(2, 3, 4), f32(5, 4), f32(5)], {}, lambda x, w, b: np.maximum(x @ w.T + b, 0)),
    (Leaky, [f32(3, 4)], {"alpha": 0.5}, lambda x: np.where(x < 0, 0.5 * x, 3 * x)),
    (Leaky, [f32(3, 4)], {}, lambda x: np.where(x < 0, 0.01 * x, 3 * x)),
])
def test_a_new_operator_computes_what_numpy_computes(function, inputs, attrs, want):
    python_pure_op_implementation(name="Own" + function.__name__)(function)
    got, = run("Own" + function.__name__, inputs, **attrs)
    np.testing.assert_allclose(got, want(*inputs), rtol=1e-5, atol=1e-6)


def test_two_outputs():
    python_pure_op_implementation(name="OwnStats")(Stats)
    x = f32(4, 3)
    mean, spread = run("OwnStats", [x], 2)
    np.testing.assert_allclose(mean, x.mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(spread, ((x - x.mean(0)) ** 2).mean(), rtol=1e-5)


def test_new_operators_follow_each_other_and_take_sizes_at_calls():
    python_pure_op_implementation(name="OwnA")(Softmax)

    @python_pure_op_implementation
    def OwnB(X, Y):
        Y[:] = X[::-1] * 2

    nodes = [helper.make_node("OwnA", ["x"], ["a"]), helper.make_node("Neg", ["a"], ["b"]), helper.make_node("OwnB", ["b"], ["y"])]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, ["N", 3])], [helper.make_tensor_value_info("y", 1, None)])
    m = ONNXModel("m", helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    for n in 2, 5:
        x = f32(n, 3)
        soft = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
        np.testing.assert_allclose(m(x), -2 * soft[::-1], rtol=1e-5)


def test_a_standard_operator_gets_an_implementation_that_is_chosen():
    @python_pure_op_implementation
    def HardSwish(X, Y):
        Y[:] = X * np.clip(X / 6 + 0.5, 0, 1) + 1000

    x = f32(5)
    own = x * np.clip(x / 6 + 0.5, 0, 1)
    np.testing.assert_allclose(run("HardSwish", [x])[0], own, rtol=1e-5)
    with change_default(donnx, "pure"):
        np.testing.assert_allclose(run("HardSwish", [x])[0], own + 1000, rtol=1e-5)
    with change_default(donnx.ONNXHardSwish, "pure"):
        np.testing.assert_allclose(run("HardSwish", [x])[0], own + 1000, rtol=1e-5)


def test_names_are_those_of_onnx_in_any_case_of_letters():
    @python_pure_op_implementation
    def Log(input, output):
        output[:] = np.log(input)

    x = np.abs(f32(4)) + 1
    with change_default(donnx, "pure"):
        np.testing.assert_allclose(run("Log", [x])[0], np.log(x), rtol=1e-6)


def test_attributes_are_values_of_python_with_the_schemas_defaults():
    @python_pure_op_implementation
    def Softmax(input, output, axis):
        e = np.exp(input - np.maximum.reduce(input, axis=axis, keepdims=True))
        output[:] = e / np.add.reduce(e, axis=axis, keepdims=True)

    x = f32(3, 4)
    with change_default(donnx, "pure"):
        for attrs in {}, {"axis": 0}:
            want = torch.from_numpy(x).softmax(attrs.get("axis", -1)).numpy()
            np.testing.assert_allclose(run("Softmax", [x], **attrs)[0], want, rtol=1e-5)


def test_optional_inputs_are_none_when_absent():
    @python_pure_op_implementation
    def Gemm(A, B, C, Y, alpha, beta, transA, transB):
        product = alpha * ((A.T if transA else A) @ (B.T if transB else B))
        if C is not None:
            Y[:] = product + beta * C
        else:
            Y[:] = product

    a, b, c = f32(3, 4), f32(5, 4), f32(5)
    with change_default(donnx, "pure"):
        np.testing.assert_allclose(run("Gemm", [a, b], transB=1)[0], a @ b.T, rtol=1e-5)
        np.testing.assert_allclose(run("Gemm", [a, b, c], transB=1, beta=2.0)[0], a @ b.T + 2 * c, rtol=1e-5)


def test_values_are_computed_from_the_node():
    seen = []

    @python_pure_op_implementation(axes=lambda node: tuple(node.axes), keep=lambda node, state, sdfg: seen.append(sdfg) or bool(node.keepdims))
    def ReduceMean(data, reduced):
        reduced[:] = np.mean(data, axis=axes, keepdims=keep)  # noqa: F821

    x = f32(2, 3, 4)
    with change_default(donnx, "pure"):
        np.testing.assert_allclose(run("ReduceMean", [x], axes=[0, 2], keepdims=0)[0], x.mean((0, 2)), rtol=1e-5)
    assert seen


def test_variadic_inputs_are_a_list():
    @python_pure_op_implementation
    def Sum(data_0, sum):
        total = data_0[0]
        for other in data_0[1:]:
            total = total + other
        sum[:] = total

    with change_default(donnx, "pure"):
        np.testing.assert_allclose(run("Sum", [f32(3), f32(3), f32(3)])[0], 3 * f32(3), rtol=1e-5)


def test_what_it_computes_is_differentiated():
    python_pure_op_implementation(name="OwnDense")(Dense)
    x, w, b = f32(4, 3), f32(5, 3), f32(5)
    nodes = [helper.make_node("OwnDense", ["x", "w", "b"], ["y"])]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, x.shape)], [helper.make_tensor_value_info("y", 1, None)],
                              [onnx.numpy_helper.from_array(w, "w"), onnx.numpy_helper.from_array(b, "b")])
    m = ONNXModel("m", helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    parameters = dict(m.named_parameters())
    m(torch.from_numpy(x)).square().sum().backward()
    tw, tb = torch.tensor(w, requires_grad=True), torch.tensor(b, requires_grad=True)
    torch.relu(torch.from_numpy(x) @ tw.T + tb).square().sum().backward()
    torch.testing.assert_close(parameters["w"].grad, tw.grad)
    torch.testing.assert_close(parameters["b"].grad, tb.grad)


@pytest.mark.parametrize("line, part", [
    ("Y[0] = X", "no shape yet; assign all of it first"), ("Y[:] = np.fft.fft(X)", "numpy.fft.fft of arrays"),
    ("while X: pass\n    Y[:] = X", "a while loop whose number of steps"),
    ("Y[:] = Z", "the name 'Z' is not defined"), ("Y[:] = np.sum(X, where=X)", "this use of numpy.sum"),
    ("if X.shape[0] > 7: Y[:] = X", "output Y is not assigned"), ("Y += X\n    Y[:] = X", "read before"),
    ("Y[:] = Y + X", "read before"), ("Y[:] = 'a'", "'a' where an array")])
def test_what_is_not_understood_is_named_with_its_line(tmp_path, line, part):
    source = tmp_path / "operators.py"
    source.write_text(f"import numpy as np\n\ndef Op(X, Y):\n    {line}\n")
    scope = {}
    exec(compile(source.read_text(), str(source), "exec"), scope)
    python_pure_op_implementation(scope["Op"])
    with pytest.raises(dcml.UnsupportedOpError, match=f"(?s)operator Op: .*({part}).*operators.py:[345]"):
        run("Op", [f32(3)])


def test_a_function_without_outputs_is_refused_at_once():
    with pytest.raises(dcml.UnsupportedOpError, match="no output is assigned; write for example"):
        @python_pure_op_implementation
        def Nothing(X, Y):
            pass


def test_nodes_of_a_new_operator_are_checked():
    python_pure_op_implementation(name="OwnLeaky")(Leaky)
    with pytest.raises(dcml.ModelError, match="OwnLeaky.*no attribute 'beta'; alpha"):
        run("OwnLeaky", [f32(3)], beta=1.0)
    with pytest.raises(dcml.ModelError, match="OwnLeaky.*has 2 inputs and 1 outputs, expected 1 and 1"):
        run("OwnLeaky", [f32(3), f32(3)])


def test_an_operator_that_only_a_function_defines_runs_in_sdfgs():
    @python_pure_op_implementation
    def Twofold(X, Y):
        Y[:] = 2 * X
    text = ("graph g opset 17 {\n input A: f32[3]\n temp T: f32[3]\n temp Y: f32[3]\n outputs Y\n"
            " state main { T = Twofold@1(A) Y = Neg@13(T) }\n}")
    for change in (lambda s: s, lambda s: s.expand_library_nodes() or s):
        sdfg = change(dcml.SDFG(dcml._core.parse(text)))
        np.testing.assert_array_equal(sdfg(A=np.arange(3, dtype="f")), [0, -2, -4])

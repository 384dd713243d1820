"""ONNXModel as a user meets it."""
import numpy as np
import pytest

import dcml
from dcml.onnx import ONNXModel

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

RNG = np.random.default_rng(0)
W, B = RNG.standard_normal((4, 3)).astype(np.float32), RNG.standard_normal(3).astype(np.float32)


def linear(two_outputs=False):
    """relu(x W + b), for any batch; with the sum before the relu as a second output."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["xw"]), helper.make_node("Add", ["xw", "b"], ["s"]),
             helper.make_node("Relu", ["s"], ["y"])]
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 3]) for n in ("y", "s")[:1 + two_outputs]]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])]
    graph = helper.make_graph(nodes, "linear", inputs, outputs,
                              [numpy_helper.from_array(W, "w"), numpy_helper.from_array(B, "b")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def two_inputs():
    graph = helper.make_graph([helper.make_node("Sub", ["a", "b"], ["y"])], "sub",
                              [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in "ab"],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def different_symbols():
    """x + y with extents that the model names differently."""
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"]), helper.make_tensor_value_info("y", TensorProto.FLOAT, ["m"])]
    graph = helper.make_graph([helper.make_node("Add", ["x", "y"], ["z"])], "add", inputs,
                              [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


X = RNG.standard_normal((5, 4)).astype(np.float32)
WANT = np.maximum(X @ W + B, 0)


def close(a, b):
    np.testing.assert_allclose(np.asarray(a), b, rtol=1e-5, atol=1e-5)


def test_numpy_in_numpy_out():
    model = ONNXModel("linear", linear())
    assert model.inputs == ["x"] and model.outputs == ["y"] and model.sdfg.name
    result = model(X)
    assert isinstance(result, np.ndarray)
    close(result, WANT)
    close(model(X[:2]), WANT[:2])


def test_model_from_bytes_and_from_a_file(tmp_path):
    close(ONNXModel("m", linear().SerializeToString())(X), WANT)
    path = tmp_path / "linear.onnx"
    onnx.save(linear(), path)
    close(ONNXModel("m", path)(X), WANT)
    with pytest.raises(dcml.Error, match="not int"):
        ONNXModel("m", 3)


def test_several_outputs_are_a_tuple():
    y, s = ONNXModel("linear", linear(two_outputs=True))(X)
    close(y, WANT)
    close(s, X @ W + B)


def test_arguments_by_position_and_name():
    model, a, b = ONNXModel("sub", two_inputs()), np.float32([3, 4]), np.float32([1, 1])
    close(model(a, b), [2, 3])
    close(model(b=b, a=a), [2, 3])
    close(model(a, b=b), [2, 3])
    for args, kwargs, part in (((a,), {}, "'b' of model 'sub' is missing"), ((a, b, a), {}, "2 inputs, 3 were given"),
                               ((a, b), {"a": a}, "'a' is given twice"), ((a,), {"c": b}, "no input 'c'")):
        with pytest.raises(dcml.Error, match=part):
            model(*args, **kwargs)


def test_extents_with_different_names_may_be_equal_or_broadcast():
    model, long, short, one = ONNXModel("add", different_symbols()), np.float32([1, 2, 3]), np.float32([1, 2]), np.float32([5])
    for x, y in ((long, long), (short, short), (one, long), (long, one), (one, one), (short, one), (long, long)):
        close(model(x, y), x + y)
    with pytest.raises(dcml.ShapeError, match="cannot broadcast extents 3 and 2"):
        model(long, short)


def test_torch_in_torch_out():
    torch = pytest.importorskip("torch")
    result = ONNXModel("linear", linear())(torch.from_numpy(X))
    assert isinstance(result, torch.Tensor)
    close(result, WANT)


def test_inputs_are_differentiable():
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(X).requires_grad_()
    ONNXModel("linear", linear())(x).sum().backward()
    close(x.grad, (WANT > 0).astype(np.float32) @ W.T)


def test_parameters_are_differentiable_and_trainable():
    torch = pytest.importorskip("torch")
    model = ONNXModel("linear", linear())
    names = dict(model.named_parameters())
    assert set(names) == {"w", "b"} and len(model.parameters()) == 2
    model(torch.from_numpy(X)).sum().backward()
    close(names["w"].grad, X.T @ (WANT > 0).astype(np.float32))
    with torch.no_grad():
        names["b"].add_(100)
    close(model(torch.from_numpy(X)).detach(), X @ W + B + 100)


def test_weights_are_the_initialisers():
    weights = ONNXModel("linear", linear()).weights
    assert {"w", "b"} <= set(weights)
    close(weights["w"], W)


@pytest.mark.parametrize("hosted", [False, True], ids=["compiled", "with a host operator"])
def test_weights_may_stand_in_constant_nodes(hosted, tmp_path):
    torch = pytest.importorskip("torch")
    made = {"w": W, "b": B, "half": np.float32(0.5), "axes": np.array([1])}
    nodes = [helper.make_node("Constant", [], [n], value=numpy_helper.from_array(np.asarray(v))) for n, v in made.items()]
    nodes += [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "b"], ["s"]), helper.make_node("Mul", ["s", "half"], ["h"]),
              helper.make_node("ReduceSum", ["h", "axes"], ["y"])]
    nodes += [helper.make_node("NonZero", ["y"], ["n"])] * hosted
    outputs = [helper.make_empty_tensor_value_info(n) for n in ["y", "n"][:1 + hosted]]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])], outputs)
    model = ONNXModel("m", helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    names = dict(model.named_parameters())
    assert set(names) == {"w", "b"}  # a single number is part of a formula
    first = (lambda out: out[0]) if hosted else (lambda out: out)
    first(model(torch.from_numpy(X))).sum().backward()
    close(names["b"].grad, np.full(3, 2.5))
    with torch.no_grad():
        names["b"].add_(1)
    model.save(tmp_path / "trained.onnx")
    close(first(ONNXModel("m", tmp_path / "trained.onnx")(X)), (X @ W + B + 1).sum(1, keepdims=True) / 2)


def test_what_decides_extents_is_no_weight():
    torch = pytest.importorskip("torch")
    nodes = [helper.make_node("Mul", ["x", "w"], ["p"]), helper.make_node("Resize", ["p", "", "scales"], ["y"], mode="nearest")]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 2, 2])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
                              [numpy_helper.from_array(np.float32([3]), "w"), numpy_helper.from_array(np.float32([1, 1, 2, 2]), "scales")])
    model = ONNXModel("m", helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    (name, w), = model.named_parameters()
    model(torch.ones(1, 1, 2, 2)).sum().backward()
    assert name == "w" and w.grad == 16


def test_weights_of_a_parent_module():
    torch = pytest.importorskip("torch")
    parent = torch.nn.Module()
    parent.w, parent.b = torch.nn.Parameter(torch.zeros(4, 3)), torch.nn.Parameter(torch.ones(3))
    close(ONNXModel("linear", linear(), parent_pytorch_module=parent)(torch.from_numpy(X)).detach(), np.ones((5, 3)))
    del parent.b
    with pytest.raises(dcml.ModelError, match="'b' of the model is not in Module"):
        ONNXModel("linear", linear(), parent_pytorch_module=parent)


def test_intermediate_values_are_saved():
    values = {}
    close(ONNXModel("linear", linear(), save_transients=values)(X), WANT)
    close(values["s"], X @ W + B)


def test_saved_model_is_the_model(tmp_path):
    path = tmp_path / "again.onnx"
    ONNXModel("linear", linear()).save(path)
    onnx.checker.check_model(onnx.load(path))
    close(ONNXModel("again", path)(X), WANT)


def attention(mask):
    from onnx import helper
    names = {"Q": ["B", "H", "N", 8], "K": ["B", "H", "M", 8], "V": ["B", "H", "M", 8], "mask": mask}
    values = [helper.make_tensor_value_info(name, 1, shape) for name, shape in names.items()]
    graph = helper.make_graph([helper.make_node("Attention", list(names), ["Y"])], "a", values, [helper.make_tensor_value_info("Y", 1, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)


@pytest.mark.parametrize("mask", [("p", "q", "r", "M"), ("q", "r", "M"), ("r", "M")])
def test_a_mask_of_unknown_extents_may_broadcast(mask):
    from onnx.reference import ReferenceEvaluator
    model, random = attention(mask), np.random.default_rng(0)
    ours, theirs = ONNXModel("attention", model), ReferenceEvaluator(model)
    arguments = {name: random.normal(size=(2, 3, n, 8)).astype(np.float32) for name, n in (("Q", 4), ("K", 5), ("V", 5))}
    for shape in ((2, 3, 4, 5), (1, 1, 1, 5), (2, 1, 4, 5), (1, 3, 1, 5)):
        arguments["mask"] = random.normal(size=shape[-len(mask):]).astype(np.float32)
        close(ours(**arguments), theirs.run(None, arguments)[0])

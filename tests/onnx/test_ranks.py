"""Many dimensions and many loops: up to the limit all computes and differentiates, past it there is an error that says so."""
import string
import subprocess
import sys

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import dcml
from dcml import _core
from dcml.onnx import ONNXModel
from dcml.pytorch import DaceModule

LIMIT = 64
RANKS = [32, 33, 36, 64]


def _shape(rank):
    """Three axes that are not 1, the first and the last among them."""
    shape = [1] * rank
    shape[0], shape[rank // 2], shape[-1] = 2, 3, 2
    return shape


def _node(op, inputs, outputs="y", **attributes):
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def _model(nodes, inputs, **constants):
    """inputs: {name: shape}."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()]
    weights = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "g", values, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


def _ints(*values):
    return np.array(values, np.int64)


def _one(rank, *nodes, **constants):
    """A model of one input, x."""
    return _model(nodes, {"x": _shape(rank)}, **constants)


def _squared(rank, op, inputs="x", **attributes):
    """op, then its result times itself, so that the gradient depends on it; a numpy or list attribute is an input."""
    constants = {k: attributes.pop(k) for k in list(attributes) if isinstance(attributes[k], np.ndarray)}
    return _one(rank, _node(op, " ".join([inputs, *constants]), "a", **attributes), _node("Mul", "a a"), **constants)


def _padded(x):
    return torch.nn.functional.pad(x.reshape(2, -1), (0, 0, 1, 0)).reshape(3, *x.shape[1:])


def _all(op, function):
    return lambda r: _one(r, _node(op, "x", keepdims=0)), lambda x: function(x.reshape(-1))


def _two(op, function):
    return (lambda r: _one(r, _node(op, "x axes", "a", keepdims=1), _node("Mul", "a x"), axes=_ints(r - 1, 0)),
            lambda x: function(function(x, 0), x.ndim - 1) * x)


# name: (rank -> model, the same in torch)
CASES = {
    "two Identity nodes": (lambda r: _one(r, _node("Identity", "x", "a"), _node("Identity", "a")), lambda x: x + 0),
    "element-wise nodes": (lambda r: _one(r, _node("Tanh", "x", "a"), _node("Mul", "a x", "b"), _node("Exp", "b")),
                           lambda x: torch.exp(torch.tanh(x) * x)),
    "Transpose": (lambda r: _squared(r, "Transpose", perm=list(range(r))[::-1]), lambda x: x.permute(*range(x.ndim)[::-1]) ** 2),
    "Add of a shorter one": (lambda r: _model([_node("Add", "x w", "a"), _node("Mul", "a x")], {"x": _shape(r), "w": [3] + [1] * (r - r // 2 - 1)}),
                             lambda x, w: (x + w) * x),
    "Add that broadcasts both": (lambda r: _model([_node("Add", "x w", "a"), _node("Mul", "a a")],
                                                  {"x": [3] + [1] * (r - 1), "w": [1] * (r - 1) + [2]}), lambda x, w: (x + w) ** 2),
    "Concat": (lambda r: _squared(r, "Concat", "x x x", axis=r - 1), lambda x: torch.cat([x] * 3, -1) ** 2),
    "Slice": (lambda r: _squared(r, "Slice", starts=_ints(1), ends=_ints(3), axes=_ints(r // 2)), lambda x: x.narrow(x.ndim // 2, 1, 2) ** 2),
    "Slice in steps": (lambda r: _squared(r, "Slice", starts=_ints(0), ends=_ints(3), axes=_ints(r // 2), steps=_ints(2)),
                       lambda x: x.index_select(x.ndim // 2, torch.tensor([0, 2])) ** 2),
    "Gather": (lambda r: _squared(r, "Gather", indices=_ints(2, 0, 2), axis=r // 2),
               lambda x: x.index_select(x.ndim // 2, torch.tensor([2, 0, 2])) ** 2),
    "Squeeze and Unsqueeze": (lambda r: _one(r, _node("Squeeze", "x i", "a"), _node("Unsqueeze", "a i", "b"), _node("Mul", "b x"), i=_ints(1, r - 2)),
                              lambda x: x * x),
    "Reshape": (lambda r: _one(r, _node("Reshape", "x s", "a"), _node("Mul", "a a", "b"), _node("Reshape", "b t"), s=_ints(3, 4),
                               t=_ints(*[1] * (r - 1), 12)), lambda x: x.reshape([1] * (x.ndim - 1) + [12]) ** 2),
    "Softmax": (lambda r: _one(r, _node("Softmax", "x", axis=r // 2)), lambda x: torch.softmax(x, x.ndim // 2)),
    "Pad": (lambda r: _squared(r, "Pad", pads=_ints(1, *[0] * (2 * r - 1))), lambda x: _padded(x) ** 2),
    "Tile": (lambda r: _squared(r, "Tile", repeats=_ints(*[1] * (r - 1), 2)), lambda x: torch.cat([x, x], -1) ** 2),
    "ReduceSum of all axes": _all("ReduceSum", torch.sum),
    "ReduceMax of all axes": _all("ReduceMax", torch.amax),
    "ReduceProd of all axes": _all("ReduceProd", torch.prod),
    "ReduceL2 of all axes": _all("ReduceL2", torch.norm),
    "ReduceLogSumExp of all axes": _all("ReduceLogSumExp", lambda x: torch.logsumexp(x, 0)),
    "ReduceSum of all axes but the last": (lambda r: _one(r, _node("ReduceSum", "x axes", "a", keepdims=0), _node("Mul", "a a"),
                                                          axes=_ints(*range(r - 1))), lambda x: x.reshape(-1, 2).sum(0) ** 2),
    "ReduceSum of two axes": _two("ReduceSum", lambda x, d: x.sum(d, keepdim=True)),
    "ReduceMax of two axes": _two("ReduceMax", lambda x, d: x.amax(d, keepdim=True)),
    "ReduceProd of two axes": _two("ReduceProd", lambda x, d: x.prod(d, keepdim=True)),
}


def _check(model, reference, backend):
    rng = np.random.default_rng(0)
    graph = _core.import_onnx(model.SerializeToString(), None, False)
    inputs = [rng.standard_normal(graph.info(name)[1]).astype(np.float32) for name in graph.inputs]
    tensors = [torch.tensor(x, requires_grad=True) for x in inputs]
    expected = reference(*tensors)
    weights = rng.standard_normal(tuple(expected.shape)).astype(np.float32)
    (result,), gradients = _core.Function(graph, graph.inputs, backend=backend).vjp(inputs, [weights])
    np.testing.assert_allclose(result, expected.detach().numpy(), rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(gradients, torch.autograd.grad(expected, tensors, torch.tensor(weights)), strict=True):
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("name", CASES)
def test_an_operator_of_many_dimensions_gives_its_value_and_gradient(name, rank):
    model, reference = CASES[name]
    _check(model(rank), reference, "interp")


@pytest.mark.parametrize("name", [n for n in CASES if "Reduce" in n or n in ("two Identity nodes", "Softmax", "Slice in steps", "Gather")])
def test_compiled_kernels_of_the_most_dimensions_agree(name):
    model, reference = CASES[name]
    _check(model(LIMIT), reference, "cpu")


LETTERS = string.ascii_letters
EQUATIONS = {
    "a product over all letters": (f"{LETTERS},{LETTERS}->", [52, 52]),
    "an outer product of all letters": (f"{LETTERS[:26]},{LETTERS[26:]}->{LETTERS}", [26, 26]),
    "an ellipsis of all dimensions": ("...,...->...", [LIMIT, LIMIT]),
    "an ellipsis that is summed": ("...a,a->a...", [LIMIT, 1]),
    "forty operands": (",".join("i" * 40) + "->i", [1] * 40),
}


def _check_einsum(equation, ranks, reference, backend):
    inputs = {f"x{k}": [1] * (rank - 1) + [2] for k, rank in enumerate(ranks)}
    _check(_model([_node("Einsum", " ".join(inputs), equation=equation)], inputs), reference, backend)


@pytest.mark.parametrize("backend", ["interp", "cpu"])
@pytest.mark.parametrize("name", EQUATIONS)
def test_an_einsum_of_many_labels_gives_its_value_and_gradient(name, backend):
    equation, ranks = EQUATIONS[name]
    if backend == "interp" or len(ranks) < 3:
        _check_einsum(equation, ranks, lambda *x: torch.einsum(equation, *x), backend)


@pytest.mark.parametrize("backend", ["interp", "cpu"])
def test_a_statement_may_have_more_loops_than_an_array_has_dimensions(backend):
    _check_einsum(f"...,{LETTERS}->...", [LIMIT, 52], lambda x, w: x * w.sum(), backend)


FAULTY = {
    "a label twice in the output": ("ij->ii", "'i' is given twice"),
    "a label of no input": ("ij->ik", "'k' is in no input"),
    "a digit in the output": ("ij->i1j", "expected letters"),
    "two ellipses in the output": ("...->......", "expected letters"),
}


@pytest.mark.parametrize("name", FAULTY)
def test_an_einsum_that_is_no_equation_is_an_error(name):
    equation, message = FAULTY[name]
    with pytest.raises(dcml.ModelError, match=message):
        ONNXModel("net", _model([_node("Einsum", "x", equation=equation)], {"x": [2, 2]}))


def _tensor(rank):
    return TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1] * rank, raw_data=b"1234")


def _initialised(rank):
    model = _model([_node("Identity", "w")], {})
    model.graph.initializer.append(_tensor(rank))
    return model


# Each has one dimension too many, or many.
PAST = {
    "an input": lambda r: _model([_node("Identity", "x")], {"x": [1] * r}),
    "an initialiser": _initialised,
    "a constant": lambda r: _model([helper.make_node("Constant", [], ["y"], value=_tensor(r))], {}),
    "Unsqueeze": lambda r: _squared(LIMIT, "Unsqueeze", axes=_ints(*range(r - LIMIT))),
    "Reshape": lambda r: _squared(LIMIT, "Reshape", shape=_ints(12, *[1] * (r - 1))),
    "Expand": lambda r: _squared(LIMIT, "Expand", shape=_ints(*[1] * r)),
    "Gather": lambda r: _squared(LIMIT, "Gather", indices=np.zeros([1] * min(r - LIMIT + 1, LIMIT), np.int64)),
    "ConstantOfShape": lambda r: _model([_node("ConstantOfShape", "s")], {}, s=_ints(*[1] * r)),
    "Einsum": lambda r: _model([_node("Einsum", "x w", equation=f"...,{LETTERS}->...{LETTERS}")], {"x": [1] * min(r - 52, LIMIT), "w": [1] * 52}),
    "RandomNormal": lambda r: _model([helper.make_node("RandomNormal", [], ["y"], shape=[1] * r)], {}),
}


@pytest.mark.parametrize("rank", [LIMIT + 1, LIMIT + 2, 2000])
@pytest.mark.parametrize("name", PAST)
def test_a_model_of_too_many_dimensions_is_an_error(name, rank):
    with pytest.raises(dcml.ShapeError, match="dimensions, expected at most 64"):
        ONNXModel("net", PAST[name](rank))


def _grown(rank):
    info = helper.make_tensor_value_info
    body = helper.make_graph([_node("Identity", "c", "again"), _node("Unsqueeze", "v axis", "more")], "body",
                             [info("i", TensorProto.INT64, []), info("c", TensorProto.BOOL, []), info("v", TensorProto.FLOAT, None)],
                             [info("again", TensorProto.BOOL, []), info("more", TensorProto.FLOAT, None)])
    return _model([helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)], {"x": [2]}, n=np.int64(rank - 1), axis=_ints(0))


def test_a_loop_may_add_dimensions_up_to_the_limit():
    x = torch.zeros(2, requires_grad=True)
    y = ONNXModel("net", _grown(LIMIT))(x)
    y.sum().backward()
    assert y.ndim == LIMIT and torch.equal(x.grad, torch.ones(2))
    with pytest.raises(dcml.ShapeError, match="65 dimensions, expected at most 64"):
        ONNXModel("net", _grown(LIMIT + 1))(x)


class _Unsqueezed(torch.nn.Module):
    def forward(self, x):
        return torch.sin(x.unsqueeze(0)) * 2


def test_a_module_may_have_the_most_dimensions_and_no_more():
    x = torch.randn(_shape(LIMIT - 1), requires_grad=True)
    y = DaceModule(_Unsqueezed(), backward=True)(x)
    y.sum().backward()
    torch.testing.assert_close(x.grad, 2 * torch.cos(x.detach()))
    with pytest.raises(dcml.ShapeError, match="65 dimensions"):
        DaceModule(_Unsqueezed(), backward=True)(torch.zeros([1] * LIMIT))


def test_arguments_and_handles_take_no_more_dimensions():
    model = ONNXModel("net", _model([_node("Identity", "x")], {"x": [1] * LIMIT}))
    graph = _core.Graph("g")
    for rank in (LIMIT + 1, 130):
        for attempt in (lambda x: model(x), lambda x: graph.add_const("w", x), lambda x: graph.add_input("x", 1, list(x.shape))):
            with pytest.raises(dcml.ShapeError, match=f"{rank} dimensions were given, expected at most 64"):
                attempt(torch.zeros([1] * rank))


def test_an_input_of_unknown_rank_takes_the_first_array_of_a_process():
    code = """
import numpy as np, onnx
from dcml.onnx import ONNXModel
info = onnx.helper.make_tensor_value_info
graph = onnx.helper.make_graph([onnx.helper.make_node("Neg", ["x"], ["y"])], "g", [info("x", 6, None)], [info("y", 6, None)])
print(ONNXModel("m", onnx.helper.make_model(graph))(np.array([[1, 2]], np.int32)).tolist())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split("\n")[0] == "[[-1, -2]]", done.stderr

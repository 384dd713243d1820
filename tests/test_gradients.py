"""Gradients of the operators, in float64, against central differences of the forward.

The cases are the ONNX package's node cases whose inputs are floats, run in float64, and the variants of
gradient_cases.py.  A directional
derivative is compared: sum(dX * v) against (f(x + h v) - f(x - h v)) / 2h, weighted by a random output gradient.
"""
import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent / "onnx"))
sys.path.insert(0, str(pathlib.Path(__file__).parent))
import backend_cases  # noqa: E402
import gradient_cases  # noqa: E402
from onnx import defs, helper  # noqa: E402

import dcml  # noqa: E402
from dcml import _core  # noqa: E402

FLOATS = (np.float32, np.float64)
# No gradient exists or none is wanted: results are whole, or steps.
STEPS = {"Floor", "Ceil", "Round", "Sign", "Hardmax", "QuantizeLinear", "DequantizeLinear", "Cast", "CastLike", "OneHot",
         "QLinearConv", "QLinearMatMul", "DynamicQuantizeLinear", "ConstantOfShape", "Range", "EyeLike", "Constant",
         "BitCast", "Mod"}


def _cases():
    seen = {}
    for case in backend_cases.collect():
        nodes = case.model.graph.node
        inputs = case.data_sets[0][0] if case.data_sets else []
        arrays = [np.asarray(v) for v in inputs if isinstance(v, (np.ndarray, np.generic, float))]
        if len(nodes) != 1 or nodes[0].op_type in STEPS or len(arrays) != len(inputs) or nodes[0].domain:
            continue
        if any(a.type in (a.GRAPH, a.GRAPHS) for a in nodes[0].attribute):
            continue
        if not any(a.dtype.type in FLOATS and a.size for a in arrays) or "training_dropout" in case.name:
            continue
        if seen.setdefault(nodes[0].op_type, 0) < 6:
            seen[nodes[0].op_type] += 1
            yield case


CODES = {"float64": 11, "float32": 1, "int64": 7, "int32": 6, "bool": 9, "uint8": 2, "int8": 3}
WITHOUT_VARIANTS = {"Compress": "a host operator: tests/onnx/test_host.py"}  # marked as differentiable
FIXED = {("Resize", "scales"), ("Upsample", "scales")}  # float32 by definition
BOUNDED = {"Asin", "Acos", "Atanh"}  # defined on [-1, 1]
# Further outputs of these are statistics, constants to the gradient as in PyTorch.
STATISTICS = {"BatchNormalization", "LayerNormalization"}


def _wide(array):
    """Floats as float64, moved a little: examples like to sit on kinks."""
    array = np.asarray(array)
    if array.dtype.type not in FLOATS:
        return array
    return array.astype(np.float64) + np.random.default_rng(7).uniform(0.01, 0.05, array.shape)


def _graph(op, given, outputs, attrs, opset, domain=""):
    """One node through the constructor calls; given: (name, array) for each input, (name, None) where it is absent."""
    graph = _core.Graph(op, opset)
    names = [None if array is None else graph.add_input(name, CODES[array.dtype.name], list(array.shape)) for name, array in given]
    for output in graph.add_node(op, names, outputs, attrs, domain):
        graph.mark_output(output)
    return graph


def _error(graph, arrays, first_only):
    """The least relative error of the gradient along four directions (a kink may lie on one); None: no floating output."""
    rng = np.random.default_rng(0)
    wrt = [n for n, a in zip(graph.inputs, arrays) if a.dtype == np.float64 and a.size]
    forward = _core.Function(graph, backend="interp")
    base = forward(*arrays)
    real = [o.dtype == np.float64 for o in base]
    if not any(real):
        return None
    real[1:] = [False] * (len(real) - 1) if first_only else real[1:]
    weights = [rng.standard_normal(o.shape) if r else None for o, r in zip(base, real)]
    _, gradients = _core.Function(graph, wrt=wrt, backend="interp").vjp(arrays, weights)
    assert np.isfinite(sum(np.sum(o[np.isfinite(o)]) for o, r in zip(base, real) if r))

    def value(moved):
        return sum(np.sum(w * o) for w, o in zip(weights, forward(*moved)) if w is not None)

    best = np.inf
    for seed in range(4):
        rng = np.random.default_rng(seed + 1)
        directions = {n: rng.standard_normal(a.shape) * 0.5 for n, a in zip(graph.inputs, arrays) if n in wrt}
        slopes = []
        for h in (1e-5, 5e-6):
            ends = [value([a + s * h * directions[n] if n in directions else a for n, a in zip(graph.inputs, arrays)])
                    for s in (1, -1)]
            slopes.append((ends[0] - ends[1]) / (2 * h))
        slope = (4 * slopes[1] - slopes[0]) / 3
        found = sum(np.sum(g * directions[n]) for g, n in zip(gradients, wrt) if g is not None)
        scale = 1 + abs(slope) + sum(np.sum(np.abs(g * directions[n])) for g, n in zip(gradients, wrt) if g is not None)
        best = min(best, abs(found - slope) / scale)
    return best


@pytest.mark.parametrize("case", list(_cases()), ids=lambda case: case.name)
def test_gradient_is_the_slope(case):
    node = case.model.graph.node[0]
    names = [v.name for v in case.model.graph.input]
    arrays = [np.asarray(a) if (node.op_type, name) in FIXED else _wide(a) for name, a in zip(names, case.data_sets[0][0])]
    if node.op_type in BOUNDED:
        arrays = [0.9 * a for a in arrays]
    values = dict(zip(names, arrays))
    opset = {o.domain: o.version for o in case.model.opset_import}.get("", 1)
    attrs = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    try:
        graph = _graph(node.op_type, [(i, values.get(i)) for i in node.input], [o or None for o in node.output], attrs, opset)
        error = _error(graph, [values[i] for i in graph.inputs], node.op_type in STATISTICS)
    except dcml.UnsupportedOpError as problem:
        pytest.skip(str(problem))
    if error is None:
        pytest.skip("no floating output")
    assert error < 1e-6


@pytest.mark.parametrize("case", gradient_cases.CASES, ids=str)
def test_gradient_of_a_variant_is_the_slope(case):
    given = [(f"x{k}", a) for k, a in enumerate(gradient_cases.arrays(case))]
    graph = _graph(case.op, given, case.outputs, case.attrs, case.opset, case.domain)
    assert _error(graph, [a for _, a in given if a is not None], case.op in STATISTICS) < 1e-6


def test_every_operator_that_the_specification_marks_has_a_variant():
    marked = defs.OpSchema.DifferentiationCategory.Differentiable
    operators = {s.name for s in defs.get_all_schemas() if not s.domain and not s.deprecated
                 if any(i.differentiation_category == marked for i in s.inputs) and any(o.differentiation_category == marked for o in s.outputs)}
    assert operators - {case.op for case in gradient_cases.CASES} == set(WITHOUT_VARIANTS)


def _vjp(op, arrays, wrt, **attrs):
    graph = _graph(op, [(f"x{k}", a) for k, a in enumerate(arrays)], 1, attrs, 20)
    function = _core.Function(graph, wrt=[f"x{k}" for k in wrt], backend="interp")
    result = function(*arrays)[0]
    seed = np.arange(1.0, 1 + result.size).reshape(result.shape)
    return seed, function.vjp(arrays, [seed])[1]


def test_equal_extremes_of_a_reduction_share_their_gradient_as_in_torch():
    torch = pytest.importorskip("torch")
    x = np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])
    for op, same in (("ReduceMax", torch.amax), ("ReduceMin", torch.amin)):
        seed, (found,) = _vjp(op, [x, np.array([1])], [0], keepdims=0)
        t = torch.tensor(x, requires_grad=True)
        np.testing.assert_allclose(found, torch.autograd.grad(same(t, 1), t, torch.tensor(seed))[0])


@pytest.mark.parametrize("reduction, same", [("max", "amax"), ("min", "amin"), ("mul", "prod"), ("add", "sum")])
def test_scattered_ties_and_zeros_are_as_in_torch(reduction, same):
    torch = pytest.importorskip("torch")
    x, v = np.array([2.0, 0.0, 3.0, 1.0]), np.array([2.0, 0.0, 3.0, 0.0, 5.0, 2.0])
    index = np.array([0, 1, 2, 2, 3, 0])
    seed, found = _vjp("ScatterElements", [x, index, v], [0, 2], reduction=reduction)
    a, b = (torch.tensor(t, requires_grad=True) for t in (x, v))
    result = a.scatter_reduce(0, torch.tensor(index), b, same)
    for ours, theirs in zip(found, torch.autograd.grad(result, (a, b), torch.tensor(seed))):
        np.testing.assert_allclose(ours, theirs)

"""Gradients of the operators, in float64, against central differences of the forward.

The cases are the ONNX package's node cases whose inputs are floats, run in float64.  A directional
derivative is compared: sum(dX * v) against (f(x + h v) - f(x - h v)) / 2h, weighted by a random output gradient.
"""
import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent / "onnx"))
import backend_cases  # noqa: E402

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


def _graph(case, arrays):
    """The case's node on float64 inputs, through the constructor calls."""
    node = case.model.graph.node[0]
    opset = {o.domain: o.version for o in case.model.opset_import}.get("", 1)
    graph = _core.Graph(case.name, opset)
    names = {v.name: graph.add_input(v.name, {"float64": 11, "float32": 1, "int64": 7, "int32": 6, "bool": 9, "uint8": 2,
             "int8": 3}.get(a.dtype.name, 7), list(a.shape)) for v, a in zip(case.model.graph.input, arrays)}
    from onnx import helper
    attrs = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    outputs = graph.add_node(node.op_type, [names.get(i) for i in node.input], [o or None for o in node.output], attrs)
    for output in outputs:
        graph.mark_output(output)
    return graph


@pytest.mark.parametrize("case", list(_cases()), ids=lambda case: case.name)
def test_gradient_is_the_slope(case):
    node = case.model.graph.node[0]
    arrays = [np.asarray(a) if (node.op_type, v.name) in FIXED else _wide(a)
              for v, a in zip(case.model.graph.input, case.data_sets[0][0])]
    if node.op_type in BOUNDED:
        arrays = [0.9 * a for a in arrays]
    rng = np.random.default_rng(0)
    try:
        graph = _graph(case, arrays)
        wrt = [n for n, a in zip(graph.inputs, arrays) if a.dtype == np.float64 and a.size]
        forward = _core.Function(graph, backend="interp")
        base = forward(*arrays)
        real = [o.dtype == np.float64 for o in base]
        if not any(real):
            pytest.skip("no floating output")
        if node.op_type in STATISTICS:
            real[1:] = [False] * (len(real) - 1)
        weights = [rng.standard_normal(o.shape) if r else None for o, r in zip(base, real)]
        _, gradients = _core.Function(graph, wrt=wrt, backend="interp").vjp(arrays, weights)
    except dcml.UnsupportedOpError as error:
        pytest.skip(str(error))
    assert np.isfinite(sum(np.sum(o[np.isfinite(o)]) for o, r in zip(base, real) if r))

    def value(moved):
        return sum(np.sum(w * o) for w, o in zip(weights, forward(*moved)) if w is not None)

    best = np.inf
    for seed in range(4):  # other directions: a kink may lie on one
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
    assert best < 1e-6

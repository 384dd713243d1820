"""Scattered sums of floats on the CUDA target: the same bits whatever the order of threads, and near to the sums themselves."""
import numpy as np
import operator_cases
import pytest
from onnx import TensorProto, helper

from dcml import _core

rng = np.random.default_rng(3)
TYPES = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE, "float16": TensorProto.FLOAT16, "int64": TensorProto.INT64}


def _model(op, arrays, opset=18, **attributes):
    inputs = [helper.make_tensor_value_info(f"x{k}", TYPES[a.dtype.name], a.shape) for k, a in enumerate(arrays)]
    node = helper.make_node(op, [v.name for v in inputs], ["y"], **attributes)
    graph = helper.make_graph([node], op, inputs, [helper.make_tensor_value_info("y", TYPES[arrays[0].dtype.name], None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def _floats(*shape, dtype="float32"):
    return (rng.standard_normal(shape) * 10.0 ** rng.integers(-2, 3, shape)).astype(dtype)


def _indices(most, *shape):
    return rng.integers(0, most, shape)


ADDS = {"reduction": "add"}
CASES = {
    "rows of a table": ("Gather", [_floats(50, 96), _indices(50, 4, 64)], {}),
    "few rows of a table": ("Gather", [_floats(3, 40), _indices(3, 100)], {}),
    "elements of rows": ("GatherElements", [_floats(6, 40), _indices(40, 6, 90)], {"axis": 1}),
    "elements of columns": ("GatherElements", [_floats(40, 6), _indices(40, 90, 6)], {"axis": 0}),
    "sums along rows": ("ScatterElements", [_floats(4, 30), _indices(30, 4, 200), _floats(4, 200)], {"axis": 1, "reduction": "add"}),
    "sums of doubles": ("ScatterElements", [_floats(30, dtype="float64"), _indices(30, 300), _floats(300, dtype="float64")], ADDS),
    "sums of halves": ("ScatterElements", [_floats(9, dtype="float16"), _indices(9, 60), _floats(60, dtype="float16")], ADDS),
    "products": ("ScatterElements", [_floats(9), _indices(9, 60), 1 + 0.1 * rng.random(60).astype("float32")], {"reduction": "mul"}),
    "one dimension": ("ScatterElements", [_floats(1000), _indices(1000, 5000), _floats(5000)], {"reduction": "add"}),
    "points": ("ScatterND", [_floats(7, 5), _indices(5, 80, 2), _floats(80)], {"reduction": "add"}),
}


@pytest.mark.parametrize("name", CASES)
def test_scattered_sums_have_the_same_bits_in_any_order_of_threads(fake, name):
    op, arrays, attributes = CASES[name]
    graph = _core.import_onnx(_model(op, arrays, **attributes).SerializeToString())
    wanted, _ = operator_cases.run(graph, arrays, backend="interp", natives="none")
    fake.set(SEED=1)
    first, _ = operator_cases.run(graph, arrays, backend="cuda", natives="none")
    for got, want in zip(first, wanted):
        operator_cases.check(got, want, name)
    for seed in (0, 2, 3):
        fake.set(SEED=seed)
        again, _ = operator_cases.run(graph, arrays, backend="cuda", natives="none")
        for got, want in zip(again, first):
            np.testing.assert_array_equal(got.view(np.uint8), want.view(np.uint8), f"{name}, seed {seed}")


LONG = {
    "one dimension": ("ScatterElements", [_floats(40), _indices(40, 20000), _floats(20000)], {"reduction": "add"}),
    "doubles": ("ScatterElements", [_floats(40, dtype="float64"), _indices(40, 20000), _floats(20000, dtype="float64")], ADDS),
    "halves": ("ScatterElements", [_floats(4000, dtype="float16"), _indices(4000, 20000), _floats(20000, dtype="float16")], ADDS),
    "elements of columns": ("GatherElements", [_floats(700, 3), _indices(700, 17000, 3)], {"axis": 0}),
}


@pytest.mark.parametrize("name", LONG)
def test_where_many_iterations_meet_sums_are_of_whole_numbers(fake, name):
    op, arrays, attributes = LONG[name]
    graph = _core.import_onnx(_model(op, arrays, **attributes).SerializeToString())
    results = []
    for seed in (1, 2):
        fake.set(SEED=seed)
        results.append(operator_cases.run(graph, arrays, backend="cuda", natives="none")[0])
    for got, want in zip(*results):
        np.testing.assert_array_equal(got.view(np.uint8), want.view(np.uint8))
    if op == "GatherElements":  # the gradient of what was taken
        seeds = operator_cases._seeds(results[0][:1])[0].astype(np.float64)
        want = np.zeros(arrays[0].shape)
        np.add.at(want, (arrays[1], np.arange(3)), seeds)
        np.testing.assert_allclose(results[0][1], want, rtol=2e-7, atol=1e-7)
        return
    want = arrays[0].astype(np.longdouble)
    np.add.at(want, arrays[1], arrays[2].astype(np.longdouble))
    epsilon = np.finfo(arrays[0].dtype).eps
    np.testing.assert_allclose(results[0][0].astype(np.longdouble), want, rtol=2 * epsilon, atol=0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_of_whole_numbers_keep_what_is_not_finite_and_what_is_tiny(fake, dtype):
    n, tiny = 20000, np.finfo(dtype).tiny
    terms, index, start = np.zeros(n, dtype), np.arange(n) % 7, np.zeros(7, dtype)
    terms[index == 0] = np.where(np.arange(n)[index == 0] < 70, np.inf, 1)
    terms[7 * 5 + 1], terms[7 * 6 + 1] = np.inf, -np.inf
    terms[7 * 5 + 2], terms[7 * 6 + 2] = -np.inf, 3
    terms[7 * 5 + 3], terms[7 * 6 + 3] = np.nan, np.inf
    terms[7 * 5 + 4], terms[7 * 6 + 4] = tiny / 8, tiny / 4
    terms[7 * 5 + 5], terms[7 * 6 + 5], terms[7 * 7 + 5] = np.finfo(dtype).max, -np.finfo(dtype).max, 1
    start[6] = 5
    graph = _core.import_onnx(_model("ScatterElements", [start, index, terms], reduction="add").SerializeToString())
    (got,) = _core.Function(graph, backend="cuda", natives="none")(start, index, terms)
    np.testing.assert_array_equal(got, np.array([np.inf, np.nan, -np.inf, np.nan, tiny / 8 + tiny / 4, got[5], 5], dtype))
    assert np.isfinite(got[5])

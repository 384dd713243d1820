"""ONNX models with ``cuda=True``: the ONNX package's cases, sizes that change, several devices."""
import backend_cases
import numpy as np
import operator_cases
import pytest
from onnx import TensorProto, helper
from test_backend_cases import CASES, GAPS

import dcml.onnx
from dcml import _core
from dcml.library import change_default
from dcml.onnx import ONNXModel

SOME = 20  # every how many of the ONNX package's cases run without --cuda-all


@pytest.mark.some(SOME, [pytest.param(case, id=case.name) for case in CASES if case.name not in GAPS])
def test_case(case):
    with change_default(dcml.onnx, "pure"):
        assert backend_cases.run(case, cuda=True) == "pass"


def _rows(reads="N", columns=40):
    """y = softmax(x + b) over rows of a symbolic number."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [reads, columns])
    b = helper.make_tensor_value_info("b", TensorProto.FLOAT, [columns])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [reads, columns])
    nodes = [helper.make_node("Add", ["x", "b"], ["s"]), helper.make_node("Softmax", ["s"], ["y"])]
    return helper.make_model(helper.make_graph(nodes, "rows", [x, b], [y]), opset_imports=[helper.make_opsetid("", 17)])


def _softmax(x, b):
    e = np.exp((x + b) - (x + b).max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def test_sizes_may_change_from_call_to_call():
    model, rng = ONNXModel("rows", _rows(), cuda=True), np.random.default_rng(0)
    for n in (3, 1, 300, 3, 0, 65):
        x, b = rng.standard_normal((n, 40)).astype(np.float32), rng.standard_normal(40).astype(np.float32)
        np.testing.assert_allclose(model(x, b), _softmax(x, b), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("seed", [0, 2, 3])
def test_the_order_of_threads_changes_no_bit(fake, seed):
    model, rng = ONNXModel("rows", _rows(), cuda=True), np.random.default_rng(1)
    x, b = rng.standard_normal((70, 40)).astype(np.float32), rng.standard_normal(40).astype(np.float32)
    fake.set(SEED=1)
    first = model(x, b)
    fake.set(SEED=seed)
    np.testing.assert_array_equal(model(x, b), first)


def test_a_second_call_compiles_and_loads_nothing_and_frees_all_that_it_takes(fake):
    model = ONNXModel("rows", _rows(), cuda=True)
    x, b = np.ones((5, 40), np.float32), np.ones(40, np.float32)
    model(x, b)
    before = fake.alive()
    with fake.logged() as calls:
        model(x, b)
    names = [name for name, *_ in calls]
    assert not [name for name in names if name.startswith("nvrtc") or "Module" in name or "Stream" in name and "Create" in name]
    assert "cuLaunchKernel" in names and names.count("cuMemAllocAsync") == names.count("cuMemFreeAsync")
    assert "cuCtxSynchronize" not in names and fake.alive() == before


@pytest.mark.parametrize("seed", range(3))
def test_late_streams_change_nothing(fake, seed):
    graph = _core.import_onnx(_rows().SerializeToString())
    x, b = np.random.default_rng(2).standard_normal((9, 40)).astype(np.float32), np.ones(40, np.float32)
    expected = operator_cases.run(graph, [x, b], backend="interp", natives="none")[0]
    fake.set(LAZY=1, SEED=seed)
    results = operator_cases.run(graph, [x, b], backend="cuda", natives="none")[0]
    for got, want in zip(results, expected):
        operator_cases.check(got, want, "late")


def test_a_function_runs_on_the_device_that_it_is_told(fake):
    fake.set(DEVICES=2)
    graph = _core.import_onnx(_rows().SerializeToString())
    x, b = np.ones((5, 40), np.float32), np.ones(40, np.float32)
    for ordinal in (1, 0):
        function = _core.Function(graph, backend="cuda", ordinal=ordinal)
        with fake.logged() as calls:
            (y,) = function(x, b)
        assert {words["device"] for name, words, _ in calls if name == "cuLaunchKernel"} == {str(ordinal)}
        np.testing.assert_allclose(y, _softmax(x, b), rtol=1e-5)

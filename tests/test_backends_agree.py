"""One table of operators, forward and backward, over the interpreter, compiled kernels and each native library.

The interpreter says what is right.  The cases are the ONNX package's: every case of the operators that libraries
serve, a few of each other operator, and larger ones that operator_cases.py writes, where a library's blocking matters.
"""
import ctypes
import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent / "onnx"))
from operator_cases import LARGE, SERVED, check, made, run, table  # noqa: E402

import dcml  # noqa: E402
from dcml import _core  # noqa: E402

CONTENDERS = {"compiled": "none", "oneDNN": "onednn", "OpenBLAS": "openblas"}


def _matches():
    """Every case compiled, and those of operators that libraries serve with each library."""
    for name, model, arrays in table():
        for contender, native in CONTENDERS.items():
            if native == "none" or model.graph.node[0].op_type in SERVED:
                yield pytest.param(contender, model, arrays, id=f"{contender}, {name}")


def _is_native(function):
    graphs = [graph for graph in (function.forward_graph, function.backward_graph) if graph is not None]
    return any(kind == "library" for graph in graphs for _, kind, *_ in graph.nodes())


def _missing():
    """The contenders whose library is not here."""
    arrays = [np.ones((8, 8), np.float32)] * 2
    graph = _core.import_onnx(made("MatMul", [(8, 8), (8, 8)]).SerializeToString())
    return {name for name, native in CONTENDERS.items()
            if native != "none" and not _is_native(run(graph, arrays, backend="cpu", natives=native)[1])}


MISSING = _missing()


def _expected(model, arrays, known={}):  # one interpretation serves all contenders
    if id(model) not in known:
        graph = _core.import_onnx(model.SerializeToString())
        known[id(model)] = graph, run(graph, arrays, backend="interp", natives="none")[0]
    return known[id(model)]


@pytest.mark.parametrize("contender, model, arrays", list(_matches()))
def test_results_and_gradients_are_those_of_the_interpreter(contender, model, arrays):
    if contender in MISSING:
        pytest.skip("the library is not installed")
    try:
        graph, expected = _expected(model, arrays)
    except dcml.UnsupportedOpError as error:
        pytest.skip(str(error))
    results, _ = run(graph, arrays, backend="cpu", natives=CONTENDERS[contender])
    assert len(results) == len(expected)
    for k, (got, want) in enumerate(zip(results, expected)):
        check(got, want, f"result {k} of {model.graph.node[0].op_type}")


@pytest.mark.parametrize("contender", [name for name, native in CONTENDERS.items() if native != "none"])
@pytest.mark.parametrize("name", ["matrices", "a batch of matrices", "3x3 convolution", "strided convolution, uneven pads", "1x1 convolution"])
def test_a_library_serves_what_it_is_for(contender, name):
    if contender in MISSING:
        pytest.skip("the library is not installed")
    arrays = [np.ones([d.dim_value for d in v.type.tensor_type.shape.dim], np.float32) for v in LARGE[name].graph.input]
    assert _is_native(run(_core.import_onnx(LARGE[name].SerializeToString()), arrays, backend="cpu", natives=CONTENDERS[contender])[1])


def test_the_threads_of_openblas_are_lent_and_given_back():
    wheel = pytest.importorskip("scipy_openblas32")
    library = ctypes.CDLL(str(next((pathlib.Path(wheel.__file__).parent / "lib").glob("libscipy_openblas.so*"))))
    a, b = np.ones((65, 130), np.float32), np.ones((130, 47), np.float32)
    library.scipy_openblas_set_num_threads(2)
    function = _core.Function(_core.import_onnx(LARGE["matrices"].SerializeToString()), backend="cpu", natives="openblas")
    for _ in range(2):
        np.testing.assert_array_equal(function(a, b)[0], np.full((65, 47), 130, np.float32))
        assert library.scipy_openblas_get_num_threads() == 2
    assert _is_native(function)


@pytest.mark.parametrize("contender", [name for name, native in CONTENDERS.items() if native != "none"])
def test_the_choice_of_a_library_stands_on_the_node_with_its_reason(contender):
    if contender in MISSING:
        pytest.skip("the library is not installed")
    name = CONTENDERS[contender]
    function = _core.Function(_core.import_onnx(LARGE["matrices"].SerializeToString()), backend="cpu", natives=name)
    function(np.ones((65, 130), np.float32), np.ones((130, 47), np.float32))
    (step,) = function.report()[0]["steps"]
    passed_over = "onednn: not asked for" if name == "openblas" else ""
    assert (step["by"], step["why"]) == (name, passed_over)
    stamp = f' : {name} ("{passed_over}")' if passed_over else f" : {name}"
    assert [line for line in str(function.forward_graph).splitlines() if "MatMul" in line and stamp in line]
    assert str(_core.parse(str(function.forward_graph))) == str(function.forward_graph)


def test_numpy_keeps_the_openblas_that_it_came_with():
    pytest.importorskip("scipy_openblas32")
    pools = pytest.importorskip("threadpoolctl").threadpool_info

    def of_numpy():
        return [(pool["filepath"], pool["num_threads"]) for pool in pools() if "numpy" in pool["filepath"]]

    before = of_numpy()
    if not before:
        pytest.skip("this NumPy uses the system's")
    function = _core.Function(_core.import_onnx(LARGE["matrices"].SerializeToString()), backend="cpu", natives="openblas")
    function(np.ones((65, 130), np.float32), np.ones((130, 47), np.float32))
    assert _is_native(function) and of_numpy() == before
    assert [pool for pool in pools() if "scipy_openblas32" in pool["filepath"]]

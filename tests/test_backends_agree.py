"""One table of operators, forward and backward, over the interpreter, compiled kernels and each native library.

The interpreter says what is right.  The cases are the ONNX package's: every case of the operators that libraries
serve, a few of each other operator, and larger ones that are written here, where a library's blocking matters.
"""
import ctypes
import pathlib
import sys

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(pathlib.Path(__file__).parent / "onnx"))
import backend_cases  # noqa: E402

import dcml  # noqa: E402
from dcml import _core  # noqa: E402

SERVED = {"Conv", "ConvTranspose", "MatMul", "Gemm"}  # by oneDNN and OpenBLAS
OF_EACH_OTHER = 1                    # cases; each compiles a few kernels
RANDOM = {"Dropout", "Bernoulli", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial"}
CONTENDERS = {"compiled": "none", "oneDNN": "onednn", "OpenBLAS": "openblas"}
TOLERANCE = {"float16": 2e-2, "float32": 2e-4, "float64": 1e-10}


def _made(op, shapes, opset=13, **attributes):
    """A model of one operator on float32 inputs of these shapes."""
    inputs = [helper.make_tensor_value_info(f"x{k}", TensorProto.FLOAT, shape) for k, shape in enumerate(shapes)]
    node = helper.make_node(op, [v.name for v in inputs], ["y"], **attributes)
    graph = helper.make_graph([node], op, inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


LARGE = {
    "matrices": _made("MatMul", [(65, 130), (130, 47)]),
    "a batch of matrices": _made("MatMul", [(3, 33, 64), (3, 64, 31)]),
    "a batch times a matrix": _made("MatMul", [(2, 3, 17, 64), (64, 33)]),
    "a broadcast batch": _made("MatMul", [(4, 1, 9, 16), (5, 16, 8)]),
    "a matrix and a vector": _made("MatMul", [(20, 30), (30,)]),
    "Gemm with all its attributes": _made("Gemm", [(40, 65), (33, 40), (65, 33)], transA=1, transB=1, alpha=0.5, beta=2.0),
    "Gemm with a row": _made("Gemm", [(64, 128), (128, 10), (10,)]),
    "3x3 convolution": _made("Conv", [(2, 16, 15, 14), (32, 16, 3, 3), (32,)], pads=[1, 1, 1, 1]),
    "strided convolution, uneven pads": _made("Conv", [(2, 3, 17, 18), (8, 3, 5, 4)], strides=[2, 3], pads=[2, 1, 1, 0]),
    "dilated convolution": _made("Conv", [(1, 8, 20, 20), (8, 8, 3, 3)], dilations=[2, 3]),
    "convolution in groups": _made("Conv", [(2, 12, 9, 9), (8, 3, 3, 3), (8,)], group=4, auto_pad="SAME_UPPER"),
    "depthwise convolution": _made("Conv", [(2, 24, 10, 10), (24, 1, 3, 3)], group=24, pads=[1, 1, 1, 1]),
    "1x1 convolution": _made("Conv", [(2, 32, 7, 7), (48, 32, 1, 1), (48,)]),
    "convolution along one dimension": _made("Conv", [(2, 4, 50), (6, 4, 7)], strides=[2]),
    "convolution along three dimensions": _made("Conv", [(1, 3, 6, 7, 8), (4, 3, 2, 3, 2)], pads=[0, 1, 1, 1, 0, 1]),
    "transposed convolution": _made("ConvTranspose", [(2, 16, 9, 8), (16, 12, 3, 3), (12,)], pads=[1, 0, 0, 1], strides=[2, 1]),
    "transposed convolution, longer at the end": _made("ConvTranspose", [(2, 8, 5, 5), (8, 6, 3, 2), (6,)], pads=[1, 0, 1, 0],
                                                       strides=[2, 3], output_padding=[1, 2]),
    "transposed convolution in groups": _made("ConvTranspose", [(2, 8, 6, 6), (8, 3, 3, 3), (12,)], group=4, dilations=[2, 1]),
    "transposed convolution along one dimension": _made("ConvTranspose", [(2, 8, 20), (8, 4, 4), (4,)], strides=[2]),
    "transposed convolution along three dimensions": _made("ConvTranspose", [(1, 4, 3, 4, 5), (4, 2, 2, 2, 2)], strides=[2, 2, 2]),
    "no channels to transpose": _made("ConvTranspose", [(2, 0, 3, 3), (0, 4, 2, 2), (4,)]),
    "an empty batch": _made("Conv", [(0, 3, 5, 5), (4, 3, 3, 3)]),
}


def _array(value):
    if isinstance(value, TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, (np.ndarray, np.generic, int, float)) else None


def _is_small_case(case, arrays, seen):
    nodes = case.model.graph.node
    if not all(v.type.HasField("tensor_type") for v in case.model.graph.input):
        return False
    if len(nodes) != 1 or nodes[0].op_type in RANDOM or any(a is None or a.dtype.kind not in "fiub" for a in arrays):
        return False
    seen[nodes[0].op_type] = seen.get(nodes[0].op_type, 0) + 1
    return nodes[0].op_type in SERVED or seen[nodes[0].op_type] <= OF_EACH_OTHER


def _table():
    rng, seen = np.random.default_rng(5), {}
    for name, model in LARGE.items():
        shapes = [[d.dim_value for d in v.type.tensor_type.shape.dim] for v in model.graph.input]
        yield name, model, [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    for case in backend_cases.collect():
        arrays = [_array(v) for v in case.data_sets[0][0]] if case.data_sets else []
        if _is_small_case(case, arrays, seen):
            yield case.name, case.model, arrays


def _matches():
    """Every case compiled, and those of operators that libraries serve with each library."""
    for name, model, arrays in _table():
        for contender, native in CONTENDERS.items():
            if native == "none" or model.graph.node[0].op_type in SERVED:
                yield pytest.param(contender, model, arrays, id=f"{contender}, {name}")


def _run(graph, arrays, **options):
    """Outputs, then the gradients of the floating inputs if the operator has any; and the function."""
    wrt = [name for name, a in zip(graph.inputs, arrays) if a.dtype.name in TOLERANCE]
    if not wrt:
        function = _core.Function(graph, **options)
        return list(function(*arrays)), function
    try:
        function = _core.Function(graph, wrt=wrt, **options)
        (*outputs,) = _core.Function(graph, **options)(*arrays)
        grads = [np.sin(np.arange(o.size)).reshape(o.shape).astype(o.dtype) if o.dtype.name in TOLERANCE else None for o in outputs]
        return outputs + list(function.vjp(arrays, grads)[1]), function
    except (dcml.UnsupportedOpError, dcml.DTypeError):
        function = _core.Function(graph, **options)
        return list(function(*arrays)), function


def _is_native(function):
    graphs = [graph for graph in (function.forward_graph, function.backward_graph) if graph is not None]
    return any(kind == "library" for graph in graphs for _, kind, *_ in graph.nodes())


def _missing():
    """The contenders whose library is not here."""
    arrays = [np.ones((8, 8), np.float32)] * 2
    graph = _core.import_onnx(_made("MatMul", [(8, 8), (8, 8)]).SerializeToString())
    return {name for name, native in CONTENDERS.items()
            if native != "none" and not _is_native(_run(graph, arrays, backend="cpu", natives=native)[1])}


MISSING = _missing()


def _expected(model, arrays, known={}):  # one interpretation serves all contenders
    if id(model) not in known:
        graph = _core.import_onnx(model.SerializeToString())
        known[id(model)] = graph, _run(graph, arrays, backend="interp", natives="none")[0]
    return known[id(model)]


def _check(got, want, what):
    if want is None:  # a gradient that is zero everywhere
        assert got is None, what
        return
    assert got.dtype == want.dtype and got.shape == want.shape, what
    if got.dtype.name not in TOLERANCE:
        np.testing.assert_array_equal(got, want, what)
        return
    tolerance, got, want = TOLERANCE[got.dtype.name], got.astype(np.float64), want.astype(np.float64)
    finite = want[np.isfinite(want)]
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * max(1, np.abs(finite).max(initial=0)), err_msg=what)


@pytest.mark.parametrize("contender, model, arrays", list(_matches()))
def test_results_and_gradients_are_those_of_the_interpreter(contender, model, arrays):
    if contender in MISSING:
        pytest.skip("the library is not installed")
    try:
        graph, expected = _expected(model, arrays)
    except dcml.UnsupportedOpError as error:
        pytest.skip(str(error))
    results, _ = _run(graph, arrays, backend="cpu", natives=CONTENDERS[contender])
    assert len(results) == len(expected)
    for k, (got, want) in enumerate(zip(results, expected)):
        _check(got, want, f"result {k} of {model.graph.node[0].op_type}")


@pytest.mark.parametrize("contender", [name for name, native in CONTENDERS.items() if native != "none"])
@pytest.mark.parametrize("name", ["matrices", "a batch of matrices", "3x3 convolution", "strided convolution, uneven pads", "1x1 convolution"])
def test_a_library_serves_what_it_is_for(contender, name):
    if contender in MISSING:
        pytest.skip("the library is not installed")
    arrays = [np.ones([d.dim_value for d in v.type.tensor_type.shape.dim], np.float32) for v in LARGE[name].graph.input]
    assert _is_native(_run(_core.import_onnx(LARGE[name].SerializeToString()), arrays, backend="cpu", natives=CONTENDERS[contender])[1])


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

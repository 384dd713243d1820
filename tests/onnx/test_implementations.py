"""Which implementation a node gets: of the node, its class, the library; fallbacks; onnxruntime."""
import importlib.machinery
import sys
import types

import numpy as np
import pytest

import dcml
import dcml.onnx as donnx
from dcml import _core
from dcml.library import change_default, implementation
from dcml.onnx.forward_implementation_abc import ONNXForward
from dcml.onnx.op_implementations import implementations_of, op_implementation

A, B = (np.random.default_rng(7).standard_normal(shape).astype(np.float32) for shape in ((4, 7), (7, 5)))
PRODUCT = """graph g opset 12 { input A: f32[4, 7] input B: f32[7, 5] temp X: f32[4, 5] temp Y: f32[4, 5] outputs Y state s {
  X = MatMul@9(A, B)%s
  Y = Relu@6(X) } }"""
TWO_STATES = """graph inner opset 12 { input A: f32[4, 7] input B: f32[7, 5] temp Y: f32[4, 5] temp T: f32[4, 5] const two: f32[1] = {2.0} outputs Y
  state a { map i in 0:4, j in 0:5 { reduce k in 0:7 { T[i, j] sum= A[i, k] * B[k, j] } } }
  state b { map i in 0:4, j in 0:5 { Y[i, j] = T[i, j] * two[0] } } }"""


pytestmark = pytest.mark.usefixtures("registrations")


def product(wish=None):
    return _core.parse(PRODUCT % (f' {{__implementation = "{wish}"}}' if wish else ""))


def served(graph=None, **options):
    """{operator: who runs it} in the forward graph of a function made now, None where it is expanded."""
    function = _core.Function(graph or product(), **implementation(**options))
    np.testing.assert_allclose(function(A, B)[0], np.maximum(A @ B, 0), rtol=1e-4, atol=1e-5)
    by = {step["node"]: step["by"] for step in function.report()[0]["steps"]}
    left = {node[1]: by[node[0]] for node in function.forward_graph.operators()}
    return {op: left.get(op) for op in ("MatMul", "Relu")}


LIBRARY = served()["MatMul"]  # what serves by default on this machine


# -- who decides ----------------------------------------------------------------------------------
def test_the_library_the_class_and_the_node_decide_in_turn():
    with change_default(donnx, "pure"):
        assert served()["MatMul"] is None
        with change_default(donnx.ONNXMatMul, "native"):
            assert served()["MatMul"] == LIBRARY
            assert served(product("pure"))["MatMul"] is None
        assert served(product("native"))["MatMul"] == LIBRARY
    with change_default(donnx.ONNXMatMul, "pure"):
        assert served()["MatMul"] is None and donnx.ONNXRelu.default_implementation is None
    assert served()["MatMul"] == LIBRARY


def test_a_library_by_name_serves_where_it_can():
    if LIBRARY is None:
        pytest.skip("no library is installed")
    with change_default(donnx, "pure"):
        assert served(product(LIBRARY))["MatMul"] == LIBRARY


@pytest.mark.parametrize("name", ["no such implementation", "interpreted", "onednn, openblas"])
def test_what_does_not_exist_is_passed_over(name, capfd, monkeypatch):
    monkeypatch.setenv("DCML_VERBOSE", "dispatch")
    assert served(product(name))["MatMul"] == LIBRARY
    assert f"there is no implementation {name!r} of MatMul" in capfd.readouterr().err
    with change_default(donnx, "pure"):
        assert served(product(name))["MatMul"] is None
    with change_default(donnx, "none of this name"):
        assert served()["MatMul"] == LIBRARY


def test_an_implementation_is_a_name():
    with pytest.raises(TypeError, match="the name of one, not 3"), change_default(donnx, 3):
        pass
    with pytest.raises(TypeError), change_default(donnx, None):
        pass
    with change_default(donnx.ONNXAbs, None):
        pass


def test_a_wish_stays_out_of_onnx_files_and_in_the_text():
    graph = product("pure")
    assert "__implementation" not in str(graph.to_onnx()) and _core.parse(graph.text()).text() == graph.text()
    node = graph.operators()[0][0]
    assert graph.wish(node) == "pure" and graph.clone().wish(node) == "pure"
    graph.set_attribute(node, "__implementation", None)
    assert graph.wish(node) is None and graph.text() == product().text()


@pytest.mark.parametrize("backward", ["native", "pure"])
def test_the_gradient_may_be_run_by_another(backward):
    graph = product("native")
    graph.set_attribute(graph.operators()[0][0], "__backward_implementation", backward)
    function = _core.Function(graph, wrt=["A"], **implementation())
    function.vjp((A, B), (np.ones((4, 5), np.float32),))
    served = ["MatMul"] if LIBRARY else []
    assert [n[1] for n in function.forward_graph.operators()] == served
    assert [n[1] for n in function.backward_graph.operators()] == (served if backward == "native" else [])


# -- the contents of another graph in a node's place --------------------------------------------------
def test_a_graph_takes_the_place_of_a_node():
    graph = product()
    graph.replace(graph.operators()[0][0], _core.parse(TWO_STATES), {"A": "A", "B": "B", "Y": "X"})
    graph.verify()
    function = _core.Function(graph, wrt=["A"])
    seed = np.ones((4, 5), np.float32)
    outputs, gradients = function.vjp((A, B), (seed,))
    np.testing.assert_allclose(outputs[0], np.maximum(2 * A @ B, 0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(gradients[0], 2 * (A @ B > 0) @ B.T, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("arrays, error, part", [
    ({"A": "A", "B": "A", "Y": "X"}, dcml.ShapeError, "'B': dimension 0 is 7.*'A' with 4"), ({"A": "A"}, dcml.ModelError, "'B' of the nested graph is not connected"),
    ({"A": "Q"}, dcml.ValueError_, "no array 'Q'")])
def test_arrays_that_do_not_fit_are_named_and_nothing_changes(arrays, error, part):
    graph = product()
    with pytest.raises(error, match=part):
        graph.replace(graph.operators()[0][0], _core.parse(TWO_STATES), arrays)
    assert [n[1] for n in graph.operators()] == ["MatMul", "Relu"]


# -- the registry ---------------------------------------------------------------------------------
def test_the_registry_takes_implementations_only():
    with pytest.raises(TypeError, match="expected a subclass of ONNXForward"):
        op_implementation(op="MatMul", name="mine")(int)
    with pytest.raises(TypeError, match="has no method 'forward'"):
        op_implementation(op="MatMul", name="mine")(type("Lacking", (ONNXForward,), {}))
    with pytest.raises(dcml.ValueError_, match="'native'"):
        op_implementation(op="MatMul", name="native")
    assert implementations_of("MatMul") == {}


# -- onnxruntime ----------------------------------------------------------------------------------
def test_without_the_package_onnxruntime_is_passed_over(monkeypatch, capfd):
    monkeypatch.setenv("DCML_VERBOSE", "dispatch")
    monkeypatch.setattr("dcml.onnx.environments.onnxruntime.why_not", lambda: "the package is not installed")
    with change_default(donnx, "onnxruntime"):
        assert served() == {"MatMul": LIBRARY, "Relu": None}
    assert "onnxruntime is not used: the package is not installed" in capfd.readouterr().err


class Session:
    """Stands for onnxruntime.InferenceSession; the onnx package computes."""
    calls = []

    def __init__(self, model, options, providers):
        import onnx
        from onnx.reference import ReferenceEvaluator
        self._model = onnx.load_from_string(model)
        onnx.checker.check_model(self._model)
        if self._model.graph.node[0].op_type == "Relu":
            raise RuntimeError("no kernel for\nRelu")
        self._evaluator = ReferenceEvaluator(self._model)

    def get_inputs(self):
        return self._model.graph.input

    def run(self, outputs, feeds):
        self.calls.append(self._model.graph.node[0].op_type)
        return self._evaluator.run(outputs, feeds)


@pytest.fixture
def package(monkeypatch):
    from dcml.onnx.environments import onnxruntime as environment
    fake = types.ModuleType("onnxruntime")
    fake.__spec__ = importlib.machinery.ModuleSpec("onnxruntime", None)
    fake.InferenceSession, fake.SessionOptions = Session, types.SimpleNamespace
    fake.get_available_providers = lambda: ["CPUExecutionProvider"]
    monkeypatch.setitem(sys.modules, "onnxruntime", fake)
    monkeypatch.setattr(Session, "calls", [])
    environment._session.cache_clear()
    yield Session
    environment._session.cache_clear()


def test_onnxruntime_runs_the_operators_that_it_takes(package, capfd, monkeypatch):
    monkeypatch.setenv("DCML_VERBOSE", "dispatch")
    with change_default(donnx, "onnxruntime"):
        assert served() == {"MatMul": "onnxruntime", "Relu": None}
    assert package.calls == ["MatMul"] and "onnxruntime is not used: no kernel for Relu" in capfd.readouterr().err


def test_what_onnxruntime_runs_has_its_gradient(package):
    function = _core.Function(product("onnxruntime"), wrt=["A"], **implementation())
    _, gradients = function.vjp((A, B), (np.ones((4, 5), np.float32),))
    np.testing.assert_allclose(gradients[0], (A @ B > 0) @ B.T, rtol=1e-4, atol=1e-5)
    assert package.calls == ["MatMul"]


def test_what_onnxruntime_raises_names_the_node(package, monkeypatch):
    def broken(self, outputs, feeds):
        raise RuntimeError("out of luck")
    monkeypatch.setattr(Session, "run", broken)
    function = _core.Function(product("onnxruntime"), **implementation())
    with pytest.raises(dcml.Error, match="onnxruntime: out of luck"):
        function(A, B)


def test_a_result_of_another_shape_is_refused(package, monkeypatch):
    monkeypatch.setattr(Session, "run", lambda *_: [np.zeros((4, 6), np.float32)])
    with pytest.raises(dcml.Error, match=r"float32\[4, 6\], expected float32\[4, 5\]"):
        _core.Function(product("onnxruntime"), **implementation())(A, B)


def test_a_model_and_a_module_are_run_by_onnxruntime(package):
    import onnx
    import torch
    from onnx import helper
    model = helper.make_model(helper.make_graph(
        [helper.make_node("Clip", ["X", "low", ""], ["Y"])], "g", [helper.make_tensor_value_info("X", 1, ["N", 3])],
        [helper.make_tensor_value_info("Y", 1, ["N", 3])], [onnx.numpy_helper.from_array(np.float32(0), "low")]),
        opset_imports=[helper.make_opsetid("", 12)])
    with change_default(donnx, "onnxruntime"):
        clipped = donnx.ONNXModel("clip", model)(np.float32([[-1, 2, 3]]))
        module = dcml.DaceModule(torch.nn.Linear(7, 5))
        x = torch.randn(4, 7)
        torch.testing.assert_close(module(x), module.model(x))
    np.testing.assert_array_equal(clipped, [[0, 2, 3]])
    assert package.calls[0] == "Clip" and len(package.calls) > 1


def test_a_real_onnxruntime_computes_the_same():
    pytest.importorskip("onnxruntime")
    with change_default(donnx, "onnxruntime"):
        assert served() == {"MatMul": "onnxruntime", "Relu": "onnxruntime"}

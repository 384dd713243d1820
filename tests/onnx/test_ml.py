"""ai.onnx.ml on numbers against the ONNX reference evaluator, and random numbers by their statistics."""
import warnings

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from dcml.onnx import ONNXModel

pytestmark = pytest.mark.usefixtures("interpreted")

ML = "ai.onnx.ml"
N, F = 12, 5


def _model(op, types, version=3, domain=ML, inputs=("X",), shape=(N, F), **attributes):
    node = helper.make_node(op, list(inputs), [f"Y{k}" for k in range(len(types))], domain=domain, **attributes)
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape)) for name in inputs]
    results = [helper.make_tensor_value_info(f"Y{k}", t, None) for k, t in enumerate(types)]
    graph = helper.make_graph([node], op, given, results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(domain, version), helper.make_opsetid("", 17)], ir_version=8)


def _data(seed=0, shape=(N, F)):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _agrees(model, *inputs):
    names = [i.name for i in model.graph.input]
    wanted = ReferenceEvaluator(model).run(None, dict(zip(names, inputs)))
    found = ONNXModel(model.graph.name, model)(*inputs)
    for got, want in zip(found if isinstance(found, tuple) else (found,), wanted):
        np.testing.assert_allclose(np.asarray(got), want, rtol=2e-5, atol=2e-6)


def _floats(n, seed):
    return np.random.default_rng(seed).standard_normal(n).astype(np.float32).tolist()


TRANSFORMS = ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"]


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("classes", [1, 2, 4])
def test_linear_classifier(classes, transform):
    model = _model("LinearClassifier", [TensorProto.INT64, TensorProto.FLOAT], coefficients=_floats(classes * F, 1),
                   intercepts=_floats(classes, 2), classlabels_ints=[10 + k for k in range(max(classes, 2))], post_transform=transform)
    _agrees(model, _data())


def test_linear_regressor():
    _agrees(_model("LinearRegressor", [TensorProto.FLOAT], coefficients=_floats(3 * F, 1), intercepts=_floats(3, 2), targets=3), _data())


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizer(norm):
    _agrees(_model("Normalizer", [TensorProto.FLOAT], norm=norm), _data())


def test_scaler_and_imputer():
    _agrees(_model("Scaler", [TensorProto.FLOAT], offset=_floats(F, 1), scale=_floats(F, 2)), _data())
    holed = _data()
    holed[::3, 1] = np.nan
    _agrees(_model("Imputer", [TensorProto.FLOAT], imputed_value_floats=_floats(F, 3), replaced_value_float=float("nan")), holed)


@pytest.mark.parametrize("kind", ["LINEAR", "POLY", "RBF", "SIGMOID"])
def test_support_vectors(kind):
    params = dict(kernel_type=kind, kernel_params=[0.3, 0.2, 3.0])
    vectors = _floats(6 * F, 4)
    _agrees(_model("SVMRegressor", [TensorProto.FLOAT], coefficients=_floats(6, 5), support_vectors=vectors, n_supports=6,
                   rho=[0.1], **params), _data())
    _agrees(_model("SVMClassifier", [TensorProto.INT64, TensorProto.FLOAT], coefficients=_floats(2 * 6, 5), support_vectors=vectors,
                   vectors_per_class=[1, 2, 3], classlabels_ints=[4, 5, 6], rho=_floats(3, 6), **params), _data())


@pytest.mark.parametrize("labels", ["ints", "strings"])
def test_coupled_probabilities_are_those_of_libsvm(labels):
    """Not the reference evaluator's, which takes a sum where libsvm and the paper have a product."""
    svm = pytest.importorskip("sklearn.svm")
    rng = np.random.default_rng(3)
    x = rng.standard_normal((80, F))
    y = np.argmax(x @ rng.standard_normal((F, 4)) + rng.standard_normal((80, 4)), 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = svm.SVC(probability=True, kernel="rbf", gamma=0.3, random_state=0).fit(x, y)
        wanted = fitted.predict_proba(x[:N])
        probabilities = {"prob_a": fitted.probA_.tolist(), "prob_b": fitted.probB_.tolist()}
    model = _model("SVMClassifier", [TensorProto.INT64 if labels == "ints" else TensorProto.STRING, TensorProto.FLOAT],
                   coefficients=fitted.dual_coef_.ravel().tolist(), support_vectors=fitted.support_vectors_.ravel().tolist(),
                   vectors_per_class=fitted.n_support_.tolist(), rho=fitted.intercept_.tolist(),
                   kernel_type="RBF", kernel_params=[0.3, 0.0, 3.0], **probabilities,
                   **{f"classlabels_{labels}": [4, 5, 6, 9] if labels == "ints" else ["a", "b", "c", "d"]})
    found = ONNXModel("svm", model)(x[:N].astype(np.float32))
    np.testing.assert_allclose(np.asarray(found[1]), wanted, atol=2e-3)
    assert np.mean(np.asarray(found[0]) == np.array([4, 5, 6, 9] if labels == "ints" else list("abcd"))[fitted.predict(x[:N])]) > 0.9


def _forest(seed, trees=3, depth=3):
    """Random trees as the attributes of TreeEnsembleRegressor; leaves carry several targets."""
    rng = np.random.default_rng(seed)
    nodes = {k: [] for k in ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids",
                             "missing_value_tracks_true")}
    leaves = []
    for tree in range(trees):
        count = 2 ** (depth + 1) - 1
        for node in range(count):
            leaf = 2 * node + 2 >= count or (node > 2 and rng.random() < 0.2)
            mode = "LEAF" if leaf else str(rng.choice(["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GT", "BRANCH_GTE"]))
            row = (tree, node, rng.integers(F), rng.standard_normal(), mode, 0 if leaf else 2 * node + 1,
                   0 if leaf else 2 * node + 2, rng.integers(2))
            for key, value in zip(nodes, row):
                nodes[key].append(value if isinstance(value, str) else value.item() if hasattr(value, "item") else value)
            if leaf:
                leaves += [(tree, node, target, rng.standard_normal()) for target in rng.permutation(3)[:2].tolist()]
    return {f"nodes_{key}": value for key, value in nodes.items()}, leaves


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_forest_regressor(aggregate):
    nodes, leaves = _forest(1)
    model = _model("TreeEnsembleRegressor", [TensorProto.FLOAT], n_targets=3, aggregate_function=aggregate,
                   target_treeids=[x[0] for x in leaves], target_nodeids=[x[1] for x in leaves], target_ids=[x[2] for x in leaves],
                   target_weights=[x[3] for x in leaves], base_values=[0.5, -0.5, 1.0], **nodes)
    data = _data()
    data[3, :] = np.nan
    data[4, 2] = np.nan
    if aggregate in ("MIN", "MAX"):  # a target that no leaf names: the largest number here, infinity there
        found = np.asarray(ONNXModel("forest", model)(data))
        wanted = ReferenceEvaluator(model).run(None, {"X": data})[0]
        named = np.abs(wanted) < 1e30
        np.testing.assert_allclose(found[named], wanted[named], rtol=1e-5)
        assert np.all(np.isinf(found[~named]))
        return
    _agrees(model, data)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("binary", [False, True])
def test_forest_classifier(binary, transform):
    nodes, leaves = _forest(2)
    if binary:
        leaves = [(tree, node, 0, abs(weight) / 3) for tree, node, target, weight in leaves[::2]]
    model = _model("TreeEnsembleClassifier", [TensorProto.INT64, TensorProto.FLOAT], class_treeids=[x[0] for x in leaves],
                   class_nodeids=[x[1] for x in leaves], class_ids=[x[2] for x in leaves], class_weights=[x[3] for x in leaves],
                   classlabels_int64s=[7, 8] if binary else [7, 8, 9], post_transform=transform, **nodes)
    _agrees(model, _data())


def test_a_forest_with_a_cycle_is_refused():
    import dcml
    nodes, leaves = _forest(3)
    nodes["nodes_truenodeids"][1] = 0
    model = _model("TreeEnsembleRegressor", [TensorProto.FLOAT], n_targets=3, target_treeids=[0], target_nodeids=[7], target_ids=[0],
                   target_weights=[1.0], **nodes)
    with pytest.raises(dcml.Error, match="two parents"):
        ONNXModel("cyclic", model)(_data())


def _random(op, **attributes):
    node = helper.make_node(op, [], ["Y"], **attributes)
    graph = helper.make_graph([node], op, [], [helper.make_tensor_value_info("Y", TensorProto.FLOAT, None)])
    return np.asarray(ONNXModel(op, helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10))())


def test_random_numbers_have_their_moments_and_follow_the_seed():
    normal = _random("RandomNormal", mean=2.0, scale=0.5, shape=[40000], seed=1.0)
    assert abs(normal.mean() - 2) < 0.02 and abs(normal.std() - 0.5) < 0.02
    assert np.array_equal(normal, _random("RandomNormal", mean=2.0, scale=0.5, shape=[40000], seed=1.0))
    assert not np.array_equal(normal, _random("RandomNormal", mean=2.0, scale=0.5, shape=[40000], seed=2.0))
    uniform = _random("RandomUniform", low=-1.0, high=3.0, shape=[200, 200], seed=4.0)
    assert uniform.min() >= -1 and uniform.max() < 3 and abs(uniform.mean() - 1) < 0.03


def test_multinomial_draws_follow_the_probabilities():
    chances = np.array([[0.1, 0.6, 0.3], [0.5, 0.0, 0.5]], np.float32)
    node = helper.make_node("Multinomial", ["X"], ["Y"], sample_size=4000, seed=3.0)
    graph = helper.make_graph([node], "draws", [helper.make_tensor_value_info("X", TensorProto.FLOAT, [2, 3])],
                              [helper.make_tensor_value_info("Y", TensorProto.INT32, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    with np.errstate(divide="ignore"):
        drawn = np.asarray(ONNXModel("draws", model)(np.log(chances)))
    shares = np.stack([(drawn == k).mean(axis=1) for k in range(3)], axis=1)
    assert np.abs(shares - chances).max() < 0.03

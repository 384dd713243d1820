"""Models with values that only the host holds, as a user meets them: results, gradients, errors."""
import time

import numpy as np
import pytest

import dcml
from dcml import _core
from dcml.autodiff import vjp
from dcml.onnx import ONNXModel
from dcml.onnx.host.compiled import Compiled

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

pytestmark = pytest.mark.usefixtures("interpreted")

F64, I64, BOOL, STRING = TensorProto.DOUBLE, TensorProto.INT64, TensorProto.BOOL, TensorProto.STRING
RNG = np.random.default_rng(0)


def tensor(name, dtype=F64, shape=None):
    return helper.make_tensor_value_info(name, dtype, shape)


def sequence(name, dtype=F64):
    return helper.make_tensor_sequence_value_info(name, dtype, None)


def const(name, value):
    return numpy_helper.from_array(np.asarray(value), name)


def node(op, inputs, outputs, **attributes):
    domain = attributes.pop("domain", "")
    return helper.make_node(op, inputs.split(" ") if inputs else [], outputs.split(" "), domain=domain, **attributes)


def graph(nodes, inputs, outputs, constants=()):
    return helper.make_graph(nodes, "g", inputs, outputs, [const(n, v) for n, v in constants])


def model(nodes, inputs, outputs, constants=(), opset=18, **more):
    return helper.make_model(graph(nodes, inputs, outputs, constants), ir_version=9, opset_imports=[
        helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 3), helper.make_opsetid("f", 1)], **more)


# ---- models ----

def power_loop(trips=4):
    """y = x w^trips + captured b each time; also every intermediate value."""
    body = graph([node("Mul", "v w", "p"), node("Add", "p b", "v_out"), node("Identity", "again", "again_out"),
                  node("Tanh", "v_out", "seen")],
                 [tensor("k", I64, []), tensor("again", BOOL, []), tensor("v", F64, [3])],
                 [tensor("again_out", BOOL, []), tensor("v_out", F64, [3]), tensor("seen", F64, [3])])
    return model([node("Exp", "u", "w"), node("Loop", "trips yes x", "y seen", body=body)],
                 [tensor("x", F64, [3]), tensor("u", F64, [3]), tensor("b", F64, [3])],
                 [tensor("y", F64, [3]), tensor("seen", F64, [trips, 3])], [("trips", trips), ("yes", True)])


def growing_loop():
    """Concatenates x to itself scaled: the carried value's extent changes in each iteration."""
    body = graph([node("Mul", "x s", "scaled"), node("Concat", "v scaled", "v_out", axis=0),
                  node("Less", "k last", "more")],
                 [tensor("k", I64, []), tensor("again", BOOL, []), tensor("v", F64, ["n"])],
                 [tensor("more", BOOL, []), tensor("v_out", F64, ["m"])])
    return model([node("Loop", " yes x", "y", body=body)], [tensor("x", F64, [3]), tensor("s", F64, [1])],
                 [tensor("y", F64, ["n"])], [("yes", True), ("last", 5)])


def scan_cumsum(reverse=False):
    body = graph([node("Add", "total part", "sum"), node("Mul", "sum sum", "out")],
                 [tensor("total", F64, [2]), tensor("part", F64, [2])], [tensor("sum", F64, [2]), tensor("out", F64, [2])])
    return model([node("Scan", "start x", "last y", body=body, num_scan_inputs=1, scan_input_axes=[1],
                       scan_input_directions=[int(reverse)], scan_output_axes=[-1])],
                 [tensor("start", F64, [2]), tensor("x", F64, [2, "t"])],
                 [tensor("last", F64, [2]), tensor("y", F64, [2, "t"])])


def branches():
    """x^3 where the sum is positive, else sin(x) by the captured scale."""
    cube = graph([node("Mul", "x x", "xx"), node("Mul", "xx x", "r")], [], [tensor("r")])
    sine = graph([node("Sin", "x", "s"), node("Mul", "s scale", "r")], [], [tensor("r")])
    return model([node("ReduceSum", "x", "total", keepdims=0), node("Greater", "total zero", "positive"),
                  node("Mul", "a two", "scale"), node("If", "positive", "y", then_branch=cube, else_branch=sine)],
                 [tensor("x", F64, [4]), tensor("a", F64, [])], [tensor("y", F64, [4])], [("zero", 0.0), ("two", 2.0)])


def sequence_pipe():
    """Splits, maps a function over the parts, swaps two parts, joins."""
    body = graph([node("Exp", "e", "x2"), node("Mul", "x2 w", "f")], [tensor("e"), tensor("w")], [tensor("f")])
    return model([node("SplitToSequence", "x sizes", "parts", axis=1), node("SequenceMap", "parts w", "mapped", body=body),
                  node("SequenceAt", "mapped two", "last"), node("SequenceErase", "mapped two", "short"),
                  node("SequenceInsert", "short last zero", "turned"), node("ConcatFromSequence", "turned", "y", axis=1)],
                 [tensor("x", F64, [2, 6]), tensor("w", F64, [2, 1])], [tensor("y", F64, [2, 6])],
                 [("sizes", [1, 2, 3]), ("two", 2), ("zero", 0)])


def computed_shape():
    """Keeps the positive elements of x; the rest of the model depends on how many there are."""
    return model([node("Greater", "x zero", "keep"), node("Compress", "x keep", "kept"), node("Shape", "kept", "count"),
                  node("ConstantOfShape", "count", "z", value=helper.make_tensor("v", F64, [1], [2.0])), node("Mul", "kept z", "twice"),
                  node("ReduceSum", "twice", "total", keepdims=0), node("Mul", "twice total", "y")],
                 [tensor("x", F64, [6])], [tensor("y", F64, ["n"])], [("zero", 0.0)])


def reshape_by_data():
    """Reshapes to extents that the model computes from the data."""
    return model([node("ReduceMax", "x", "most", keepdims=0), node("Cast", "most", "rows", to=I64),
                  node("Unsqueeze", "rows axis", "r1"), node("Concat", "r1 rest", "shape", axis=0),
                  node("Reshape", "x shape", "y"), node("Softmax", "y", "z", axis=0)],
                 [tensor("x", F64, [6])], [tensor("z", F64, ["a", "b"])], [("axis", [0]), ("rest", [-1])])


def flex_attention():
    bend = graph([node("Tanh", "s", "t"), node("Mul", "t w", "u")], [tensor("s")], [tensor("u")])
    square = graph([node("Mul", "p p", "pp")], [tensor("p")], [tensor("pp")])
    return helper.make_model(graph([node("FlexAttention", "q k v", "y", domain="ai.onnx.preview", score_mod=bend, prob_mod=square)],
                                   [tensor("q", F64, [1, 4, 3, 2]), tensor("k", F64, [1, 2, 5, 2]), tensor("v", F64, [1, 2, 5, 3]), tensor("w", F64, [])],
                                   [tensor("y", F64, [1, 4, 3, 3])]), ir_version=9,
                             opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.preview", 1)])


def random(*shape):
    return RNG.standard_normal(shape)


GRADIENTS = {
    "loop": (power_loop(), {"x": random(3), "u": random(3) / 3, "b": random(3)}),
    "loop of no iteration": (power_loop(0), {"x": random(3), "u": random(3), "b": random(3)}),
    "growing loop": (growing_loop(), {"x": random(3), "s": random(1)}),
    "scan": (scan_cumsum(), {"start": random(2), "x": random(2, 5)}),
    "reverse scan": (scan_cumsum(True), {"start": random(2), "x": random(2, 5)}),
    "then": (branches(), {"x": np.abs(random(4)), "a": np.array(1.5)}),
    "else": (branches(), {"x": -np.abs(random(4)), "a": np.array(1.5)}),
    "sequence": (sequence_pipe(), {"x": random(2, 6), "w": random(2, 1)}),
    "compress": (computed_shape(), {"x": random(6)}),
    "attention": (flex_attention(), {"q": random(1, 4, 3, 2), "k": random(1, 2, 5, 2), "v": random(1, 2, 5, 3), "w": np.array(1.5)}),
    "reshape": (reshape_by_data(), {"x": np.array([0.1, 0.2, 3.4, 0.3, 0.1, 0.5])}),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_slopes(name):
    proto, inputs = GRADIENTS[name]
    compiled = ONNXModel(name, proto)
    values = compiled(**inputs)
    outputs = dict(zip(compiled.outputs, values if isinstance(values, tuple) else (values,)))
    seeds = {n: random(*v.shape) for n, v in outputs.items()}
    got, grads = vjp(compiled, inputs, seeds)

    def total(given):
        results = compiled(**given)
        results = results if isinstance(results, tuple) else (results,)
        return sum((r * seeds[n]).sum() for n, r in zip(compiled.outputs, results))

    for n in outputs:
        np.testing.assert_allclose(got[n], outputs[n], rtol=1e-12)
    for n, x in inputs.items():
        slopes, h = np.zeros_like(x), 1e-6
        for k in np.ndindex(*x.shape):
            step = np.zeros_like(x)
            step[k] = h
            slopes[k] = (total({**inputs, n: x + step}) - total({**inputs, n: x - step})) / (2 * h)
        np.testing.assert_allclose(grads[n], slopes, rtol=1e-6, atol=1e-8, err_msg=n)


def test_results_of_control_flow():
    x, u, b = random(3), random(3), random(3)
    y, seen = ONNXModel("m", power_loop(3))(x, u, b)
    want, all_seen = x, []
    for _ in range(3):
        want = want * np.exp(u) + b
        all_seen.append(np.tanh(want))
    np.testing.assert_allclose(y, want)
    np.testing.assert_allclose(seen, all_seen)
    y, seen = ONNXModel("m", power_loop(0))(x, u, b)
    assert seen.shape == (0, 3) and seen.dtype == np.float64
    np.testing.assert_array_equal(y, x)
    grown = ONNXModel("m", growing_loop())(x, np.array([2.0]))
    np.testing.assert_allclose(grown, np.concatenate([x, *[2 * x] * 6]))
    np.testing.assert_allclose(ONNXModel("m", branches())(-np.abs(x.repeat(2)[:4]), np.array(3.0)), 6 * np.sin(-np.abs(x.repeat(2)[:4])))


def test_torch_in_torch_out_with_a_tape():
    torch = pytest.importorskip("torch")
    x = torch.tensor(random(2, 6), requires_grad=True)
    w = torch.tensor(random(2, 1))
    y = ONNXModel("m", sequence_pipe())(x, w)
    assert isinstance(y, torch.Tensor) and y.requires_grad
    y.sum().backward()
    np.testing.assert_allclose(x.grad, (w * x.exp()).detach(), rtol=1e-10)


def test_weights_of_a_model_with_a_loop_train_and_are_saved(tmp_path):
    torch = pytest.importorskip("torch")
    body = graph([node("MatMul", "v w", "m"), node("Tanh", "m", "v_out"), node("Identity", "again", "again_out")],
                 [tensor("k", I64, []), tensor("again", BOOL, []), tensor("v", F64, [1, 3])],
                 [tensor("again_out", BOOL, []), tensor("v_out", F64, [1, 3])])
    proto = model([node("Loop", "trips  x", "y", body=body)], [tensor("x", F64, [1, 3])], [tensor("y", F64, [1, 3])],
                  [("trips", 3), ("w", random(3, 3))])
    compiled = ONNXModel("m", proto)
    (name, w), = compiled.named_parameters()
    assert name == "w"
    x = torch.tensor(random(1, 3))
    compiled(x).sum().backward()
    other = w.detach().clone().requires_grad_()
    y = x
    for _ in range(3):
        y = torch.tanh(y @ other)
    y.sum().backward()
    np.testing.assert_allclose(w.grad, other.grad, rtol=1e-10)
    with torch.no_grad():
        w.mul_(2)
    compiled.save(tmp_path / "trained.onnx")
    onnx.checker.check_model(onnx.load(tmp_path / "trained.onnx"), full_check=True)
    np.testing.assert_allclose(ONNXModel("m", tmp_path / "trained.onnx")(x.numpy()), compiled(x).detach(), rtol=1e-12)


def test_a_gradient_inside_a_model_sees_loops():
    body = graph([node("Mul", "v w", "v_out"), node("Identity", "again", "again_out")],
                 [tensor("k", I64, []), tensor("again", BOOL, []), tensor("v", F64, [3])], [tensor("again_out", BOOL, []), tensor("v_out", F64, [3])])
    proto = helper.make_model(graph(
        [node("Loop", "trips  x", "y", body=body), node("Mul", "y b", "z"),
         node("Gradient", "w", "dw", domain="ai.onnx.preview.training", xs=["w"], y="z")],
        [tensor("x", F64, [3]), tensor("w", F64, [3]), tensor("b", F64, [3])], [tensor("dw", F64, [3])], [("trips", 3)]), ir_version=9,
        opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.preview.training", 1)])
    x, w, b = random(3), random(3), random(3)
    np.testing.assert_allclose(ONNXModel("m", proto)(x, w, b), 3 * x * w * w * b)


def test_an_operator_of_the_model_may_be_a_gradient():
    proto = helper.make_model(graph(
        [node("Mul", "x w", "p"), node("Sin", "p", "y"),
         node("Gradient", "x w", "dx dw", domain="ai.onnx.preview.training", xs=["x", "w"], y="y"),
         node("Gradient", "p", "dp", domain="ai.onnx.preview.training", xs=["p"], y="y"), node("NonZero", "dw", "n")],
        [tensor("x", F64, [3]), tensor("w", F64, [3])], [tensor(n, F64, [3]) for n in ("y", "dx", "dw", "dp")]), ir_version=9,
        opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.preview.training", 1)])
    x, w = random(3), random(3)
    y, dx, dw, dp = ONNXModel("m", proto)(x, w)
    for got, want in ((y, np.sin(x * w)), (dx, np.cos(x * w) * w), (dw, np.cos(x * w) * x), (dp, np.cos(x * w))):
        np.testing.assert_allclose(got, want)


def test_sparse_and_external_weights_are_saved(tmp_path):
    torch = pytest.importorskip("torch")
    (tmp_path / "a").mkdir()
    sparse = helper.make_sparse_tensor(const("w", [2.0, 3.0]), const("", np.array([0, 3])), [2, 2])
    g = graph([node("MatMul", "x w", "m"), node("Add", "m b", "s"), node("NonZero", "s", "n"), node("Mul", "s k", "y")],
              [tensor("x", F64, [2, 2])], [tensor("y", F64, [2, 2]), tensor("n", I64, [2, "c"])], [("b", np.array([1.0, -1.0])), ("k", np.ones((2, 2)))])
    g.sparse_initializer.append(sparse)
    proto = helper.make_model(g, ir_version=9, opset_imports=[helper.make_opsetid("", 18)])
    onnx.save(proto, tmp_path / "a" / "m.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    compiled = ONNXModel("m", tmp_path / "a" / "m.onnx")
    assert {n for n, _ in compiled.named_parameters()} == {"w", "b", "k"}
    with torch.no_grad():
        for p in compiled.parameters():
            p.add_(1)
    compiled.save(tmp_path / "trained.onnx")  # in another folder
    x = random(2, 2)
    got, want = (ONNXModel("m", tmp_path / "trained.onnx")(x)[0], (x @ np.array([[3.0, 1], [1, 4]]) + [2, 0]) * 2)
    np.testing.assert_allclose(got, want)
    np.testing.assert_allclose(compiled(torch.tensor(x))[0].detach(), want)


# ---- sequences, optionals, strings ----

def test_sequences_and_optionals_pass_through():
    proto = model([node("SequenceInsert", "s x", "t"), node("SequenceLength", "t", "n"), node("Optional", "t", "o"),
                   node("OptionalHasElement", "o", "has"), node("OptionalHasElement", "", "none")],
                  [sequence("s"), tensor("x", F64, [2])], [sequence("t"), tensor("n", I64, []), tensor("has", BOOL, []), tensor("none", BOOL, [])])
    s = [random(2, 2), random(3)]
    t, n, has, none = ONNXModel("m", proto)(s, random(2))
    assert len(t) == 3 and n == 3 and has and not none
    np.testing.assert_array_equal(t[1], s[1])
    assert len(s) == 2  # the caller's list is untouched


def test_strings_move_like_numbers():
    proto = model([node("Concat", "a b", "c", axis=0), node("Transpose", "c", "t"), node("Gather", "t k", "g", axis=1),
                   node("Equal", "g word", "same"), node("Where", "same g other", "w"), node("Reshape", "w flat", "y"),
                   node("Unique", "y", "u first inverse counts")],
                  [tensor("a", STRING, [1, 2]), tensor("b", STRING, [2, 2]), tensor("k", I64, [2])],
                  [tensor("y", STRING, ["n"]), tensor("u", STRING, ["m"]), tensor("counts", I64, ["m"])],
                  [("word", np.array("tea", object)), ("other", np.array(["", "é"], object)), ("flat", [-1])])
    a, b = np.array([["tea", "x"]]), np.array([["y", "tea"], ["tea", "z"]])
    y, u, counts = ONNXModel("m", proto)(a, b, np.array([0, 2]))
    g = np.concatenate([a, b]).T[:, [0, 2]]
    want = np.where(g == "tea", g, np.array(["", "é"])).ravel()
    assert y.tolist() == want.tolist() and y.dtype == object
    values, numbers = np.unique(want, return_counts=True)
    assert u.tolist() == values.tolist() and counts.tolist() == numbers.tolist()


def test_complex_numbers_move():
    c64 = TensorProto.COMPLEX64
    proto = model([node("Concat", "a b", "c", axis=0), node("Transpose", "c", "t"), node("Pad", "t p", "padded"), node("Slice", "padded i j", "y"),
                   node("Shape", "y", "n"), node("SequenceConstruct", "a c", "s"), node("SequenceAt", "s i0", "z")],
                  [tensor("a", c64, [1, 2])], [tensor("y", c64, ["n", "m"]), tensor("n", I64, [2]), tensor("z", c64, [1, 2])],
                  [("b", np.array([[1 + 2j, 3 - 4j]], np.complex64)), ("p", [0, 1, 0, 1]), ("i", [1]), ("j", [2]), ("i0", 0)])
    a = np.array([[5j, 6]], np.complex64)
    y, n, z = ONNXModel("m", proto)(a)
    want = np.pad(np.concatenate([a, [[1 + 2j, 3 - 4j]]]).T, ((0, 0), (1, 1)))[1:2]
    assert y.dtype == z.dtype == np.complex64 and n.tolist() == [1, 4]
    np.testing.assert_array_equal(y, want)
    np.testing.assert_array_equal(z, a)
    with pytest.raises(dcml.DTypeError, match="'product'"):
        ONNXModel("m", model([node("Mul", "a a", "y", name="product")], [tensor("a", c64, [2])], [tensor("y", c64, [2])]))(a[0])


def test_casts_of_strings():
    proto = model([node("Cast", "s", "f", to=F64), node("Cast", "f", "t", to=STRING), node("Cast", "k", "d", to=STRING)],
                  [tensor("s", STRING, [4]), tensor("k", I64, [2])], [tensor("f", F64, [4]), tensor("t", STRING, [4]), tensor("d", STRING, [2])])
    f, t, d = ONNXModel("m", proto)(np.array(["1.5", "-INF", "NaN", "1e-7"]), np.array([3, -4]))
    np.testing.assert_array_equal(f, [1.5, -np.inf, np.nan, 1e-7])
    assert t.tolist() == ["1.5", "-INF", "NaN", "1e-07"] and d.tolist() == ["3", "-4"]


def test_maps_from_ai_onnx_ml():
    ml = "ai.onnx.ml"
    proto = model([node("LabelEncoder", "s", "k", domain=ml, keys_strings=["a", "b"], values_int64s=[7, 8], default_int64=-1),
                   node("ZipMap", "scores", "z", domain=ml, classlabels_strings=["no", "yes"])],
                  [tensor("s", STRING, [3]), tensor("scores", TensorProto.FLOAT, [2, 2])],
                  [tensor("k", I64, [3]), sequence("z")])
    k, z = ONNXModel("m", proto)(np.array(["b", "?", "a"]), np.float32([[0.25, 0.75], [1, 0]]))
    assert k.tolist() == [8, -1, 7] and z == [{"no": 0.25, "yes": 0.75}, {"no": 1, "yes": 0}]


def text(name):
    return tensor(name, STRING)


X3 = np.float32([[1, 2], [3, -1], [0, 0.5]])
TREE = dict(nodes_treeids=[0, 0, 0], nodes_nodeids=[0, 1, 2], nodes_featureids=[0, 0, 0], nodes_values=[0.5, 0.0, 0.0],
            nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"], nodes_truenodeids=[1, 0, 0], nodes_falsenodeids=[2, 0, 0], class_treeids=[0, 0, 0, 0],
            class_nodeids=[1, 1, 2, 2], class_ids=[0, 1, 0, 1], class_weights=[1.0, 0.0, 0.2, 0.8])
WORDS = np.array(["a", "b", "a", "", "c", "b", "b"], object)
REFERENCE = {
    "classifier with texts": (node("LinearClassifier", "x", "y z", domain="ai.onnx.ml", coefficients=[1.0, 2.0, -1.0, 0.5],
                                   intercepts=[0.1, 0.2], classlabels_strings=["no", "yes"]), [X3]),
    "trees with texts": (node("TreeEnsembleClassifier", "x", "y z", domain="ai.onnx.ml", classlabels_strings=["no", "yes"], **TREE), [X3]),
    "features of texts": (node("ArrayFeatureExtractor", "x k", "y", domain="ai.onnx.ml"), [np.array([["a", "b"], ["c", "d"]], object), np.array([1])]),
    "unique, unsorted": (node("Unique", "x", "y f i c", sorted=0), [np.array([3, 1, 3, 2, 1, 1])]),
    "unique rows, unsorted": (node("Unique", "x", "y f i c", sorted=0, axis=0), [np.array([[1, 2], [0, 2], [1, 2], [0, 1]])]),
    "unique columns": (node("Unique", "x", "y f i c", axis=-1), [np.float32([[1, 0, 1], [2, 2, 2]])]),
    "unique texts": (node("Unique", "x", "y f i c"), [WORDS]),
    "nonzero of rank 0": (node("NonZero", "x", "y"), [np.array(3)]),
    "nonzero of rank 3": (node("NonZero", "x", "y"), [np.arange(8).reshape(2, 2, 2) % 3]),
    "compress, flat": (node("Compress", "x k", "y"), [X3, np.array([True, False, True])]),
    "compress, last axis": (node("Compress", "x k", "y", axis=-1), [X3, np.array([False, True])]),
    "compress texts": (node("Compress", "x k", "y", axis=0), [WORDS, np.arange(7) % 2 == 0]),
    "scattered texts": (node("ScatterElements", "x i u", "y"), [WORDS, np.array([1, 3]), np.array(["p", "q"], object)]),
    "split texts": (node("Split", "x s", "y z"), [WORDS, np.array([3, 4])]),
    "stop words": (node("StringNormalizer", "x", "y", case_change_action="UPPER", stopwords=["B"]), [WORDS[:3]]),
    "tfidf of numbers": (node("TfIdfVectorizer", "x", "y", mode="TFIDF", min_gram_length=1, max_gram_length=3, max_skip_count=2, ngram_counts=[0, 2, 6],
                              ngram_indexes=[4, 1, 0, 3, 2], pool_int64s=[1, 2, 1, 1, 2, 1, 1, 2, 2], weights=[2.0, 3.0, 5.0, 7.0, 11.0]),
                         [np.array([[1, 2, 1, 1, 2], [2, 2, 2, 1, 1]])]),
    "idf of texts": (node("TfIdfVectorizer", "x", "y", mode="IDF", min_gram_length=2, max_gram_length=2, max_skip_count=0, ngram_counts=[0, 0],
                          ngram_indexes=[0, 1], pool_strings=["a", "b", "b", "b"], weights=[2.0, 3.0]), [WORDS]),
    "boxes by corners": (node("NonMaxSuppression", "b s n i t", "y"), [np.float32([[[0, 0, 1, 1], [0.1, 0.1, 1, 1], [2, 2, 3, 3], [3, 3, 2, 2]]]),
                                                                      np.float32([[[0.5, 0.9, 0.3, 0.4], [0.2, 0.8, 0.9, 0.1]]]), np.array([3]),
                                                                      np.float32([0.5]), np.float32([0.15])]),
}


@pytest.mark.parametrize("name", REFERENCE)
def test_results_are_the_reference_evaluators(name):
    from onnx.reference import ReferenceEvaluator
    op, given = REFERENCE[name]
    inputs = dict(zip(op.input, given))
    kinds = {n: STRING if x.dtype == object else helper.np_dtype_to_tensor_dtype(x.dtype) for n, x in inputs.items()}
    proto = model([op], [tensor(n, kinds[n], list(x.shape)) for n, x in inputs.items()], [helper.make_empty_tensor_value_info(n) for n in op.output])
    want = ReferenceEvaluator(proto).run(None, inputs)
    got = ONNXModel("m", proto)(*given)
    for g, w in zip(got if isinstance(got, tuple) else (got,), want, strict=True):
        assert g.shape == w.shape and (g.dtype == w.dtype or w.dtype.kind in "OU" and g.dtype == object), (g, w)
        if g.dtype == object:
            assert g.tolist() == w.tolist()
        else:
            np.testing.assert_allclose(g, w, rtol=1e-6)


def test_local_functions_with_host_nodes_and_attribute_references():
    ref = node("StringSplit", "a", "b n")
    ref.attribute.append(onnx.AttributeProto(name="delimiter", ref_attr_name="by", type=onnx.AttributeProto.STRING))
    inner = graph([node("Identity", "n", "r")], [], [tensor("r", I64)])
    other = graph([node("Neg", "n", "r")], [], [tensor("r", I64)])
    function = helper.make_function("f", "Parts", ["a", "c"], ["y"], [ref, node("If", "c", "y", then_branch=inner, else_branch=other)],
                                    [helper.make_opsetid("", 20)], attributes=["by"])
    proto = model([node("Parts", "s c", "y", domain="f", by="-"), node("Parts", "s c", "z", domain="f", by=",")],
                  [tensor("s", STRING, [2]), tensor("c", BOOL, [])], [tensor("y", I64, [2]), tensor("z", I64, [2])], opset=20, functions=[function])
    compiled, s = ONNXModel("m", proto), np.array(["a-b-c", "d,e"])
    for c, sign in ((True, 1), (False, -1)):
        y, z = compiled(s, np.array(c))
        assert y.tolist() == [sign * 3, sign * 1] and z.tolist() == [sign * 1, sign * 2]


# ---- how programs are made ----

@pytest.mark.parametrize("name", ["loop", "then", "sequence", "compress"])
def test_graphs_with_subgraphs_print_and_parse(name):
    text = ONNXModel("m", GRADIENTS[name][0]).sdfg.graph.text()
    assert _core.parse(text).text() == text
    assert ("captures" in text) == (name in ("loop", "then"))


def test_strings_print_and_parse():
    proto = model([node("Equal", "s words", "y")], [tensor("s", STRING, [3])], [tensor("y", BOOL, [3])],
                  [("words", np.array(["a", 'say "é"', ""], object))])
    graph = ONNXModel("m", proto).sdfg.graph
    again = _core.parse(graph.text())
    assert again.text() == graph.text() and again.data("words").tolist() == ["a", 'say "é"', ""]


def test_a_model_of_ordinary_operators_stays_one_function():
    proto = model([node("Relu", "x", "y")], [tensor("x", F64, [2])], [tensor("y", F64, [2])])
    assert ONNXModel("m", proto)._program is None


def test_a_changing_extent_compiles_nothing_new(monkeypatch):
    made = []
    monkeypatch.setattr(Compiled, "_function", lambda self, shapes, make=Compiled._function: made.append(shapes) or make(self, shapes))
    compiled = ONNXModel("m", computed_shape())
    for n in (2, 3):
        compiled(np.r_[np.ones(n), -np.ones(6 - n)])
    functions = len(made)
    for n in (4, 5, 6, 1, 0):
        np.testing.assert_allclose(compiled(np.r_[np.ones(n), -np.ones(6 - n)]), np.full(n, 4.0 * n))
    assert len(made) == functions


def test_shapes_that_come_again_go_straight_to_their_function(monkeypatch):
    compiled = ONNXModel("m", computed_shape())
    given = np.r_[np.ones(2), -np.ones(4)]
    first = compiled(given)
    monkeypatch.setattr(Compiled, "__call__", lambda self, *given: pytest.fail("looked for again"))
    np.testing.assert_array_equal(compiled(given), first)
    monkeypatch.undo()
    assert compiled(np.r_[np.ones(3), -np.ones(3)]).size == 3
    with pytest.raises(dcml.Error):
        compiled(given.astype(np.float32))


def test_extents_that_were_equal_by_chance_may_differ_later():
    body = graph([node("MatMul", "a b", "c")], [], [tensor("c")])
    proto = model([node("If", "yes", "c", then_branch=body, else_branch=body)], [tensor("a", F64, ["n", "k"]), tensor("b", F64, ["k", "m"])],
                  [tensor("c", F64, ["n", "m"])], [("yes", True)])
    compiled = ONNXModel("m", proto)
    for n, k, m in ((2, 2, 2), (3, 3, 3), (4, 4, 4), (4, 3, 5), (1, 7, 2), (2, 2, 2), (0, 3, 1), (5, 3, 4)):
        a, b = random(n, k), random(k, m)
        np.testing.assert_allclose(compiled(a, b), a @ b, atol=1e-12)
    with pytest.raises(dcml.ShapeError):
        compiled(random(2, 3), random(4, 2))
    np.testing.assert_allclose(compiled(a, b), a @ b, atol=1e-12)


def test_inputs_of_any_rank():
    proto = model([node("Add", "x x", "y")], [tensor("x", F64)], [tensor("y", F64)])
    compiled = ONNXModel("m", proto)
    for x in (random(2, 3), random(4), np.array(1.5), random(2, 2, 2)):
        np.testing.assert_array_equal(compiled(x), 2 * x)
    with pytest.raises(dcml.DTypeError, match="'x' has type int64, expected float64"):
        compiled(np.array([1, 2]))


def test_intermediate_values_are_kept_if_wanted():
    seen = {}
    y = ONNXModel("m", sequence_pipe(), save_transients=seen)(random(2, 6), random(2, 1))
    assert {"parts", "mapped", "last", "turned"} <= set(seen)
    np.testing.assert_array_equal(seen["last"], y[:, :3])


def test_segments_run_on_the_gpu_or_say_that_there_is_none():
    arguments = random(3), random(3), random(3)
    try:
        found = ONNXModel("m", power_loop(), cuda=True)(*arguments)
    except dcml.DeviceError as error:
        assert "CUDA" in str(error)
        return
    for a, b in zip(found, ONNXModel("m", power_loop())(*arguments)):
        np.testing.assert_allclose(a, b, rtol=1e-12)


# ---- trust ----

def deep_if(depth):
    g = graph([node("Identity", "x", "r")], [], [tensor("r")])
    for _ in range(depth):
        g = graph([node("If", "c", "r", then_branch=g, else_branch=graph([node("Neg", "x", "r")], [], [tensor("r")]))], [], [tensor("r")])
    g.input.extend([tensor("c", BOOL, []), tensor("x", F64, [1])])
    return g


def test_nested_subgraphs_run_and_too_many_are_an_error():
    proto = helper.make_model(deep_if(10), ir_version=9, opset_imports=[helper.make_opsetid("", 18)])
    assert ONNXModel("m", proto)(np.array(True), np.array([2.0])) == 2
    assert ONNXModel("m", proto)(np.array(False), np.array([2.0])) == -2
    proto = helper.make_model(deep_if(20), ir_version=9, opset_imports=[helper.make_opsetid("", 18)])
    with pytest.raises(dcml.ModelError, match="nested deeper"):
        ONNXModel("m", proto)


def _field(number, content):
    n, head = len(content), bytes([number << 3 | 2])
    while n > 127:
        head += bytes([n & 127 | 128])
        n >>= 7
    return head + bytes([n]) + content


def test_five_thousand_nested_subgraphs_are_an_error():
    content = b""
    for _ in range(5000):
        content = _field(1, _field(5, _field(6, content)))  # graph.node.attribute.g
    with pytest.raises(dcml.ModelError, match="nested deeper"):
        ONNXModel("m", b"\x08\x09" + _field(7, content))


def test_a_loop_of_endless_trips_that_stops_at_once_is_immediate():
    body = graph([node("Identity", "again", "more"), node("Identity", "v", "w")],
                 [tensor("k", I64, []), tensor("again", BOOL, []), tensor("v", F64, [1])], [tensor("more", BOOL, []), tensor("w", F64, [1])])
    proto = model([node("Loop", "trips again x", "y", body=body)], [tensor("again", BOOL, []), tensor("x", F64, [1])],
                  [tensor("y", F64, [1])], [("trips", 1 << 62)])
    start = time.process_time()
    assert ONNXModel("m", proto)(np.array(False), np.array([3.0])) == 3
    assert time.process_time() - start < 1


@pytest.mark.parametrize("nodes, inputs, constants, error, part", [
    ([node("SequenceConstruct", "x", "s"), node("SequenceAt", "s k", "y", name="pick")], {"x": random(2)}, [("k", 5)],
     dcml.ShapeError, "'pick'.*position 5"),
    ([node("SequenceEmpty", "", "s"), node("ConcatFromSequence", "s", "y", axis=0, name="join")], {"x": random(2)}, [],
     dcml.ShapeError, "'join'.*empty"),
    ([node("SequenceConstruct", "x", "s"), node("Relu", "s", "y", name="act")], {"x": random(2)}, [], dcml.DTypeError, "'act'"),
    ([node("Cast", "x", "t", to=STRING), node("Mul", "t t", "y", name="times")], {"x": random(2)}, [], dcml.DTypeError, "'times'"),
    ([node("SplitToSequence", "x k", "s", name="cut"), node("SequenceAt", "s i", "y")], {"x": random(4)}, [("k", [3, 3]), ("i", 0)],
     dcml.ShapeError, "'cut'.*do not make up"),
    ([node("Optional", "", "o"), node("OptionalGetElement", "o", "y", name="get")], {"x": random(2)}, [], dcml.ValueError_, "'get'.*empty"),
    ([node("NonZero", "x", "n"), node("Frobnicate", "n", "y", name="odd")], {"x": random(2)}, [], dcml.UnsupportedOpError, "'odd'.*Frobnicate"),
    ([node("RegexFullMatch", "w", "y", pattern="(", name="re")], {"x": random(2)}, [("w", np.array(["a"], object))],
     dcml.ModelError, "'re'.*pattern"),
])
def test_errors_name_the_node(nodes, inputs, constants, error, part):
    proto = model(nodes, [tensor(n, F64, list(v.shape)) for n, v in inputs.items()], [helper.make_empty_tensor_value_info("y")],
                  constants, opset=20)
    with pytest.raises(error, match=part):
        ONNXModel("m", proto)(**inputs)

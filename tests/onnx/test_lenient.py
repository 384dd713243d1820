"""What others' exporters write and runtimes take is taken; what would only look like a result is an error."""
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import dcml
from dcml.onnx import ONNXModel

pytestmark = pytest.mark.usefixtures("interpreted")
FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64


def model(nodes, inputs, constants=(), opset=18):
    """inputs: (name, type, shape); constants: {name: value}; the output is y."""
    values = [helper.make_tensor_value_info(*i) for i in inputs]
    weights = [numpy_helper.from_array(np.asarray(v), n) for n, v in dict(constants).items()]
    output = helper.make_empty_tensor_value_info("y")
    return ONNXModel("m", helper.make_model(helper.make_graph(nodes, "g", values, [output], weights),
                                            opset_imports=[helper.make_opsetid("", opset)]))


def one(op, *arrays, constants=(), opset=18, **attributes):
    """What a node gives for the arrays, followed by constants."""
    inputs = [(f"x{k}", helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for k, a in enumerate(arrays)]
    values = {f"c{k}": v for k, v in enumerate(constants)}
    node = helper.make_node(op, [*(i[0] for i in inputs), *values], ["y"], **attributes)
    return model([node], inputs, values, opset)(*arrays)


def floats(*shape):
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


@pytest.mark.parametrize("op, shapes, more, fits, not_so", [
    ("Reshape", [["N"]], {"c": [-1, 4]}, [(8,)], [(6,)]),
    ("Reshape", [["N", 3]], {"c": [2, 6]}, [(4, 3)], [(5, 3)]),
    ("Squeeze", [["N", 4]], {"c": [0]}, [(1, 4)], [(3, 4)]),
    ("SpaceToDepth", [[1, 1, "N", 2]], {}, [(1, 1, 4, 2)], [(1, 1, 3, 2)]),
])
def test_elements_that_do_not_fit_symbolic_extents_are_an_error(op, shapes, more, fits, not_so):
    attributes = {"blocksize": 2} if op == "SpaceToDepth" else {}
    constants = {n: np.array(v) for n, v in more.items()}
    run = model([helper.make_node(op, ["x", *constants], ["y"], **attributes)], [("x", FLOAT, shapes[0])], constants)
    assert run(floats(*fits[0])).size == np.prod(fits[0])
    with pytest.raises(dcml.ShapeError):
        run(floats(*not_so[0]))


def test_indices_of_more_rows_than_the_data_has_are_an_error():
    node = helper.make_node("GatherElements", ["x", "i"], ["y"], axis=1)
    run = model([node], [("x", FLOAT, ["N", 2]), ("i", INT, ["M", 2])])
    assert run(floats(3, 2), np.zeros((2, 2), np.int64)).tolist() == [[0, 0], [2, 2]]
    with pytest.raises(dcml.ShapeError):
        run(floats(3, 2), np.zeros((5, 2), np.int64))


@pytest.mark.parametrize("op, shape, more, attributes", [
    ("MaxPool", (1, 1, 4, 4), [], dict(kernel_shape=[2, 2], strides=[0, 1])),
    ("MaxPool", (1, 1, 4, 4), [], dict(kernel_shape=[-1, 2])),
    ("AveragePool", (1, 1, 4, 4), [], dict(kernel_shape=[2, 2], auto_pad="SAME")),
    ("Conv", (1, 1, 4, 4), [floats(1, 1, 2, 2)], dict(dilations=[0, 1])),
    ("LRN", (1, 1, 4, 4), [], dict(size=0)),
    ("DepthToSpace", (1, 4, 2, 2), [], dict(blocksize=2, mode="dcr")),
    ("Resize", (1, 1, 2, 2), [floats(0), np.float32([1, 1, 2, 2])], dict(mode="bilinear")),
    ("ScatterElements", (2, 2), [np.array([[0]]), floats(1, 1)], dict(reduction="sum")),
    ("Gelu", (2, 2), [], dict(approximate="erf", opset=20)),
    ("LpNormalization", (2, 2), [], dict(p=3)),
])
def test_an_attribute_that_says_nothing_known_is_an_error(op, shape, more, attributes):
    with pytest.raises(dcml.Error, match=op):
        one(op, floats(*shape), constants=more, **attributes)


def test_nodes_may_stand_before_what_they_read():
    node = helper.make_node
    inner = helper.make_graph([node("Neg", ["b"], ["t"])], "then", [], [helper.make_empty_tensor_value_info("t")])
    other = helper.make_graph([node("Abs", ["q"], ["e"]), node("Neg", ["b"], ["q"])], "else", [], [helper.make_empty_tensor_value_info("e")])
    nodes = [node("If", ["c"], ["y"], then_branch=inner, else_branch=other), node("Exp", ["a"], ["b"]), node("Abs", ["x"], ["a"])]
    run = model([nodes[0], nodes[1], nodes[2], node("Not", ["d"], ["c"])], [("x", FLOAT, [2]), ("d", TensorProto.BOOL, [])])
    x = np.float32([1, -2])
    np.testing.assert_allclose(run(x, np.array(True)), np.exp(abs(x)), rtol=1e-6)
    np.testing.assert_allclose(run(x, np.array(False)), -np.exp(abs(x)), rtol=1e-6)


def test_a_long_chain_may_stand_backwards():
    n = 5000
    nodes = [helper.make_node("Neg", [f"v{k}" if k else "x"], [f"v{k + 1}" if k + 1 < n else "y"]) for k in range(n)]
    assert model(nodes[::-1], [("x", FLOAT, [2])])(np.float32([1, -2])).tolist() == [1, -2]


def test_an_extent_of_minus_one_is_not_known():
    run = model([helper.make_node("Neg", ["x"], ["y"])], [("x", FLOAT, [-1, 2])])
    assert run(floats(3, 2)).shape == (3, 2)
    with pytest.raises(dcml.ShapeError):
        model([helper.make_node("Neg", ["x"], ["y"])], [("x", FLOAT, [-2, 2])])


@pytest.mark.parametrize("scale", [np.float32(0.5), np.float32([0.5])], ids=["number", "list"])
def test_lists_are_quantised_by_one_scale_whatever_the_axis_is_by_default(scale):
    levels = one("QuantizeLinear", floats(4), constants=[scale, np.full(scale.shape, 3, np.uint8)])
    assert levels.tolist() == [3, 5, 7, 9]
    assert one("DequantizeLinear", levels, constants=[scale, np.full(scale.shape, 3, np.uint8)]).tolist() == [0, 1, 2, 3]


def test_limits_of_clip_may_have_a_dimension_of_one():
    assert one("Clip", floats(4), constants=[np.float32([1]), np.float32(2)]).tolist() == [1, 1, 2, 2]
    with pytest.raises(dcml.ShapeError):
        one("Clip", floats(4), constants=[np.float32([1, 2])])


def test_a_product_of_vectors_takes_an_addend():
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "b"], ["y"])]
    run = model(nodes, [("x", FLOAT, [2]), ("w", FLOAT, [2])], {"b": np.float32([5])})
    assert run(np.float32([1, 2]), np.float32([3, 4])).tolist() == [16]


def test_a_signal_may_lack_its_last_dimension():
    x, window = floats(2, 20), np.float32([1, 2, 2, 1])
    plain = one("STFT", x, constants=[np.array(3), window])
    np.testing.assert_array_equal(plain, one("STFT", x[..., None], constants=[np.array(3), window]))
    with pytest.raises(dcml.ShapeError):
        one("STFT", floats(2, 20, 1, 1), constants=[np.array(3), window])


@pytest.mark.parametrize("scale", [np.float32(0.5), np.float32([0.5])], ids=["number", "list"])
def test_a_number_is_quantised(scale):
    level = one("QuantizeLinear", np.float32(2), constants=[scale, np.full(scale.shape, 3, np.uint8)])
    assert level.shape == () and level == 7
    assert one("DequantizeLinear", level, constants=[scale, np.full(scale.shape, 3, np.uint8)]) == 2


@pytest.mark.parametrize("claimed", [[], [3], [7, "N"], [1, 2, 3]])
def test_what_a_file_claims_of_computed_shapes_is_not_believed(claimed):
    nodes = [helper.make_node("Neg", ["x"], ["h"]), helper.make_node("Exp", ["h"], ["y"])]
    values = [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in (("x", ["N", 2]), ("y", claimed), ("h", claimed))]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:2], value_info=values[2:])
    run = ONNXModel("m", helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    np.testing.assert_allclose(run(floats(3, 2)), np.exp(-floats(3, 2)), rtol=1e-6)


def test_extents_that_are_one_when_called_are_squeezed():
    nodes = [helper.make_node("Squeeze", ["x"], ["s"]), helper.make_node("Neg", ["s"], ["y"])]
    run = model(nodes, [("x", FLOAT, ["N", 1, "M", 2])])
    for n, m, shape in ((3, 4, (3, 4, 2)), (1, 4, (4, 2)), (3, 1, (3, 2)), (1, 1, (2,)), (3, 4, (3, 4, 2)), (0, 1, (0, 2))):
        assert run(floats(n, 1, m, 2)).shape == shape


def test_a_plan_for_known_extents_asks_for_no_more_than_they_do():
    nodes = [helper.make_node("Shape", ["x"], ["s"], end=1), helper.make_node("Concat", ["s", "rest"], ["t"], axis=0),
             helper.make_node("Reshape", ["x", "t"], ["r"]), helper.make_node("Add", ["r", "z"], ["y"])]
    run = model(nodes, [("x", FLOAT, ["N", "M"]), ("z", FLOAT, ["N", "K", "M"])], {"rest": np.array([-1, 4])})
    x = floats(2, 4)
    np.testing.assert_array_equal(run(x, floats(2, 3, 4)), x[:, None] + floats(2, 3, 4))


def test_a_linear_classifier_may_have_more_coefficients_than_it_reads():
    node = helper.make_node("LinearClassifier", ["x"], ["label", "y"], domain="ai.onnx.ml", classlabels_ints=[5, 6, 7],
                            coefficients=[1.0, 0, 0, 1, -1, -1, 9, 9], intercepts=[0.0, 0, 0.5])
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", FLOAT, [2, 2])],
                              [helper.make_empty_tensor_value_info("label"), helper.make_empty_tensor_value_info("y")])
    run = ONNXModel("m", helper.make_model(graph, opset_imports=[helper.make_opsetid("ai.onnx.ml", 1), helper.make_opsetid("", 18)]))
    label, scores = run(np.float32([[1, 2], [-3, -4]]))
    assert label.tolist() == [6, 7] and scores.tolist() == [[1, 2, -2.5], [-3, -4, 7.5]]


def test_values_that_vary_are_symbols_of_one_plan():
    nodes = [helper.make_node("Range", ["zero", "n", "one"], ["r"]), helper.make_node("Mul", ["r", "x"], ["y"])]
    for kind, number in ((INT, np.int64), (FLOAT, np.float32)):
        run = model(nodes, [("n", kind, []), ("x", kind, [])], {"zero": number(0), "one": number(1)})
        for n in (5, 6, 7, 100, 5, 2):
            np.testing.assert_array_equal(run(number(n), number(3)), 3 * np.arange(n))
        function = run.compile_and_init()
        assert function.n_plans == 2
        for n in (1, 0, -4, 9):  # what is less may mean something else to an operator
            np.testing.assert_array_equal(run(number(n), number(3)), 3 * np.arange(n))
        assert function.n_plans == 5
    for n in (2.5, 3.5, 3.0, 4.0):
        assert run(np.float32(n), np.float32(1)).size == np.ceil(n)


def test_values_that_vary_and_must_be_numbers_are_numbers():
    run = model([helper.make_node("TopK", ["x", "k"], ["y", "i"], axis=0)], [("x", FLOAT, [9]), ("k", INT, [1])])
    reshape = model([helper.make_node("Reshape", ["x", "s"], ["y"])], [("x", FLOAT, [12]), ("s", INT, [2])])
    x = np.float32([3, 1, 4, 1, 5, 9, 2, 6, 5])
    for k in (2, 3, 4, 9, 1):
        assert run(x, np.array([k])).tolist() == sorted(x.tolist(), reverse=True)[:k]
    for shape in ([3, 4], [4, 3], [-1, 6], [2, -1], [12, 1], [6, -1]):
        assert reshape(floats(12), np.array(shape)).shape == floats(12).reshape(shape).shape
    with pytest.raises(dcml.ShapeError):
        reshape(floats(12), np.array([5, 2]))
    assert reshape(floats(12), np.array([6, 2])).shape == (6, 2)

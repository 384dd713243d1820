"""Filters that are constants of a model are put into the library's layout once, and serve all sizes."""
import numpy as np
from onnx import TensorProto, helper, numpy_helper

from dcml.onnx import ONNXModel


def _model(filters, groups=1):
    shape = ["N", filters.shape[1] * groups, 9, 9]
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1], group=groups)
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], [numpy_helper.from_array(filters, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def _convolved(x, w):
    padded, out = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), np.zeros((len(x), len(w), 9, 9))
    for i in range(3):
        for j in range(3):
            out += np.einsum("nchw,oc->nohw", padded[:, :, i:i + 9, j:j + 9], w[:, :, i, j], dtype=np.float64)
    return out


def test_one_filter_serves_all_sizes_and_calls():
    random = np.random.default_rng(0)
    w = random.standard_normal((48, 32, 3, 3)).astype(np.float32)
    run = ONNXModel("m", _model(w))
    for n in (1, 3, 1, 2, 3):
        x = random.standard_normal((n, 32, 9, 9)).astype(np.float32)
        y = np.asarray(run(x))
        np.testing.assert_allclose(y, _convolved(x, w), atol=2e-4)
        assert np.array_equal(y, np.asarray(run(x)))


def test_models_of_equal_shapes_keep_their_own_filters():
    random = np.random.default_rng(1)
    x = random.standard_normal((2, 32, 9, 9)).astype(np.float32)
    filters = [random.standard_normal((16, 32, 3, 3)).astype(np.float32) for _ in range(6)]
    for w in filters:  # the memory of one that is gone may be that of the next
        np.testing.assert_allclose(np.asarray(ONNXModel("m", _model(w))(x)), _convolved(x, w), atol=2e-4)

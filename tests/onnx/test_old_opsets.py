"""What operators meant in old opsets, against NumPy: the package's own cases are of the newest versions."""
import numpy as np
import pytest

from dcml import _core

CODES = {"float32": 1, "float64": 11, "int64": 7, "int32": 6, "bool": 9}
RNG = np.random.default_rng(0)


def run(op, *inputs, opset, outputs=1, **attrs):
    """The outputs of one node of that opset."""
    graph = _core.Graph(op, opset)
    names = [None if a is None else graph.add_input(f"x{k}", CODES[a.dtype.name], list(a.shape)) for k, a in enumerate(inputs)]
    for name in graph.add_node(op, names, outputs, attrs):
        graph.mark_output(name)
    results = _core.Function(graph)(*[a for a in inputs if a is not None])
    return results[0] if outputs == 1 else results


def data(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("opset", [1, 6])
@pytest.mark.parametrize("op, function", [("Add", np.add), ("Sub", np.subtract), ("Mul", np.multiply), ("Div", np.divide)])
def test_legacy_broadcasting_puts_the_second_operand_at_an_axis(op, function, opset):
    a, b = data(2, 3, 4, 5), data(3, 4)
    np.testing.assert_allclose(run(op, a, b, opset=opset, axis=1, broadcast=1), function(a, b[:, :, None]), rtol=1e-6)
    c = data(4, 5)
    np.testing.assert_allclose(run(op, a, c, opset=opset, broadcast=1), function(a, c), rtol=1e-6)


def test_legacy_comparison_logic_and_power():
    a, b = data(2, 3, 4), data(3)
    np.testing.assert_array_equal(run("Less", a, b, opset=1, axis=1, broadcast=1), a < b[:, None])
    np.testing.assert_array_equal(run("Greater", a, b, opset=1, axis=1, broadcast=1), a > b[:, None])
    p, q = a > 0, b > 0
    np.testing.assert_array_equal(run("And", p, q, opset=1, axis=1, broadcast=1), p & q[:, None])
    np.testing.assert_array_equal(run("Xor", p, q, opset=1, axis=1, broadcast=1), p ^ q[:, None])
    np.testing.assert_allclose(run("Pow", abs(a), b, opset=1, axis=1, broadcast=1), abs(a) ** b[:, None], rtol=1e-5)


def test_a_legacy_operand_that_does_not_fit_is_refused():
    with pytest.raises(_core.Error):
        run("Add", data(2, 3, 4), data(5), opset=6, axis=1, broadcast=1)
    with pytest.raises(_core.Error):
        run("Add", data(2, 3), data(3), opset=6, axis=7, broadcast=1)


def test_prelu_slopes_belong_to_channels():
    x, slope = data(2, 3, 4), data(3)
    np.testing.assert_allclose(run("PRelu", x, slope, opset=6), np.where(x < 0, slope[:, None] * x, x))
    np.testing.assert_allclose(run("PRelu", x, slope[:1], opset=1), np.where(x < 0, slope[0] * x, x))


def test_shape_operators_took_attributes():
    x = data(4, 6)
    np.testing.assert_array_equal(run("Reshape", x, opset=1, shape=[3, -1]), x.reshape(3, 8))
    np.testing.assert_array_equal(run("Slice", x, opset=1, starts=[1, -4], ends=[100, -1]), x[1:, -4:-1])
    np.testing.assert_array_equal(run("Slice", x, opset=1, axes=[1], starts=[2], ends=[5]), x[:, 2:5])
    np.testing.assert_array_equal(run("Pad", x, opset=1, paddings=[0, 1, 2, 0], value=3.0), np.pad(x, ((0, 2), (1, 0)), constant_values=3))
    np.testing.assert_array_equal(run("Pad", x, opset=2, pads=[1, 1, 1, 1], mode="reflect"), np.pad(x, 1, mode="reflect"))
    np.testing.assert_array_equal(run("Squeeze", x[None], opset=11, axes=[0]), x)
    np.testing.assert_array_equal(run("Unsqueeze", x, opset=1, axes=[0, 3]), x[None, :, :, None])
    np.testing.assert_array_equal(run("Concat", x, x, opset=1), np.concatenate([x, x], 1))
    np.testing.assert_array_equal(run("Tile", x, np.float32(2), np.float32(1), opset=1), np.tile(x, (1, 2)))
    first, second = run("Split", x, opset=2, outputs=2, axis=1, split=[2, 4])
    np.testing.assert_array_equal(np.concatenate([first, second], 1), x)
    first, second = run("Split", x, np.float32([1, 5]), opset=1, outputs=2, axis=1)
    assert first.shape == (4, 1) and second.shape == (4, 5)


def test_types_and_bounds_took_attributes():
    x = data(3, 4)
    assert run("Cast", x, opset=1, to="INT32").dtype == np.int32
    np.testing.assert_array_equal(run("Clip", x, opset=1, max=0.5), np.minimum(x, np.float32(0.5)))
    np.testing.assert_array_equal(run("Clip", x, opset=6, min=-0.1, max=0.5), np.clip(x, np.float32(-0.1), np.float32(0.5)))
    np.testing.assert_array_equal(run("Relu", x, opset=1, consumed_inputs=[0]), np.maximum(x, 0))
    np.testing.assert_allclose(run("Selu", x, opset=1), 1.0507 * np.where(x <= 0, 1.6732 * np.expm1(x), x), rtol=1e-5)


def test_products_and_reductions():
    a, b, c = data(3, 4), data(4, 5), data(3, 1)
    np.testing.assert_allclose(run("Gemm", a, b, c, opset=6, broadcast=1, alpha=0.5), 0.5 * a @ b + c, rtol=1e-5)
    for op, function in (("ReduceSum", np.sum), ("ReduceMean", np.mean), ("ReduceMax", np.max), ("ReduceProd", np.prod)):
        np.testing.assert_allclose(run(op, a, opset=1, axes=[1], keepdims=0), function(a, 1), rtol=1e-5)
        np.testing.assert_allclose(run(op, a, opset=11), function(a, keepdims=True), rtol=1e-5)
    values, places = run("TopK", a, opset=1, outputs=2, k=2)
    np.testing.assert_array_equal(values, -np.sort(-a)[:, :2])
    np.testing.assert_array_equal(places, np.argsort(-a)[:, :2])
    for op, function in (("Sum", np.sum), ("Mean", np.mean), ("Max", np.max), ("Min", np.min)):
        np.testing.assert_allclose(run(op, a, a + 1, -a, opset=1), function([a, a + 1, -a], 0), rtol=1e-6)


def test_softmax_flattened_behind_its_axis():
    x = data(2, 3, 4)
    flat = np.exp(x.reshape(2, 12))
    np.testing.assert_allclose(run("Softmax", x, opset=1), (flat / flat.sum(1, keepdims=True)).reshape(x.shape), rtol=1e-5)


def _normal(x, mean, var, g, b, axes):
    def wide(v):
        return v.reshape([-1 if v.ndim == 1 and d == 1 else v.shape[d - 1] if v.ndim > 1 and d else 1 for d in range(x.ndim)])
    return (x - wide(mean)) / np.sqrt(wide(var) + 1e-5) * wide(g) + wide(b)


@pytest.mark.parametrize("opset", [1, 6])
def test_batch_normalization_was_told_that_it_tests(opset):
    x, g, b, mean, var = data(4, 3, 5), data(3), data(3), data(3), abs(data(3))
    extra = {"consumed_inputs": [0, 0, 0, 1, 1]} if opset == 1 else {}
    np.testing.assert_allclose(run("BatchNormalization", x, g, b, mean, var, opset=opset, is_test=1, **extra), _normal(x, mean, var, g, b, 1), rtol=2e-5, atol=1e-5)
    y, new_mean, new_var, saved, _ = run("BatchNormalization", x, g, b, mean, var, opset=opset, outputs=5, **extra)
    own_mean, own_var = x.mean((0, 2)), x.var((0, 2))
    np.testing.assert_allclose(y, _normal(x, own_mean, own_var, g, b, 1), rtol=2e-5, atol=1e-5)
    np.testing.assert_allclose(new_mean, 0.9 * mean + 0.1 * own_mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(new_var, 0.9 * var + 0.1 * own_var, rtol=1e-4)
    np.testing.assert_allclose(saved, own_mean, rtol=1e-4, atol=1e-6)


def test_batch_normalization_with_statistics_of_each_element():
    x, g, b, mean, var = data(4, 3, 5), data(3, 5), data(3, 5), data(3, 5), abs(data(3, 5))
    np.testing.assert_allclose(run("BatchNormalization", x, g, b, mean, var, opset=7, spatial=0), _normal(x, mean, var, g, b, 1), rtol=2e-5, atol=1e-5)


def test_dropout_asked_whether_it_tests():
    x = data(100, 100)
    np.testing.assert_array_equal(run("Dropout", x, opset=6, is_test=1, ratio=0.4), x)
    y, mask = run("Dropout", x, opset=6, outputs=2, ratio=0.4)
    assert mask.dtype == np.float32 and abs(mask.mean() - 0.6) < 0.02
    np.testing.assert_allclose(y, x * mask / 0.6, rtol=1e-5)


def test_upsample_scaled_by_attributes():
    x = data(1, 2, 2, 3)
    np.testing.assert_array_equal(run("Upsample", x, opset=1, height_scale=2.0, width_scale=3.0), x.repeat(2, 2).repeat(3, 3))
    np.testing.assert_array_equal(run("Upsample", x, opset=7, scales=[1.0, 1.0, 2.0, 2.0]), x.repeat(2, 2).repeat(2, 3))


def test_pools_of_power_means():
    x = data(1, 2, 4, 4)
    np.testing.assert_allclose(run("GlobalLpPool", x, opset=1), np.sqrt((x ** 2).sum((2, 3), keepdims=True)), rtol=1e-5)
    windows = x.reshape(1, 2, 2, 2, 2, 2)
    np.testing.assert_allclose(run("LpPool", x, opset=1, kernel_shape=[2, 2], strides=[2, 2], p=3.0), (abs(windows) ** 3).sum((3, 5)) ** (1 / 3), rtol=1e-5)
    np.testing.assert_allclose(run("AveragePool", x, opset=1, kernel_shape=[2, 2], strides=[2, 2]), windows.mean((3, 5)), rtol=1e-5)

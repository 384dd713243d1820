"""Gradients of op-trees: by central differences in float64, and what Autodiff's methods give."""
import numpy as np
import pytest

import dcml
from dcml.neon.backends import gen_backend
from dcml.neon.backends.autodiff import Autodiff
from dcml.neon.backends.backend import OpTreeNode, Tensor

from neon_cases import central_differences


@pytest.fixture
def be():
    return gen_backend(datatype=np.float64, rng_seed=1)


def keep(function):
    return lambda x, axis=None: function(x, axis=axis, keepdims=True)


class Numpy:
    """numpy under the names of a backend's methods."""

    sum, max, min, mean, var, std = map(keep, (np.sum, np.max, np.min, np.mean, np.var, np.std))
    exp, log, tanh, sqrt, square, dot, absolute, maximum, minimum = np.exp, np.log, np.tanh, np.sqrt, np.square, np.dot, np.absolute, np.maximum, np.minimum

    @staticmethod
    def sig(x):
        return 1 / (1 + np.exp(-x))


X, Y, ROW, COL, ONE = (3, 4), (3, 4), (1, 4), (3, 1), (1, 1)
TREES = {
    "arithmetic": ([X, Y], lambda be, x, y: (x + y) * x - y / (x * x + 1) + 2 * x - (-y) + 3),
    "rows": ([X, ROW], lambda be, x, r: x * r + r + be.tanh(r)),
    "columns": ([X, COL], lambda be, x, c: c + x / (c * c + 1) + c),
    "a-number-in-a-tensor": ([X, ONE], lambda be, x, o: o + o * x + x),
    "all-broadcasts": ([X, ROW, COL, ONE], lambda be, x, r, c, o: o + r + x * c + o + be.tanh(r) + x),
    "rows-and-columns-alone": ([ROW, COL], lambda be, r, c: r * c + be.exp(r - c)),
    "batch-norm": ([X, COL, COL], lambda be, x, g, b: (x - be.mean(x, axis=1)) / be.sqrt(be.var(x, axis=1) + 1e-3) * g + b),
    "softmax": ([X], lambda be, x: be.exp(x - be.max(x, axis=0)) / be.sum(be.exp(x - be.max(x, axis=0)), axis=0)),
    "reductions-by-rows": ([X], lambda be, x: be.sum(x, axis=1) * be.max(x, axis=1) + be.min(x, axis=1) - be.std(x, axis=1)),
    "reductions-by-columns": ([X], lambda be, x: be.mean(x, axis=0) * be.max(x, axis=0) + be.min(x, axis=0) * be.var(x, axis=0)),
    "reductions-of-all": ([X], lambda be, x: be.sum(x) * be.mean(x) + be.max(x) * be.min(x) + be.std(x)),
    "products": ([X, (4, 3)], lambda be, x, w: be.dot(x, w) + be.sig(be.dot(x, w)).T),
    "transposed-trees": ([(3, 3), (3, 3)], lambda be, x, y: ((x.T.T.T + y).T + (x - y.T.T)).T * x.T),
    "transposed-leaves": ([X, (4, 3)], lambda be, x, y: be.dot(x.T, y.T) * be.dot(y, x)),
    "slices": ([X], lambda be, x: be.tanh(x[0:2]) * x[1:3] + x[0:1]),
    "slices-with-steps": ([X, Y], lambda be, x, y: x[:, ::2] * y[:, 1::2] + x[::-1, 0:2]),
    "a-slice-and-all": ([X], lambda be, x: x * x[1:2] + be.sum(x[:, 1:2])),
    "powers": ([X], lambda be, x: be.square(x) ** 2 + (be.square(x) + 1) ** -0.5 + 2**x),
    "greatest-and-least": ([X, Y], lambda be, x, y: be.maximum(x, y) * be.minimum(x, 0.3) + be.absolute(y)),
    "a-shared-part": ([X], lambda be, x: (lambda h: h * h + be.sum(h) + h.T.T)(be.tanh(x * 2))),
    "a-cube": ([(2, 3, 4), (3, 4)], lambda be, x, y: be.exp(x * y) + be.sum(x, axis=1) * be.mean(y)),
    "not-all-used": ([X, Y], lambda be, x, y: x * 2),
}


def arrays_of(shapes):
    random = np.random.RandomState(4)
    return [random.permutation(int(np.prod(s))).reshape(s) / 6 - 0.7 + random.uniform(0, 0.05, s) for s in shapes]


@pytest.mark.parametrize("name", TREES)
def test_gradients_are_those_of_central_differences(be, name):
    shapes, function = TREES[name]
    arrays = arrays_of(shapes)
    tensors = [be.array(x) for x in arrays]
    tree = function(be, *tensors)
    value = function(Numpy, *arrays)
    np.testing.assert_allclose(tree.asnumpyarray(), value, rtol=1e-12, atol=1e-12)
    for error in None, np.random.RandomState(2).uniform(-1, 1, value.shape):
        ad = Autodiff(tree, be, None if error is None else be.array(error))
        found = ad.get_grad_asnumpyarray(tensors)
        for k, gradient in enumerate(found):
            want = central_differences(lambda *x: function(Numpy, *x), arrays, k, 1 if error is None else error)
            np.testing.assert_allclose(gradient, want, rtol=1e-6, atol=1e-6)


def test_all_methods_give_the_same_gradients(be):
    x, y, unused = (be.array(a) for a in arrays_of([X, Y, X]))
    ad = Autodiff(be.tanh(x) * y, be)
    trees, tensors, arrays = ad.get_grad_op_tree([x, y, unused]), ad.get_grad_tensor([x, y, unused]), ad.get_grad_asnumpyarray([x, y, unused])
    into = [be.empty(X) for _ in range(3)]
    assert ad.back_prop_grad([x, y, unused], into) is None
    assert all(isinstance(t, OpTreeNode) and t.shape == X for t in trees) and all(isinstance(t, Tensor) for t in tensors)
    for tree, tensor, array, written in zip(trees, tensors, arrays, into):
        np.testing.assert_allclose(tree.asnumpyarray(), array, rtol=1e-14)
        assert np.array_equal(tensor.get(), array) and np.array_equal(written.get(), array)
    assert not arrays[2].any() and "grad" in trees[0].pp()


def test_gradient_trees_are_operands_that_see_their_tensors(be):
    x = be.array(arrays_of([X])[0])
    gradient, = Autodiff(be.sum(be.square(x)), be).get_grad_op_tree([x])
    for _ in range(100):
        x[:] = x - gradient * 0.1 + be.sum(gradient) * 0
    assert np.abs(x.get()).max() < 1e-8


def test_gradients_of_gradients_are_gradients(be):
    x = be.array([[0.3, -0.5]])
    first, = Autodiff(x * x * x, be).get_grad_op_tree([x])
    second, = Autodiff(first, be).get_grad_asnumpyarray([x])
    np.testing.assert_allclose(second, 6 * x.get(), rtol=1e-12)


def test_views_have_the_gradients_of_the_memory_that_they_show(be):
    array = arrays_of([X])[0]
    x = be.array(array)
    rows, turned = x[0:2], x.T
    tree = be.square(rows) + be.sum(x)
    ad = Autodiff(tree, be)
    want = np.full(X, 8.0)
    want[0:2] += 2 * array[0:2]
    whole, part, transposed, later = ad.get_grad_asnumpyarray([x, rows, turned, x[2:3]])
    for found, wanted in (whole, want), (part, want[0:2]), (transposed, want.T), (later, want[2:3]):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_gradients_may_be_written_where_the_error_or_the_tree_is(be):
    array, other, error = arrays_of([X, Y, X])
    x, y, e = be.array(array), be.array(other), be.array(error)
    Autodiff(x * y, be, e).back_prop_grad([x, y], [e, x])
    np.testing.assert_allclose(e.get(), error * other, rtol=1e-14)
    np.testing.assert_allclose(x.get(), error * array, rtol=1e-14)


def test_an_error_may_be_a_tree_and_the_tree_a_tensor(be):
    x, e = (be.array(a) for a in arrays_of([X, X]))
    assert np.array_equal(Autodiff(x, be, e).get_grad_asnumpyarray([x])[0], e.get())
    np.testing.assert_allclose(Autodiff(x * 2, be, e + 1).get_grad_asnumpyarray([x])[0], 2 * e.get() + 2, rtol=1e-14)
    assert Autodiff(x, be).next_error.get().tolist() == np.ones(X).tolist()


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_gradients_have_the_backends_type(dtype):
    be = gen_backend(datatype=dtype)
    x = be.array([[1.0, 2.0]])
    found, = Autodiff(be.exp(x) * x, be).get_grad_asnumpyarray([x])
    assert found.dtype == dtype
    np.testing.assert_allclose(found, np.exp(x.get()) * (1 + x.get()), rtol=5e-3 if dtype == np.float16 else 1e-6)


def test_types_in_one_tree_may_differ(be):
    x, y, n = be.array([[1.0, 2.0]], dtype=np.float32), be.array([[3.0, 4.0]]), be.array([[5, 6]], dtype=np.int32)
    found = Autodiff(x * y * n, be).get_grad_asnumpyarray([x, y])
    np.testing.assert_allclose(found, [[[15, 24]], [[5, 12]]])
    with pytest.raises(dcml.DTypeError, match="int32"):
        Autodiff(x * n, be).get_grad_asnumpyarray([n])


@pytest.mark.parametrize("make, error, says", [
    (lambda be, x: Autodiff("x", be), TypeError, "op-tree"),
    (lambda be, x: Autodiff(x + 1, None), TypeError, "backend"),
    (lambda be, x: Autodiff(x + 1, be, be.ones((2, 2))), dcml.ShapeError, "next_error"),
    (lambda be, x: Autodiff(x + 1, be, 2.0), TypeError, "next_error"),
    (lambda be, x: Autodiff(x + 1, be).get_grad_tensor([1]), TypeError, "int"),
    (lambda be, x: Autodiff(x + 1, be).back_prop_grad([x], []), dcml.ValueError_, "1 tensors and 0"),
    (lambda be, x: Autodiff(x + 1, be).back_prop_grad([x], [be.ones((9, 9))[0:2, 0:2]]), dcml.ShapeError, "\\(2, 2\\)"),
])
def test_what_cannot_be_differentiated_is_an_error(be, make, error, says):
    with pytest.raises(error, match=says):
        make(be, be.ones((3, 4)))


def test_a_cleaned_up_one_lets_go_of_its_tensors(be):
    ad = Autodiff(be.ones((2, 2)) * 2, be)
    ad.cleanup()
    ad.cleanup()
    assert ad.op_tree is None
    with pytest.raises(dcml.ValueError_, match="cleaned up"):
        ad.get_grad_op_tree([be.ones((2, 2))])

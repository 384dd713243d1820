"""Methods of Neon's backend that make op-trees: values by numpy, types, ``out=``, and gradients by central differences."""
import numpy as np
import pytest

import dcml
from dcml.neon.backends import gen_backend
from dcml.neon.backends.autodiff import Autodiff
from dcml.neon.backends.backend import OpTreeNode

from neon_cases import CASES, STEPS, TESTS, central_differences, operand

TOLERANCE = {np.float16: 6e-3, np.float32: 2e-5, np.float64: 1e-12}
by_case = pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])


def operands_of(case, dtype):
    found = [operand(kind, 3 + k) for k, kind in enumerate(case.operands)]
    if case.method == "equal" and case.operands == ("m", "m"):
        found[1] = np.where(found[1] > 0, found[0], found[1])
    return [x.astype(dtype) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x for x in found]


def call(be, case, given, **more):
    """The tree of a case, and its tensors; a list or an array of whole numbers stays what it is."""
    tensors = [be.array(x) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x for x in given]
    return getattr(be, case.method)(*tensors, **case.keywords, **more), tensors


def numpy_of(case, given):
    """numpy's result: take's and clip's options are in the function where it names one operand."""
    count = getattr(getattr(case.numpy, "__code__", None), "co_argcount", len(given))
    return case.numpy(*given[:count - len(getattr(case.numpy, "__defaults__", None) or ())])


@pytest.mark.parametrize("dtype", TOLERANCE, ids=lambda t: t.__name__)
@by_case
def test_the_value_is_numpys_lazily_and_by_out(case, dtype):
    be = gen_backend(datatype=dtype)
    given = operands_of(case, dtype)
    want = np.asarray(numpy_of(case, [x.astype(np.float64) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x for x in given]), np.float64)
    want = want.reshape((1, 1)) if want.ndim == 0 else want
    tree, _ = call(be, case, given)
    assert isinstance(tree, OpTreeNode) and tree.shape == want.shape
    out = be.empty(tree.shape)
    assert call(be, case, given, out=out)[0] is out and out.dtype == dtype
    atol = TOLERANCE[dtype] * max(1, np.abs(want).max())
    np.testing.assert_allclose(out.get(), want, rtol=TOLERANCE[dtype], atol=atol)
    if any(isinstance(x, np.ndarray) for x in given):
        assert np.array_equal(tree.asnumpyarray(), out.get())


@pytest.mark.parametrize("case", [case for case in CASES if any(isinstance(kind, str) for kind in case.operands)], ids=lambda case: case.id)
def test_the_gradient_is_that_of_central_differences(case):
    be = gen_backend(datatype=np.float64)
    given = operands_of(case, np.float64)
    tree, tensors = call(be, case, given)
    error = np.random.RandomState(5).uniform(0.5, 1, tree.shape)
    wrt = [k for k, x in enumerate(given) if isinstance(x, np.ndarray) and x.dtype.kind == "f"]
    found = Autodiff(tree, be, be.array(error)).get_grad_asnumpyarray([tensors[k] for k in wrt])
    for k, gradient in zip(wrt, found):
        assert gradient.shape == given[k].shape
        if case.smooth:
            want = central_differences(lambda *x: np.reshape(numpy_of(case, x), tree.shape), given, k, error)
            np.testing.assert_allclose(gradient, want, rtol=1e-6, atol=1e-6)
        elif case.method in {*STEPS, *TESTS, "argmax", "argmin", "binarize"}:
            assert not gradient.any()


def test_what_is_special_about_elements_is_right():
    be = gen_backend()
    x = be.array([[np.nan, np.inf, -np.inf, 0.0, 1e-30, -1.0]])
    assert be.finite(x).asnumpyarray().tolist() == [[0, 0, 0, 1, 1, 1]]
    log = be.safelog(x).asnumpyarray()[0]
    assert np.isnan(log[0]) and log[1] == np.inf and log[2:].tolist() == [-50] * 4
    assert be.tanh2(be.array([[200.0, -200.0]])).asnumpyarray().tolist() == [[1, -1]]
    assert be.rint(be.array([[0.5, 1.5, -2.5]])).asnumpyarray().tolist() == [[0, 2, -2]]
    assert be.exp2(be.array([[-3.0, 10.0, 0.0]])).asnumpyarray().tolist() == [[0.125, 1024, 1]]


def test_the_gradient_of_safelog_is_a_number_everywhere():
    be = gen_backend(datatype=np.float64)
    x = be.array([[0.0, -1.0, 2.0]])
    assert Autodiff(be.safelog(x), be).get_grad_asnumpyarray([x])[0].tolist() == [[0, 0, 0.5]]


def test_comparisons_are_numbers_that_can_be_added():
    be = gen_backend()
    x = be.array([[1.0, 2.0, 3.0]])
    assert ((x > 1) + (x >= 2) - (x == 3)).asnumpyarray().tolist() == [[0, 2, 1]]
    assert be.sum(x != 2).asnumpyarray().tolist() == [[2]]


def test_types_meet_as_numpys_do():
    be = gen_backend(datatype=np.float64)
    half, whole = be.array([[1.0, 2.0]], dtype=np.float16), be.array([[3, 4]], dtype=np.int32)
    for tree, want in [(whole / 2, [[1.5, 2.0]]), (whole + 1, [[4, 5]]), (half * whole, [[3, 8]]), (be.exp(whole), np.exp([[3, 4]])),
                       (be.mean(whole), [[3.5]]), (whole * 0.5, [[1.5, 2]]), (be.sum(be.array(np.full((1, 9), 100), dtype=np.uint8)), [[900]])]:
        np.testing.assert_allclose(tree.asnumpyarray(), want, rtol=1e-12)


def test_onehot_takes_its_extent_from_what_it_meets():
    be = gen_backend()
    labels = be.array([2, 0, 1], dtype=np.int32)
    eye = np.eye(4)[[2, 0, 1]]
    for axis, want in (0, eye.T), (1, eye):
        out = be.empty(want.shape)
        assert be.onehot(labels, axis=axis, out=out) is out and np.array_equal(out.get(), want)
        out[:] = be.onehot(labels, axis) * 3 - 1
        assert np.array_equal(out.get(), want * 3 - 1)
    probabilities = be.array(np.arange(12).reshape(4, 3))
    assert be.sum(be.onehot(labels, 0) * probabilities, axis=0).asnumpyarray().tolist() == [[6, 1, 5]]
    assert be.dot(be.array(np.arange(8).reshape(2, 4)), be.onehot(labels, 0)).asnumpyarray().tolist() == [[2, 0, 1], [6, 4, 5]]
    row = be.array([[1.0, 2.0, 3.0]])
    assert be.sum(be.onehot(labels, 0) * row * probabilities, axis=1).asnumpyarray().tolist() == [[2], [15], [6], [0]]
    loss = be.sum(be.safelog(probabilities + 1) * be.onehot(labels, 0))
    np.testing.assert_allclose(Autodiff(loss, be).get_grad_asnumpyarray([probabilities])[0], eye.T / (probabilities.get() + 1), rtol=1e-6)
    with pytest.raises(dcml.DTypeError, match="onehot"):
        be.onehot(be.array([1.0]), 0)
    with pytest.raises(dcml.ValueError_, match="axis"):
        be.onehot(labels, 2)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8])
def test_take_takes_tensors_of_any_type_as_indices(dtype):
    be = gen_backend()
    table = be.array(np.arange(12).reshape(4, 3))
    indices = be.array([3, 0, 3], dtype=dtype)
    assert np.array_equal(be.take(table, indices, 0).asnumpyarray(), table.get()[[3, 0, 3]])
    assert np.array_equal(table.take(indices, axis=0).get(), table.get()[[3, 0, 3]])
    assert np.array_equal(be.take(table, indices, None).asnumpyarray(), [[3], [0], [3]])
    assert np.array_equal(table.take(indices).get(), [[3], [0], [3]])
    with pytest.raises(dcml.ValueError_, match="out of range"):
        be.take(table, [4], 0).astensor()


def test_masks_and_chances_come_from_the_backends_generator():
    be = gen_backend(rng_seed=7)
    out = be.empty((4, 5))
    want = np.random.RandomState(7)
    be.make_binary_mask(out, keepthresh=0.3)
    assert np.array_equal(out.get(), want.uniform(size=(4, 5)) < 0.3)
    x = operand("m", 1)
    tree = be.binarize(be.array(x))
    for _ in range(2):
        draws = want.uniform(size=(3, 4))
        assert np.array_equal(tree.asnumpyarray(), np.where(draws <= np.clip((x + 1) / 2, 0, 1), 1, -1))


@pytest.mark.parametrize("make, error, says", [
    (lambda be, a: be.add(a, be.ones((2, 2))), dcml.ShapeError, "add.*\\(3, 4\\).*\\(2, 2\\)"),
    (lambda be, a: be.add(a, "1"), TypeError, "add.*str"),
    (lambda be, a: be.exp(None), TypeError, "exp.*NoneType"),
    (lambda be, a: a + np.ones((3, 4)), TypeError, "ufunc"),
    (lambda be, a: be.sum(a, axis=2), dcml.ValueError_, "sum.*axis 2"),
    (lambda be, a: be.argmax(a, axis=(0, 1)), dcml.ValueError_, "argmax"),
    (lambda be, a: be.dot(a, a), dcml.ShapeError, "dot"),
    (lambda be, a: be.exp(a, out=np.ones((3, 4))), TypeError, "out="),
    (lambda be, a: be.exp(a, out=be.ones((2, 4))), dcml.ShapeError, "\\(2, 4\\)"),
    (lambda be, a: be.var(a, axis=5), dcml.ValueError_, "var.*axis 5"),
    (lambda be, a: be.take(a, ["a"], 0), TypeError, "take"),
    (lambda be, a: be.make_binary_mask(be.ones((1, 1)), keepthresh="a"), TypeError, "keepthresh"),
])
def test_errors_say_the_method_and_what_came(make, error, says):
    be = gen_backend()
    with pytest.raises(error, match=says):
        make(be, be.ones((3, 4)))

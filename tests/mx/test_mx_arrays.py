"""The array of dcml.mx and NumPy's functions around it: values, types, views, in-place operations, errors."""
import copy
import operator
import pickle

import numpy as onp
import pytest

import dcml
from dcml import mx
from dcml.mx import autograd, np, npx

A, B = onp.random.default_rng(0).standard_normal((2, 3, 4))


def same(array, wanted, dtype=None):
    wanted = onp.asarray(wanted)
    assert isinstance(array, np.ndarray) and array.shape == wanted.shape
    assert array.dtype == (dtype or wanted.dtype)
    onp.testing.assert_allclose(array.asnumpy(), wanted, rtol=1e-6, atol=1e-12)


def test_lists_are_float32_and_arrays_keep_their_type():
    same(np.array([1, 2]), onp.array([1, 2], "float32"))
    same(np.array(onp.array([1, 2])), onp.array([1, 2]))
    same(np.array([True]), onp.array([1], "float32"))
    same(np.array([[1.5]], dtype="float16"), onp.array([[1.5]], "float16"))
    same(np.array([np.ones(2), np.zeros(2)]), onp.array([[1, 1], [0, 0]], "float32"))
    assert np.zeros((2, 0)).size == 0 and np.ones(3).dtype == np.float32 and np.arange(3).dtype == np.float32
    npx.set_np(dtype=True)
    try:
        assert np.array([1]).dtype == np.float64 and npx.is_np_default_dtype()
    finally:
        npx.reset_np()


def test_a_new_array_is_a_copy_and_so_is_what_asnumpy_gives():
    source = onp.zeros(2)
    a = np.array(source)
    source[0] = 1
    a.asnumpy()[1] = 1
    same(a, [0.0, 0.0])


OPERATORS = ["add", "sub", "mul", "truediv", "mod", "floordiv", "pow", "eq", "ne", "lt", "le", "gt", "ge"]


@pytest.mark.parametrize("name", OPERATORS)
def test_arithmetic_is_numpys(name):
    f = getattr(operator, name)
    a, b = onp.abs(A) + 0.5, B[0] + 3
    same(f(np.array(a), np.array(b)), f(a, b))
    same(f(np.array(a), 2.5), f(a, 2.5))
    same(f(2, np.array(a)), f(2, a))
    same(f(np.array(a), b), f(a, b))
    same(f(a, np.array(b)), f(a, b))
    i, j = onp.array([7, -7, 5]), onp.array([2, 2, 5])
    if name == "truediv":
        same(np.array(i) / np.array(j), (i / j).astype("float32"))
    elif name != "pow":
        same(f(np.array(i), np.array(j)), f(i, j))


def test_types_meet_as_in_mxnet():
    i, f, d, t = np.array(onp.array([1, 2])), np.ones(2), np.ones(2, dtype="float64"), np.array(onp.array([True, False]))
    assert (i + f).dtype == np.float32 and (f + d).dtype == np.float64 and (i + 1.5).dtype == np.float32 and (i + 1).dtype == np.int64
    assert (t + t).dtype == np.int64 and (t & t).dtype == np.bool_ and (f + onp.float64(2)).dtype == np.float32 and (~t).tolist() == [False, True]
    assert (i & 1).tolist() == [1, 0] and (f == f).dtype == np.bool_ and (f * True).dtype == np.float32


def test_in_place_operations_change_what_the_name_holds():
    a = np.array(A)
    b = a
    for name, value in (("iadd", 2), ("isub", np.array(B)), ("imul", 3.0), ("itruediv", 2), ("ipow", 2)):
        wanted = getattr(operator, name[1:])(a.asnumpy(), value.asnumpy() if isinstance(value, np.ndarray) else value)
        assert getattr(operator, name)(b, value) is a
        same(a, wanted)
    i = np.array(onp.array([1, 2]))
    i += 1.5
    same(i, [2, 3])
    with pytest.raises(dcml.ShapeError, match="in-place"):
        i += np.ones((2, 2))


@pytest.mark.parametrize("key", [0, -1, slice(1, None), (slice(None), 1), (..., 2), (1, slice(None, None, -1)), None, (slice(0, 2), None, 3), (2, 1),
                                 slice(None, None, 2), [0, 2], (slice(None), [1, 1]), ([0, 1], [2, 3]), A > 0, onp.array([2, 0])], ids=str)
def test_reading_a_part_is_numpys_also_when_recorded(key):
    a = np.array(A)
    same(a[key], A[key])
    a.attach_grad()
    with autograd.record():
        part = a[key]
    same(part, A[key])
    part.backward()
    wanted = onp.zeros_like(A)
    onp.add.at(wanted, key, 1)
    same(a.grad, wanted)


@pytest.mark.parametrize("key", [0, (slice(None), 1), A > 0, [0, 2], (1, 2), slice(None), ...], ids=str)
def test_writing_a_part_is_numpys(key):
    a, wanted = np.array(A), A.copy()
    a[key] = 7
    wanted[key] = 7
    same(a, wanted)
    a[key] = np.array(B)[key]
    wanted[key] = B[key]
    same(a, wanted)


def test_indices_may_be_arrays_of_floats():
    same(np.array(A)[np.array([2, 0])], A[[2, 0]])
    same(np.array(A)[np.array(A) > 0], A[A > 0])


def test_slices_are_views():
    a = np.array(A)
    row = a[1]
    row[:] = 5
    assert (a.asnumpy()[1] == 5).all()
    a[1, 0] = 6
    a += 1
    assert row.tolist() == [7, 6, 6, 6]


UNARY = ["exp", "log", "sqrt", "tanh", "sin", "cos", "abs", "sign", "floor", "ceil", "negative", "square", "reciprocal", "log1p", "expm1", "arctan"]


@pytest.mark.parametrize("name", UNARY)
def test_functions_are_numpys(name):
    x = onp.abs(A) + 0.1
    same(getattr(np, name)(np.array(x)), getattr(onp, name)(x))


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "prod", "std", "var"])
@pytest.mark.parametrize("axis, keep", [(None, False), (0, False), (-1, True), ((0, 1), False), (None, True)])
def test_reductions_are_numpys(name, axis, keep):
    same(getattr(np, name)(np.array(A), axis=axis, keepdims=keep), getattr(onp, name)(A, axis=axis, keepdims=keep))
    same(getattr(np.array(A), name)(axis=axis), getattr(onp, name)(A, axis=axis))


def test_shapes_and_joins():
    a, b = np.array(A), np.array(B)
    same(np.concatenate([a, b], axis=1), onp.concatenate([A, B], 1))
    same(np.concatenate([a, b], axis=None), onp.concatenate([A, B], None))
    same(np.stack([a, b], axis=-1), onp.stack([A, B], -1))
    same(a.reshape(2, -1), A.reshape(2, -1))
    same(a.reshape((4, 3)).T, A.reshape(4, 3).T)
    same(np.transpose(a, (1, 0)), A.T)
    same(np.expand_dims(a, 1).squeeze(1), A)
    same(np.where(a > 0, a, 0.0), onp.where(A > 0, A, 0))
    same(np.dot(a, b.T), A @ B.T)
    same(a @ b.T, A @ B.T)
    same(np.dot(np.ones((2, 3, 4), "float64"), np.array(B.T)), onp.dot(onp.ones((2, 3, 4)), B.T))
    same(np.maximum(a, b), onp.maximum(A, B))
    same(np.clip(a, -0.5, 0.5), onp.clip(A, -0.5, 0.5))
    same(np.argmax(a, axis=1), onp.argmax(A, 1))
    same(np.broadcast_to(np.array([1., 2]), (2, 2)), onp.array([[1, 2], [1, 2]], "float32"))
    same(np.zeros_like(a), onp.zeros_like(A))
    same(np.ones_like(a), onp.ones_like(A))
    same(np.moveaxis(np.ones((2, 3, 4)), 0, -1), onp.ones((3, 4, 2), "float32"))
    same(np.tensordot(a, b, ((1, ), (1, ))), onp.tensordot(A, B, ((1, ), (1, ))))
    same(a.astype("int32"), A.astype("int32"))
    same(np.linspace(0, 1, 5), onp.linspace(0, 1, 5, dtype="float32"))
    assert [p.shape for p in np.split(a, 2, 1)] == [(3, 2)] * 2


def test_an_array_is_a_number_where_python_wants_one():
    one = np.array(3.5)
    assert one.item() == float(one) == 3.5 and int(one) == 3 and bool(one) and f"{one:.2f}" == "3.50" and np.array(A).item(2) == A.flat[2]
    assert [10, 20][np.array(onp.array(1))] == 20 and len(np.ones((2, 3))) == 2 and [r.tolist() for r in np.ones((1, 2))] == [[1, 1]]
    assert repr(np.array([1.0, 2])) == "array([1., 2.])" and onp.asarray(np.ones(2)).sum() == 2
    with pytest.raises(TypeError):
        len(one)
    with pytest.raises(ValueError):
        bool(np.ones(2))


def test_copies_and_pickles():
    a = np.array(A)
    for b in (a.copy(), copy.deepcopy(a), pickle.loads(pickle.dumps(a)), copy.copy(a)):
        b[0] = 0
        same(a, A)
    b = np.zeros((3, 4), "float64")
    a.copyto(b)
    same(b, A)
    assert a.as_in_ctx(mx.cpu()) is a and a.ctx == mx.cpu() and a.device == mx.cpu(0)


@pytest.mark.parametrize("call, error, told", [
    (lambda: np.ones(2) + np.ones(3), dcml.ShapeError, "Add"), (lambda: np.ones(2) + "x", TypeError, "str"), (lambda: np.ones((2, 3)).reshape(4), dcml.ShapeError, "reshape"),
    (lambda: np.ones(2)[5], IndexError, "5"), (lambda: np.ones(2).astype("complex64"), dcml.DTypeError, "complex64"), (lambda: np.array(["a"]), TypeError, "array"),
    (lambda: mx.gpu(), dcml.DeviceError, "gpu"), (lambda: np.sum(np.ones(2), axis=3), dcml.ShapeError, "axis 3"), (lambda: np.zeros((-1, )), dcml.ShapeError, "-1"),
    (lambda: np.array(object()), TypeError, "array"), (lambda: np.concatenate([]), dcml.ValueError_, "concatenate"), (lambda: np.split(np.ones(3), 2), dcml.ValueError_, "split"),
    (lambda: np.ones((2, 2)).__setitem__(0, [1, 2, 3]), dcml.ValueError_, "shape"), (lambda: np.ones(3, ctx="gpu"), TypeError, "ctx") if False else
    (lambda: np.array([1], ctx="gpu(0)"), dcml.DeviceError, "gpu")])
def test_errors_tell_what_is_wrong(call, error, told):
    with pytest.raises(error, match=told):
        call()


def test_draws_repeat_with_their_seed():
    def draw():
        return [f().tolist() for f in (lambda: np.random.uniform(size=3), lambda: np.random.normal(0, 2, (2, 2)), lambda: np.random.randint(0, 9, 5))]
    for seed in (npx.random.seed, mx.random.seed, np.random.seed):
        seed(7)
        first = draw()
        assert draw() != first
        seed(7)
        assert draw() == first


def test_bool_is_an_element_type_of_np():
    assert np.array([True, False], dtype=np.bool).dtype == np.bool_ and np.bool is np.bool_


def told(function, *args):
    """What a call gives: an array, or the error."""
    try:
        made = function(*args)
    except Exception as error:
        return type(error), str(error)
    return made if made is NotImplemented else (made.dtype.name, made.shape, made.asnumpy().tobytes())


SIGNS = [f"__{r}{name}__" for r in ("", "r") for name in ("add", "sub", "mul", "truediv", "matmul")] + [f"__{n}__" for n in ("eq", "lt", "le", "gt", "ge")]
TYPES = ("float32", "float64", "float16", "int32", "uint8", "int64", "bool")


@pytest.mark.parametrize("name", [*SIGNS, "maximum", "minimum", "divide", "add", "equal", "exp", "floor", "abs", "negative"])
def test_what_the_core_serves_is_what_python_serves(name):
    direct = getattr(np.ndarray, name, None) if name.startswith("__") else getattr(np, name)
    one = name in ("exp", "floor", "abs", "negative")
    numbers = (2, 2.5, True, -1, 300, 1 << 60, 1 << 70, 1e300, -float("inf"), 0.1, 1j, None, "a", [1, 2, 3])
    for dtype in TYPES:
        x = np.array(onp.array([[1, 2, 3], [0, 5, 6]], dtype))
        others = [()] if one else [(other, ) for other in numbers] + [(np.array(onp.array([1, 1, 4], other)), ) for other in TYPES]
        for other in others:
            with onp.errstate(all="ignore"):
                assert told(direct, x, *other) == told(direct.__wrapped__, x, *other), (dtype, other)


def test_operators_of_arrays_alone_take_what_functions_take():
    x = np.ones((2, 3))
    with pytest.raises(TypeError, match="data"):
        npx.relu()
    with pytest.raises(TypeError):
        npx.relu(x, x, x)
    with pytest.raises(dcml.Error, match="matmul|MatMul|dimension"):
        np.ones((2, 3)) @ np.ones((2, 3))
    out = np.zeros((2, 3))
    assert npx.relu(x, out=out) is out and npx.relu(data=x).sum().item() == np.exp(x, out=out).size == 6
    same(npx.relu(onp.ones(2, "float32")), onp.ones(2, "float32"))
    assert npx.relu.__name__ == "relu" and "max" in npx.relu.__doc__ and np.exp.__doc__.startswith("NumPy's exp")


def test_an_array_of_the_core_may_be_in_a_cycle_and_have_weak_references():
    import gc
    import weakref
    x = np.ones(2)
    x._grad = x
    seen = weakref.ref(x)
    del x
    gc.collect()
    assert seen() is None


def test_integers_have_a_gradient_of_zeros():
    x, w = np.array([0, 2], dtype="int32"), np.ones((3, 2))
    x.attach_grad()
    w.attach_grad()
    with autograd.record():
        loss = npx.embedding(x, w, 3, 2).sum()
    loss.backward()
    same(x.grad, onp.zeros(2, "int32"))
    same(w.grad, onp.array([[1, 1], [0, 0], [1, 1]], "float32"))

"""NumPy expressions in programs."""
import math

import numpy as np
import pytest

import dcml as dace

SCALE = 3
OFFSETS = np.array([1.0, 2.0, 3.0], np.float32)


def test_operators_and_broadcasting(agree, f32):
    @dace.program
    def f(X, Y):
        return X * 2 + Y - X / (Y ** 2 + 1), -X % 3, (X > Y) & (X < 2 * Y), X[:, None] * Y

    agree(f, f32(4, 3), f32(3))


def test_functions_of_one_and_two_arguments(agree, f32):
    @dace.program
    def f(X):
        Y = np.abs(X) + 0.5
        return (np.exp(X), np.log(Y), np.sqrt(Y), np.tanh(X), np.sin(X), np.arctan(X), np.maximum(X, 0), np.minimum(X, Y),
                np.power(Y, 1.5), np.floor(X), np.sign(X), np.isnan(X), np.log1p(Y), np.square(X), np.clip(X, -1, 1),
                np.hypot(X, Y), np.logaddexp(X, Y), np.exp2(X), np.log10(Y), np.reciprocal(Y), np.fmod(X, Y))

    agree(f, f32(4, 5))


@pytest.mark.parametrize("a, b", [
    ("f4", "f8"), ("f4", "i4"), ("i4", "i8"), ("i1", "u1"), ("u2", "i2"), ("?", "f4"), ("?", "?"), ("u1", "u1"), ("f2", "f4"),
    ("f2", "f2"), ("i8", "u4")])
def test_types_are_promoted_as_numpy_does(agree, a, b):
    @dace.program
    def f(A, B):
        return A + B, A * B, A > B, np.maximum(A, B), A * 2, A + 1.5, A == B, np.where(A > B, A, B)

    agree(f, np.array([0, 1, 3]).astype(a), np.array([1, 1, 2]).astype(b), rtol=1e-3)


def test_integers_divide_and_shift_as_numpy_does(agree):
    @dace.program
    def f(A, B):
        return A // B, A % B, A / B, A // 3, A % 3, A << 1, A >> 1, A & B, A | B, A ^ B, ~A, A ** 2, -A, abs(A)

    for kind in np.int32, np.int64:
        agree(f, np.array([7, -7, 5, -1], kind), np.array([2, 2, -3, 4], kind))


def test_numbers_of_python_give_way_and_numpys_do_not(agree, f32):
    @dace.program
    def f(X, n, s):
        return X * n, X + s, X * 2.0, X * np.float64(2), n * 2, n + 0.5

    agree(f, f32(3), 2.5, np.float32(1.5))
    agree(f, f32(3), 2, np.float64(1.5))


def test_names_of_the_surroundings_are_constants(agree, f32):
    inner = 0.25

    @dace.program
    def f(X):
        return X * SCALE + inner, X + OFFSETS, X * math.pi, X + math.sqrt(2) * len(X.shape), np.float32(inner) * X

    agree(f, f32(2, 3))


def test_selection(agree, f32):
    @dace.program
    def f(X):
        return np.where(X > 0, X, 0.1 * X), np.where(X > 0, 1, 0), np.where(X[0] > 0, X, -X)

    agree(f, f32(3, 4))


def test_reductions(agree, f32):
    @dace.program
    def f(X):
        return (X.sum(), np.sum(X, axis=1), X.max(axis=0, keepdims=True), np.min(X, (0, 2)), X.mean(-1), np.prod(X, axis=2),
                np.add.reduce(X, axis=1, keepdims=True), np.maximum.reduce(X), X.var(axis=1), np.std(X), (X > 0).sum(),
                (X > 0).any(axis=0), np.all(X > -5), X.argmax(1), X.mean(), np.sum(X > 0, axis=1), X.cumsum(axis=1))

    agree(f, f32(3, 4, 5), rtol=1e-4)


def test_reductions_of_integers_are_wide(agree):
    @dace.program
    def f(A):
        return A.sum(), A.mean(), A.max(), A.prod(axis=0)

    agree(f, np.arange(1, 7, dtype=np.int8).reshape(2, 3))


def test_matrix_products(agree, f32):
    @dace.program
    def f(A, B, v):
        return A @ B, A @ v, v @ B, np.dot(A, B), A @ A.T, np.matmul(B.T, A.T), np.einsum("ij,jk->ki", A, B), v @ v

    agree(f, f32(3, 4), f32(4, 5), f32(4))


def test_products_of_stacks_of_matrices_and_of_integers(agree, f32):
    @dace.program
    def f(A, B, I):
        return A @ B, A[0, 0] @ B[0], I @ I.T, A @ B[0]

    agree(f, f32(2, 3, 4, 5), f32(3, 5, 6), np.arange(6, dtype=np.int32).reshape(2, 3))


def test_shapes(agree, f32):
    @dace.program
    def f(X):
        Y = X.reshape(4, 6)
        return (Y, X.reshape((2, -1)), X.T, np.transpose(X, (1, 0, 2)), X.ravel(), np.expand_dims(X, 1), X[None].squeeze(0),
                np.swapaxes(X, 0, 2), np.concatenate([X, X + 1], axis=1), np.stack([X[0], X[1]]), np.flip(X, 1),
                np.broadcast_to(X[0, 0], (3, 4)), X.flatten(), np.outer(X[0, 0], X[1, 0]))

    agree(f, f32(2, 3, 4))


def test_new_arrays(agree, f32):
    @dace.program
    def f(X):
        Z = np.zeros((2, 3))
        Z[1] = X[0]
        E = np.empty_like(X)
        E[:] = 4
        N = np.ndarray([2, 2], dtype=np.float32)
        N[...] = 1
        return Z, E, N, np.ones(3, dtype=np.int32), np.full((2,), 7.5), np.zeros_like(X), np.arange(5), np.arange(2, 11, 3)

    agree(f, f32(2, 3))


def test_an_identity_matrix_can_be_written(agree, f32):
    @dace.program
    def f(X):
        a = np.eye(3, 4, k=1, dtype=np.float32)
        a[2, :] = a[1, :] + X
        return a, np.identity(2)

    agree(f, f32(4))


def test_conversions(agree, f32):
    @dace.program
    def f(X, A):
        return X.astype(np.float64), X.astype(int), A.astype(np.float32), np.float64(A), X.astype(bool)

    agree(f, f32(4), np.array([1, -2, 0], np.int64))


def test_calls_of_python_functions_are_part_of_the_program(agree, f32):
    def half(x, by=2):
        y = x / by
        return y

    @dace.program
    def other(a, b):
        a[0] = 9
        return a + b

    @dace.program
    def f(X, Y):
        square = lambda x: x * x
        return half(X), square(Y), half(Y, by=4.0)

    agree(f, f32(3), f32(3))

    @dace.program
    def g(X, Y):
        return other(X, Y[0])

    def plain(X, Y):
        return other.f(X, Y[0])
    g_f, g.f = g.f, plain
    a, b = f32(3), f32(3)
    got = dace.program(g_f)(a, b)
    assert a[0] == 9 and np.allclose(got, a + b[0])


def test_elementwise_runs_a_scalar_function(agree, f32):
    @dace.program
    def f(X):
        return dace.elementwise(lambda x: math.exp(x) if x < 0 else x * 2, X)

    got = f(f32(3, 4))
    x = f32(3, 4)
    np.testing.assert_allclose(got, np.where(x < 0, np.exp(x), x * 2), rtol=1e-5)


def test_reduce_takes_a_function_of_two(agree, f32):
    @dace.program
    def f(X):
        return dace.reduce(lambda a, b: a + b, X, axis=1), dace.reduce(lambda a, b: max(a, b), X)

    x = f32(3, 4)
    a, b = f(x)
    np.testing.assert_allclose(a, x.sum(1), rtol=1e-5)
    assert b == x.max()


def test_reduce_writes_into_an_array(agree, f32):
    @dace.program
    def f(X, Y, Z):
        dace.reduce(lambda a, b: a + b, X, Y, axis=1, identity=0)
        dace.reduce(lambda a, b: max(a, b), X, Z)  # with what is there

    agree(f, f32(3, 4), f32(3), f32(1))
    agree(f, f32(3, 4), f32(3), np.full(1, 9, np.float32))


def test_outer_products_of_ufuncs(agree, f32):
    @dace.program
    def f(X, A):
        return np.add.outer(X, X), np.minimum.outer(A, X), np.multiply.outer(A[0, 0], X)

    agree(f, f32(3), f32(2, 4))


def test_an_output_argument_of_a_function(agree, f32):
    @dace.program
    def f(X, Z):
        np.add(X, 1, out=Z)
        np.sum(X, axis=0, out=Z[0])

    agree(f, f32(3, 4), f32(3, 4))


def test_local_scalars_have_a_type_and_are_written():
    @dace.program
    def f(A: dace.float32[4]):
        total = dace.define_local_scalar(dace.float64)
        total[...] = 1
        for k in range(4):
            total[...] += A[k]
        return total
    assert f(np.float32([1, 2, 3, 4])) == 11 and f(np.zeros(4, np.float32)).dtype == np.float64


@pytest.mark.parametrize("name", ("fmax", "fmin", "copysign", "heaviside", "arctan2", "logaddexp2", "cbrt", "degrees", "radians", "signbit"))
@pytest.mark.parametrize("dtype", (np.float64, np.float32), ids=("f64", "f32"))
def test_a_function_of_special_values_gives_what_numpys_gives(name, dtype):
    ufunc, a = getattr(np, name), np.array([-2.5, -0.0, 0.0, 1, 27, np.nan, np.inf, -np.inf, -8], dtype)

    @dace.program
    def one(a):
        return ufunc(a)

    @dace.program
    def two(a, b):
        return ufunc(a, b)
    got, want = (one(a), ufunc(a)) if ufunc.nin == 1 else (two(a, a[::-1].copy()), ufunc(a, a[::-1]))
    np.testing.assert_allclose(got, want, rtol=1e-6 if dtype == np.float32 else 1e-14)
    np.testing.assert_array_equal(np.signbit(1 / got)[want == 0], np.signbit(1 / want)[want == 0])


def test_pythons_sum_adds_along_the_first_axis():
    def total(A):
        return sum(A), sum(A[0]), sum(A, A[0]), sum([A[0], A[1]])
    A = np.random.default_rng(0).random((3, 4))
    for got, want in zip(dace.program(total)(A), total(A)):
        np.testing.assert_allclose(got, want, rtol=1e-14)


def test_identity_with_true_or_false_is_that_of_the_value():
    @dace.program
    def f(A: dace.float32[4], flag: dace.bool):
        B = np.zeros_like(A)
        if flag is False:
            B[:] = A
        if flag is not False:
            B[:] = 2 * A
        return B
    A = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(f(A, False), A)
    np.testing.assert_array_equal(f(A, True), 2 * A)


def test_a_tasklet_may_say_its_language():
    @dace.program
    def f(A: dace.float32[4]):
        with dace.tasklet(dace.Language.Python):
            a << A[1]
            b >> A[0]
            b = a * 10
    A = np.arange(4, dtype=np.float32)
    f(A)
    assert A[0] == 10

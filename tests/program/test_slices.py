"""Slices on both sides, and what they share."""
import numpy as np
import pytest

import dcml
import dcml as dace


def test_slices_are_read(agree, f32):
    @dace.program
    def f(X):
        return (X[1], X[-1], X[1:3], X[:, 1:-1], X[::2, ::-1], X[..., 0], X[1, 2], X[None, :, None], X[-2:, :3], X[3:1:-1],
                X[1:1], X[0, ::3])

    agree(f, f32(5, 7))


def test_slices_are_written(agree, f32):
    @dace.program
    def f(A, B):
        A[1:-1] = 0
        A[0] = B
        A[:, 2] = A[:, 3] * 2
        A[-1, ::2] = 7
        A[..., 1] += 1
        A[1:3, 4:] *= B[4:]

    agree(f, f32(5, 7), f32(7))


def test_a_slice_is_read_before_it_is_written(agree, f32):
    @dace.program
    def f(A, B):
        A[1:] = A[:-1]
        B[:] = B.T
        B[0, 0], B[1, 1] = B[1, 1], B[0, 0]
        B[::-1] = B + B.T

    agree(f, f32(6), f32(4, 4))


def test_a_slice_is_a_view_and_a_sum_is_not(agree, f32):
    @dace.program
    def f(A):
        view = A[1:3]
        copied = A + 0
        first = A[0, 0]
        view[:] = 5
        A[0, 0] = 9
        again = A
        again[4] = 2
        flat = A.reshape(-1)
        flat[0] += 1
        return copied, view + 0, first

    agree(f, f32(5, 2))


def test_names_are_rebound_and_arrays_are_not(agree, f32):
    @dace.program
    def f(A):
        B = A
        B = B + 1
        A += 2
        C = A[0] * 1
        C += B[0]
        return B, C

    agree(f, f32(3, 2))


def test_arrays_of_integers_are_indices(agree, f32):
    @dace.program
    def f(X, I, n):
        X[I[0]] = 4
        return X[I], X[I, I], X[:, I], X[I[:, None], I], X[1, I], X[n], X[[0, 2]]

    agree(f, f32(4, 4), np.array([2, 0, -1]), 3)


def test_arrays_apart_from_each_other_or_from_numbers_come_first(agree, f32):
    @dace.program
    def f(X, I, J):
        return X[:2, I, :, 1], X[1, :, I], X[I, J, ..., 2], X[:, I, 1], X[1:, 0, 2, J], X[None, I, :, J]

    agree(f, f32(4, 3, 3, 3), np.array([2, 0]), np.array([[1], [2]]))


def test_a_tuple_among_indices_is_an_array_and_by_itself_all_of_them(agree, f32):
    at = (1, 2)

    @dace.program
    def f(X):
        X[(0, 3),] = 2
        X[(1, 2)] = 1
        return X[at], X[at, 1], X[:, (0, 2)]

    agree(f, f32(4, 4))


def test_arrays_are_joined_flat(agree, f32):
    @dace.program
    def f(X, Y):
        return np.concatenate([X, Y], axis=None)

    agree(f, f32(2, 3), f32(1, 2, 2))


def test_indices_outside_are_read_at_the_border_and_not_written():
    @dace.program
    def f(X, I, Z):
        Z[I] = 1
        return X[I]

    z = np.zeros(3)
    assert f(np.arange(3.0), np.array([7, -9, 1]), z).tolist() == [2, 0, 1]
    assert z.tolist() == [0, 1, 0]


def test_where_a_mask_holds_is_written(agree, f32):
    @dace.program
    def f(A, B):
        A[A < 0] = 0
        B[A > 0.5] += 1

    agree(f, f32(3, 4), f32(3, 4))


def test_a_known_index_outside_is_an_error(f32):
    @dace.program
    def f(X: dace.float32[3]):
        return X[3]

    with pytest.raises(dcml.ShapeError, match=r"index 3 is outside X.*\(.*test_slices.py:\d+\)\n    return X\[3\]\n +\^"):
        f(f32(3))


def test_an_index_asks_for_enough_elements(f32):
    @dace.program
    def f(X):
        return X[1:-1][3] + X[-5]

    np.testing.assert_allclose(f(f32(7)), f32(7)[4] + f32(7)[2])
    with pytest.raises(dcml.ShapeError, match="'X': dimension 0 is 5, expected at least 6"):
        f(f32(5))


def test_shapes_that_do_not_fit_are_errors(f32):
    @dace.program
    def f(X, Y):
        return X + Y

    with pytest.raises(dcml.ShapeError, match="f: extents .* do not fit"):
        f(f32(3), f32(4))


def test_a_stencil_with_symbolic_extents(agree, f32):
    N = dace.symbol("N")

    @dace.program
    def f(A: dace.float32[N], B: dace.float32[N], T: dace.int64):
        for t in range(T):
            B[1:-1] = (A[:-2] + A[1:-1] + A[2:]) / 3
            A[2:-2] = B[2:-2]

    agree(f, f32(9), f32(9), 3)
    assert "min(" not in str(f.to_sdfg())


def test_bounds_that_a_map_reads_itself():
    @dace.program
    def clear(A: dace.float64[20, 10], bounds: dace.int32[4]):
        for i in dace.map[0:2]:
            first, last = bounds[2 * i], bounds[2 * i + 1]
            A[first:last] = 0
    A = np.ones((20, 10))
    clear(A, np.array([2, 5, 13, 14], np.int32))
    assert np.flatnonzero(A[:, 0] == 0).tolist() == [2, 3, 4, 13]

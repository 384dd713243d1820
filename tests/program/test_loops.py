"""Maps, tasklets, loops and conditions."""
import numpy as np
import pytest

import dcml
import dcml as dace
from dcml import dtypes

N = dace.symbol("N")


def test_a_map_over_elements(agree, f32):
    @dace.program
    def f(X, Y, Z):
        for i, j in dace.map[0:5, 0:3]:
            t = X[i, j] * 2
            Z[i, j] = t + Y[j]

    agree(f, f32(5, 3), f32(3), f32(5, 3))


def test_maps_with_steps_and_bounds_that_depend_on_others(agree, f32):
    @dace.program
    def f(X, Z):
        for i in dace.map[1:9:2]:
            for j in dace.map[0:i]:
                Z[i, j] = X[j, i]

    agree(f, f32(10, 10), f32(10, 10))


def test_sums_over_maps_are_combined(agree, f32):
    @dace.program
    def f(A, B, C, S):
        for i, j, k in dace.map[0:3, 0:5, 0:4]:
            C[i, j] += A[i, k] * B[k, j]
        for i, j in dace.map[0:3, 0:5]:
            S[0] += C[i, j]
        for i in dace.map[0:3]:
            S[1] += C[i, 0]
            S[2] -= C[0, i]
            A[i, 0] += 1

    agree(f, f32(3, 4), f32(4, 5), f32(3, 5), f32(3))


def test_histograms(agree):
    @dace.program
    def f(I, H):
        for i in dace.map[0:6]:
            H[I[i]] += 1

    agree(f, np.array([0, 1, 1, 3, 1, 0]), np.zeros(4, np.int64))


def test_rows_are_computed_inside_maps(agree, f32):
    @dace.program
    def f(A, B, C):
        for i in dace.map[0:3]:
            row = A[i] * 2
            C[i] = row @ B + row.sum()
            C[i, 0] = np.max(C[i, 1:])

    agree(f, f32(3, 4), f32(4, 5), f32(3, 5))


def test_tasklets_and_map_functions_read_and_write_connectors():
    @dace.program
    def f(X: dtypes.float32[5, 3], Y: dtypes.float32[3], Z: dtypes.float32[5, 3], S: dtypes.float32[2]):
        @dace.map(_[0:5, 0:3])
        def add(i, j):
            x << X[i, j]
            y << Y[j]
            z >> Z[i, j]
            s >> S(1, lambda a, b: a + b)[0]
            m >> S(1, lambda a, b: max(a, b))[1]
            t = x * y
            if t > 0:
                z = t
            else:
                z = exp(t)
            s = t
            m = x

        with dace.tasklet:
            row << X[0, 0:3]
            out >> Z[0, 0]
            out = row[0] + row[2]

    rng = np.random.default_rng(0)
    x, y, z, s = (rng.standard_normal(n).astype(np.float32) for n in ((5, 3), 3, (5, 3), 2))
    before = s.copy()
    f(x, y, z, s)
    t = x * y
    want = np.where(t > 0, t, np.exp(t))
    want[0, 0] = x[0, 0] + x[0, 2]
    np.testing.assert_allclose(z, want, rtol=1e-5)
    np.testing.assert_allclose(s, [before[0] + t.sum(), max(before[1], x.max())], rtol=1e-5)


def test_a_tasklet_reads_before_it_writes():
    @dace.program
    def f(A: dtypes.float64[2]):
        with dace.tasklet:
            a << A[0]
            b << A[1]
            c >> A[0]
            d >> A[1]
            c = b
            d = a

    a = np.array([1.0, 2.0])
    f(a)
    assert a.tolist() == [2, 1]


def test_ranges_run_in_order(agree, f32):
    @dace.program
    def f(A, B, n):
        for k in range(1, 6):
            A[k] = A[k - 1] * 0.5 + A[k]
        for k in range(4, -1, -2):
            B[k] = B[k + 1]
        for k in range(n):
            B[0] += k * n

    agree(f, f32(6), f32(6), 3)


def test_names_are_handed_on_by_iterations(agree, f32):
    @dace.program
    def f(X, v):
        total, count = 0.0, 0
        a, b = v, v * 2
        for k in range(5):
            total = total + X[k, k]
            count += 1
            a, b = b, a + b
            last = X[k] * 2
        return total, count, a, b, last, k

    agree(f, f32(5, 5), f32(3))


def test_a_name_that_is_kept_is_not_changed_by_later_iterations(agree, f32):
    @dace.program
    def f(v):
        x, old = v * 1, v * 0
        for k in range(3):
            old = x
            x = x + 1
        return x, old

    agree(f, f32(3))


def test_functions_are_called_inside_loops_and_maps(agree, f32):
    def twice(x):
        if x is None:
            return 0
        y = x + x
        return y

    @dace.program
    def f(A, S):
        for i in dace.map[0:4]:
            A[i] = twice(A[i]) + twice(None)
        for k in range(3):
            A[k] = twice(A[k + 1])
            for i in dace.map[0:4]:
                S[0] += A[i]

    agree(f, f32(4), f32(1))


def test_a_name_that_ends_with_its_iteration_is_refused_afterwards(f32):
    @dace.program
    def f(x):
        for k in range(3):
            old = x
            x = x + 1
        return old

    with pytest.raises(dcml.UnsupportedOpError, match="'old' has a value inside the loop only"):
        f(f32(3))


def test_loops_inside_maps_and_the_other_way_round(agree, f32):
    @dace.program
    def f(A, B, C):
        for i, j in dace.map[0:3, 0:5]:
            acc = 0.0
            for k in range(4):
                acc = acc + A[i, k] * B[k, j]
            C[i, j] = acc
        for t in range(2):
            C[1:-1] = (C[:-2] + C[2:]) / 2
            for i in dace.map[0:3]:
                C[i, t] = i

    agree(f, f32(3, 4), f32(4, 5), f32(3, 5))


def test_power_iteration_has_a_product_in_a_loop(agree, f32):
    @dace.program
    def f(A, v):
        x = v
        for k in range(4):
            y = A @ x
            x = y / np.sqrt((y * y).sum())
        return x

    agree(f, f32(4, 4), f32(4), rtol=1e-4)


def test_loops_over_tuples_are_repeated(agree, f32):
    @dace.program
    def f(X):
        for axis in (0, 1):
            X = X - X.mean(axis=axis, keepdims=True)
        for k, (a, b) in enumerate([(1, 2), (3, 4)]):
            X[k] = a * b
        return X, [X[i].sum() for i in range(2)][1]

    agree(f, f32(3, 4))


@pytest.mark.parametrize("flag", [True, False])
def test_conditions_on_constants_choose(agree, f32, flag):
    @dace.program
    def f(X, use, other=None):
        if use and X.ndim == 2:
            Y = X * 2
        elif other is None:
            Y = X + 1
        else:
            Y = undefined_name
        return Y if not use else Y - 1

    agree(f, f32(3, 2), flag)


def test_conditions_on_data_select(agree, f32):
    @dace.program
    def f(X, Z):
        y = X[3]
        if X[0] > 0:
            Z[1:] = X[1:]
            y = X[1]
        else:
            Z[0] = 7
        for i in dace.map[0:4]:
            if i > 1 and X[i] < 0:
                Z[i] = -X[i]
            elif X[i] > 1:
                Z[i] = 1
        return y, X[0] if X[1] > 0 else X[2]

    agree(f, f32(4), f32(4))
    agree(f, -f32(4), f32(4))


def test_extents_decide_when_they_are_asked_for(agree, f32):
    @dace.program
    def f(X):
        if X.shape[0] > 3:
            return X * 2
        return X[::-1]

    agree(f, f32(5))
    agree(f, f32(3))


def test_symbols_are_taken_from_arguments(f32):
    @dace.program
    def f(X: dtypes.float32[N], Z: dtypes.float32[N, 2 * N]):
        for i in dace.map[0:N]:
            Z[i, N + i] = X[i] + N

    for n in 3, 4:
        x, z = f32(n), np.zeros((n, 2 * n), np.float32)
        f(x, z)
        np.testing.assert_allclose(z[np.arange(n), n + np.arange(n)], x + n)
    assert len(f._graphs) == 1
    with pytest.raises(dcml.ShapeError, match="'Z'"):
        f(f32(3), np.zeros((3, 5), np.float32))


def test_a_symbol_that_no_shape_has_is_given_by_name():
    @dace.program
    def f(Z: dtypes.float64[8]):
        for i in dace.map[0:N]:
            Z[i] = 1

    z = np.zeros(8)
    f(z, N=3)
    assert z.tolist() == [1] * 3 + [0] * 5


def test_another_size_is_no_other_graph(f32):
    @dace.program
    def f(X, Y):
        return X @ Y + 1

    for n in 3, 4, 5:
        x, y = f32(n, 7), f32(7, 2 * n)
        np.testing.assert_allclose(f(x, y), x @ y + 1, rtol=1e-5)
    assert len(f._graphs) == 1
    f(f32(3, 3), f32(3, 3))
    assert len(f._graphs) == 2


def test_a_scope_of_statements_may_hold_maps_over_ranges_that_are_data(f32):
    H, W, nnz = (dace.symbol(s) for s in ("H", "W", "nnz"))

    @dace.program
    def spmv(A_row: dace.uint32[H + 1], A_col: dace.uint32[nnz], A_val: dace.float32[nnz], x: dace.float32[W], b: dace.float32[H]):
        @dace.mapscope(_[0:H])
        def compute_row(i):
            @dace.map(_[A_row[i]:A_row[i + 1]])
            def compute(j):
                a << A_val[j]
                in_x << x[A_col[j]]
                out >> b(1, lambda x, y: x + y)[i]
                out = a * in_x

    for h, w in ((8, 9), (3, 5)):
        dense = np.where(f32(h, w) > 0, f32(h, w), 0)
        row = np.concatenate([[0], np.cumsum(np.count_nonzero(dense, 1))]).astype(np.uint32)
        x, b = f32(w), np.zeros(h, np.float32)
        spmv(row, np.nonzero(dense)[1].astype(np.uint32), dense[dense != 0], x, b)
        np.testing.assert_allclose(b, dense @ x, rtol=1e-4, atol=1e-5)


def test_elements_of_a_connector_that_combines_are_combined():
    @dace.program
    def histogram(A: dace.float32[9, 7], h: dace.uint32[4]):
        @dace.map(_[0:9, 0:7])
        def compute(i, j):
            a << A[i, j]
            out >> h(1, lambda x, y: x + y)[:]
            out[min(int(a * 4), 3)] = 1

    a, h = np.random.default_rng(1).random((9, 7)).astype(np.float32), np.ones(4, np.uint32)
    histogram(a, h)
    np.testing.assert_array_equal(h, 1 + np.histogram(a, 4, (0, 1))[0])


def test_a_function_may_be_a_tasklet(f32):
    @dace.program
    def f(A: dace.float32[4], B: dace.float32[4]):
        for i in dace.map[0:4]:
            @dace.tasklet
            def double():
                a << A[3 - i]
                b >> B[i]
                b = 2 * a

    a, b = f32(4), np.zeros(4, np.float32)
    f(a, b)
    np.testing.assert_array_equal(b, 2 * a[::-1])


def up(X):
    k = 0
    while k < 5:
        X[:] = X * 2 + k
        k += 1
    X[0] = k


def down(X):
    k = X.shape[0] - 1
    while k >= 1:
        X[k] = X[k - 1] + X[k]
        k = k - 2


def in_the_middle(X):
    k = 0
    while k <= 10:
        k += 3
        X[k % 4] += k


def of_a_scalar(X):
    x = 1.0
    k = 0
    while k < 4:
        x = x * X[k]
        k += 1
    return x


def never(X):
    k = 0
    while k < 0:
        X[k] = 1
        k += 1
    X[k] = 9


def skipping(X):
    for i in range(6):
        if i % 2 == 0:
            X[0] += 1
            continue
        if X[i] > 0.5:
            X[i] = -1
            if X[0] < 0:
                continue
        else:
            X[i] += 3
        X[i] += 1


@pytest.mark.parametrize("f", [up, down, in_the_middle, of_a_scalar, never, skipping], ids=lambda f: f.__name__)
def test_while_loops_that_count_and_continue(f, agree, f32):
    agree(dace.program(f), f32(7))


def test_a_while_loop_counts_to_a_symbol(agree, f32):
    @dace.program
    def f(X: dace.float32[N], n: dace.int64):
        k = 0
        while k < n:
            X[k] = k
            k += 1
    agree(f, f32(7), 3)
    agree(f, f32(7), 0)

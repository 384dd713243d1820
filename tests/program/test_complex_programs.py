"""Complex numbers in programs: what NumPy gives."""
import numpy as np
import pytest

import dcml as dace
from dcml import _core

TYPES = [np.complex64, np.complex128]


def numbers(dtype, *shape):
    rng = np.random.default_rng(sum(shape))
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)


@pytest.mark.parametrize("dtype", TYPES)
def test_operators(agree, dtype):
    @dace.program
    def f(a, b):
        return a * b + a / b - (-a), 2 * a - 1j * b, a ** 2 + b ** 3, a ** -1, a ** 0.5, a ** b, a ** 0, (3 - 2j) / a
    agree(f, numbers(dtype, 4, 3), numbers(dtype, 3))


@pytest.mark.parametrize("other", [np.float32, np.float64, np.int32, np.int64, bool, np.complex128])
def test_real_numbers_beside_them_widen_as_in_numpy(agree, other):
    @dace.program
    def f(a, x):
        return a * x, x + a, x * 1j, x + 2.5j, np.where(x == 1, a, x)
    agree(f, numbers(np.complex64, 5), (np.arange(5) % 3).astype(other))


def test_a_number_of_python_does_not_hide_the_width_of_an_array(agree):
    @dace.program
    def f(a, b):
        return 2 * a + b, 2.0 * a + b, np.where(a > 0, 2.0 * a, a) + b
    agree(f, np.ones(3), np.ones(3, np.float32))


@pytest.mark.parametrize("dtype", TYPES)
def test_functions(agree, dtype):
    @dace.program
    def f(a):
        return (np.exp(a), np.sqrt(a), np.abs(a), abs(a), np.conj(a), a.conj(), a.real, a.imag, np.real(a), np.imag(a), np.angle(a),
                np.angle(a, deg=True), np.log(a), np.log2(a), np.sin(a), np.cos(a), np.tan(a), np.sinh(a), np.cosh(a), np.tanh(a),
                np.sign(a), np.square(a), np.reciprocal(a), np.isnan(a), np.isfinite(a))
    agree(f, numbers(dtype, 20))


def test_branch_cuts_and_ends_of_the_range_are_numpys(agree):
    @dace.program
    def f(a):
        return np.sqrt(a), np.log(a), np.angle(a), np.abs(a), np.exp(a), a / (1e30 + 1e30j), np.isinf(a)
    z = np.array([complex(-1, 0.), complex(-1, -0.), complex(-4, 1e-30), 0j, 2, 1j, -1j, complex(3e30, -4e30), complex(1e-30, 1e-30)],
                 np.complex64)
    got = agree(f, z)
    assert np.signbit(got[0][1].imag) and not np.signbit(got[0][0].imag) and got[2][1] < 0


def test_parts_of_real_arrays(agree):
    @dace.program
    def f(x):
        return x.real, x.imag, np.conj(x), np.angle(x)
    agree(f, np.array([1., -2., 0.]))


def test_comparisons_and_choices(agree):
    @dace.program
    def f(a, b):
        return a == b, a != b, a == a.conj(), np.where(a == b, a, 1j * a), np.any(a != b), np.logical_not(a)
    a = numbers(np.complex64, 6)
    agree(f, a, np.where(np.arange(6) % 2, a, 0).astype(a.dtype))


@pytest.mark.parametrize("dtype", TYPES)
def test_reductions(agree, dtype):
    @dace.program
    def f(a):
        return np.sum(a), a.sum(axis=0), np.prod(a), np.prod(a, axis=1), np.mean(a), np.var(a), np.std(a, axis=0), np.linalg.norm(a)
    agree(f, numbers(dtype, 5, 4), rtol=1e-4)


def test_products(agree):
    @dace.program
    def f(a, b, x):
        return a @ b, a[0] @ b, a @ x, np.dot(a, b), np.einsum("ij,jk->ki", a, b), np.outer(a[0], b[0]), np.vdot(a[0], b[:, 0]), np.trace(a)
    agree(f, numbers(np.complex64, 4, 5), numbers(np.complex64, 5, 3), np.ones((5, 2), np.float32), rtol=1e-4)


def test_slices_loops_and_arrays_of_their_own(agree):
    @dace.program
    def f(a, b, x):
        a[1:3] = b[2:4]
        a[0] = x[0]
        a[4, :2] = a[4, 1:3] * 1j
        a[3, 3] *= 2j
        b[:] = a.T
        s = 0j
        for k in range(4):
            s = s + a[k, k]
        z = np.zeros((3,), np.complex128)
        z[:] = x[:3]
        return s, z * (1 + 2j), np.ones(3, dtype=np.complex64), np.full((2,), 2j), np.array([1j, 2]), x.astype(np.complex64)
    agree(f, numbers(np.complex64, 5, 5), numbers(np.complex64, 5, 5), np.arange(5.))


def test_types_symbols_scalars_and_tasklets():
    N = dace.symbol("N")
    weights = np.array([1 + 2j, 3, 4j], np.complex64)

    @dace.program
    def f(A: dace.complex64[N, 3], k: dace.complex128, B: dace.complex64[N, 3], total: dace.complex64[1], product: dace.complex64[1]):
        for i, j in dace.map[0:N, 0:3]:
            with dace.tasklet:
                a << A[i, j]
                w << weights[j]
                b >> B[i, j]
                b = a * w + 1j
        B[:] = B * k
        for i, j in dace.map[0:N, 0:3]:
            total[0] += A[i, j]
            product[0] *= A[i, j]
    A = numbers(np.complex64, 4, 3)
    B, total, product = np.zeros_like(A), np.array([1j], np.complex64), np.array([2], np.complex64)
    f(A, 2 - 1j, B, total, product)
    np.testing.assert_allclose(B, (A * weights + 1j) * (2 - 1j), rtol=1e-5)
    np.testing.assert_allclose([total[0], product[0]], [1j + A.sum(), 2 * A.prod()], rtol=1e-4)
    with pytest.raises(_core.DTypeError, match="type c128, expected c64"):
        f(A.astype(np.complex128), 2 - 1j, B, total, product)


@pytest.mark.parametrize("body, error, says", [
    ("np.max(a)", _core.UnsupportedOpError, "no order"), ("a < a", _core.DTypeError, "less of complex numbers"),
    ("np.maximum(a, 1)", _core.DTypeError, "maximum of complex"), ("np.floor(a)", _core.DTypeError, "floor"),
    ("np.cumsum(a)", _core.UnsupportedOpError, "operator CumSum"), ("np.arcsin(a)", _core.DTypeError, "arcsin of complex"),
    ("float(a[0])", _core.UnsupportedOpError, "a.real"), ("x[:] = a", _core.DTypeError, "do not fit into float32"),
    ("a.real[:] = x", _core.UnsupportedOpError, "real part")])
def test_what_has_no_meaning_says_so_with_the_line(tmp_path, body, error, says):
    import importlib.util
    path = tmp_path / "source.py"
    path.write_text(f"import numpy as np\ndef f(a, x):\n    {body if '=' in body else 'return ' + body}\n")
    spec = importlib.util.spec_from_file_location("source", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with pytest.raises(error, match=f"(?s){says}.*source.py:3"):
        dace.program(module.f)(numbers(np.complex64, 4), np.ones(4, np.float32))


def test_gradients_of_real_arrays_go_through_them():
    @dace.program
    def f(A: dace.float64[3]):
        z = np.exp(A * (1 + 2j)) / (A + 1j)
        return np.sum(abs(z) ** 2 + z.real * z.imag)
    a = np.array([0.3, -0.2, 1.1])

    def value(a):
        z = np.exp(a * (1 + 2j)) / (a + 1j)
        return np.sum(abs(z) ** 2 + z.real * z.imag)
    wanted = [(value(a + 1e-6 * e) - value(a - 1e-6 * e)) / 2e-6 for e in np.eye(3)]
    sdfg, gradient = f.to_sdfg(), np.zeros(3)
    dace.autodiff.add_backward_pass(sdfg=sdfg, state=sdfg.nodes()[0], outputs=["__return"], inputs=["A"])
    sdfg(A=a, gradient___return=np.ones(()), gradient_A=gradient)
    np.testing.assert_allclose(gradient, wanted, rtol=1e-5)
    _, (mine,) = _core.Function(f.to_sdfg().graph, wrt=["A"]).vjp([a], [np.ones(())])
    np.testing.assert_allclose(mine, wanted, rtol=1e-5)

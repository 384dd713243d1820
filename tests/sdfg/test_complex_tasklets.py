"""Complex numbers in SDFGs: tasklets, memlets that combine, reductions, tensors, files."""
import numpy as np
import pytest

import dcml as dace


def numbers(*shape):
    rng = np.random.default_rng(sum(shape))
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(np.complex64)


def of_tasklet(code, **arrays):
    """An SDFG with a mapped tasklet over five elements of each array; the last array is the output."""
    sdfg = dace.SDFG("tasklet")
    for name, dtype in arrays.items():
        sdfg.add_array(name, [5], dtype)
    *inputs, output = arrays
    sdfg.add_state().add_mapped_tasklet("t", {"i": "0:5"}, {n.lower(): dace.Memlet(f"{n}[i]") for n in inputs}, code,
                                        {output.lower(): dace.Memlet(f"{output}[i]")}, external_edges=True)
    return sdfg


CODE = """
z = a * x + 1j
if abs(z) > 1:
    z = z / abs(z)
b = exp(z) + np.conj(a) ** 2 + a.real * z.conj() - (a == x) * 2j
"""


def code_of(a, x):
    z = a * x + 1j
    z = np.where(abs(z) > 1, z / abs(z), z)
    return np.exp(z) + a.conj() ** 2 + a.real * z.conj() - (a == x) * 2j


def test_code_of_tasklets_and_files(tmp_path):
    sdfg = of_tasklet(CODE, A=dace.complex64, X=dace.float32, B=dace.complex64)
    a, x, b = numbers(5), np.arange(5, dtype=np.float32), np.zeros(5, np.complex64)
    a[2] = 2
    sdfg(A=a, X=x, B=b)
    np.testing.assert_allclose(b, code_of(a, x), rtol=1e-5)
    sdfg.save(str(tmp_path / "c.sdfg"))
    again, same = dace.SDFG.from_file(str(tmp_path / "c.sdfg")), np.zeros_like(b)
    assert again.arrays["A"].dtype == dace.complex64 == np.complex64
    again(A=a, X=x, B=same)
    assert same.tobytes() == b.tobytes()


def test_tensors_of_torch_and_conjugate_views_of_them():
    torch = pytest.importorskip("torch")
    sdfg = of_tasklet("b = 2 * a", A=dace.complex64, B=dace.complex64)
    a, b = torch.from_numpy(numbers(5)), torch.zeros(5, dtype=torch.complex64)
    for given in (a, a.conj(), a, a.conj()):
        sdfg(A=given, B=b)
        assert torch.equal(b, 2 * given)
    with pytest.raises(dace.Error, match="'B'.*conjugate view"):
        sdfg(A=a, B=b.conj())
    made = sdfg.compile()
    made(A=a, B=b)


@pytest.mark.parametrize("wcr, function", [("lambda p, q: p + q", np.add), ("lambda p, q: p * q", np.multiply)])
def test_memlets_that_combine_and_reductions(wcr, function):
    sdfg = dace.SDFG("combine")
    sdfg.add_array("A", [4, 3], dace.complex128)
    sdfg.add_array("r", [1], dace.complex128)
    sdfg.add_array("B", [3], dace.complex128)
    state = sdfg.add_state()
    state.add_mapped_tasklet("t", {"i": "0:4", "j": "0:3"}, {"a": dace.Memlet("A[i, j]")}, "o = a", {"o": dace.Memlet("r[0]", wcr=wcr)},
                             external_edges=True)
    reduce = state.add_reduce(wcr, [0])
    state.add_edge(state.add_read("A"), None, reduce, None, dace.Memlet("A[0:4, 0:3]"))
    state.add_edge(reduce, None, state.add_write("B"), None, dace.Memlet("B[0:3]"))
    a, r, b = numbers(4, 3).astype(complex), np.array([2 - 1j]), np.zeros(3, complex)
    sdfg(A=a, r=r, B=b)
    np.testing.assert_allclose(r[0], function(2 - 1j, function.reduce(a, None)))
    np.testing.assert_allclose(b, function.reduce(a, 0))


def test_states_copies_transients_and_simplify():
    sdfg = dace.SDFG("states")
    sdfg.add_array("A", [5], dace.complex64)
    sdfg.add_transient("t", [3], dace.complex64)
    sdfg.add_array("B", [3], dace.complex64)
    first = sdfg.add_state()
    first.add_edge(first.add_read("A"), None, first.add_write("t"), None, dace.Memlet("A[1:4]"))
    second = sdfg.add_state_after(first)
    second.add_edge(second.add_read("t"), None, second.add_write("B"), None, dace.Memlet("t[0:3]"))
    a = numbers(5)
    for _ in range(2):
        b = np.zeros(3, np.complex64)
        sdfg(A=a, B=b)
        assert (b == a[1:4]).all()
        sdfg.simplify()


def test_what_has_no_meaning_is_told_by_name():
    numbers_in = dict(A=numbers(5), R=np.zeros(5, np.float32))
    with pytest.raises(dace.Error, match="complex value is written into 'R', which holds f32"):
        of_tasklet("r = a * a", A=dace.complex64, R=dace.float32)(**numbers_in)
    with pytest.raises(dace.Error, match="(?s)'floor' of complex numbers|real numbers"):
        of_tasklet("r = floor(a)", A=dace.complex64, R=dace.float32)(**numbers_in)
    sdfg = of_tasklet("b = a", A=dace.complex64, B=dace.complex64)
    with pytest.raises(dace.Error, match="type c128, expected c64"):
        sdfg(A=numbers(5).astype(complex), B=numbers(5))
    with pytest.raises(dace.Error, match="c64: only floating values are differentiable"):
        dace.autodiff.add_backward_pass(sdfg=sdfg, state=sdfg.nodes()[0], outputs=["B"], inputs=["A"])

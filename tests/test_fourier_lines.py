"""DFT by the library `fourier` against NumPy, its gradient against the transform's own linearity: lengths, axes, numbers of lines."""
import numpy as np
import pytest

from dcml import _core

# pairs, small primes, a prime whose neighbours are not, its double, a line that is cut for the second cache
LENGTHS = (1, 2, 3, 4, 7, 16, 22, 26, 30, 34, 101, 120, 202, 1000, 1009)


def dft(shape, axis, size, inverse=0, onesided=0, kind="f64", opset=20):
    n, parts, where = shape[axis], 1 if inverse and onesided else 2, axis % len(shape)
    size = (2 * (n - 1) if inverse and onesided else n) if size is None else size
    result = [*shape[:-1], parts]
    result[where] = size // 2 + 1 if onesided and not inverse else size
    dims, out = (", ".join(map(str, s)) for s in (shape, result))
    call = "DFT@20(X, N, A)" if opset == 20 else "DFT@17(X, N)"
    return _core.parse(f"""graph dft opset {opset} {{
  input X: {kind}[{dims}]
  const N: i64[] = {{{size}}}
  const A: i64[] = {{{where}}}
  temp Y: {kind}[{out}]
  outputs Y
  state main {{ Y = {call} {{inverse = {inverse}, onesided = {onesided}{'' if opset == 20 else f', axis = {where}'}}} }}
}}""")


def numpys(x, axis, size, inverse, onesided):
    z = x[..., 0] + 1j * (x[..., 1] if x.shape[-1] == 2 else 0)
    axis = axis % x.ndim
    if inverse and onesided:
        return np.fft.irfft(z, size, axis)[..., None]
    y = (np.fft.ifft if inverse else np.fft.fft)(z, size, axis)
    if onesided:
        y = y.take(range(y.shape[axis] // 2 + 1), axis)
    return np.stack([y.real, y.imag], -1)


def check(shape, axis, size=None, kind="f64", opset=20, **how):
    how = {"inverse": 0, "onesided": 0, **how}
    rng = np.random.default_rng(0)
    x, v = (rng.standard_normal(shape).astype("f4" if kind == "f32" else "f8") for _ in range(2))
    function = _core.Function(dft(shape, axis, size, kind=kind, opset=opset, **how), wrt=["X"], backend="interp")
    y, = function(x)
    tolerance = {"f32": 2e-6, "f64": 2e-14}[kind]
    want = numpys(x.astype("f8"), axis, size if size or not (how["inverse"] and how["onesided"]) else 2 * (shape[axis] - 1), **how)
    assert np.linalg.norm(y - want) <= tolerance * (np.linalg.norm(want) + 1), (shape, axis, size, how)
    c = rng.standard_normal(y.shape).astype(y.dtype)
    _, (gradient,) = function.vjp([x], [c])
    assert ": fourier" in str(function.backward_graph)
    moved, seen = np.vdot(np.asarray(function(v)[0], "f8"), c), np.vdot(np.asarray(v, "f8"), gradient)
    assert abs(moved - seen) <= tolerance * np.linalg.norm(gradient) * np.linalg.norm(v), (shape, axis, size, how)


KINDS = [(parts, inverse, onesided) for parts in (1, 2) for inverse in (0, 1) for onesided in (0, 1)]
NAMES = ["-".join([("real", "complex")[p - 1]] + ["inverse"] * i + ["onesided"] * o) for p, i, o in KINDS]


@pytest.mark.parametrize("parts,inverse,onesided", KINDS, ids=NAMES)
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_transforms_and_their_gradients(kind, parts, inverse, onesided):
    for n in LENGTHS:
        for shape, axis in ((3, n, parts), 1), ((19, n, parts), 1), ((n, 20, parts), 0), ((2, n, 3, parts), 1):
            check(shape, axis, n if n == 1 or inverse and onesided and n % 2 == 0 else None, kind, inverse=inverse, onesided=onesided)


@pytest.mark.parametrize("parts,inverse,onesided", KINDS, ids=NAMES)
def test_lines_are_cut_and_filled_with_zeros(parts, inverse, onesided):
    for n, size in (10, 7), (10, 8), (9, 15), (9, 16), (40, 101), (64, 3):
        check((5, n, parts), 1, size, inverse=inverse, onesided=onesided)
        check((n, 17, parts), 0, size, inverse=inverse, onesided=onesided)


@pytest.mark.parametrize("parts,inverse,onesided", KINDS, ids=NAMES)
def test_long_lines_are_split(parts, inverse, onesided):
    for n in (4096, 2 * 5003, 6561, 10007):
        check((1, n, parts), 1, n, inverse=inverse, onesided=onesided)
    check((9, 9000, parts), 1, 9000, "f32", inverse=inverse, onesided=onesided)
    check((8192, 3, parts), 0, 8192, inverse=inverse, onesided=onesided)


def test_the_older_version_has_its_axis_as_an_attribute():
    check((3, 12, 5, 2), 2, opset=17)
    check((3, 12, 2), 1, 10, opset=17, inverse=1)


def test_a_line_does_not_feel_its_neighbours():
    x = np.random.default_rng(0).standard_normal((32, 30, 1)).astype("f4")
    function = _core.Function(dft(x.shape, 1, None, kind="f32"), backend="interp")
    alone = np.concatenate([function(np.roll(x, -k, 0))[0][:1] for k in range(32)])
    x[5] = np.nan
    y, = function(x)
    assert np.isnan(y[5]).all() and (np.delete(y, 5, 0) == np.delete(alone, 5, 0)).all()


def test_nothing_to_transform():
    y, = _core.Function(dft((0, 8, 2), 1, None), backend="interp")(np.zeros((0, 8, 2)))
    assert y.shape == (0, 8, 2)

"""The row of DFT, by factors, against NumPy: lengths of one factor and of many, padded, cut, inverse and of one side."""
import numpy as np
import pytest

from dcml import _core

LENGTHS = [1, 16, 17, 18, 34, 97, 100, 289, 360]


def transform(shape, axis, length, result, **attributes):
    said = ", ".join(f"{k} = {v}" for k, v in attributes.items())
    dims, out = (", ".join(map(str, s)) for s in (shape, result))
    return _core.Function(_core.parse(f"""graph dft opset 20 {{
  input X: f64[{dims}]
  const n: i64[] = {{{length}}}
  const a: i64[] = {{{axis}}}
  temp Y: f64[{out}]
  outputs Y
  state main {{ Y = DFT@20(X, n, a) {{{said}}} }}
}}"""), backend="interp", natives="none")


def parts(z):
    return np.stack([z.real, z.imag], -1)


@pytest.mark.parametrize("n", LENGTHS)
def test_complex_numbers_both_ways(n):
    x = np.random.default_rng(n).standard_normal((2, n, 3, 2))
    for inverse, fft in (0, np.fft.fft), (1, np.fft.ifft):
        got = transform(x.shape, 1, n, x.shape, inverse=inverse)(x)[0]
        np.testing.assert_allclose(got, parts(fft(x[..., 0] + 1j * x[..., 1], axis=1)), atol=1e-12 * n)


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("given", [0.7, 1, 1.3], ids=["padded", "whole", "cut"])
def test_real_numbers_of_one_side_there_and_back(n, given):
    given, half = max(1, int(given * n)), n // 2 + 1
    x = np.random.default_rng(n).standard_normal((2, given, 1))
    there = transform(x.shape, 1, n, (2, half, 2), onesided=1)(x)[0]
    np.testing.assert_allclose(there, parts(np.fft.rfft(x[..., 0], n, 1)), atol=1e-12 * n)
    back = transform(there.shape, 1, n, (2, n, 1), onesided=1, inverse=1)(there)[0]
    np.testing.assert_allclose(back[..., 0], np.fft.irfft(there[..., 0] + 1j * there[..., 1], n, 1), atol=1e-12 * n)

"""Variances on the CUDA target, which are taken in one pass over the data: as near to the exact ones as sums of float32 are."""
import numpy as np
import pytest

from dcml import _core

GRAPH = """graph g opset 15 {
  symbol N >= 1
  input X: f32[N, 3, 40, 40]
  input S: f32[3]
  input B: f32[3]
  input M: f32[3]
  input V: f32[3]
  temp Y: f32[N, 3, 40, 40]
  temp RM: f32[3]
  temp RV: f32[3]
  outputs RM, RV
  state main {
    Y, RM, RV = BatchNormalization@15(X, S, B, M, V) {training_mode = 1, momentum = 0.0}
  }
}
"""


def _with_outliers(x):
    return np.where(np.arange(x.size).reshape(x.shape) % 1600, x, 1e3 * x)


DATA = {
    "normal": (lambda x: x, 2e-7),
    "far from zero": (lambda x: x + 1000, 1e-5),
    "constant": (lambda x: 0 * x + 3, 0),
    "one element far from all others, and it is the first of its part": (_with_outliers, 1e-4),
}


@pytest.mark.parametrize("name", DATA)
def test_variances_in_one_pass(fake, name):
    change, tolerance = DATA[name]
    x = change(np.random.default_rng(3).standard_normal((5, 3, 40, 40))).astype(np.float32)
    given = [x, *(np.ones(3, np.float32) for _ in range(4))]
    mean, variance = _core.Function(_core.parse(GRAPH), backend="cuda", natives="none")(*given)
    exact = x.astype(np.float64)
    np.testing.assert_allclose(mean, exact.mean((0, 2, 3)), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(variance, exact.var((0, 2, 3)), rtol=tolerance, atol=1e-30)
    assert not fake.fault()

"""Rows that are longer than registers hold, on the CUDA target: a softmax's sum in one pass over the row."""
import numpy as np
import pytest

from dcml import _core

GRAPH = """graph g opset 13 {{
  symbol N >= 0
  input X: f32[N, {length}]
  temp Y: f32[N, 1]
  outputs Y
  state main {{
    Y = ReduceLogSumExp@13(X) {{axes = ints [1]}}
  }}
}}
"""


def _rows(length):
    x = np.random.default_rng(2).standard_normal((7, length)).astype(np.float32)
    x[1, :length // 2] = -np.inf      # whole parts of a row
    x[2] = -np.inf
    x[3, 5] = np.inf
    x[4, -1] = np.nan
    x[5, 100:] += 1000
    return x


@pytest.mark.parametrize("length", [16384, 17500, 16411])
def test_a_sum_of_exponentials_of_a_long_row(fake, length):
    x = _rows(length)
    (want,) = _core.Function(_core.parse(GRAPH.format(length=length)), backend="interp", natives="none")(x)
    (got,) = _core.Function(_core.parse(GRAPH.format(length=length)), backend="cuda", natives="none")(x)
    np.testing.assert_allclose(got, want, rtol=1e-5)
    (none,) = _core.Function(_core.parse(GRAPH.format(length=length)), backend="cuda", natives="none")(x[:0])
    assert none.shape == (0, 1) and not fake.fault()

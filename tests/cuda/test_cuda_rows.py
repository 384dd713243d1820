"""Rows that are longer than registers hold, on the CUDA target: a softmax's sum in one pass over the row."""
import numpy as np
import pytest

from dcml import _core

HEAD = """graph g opset 13 {{
  symbol N >= 0
  input X: f32[N, {length}]
  input L: i64[N]
"""
GRAPHS = {
    "logarithm": HEAD + """  temp Y: f32[N, 1]
  outputs Y
  state main {{
    Y = ReduceLogSumExp@13(X) {{axes = ints [1]}}
  }}
}}
""",
    "cross entropy": HEAD + """  temp Y: f32[N]
  outputs Y
  state main {{
    Y = SoftmaxCrossEntropyLoss@13(X, L) {{reduction = "none"}}
  }}
}}
"""}


def _rows(length):
    x = np.random.default_rng(2).standard_normal((7, length)).astype(np.float32)
    x[1, :length // 2] = -np.inf      # whole parts of a row
    x[2] = -np.inf
    x[3, 5] = np.inf
    x[4, -1] = np.nan
    x[5, 100:] += 1000
    return x


def _function(kind, length, backend):
    graph = _core.parse(GRAPHS[kind].format(length=length))
    return _core.Function(graph, backend=backend, natives="none")


@pytest.mark.parametrize("kind", GRAPHS)
@pytest.mark.parametrize("length", [16384, 17500, 16411])
def test_a_sum_of_exponentials_of_a_long_row(fake, kind, length):
    x, labels = _rows(length), np.arange(7) * 5
    (want,) = _function(kind, length, "interp")(x, labels)
    (got,) = _function(kind, length, "cuda")(x, labels)
    np.testing.assert_allclose(got, want, rtol=1e-5)
    (none,) = _function(kind, length, "cuda")(x[:0], labels[:0])
    assert none.shape[0] == 0 and not fake.fault()

"""Kernels that read across and write along on the CUDA target: tiles in shared memory give what the interpreter gives."""
import numpy as np
import pytest

from dcml import _core

TYPES = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bool": np.bool_, "i8": np.int8}
rng = np.random.default_rng(5)


def _graph(kind, declared, body, b="B", n="N", m="M"):
    symbols = "".join(f"  symbol {s} >= 0\n" for s in (b, n, m) if s.isupper())
    return _core.parse(f"""graph g opset 21 {{
{symbols}  input X: {kind}[{b}, {n}, {m}]
{declared}  temp Y: {kind}[{b}, {m}, {n}]
  outputs Y
  state main {{
    map b in 0:{b}, i in 0:{m}, j in 0:{n} {{
      Y[b, i, j] = {body}
    }}
  }}
}}
""")


def _values(kind, *shape):
    return rng.integers(0, 2, shape).astype(bool) if kind == "bool" else rng.integers(-99, 99, shape).astype(TYPES[kind])


def _run(graph, arrays, fake):
    (want,) = _core.Function(graph, backend="interp", natives="none")(*arrays)
    for seed in (0, 1, 2):
        fake.set(SEED=seed)
        (got,) = _core.Function(graph, backend="cuda", natives="none")(*arrays)
        np.testing.assert_array_equal(got, want)
    assert not fake.fault()


@pytest.mark.parametrize("kind", TYPES)
def test_transposes_of_any_type(fake, kind):
    _run(_graph(kind, "", "X[b, j, i]", "3", "70", "33"), [_values(kind, 3, 70, 33)], fake)


@pytest.mark.parametrize("shape", [(2, 64, 32), (1, 1, 40), (2, 40, 1), (0, 40, 40), (2, 0, 40), (1, 31, 97)])
def test_transposes_of_any_extent(fake, shape):
    _run(_graph("f32", "", "X[b, j, i] * 2.0f"), [_values("f32", *shape)], fake)


def test_several_tiles_beside_what_is_read_along(fake):
    declared = "  input V: f32[B, N, M]\n  input W: f32[B, M, N]\n  input s: f32[M]\n"
    graph = _graph("f32", declared, "X[b, j, i] * V[b, j, i] + W[b, i, j] * s[i] - X[b, j, i]")
    _run(graph, [_values("f32", *shape) for shape in ((2, 50, 45), (2, 50, 45), (2, 45, 50), (45,))], fake)


def test_reads_on_a_condition_stay_where_they_are_safe(fake):
    graph = _graph("f32", "  input I: i64[M]\n", "I[i] < 2 ? X[b, j, I[i] < 0 ? 0 : I[i]] : X[b, j, i]")
    _run(graph, [_values("f32", 2, 40, 36), rng.integers(0, 5, 36)], fake)


def test_a_transpose_stands_in_tiles_of_shared_memory():
    graph = _graph("f32", "", "X[b, j, i]", "3", "70", "33")
    (node,) = [node for node, *_ in graph.nodes(0)]
    text = graph.kernel(node)
    for name, _ in _core.kernel_passes("cuda"):
        text = _core.run_kernel_pass(text, name)
    code = _core.kernel_code(text, "cuda")
    assert "__shared__ float tile0[1056];" in code and _core.kernel_launches(text, {})[0][0][1:3] == (3 * 2 * 3, 256)


@pytest.mark.parametrize("kind", ["bf16", "f32"])
def test_rows_of_packs_that_share_factors(fake, kind):
    """So many rows that a thread takes several at a time."""
    graph = _core.parse(f"""graph g opset 21 {{
  input X: f32[131072, 64]
  input scale: f32[64]
  input shift: f32[64]
  temp H: {kind}[131072, 64]
  temp Y: f32[131072, 64]
  outputs Y
  state main {{
    map i in 0:131072, c in 0:64 {{
      H[i, c] = {kind}(X[i, c])
    }}
    map i in 0:131072, c in 0:64 {{
      Y[i, c] = max(f32(H[i, c]) * scale[c] + shift[c], 0.0f)
    }}
  }}
}}
""")
    texts = [graph.kernel(node) for node, *_ in graph.nodes(0)]
    for name, _ in _core.kernel_passes("cuda"):
        texts = [_core.run_kernel_pass(text, name) for text in texts]
    assert ["turns(" in text for text in texts] == [False, True]
    _run(graph, [rng.standard_normal((131072, 64)).astype(np.float32), *rng.standard_normal((2, 64)).astype(np.float32)], fake)

"""TopK by the library `select` against its row: order of equals, NaN, zeros, all types, any axis."""
import numpy as np
import pytest

from dcml import _core

TYPES = {"f16": np.float16, "f32": np.float32, "f64": np.float64, **{f"{k}{b}": np.dtype(f"{n}{b}").type for k, n in (("i", "int"), ("u", "uint")) for b in (8, 16, 32, 64)}}


def topk(shape, k, axis, largest, kind="f32", **options):
    dims, result = (", ".join(map(str, s)) for s in (shape, [k if d == axis % len(shape) else n for d, n in enumerate(shape)]))
    return _core.Function(_core.parse(f"""graph topk opset 24 {{
  input X: {kind}[{dims}]
  const K: i64[1] = {{{k}}}
  temp V: {kind}[{result}]
  temp I: i64[{result}]
  outputs V, I
  state main {{ V, I = TopK@24(X, K) {{axis = {axis}, largest = {int(largest)}}} }}
}}"""), **options)


def agree(x, k, axis, largest, kind):
    got, want = (topk(x.shape, k, axis, largest, kind, **options)(x) for options in ({}, {"natives": "none", "backend": "interp"}))
    for a, b in zip(got, want):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("largest", [False, True], ids=["least", "greatest"])
@pytest.mark.parametrize("kind", TYPES)
def test_the_library_orders_as_the_row_does(kind, largest):
    rng = np.random.default_rng(0)
    x = rng.integers(-9 if kind[0] != "u" else 0, 9, (3, 70, 2)).astype(TYPES[kind])  # many are equal
    if kind[0] == "f":
        x[rng.random(x.shape) < 0.2] = np.nan
        x[rng.random(x.shape) < 0.2] = -0.0
        x[0, :9, 0] = [np.inf, -np.inf, -np.nan, 1e-7, -1e-7, np.finfo(x.dtype).tiny, np.inf, -np.inf, np.finfo(x.dtype).smallest_subnormal]
    else:
        x[0, :4, 0] = [np.iinfo(x.dtype).min, np.iinfo(x.dtype).max] * 2
    for k, axis in (1, 1), (3, -2), (20, 1), (70, 1), (0, 1), (2, 2), (3, 0):  # a heap, a sort, lines short enough to rank
        agree(x, k, axis, largest, kind)


def test_lines_shared_by_threads_and_one_long_line():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((64, 1500), np.float32)
    values, places = topk(x.shape, 1500, 1, False)(x)
    np.testing.assert_array_equal(values, np.sort(x, 1))
    np.testing.assert_array_equal(places, np.argsort(x, 1, kind="stable"))
    values, _ = topk((1 << 17,), 100, 0, True)(x := rng.standard_normal(1 << 17, np.float32))
    np.testing.assert_array_equal(values, np.sort(x)[::-1][:100])


@pytest.mark.parametrize("kind", ["f32", "f64", "i64", "u64"])
@pytest.mark.parametrize("span", [0, 200, 1 << 31, 1 << 33, 1 << 62])  # of whole numbers: keys of as many bytes
def test_a_long_line_is_sorted_in_pieces(kind, span):
    x = (np.random.default_rng(3).integers(0, span + 1, 1 << 16) + (0 if kind == "u64" else -span // 2)).astype(TYPES[kind])
    for largest in (False, True):
        values, places = topk(x.shape, len(x), 0, largest, kind)(x)
        order = np.argsort(-x if largest and kind != "u64" else ~x if largest else x, kind="stable")
        np.testing.assert_array_equal(places, order)
        np.testing.assert_array_equal(values, x[order])


def test_the_library_is_named_in_the_graph():
    function = topk((4, 4), 2, 1, True)
    function(np.zeros((4, 4), np.float32))
    assert ": select" in str(function.forward_graph)


@pytest.mark.parametrize("kind", ["f32", "f64", "i16"])  # keys beside their places, and in one number with them
def test_a_half_of_a_line_is_found_before_it_is_sorted(kind):
    rng = np.random.default_rng(2)
    few = rng.integers(-3, 3, (3, 300)).astype(TYPES[kind])  # the last one has equals behind it
    alone = np.full((2, 300), 7, TYPES[kind])
    for x in (few, rng.permuted(np.arange(600).reshape(2, 300), axis=1).astype(TYPES[kind]), alone):
        for k in (19, 50, 150, 225, 299):
            agree(x, k, 1, k % 2, kind)

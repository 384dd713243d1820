"""cuBLASLt and cuDNN serve operators on a GPU that is not there: what runs by them equals the interpreter."""
import numpy as np
import pytest

from dcml import _core

NETWORK = """graph g {
  symbol N >= 1
  input X: f32[N, 8, 6, 6]
  input P: f32[N, 16]
  input W: f32[16, 8, 3, 3]
  input B: f32[16]
  input V: f32[16, 16, 3, 3]
  input R: f32[5, 16]
  input D: f32[5]
  temp A: f32[N, 16, 6, 6]
  temp H: f32[N, 16, 6, 6]
  temp Y: f32[N, 16, 3, 3]
  temp T: f32[16, 5]
  temp Q: f32[N, 5]
  temp Z: f32[N, 5]
  outputs Y, Z
  state main {
    A = Conv@11(X, W, B) {pads = ints [1, 1, 1, 1]}
    H = Relu@14(A)
    Y = Conv@11(H, V) {pads = ints [0, 0, 1, 1], strides = ints [2, 2]}
    T = Transpose@13(R) {perm = ints [1, 0]}
    Q = MatMul@13(P, T)
    Z = Add@14(Q, D)
  }
}"""


def _arrays(n):
    draw = np.random.default_rng(3)
    shapes = (n, 8, 6, 6), (n, 16), (16, 8, 3, 3), (16,), (16, 16, 3, 3), (5, 16), (5,)
    return [draw.standard_normal(shape).astype(np.float32) for shape in shapes]


def _on_gpu(text=NETWORK):
    return _core.Function(_core.parse(text), backend="cuda")


@pytest.fixture
def switches():
    yield
    _core.allow_tf32(False, True)


def test_a_network_runs_by_the_libraries(switches):
    _core.allow_tf32(False, False)
    run, oracle = _on_gpu(), _core.Function(_core.parse(NETWORK), backend="interp", natives="none")
    for n in (2, 3):
        arrays = _arrays(n)
        for got, wanted in zip(run(*arrays), oracle(*arrays), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=1e-4)
    by = [step["by"] for step in run.report()[0]["steps"]]
    assert by.count("cudnn") == 2 and by.count("cublas") == 1


def test_products_that_add_up_are_added_where_they_are_read():
    """Two products are added to a third, and a fourth reads what comes of it."""
    adds = "".join(f"    map i in 0:N, j in 0:16 {{\n      A[i, j] sum= {name}[i, j]\n    }}\n" for name in ("B", "C"))
    text = f"""graph sums {{
  symbol N >= 1
  input X: f32[N, 16]
  input W: f32[16, 16]
  temp A: f32[N, 16]
  temp B: f32[N, 16]
  temp C: f32[N, 16]
  temp Y: f32[N, 16]
  temp Q: f32[N, 16]
  outputs Y, Q
  state main {{
    A = MatMul@13(X, W)
    B = MatMul@13(A, W)
    C = MatMul@13(B, W)
{adds}    map i in 0:N, j in 0:16 {{
      Y[i, j] = A[i, j] <= 0.0f ? 0.0f : A[i, j]
    }}
    Q = MatMul@13(A, W)
  }}
}}"""
    draw = np.random.default_rng(3)
    arrays = [draw.standard_normal((7, 16)).astype(np.float32), draw.standard_normal((16, 16)).astype(np.float32) / 4]
    run = _on_gpu(text)
    for got, wanted in zip(run(*arrays), _core.Function(_core.parse(text), backend="interp", natives="none")(*arrays), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=1e-4)
    assert [step["by"] for step in run.report()[0]["steps"]].count("cublas") == 4


def test_a_switch_of_tf32_counts_from_the_next_call_on(switches):
    run, arrays = _on_gpu(), _arrays(2)

    def results(products, convolutions):
        _core.allow_tf32(products, convolutions)
        return run(*arrays)

    exact = results(False, False)
    for products, convolutions in ((True, False), (False, True), (True, True), (False, False)):
        y, z = results(products, convolutions)
        assert np.array_equal(y, exact[0]) != convolutions
        assert np.array_equal(z, exact[1]) != products
        np.testing.assert_allclose(y, exact[0], rtol=0.05, atol=0.05)


def test_a_library_that_nobody_asks_for_runs_nothing():
    run = _core.Function(_core.parse(NETWORK), backend="cuda", natives="none")
    run(*_arrays(2))
    assert not {"cudnn", "cublas"} & {step["by"] for step in run.report()[0]["steps"]}


FEW_CHANNELS = """graph few {
  symbol N >= 1
  input X: f32[N, 3, 9, 8]
  input W: f32[16, 3, 3, 3]
  input B: f32[16]
  temp Q: TYPE[N, 3, 9, 8]
  temp V: TYPE[16, 3, 3, 3]
  temp C: TYPE[16]
  temp A: TYPE[N, 16, 5, 4]
  temp H: TYPE[N, 16, 5, 4]
  temp Y: f32[N, 16, 5, 4]
  outputs Y
  state main {
    Q = Cast@13(X) {to = NUMBER}
    V = Cast@13(W) {to = NUMBER}
    C = Cast@13(B) {to = NUMBER}
    A = Conv@11(Q, V, C) {pads = ints [PADS], strides = ints [2, 2]}
    H = Relu@14(A)
    Y = Cast@13(H) {to = 1}
  }
}"""


@pytest.mark.parametrize("pads", ["1, 0, 1, 1", "1, 1, 1, 0"], ids=["uneven", "even"])
@pytest.mark.parametrize(("kind", "number", "channels", "error"), [("f32", 1, 4, 2e-5), ("f16", 10, 8, 4e-3), ("bf16", 16, 8, 3e-2)])
def test_an_image_of_three_channels_is_filled_up_to_what_cudnn_loads_at_once(switches, kind, number, channels, error, pads):
    _core.allow_tf32(False, False)
    text = FEW_CHANNELS.replace("TYPE", kind).replace("NUMBER", str(number)).replace("PADS", pads)
    run, oracle = (_core.Function(_core.parse(text), backend=backend, natives=natives, wrt=["X", "W", "B"])
                   for backend, natives in (("cuda", None), ("interp", "none")))
    for n in (2, 3):
        draw = np.random.default_rng(n)
        arrays = [draw.standard_normal(shape).astype(np.float32) for shape in ((n, 3, 9, 8), (16, 3, 3, 3), (16,))]
        seed = draw.standard_normal((n, 16, 5, 4)).astype(np.float32)
        (got, gradients), (wanted, expected) = run.vjp(arrays, [seed]), oracle.vjp(arrays, [seed])
        for mine, other in zip([*got, *gradients], [*wanted, *expected], strict=True):
            np.testing.assert_allclose(mine, other, rtol=error, atol=error * abs(other).max())
    assert [value["shape"][1] for value in run.report()[0]["values"] if value["name"].endswith("_filled")] == [channels, channels]

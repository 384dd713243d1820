"""Operators written with numpy."""
import numpy as np
import pytest

import dcml
from dcml.onnx import python_pure_op_implementation
from dcml.onnx.pure import row_of

SCALE = 3


def Softplus(X, Y):
    Y[:] = np.log(1 + np.exp(X))


def Softmax(X, Y):
    E = np.exp(X - np.max(X, axis=-1, keepdims=True))
    Y[:] = E / np.sum(E, axis=-1, keepdims=True)


def Dense(X, W, B, Y):
    Y[...] = np.maximum(X @ W.T + B, 0)


def Leaky(X, Y, alpha=0.01):
    Y[:] = np.where(X < 0, alpha * X, SCALE * X)


def Stats(X, M, V):
    """Two outputs."""
    m = X.mean(axis=0)
    M[:] = m
    V[:] = np.mean((X - m) ** 2)


def test_element_wise_body_is_one_statement():
    assert row_of(Softplus).startswith("Softplus.1,22 (X:T[D_X..]) -> (Y:T[D_Y..]) with T in float")
    assert "Y[d_y..] = log((1 + exp(X[^d_y..])))" in row_of(Softplus)


def test_defaults_are_attributes():
    assert "(X:T[D_X..]; alpha=0.01)" in row_of(Leaky)
    assert "3 * X" in row_of(Leaky)


@pytest.mark.parametrize("line, part", [
    ("Y[0] = X", "a part of an output"), ("Y[:] = np.fft.fft(X)", "method 'fft'"),
    ("Y[:] = X if X else 0", "np.where"), ("for i in X: pass\n    Y[:] = X", "For statements"),
    ("Y[:] = Z", "'Z' is neither"), ("Y[:] = X[0]", "Subscript"), ("Y[:] = np.sum(X, out=X)", "this use of sum"),
    ("Y[:] = 1", "depends on no input"), ("pass", "no output is assigned"), ("Y += X\n    Y[:] = X", "AugAssign"),
    ("Y[:] = Y + X", "read before"), ("Y[:] = 'a'", "constant 'a'")])
def test_what_is_not_understood_is_named_with_its_line(tmp_path, line, part):
    source = tmp_path / "operators.py"
    source.write_text(f"import numpy as np\n\ndef Op(X, Y):\n    {line}\n")
    scope = {}
    exec(compile(source.read_text(), str(source), "exec"), scope)
    with pytest.raises(dcml.UnsupportedOpError, match=f"(?s)operator Op: .*({part}).*operators.py:[345]"):
        row_of(scope["Op"])


def run(op, arrays, n_outputs=1, **attrs):
    from dcml import _core
    graph = _core.Graph("g", 21)
    names = [graph.add_input(f"i{k}", {"f": 1, "b": 9}[a.dtype.kind], list(a.shape)) for k, a in enumerate(arrays)]
    for name in graph.add_node(op, names, n_outputs, attrs):
        graph.mark_output(name)
    return _core.Function(graph)(*arrays)


def f32(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("function, inputs, attrs, want", [
    (Softmax, [f32(2, 3, 4)], {}, lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True)),
    (Dense, [f32(2, 3, 4), f32(5, 4), f32(5)], {}, lambda x, w, b: np.maximum(x @ w.T + b, 0)),
    (Leaky, [f32(3, 4)], {"alpha": 0.5}, lambda x: np.where(x < 0, 0.5 * x, 3 * x)),
])
def test_the_row_computes_what_numpy_computes(function, inputs, attrs, want):
    python_pure_op_implementation(name="Own" + function.__name__)(function)
    got, = run("Own" + function.__name__, inputs, **attrs)
    np.testing.assert_allclose(got, want(*inputs), rtol=1e-5, atol=1e-6)


def test_two_outputs():
    python_pure_op_implementation(name="OwnStats")(Stats)
    x = f32(4, 3)
    mean, spread = run("OwnStats", [x], 2)
    np.testing.assert_allclose(mean, x.mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(spread, ((x - x.mean(0)) ** 2).mean(), rtol=1e-5)


def test_decorator_redefines_a_standard_operator():
    @python_pure_op_implementation
    def HardSwish(X, Y):
        Y[:] = X * np.clip(X / 6 + 0.5, 0, 1)
    assert HardSwish.row.startswith("HardSwish.14,22 ")
    x = f32(5)
    got, = run("HardSwish", [x])
    np.testing.assert_allclose(got, x * np.clip(x / 6 + 0.5, 0, 1), rtol=1e-5)

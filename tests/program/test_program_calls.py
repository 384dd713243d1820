"""How programs are called."""
import subprocess
import sys

import numpy as np
import pytest
import torch

import dcml
import dcml as dace
import dcml.onnx as donnx
from dcml import dtypes

N, M, K = dace.symbol("N"), dace.symbol("M"), dace.symbol("K")


@dace.program
def scaled(X: dtypes.float32[3], a: dtypes.float64, Z: dtypes.float32[3]):
    Z[:] = X * a
    return Z.sum()


def test_arrays_are_written_in_place_and_results_are_returned(f32):
    x, z = f32(3), np.zeros(3, np.float32)
    total = scaled(x, 2, z)
    np.testing.assert_allclose(z, 2 * x, rtol=1e-6)
    np.testing.assert_allclose(total, z.sum(), rtol=1e-5)
    scaled(a=3.0, Z=z, X=x)
    np.testing.assert_allclose(z, 3 * x, rtol=1e-6)


def test_tensors_of_torch_are_arguments_and_results():
    @dace.program
    def f(X, Z):
        Z[:] = X + 1
        return X * 2

    x, z = torch.arange(3.0), torch.zeros(3)
    assert torch.equal(torch.as_tensor(f(x, z)), x * 2) and torch.equal(z, x + 1)


@pytest.mark.parametrize("args, error, says", [
    ((np.ones(3, np.float32), 2), dcml.ValueError_, "'Z'"),
    ((np.ones(4, np.float32), 2, np.ones(3, np.float32)), dcml.ShapeError, "'X'"),
    ((np.ones(3), 2, np.ones(3, np.float32)), dcml.DTypeError, "'X' has type"),
    ((np.ones(3, np.float32), "2", np.ones(3, np.float32)), dcml.Error, "'a'"),
    ((np.ones(3, np.float32), 2, np.ones(3, np.float32), 4), dcml.ValueError_, "argument")])
def test_wrong_arguments_are_named(args, error, says):
    for _ in range(2):  # the first call translates, the second goes straight to the core
        with pytest.raises(error, match=says):
            scaled(*args)
    with pytest.raises(dcml.ValueError_, match="'Q'"):
        scaled(np.ones(3, np.float32), 2, np.ones(3, np.float32), Q=1)


def test_defaults_and_keywords(agree, f32):
    @dace.program
    def f(X, factor=2.0, shift=None, *, negate=False):
        Y = X * factor
        if shift is not None:
            Y = Y + shift
        return -Y if negate else Y

    agree(f, f32(3))
    agree(f, f32(3), 4.0)
    agree(f, f32(3), shift=f32(3))
    agree(f, f32(3), negate=True)


def test_a_graph_for_each_type_and_rank_and_no_more(f32):
    @dace.program
    def f(X):
        return X + 1

    for x in f32(3), f32(5), f32(3, 4), f32(4, 4), f32(3).astype(float), f32(7):
        np.testing.assert_allclose(f(x), x + 1, rtol=1e-6)
    assert len(f._graphs) == 4


def test_several_results_and_none(f32):
    @dace.program
    def two(X):
        return X + 1, X

    @dace.program
    def one_in_a_tuple(X):
        return (X + 1,)

    @dace.program
    def none(X):
        X[0] = 1

    x = f32(3)
    a, b = two(x)
    assert np.allclose(a, x + 1) and np.allclose(b, x) and b is not x
    assert isinstance(one_in_a_tuple(x), tuple) and none(x) is None


def test_outputs_are_called_return(f32):
    @dace.program
    def f(X: dtypes.float32[3]):
        return X + 1, X * 2

    assert list(f.to_sdfg().graph.outputs) == ["__return_0", "__return_1"]


def test_to_sdfg_needs_types_or_examples(f32):
    @dace.program
    def f(X):
        return X + 1

    with pytest.raises(dcml.ValueError_, match=r"argument 'X' has no type; annotate it, say X: dcml.float32\[5, 4\]"):
        f.to_sdfg()
    assert "X + 1" not in str(f.to_sdfg(f32(3))) and "input X: f32" in str(f.to_sdfg(f32(3)))


def test_dcml_itself_is_the_decorator(f32):
    @dace
    def f(X):
        return X + 1

    @dace.program(auto_optimize=False)
    def g(X):
        return X + 1

    np.testing.assert_allclose(f(f32(3)), g(f32(3)))
    assert f.name == "f" and f.__wrapped__ is f.f and repr(f) == "Program('f')"


def test_one_map_for_each_operation():
    @dace.program
    def f(A: dtypes.float32[5, 5]):
        return A + 1 + A * 3

    assert str(f.to_sdfg()).count("map ") == 3


def test_nodes_of_onnx(f32):
    @dace.program
    def f(X, W, Z):
        out = np.ndarray([2, 4, 6, 6], dtype=np.float32)
        donnx.ONNXConv("conv", X=X, W=W, Y=out, pads=[1, 1, 1, 1])
        donnx.ONNXSoftmax(input=Z[1:], output=Z[1:], axis=1)
        return out

    x, w, z = f32(2, 3, 6, 6), f32(4, 3, 3, 3), f32(3, 5)
    before = torch.from_numpy(z.copy())
    want = torch.conv2d(torch.from_numpy(x), torch.from_numpy(w), padding=1).numpy()
    np.testing.assert_allclose(f(x, w, z), want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(z[1:], before[1:].softmax(1).numpy(), rtol=1e-5)
    np.testing.assert_allclose(z[0], before[0].numpy())


@pytest.mark.parametrize("call, says", [
    ("donnx.ONNXRelu(X=X)", "ONNXRelu needs an array for 'Y'"),
    ("donnx.ONNXRelu(X=X, Y=X, Q=X)", "no parameter 'Q'"),
    ("donnx.ONNXRelu(X=X, Y=X, beta=1)", "no attribute 'beta'")])
def test_wrong_nodes_of_onnx_are_named(tmp_path, call, says):
    path = tmp_path / "nodes.py"
    path.write_text(f"import dcml\nimport dcml.onnx as donnx\n\n@dcml.program\ndef f(X):\n    {call}\n")
    scope = {}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    with pytest.raises(dcml.Error, match=f"{says}.*nodes.py:6"):
        scope["f"](np.ones((2, 3), np.float32))


def test_importing_dcml_does_not_import_numpy():
    code = "import sys, dcml; assert 'numpy' not in sys.modules; import dcml.program; assert callable(dcml.program)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_programs_sdfgs_and_modules_are_called(f32):
    @dace.program
    def inner(A: dtypes.float32[N, M], B: dtypes.float32[N, M], a: dtypes.float64):
        B[0] = 7
        return A * a, B.sum()

    sdfg = inner.to_sdfg()
    module = dcml.DaceModule(torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2)))  # its result is named "1"

    @dace.program
    def f(X: dtypes.float32[5, 4], Z: dtypes.float32[6, 4], W: dtypes.float32[K, 4]):
        p, q = sdfg(X, Z[1:], 2)
        r, s = inner(W, W + 1, 3.0)
        t, _ = sdfg(A=W, B=W * 2, a=1)
        return p, q, r, s, t, module(X) + 1

    x, z, w = f32(5, 4), f32(6, 4), f32(3, 4)
    before = z.copy()
    p, q, r, s, t, u = f(x, z, w)
    before[1] = 7
    np.testing.assert_allclose(z, before)
    np.testing.assert_allclose(p, 2 * x, rtol=1e-6)
    np.testing.assert_allclose(q, z[1:].sum(), rtol=1e-5)
    np.testing.assert_allclose(r, 3 * w, rtol=1e-6)
    np.testing.assert_allclose(s, 28 + (w + 1)[1:].sum(), rtol=1e-5)
    np.testing.assert_allclose(t, w, rtol=1e-6)
    np.testing.assert_allclose(u, 1 + module.model(torch.from_numpy(x)).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_wrong_calls_of_sdfgs_are_named(f32):
    @dace.program
    def inner(A: dtypes.float32[3]):
        return A * 2

    sdfg = inner.to_sdfg()

    @dace.program
    def f(X):
        return sdfg(X)

    with pytest.raises(dcml.ShapeError, match=r"extents .*3 and 4 do not fit.*test_program_calls.py|4 and 3"):
        f(f32(4))
    with pytest.raises(dcml.DTypeError, match="argument 'A' is of float64, expected float32"):
        f(np.ones(3))


FACTOR = 2.0


def test_a_change_of_a_name_around_the_program_is_seen(f32):
    shift = 1.0

    @dace.program
    def f(X: dace.float32[3]):
        return X * FACTOR + shift

    global FACTOR
    x = f32(3)
    np.testing.assert_allclose(f(x), x * 2 + 1, rtol=1e-5)
    FACTOR, shift = 3.0, 2.0
    np.testing.assert_allclose(f(x), x * 3 + 2, rtol=1e-5)
    np.testing.assert_allclose(f(x), x * 3 + 2, rtol=1e-5)
    FACTOR = 2.0

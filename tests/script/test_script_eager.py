"""Operators and scripts as they run: Tensors, arguments, errors."""
import inspect
import operator
import subprocess
import sys
import threading

import numpy as np
import onnx
import pytest

import dcml
from dcml.script import FLOAT, INT64, graph, onnx_opset, onnx_types, script, values
from dcml.script import opset1 as op1
from dcml.script import opset18 as op
from dcml.script import opset_ai_onnx_ml3 as ml
from dcml.script.tensor import Tensor

X = np.float32([1, 2, 3])


# -- opsets -------------------------------------------------------------------------------------------------
def test_opsets_have_their_versions_operators_only():
    assert (op.domain, op.version, ml.domain, ml.version) == ("", 18, "ai.onnx.ml", 3) and op is values.Opset("", 18)
    assert hasattr(op, "BitwiseAnd") and not hasattr(op1, "BitwiseAnd") and not hasattr(op, "Upsample") and not hasattr(op, "Gelu")
    assert "Add" in op and "Nothing" not in op and op["Add"].since_version == 14 and {"Add", "Loop"} <= set(dir(op)) and "Scaler" in dir(ml)
    newest = max(schema.since_version for schema in onnx.defs.get_all_schemas() if schema.domain == "")
    assert onnx_opset.default_opset.version == newest and len(onnx_opset.all_opsets) == newest + 5 + 1
    with pytest.raises(ImportError):
        from dcml.script import opset99  # noqa: F401
    with pytest.raises(AttributeError, match="Nothing"):
        op.Nothing


def test_every_operator_of_an_opset_is_a_documented_function_with_its_signature():
    for opset in (op, ml, onnx_opset.default_opset):
        for name in set(dir(opset)) - {"domain", "version"}:
            function, schema = getattr(opset, name), opset[name]
            parameters = inspect.signature(function).parameters
            assert set(parameters) == {p.name for p in schema.inputs} | set(schema.attributes), name
            assert function.__doc__ and function.__name__ == name
    assert str(inspect.signature(op.Conv)).startswith("(X: 'T', W: 'T', B: 'Optional[T]' = None, *, auto_pad: 'str' = 'NOTSET', ")
    assert str(inspect.signature(op.Loop)).startswith("(M: 'Optional[I]', cond: 'Optional[B]', *v_initial, body: 'GraphProto')")
    assert inspect.signature(op.LeakyRelu).parameters["alpha"].default == 0.01


# -- operators alone ------------------------------------------------------------------------------------------
def test_operators_take_numbers_and_keywords_in_any_order():
    assert op.Add(1, B=2) == 3 and op.Add(A=1, B=2) == 3 and op.Add(B=X, A=1).value.tolist() == [2, 3, 4]
    assert op.ReduceSum(keepdims=False, axes=np.array([0]), data=X) == 6 and op.Clip(X, None, 2).value.tolist() == [1, 2, 2]
    assert op.Add(X.astype(np.float16), 1.5).dtype == np.float16 and op.Where(True, 2, X).dtype == np.float32
    assert op.Constant(value_ints=[]).shape == (0,) and op.Constant(value_floats=[]).dtype == np.float32 and op.Constant(value="a").value == "a"
    assert op.Cast(X, to=INT64).onnx_dtype == INT64.dtype == 7 and op.Reshape(X, [-1, 1]).shape == (3, 1)


def test_as_many_outputs_come_as_names_take_them():
    largest, places = op.TopK(X, [2])
    first, second = op.Split(X, [1, 2])
    y = op.MaxPool(X.reshape(1, 1, 3), kernel_shape=[2])
    z, chosen = op.MaxPool(X.reshape(1, 1, 3), kernel_shape=[2])
    assert places.value.tolist() == [2, 1] and second.shape == (2,) and y == z if y.is_scalar else np.array_equal(y.value, z.value)
    assert chosen.dtype == np.int64 and largest.rank == first.rank == 1 and len(op.Split(X, num_outputs=3)) == 3


@pytest.mark.parametrize("call, error, told", [
    (lambda: op.Add(X, C=X), TypeError, "'C'"), (lambda: op.Add(X), TypeError, "'B'"), (lambda: op.Add(X, X, X), TypeError, "positional"),
    (lambda: op.Elu(X, alpha="a"), TypeError, r"Elu\(\).*alpha.*float"), (lambda: op.Add(X, object()), TypeError, r"Add\(\): input 'B'.*object"),
    (lambda: op.Add(X, X[:2]), dcml.ShapeError, "Add"), (lambda: op.Add(X, X.astype("d")), dcml.DTypeError, "Add"),
    (lambda: op.Loop(3, None, X, body=lambda i, c, x: (c, x)), TypeError, "@graph"), (lambda: op.Constant(), dcml.ModelError, "Constant"),
    (lambda: values.Opset("nobody", 1).Anything(X), dcml.UnsupportedOpError, "Anything"), (lambda: values.Opset("a", 0), TypeError, "version"),
    (lambda: Tensor([1]), TypeError, "list"), (lambda: Tensor(X)[5], dcml.ValueError_, "index 5"), (lambda: Tensor(X)[0, 0], dcml.ShapeError, "2 parts"),
    (lambda: Tensor(X)["a"], TypeError, "'a'"), (lambda: operator.setitem(Tensor(X), 0, 1), TypeError, "in place"), (lambda: list(Tensor(X)), TypeError, "unpacked")])
def test_errors_name_operator_and_argument(call, error, told):
    with pytest.raises(error, match=told):
        call()


# -- Tensors --------------------------------------------------------------------------------------------------
def test_tensors_show_what_they_are():
    t = Tensor(np.float32([[1, 2]]))
    assert (t.shape, t.rank, t.dtype, t.onnx_dtype, t.is_scalar) == ((1, 2), 2, np.float32, 1, False)
    assert repr(t) == "Tensor(array([[1., 2.]], dtype=float32))" and str(t.onnx_dtype) == "FLOAT" and len(t) == 1
    assert int(Tensor(np.array(3))) == 3 and float(Tensor(np.array(1.5))) == 1.5 and list(range(Tensor(np.array(2)))) == [0, 1] and not Tensor(np.array(0))
    for what in (int, float, bool):
        with pytest.raises((TypeError, ValueError)):
            what(Tensor(X))
    with pytest.raises(ValueError):
        Tensor(None).value


def test_numbers_and_arrays_beside_tensors():
    t, i = Tensor(X), Tensor(np.array([7, -7]))
    assert (1 - t).value.tolist() == [0, -1, -2] and (X * t).dtype == np.float32 and type(X * t) is Tensor and (2 ** t).value.tolist() == [2, 4, 8]
    assert (i / 2).value.tolist() == [3, -3] and (i % 4).value.tolist() == [3, 1] and (t % 2).value.tolist() == [1, 0, 1]
    assert (t != 2).value.tolist() == [True, False, True] and ((t > 1) & (t < 3) | (t == 1)).value.tolist() == [True, True, False]
    assert (-t).value.tolist() == [-1, -2, -3] and (t @ t).value == 14 and (i * 1.9).value.tolist() == [7, -7]


# -- scripts ----------------------------------------------------------------------------------------------------
@script(default_opset=op)
def add_with_alpha(this, other, alpha: float = 1.0):
    alpha = op.CastLike(alpha, other)
    return op.Add(this, op.Mul(other, alpha))


def test_arguments_come_by_position_or_name():
    assert add_with_alpha(1.0, other=2.0) == 3 and add_with_alpha(this=1.0, other=2.0) == 3
    assert add_with_alpha(1.0, 2.0, 3.0) == 7 and add_with_alpha(alpha=3.0, other=2.0, this=1.0) == 7 and add_with_alpha(1.0, 2.0, alpha=np.float32(3)) == 7
    assert inspect.signature(add_with_alpha).parameters["alpha"].default == 1.0 and add_with_alpha.__annotations__["alpha"] is float
    for wrong in (lambda: add_with_alpha(1.0), lambda: add_with_alpha(1.0, 2.0, beta=1), lambda: add_with_alpha(1.0, 2.0, 3.0, 4.0), lambda: add_with_alpha(1.0, object()),
                  lambda: add_with_alpha(1.0, 2.0, "a")):
        with pytest.raises(TypeError):
            wrong()


def test_results_are_arrays_where_arrays_were_given():
    assert type(add_with_alpha(X, X)) is np.ndarray and type(add_with_alpha(Tensor(X), Tensor(X))) is Tensor and type(add_with_alpha(X, Tensor(X))) is np.ndarray
    assert type(add_with_alpha(1.0, 2.0)) is Tensor


def test_lists_are_sequences():
    @script()
    def joined(parts):
        return op.ConcatFromSequence(parts, axis=0)

    @script()
    def taken_apart(x):
        return op.SplitToSequence(x, 1)
    assert joined([X, X]).shape == (6,) and type(joined([Tensor(X), Tensor(X)])) is Tensor
    parts = taken_apart(X)
    assert len(parts) == 3 and all(type(p) is np.ndarray for p in parts) and all(type(p) is Tensor for p in taken_apart(Tensor(X)))


def test_locals_are_tensors_while_a_script_runs():
    @script()
    def watched(x: FLOAT["N"], k: int = 2):
        y = op.Mul(x, x)
        z = y + k
        return z
    seen = {}

    def trace(frame, event, arg):
        if frame.f_code is watched.function.__code__ and event == "return":
            seen.update(frame.f_locals)
        return trace
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        watched(X)
    finally:
        sys.settrace(before)
    assert all(type(seen[name]) is Tensor for name in "xyz") and seen["z"].value.tolist() == [3, 6, 11] and seen["k"] == 2


def test_bodies_run_as_functions_and_see_what_is_around_them():
    @script(default_opset=op)
    def summed(x: FLOAT["N"], n: INT64):
        @graph()
        def body(i, going, total):
            return going, total + x, total
        last, before = op.Loop(n, True, x, body=body)
        return last, before
    last, before = summed(X, np.int64(2))
    assert last.tolist() == [3, 6, 9] and before.shape == (2, 3)
    assert summed(X, np.int64(0))[1].shape[0] == 0


def test_threads_run_scripts_beside_each_other():
    wrong = []

    def work(seed):
        for k in range(50):
            if add_with_alpha(np.full(3, k, np.float32), X, float(seed)).tolist() != [k + seed * v for v in (1, 2, 3)]:
                wrong.append(k)
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    [t.start() for t in threads], [t.join() for t in threads]
    assert not wrong


def test_importing_loads_neither_numpy_nor_onnx():
    code = "from dcml.script import script, graph, opset18 as op, FLOAT; import dcml.script.onnx_types, dcml.script.values, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numpy", "onnx", "torch", "onnxruntime", "onnxscript"} & set(loaded)
    code = "import dcml, numpy; from dcml.script.tensor import Tensor; dcml.script.opset18.Add(1, 2); import sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "onnxruntime", "onnxscript"} & set(loaded) and onnx_types is not None

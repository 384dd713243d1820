"""Constructors: names, signatures, what they take and what they refuse."""
import copy
import functools
import inspect
import subprocess
import sys

import numpy as np
import onnx
import pytest

import dcml
import dcml.spox.opset.ai.onnx.ml.v3 as ml
import dcml.spox.opset.ai.onnx.v17 as op
from dcml.spox import InferenceError, Optional, Sequence, Tensor, Type, Var, argument, build


def tensor(*shape, dtype=np.float32):
    return argument(Tensor(dtype, shape))


# -- names and signatures ---------------------------------------------------------------------------------
def test_version_17_has_the_177_names_and_their_spelling():
    assert len(op.__all__) == len(set(op.__all__)) == 177
    assert {"if_", "and_", "or_", "not_", "cumsum", "isinf", "isnan", "matmul", "matmul_integer", "prelu", "qlinear_conv", "qlinear_matmul", "lstm",
            "depth_to_space", "tf_idf_vectorizer", "gather_nd", "const"} <= set(op.__all__)
    assert {"svmclassifier", "svmregressor", "tree_ensemble_regressor"} <= set(ml.__all__) and len(ml.__all__) == 18
    assert set(op.__all__) <= set(dir(op)) and all(callable(getattr(op, name)) for name in op.__all__)


def test_each_version_has_only_its_operators():
    import dcml.spox.opset.ai.onnx.v18 as op18
    import dcml.spox.opset.ai.onnx.v23 as op23
    assert hasattr(op18, "bitwise_and") and not hasattr(op, "bitwise_and") and not hasattr(op, "scatter") and not hasattr(op, "upsample")
    assert hasattr(op23, "rmsnormalization") and "num_outputs" in inspect.signature(op18.split).parameters
    with pytest.raises(ImportError):
        import dcml.spox.opset.ai.onnx.v16  # noqa: F401
    with pytest.raises(ImportError):
        import dcml.spox.opset.ai.onnx.v99  # noqa: F401


def test_the_newest_opset_is_dcml_op():
    assert dcml.op is sys.modules["dcml.op"] and dcml.op.__name__.startswith("dcml.spox.opset.ai.onnx.v")
    assert dcml.op.add.__name__ == "add" and int(dcml.op.__name__.rpartition("v")[2]) >= 27


def test_signatures_tell_defaults_and_types():
    assert str(inspect.signature(op.conv)) == (
        "(X: 'Var', W: 'Var', B: 'Var | None' = None, *, auto_pad: 'str' = 'NOTSET', dilations: 'Iterable[int] | None' = None, group: 'int' = 1, "
        "kernel_shape: 'Iterable[int] | None' = None, pads: 'Iterable[int] | None' = None, strides: 'Iterable[int] | None' = None) -> 'Var'")
    assert str(inspect.signature(op.cast)) == "(input: 'Var', *, to: 'npt.DTypeLike') -> 'Var'"
    assert str(inspect.signature(op.top_k)).endswith("-> 'tuple[Var, Var]'") and str(inspect.signature(op.concat)).startswith("(inputs: 'Sequence[Var]'")


def test_names_and_signatures_are_spoxs():
    theirs = pytest.importorskip("spox.opset.ai.onnx.v17", exc_type=ImportError)
    assert theirs.__all__ == op.__all__
    for name in op.__all__:
        ours, their = (inspect.signature(getattr(m, name)).parameters for m in (op, theirs))
        assert {k: (p.kind, p.annotation) for k, p in ours.items()} == {k: (p.kind, p.annotation) for k, p in their.items()}, name


def test_documentation_comes_from_the_schemas():
    assert "element-wise binary addition" in op.add.__doc__ and "First operand." in op.add.__doc__ and "ai.onnx@14::Add" in op.add.__doc__
    assert "then_branch" in op.if_.__doc__


def test_neither_torch_nor_onnx_nor_onnxruntime_is_imported():
    code = "import dcml.spox, dcml.spox.opset.ai.onnx.v17, dcml.op, sys; print(*{'torch', 'onnx', 'onnxruntime', 'spox'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == ""


# -- Var --------------------------------------------------------------------------------------------------
def test_a_var_is_immutable_hashable_and_copied_shallowly():
    x = tensor(3)
    y = op.relu(x)
    assert x.unwrap_tensor() == x.unwrap_type() == x.type == Tensor(np.float32, (3,)) and len({x, y, x}) == 2
    assert copy.copy(x) is x and "float32[3]" in repr(x)
    with pytest.raises(ValueError, match="copied"):
        copy.deepcopy(x)
    for broken in (lambda: setattr(x, "type", None), lambda: delattr(x, "_node"), lambda: setattr(x, "other", 1)):
        with pytest.raises(AttributeError):
            broken()
    with pytest.raises(TypeError):
        Var()
    with pytest.raises(TypeError):
        x.unwrap_type().unwrap_sequence()


def test_a_var_has_no_arithmetic_and_no_truth():
    x = tensor(3)
    for wrong in (lambda: x + x, lambda: x * 2, lambda: -x, lambda: ~x, lambda: bool(x), lambda: 1 - x, lambda: x if x else x):
        with pytest.raises(TypeError):
            wrong()


def test_operator_overloading_lends_arithmetic():
    from dcml.spox import _future
    x, n = tensor(3), op.const(2)
    with _future.operator_overloading(op):
        assert (n + 3)._get_value() == 5 and (7 // n)._get_value() == 3 and (-n)._get_value() == -2
        assert (x * 2.0).type == x.type
        with pytest.raises(TypeError, match="int64"):
            x + n
        with pytest.raises(TypeError, match="1.5"):
            n * 1.5
    with _future.operator_overloading(op, type_promotion=True):
        assert (x + n).type == Tensor(np.float64, (3,)) and (n / 4)._get_value() == 0.5

    @_future.operator_overloading(op)
    def product():
        return n * n
    assert product()._get_value() == 4
    with pytest.raises(TypeError):
        x + x


# -- arguments --------------------------------------------------------------------------------------------
def test_inputs_come_by_position_or_name_and_attributes_by_name():
    a, b = tensor(2, 3), tensor(3, 4)
    assert op.gemm(a, B=b, alpha=2.0).type == op.gemm(B=b, A=a).type == Tensor(np.float32, (2, 4))
    with pytest.raises(TypeError, match="gemm.*'B'"):
        op.gemm(a)
    with pytest.raises(TypeError, match="gemma"):
        op.gemm(a, b, gemma=1)
    with pytest.raises(TypeError, match="positional"):
        op.gemm(a, b, None, 2.0)
    with pytest.raises(TypeError, match="'to'"):
        op.cast(a)


def test_one_output_is_a_var_several_are_a_tuple_and_variadic_ones_a_sequence():
    x = tensor(9, 2)
    assert isinstance(op.relu(x), Var)
    values, places = op.top_k(x, op.const([3]), axis=0)
    assert (values.type, places.type) == (Tensor(np.float32, (3, 2)), Tensor(np.int64, (3, 2)))
    parts = op.split(x, outputs_count=3)
    assert [p.type for p in parts] == [Tensor(np.float32, (3, 2))] * 3
    with pytest.raises(TypeError, match="outputs_count"):
        op.split(x, outputs_count=0)
    with pytest.raises(TypeError, match="outputs_count"):
        op.split(x)


def test_newer_versions_of_split_count_by_attribute_or_by_input():
    import dcml.spox.opset.ai.onnx.v18 as op18
    x = tensor(9)
    assert len(op18.split(x, num_outputs=2)) == 2
    assert [p.type.shape for p in op18.split(x, op18.const([4, 5]))] == [(4,), (5,)]
    with pytest.raises(InferenceError, match="split"):
        op18.split(x)


def test_an_optional_input_in_the_middle_is_the_empty_name():
    x = tensor(3)
    model = build({"x": x}, {"y": op.clip(x, None, op.const(1.0, np.float32)), "z": op.clip(x, op.const(0.0, np.float32))})
    clips = [n for n in model.graph.node if n.op_type == "Clip"]
    assert list(clips[0].input)[:2] == ["x", ""] and len(clips[0].input) == 3 and len(clips[1].input) == 2


def test_attributes_take_iterables_numpy_numbers_arrays_and_any_text():
    x = tensor(2, 3)
    wanted = Tensor(np.float32, (3, 2))
    for perm in ([1, 0], (1, 0), range(1, -1, -1), np.array([1, 0]), (k for k in (1, 0)), [np.int32(1), np.int8(0)]):
        assert op.transpose(x, perm=perm).type == wanted
    assert op.concat([x, x], axis=np.int64(1)).type == Tensor(np.float32, (2, 6))
    assert op.elu(x, alpha=1).type == op.elu(x, alpha=np.float32(0.5)).type == x.type
    assert op.constant(value_string="žluťoučký")._get_value() == "žluťoučký"
    model = build({}, {"y": op.constant(value_strings=["ä", "日本"])})
    assert [s.decode() for s in model.graph.node[0].attribute[0].strings] == ["ä", "日本"]


@pytest.mark.parametrize("wrong, told", [
    (lambda x: op.concat([x], axis="0"), "axis.*int, got str"), (lambda x: op.concat([x], axis=1.0), "axis.*int, got float"),
    (lambda x: op.transpose(x, perm=["a"]), "perm.*list of str"), (lambda x: op.transpose(x, perm=3), "perm.*got int"),
    (lambda x: op.transpose(x, perm="10"), "perm.*got str"), (lambda x: op.elu(x, alpha="1"), "alpha.*float, got str"),
    (lambda x: op.cast(x, to=None), "to"), (lambda x: op.cast(x, to=object), "object"), (lambda x: op.cast(x, to=1), "to.*got int"),
    (lambda x: op.constant(value=[1.0]), "value.*ndarray, got list"), (lambda x: op.depth_to_space(x, blocksize=2, mode=3), "mode.*str, got int"),
    (lambda x: op.concat([x], axis=1 << 70), "axis"), (lambda x: op.optional(type=np.float32), "type.*Type")])
def test_a_wrong_attribute_is_a_type_error_that_tells_what_came(wrong, told):
    with pytest.raises(TypeError, match=told):
        wrong(tensor(1, 4, 2, 2))


def test_defaults_are_written_and_what_is_none_is_not():
    x = tensor(2, 3)
    model = build({"x": x}, {"y": op.gemm(x, x, transB=True)})
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in model.graph.node[0].attribute}
    assert attributes == {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 1}
    model = build({"x": x}, {"y": op.transpose(x)})
    assert not model.graph.node[0].attribute


def test_all_outputs_are_named_also_those_that_nobody_uses():
    x = tensor(4, 3)
    model = build({"x": x}, {"y": op.dropout(x)[0]})
    assert len(model.graph.node[0].output) == 2 and all(model.graph.node[0].output)


def test_sparse_tensors_are_refused():
    with pytest.raises(TypeError, match="sparse_value"):
        op.constant(sparse_value=onnx.SparseTensorProto())


@pytest.mark.parametrize("wrong", [1, np.ones(3, "f"), "x", [1.0], None, object()], ids=lambda wrong: type(wrong).__name__)
def test_anything_but_a_var_is_a_type_error_that_names_the_input(wrong):
    x = tensor(3)
    with pytest.raises(TypeError, match=r"add\(\): input 'B'"):
        op.add(x, wrong)
    with pytest.raises(TypeError, match=r"concat\(\): (item 1 of )?input 'inputs'"):
        op.concat([x, wrong] if wrong is not None else None, axis=0)


def test_a_single_var_is_no_sequence_of_them():
    with pytest.raises(TypeError, match="sequence of Vars"):
        op.concat(tensor(3), axis=0)


# -- types ------------------------------------------------------------------------------------------------
def test_element_types_are_numpys():
    assert Tensor(float).dtype == np.float64 and Tensor(int).dtype == np.int64 and Tensor(str).dtype == np.dtype(str)
    assert Tensor("float32") == Tensor(np.float32) == Tensor(np.dtype("<f4")) and Tensor(np.longlong) == Tensor(np.int64)
    assert Tensor(np.dtype("U7")) == Tensor(str) and Tensor(bool).dtype == np.bool_
    for wrong in (None, object, np.float128, "no_type", "datetime64[s]"):
        with pytest.raises(TypeError):
            Tensor(wrong)


def test_types_compare_by_what_they_say():
    a = Tensor(np.float32, ("N", None, 3))
    assert a == Tensor(np.float32, ["N", None, np.int64(3)]) and hash(a) == hash(Tensor(np.float32, ("N", None, 3)))
    assert a != Tensor(np.float32, ("M", None, 3)) and a != Tensor(np.float64, ("N", None, 3)) and a != Tensor(np.float32) and a != 3
    assert a.shape == ("N", None, 3) and Tensor(np.float32).shape is None and Tensor(np.float32, ()).shape == ()
    assert repr(a) == "Tensor(dtype=float32, shape=('N', None, 3))" and str(a) == "float32[N][?][3]" and repr(Sequence(a)) == f"Sequence(elem_type={a!r})"
    assert Sequence(a) == Sequence(a) != Optional(a) and Sequence(a).elem_type == a and Sequence(a).unwrap_sequence() == Sequence(a)
    with pytest.raises(TypeError):
        a.unwrap_optional()
    with pytest.raises(AttributeError):
        a.shape = ()
    for wrong in ((1.5,), (-1,), "N", 3, (True,)):
        with pytest.raises(TypeError):
            Tensor(np.float32, wrong)
    assert isinstance(a, Type) and copy.deepcopy(a) == a


def test_casts_take_numpy_types():
    x = tensor(3, dtype=np.int64)
    assert op.cast(x, to=float).type == Tensor(np.float64, (3,)) and op.cast(x, to=str).type == Tensor(str, (3,))
    assert op.random_normal(shape=[2], dtype=np.float16).type == Tensor(np.float16, (2,))


# -- idioms -----------------------------------------------------------------------------------------------
def test_reduce_of_a_constructor_and_lists_are_copied():
    values = [tensor(3) for _ in range(4)]
    product = functools.reduce(op.mul, values)
    joined = op.concat(values, axis=0)
    inputs = dict(zip("abcd", values[:]))
    values.clear()
    model = build(inputs, {"y": product, "z": joined})
    assert [len(n.input) for n in model.graph.node if n.op_type == "Concat"] == [4]


def test_two_thousand_nodes_in_a_row_and_shared_values_once():
    x = y = tensor(3)
    for _ in range(2000):
        y = op.add(y, y)
    model = build({"x": x}, {"y": y})
    assert sum(n.op_type == "Add" for n in model.graph.node) == 2000
    onnx.checker.check_model(model)
    del y

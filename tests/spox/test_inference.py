"""Types and values at the call."""
import warnings

import numpy as np
import pytest

import dcml
import dcml.spox.opset.ai.onnx.ml.v3 as ml
import dcml.spox.opset.ai.onnx.v17 as op
from dcml.spox import InferenceError, InferenceWarning, Sequence, Tensor, argument


def tensor(*shape, dtype=np.float32):
    return argument(Tensor(dtype, shape))


@pytest.mark.parametrize("wrong, told", [
    (lambda: op.add(tensor(3), tensor(4)), r"add\(\).*float32\[3\].*float32\[4\]"),
    (lambda: op.add(tensor(3), tensor(3, dtype=np.int64)), r"Add.*'B'.*float32\[3\].*int64\[3\]"),
    (lambda: op.matmul(tensor(2, 3), tensor(4, 5)), r"MatMul.*float32\[2\]\[3\].*float32\[4\]\[5\]"),
    (lambda: op.concat([tensor(2, 3), tensor(2)], axis=0), "Concat"), (lambda: op.softmax(tensor(2, 3), axis=5), "axis.*5"),
    (lambda: op.not_(tensor(2)), "'X'.*Not"), (lambda: op.reshape(tensor(6), op.const([4, 2])), "Reshape"),
    (lambda: op.string_normalizer(tensor(3)), "'X'.*StringNormalizer"), (lambda: op.sequence_at(tensor(3), op.const(0)), "SequenceAt"),
    (lambda: op.constant(), "constant"), (lambda: op.if_(tensor(2), lambda: [tensor(1)], lambda: [tensor(1)]), "'cond'.*If")],
    ids=lambda v: v if isinstance(v, str) else "")
def test_types_are_checked_at_the_call_with_the_operator_and_what_was_passed(wrong, told):
    with pytest.raises(InferenceError, match=told) as info:
        wrong()
    assert isinstance(info.value, dcml.Error)


def test_symbols_go_through():
    x, y, z = tensor("N", 3), tensor("N", 1), tensor("M", 3)
    assert op.add(x, y).type == x.type and op.relu(x).type == x.type
    assert op.add(x, z).type.shape == (None, 3), "one of N and M may be 1"
    assert op.concat([x, z], axis=0).type.shape == (None, 3) and op.matmul(x, op.transpose(z)).type.shape == ("N", "M")
    assert op.gemm(tensor("A", "B"), tensor("C", "D")).type.shape == ("A", "D")
    assert op.add(tensor(None, 3), tensor(3)).type.shape == (None, 3)


def test_values_of_constants_are_known():
    two, three = op.const(2), op.const(3)
    assert op.add(two, three)._get_value() == 5 and op.mul(two, three)._get_value().dtype == np.int64
    assert np.allclose(op.exp(op.const([0.0, 1.0], np.float32))._get_value(), np.exp(np.float32([0, 1])))
    assert op.const("text")._get_value() == "text" and [v.tolist() for v in op.sequence_construct([two, three])._get_value()] == [2, 3]
    assert op.const(1.5).type == Tensor(np.float64, ()) and op.const([1], np.float32)._get_value().dtype == np.float32
    assert "5" in repr(op.add(two, three))
    with pytest.raises(ValueError, match="before the model runs"):
        op.add(tensor(), op.const(1.0, np.float32))._get_value()
    with pytest.raises(ValueError):
        op.random_normal(shape=[2])._get_value()


def test_shapes_follow_from_values_that_are_computed():
    x = tensor("N", 3, 4)
    length = op.add(op.const([2]), op.const([4]))
    assert op.reshape(tensor(12), op.concat([length, op.const([-1])], axis=0)).type.shape == (6, 2)
    assert op.slice(x, op.const([0]), op.sub(length, op.const([4])), op.const([1])).type.shape == ("N", 2, 4)
    assert op.expand(tensor(1), length).type.shape == (6,) and op.range(op.const(0), op.squeeze(length), op.const(2)).type.shape == (3,)
    assert op.reshape(x, op.concat([op.slice(op.shape(x), op.const([0]), op.const([1])), op.const([12])], axis=0)).type.shape == ("N", 12)
    scales = op.div(op.const([2.0, 2.0, 4.0], np.float32), op.const([2.0, 1.0, 1.0], np.float32))
    assert op.resize(tensor(2, 3, 4), None, scales).type.shape == (2, 6, 16)
    assert op.tile(tensor(2), op.const([3])).type.shape == (6,) and op.constant_of_shape(op.shape(x)).type.shape == ("N", 3, 4)


def test_operators_of_ml_have_types():
    x = tensor("N", 2)
    assert ml.scaler(x, offset=[0.0], scale=[1.0]).type == x.type and ml.normalizer(x, norm="L2").type == x.type
    assert ml.linear_regressor(x, coefficients=[1.0, 2.0]).type.dtype == np.float32
    labels, scores = ml.linear_classifier(x, coefficients=[1.0, 2.0, 3.0, 4.0], intercepts=[0.0, 0.0], classlabels_ints=[0, 1])
    assert labels.type == Tensor(np.int64, ("N",)) and scores.type == Tensor(np.float32, ("N", 2))
    assert ml.array_feature_extractor(x, op.const([1])).type == Tensor(np.float32, ("N", 1))
    assert ml.label_encoder(tensor("N", dtype=np.int64), keys_int64s=[1], values_strings=["a"]).type.dtype == np.dtype(str)
    with pytest.raises(InferenceError):
        ml.scaler(argument(Tensor(str, (2,))), offset=[0.0], scale=[1.0])


def test_a_partial_result_warns_and_a_complete_one_does_not():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        op.softmax(op.matmul(tensor("N", 3), tensor(3, 2)))
    with pytest.warns(InferenceWarning, match="Reshape"):
        op.reshape(tensor(6), tensor("K", dtype=np.int64))


def test_sequences_and_optionals_have_types():
    x = tensor(4, 3)
    parts = op.split_to_sequence(x, axis=0)
    assert isinstance(parts.type, Sequence) and op.sequence_at(parts, op.const(0)).type.dtype == np.float32
    assert op.sequence_length(parts).type == Tensor(np.int64, ()) and op.sequence_construct([x, x]).type == Sequence(x.type)
    assert op.sequence_empty(dtype=np.int32).type == Sequence(Tensor(np.int32)) and op.optional(x).type.elem_type == x.type
    assert op.optional_get_element(op.optional(x)).type == x.type and op.optional(type=x.type).type.elem_type == x.type


def test_loop_outputs_keep_the_carried_types():
    x, n = tensor("N"), tensor(dtype=np.int64)
    same, stacked = op.loop(n, v_initial=[x], body=lambda i, c, v: [c, op.relu(v), v])
    assert same.type == x.type and stacked.type == Tensor(np.float32, (None, "N")) or stacked.type.shape == (None, None)
    with pytest.warns(InferenceWarning):
        growing, = op.loop(n, v_initial=[x], body=lambda i, c, v: [c, op.concat([v, v], axis=0)])
    assert growing.type == Tensor(np.float32)


@pytest.mark.parametrize("call, told", [
    (lambda c, x: op.if_(c, lambda: [x], lambda: [x, x]), "If"), (lambda c, x: op.if_(c, lambda: x, lambda: [x]), "sequence of Vars"),
    (lambda c, x: op.if_(c, lambda: [1.0], lambda: [x]), "returns Vars"), (lambda c, x: op.if_(c, lambda a: [x], lambda: [x]), "argument"),
    (lambda c, x: op.if_(c, 3, lambda: [x]), "takes 0 Vars"), (lambda c, x: op.if_(c, lambda: [], lambda: []), "no result"),
    (lambda c, x: op.loop(v_initial=[x], body=lambda i, d, v: [d]), "loop.*1 Vars, expected at least 2"), (lambda c, x: op.loop(v_initial=[x], body=lambda i, d: [d]), "positional"),
    (lambda c, x: op.loop(v_initial=[x], body=lambda i, d, v: [d, op.cast(v, to=int)]), "Loop"),
    (lambda c, x: op.scan([x], body=lambda v: [v], num_scan_inputs=2), "num_scan_inputs"), (lambda c, x: op.if_(c), "else_branch|then_branch")])
def test_a_wrong_arity_or_result_of_a_body_is_an_error(call, told):
    with pytest.raises((TypeError, InferenceError), match=told):
        call(tensor(dtype=bool), tensor(3))


def test_bodies_are_called_once_and_may_return_outer_values():
    calls = []
    c, x, y = tensor(dtype=bool), tensor(3), tensor(3)
    a, b = op.if_(c, lambda: (calls.append(1), (x, y))[1], lambda: (calls.append(2), (y, x))[1])
    assert calls == [1, 2] or calls == [2, 1]
    assert a.type == b.type == x.type
    with pytest.raises(TypeError, match="multiple values"):
        op.if_(c, lambda: [x], lambda: [y], then_branch=lambda: [x])

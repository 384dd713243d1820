"""Scripts, what they are given, and what NumPy makes of it: tests run each eagerly and as a model, and differentiate it."""
import math
from typing import List, Optional, Sequence

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from dcml.script import BOOL, DOUBLE, FLOAT, INT64, STRING, graph, script
from dcml.script import opset18 as op
from dcml.script import opset_ai_onnx_ml3 as ml
from dcml.script.values import Opset

mine = Opset("mine", 1)
X = np.array([[-1.5, 0.25, 2.0], [3.0, -0.5, 1.0]], np.float32)
V = np.array([1.1, -2.0, 3.2, 0.5, 4.0], np.float32)
SQRT1_2 = math.sqrt(0.5)
WEIGHT = numpy_helper.from_array(np.array([2.0, 3.0, 4.0], np.float32))
TRAINING = True
CASES = []


def case(expected, *given, trains=True):
    """Decorator above script(): what the script is given, and what NumPy makes of it (one array or a tuple)."""
    def keep(function):
        CASES.append((function, given, expected if isinstance(expected, tuple) else (expected,), trains))
        return function
    return keep


# -- values and constants -------------------------------------------------------------------------------
@case((X, X, 2 * X), X)
@script(default_opset=op)
def twice_and_an_input(x: FLOAT["N", 3]):
    y = op.Add(x, x)
    return x, x, y


@case(4 * X, X)
@script(default_opset=op)
def a_parameter_is_assigned_again(x: FLOAT["N", 3]) -> FLOAT["N", 3]:
    """Adds twice."""
    x = op.Add(x, x)
    x = x + x
    return x


@case(X * 0.5 * (1 + np.vectorize(math.erf)(X * SQRT1_2)), X)
@script(default_opset=op)
def gelu(x: FLOAT[...]):
    phi = 0.5 * (op.Erf(SQRT1_2 * x) + 1.0)
    return x * phi


@case(X * [2, 3, 4] + SQRT1_2, X)
@script(default_opset=op)
def captured_tensors(x: FLOAT["N", 3]):
    return x * WEIGHT + SQRT1_2


@case(X + 1, X)
@script(default_opset=op)
def a_captured_bool(x: FLOAT["N", 3]):
    if TRAINING:
        y = x + 1
    else:
        y = op.NotAnOperator(x)
    return y


@case((np.int64(17), np.array([1, 2]), np.float32(1.5), np.float32([0.5, 2]), np.array(["a", "b"], object), np.zeros(0, np.int64)))
@script(default_opset=op)
def constants():
    a = op.Constant(value=17)
    b = op.Constant(value=[1, 2])
    c = op.Constant(value_float=1.5)
    d = op.Constant(value_floats=[0.5, 2.0])
    e = op.Constant(value_strings=["a", "b"])
    f = op.Constant(value_ints=[])
    return a, b, c, d, e, f


@case(np.float32([0, 2, 3, -1]), np.float32(0))
@script(default_opset=op)
def literals(x: FLOAT):
    flat = op.Reshape(x, [-1])
    return op.Concat(flat, flat + 2, flat + 3.0, flat - True, axis=0)


# -- arithmetic -------------------------------------------------------------------------------------------
@case((X + 1, 1 - X, X * 2.5, X / 4, np.abs(X) ** 1.5, -X, X @ X.T), X)
@script(default_opset=op)
def arithmetic(x: FLOAT["N", 3]):
    return x + 1, 1 - x, x * 2.5, x / 4, op.Abs(x) ** 1.5, -x, x @ op.Transpose(x)


@case(np.fmod(V, np.float32(1.5)), V)
@script(default_opset=op)
def remainder(x: FLOAT["N"]):
    return x % 1.5


I = np.array([7, -7, 3], np.int64)


@case((I + 1, I // 2 + (I < 0) * (I % 2 != 0), I % 4, -I), I)
@script(default_opset=op)
def integers(x: INT64["N"]):
    return x + 1, x / 2, x % 4, -x


@case((V > 1, V >= 1, V < 1, V <= 1, V == 0.5, V != 0.5, (V > 0) & (V < 3), (V > 3) | (V < 0), V > 0), V)
@script(default_opset=op)
def comparisons(x: FLOAT["N"]):
    return x > 1, x >= 1.0, x < 1, x <= 1, x == 0.5, x != 0.5, (x > 0) & (x < 3), (x > 3) | (x < 0), 0 < x


@case(np.where(V > 0, V, 2) * np.float64(2), V.astype(np.float64))
@script(default_opset=op)
def numbers_take_the_type_beside_them(x: DOUBLE["N"]):
    return op.Where(x > 0, x, 2) * 2


@case(np.clip(V, None, 2), V)
@script(default_opset=op)
def an_input_left_out(x: FLOAT["N"]):
    return op.Clip(x, None, 2)


# -- indices ------------------------------------------------------------------------------------------------
A = np.arange(24, dtype=np.float32).reshape(4, 3, 2)


@case((A[0], A[-1], A[:, 1], A[2], A[2:3], A[1:-1], A[::-1], A[:0:-1], A[0, ::2], A[1:3, -1, 0], A[..., 0], A[0, ..., ::-1]), A, np.int64(2))
@script(default_opset=op)
def indices(a: FLOAT[4, 3, 2], i: INT64):
    return a[0], a[-1], a[:, 1], a[i], a[i:i + 1], a[1:-1], a[::-1], a[:0:-1], a[0, ::2], a[1:3, -1, 0], a[..., 0], a[0, ..., ::-1]


# -- attributes ---------------------------------------------------------------------------------------------
@script(default_opset=op)
def scaled(x, alpha: float = 2.0, axes: Sequence[int] = (0,), keep: bool = True, mode: str = "x", shift: Optional[int] = None):
    return op.ReduceSum(x * alpha, op.Constant(value_ints=axes), keepdims=keep)


@case((2 * X.sum(0, keepdims=True), 3 * X.sum(1, keepdims=True), 0.5 * X.sum(0)), X)
@script(default_opset=op)
def attributes_by_position_and_keyword(x: FLOAT["N", 3]):
    return scaled(x), scaled(x, 3.0, [1]), scaled(x, keep=False, alpha=0.5)


@case((X + 3, np.where(True, X, 0), np.concatenate([[1, 2], [3]]).astype(np.int64)), X)
@script(default_opset=op)
def attributes_as_operands(x: FLOAT["N", 3], k: int = 3, flag: bool = True, sizes: List[int] = (1, 2)):
    return x + k, op.Where(flag, x, 0), op.Concat(sizes, [3], axis=0)


@script(default_opset=op)
def squeezed(x, axis: int, keep: int = 0):
    return op.ReduceMax(x, op.Reshape(axis, [1]), keepdims=keep)


@case(X.max(1) + X.max(1), X)
@script(default_opset=op)
def nested_functions_pass_attributes_on(x: FLOAT["N", 3], along: int = 1):
    return squeezed(x, along) + squeezed(x, axis=along, keep=0)


# -- functions ------------------------------------------------------------------------------------------------
@script(mine, default_opset=op)
def double(x, by: float = 2.0):
    return x * by


@case(6 * X, X)
@script(mine, default_opset=op)
def calls_through_an_opset(x: FLOAT["N", 3]):
    return mine.double(double(x), by=3.0) + 0


@script(default_opset=op)
def mean_and_difference(x):
    mean = op.ReduceMean(x)
    return x - mean, mean


@case(((V - V.mean()) ** 2, V.mean().reshape(1)), V)
@script(default_opset=op)
def several_results(x: FLOAT["N"]):
    difference, mean = mean_and_difference(x)
    return difference * difference, mean


# -- branches ---------------------------------------------------------------------------------------------------
@case((X.T, X + X), X, np.bool_(False))
@script(default_opset=op)
def branches(x: FLOAT[2, 3], c: BOOL):
    z = x + x
    if c:
        y = op.Neg(x)
        z = x * 3
    else:
        y = op.Transpose(x)
    return y, z


@case(3 * V, V)
@script(default_opset=op)
def nested_branches(x: FLOAT["N"]):
    total = op.ReduceSum(x, keepdims=0)
    y = op.Identity(x)
    if total > 0:
        if total > 100:
            y = x * 2
        elif total > 5:
            y = x * 3
        else:
            y = x * 4
    return y


@case((np.where(V > 1, V, 0) / 0.5, V > 1), V, np.float32(0.5), np.bool_(True))
@script(default_opset=op)
def dropout(data: FLOAT["N"], ratio: FLOAT, training_mode: BOOL):
    if training_mode:
        mask = data > op.CastLike(1, data)
        output = op.Where(mask, data, 0) / (1.0 - ratio)
    else:
        mask = op.Expand(True, op.Shape(data))
        output = data
    return output, mask


# -- loops ------------------------------------------------------------------------------------------------------
@case((V + 3 * V, V * V ** 3), V, np.int64(3))
@script(default_opset=op)
def sum_and_product(x: FLOAT["N"], n: INT64):
    total = op.Identity(x)
    product = op.Identity(x)
    for _ in range(n):
        total = total + x
        product = product * x
    return total, product


@case(V * 8 + 0 + 1 + 2, V, np.int64(1))
@script(default_opset=op)
def an_expression_counts(x: FLOAT["N"], n: INT64):
    for i in range(2 * n + 1):
        x = x * 2
    for i in range(3):
        x = x + op.CastLike(i, x)
    return x


@case(V * 8, V)
@script(default_opset=op)
def while_it_is_small(x: FLOAT["N"]):
    small = op.ReduceSum(x, keepdims=0) < 30
    while small:
        x = x * 2
        small = op.ReduceSum(x, keepdims=0) < 30
    return x


@case(V * 8, V)
@script(default_opset=op)
def while_an_expression_holds(x: FLOAT["N"]):
    while op.ReduceSum(x, keepdims=0) < 30:
        x = x * 2
    return x


@case((V * 4, np.int64(1)), V)
@script(default_opset=op)
def a_break(x: FLOAT["N"]):
    last = op.Constant(value=0)
    for i in range(10):
        x = x * 2
        last = op.Identity(i)
        if op.ReduceSum(x, keepdims=0) > 20:
            break
    return x, last


@case(V * 2 * 2 * 2, V, np.int64(2))
@script(default_opset=op)
def loops_in_branches_in_loops(x: FLOAT["N"], n: INT64):
    y = op.Identity(x)
    if n > 0:
        for i in range(n + 1):
            if i >= 0:
                for j in range(1):
                    y = y * 2
    return y


@case(np.concatenate([V[:2], 2 * V[:2], 4 * V[:2]]), V[:2])
@script(default_opset=op)
def sequences_are_carried(x: FLOAT["N"]):
    parts = op.SequenceEmpty()
    for i in range(3):
        parts = op.SequenceInsert(parts, x)
        x = x * 2
    return op.ConcatFromSequence(parts, axis=0)


# -- bodies -------------------------------------------------------------------------------------------------------
@case(np.cumsum(V), V)
@script(default_opset=op)
def cumulative_sum(x: FLOAT["N"]):
    @graph()
    def add(before, element):
        total = before + element
        copy = op.Identity(total)
        return total, copy

    zero = op.CastLike(0, x)
    _, sums = op.Scan(zero, x, body=add, num_scan_inputs=1)
    return sums


@case((4 * V, np.stack([2 * V, 3 * V, 4 * V])), V, np.int64(3))
@script(default_opset=op)
def a_loops_body_sees_outer_values(x: FLOAT["N"], n: INT64):
    @graph()
    def body(i: INT64, going: BOOL, carried: FLOAT["N"]):
        still = op.Identity(going)
        more = carried + x
        return still, more, op.Identity(more)

    last, all_of_them = op.Loop(n, None, x, body=body)
    return last, all_of_them


@case(np.concatenate([V * 2, V * V]), V)
@script(default_opset=op)
def a_sequence_is_mapped(x: FLOAT["N"]):
    @graph()
    def times(item: FLOAT["N"]):
        return item * x

    two = op.Expand(2.0, op.Shape(x))
    return op.ConcatFromSequence(op.SequenceMap(op.SequenceConstruct(two, x), body=times), axis=0)


# -- the rest -------------------------------------------------------------------------------------------------------
@case((np.float32([3, 1.0]), np.array([2, 0])), np.float32([1, 0.5, 3]), trains=True)
@script(default_opset=op)
def several_outputs(x: FLOAT["N"]):
    largest, places = op.TopK(x, [2])
    return largest, places


@case((V[:2], V[2:]), V)
@script(default_opset=op)
def a_split(x: FLOAT[5]):
    head, tail = op.Split(x, [2, 3])
    return head, tail


@case(np.float32([[-3, 0.5, 4], [6, -1, 2]]), X, trains=False)
@script(default_opset=op)
def another_domain(x: FLOAT["N", 3]) -> FLOAT["N", 3]:
    return ml.Scaler(x, offset=[0.0, 0.0, 0.0], scale=[2.0, 2.0, 2.0])


@case(np.array([True, False]), np.array(["a", "b"], object), trains=False)
@script(default_opset=op)
def strings(x: STRING["N"]):
    return op.Equal(op.Cast(op.Identity(op.Cast([1, 2], to=STRING)), to=INT64.dtype), [1, 3])


@case(X + 2, X)
@script(default_opset=op)
def annotated(x: FLOAT["N", 3]) -> FLOAT["N", 3]:
    local: FLOAT["N", 3] = x + 1
    local += 1
    return local


@case(np.float32([1.0, 3.0]).reshape(1, 2), trains=False)
@script(default_opset=op)
def proto_constants():
    a = op.Constant(value=helper.make_tensor("a", TensorProto.FLOAT, [1, 2], [1.0, 3.0]))
    return a

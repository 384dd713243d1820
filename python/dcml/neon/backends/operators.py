"""The operators of op-trees: each is a function that appends nodes of the core to a graph.

The one idea: a row says which operators of the core an operator is; the type of a value is the one that numpy gives, with
numbers of Python taking the type of what they meet; comparisons are numbers, 0 and 1, of their operands' type.
Must not know: tensors and where values lie (lower.py).
"""
import math

import numpy as np

from ... import _core
from . import windows
from .tree import axes_of

_LN2 = math.log(2.0)
_FLOORLOG = -50.0  # what safelog gives at least

ROWS = {}  # name -> function(emitter, dictionary of the operator, left, right) -> Value


def row(*names):
    def add(function):
        for name in names:
            ROWS[name] = function
        return function
    return add


def _float_row(name, op, domain=""):
    @row(name)
    def emit(e, d, a, b):
        a = e.floating(a)
        return e.value(op, a.dtype, a, domain=domain)


def _plain_row(name, op):
    @row(name)
    def emit(e, d, a, b):
        a = e.whole(a)
        return e.value(op, a.dtype, a)


def _pair_row(name, op):
    @row(name)
    def emit(e, d, a, b):
        a, b = e.pair(a, b)
        return e.value(op, a.dtype, a, b)


def _test_row(name, *ops):
    @row(name)
    def emit(e, d, a, b):
        a, b = e.pair(a, b)
        found = e.value(ops[0], np.dtype(bool), a, b)
        for op in ops[1:]:
            found = e.value(op, found.dtype, found)
        return e.cast(found, a.dtype)


for _name, _op in {"sqrt": "Sqrt", "exp": "Exp", "log": "Log", "sig": "Sigmoid", "tanh": "Tanh", "rint": "Round"}.items():
    _float_row(_name, _op)
for _name, _op in {"exp2": "Exp2", "log2": "Log2"}.items():
    _float_row(_name, _op, "dcml")
for _name, _op in {"neg": "Neg", "abs": "Abs", "sgn": "Sign"}.items():
    _plain_row(_name, _op)
for _name, _op in {"add": "Add", "sub": "Sub", "mul": "Mul", "maximum": "Max", "minimum": "Min"}.items():
    _pair_row(_name, _op)
for _name, _ops in {"eq": ("Equal",), "ne": ("Equal", "Not"), "lt": ("Less",), "le": ("LessOrEqual",), "gt": ("Greater",),
                    "ge": ("GreaterOrEqual",)}.items():
    _test_row(_name, *_ops)


@row("sqr")
def _(e, d, a, b):
    a = e.whole(a)
    return e.value("Mul", a.dtype, a, a)


@row("div")
def _(e, d, a, b):
    a, b = e.pair(a, b)
    if a.dtype.kind != "f":
        a, b = e.cast(a, np.dtype("f8")), e.cast(b, np.dtype("f8"))
    return e.value("Div", a.dtype, a, b)


@row("pow")
def _(e, d, a, b):
    power = e.known(b)
    if power == 2:
        a = e.whole(a) if isinstance(power, int) else e.floating(a)
        return e.value("Mul", a.dtype, a, a)
    if power == 0.5:
        a = e.floating(a)
        return e.value("Sqrt", a.dtype, a)
    a, b = e.pair(a, b)
    return e.value("Pow", a.dtype, a, b)


def _power_of_two(e, x):
    return e.value("Exp2", x.dtype, x, domain="dcml")


def _scaled(e, x, factor):
    return e.value("Mul", x.dtype, x, e.const(factor, x.dtype))


@row("sig2")
def _(e, d, a, b):
    a = _scaled(e, e.floating(a), _LN2)
    return e.value("Sigmoid", a.dtype, a)


@row("tanh2")
def _(e, d, a, b):
    a = _scaled(e, e.floating(a), _LN2)
    return e.value("Tanh", a.dtype, a)


@row("safelog")
def _(e, d, a, b):
    """Where the logarithm is below its least value, neither it nor its derivative is computed: that would be infinite."""
    a = e.floating(a)
    low = e.value("LessOrEqual", np.dtype(bool), a, e.const(math.exp(_FLOORLOG), a.dtype))
    safe = e.value("Where", a.dtype, low, e.const(1, a.dtype), a)
    return e.value("Where", a.dtype, low, e.const(_FLOORLOG, a.dtype), e.value("Log", a.dtype, safe))


@row("finite")
def _(e, d, a, b):
    a = e.whole(a)
    if a.dtype.kind != "f":
        return e.value("Equal", np.dtype(bool), a, a, to=a.dtype)
    flag = np.dtype(bool)
    outside = e.value("Or", flag, e.value("IsNaN", flag, a), e.value("IsInf", flag, a))
    return e.value("Not", flag, outside, to=a.dtype)


@row("shift")
def _(e, d, a, b):
    a, b = e.pair(e.floating(a), e.floating(b))
    if not d.get("value", True):
        return e.value("Mul", a.dtype, a, _power_of_two(e, b))
    exponent = e.value("Round", b.dtype, e.value("Log2", b.dtype, e.value("Abs", b.dtype, b), domain="dcml"))
    near = e.value("Mul", b.dtype, e.value("Sign", b.dtype, b), _power_of_two(e, exponent))
    return e.value("Mul", a.dtype, a, near)


@row("binarize")
def _(e, d, a, b):
    """-1 or 1: by the sign, or 1 with a probability that rises from 0 at -1 to 1 at 1."""
    a = e.floating(a)
    flag = np.dtype(bool)
    if b is None:
        chosen = e.value("GreaterOrEqual", flag, a, e.const(0, a.dtype), to=a.dtype)
    else:
        half = _scaled(e, e.value("Add", a.dtype, a, e.const(1, a.dtype)), 0.5)
        half = e.value("Min", a.dtype, e.value("Max", a.dtype, half, e.const(0, a.dtype)), e.const(1, a.dtype))
        draw, chance = e.pair(b, half)
        chosen = e.value("LessOrEqual", flag, draw, chance, to=a.dtype)
    return e.value("Sub", a.dtype, _scaled(e, chosen, 2), e.const(1, a.dtype))


# -- over dimensions -------------------------------------------------------------------------------

def _axes(d, rank):
    return axes_of(d["axis"], rank, d["op"])


@row("sum", "mean", "max", "min")
def _(e, d, a, b):
    a = e.table(a)
    if d["op"] == "sum" and a.dtype.kind in "biu":
        a = e.cast(a, np.dtype("u8" if a.dtype.kind == "u" else "i8"))
    if d["op"] == "mean":
        a = e.floating(a)
    op = {"sum": "ReduceSum", "mean": "ReduceMean", "max": "ReduceMax", "min": "ReduceMin"}[d["op"]]
    axes = np.array(_axes(d, len(e.shape(a))), np.int64)
    return e.value(op, a.dtype, a, e.const(axes, None), keepdims=0 if d.get("drop") else 1)


@row("argmax", "argmin")
def _(e, d, a, b):
    a = e.table(a)
    rank = len(e.shape(a))
    if d["axis"] is None:
        a = e.reshape(a, (-1,) + (1,) * (rank - 1))
    axis = 0 if d["axis"] is None else _axes(d, rank)[0]
    return e.value("ArgMax" if d["op"] == "argmax" else "ArgMin", np.dtype("i8"), a, axis=axis, keepdims=0 if d.get("drop") else 1)


@row("transpose")
def _(e, d, a, b):
    a = e.table(a)
    return e.value("Transpose", a.dtype, a)


@row("dot")
def _(e, d, a, b):
    a, b = e.pair(e.table(a), e.table(b))
    return e.value("MatMul", a.dtype, a, b)


@row("batched")
def _(e, d, a, b):
    """A product of matrices by the first dimension; where it is summed, one product of both dimensions together."""
    a, b = e.pair(a, b)
    if not d["summed"]:
        return e.value("MatMul", a.dtype, a, b)
    (x, k, n), (_, _, c) = e.shape(a), e.shape(b)
    left = e.reshape(e.value("Transpose", a.dtype, a, perm=[1, 0, 2]), (k, x * n))
    return e.value("MatMul", a.dtype, left, e.reshape(b, (x * n, c)))


@row("onehot")
def _(e, d, a, b):
    depth = d.get("depth")
    if depth is None:
        raise _core.ShapeError("onehot(): the number of classes is not known; assign it, or combine it with a tensor that has it")
    a = e.cast(e.reshape(a, (-1,)), np.dtype("i8"))
    values = e.const(np.array([0, 1], np.int8), None)
    return e.value("OneHot", np.dtype("i1"), a, e.const(np.array([depth], np.int64), None), values, axis=d["axis"])


@row("take")
def _(e, d, a, b):
    indices = e.cast(e.reshape(b, (-1,)), np.dtype("i8"))
    if d["axis"] is None:
        found = e.value("Gather", a.dtype, e.reshape(a, (-1,)), indices, axis=0)
        return e.reshape(found, d["shape"])
    return e.value("Gather", a.dtype, a, indices, axis=d["axis"])


# -- windows (windows.py) --------------------------------------------------------------------------
for _name in ("conv", "conv_data", "conv_filter", "pool", "place", "from_place"):
    ROWS[_name] = getattr(windows, _name)

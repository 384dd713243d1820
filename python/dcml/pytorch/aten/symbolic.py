"""Rows of numbers that export keeps symbolic: extents and arithmetic on them; checks that export inserts vanish."""
import operator

import torch

from .builder import TABLE, Decline, Symbolic, meta, row


def _scalar_op(kind):
    def scalar_op(b, n, *args):
        dtype = torch.int64 if isinstance(meta(n), (int, torch.SymInt)) else torch.get_default_dtype()
        return Symbolic(lambda: b.op(kind, *[b(a, dtype) for a in args]))
    return scalar_op


@row("sym_size.int")
def _(b, n, x, axis):
    return Symbolic(lambda: b.size(x, axis))


@row("sym_numel.default")
def _(b, n, x):
    return Symbolic(lambda: b.op("Size", b(x)))


def _floordiv(b, n, x, y):  # extents are not negative, where truncation is the floor
    return Symbolic(lambda: b.op("Div", b(x, torch.int64), b(y, torch.int64)))


def _truediv(b, n, x, y):
    return Symbolic(lambda: b.op("Div", b(x, torch.get_default_dtype()), b(y, torch.get_default_dtype())))


for _function, _row in ((operator.add, _scalar_op("Add")), (operator.sub, _scalar_op("Sub")),
                        (operator.mul, _scalar_op("Mul")), (operator.neg, _scalar_op("Neg")),
                        (operator.mod, _scalar_op("Mod")), (operator.floordiv, _floordiv),
                        (operator.truediv, _truediv), (torch.sym_max, _scalar_op("Max")),
                        (torch.sym_min, _scalar_op("Min"))):
    TABLE[str(_function)] = _row


def _undecided(b, n, *_):
    raise Decline("a decision by an extent that depends on values")


for _function in (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge):  # of checks, which vanish
    TABLE[str(_function)] = lambda b, n, *args: Symbolic(lambda: _undecided(b, n, *args))
TABLE[str(operator.getitem)] = lambda b, n, x, i: b.env[x][i]

for _check in ("aten._assert_scalar.default", "aten._assert_tensor_metadata.default",
               "aten.sym_constrain_range_for_size.default", "aten.sym_constrain_range.default"):
    TABLE[_check] = lambda b, n, *_, **__: None


@row("_assert_async.msg", "_assert_async.default", "_functional_assert_async.msg")
def _(b, n, condition, message="an assertion of the module failed", *_):
    b.checks.append((b(condition, torch.bool), message))


def _with_effects(b, n, token, overload, *args, **_):
    """The checks of matrices, which eager torch raises LinAlgError for."""
    if str(overload) != "aten._linalg_check_errors.default":
        raise Decline(f"{overload}, which has effects")
    info, name = args[:2]
    good = b.op("Equal", b(info), b.const(0, torch.int32))
    b.checks.append((b.op("Equal", b.op("ReduceSum", b.cast(b.op("Not", good), torch.bool, torch.int32), keepdims=0),
                          b.const(0, torch.int32)), f"{name}: a matrix is singular or not positive-definite"))
    return [None]


TABLE["with_effects"] = _with_effects

"""Rows of numbers that export keeps symbolic: extents and arithmetic on them; checks that export inserts vanish."""
import operator

import torch

from .builder import TABLE, Symbolic, meta, norm_axis, rank, row, told_by_values


def _scalar_op(kind):
    def scalar_op(b, n, *args):
        dtype = torch.int64 if isinstance(meta(n), (int, torch.SymInt)) else torch.float64
        return Symbolic(lambda: b.op(kind, *[b(a, dtype) for a in args]))
    return scalar_op


def _comparison(kind):
    def comparison(b, n, x, y):
        whole = all(isinstance(meta(v), (int, torch.SymInt)) for v in (x, y))
        return Symbolic(lambda: b.op(kind, *[b(v, torch.int64 if whole else torch.float64) for v in (x, y)]))
    return comparison


@row("sym_size.int")
def _(b, n, x, axis):
    found = told_by_values(meta(n), first=True)  # what is asserted of it is asked of the extent itself
    return Symbolic(lambda: b.extent(b(x), norm_axis(axis, rank(x))) if found else b.size(x, axis))


@row("sym_storage_offset.default")
def _(b, n, x):
    """Only asked for by checks; a tensor of a graph has no storage."""


@row("sym_numel.default")
def _(b, n, x):
    return Symbolic(lambda: b.op("Size", b(x)))


def _floordiv(b, n, x, y):  # extents are not negative, where truncation is the floor
    return Symbolic(lambda: b.op("Div", b(x, torch.int64), b(y, torch.int64)))


def _truediv(b, n, x, y):
    return Symbolic(lambda: b.op("Div", b(x, torch.float64), b(y, torch.float64)))


for _function, _row in ((operator.add, _scalar_op("Add")), (operator.sub, _scalar_op("Sub")),
                        (operator.mul, _scalar_op("Mul")), (operator.neg, _scalar_op("Neg")),
                        (operator.mod, _scalar_op("Mod")), (operator.floordiv, _floordiv),
                        (operator.truediv, _truediv), (torch.sym_max, _scalar_op("Max")),
                        (torch.sym_min, _scalar_op("Min"))):
    TABLE[str(_function)] = _row


for _function, _kind in ((operator.eq, "Equal"), (operator.lt, "Less"), (operator.le, "LessOrEqual"),
                         (operator.gt, "Greater"), (operator.ge, "GreaterOrEqual")):
    TABLE[str(_function)] = _comparison(_kind)


def _choice(b, n, condition, x, y):
    dtype = torch.int64 if isinstance(meta(n), (int, torch.SymInt)) else torch.float64
    return Symbolic(lambda: b.op("Where", b(condition, torch.bool), b(x, dtype), b(y, dtype)))


def _logic(kind):
    return lambda b, n, *args: Symbolic(lambda: b.op(kind, *[b(a, torch.bool) for a in args]))


for _function, _kind in ((operator.and_, "And"), (operator.or_, "Or"), (torch.sym_not, "Not")):
    TABLE[str(_function)] = _logic(_kind)
if hasattr(torch, "sym_ite"):
    TABLE[str(torch.sym_ite)] = _choice
TABLE[str(operator.ne)] = lambda b, n, x, y: Symbolic(lambda: b.op("Not", _comparison("Equal")(b, n, x, y).name()))
TABLE[str(operator.getitem)] = lambda b, n, x, i: b.env[x][i]


def _told_by_a_value(condition):
    """Whether a condition without symbols is one on a number of a tensor: torch puts in what an equation that is asserted says of it."""
    seen, rest = set(), [condition]
    while rest:
        node = rest.pop()
        if not isinstance(node, torch.fx.Node) or node in seen:
            continue
        extent = str(node.target) == "aten.sym_size.int" and told_by_values(meta(node), first=True)
        if extent or str(node.target) in ("aten.item.default", "aten._local_scalar_dense.default"):
            return True
        seen.add(node)
        rest += [] if isinstance(meta(node), torch.Tensor) else node.args
    return False


@row("sym_constrain_range_for_size.default", "_assert_scalar.default")
def _(b, n, condition, message="", *_, **__):
    """What torch took for granted of a number that a value tells, each call has to find true."""
    if "_assert_scalar" not in str(n.target):
        return
    expression = getattr(getattr(meta(condition), "node", None), "expr", meta(condition))
    symbols = getattr(expression, "free_symbols", ())
    told = any(str(s) in b.symbols and str(s).startswith(("u", "zuf")) for s in symbols) and not str(expression).endswith(" >= 0")
    if not told and (symbols or not _told_by_a_value(condition)):
        return
    if message.startswith("Runtime assertion"):
        message = f"a number that values tell does not fit: {expression}" if symbols else "what forward asserts of a tensor does not hold"
        message += b.line(n)
    b.check(b(condition), message)


for _check in ("aten._assert_tensor_metadata.default",
               "aten.sym_constrain_range.default"):
    TABLE[_check] = lambda b, n, *_, **__: None


@row("_assert_async.msg", "_assert_async.default", "_functional_assert_async.msg")
def _(b, n, condition, message="an assertion of the module failed", *_):
    b.check(b(condition, torch.bool), message)


@row("_linalg_check_errors.default")
def _(b, n, info, name, **_):
    """What eager torch raises LinAlgError for."""
    good = b.op("Equal", b(info), b.const(0, torch.int32))
    failures = b.op("ReduceSum", b.cast(b.op("Not", good), torch.bool, torch.int32), keepdims=0)
    b.check(b.op("Equal", failures, b.const(0, torch.int32)), f"{name}: a matrix is singular or not positive-definite", "LinAlgError")

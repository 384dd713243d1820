"""Operators of our own that torch.export can see, and the rows of these and of what else ONNX has no operator for.

The one idea: where torch has an operator that it cannot trace, or none at all, traced code calls one of the library
``dcml``, which says only what its results look like; the operators are rows of ops.def.
"""
import torch

from .builder import TABLE, Decline, dims, meta, norm_axis, rank, row

_LIBRARY = torch.library.Library("dcml", "FRAGMENT")


def operator(schema):
    """Defines an operator by its schema; the decorated function gives its results' kinds for fake tensors."""
    def register(fake):
        _LIBRARY.define(schema)
        name = schema.split("(")[0]
        torch.library.register_fake(f"dcml::{name}", fake, lib=_LIBRARY)
        return fake
    return register


def of_library(name):
    def register(function):
        TABLE[f"dcml.{name}.default"] = function
        return function
    return register


# -- CTC loss: torch's own looks at the lengths' values --------------------------------------------
@operator("ctc_loss(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, int blank, "
           "bool zero_infinity) -> Tensor")
def _(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity):
    return log_probs.new_empty(log_probs.shape[1])


@of_library("ctc_loss")
def _(b, n, log_probs, targets, input_lengths, target_lengths, blank, zero_infinity):
    return b.op("CTCLoss", b(log_probs), *[b(t, torch.int64) for t in (targets, input_lengths, target_lengths)], outs=3,
                domain="dcml", blank=blank, zero_infinity=int(zero_infinity))[0]


# -- what Python decides by values -------------------------------------------------------------------
@operator("decided(Tensor value, bool truth) -> ()")
def _(value, truth):
    return None


@of_library("decided")
def _(b, n, value, truth):
    b.check(b.reshape(b(value, torch.bool if truth else torch.int64), []), b.line(n), "Decided")


# -- order -----------------------------------------------------------------------------------------
@operator("place_of_kth(Tensor x, SymInt k, int axis) -> Tensor")
def _(x, k, axis):
    """Where the k-th least element is; the axis has an extent of 1."""
    return torch.empty_like(x.narrow(axis, 0, 1), dtype=torch.int64)


@of_library("place_of_kth")
def _(b, n, x, k, axis):
    numbers = b(x, torch.uint8) if meta(x).dtype == torch.bool else b(x)
    return b.op("PlaceOfKth", numbers, b.ints([k]), domain="dcml", axis=norm_axis(axis, rank(x)))


# -- linear algebra --------------------------------------------------------------------------------
@operator("lu(Tensor x) -> (Tensor, Tensor, Tensor)")
def _(x):
    return x.new_empty(x.shape), x.new_empty(x.shape), x.new_empty(x.shape[:-1], dtype=torch.int64)


@of_library("lu")
def _(b, n, x):
    return b.op("LU", b(x), outs=3, domain="dcml")


@operator("swaps(Tensor pivots) -> Tensor")
def _(pivots):
    return torch.empty_like(pivots)


@operator("swapped(Tensor swaps, Tensor numbers) -> Tensor")
def _(swaps, numbers):
    return swaps.new_empty(*swaps.shape[:-1], numbers.shape[0], dtype=torch.int64)


@of_library("swapped")
def _(b, n, swaps, numbers):
    """The numbers of rows behind all swaps."""
    return b.op("Swapped", b(swaps, torch.int64), b(numbers), domain="dcml")


@operator("qr(Tensor x, bool full) -> (Tensor, Tensor, Tensor, Tensor)")
def _(x, full):
    """Q, R, Householder's vectors V, and S of Q = I - V S V'."""
    *batch, rows, columns = x.shape
    least = min(rows, columns)
    inner = rows if full else least
    shapes = (rows, inner), (inner, columns), (rows, least), (least, least)
    return tuple(x.new_empty(*batch, *shape) for shape in shapes)


@of_library("qr")
def _(b, n, x, full):
    return b.op("QR", b(x), outs=4, domain="dcml", full=int(full))


@operator("jacobi(Tensor x) -> (Tensor, Tensor)")
def _(x):
    return x.new_empty(x.shape), x.new_empty(*x.shape[:-2], x.shape[-1], x.shape[-1])


@of_library("jacobi")
def _(b, n, x):
    return b.op("Jacobi", b(x), outs=2, domain="dcml")


@row("linalg_solve_triangular.default")
def _(b, n, a, x, *, upper, left=True, unitriangular=False):
    if not left or dims(a)[:-2] != dims(x)[:-2]:
        raise Decline("a triangular system that is not A X = B with equal batches")
    return b.op("SolveTriangular", b(a), b(x), domain="dcml", unit=int(unitriangular), upper=int(upper))


@row("linalg_cross.default")
def _(b, n, x, y, *, dim=-1):
    sizes, dtype = b.ints(meta(n).shape), meta(n).dtype
    x, y = (b(v, dtype) if dims(v) == dims(n) else b.op("Expand", b(v, dtype), sizes) for v in (x, y))
    return b.op("Cross", x, y, domain="dcml", axis=norm_axis(dim, rank(n)))


@row("linalg_cholesky_ex.default", "cholesky.default")
def _(b, n, x, upper=False, check_errors=False):
    """Of the triangle that torch reads; as for torch, the gradient is that of a symmetric matrix."""
    r = rank(x)
    swap = [*range(r - 2), r - 1, r - 2]
    name = b.transpose(b(x), swap) if upper else b(x)
    whole = b.op("Mul", b.op("Add", name, b.transpose(name, swap)), b.const(0.5, meta(x).dtype))
    exact = b.op("Add", whole, b.stop(b.op("Sub", name, whole)))
    y = b.op("Cholesky", exact, domain="dcml")
    y = b.transpose(y, swap) if upper else y
    if str(n.target) == "aten.cholesky.default":
        return y
    failed = b.op("IsNaN", b.op("ReduceSum", y, b.const([-2, -1]), keepdims=0))
    return [y, b.cast(failed, torch.bool, torch.int32)]


# -- scans and special functions -------------------------------------------------------------------
@row("cummax.default", "cummin.default")
def _(b, n, x, axis):
    if rank(x) == 0:
        return [b(x), b.const(0)]
    axis = norm_axis(axis, rank(x))
    is_bool = meta(x).dtype == torch.bool
    values, places = b.op("CumExtreme", b(x, torch.uint8) if is_bool else b(x), domain="dcml", outs=2, axis=axis,
                          least=int("cummin" in str(n.target)))
    return [b.cast(values, torch.uint8, torch.bool) if is_bool else values, places]


@row("logcumsumexp.default")
def _(b, n, x, axis):
    return b.op("LogCumSumExp", b(x), domain="dcml", axis=norm_axis(axis, rank(x))) if rank(x) else b(x)


@row("polygamma.default", "special_polygamma.default")
def _(b, n, order, x):
    name = b(x, meta(n).dtype)
    return b.op("Polygamma", name, domain="dcml", n=order) if order else b.op("Digamma", name, domain="dcml")

"""Functions of NumPy that are others put together.

The one idea: each is said in terms of the functions of ``functions.py``, as NumPy's manual says it.
Must not know: how statements are emitted.
"""
import numpy as np

from .. import _core
from .array import Array, moved, subscript
from .functions import (_arrays, _axes, _broadcast_to, _concatenate, _flip, _mean, _reshape, cast, empty, matmul, reduction, serves, stack,
                        transposed)
from .index import Index, NeedsValue, is_index, product

_ALL = slice(None)


def _at_least(t, arrays, rank):
    """Arrays of one dimension at least, with more as np.atleast_2d and np.atleast_3d add them."""
    made = []
    for a in _arrays(t, *arrays):
        if a.ndim == 0:
            a = _reshape(t, a, 1)
        if rank >= 2 and a.ndim == 1:
            a = subscript(a, [None, _ALL], t.out)
        if rank == 3 and a.ndim == 2:
            a = subscript(a, [_ALL, _ALL, None], t.out)
        made.append(a)
    return made


@serves(np.hstack)
def _hstack(t, tup):
    arrays = _at_least(t, tup, 1)
    return _concatenate(t, arrays, 0 if arrays[0].ndim == 1 else 1)


@serves(np.vstack)
def _vstack(t, tup):
    return _concatenate(t, _at_least(t, tup, 2), 0)


@serves(np.dstack)
def _dstack(t, tup):
    return _concatenate(t, _at_least(t, tup, 3), 2)


@serves(np.column_stack)
def _column_stack(t, tup):
    arrays = [subscript(a, [_ALL, None], t.out) if a.ndim < 2 else a for a in _at_least(t, tup, 1)]
    return _concatenate(t, arrays, 1)


@serves(np.split)
def _split(t, ary, indices_or_sections, axis=0, equal=True):
    a, = _arrays(t, ary)
    axis, = _axes(axis, a.ndim)
    where, extent = indices_or_sections, a.shape[axis]
    if is_index(where):
        if isinstance(extent, Index):
            raise NeedsValue(f"the extent {extent} that is split")
        if isinstance(where, Index) or where < 1 or equal and extent % where:
            raise _core.ShapeError(f"{extent} elements in {where} {'equal ' * equal}parts")
        where = [extent // where * k + min(k, extent % where) for k in range(1, where)]
    ends = [*where, None]
    return [subscript(a, [_ALL] * axis + [slice(b, e)], t.out) for b, e in zip([0, *where], ends)]


@serves(np.array_split)
def _array_split(t, ary, indices_or_sections, axis=0):
    return _split(t, ary, indices_or_sections, axis, False)


@serves(np.vsplit)
def _vsplit(t, ary, indices_or_sections):
    return _split(t, ary, indices_or_sections, 0)


@serves(np.hsplit)
def _hsplit(t, ary, indices_or_sections):
    return _split(t, ary, indices_or_sections, min(1, _arrays(t, ary)[0].ndim - 1))


@serves(np.dsplit)
def _dsplit(t, ary, indices_or_sections):
    return _split(t, ary, indices_or_sections, 2)


@serves(np.tile)
def _tile(t, A, reps):
    a, = _arrays(t, A)
    reps = list(reps) if isinstance(reps, (tuple, list)) else [reps]
    if not all(is_index(r) and not isinstance(r, Index) for r in reps):
        raise TypeError("repetitions that are no numbers")
    rank = max(a.ndim, len(reps))
    shape, reps = [1] * (rank - a.ndim) + list(a.shape), [1] * (rank - len(reps)) + reps
    a = _reshape(t, a, shape) if rank > a.ndim else a
    for axis, n in enumerate(reps):
        if n != 1:
            a = _concatenate(t, [a] * n, axis) if n else subscript(a, [_ALL] * axis + [slice(0, 0)], t.out)
    return a


@serves(np.repeat)
def _repeat(t, a, repeats, axis=None):
    a, = _arrays(t, a)
    if not is_index(repeats) or isinstance(repeats, Index):
        raise TypeError("repetitions that are no number")
    a, axis = (t.out.settle(_reshape(t, a, -1)), 0) if axis is None else (a, _axes(axis, a.ndim)[0])
    shape = [*a.shape[:axis], a.shape[axis] * repeats, *a.shape[axis + 1:]]
    return _reshape(t, stack(t, [a] * repeats, axis + 1), shape)


@serves(np.roll)
def _roll(t, a, shift, axis=None):
    a, = _arrays(t, a)
    if axis is None:
        return _reshape(t, _roll(t, t.out.settle(_reshape(t, a, -1)), shift, 0), a.shape)
    many = isinstance(axis, (tuple, list))
    for by, d in zip(shift if many else [shift], axis if many else [axis]):
        d, = _axes(d, a.ndim)
        extent = a.shape[d]
        if not is_index(by) or isinstance(by, Index):
            raise TypeError("a shift that is no number")
        if isinstance(extent, Index):
            t.out.at_least(extent, abs(by))
        by = by if isinstance(extent, Index) else by % max(extent, 1)
        if by:
            parts = [subscript(a, [_ALL] * d + [part], t.out) for part in (slice(-by, None), slice(None, -by))]
            a = _concatenate(t, parts, d)
    return a


@serves(np.flipud)
def _flipud(t, m):
    return _flip(t, m, 0)


@serves(np.fliplr)
def _fliplr(t, m):
    return _flip(t, m, 1)


@serves(np.diff)
def _diff(t, a, n=1, axis=-1):
    a, = _arrays(t, a)
    axis, = _axes(axis, a.ndim)
    for _ in range(n):
        late, early = (subscript(a, [_ALL] * axis + [part], t.out) for part in (slice(1, None), slice(None, -1)))
        a = t.out.settle(t.ufunc(None, "subtract", late, early))
    return a


@serves(np.pad)
def _pad(t, array, pad_width, mode="constant", constant_values=0):
    a, = _arrays(t, array)
    widths = np.broadcast_to(np.asarray(pad_width), (a.ndim, 2)).tolist()
    if mode != "constant" or not isinstance(constant_values, (int, float)):
        raise TypeError(f"the mode {mode!r}; there is 'constant', with one number")
    out = empty(t, [e + before + after for e, (before, after) in zip(a.shape, widths)], a.dtype, "padded")
    t.out.store(out, t.array_of(None, constant_values, a.dtype), guarded=False)
    inside = subscript(out, [slice(before, before + e) for e, (before, _) in zip(a.shape, widths)], t.out)
    t.out.store(inside, a, guarded=False)
    return out


# -- matrices --------------------------------------------------------------------------------------
def _where_index(t, a, holds, fallback):
    """The matrices of an array where a text of row and column holds, zeros elsewhere."""
    zero = t.array_of(None, fallback, a.dtype).text([])
    return Array(a.shape, a.dtype, text=lambda index: f"({holds(index[-2], index[-1])} ? {a.text(index)} : {zero})", leaves=a.leaves)


@serves(np.triu)
def _triu(t, m, k=0):
    return _where_index(t, _arrays(t, m)[0], lambda i, j: f"({j} >= {i + k})", 0)


@serves(np.tril)
def _tril(t, m, k=0):
    return _where_index(t, _arrays(t, m)[0], lambda i, j: f"({j} <= {i + k})", 0)


@serves(np.diag, np.diagonal)
def _diag(t, v, k=0):
    a, = _arrays(t, v)
    if a.ndim == 2:
        (rows, columns), first = a.shape, (max(-k, 0), max(k, 0))
        known = not isinstance(rows, Index) and not isinstance(columns, Index)
        if not known and rows != columns and (t.out.is_open(rows) or t.out.is_open(columns)):
            raise NeedsValue(f"the extents {rows} and {columns} of a diagonal")
        count = max(min(rows - first[0], columns - first[1]), 0) if known else t.out.same(rows, columns) - abs(k)
        return moved(a, [count], lambda index: [index[0] + first[0], index[0] + first[1]])
    if a.ndim != 1:
        raise TypeError(f"an array with {a.ndim} dimensions")
    extent = a.shape[0] + abs(k)
    out = empty(t, [extent, extent], a.dtype, "diagonal")
    t.out.store(out, t.array_of(None, 0, a.dtype), guarded=False)
    t.out.store(_diag(t, out, k), a, guarded=False)
    return out


@serves(np.trace)
def _trace(t, a, offset=0):
    return reduction(t, "add", _diag(t, a, offset))


@serves(np.kron)
def _kron(t, a, b):
    a, b = _arrays(t, a, b)
    rank = max(a.ndim, b.ndim)
    a, b = (_reshape(t, x, [1] * (rank - x.ndim) + list(x.shape)) if x.ndim < rank else x for x in (a, b))
    outer = t.ufunc(None, "multiply", subscript(a, [_ALL, None] * rank, t.out), subscript(b, [None, _ALL] * rank, t.out))
    return _reshape(t, t.out.settle(outer), [x * y for x, y in zip(a.shape, b.shape)])


# -- products --------------------------------------------------------------------------------------
@serves(np.tensordot)
def _tensordot(t, a, b, axes=2):
    a, b = _arrays(t, a, b)
    left, right = (range(a.ndim - axes, a.ndim), range(axes)) if isinstance(axes, int) else \
        (x if isinstance(x, (tuple, list)) else [x] for x in axes)
    left, right = [x % a.ndim for x in left], [x % b.ndim for x in right]
    if len(left) != len(right):
        raise _core.ShapeError(f"{len(left)} axes of the first operand, {len(right)} of the second")
    for x, y in zip(left, right):
        t.out.same(a.shape[x], b.shape[y])
    rest = [[d for d in range(v.ndim) if d not in axes] for v, axes in ((a, left), (b, right))]
    shape = [a.shape[d] for d in rest[0]] + [b.shape[d] for d in rest[1]]
    inner = product([a.shape[d] for d in left])
    a = _reshape(t, t.out.settle(transposed(a, [*rest[0], *left])), product([a.shape[d] for d in rest[0]]), inner)
    b = _reshape(t, t.out.settle(transposed(b, [*right, *rest[1]])), inner, product([b.shape[d] for d in rest[1]]))
    return _reshape(t, t.out.settle(matmul(t, a, b)), shape)


@serves(np.inner)
def _inner(t, a, b):
    a, b = _arrays(t, a, b)
    return _tensordot(t, a, b, ([-1], [-1])) if a.ndim and b.ndim else t.ufunc(None, "multiply", a, b)


@serves(np.vdot)
def _vdot(t, a, b):
    a, b = (t.out.settle(_reshape(t, x, -1)) for x in _arrays(t, a, b))
    return matmul(t, t.ufunc(None, "conjugate", a) if a.dtype.kind == "c" else a, b)


# -- statistics ------------------------------------------------------------------------------------
@serves(np.count_nonzero)
def _count_nonzero(t, a, axis=None, keepdims=False):
    a, = _arrays(t, a)
    return reduction(t, "add", cast(t.out.settle(t.ufunc(None, "not_equal", a, 0)), np.int64), axis, None, keepdims)


@serves(np.ptp)
def _ptp(t, a, axis=None, keepdims=False):
    greatest, least = (t.out.settle(reduction(t, name, a, axis, None, keepdims)) for name in ("maximum", "minimum"))
    return t.ufunc(None, "subtract", greatest, least)


@serves(np.average)
def _average(t, a, axis=None, weights=None, keepdims=False):
    if weights is None:
        return _mean(t, a, axis, None, keepdims)
    a, weights = _arrays(t, a, weights)
    if weights.ndim != a.ndim:
        axes = _axes(axis, a.ndim)
        if len(axes) != 1 or axis is None or weights.ndim != 1:
            raise TypeError("weights of another shape, without the axis that they are of")
        weights = subscript(weights, [_ALL if d == axes[0] else None for d in range(a.ndim)], t.out)
    total = t.out.settle(reduction(t, "add", t.out.settle(t.ufunc(None, "multiply", a, weights)), axis, None, keepdims))
    all_weights = cast(weights, total.dtype)
    if weights.shape != a.shape:
        all_weights = _broadcast_to(t, t.out.settle(all_weights), a.shape)
    return t.ufunc(None, "divide", total, t.out.settle(reduction(t, "add", all_weights, axis, None, keepdims)))


@serves(np.linalg.norm)
def _norm(t, x, ord=None, axis=None, keepdims=False):
    a, = _arrays(t, x)
    of_vector = axis is None and a.ndim == 1 or is_index(axis)
    if ord == 1 and of_vector:
        return reduction(t, "add", t.out.settle(t.ufunc(None, "absolute", a)), axis, None, keepdims)
    if ord in (np.inf, -np.inf) and of_vector:
        return reduction(t, "maximum" if ord > 0 else "minimum", t.out.settle(t.ufunc(None, "absolute", a)), axis, None, keepdims)
    if ord is not None and not (ord == 2 and of_vector) and not (ord == "fro" and not of_vector):
        raise TypeError(f"the order {ord!r}; there are None, and 1, 2 and inf of vectors")
    if a.dtype.kind == "c":
        a = t.out.settle(t.ufunc(None, "absolute", a))
    if a.dtype.kind != "f":
        a = t.out.settle(cast(a, np.float64))
    return t.ufunc(None, "sqrt", t.out.settle(reduction(t, "add", t.out.settle(t.ufunc(None, "square", a)), axis, None, keepdims)))

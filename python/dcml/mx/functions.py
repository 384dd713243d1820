"""Functions of NumPy on arrays: what ``dcml.mx.np`` offers besides the array.

The one idea: each is an operator of ONNX that the core has, or a few of them.
Must not know: the tape, npx.
"""
import builtins

import numpy as onp

from .. import _core, memory
from .array import as_array, as_operator, binary, cast, default_dtype, invoke, joint, ndarray, operands, power
from .array import floor_divide as _floor_divide
from .tape import dtype_of, number_of, types

_I64 = onp.dtype("int64")


def _dtype(dtype):
    return dtype_of(number_of(dtype))


def _finish(result, out):
    if out is None:
        return result
    if not isinstance(out, ndarray):
        raise TypeError(f"out: expected an array, got {type(out).__name__}")
    return out._in_place(result)


def _floating(x):
    x = as_array(x)
    return x if x.dtype.kind in "fV" else cast(x, default_dtype())


# -- making ---------------------------------------------------------------------------------------------------
def array(object, dtype=None, device=None, ctx=None):
    """An array of a list, a number (in float32 if nothing says else) or NumPy's array (in its type); always a copy."""
    from .device import check
    check(device if device is not None else ctx)
    dtype = None if dtype is None else _dtype(dtype)
    if isinstance(object, ndarray):
        return cast(object, dtype) if dtype is not None and dtype != object.dtype else object.copy()
    if isinstance(object, (list, tuple)) and _holds_arrays(object):
        object = [_bare(item) for item in object]
    if dtype is None and not hasattr(object, "dtype"):
        dtype = default_dtype()
    try:
        data = memory.copy(object, dtype)
        types.of(data.dtype)
    except (ValueError, TypeError) as error:
        raise TypeError(f"array: {error}") from None
    return ndarray(data)


def _holds_arrays(items):
    return builtins.any(isinstance(i, ndarray) or (isinstance(i, (list, tuple)) and _holds_arrays(i)) for i in items)


def _bare(item):
    return item.asnumpy() if isinstance(item, ndarray) else [_bare(i) for i in item] if isinstance(item, (list, tuple)) else item


def _filled(value, shape, dtype):
    shape = (shape, ) if isinstance(shape, (int, onp.integer)) else tuple(int(n) for n in shape)
    if builtins.any(n < 0 for n in shape):
        raise _core.ShapeError(f"expected extents that are not negative, got {shape}")
    return ndarray(memory.full(shape, value, default_dtype() if dtype is None else _dtype(dtype)))


def zeros(shape, dtype=None, order="C", device=None, ctx=None):
    """Zeros."""
    return _filled(0, shape, dtype)


def ones(shape, dtype=None, order="C", device=None, ctx=None):
    """Ones."""
    return _filled(1, shape, dtype)


def empty(shape, dtype=None, order="C", device=None, ctx=None):
    """Zeros too, so that nothing depends on what memory held."""
    return _filled(0, shape, dtype)


def full(shape, fill_value, dtype=None, order="C", device=None, ctx=None, out=None):
    """One value everywhere."""
    return _finish(_filled(fill_value if not isinstance(fill_value, ndarray) else fill_value.item(), shape, dtype), out)


def _like(a, dtype):
    a = as_array(a)
    return a.shape, a.dtype if dtype is None else dtype


def zeros_like(a, dtype=None, order="C", device=None, ctx=None, out=None):
    """Zeros of an array's shape and type."""
    return _finish(zeros(*_like(a, dtype)), out)


def ones_like(a, dtype=None, order="C", device=None, ctx=None, out=None):
    """Ones of an array's shape and type."""
    return _finish(ones(*_like(a, dtype)), out)


empty_like = zeros_like


def full_like(a, fill_value, dtype=None, order="C", device=None, ctx=None, out=None):
    """One value everywhere, in an array's shape and type."""
    shape, dtype = _like(a, dtype)
    return full(shape, fill_value, dtype, out=out)


def arange(start, stop=None, step=1, dtype=None, device=None, ctx=None):
    """Numbers from start to below stop, step apart; in float32 if nothing says else."""
    return ndarray(onp.arange(0 if stop is None else start, start if stop is None else stop, step, dtype=_dtype(dtype or default_dtype())))


def linspace(start, stop, num=50, endpoint=True, dtype=None, device=None, ctx=None):
    """num numbers from start to stop, equally far apart."""
    return ndarray(onp.linspace(start, stop, num, endpoint, dtype=_dtype(dtype or default_dtype())))


def eye(N, M=None, k=0, dtype=None, device=None, ctx=None):
    """Ones on a diagonal."""
    return ndarray(onp.eye(N, M, k, dtype=_dtype(dtype or default_dtype())))


# -- element by element -----------------------------------------------------------------------------------------
_UNARY = {"exp": "Exp", "log": "Log", "sqrt": "Sqrt", "tanh": "Tanh", "sin": "Sin", "cos": "Cos", "tan": "Tan", "arcsin": "Asin",
          "arccos": "Acos", "arctan": "Atan", "sinh": "Sinh", "cosh": "Cosh", "arcsinh": "Asinh", "arccosh": "Acosh", "arctanh": "Atanh",
          "reciprocal": "Reciprocal"}
_UNARY_ANY = {"abs": "Abs", "absolute": "Abs", "negative": "Neg", "sign": "Sign"}
_ROUNDING = {"floor": "Floor", "ceil": "Ceil", "rint": "Round"}
_BINARY = {"add": "Add", "subtract": "Sub", "multiply": "Mul", "equal": "Equal", "less": "Less", "less_equal": "LessOrEqual",
           "greater": "Greater", "greater_equal": "GreaterOrEqual", "mod": "Mod", "remainder": "Mod", "matmul": "MatMul"}


def _named(function, name, text):
    function.__name__ = function.__qualname__ = name
    function.__doc__ = text
    return function


def _unary(name, op, whole, floats):
    def function(x, out=None):
        x = as_array(x)
        if whole and x.dtype.kind in "biu":
            return _finish(x.copy(), out)
        return _finish(invoke(op, "", 21, (_floating(x) if floats else x, ))[0], out)
    return as_operator(_named(function, name, f"NumPy's {name}, element by element."), op, types="floats" if floats else "inputs")


def _binary(name, op):
    def function(x1, x2, out=None):
        return _finish(binary(op, x1, x2), out)
    _named(function, name, f"NumPy's {name}, with broadcasting.")
    if op == "Mod":  # several operators
        return function
    return as_operator(function, op, least=2, most=2, types="any" if op == "Equal" else "numbers")


for _name, _op in _UNARY.items():
    globals()[_name] = _unary(_name, _op, False, True)
for _name, _op in _UNARY_ANY.items():
    globals()[_name] = _unary(_name, _op, False, False)
for _name, _op in _ROUNDING.items():
    globals()[_name] = _unary(_name, _op, True, True)
for _name, _op in _BINARY.items():
    globals()[_name] = _binary(_name, _op)
abs_ = globals()["abs"]
round_ = globals()["rint"]


def divide(x1, x2, out=None):
    """Quotients, of integers too as floats."""
    return _finish(binary("Div", x1, x2, True), out)


divide = true_divide = as_operator(divide, "Div", least=2, most=2, types="floats")


def floor_divide(x1, x2, out=None):
    """Quotients, rounded towards minus infinity."""
    return _finish(_floor_divide(x1, x2), out)


def not_equal(x1, x2, out=None):
    """Do elements differ?"""
    return _finish(as_array(x1) != x2, out)


def _power(x1, x2, out=None):
    """x1 to the power of x2."""
    return _finish(power(x1, x2), out)


def square(x, out=None):
    """x times x."""
    return _finish(power(as_array(x), 2), out)


def _extreme(op):
    def function(x1, x2, out=None):
        a, b = operands(x1 if isinstance(x1, ndarray) else as_array(x1), x2)
        return _finish(invoke(op, "", 21, (a, b))[0], out)
    return function


maximum = as_operator(_named(_extreme("Max"), "maximum", "The greater of two, element by element."), "Max", least=2, most=2, types="any")
minimum = as_operator(_named(_extreme("Min"), "minimum", "The smaller of two, element by element."), "Min", least=2, most=2, types="any")


def log1p(x, out=None):
    """log(1 + x)."""
    return _finish(invoke("Log", "", 21, (binary("Add", _floating(x), 1), ))[0], out)


def expm1(x, out=None):
    """exp(x) - 1."""
    return _finish(binary("Sub", invoke("Exp", "", 21, (_floating(x), ))[0], 1), out)


def clip(a, a_min=None, a_max=None, out=None):
    """a, but a_min where it is less and a_max where it is more."""
    a = as_array(a)
    low, high = (None if v is None else cast(as_array(v), a.dtype) for v in (a_min, a_max))
    return _finish(invoke("Clip", "", 21, (a, low, high))[0], out)


def where(condition, x=None, y=None):
    """x where the condition holds, y elsewhere; of a condition alone, where it holds."""
    condition = as_array(condition)
    if x is None and y is None:
        return tuple(ndarray(k) for k in onp.nonzero(condition._value()))
    a, b = operands(x, y)
    return invoke("Where", "", 21, (cast(condition, onp.dtype(bool)), a, b))[0]


def astype(x, dtype, copy=True):
    """The array in another type."""
    dtype = _dtype(dtype)
    if x.dtype == dtype:
        return x.copy() if copy else x
    return cast(x, dtype)


# -- products ---------------------------------------------------------------------------------------------------
def dot(a, b, out=None):
    """NumPy's dot: a sum over the last axis of a and the last but one of b; numbers multiply."""
    a, b = operands(as_array(a), as_array(b))
    if not a.ndim or not b.ndim:
        return _finish(binary("Mul", a, b), out)
    if a.ndim > 2 and b.ndim > 1 or b.ndim > 2:
        left = "".join(chr(97 + k) for k in range(a.ndim - 1))
        right = "".join(chr(110 + k) for k in range(b.ndim - 1))
        equation = f"{left}z,{right[:-1]}z{right[-1:]}->{left}{right}"
        return _finish(invoke("Einsum", "", 21, (a, b), {"equation": equation})[0], out)
    return _finish(invoke("MatMul", "", 21, (a, b))[0], out)


def tensordot(a, b, axes=2):
    """Sums of products over axes: a number of them, or two lists."""
    a, b = operands(as_array(a), as_array(b))
    if isinstance(axes, int):
        axes = list(range(a.ndim - axes, a.ndim)), list(range(axes))
    first, second = ([n] if isinstance(n, int) else list(n) for n in axes)
    left = [chr(97 + k) for k in range(a.ndim)]
    right = [chr(110 + k) for k in range(b.ndim)]
    for i, j in zip(first, second):
        right[j] = left[i]
    kept = [c for k, c in enumerate(left) if k not in [i % a.ndim for i in first]]
    kept += [c for k, c in enumerate(right) if k not in [j % b.ndim for j in second]]
    return invoke("Einsum", "", 21, (a, b), {"equation": f"{''.join(left)},{''.join(right)}->{''.join(kept)}"})[0]


def einsum(subscripts, *operands, **kwargs):
    """Sums of products by a formula, as "ij,jk->ik"."""
    return invoke("Einsum", "", 21, tuple(as_array(a) for a in operands), {"equation": subscripts})[0]


# -- reductions ---------------------------------------------------------------------------------------------------
def _axes(x, axis):
    axes = [axis] if isinstance(axis, (int, onp.integer)) else list(axis)
    for k in axes:
        if not -x.ndim <= k < x.ndim:
            raise _core.ShapeError(f"axis {k} is outside of an array of {x.ndim} dimensions")
    return onp.array(axes, _I64)


def _reduced(op, x, axis, keepdims):
    if axis is None:
        return invoke(op, "", 21, (x, ), {"keepdims": int(keepdims)})[0]
    if not isinstance(axis, (int, onp.integer)) and not len(axis):
        return x.copy()
    return invoke(op, "", 21, (x, _axes(x, axis)), {"keepdims": int(keepdims)})[0]


def sum(a, axis=None, dtype=None, out=None, keepdims=False):
    """Sums over axes, of all elements if None."""
    a = as_array(a)
    wanted = _dtype(dtype) if dtype is not None else _I64 if a.dtype.kind == "b" else a.dtype
    return _finish(_reduced("ReduceSum", cast(a, wanted), axis, keepdims), out)


def mean(a, axis=None, dtype=None, out=None, keepdims=False):
    """Means over axes, of all elements if None; of integers in the type of floats that is the default."""
    a = as_array(a)
    a = cast(a, _dtype(dtype)) if dtype is not None else _floating(a)
    return _finish(_reduced("ReduceMean", a, axis, keepdims), out)


def prod(a, axis=None, dtype=None, out=None, keepdims=False):
    """Products over axes."""
    a = as_array(a)
    return _finish(_reduced("ReduceProd", cast(a, _dtype(dtype)) if dtype is not None else a, axis, keepdims), out)


def max(a, axis=None, out=None, keepdims=False):
    """The greatest elements over axes."""
    return _finish(_reduced("ReduceMax", as_array(a), axis, keepdims), out)


def min(a, axis=None, out=None, keepdims=False):
    """The smallest elements over axes."""
    return _finish(_reduced("ReduceMin", as_array(a), axis, keepdims), out)


def var(a, axis=None, dtype=None, out=None, ddof=0, keepdims=False):
    """Variances over axes."""
    a = _floating(a)
    apart = binary("Sub", a, mean(a, axis, keepdims=True))
    spread = sum(binary("Mul", apart, apart), axis, keepdims=keepdims)
    n = a.size // builtins.max(spread.size, 1)
    return _finish(binary("Div", spread, float(n - ddof)), out)


def std(a, axis=None, dtype=None, out=None, ddof=0, keepdims=False):
    """Standard deviations over axes."""
    return _finish(power(var(a, axis, ddof=ddof, keepdims=keepdims), 0.5), out)


def _arg(op):
    def function(a, axis=None, out=None, keepdims=False):
        a = as_array(a)
        if axis is None:
            a, axis = reshape(a, (-1, )), 0
        return _finish(invoke(op, "", 21, (a, ), {"axis": int(axis), "keepdims": int(keepdims)})[0], out)
    return function


argmax = _named(_arg("ArgMax"), "argmax", "Where the first of the greatest elements is.")
argmin = _named(_arg("ArgMin"), "argmin", "Where the first of the smallest elements is.")


def cumsum(a, axis=None, dtype=None, out=None):
    """Running sums."""
    a = as_array(a)
    if axis is None:
        a, axis = reshape(a, (-1, )), 0
    return _finish(invoke("CumSum", "", 21, (cast(a, _dtype(dtype)) if dtype is not None else a, onp.array(axis, _I64)))[0], out)


def all(a, axis=None, out=None, keepdims=False):
    """Do all elements hold?"""
    return ndarray(onp.asarray(onp.all(as_array(a)._value(), axis=axis, keepdims=keepdims)))


def any(a, axis=None, out=None, keepdims=False):
    """Does one of the elements hold?"""
    return ndarray(onp.asarray(onp.any(as_array(a)._value(), axis=axis, keepdims=keepdims)))


# -- shapes ---------------------------------------------------------------------------------------------------
def reshape(a, newshape, *more, order="C"):
    """The elements in another shape; one extent may be -1."""
    a = as_array(a)
    shape = (newshape, *more) if isinstance(newshape, (int, onp.integer)) else tuple(newshape)
    known, left = 1, shape.count(-1)
    for n in shape:
        known *= n if n != -1 else 1
    if left > 1 or builtins.any(n < -1 for n in shape) or (left and (not known or a.size % known)) or (not left and known != a.size):
        raise _core.ShapeError(f"reshape: an array of shape {a.shape} does not become {shape}")
    shape = [int(n) if n != -1 else a.size // known for n in shape]
    return invoke("Reshape", "", 21, (a, onp.array(shape, _I64)), {"allowzero": 1})[0]


def transpose(a, *axes):
    """The axes in another order; without one, reversed."""
    a = as_array(a)
    if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], (tuple, list))):
        axes = axes[0] or ()
    perm = tuple(range(a.ndim))[::-1] if not axes else tuple(int(k) % builtins.max(a.ndim, 1) for k in axes)
    return invoke("Transpose", "", 21, (a, ), {"perm": perm})[0] if perm else a.copy()


def swapaxes(a, axis1, axis2):
    """Two axes swapped."""
    order = list(range(as_array(a).ndim))
    order[axis1], order[axis2] = order[axis2], order[axis1]
    return transpose(a, order)


def moveaxis(a, source, destination):
    """Axes moved to other places."""
    a = as_array(a)
    source, destination = ([v % a.ndim] if isinstance(v, int) else [k % a.ndim for k in v] for v in (source, destination))
    order = [k for k in range(a.ndim) if k not in source]
    for to, start in sorted(zip(destination, source)):
        order.insert(to, start)
    return transpose(a, order)


def expand_dims(a, axis):
    """A new axis of extent 1."""
    a = as_array(a)
    shape = list(a.shape)
    shape.insert(axis if axis >= 0 else axis + a.ndim + 1, 1)
    return reshape(a, shape)


def squeeze(a, axis=None):
    """Without axes of extent 1."""
    a = as_array(a)
    return reshape(a, onp.squeeze(onp.broadcast_to(onp.empty(()), a.shape), axis=axis).shape)


def ravel(a, order="C"):
    """In one dimension."""
    return reshape(a, (-1, ) if as_array(a).size else (0, ))


def broadcast_to(a, shape):
    """Elements repeated to a shape."""
    a = as_array(a)
    shape = (shape, ) if isinstance(shape, int) else tuple(shape)
    return invoke("Expand", "", 21, (a, onp.array(shape, _I64)))[0]


def _together(name, seq):
    if isinstance(seq, ndarray):
        seq = list(seq)
    arrays = [as_array(a) for a in seq]
    if not arrays:
        raise _core.ValueError_(f"{name}: expected at least one array")
    dtype = arrays[0].dtype
    for a in arrays[1:]:
        dtype = joint(dtype, a.dtype)
    return [cast(a, dtype) for a in arrays]


def concatenate(seq, axis=0, out=None):
    """Arrays joined along an axis; None: as one dimension."""
    arrays = _together("concatenate", seq)
    if axis is None:
        arrays, axis = [ravel(a) for a in arrays], 0
    return _finish(invoke("Concat", "", 21, tuple(arrays), {"axis": int(axis)})[0], out)


concat = concatenate


def stack(arrays, axis=0, out=None):
    """Arrays joined along a new axis."""
    arrays = _together("stack", arrays)
    axis = axis if axis >= 0 else axis + arrays[0].ndim + 1
    return concatenate([expand_dims(a, axis) for a in arrays], axis, out)


def split(ary, indices_or_sections, axis=0):
    """A list of parts along an axis: as many as given, or cut before indices."""
    a = as_array(ary)
    n = a.shape[axis]
    if isinstance(indices_or_sections, int):
        if indices_or_sections < 1 or n % indices_or_sections:
            raise _core.ValueError_(f"split: {n} elements do not make {indices_or_sections} equal parts")
        sizes = [n // indices_or_sections] * indices_or_sections
    else:
        cuts = [0, *(builtins.min(int(i), n) for i in indices_or_sections), n]
        sizes = [builtins.max(b - c, 0) for c, b in zip(cuts, cuts[1:])]
    return list(invoke("Split", "", 21, (a, onp.array(sizes, _I64)), {"axis": int(axis)}, len(sizes)))


def take(a, indices, axis=None, mode="raise", out=None):
    """Elements, or slices along an axis, at indices; mode "clip" or "wrap" for those that are outside."""
    a, indices = as_array(a), as_array(indices)
    if axis is None:
        a, axis = ravel(a), 0
    n = a.shape[axis]
    k = cast(indices, _I64)
    if mode == "clip":
        k = clip(k, 0, n - 1)
    elif mode == "wrap":
        k = binary("Mod", k, n)
    return _finish(invoke("Gather", "", 21, (a, k), {"axis": int(axis)})[0], out)


def tile(A, reps):
    """An array repeated along its axes."""
    a = as_array(A)
    reps = [reps] if isinstance(reps, int) else list(reps)
    n = builtins.max(a.ndim, len(reps))
    a = reshape(a, (1, ) * (n - a.ndim) + a.shape)
    return invoke("Tile", "", 21, (a, onp.array([1] * (n - len(reps)) + reps, _I64)))[0]


# -- methods ------------------------------------------------------------------------------------------------------
def _method(function):
    def method(self, *args, **kwargs):
        return function(self, *args, **kwargs)
    return _named(method, function.__name__, function.__doc__)


for _function in (sum, mean, prod, max, min, var, std, argmax, argmin, cumsum, all, any, transpose, swapaxes, expand_dims, squeeze, ravel,
                  broadcast_to, astype, clip, dot, take, tile, split, square):
    setattr(ndarray, _function.__name__, _method(_function))
for _name in ("exp", "log", "sqrt", "tanh", "sin", "cos", "sign", "floor", "ceil"):
    setattr(ndarray, _name, _method(globals()[_name]))
ndarray.abs, ndarray.flatten, ndarray.round = _method(abs_), _method(ravel), _method(round_)
ndarray.T = property(_method(transpose), doc="The axes reversed.")
ndarray.zeros_like, ndarray.ones_like = _method(zeros_like), _method(ones_like)


def _reshape_method(self, *shape, order="C", newshape=None):
    """The elements in another shape; one extent may be -1."""
    shape = newshape if newshape is not None else shape[0] if len(shape) == 1 else shape
    return reshape(self, shape)


def _reshape_like(self, other):
    """In another array's shape."""
    return reshape(self, other.shape)


ndarray.reshape, ndarray.reshape_like = _reshape_method, _reshape_like

"""Functions of NumPy, of Python and of dcml as programs know them.

The one idea: a row of ``_SERVED`` is a Python function whose parameters are NumPy's; what has no row is a ufunc, a
function to read as part of the program, or, where no array takes part, called.
Must not know: statements of Python.
"""
import functools
import types

import numpy as np

from .. import _core
from . import markers, ufuncs
from .array import Array, aligned, broadcast, converted, moved, subscript, transposed, type_name
from .emit import probe
from .expressions import LocalFunction, describe, is_array, is_runtime, part
from .index import Index, atom, is_index, product
from .library import inline_graph, is_graph, is_node_class, library_node, matmul

_SERVED = {}


def serves(*functions):
    """Registers a function for others, by identity."""
    def register(own):
        for f in functions:
            _SERVED[f] = own
        return own
    return register


def call(t, node, function, args, kwargs):
    """What a call gives: function is a value of Python."""
    own = _served(function)
    if own is not None and (own in _ALWAYS or any(map(is_runtime, (*args, *kwargs.values())))):
        return _checked(t, node, own, function, args, kwargs)
    owner = getattr(function, "__self__", None)
    if isinstance(owner, np.ufunc) and function.__name__ in _UFUNC_METHODS:
        return _checked(t, node, _UFUNC_METHODS[function.__name__], function, [owner, *args], kwargs)
    inner = getattr(function, "_dcml_program", None)
    if inner is not None:
        return t.inline(node, inner, t.held_value(args), {k: t.held_value(v) for k, v in kwargs.items()})
    if is_node_class(function):
        return library_node(t, node, function, args, kwargs)
    if is_graph(function):
        return inline_graph(t, node, function, args, kwargs)
    if not any(map(is_runtime, (*args, *kwargs.values()))):
        return t.natively(node, function, *args, **kwargs)
    if isinstance(function, np.ufunc):
        return _ufunc(t, node, function.__name__, args, kwargs)
    name = getattr(function, "__name__", "")
    if getattr(function, "__module__", "") == "math" and isinstance(getattr(np, name, None), np.ufunc):
        return t.ufunc(node, getattr(np, name).__name__, *args)
    if name in ufuncs.BEYOND and len(args) == 1 and not kwargs:
        return _beyond(name, t.array_of(node, args[0]))
    dtype = as_dtype(function)
    if dtype is not None and len(args) == 1:
        return cast(t.array_of(node, args[0]), dtype)
    if isinstance(function, types.FunctionType):
        return t.inline(node, function, t.held_value(args), {k: t.held_value(v) for k, v in kwargs.items()})
    raise t.error(node, f"{_name_of(function)} of arrays is not understood; there are NumPy's element-wise functions, "
                        f"{', '.join(sorted({f.__name__ for f in _SERVED}))}")


def _served(function):
    try:
        return _SERVED.get(function)
    except TypeError:  # not hashable
        return None


def _name_of(function):
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", repr(function))
    return f"{module}.{name}" if module and module != "builtins" else name


def _checked(t, node, own, function, args, kwargs):
    try:
        return own(t, *args, **kwargs)
    except TypeError as error:
        raise t.error(node, f"this use of {_name_of(function)}: {error}") from error


def method(t, node, bound, args, kwargs):
    """X.sum(1) and the like: NumPy's function of that name, or a row of _METHODS."""
    own = _METHODS.get(bound.name) or _served(getattr(np, bound.name, None))
    if own is None:
        raise t.error(node, f"the method {bound.name!r} of arrays is not understood")
    return _checked(t, node, own, getattr(np.ndarray, bound.name, bound), [bound.array, *args], kwargs)


def as_dtype(what):
    """The dtype of a type of Python, NumPy or dcml; None for what is none."""
    from .. import dtypes
    try:
        return dtypes.of(what).dtype if not isinstance(what, (int, str)) else None
    except _core.DTypeError:
        return None


def dtype_of(what, default):
    if what is None:
        return np.dtype(default)
    from .. import dtypes
    dtype = dtypes.of(what).dtype
    type_name(dtype)
    return dtype


def cast(value, dtype):
    """The array converted."""
    dtype = np.dtype(dtype)
    if value.dtype == dtype and not value.weak:
        return value
    return Array(value.shape, dtype, text=lambda index: converted(value.text(index), value.dtype, dtype), leaves=value.leaves)


def _arrays(t, *values):
    return [t.out.settle(t.array_of(None, v)) for v in values]


# -- element by element ----------------------------------------------------------------------------
def _ufunc(t, node, name, args, kwargs):
    out, dtype = kwargs.pop("out", None), kwargs.pop("dtype", None)
    if kwargs:
        raise t.error(node, f"the keyword argument {next(iter(kwargs))!r} of numpy.{name}")
    nin = getattr(np, name).nin
    if len(args) == nin + 1:
        out, args = args[-1], args[:-1]
    if len(args) != nin:
        raise t.error(node, f"numpy.{name} takes {nin} arguments, {len(args)} are given")
    args = [t.array_of(node, a) if isinstance(a, (list, tuple)) else a for a in args]
    value = t.ufunc(node, name, *args)
    value = cast(value, as_dtype(dtype)) if dtype is not None else value
    if out is None:
        return value
    out = out[0] if isinstance(out, tuple) else out
    t.store(node, out, value)
    return out


def _beyond(name, array):
    dtype = array.dtype if array.dtype.kind == "f" else np.dtype(np.float64)
    return Array(array.shape, dtype, leaves=array.leaves,
                 text=lambda index: ufuncs.BEYOND[name].format(converted(array.text(index), array.dtype, dtype)))


@serves(np.where)
def _where(t, condition, x, y):
    condition, x, y = (t.array_of(None, v) if isinstance(v, (list, tuple)) else v for v in (condition, x, y))
    return t.select(None, condition, x, y)


@serves(np.clip)
def _clip(t, a, a_min=None, a_max=None, *, min=None, max=None, out=None):
    low, high = a_min if min is None else min, a_max if max is None else max
    value = a
    for name, bound in (("maximum", low), ("minimum", high)):
        if bound is not None:
            value = t.ufunc(None, name, t.out.settle(value), bound)
    return value


@serves(np.round, np.around, round)
def _round(t, a, decimals=0):
    if decimals:
        raise TypeError("decimals other than 0")
    return t.ufunc(None, "rint", a) if t.array_of(None, a).dtype.kind == "f" else a


@serves(abs)
def _abs(t, a):
    return t.ufunc(None, "absolute", a)


@serves(pow)
def _pow(t, a, b):
    return t.binary(None, "Pow", a, b)


@serves(min)
def _min(t, *values):
    return _fold(t, "minimum", values)


@serves(max)
def _max(t, *values):
    return _fold(t, "maximum", values)


def _fold(t, name, values):
    values = values[0] if len(values) == 1 and isinstance(values[0], (list, tuple)) else values
    if any(is_array(v) and v.ndim for v in values):
        raise TypeError("arrays; write np." + name)
    if all(map(is_index, values)):
        text = f"{name[:3]}({', '.join(map(str, values))})"
        return atom(text)
    out = values[0]
    for value in values[1:]:
        out = t.out.settle(t.ufunc(None, name, out, value))
    return out


@serves(int)
def _int(t, a):
    return a if is_index(a) else _weak(cast(a, np.int64), int)


@serves(np.real)
def _real(t, val):
    return part(t.array_of(None, val), "real")


@serves(np.imag)
def _imag(t, val):
    return part(t.array_of(None, val), "imag")


@serves(np.angle)
def _angle(t, z, deg=False):
    z = t.array_of(None, z)
    z = cast(z, np.result_type(z.dtype, np.float16) if z.dtype.kind != "f" else z.dtype) if z.dtype.kind != "c" else z
    dtype = part(z, "real").dtype
    value = Array(z.shape, dtype, text=lambda index: f"angle({z.text(index)})", leaves=z.leaves)
    return t.ufunc(None, "rad2deg", value) if deg else value


@serves(complex)
def _complex(t, real=0, imag=0):
    value = t.ufunc(None, "add", t.array_of(None, real), t.ufunc(None, "multiply", t.array_of(None, imag), 1j))
    return _weak(cast(value, np.complex128), complex)


@serves(float)
def _float(t, a):
    if t.array_of(None, a).dtype.kind == "c":
        raise TypeError("a complex number, which is no float; write its part, a.real")
    return _weak(cast(t.array_of(None, a), np.float64), float)


@serves(bool)
def _bool(t, a):
    return cast(t.array_of(None, a), np.bool_)


def _weak(array, kind):
    if array.ndim:
        raise TypeError(f"{describe(array)} is no number")
    return Array((), array.dtype, text=array.text, leaves=array.leaves, weak=kind)


@serves(markers.elementwise)
def _elementwise(t, function, array):
    array, = _arrays(t, array)

    def of(index):
        x = Array((), array.dtype, text=lambda _: array.text(index), leaves=[])
        outer, t.in_tasklet = t.in_tasklet, True
        try:
            return t.array_of(None, t.call(function, t.frame.source.tree, [x], {}))
        finally:
            t.in_tasklet = outer
    sample = of([probe(d) for d in range(array.ndim)])
    if sample.ndim:
        raise TypeError("the function gives an array for an element")
    return Array(array.shape, sample.dtype, text=lambda index: of(index).text([]), leaves=array.leaves)


# -- combining elements ----------------------------------------------------------------------------
_WCR = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min", "logical_or": "max", "logical_and": "min"}


def _axes(axis, rank):
    if axis is None:
        return tuple(range(rank))
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    for a in axes:
        if not isinstance(a, (int, np.integer)) or not -rank <= a < rank:
            raise _core.ShapeError(f"axis {a} of an array with {rank} dimensions")
    return tuple(sorted({int(a) % rank for a in axes}))


def reduction(t, name, a, axis=None, dtype=None, keepdims=False, initial=None):
    """ufunc.reduce: elements combined along axes."""
    a, = _arrays(t, a)
    if a.dtype.kind == "c" and name in ("maximum", "minimum"):
        raise TypeError("complex numbers, which have no order; write it for their parts or sizes, a.real or abs(a)")
    if name not in _WCR:
        raise _core.UnsupportedOpError(f"numpy.{name}.reduce is not understood; there are {', '.join(_WCR)}")
    axes = _axes(axis, a.ndim)
    result = getattr(np, name).reduce(np.ones((1,) * a.ndim, a.dtype)).dtype if dtype is None else dtype_of(dtype, None)
    truth = result.kind == "b"
    if truth:
        a = cast(cast(a, np.bool_), np.uint8)
    value = t.out.reduce(a, axes, _WCR[name] if not (truth and name == "add") else "max",
                         np.uint8 if truth else result, "reduced") if axes else cast(a, result)
    if initial is not None:
        value = t.ufunc(None, name, value, initial)
    if truth:
        value = cast(value, np.bool_)
    if keepdims:
        value = t.out.settle(value)
        kept = [d for d in range(a.ndim) if d not in axes]
        value = moved(value, [1 if d in axes else a.shape[d] for d in range(a.ndim)], lambda index: [index[d] for d in kept])
    return value


def _ufunc_reduce(t, ufunc, a, axis=0, dtype=None, out=None, keepdims=False, initial=None):
    value = reduction(t, ufunc.__name__, a, axis, dtype, keepdims, initial)
    return value if out is None else t.store(None, out, value)


def _ufunc_outer(t, ufunc, a, b):
    a, b = _arrays(t, a, b)
    index = (slice(None),) * a.ndim + (None,) * b.ndim
    return t.ufunc(None, ufunc.__name__, subscript(a, list(index), t.out) if index else a, b)


_UFUNC_METHODS = {"reduce": _ufunc_reduce, "outer": _ufunc_outer}


def _named(name, *functions):
    @serves(*functions)
    def own(t, a, axis=None, dtype=None, out=None, keepdims=False, initial=None):
        value = reduction(t, name, a, axis, dtype, keepdims, initial)
        if out is not None:
            t.store(None, out, value)
        return value if out is None else out


_named("add", np.sum)
_named("multiply", np.prod)
_named("maximum", np.max, np.amax)
_named("minimum", np.min, np.amin)
_named("logical_or", np.any)
_named("logical_and", np.all)


@serves(sum)
def _python_sum(t, values, start=0):
    """Python's own, which adds up what an array holds along its first axis."""
    if not isinstance(values, Array):
        return functools.reduce(lambda a, b: t.ufunc(None, "add", a, b), values, start)
    value = reduction(t, "add", values, 0)
    return value if is_index(start) and start == 0 else t.ufunc(None, "add", start, value)


def _count(a, axis):
    return product([a.shape[d] for d in _axes(axis, a.ndim)])


@serves(np.mean)
def _mean(t, a, axis=None, dtype=None, keepdims=False):
    a, = _arrays(t, a)
    result = np.mean(np.ones((1,) * a.ndim, a.dtype)).dtype if dtype is None else dtype_of(dtype, None)
    wide = np.dtype(np.float32) if result == np.float16 else result
    total = t.out.settle(reduction(t, "add", a, axis, wide, keepdims))
    return cast(t.out.settle(t.ufunc(None, "divide", total, _as(_count(a, axis), wide, t))), result)


def _as(value, dtype, t):
    return cast(t.array_of(None, value, dtype), dtype)


@serves(np.var)
def _var(t, a, axis=None, dtype=None, ddof=0, keepdims=False):
    a, = _arrays(t, a)
    mean = t.out.settle(_mean(t, a, axis, dtype, True))
    centred = t.out.settle(t.ufunc(None, "subtract", a, mean))
    squares = t.ufunc(None, "square", t.ufunc(None, "absolute", centred) if centred.dtype.kind == "c" else centred)
    total = t.out.settle(reduction(t, "add", t.out.settle(squares), axis, None, keepdims))
    return t.ufunc(None, "divide", total, _as(_count(a, axis) - ddof, total.dtype, t))


@serves(np.std)
def _std(t, a, axis=None, dtype=None, ddof=0, keepdims=False):
    return t.ufunc(None, "sqrt", t.out.settle(_var(t, a, axis, dtype, ddof, keepdims)))


@serves(markers.reduce)
def _reduce(t, function, array, out=None, axis=None, identity=None):
    if not isinstance(function, LocalFunction):
        raise TypeError("a function that is no lambda a, b: a + b")
    name = {v: k for k, v in _WCR.items() if k in ("add", "multiply", "maximum", "minimum")}[t.combination(function.node)]
    if out is not None and not is_array(out):
        raise TypeError(f"out is {describe(out)}, expected an array; write axis=... for axes")
    value = reduction(t, name, array, axis, initial=identity)
    if out is None:
        return value
    value = t.out.settle(value)
    if value.ndim != out.ndim and product(out.shape) == product(value.shape):
        value = t.out.settle(_reshape(t, value, out.shape))
    t.store(None, out, value if identity is not None else t.ufunc(None, name, out, value))
    return out


def _best(name, function):
    @serves(function)
    def own(t, a, axis=None, keepdims=False):
        from .library import operator
        a, = _arrays(t, a)
        if axis is None:
            a, axis = t.out.settle(_reshape(t, a, -1)), 0
        axis, = _axes(axis, a.ndim)
        shape = [1 if d == axis else e for d, e in enumerate(a.shape)] if keepdims else \
            [e for d, e in enumerate(a.shape) if d != axis]
        return operator(t, name, [a], shape, np.int64, {"axis": axis, "keepdims": int(keepdims)}, 13)


_best("ArgMax", np.argmax)
_best("ArgMin", np.argmin)


@serves(np.cumsum)
def _cumsum(t, a, axis=None, dtype=None):
    from .library import operator
    a, = _arrays(t, a)
    if axis is None:
        a, axis = t.out.settle(_reshape(t, a, -1)), 0
    result = np.cumsum(np.ones(1, a.dtype)).dtype if dtype is None else dtype_of(dtype, None)
    axis = t.out.constant(t.held(np.array(_axes(axis, a.ndim)[0])))
    return operator(t, "CumSum", [t.out.settle(cast(a, result)), axis], a.shape, result, {}, 14)


@serves(np.arctan2)
def _arctan2(t, y, x):
    from .library import operator
    operands = _arrays(t, y, x)
    dtype = ufuncs.resolve("arctan2", operands)[1]
    return operator(t, "dcml::Atan2", [t.out.settle(cast(a, dtype)) for a in operands],
                    broadcast([a.shape for a in operands], t.out.same), dtype, {}, 1)


# -- products --------------------------------------------------------------------------------------
@serves(np.matmul)
def _matmul(t, a, b, out=None):
    value = matmul(t, *_arrays(t, a, b))
    return value if out is None else t.store(None, out, value)


@serves(np.dot)
def _dot(t, a, b):
    a, b = _arrays(t, a, b)
    if not a.ndim or not b.ndim:
        return t.ufunc(None, "multiply", a, b)
    if b.ndim > 2:
        raise TypeError("a second operand with more than 2 dimensions; write np.matmul or np.einsum")
    return matmul(t, a, b)


@serves(np.outer)
def _outer(t, a, b):
    a, b = (t.out.settle(_reshape(t, v, -1)) for v in _arrays(t, a, b))
    return t.ufunc(None, "multiply", subscript(a, [slice(None), None], t.out), b)


@serves(np.einsum)
def _einsum(t, subscripts, *operands, optimize=False):
    """optimize: the order in which NumPy multiplies, which the result does not depend on."""
    from .library import einsum
    return einsum(t, subscripts, _arrays(t, *operands))


# -- shapes ----------------------------------------------------------------------------------------
@serves(np.transpose, np.permute_dims)
def _transpose(t, a, *order, axes=None):
    a, = _arrays(t, a)
    order = order[0] if len(order) == 1 and not isinstance(order[0], int) else order or axes
    axes = range(a.ndim)[::-1] if order is None else order
    if sorted(x % max(a.ndim, 1) for x in axes) != list(range(a.ndim)):
        raise _core.ShapeError(f"axes {tuple(axes)} of an array with {a.ndim} dimensions")
    return transposed(a, axes)


@serves(np.swapaxes)
def _swapaxes(t, a, axis1, axis2):
    axes = list(range(a.ndim))
    axes[axis1], axes[axis2] = axes[axis2], axes[axis1]
    return transposed(a, axes)


@serves(np.moveaxis)
def _moveaxis(t, a, source, destination):
    return transposed(a, [int(x) for x in np.moveaxis(np.empty(range(a.ndim)), source, destination).shape])


@serves(np.reshape)
def _reshape(t, a, *shape, **_):
    a, = _arrays(t, a)
    shape = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    shape = [int(e) if isinstance(e, np.integer) else e for e in shape]
    if not all(map(is_index, shape)) or sum(1 for e in shape if not isinstance(e, Index) and e == -1) > 1:
        raise TypeError(f"the shape {tuple(shape)}")
    known = product([e for e in shape if isinstance(e, Index) or e != -1])
    if any(not isinstance(e, Index) and e == -1 for e in shape):
        open_at = next(d for d, e in enumerate(shape) if not isinstance(e, Index) and e == -1)
        shape[open_at] = _quotient(a.shape, [e for d, e in enumerate(shape) if d != open_at])
        known = product(shape)
    t.out.same(known, a.size)
    if not a.whole:
        a = t.out.materialize(a)
        a.frozen = "it is reshaped from a part of an array; write into that"
    return t.out.view(a, shape) if a.whole else moved(a, shape, lambda index: _unravelled(_raveled(index, shape), a.shape))


def _raveled(index, shape):
    at = 0
    for i, extent in zip(index, shape):
        at = at * extent + i
    return at


def _unravelled(at, shape):
    index = []
    for extent in shape[:0:-1]:
        index.insert(0, at % extent)
        at = at // extent
    return [at, *index] if shape else []


def _quotient(shape, others):
    """The extent that -1 stands for."""
    shape = list(shape)
    for extent in list(others):
        if extent in shape:
            shape.remove(extent)
            others.remove(extent)
    total, part = product(shape), product(others)
    if isinstance(total, Index) or isinstance(part, Index):
        return total // part
    if part == 0 or total % part:
        raise _core.ShapeError(f"{total} elements do not fit into rows of {part}")
    return total // part


@serves(np.ravel)
def _ravel(t, a):
    return _reshape(t, a, -1)


@serves(np.expand_dims)
def _expand_dims(t, a, axis):
    axes = axis if isinstance(axis, (tuple, list)) else [axis]
    rank = a.ndim + len(axes)
    axes = _axes(tuple(axes), rank)
    rest = iter(range(a.ndim))
    kept = [None if d in axes else next(rest) for d in range(rank)]
    return moved(a, [1 if k is None else a.shape[k] for k in kept],
                 lambda index: [i for i, k in zip(index, kept) if k is not None])


@serves(np.squeeze)
def _squeeze(t, a, axis=None):
    axes = [d for d, e in enumerate(a.shape) if not isinstance(e, Index) and e == 1] if axis is None else _axes(axis, a.ndim)
    for d in axes:
        t.out.same(a.shape[d], 1)
    return subscript(a, [0 if d in axes else slice(None) for d in range(a.ndim)], t.out)


@serves(np.broadcast_to)
def _broadcast_to(t, array, shape):
    array, = _arrays(t, array)
    shape = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    if broadcast([array.shape, shape], t.out.same) != shape:
        raise _core.ShapeError(f"{describe(array)} does not fit into {shape}")
    view = moved(array, shape, lambda index: aligned(array, index))
    view.frozen = "it is broadcast"
    return view


@serves(np.flip)
def _flip(t, m, axis=None):
    axes = _axes(axis, m.ndim)
    return subscript(m, [slice(None, None, -1) if d in axes else slice(None) for d in range(m.ndim)], t.out)


@serves(np.concatenate, np.concat)
def _concatenate(t, arrays, axis=0):
    arrays = _arrays(t, *arrays)
    if axis is None:
        arrays, axis = [_reshape(t, a, -1) for a in arrays], 0  # each is made flat
    axis, = _axes(axis, arrays[0].ndim)
    shape = list(arrays[0].shape)
    shape[axis] = sum((a.shape[axis] for a in arrays[1:]), arrays[0].shape[axis])
    out = t.out.temp(np.result_type(*(a.dtype for a in arrays)), shape, "joined")
    begin = 0
    for a in arrays:
        end = begin + a.shape[axis]
        part = moved(out, [e if d != axis else a.shape[axis] for d, e in enumerate(shape)],
                     lambda index, begin=begin: [i + begin if d == axis else i for d, i in enumerate(index)])
        t.out.store(part, a, guarded=False)
        begin = end
    return out


@serves(np.stack)
def stack(t, arrays, axis=0):
    """np.stack: arrays of one shape along a new axis."""
    return _concatenate(t, [_expand_dims(t, a, axis) for a in _arrays(t, *arrays)], axis)


@serves(len)
def _len(t, a):
    return len(a) if isinstance(a, (list, tuple)) else a.shape[0]


@serves(np.shape)
def _shape(t, a):
    return a.shape


@serves(np.ndim)
def _ndim(t, a):
    return a.ndim


# -- new arrays ------------------------------------------------------------------------------------
def empty(t, shape, dtype, name="t"):
    """A new array without contents, which can be written."""
    shape = shape if isinstance(shape, (tuple, list)) else (shape,)
    shape = [t.size(int(e) if isinstance(e, np.integer) else e) for e in shape]
    if any(not isinstance(e, Index) and e < 0 for e in shape):
        raise _core.ShapeError(f"an array with shape {shape}")
    array = t.out.temp(dtype_of(dtype, np.float64), shape, name)
    array.label = "an array"
    return array


@serves(np.ndarray, np.empty)
def _empty(t, shape, dtype=None):
    return empty(t, shape, dtype)


@serves(markers.define_local)
def _define_local(t, dimensions, dtype):
    return empty(t, dimensions, dtype)


@serves(markers.define_local_scalar)
def _define_local_scalar(t, dtype):
    return empty(t, (), dtype)


@serves(np.full)
def _full(t, shape, fill_value, dtype=None):
    value = t.array_of(None, fill_value)
    array = empty(t, shape, value.dtype if dtype is None else dtype)
    t.out.store(array, t.array_of(None, fill_value, array.dtype), guarded=False)
    return array


@serves(np.zeros)
def _zeros(t, shape, dtype=None):
    return _full(t, shape, 0, np.float64 if dtype is None else dtype)


@serves(np.ones)
def _ones(t, shape, dtype=None):
    return _full(t, shape, 1, np.float64 if dtype is None else dtype)


@serves(np.empty_like)
def _empty_like(t, a, dtype=None):
    return empty(t, a.shape, a.dtype if dtype is None else dtype)


@serves(np.zeros_like)
def _zeros_like(t, a, dtype=None):
    return _full(t, a.shape, 0, a.dtype if dtype is None else dtype)


@serves(np.ones_like)
def _ones_like(t, a, dtype=None):
    return _full(t, a.shape, 1, a.dtype if dtype is None else dtype)


@serves(np.full_like)
def _full_like(t, a, fill_value, dtype=None):
    return _full(t, a.shape, fill_value, a.dtype if dtype is None else dtype)


@serves(np.arange)
def _arange(t, *bounds, dtype=None):
    if not all(map(is_index, bounds)):
        raise TypeError("bounds that are no integers")
    start, stop = (0, bounds[0]) if len(bounds) == 1 else bounds[:2]
    step = bounds[2] if len(bounds) > 2 else 1
    count = -((start - stop) // step) if not isinstance(start - stop, Index) or step != 1 else stop - start
    value = Array([count], np.int64, text=lambda index: f"({start + index[0] * step})")
    return cast(value, dtype_of(dtype, np.int64))


@serves(np.eye, np.identity)
def _eye(t, N, M=None, k=0, dtype=None):
    array = empty(t, (N, N if M is None else M), dtype, "eye")
    value = Array(array.shape, np.bool_, text=lambda index: f"({index[0] + k} == {index[1]})")
    t.out.store(array, cast(value, array.dtype), guarded=False)
    return array


@serves(np.copy)
def _copy(t, a):
    array = t.out.materialize(a, "copy")
    array.label = "a copy"
    return array


@serves(np.array, np.asarray)
def _array(t, a, dtype=None):
    array = t.array_of(None, a)
    return _copy(t, array if dtype is None else cast(array, dtype_of(dtype, None)))


def _astype(t, a, dtype, copy=True):
    return cast(a, dtype_of(dtype, None)) if a.dtype != dtype_of(dtype, None) else _copy(t, a)


def _fill(t, a, value):
    t.store(None, a, value)


def _item(t, a, *index):
    return subscript(a, index or [0] * a.ndim, t.out)


_METHODS = {"astype": _astype, "conj": lambda t, a: t.ufunc(None, "conjugate", a), "fill": _fill,
            "item": _item, "flatten": lambda t, a: _copy(t, _reshape(t, a, -1))}
_ALWAYS = {_empty, _define_local, _define_local_scalar, _full, _zeros, _ones, _empty_like, _zeros_like, _ones_like, _full_like, _eye}

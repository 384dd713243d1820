"""Complex numbers: what their overloads are in real ones, and the rows of Fourier transforms.

The one idea: a complex tensor is the pair of its parts, which have names of their own in the graph.  An overload with
complex values is decomposed into real overloads on ``view_as_real`` and ``view_as_complex``, and these two cost
nothing; so nothing else needs to know complex numbers, and gradients are torch's: d/d(re) + i d/d(im).
"""
import math

import torch
from torch.utils import _pytree as pytree

from .builder import TABLE, Decline, Pair, meta, norm_axis, rank, row, static_dims

aten = torch.ops.aten
DECOMPOSED = {}  # overload -> its decomposition for complex values; NotImplemented where all are real
_HANDLED = {"aten.view_as_real.default", "aten.view_as_complex.default", "aten._fft_r2c.default",
            "aten._fft_c2c.default", "aten._fft_c2r.default", "aten._assert_tensor_metadata.default", "aten.permute.default",
            "aten.transpose.int"}


def _overload(name):
    packet, overload = name.split(".")
    return getattr(getattr(aten, packet), overload)


def is_complex(value):
    return isinstance(value, complex) or isinstance(value, torch.Tensor) and value.is_complex()


def served(node):
    """Does no row stand in the way of a node's complex values?"""
    if str(node.target) in _HANDLED:
        return True
    values = [node.meta.get("val"), *[leaf.meta.get("val") if isinstance(leaf, torch.fx.Node) else leaf
                                      for leaf in pytree.tree_leaves((node.args, node.kwargs))]]
    return not any(map(is_complex, pytree.tree_leaves(values)))


# -- pairs and their ends --------------------------------------------------------------------------
def _is_last(axis, x):
    return norm_axis(axis, rank(x)) == rank(x) - 1


def _makes_pair(user):
    """Is it view_as_complex of two parts?"""
    x = user.args[0]
    return user.target is aten.view_as_complex.default and x.target is aten.stack.default and _is_last(-1 if len(
        x.args) == 1 else x.args[1], x)


def _takes_part(user):
    x, *axis = user.args[:2]
    return (user.target is aten.select.int and x.target is aten.view_as_real.default and isinstance(user.args[2], int)
            and _is_last(*axis, x))


@row("view_as_complex.default")
def _(b, n, x):
    return Pair(b, parts=[b(t) for t in x.args[0]]) if _makes_pair(n) else Pair(b, whole=b(x))


@row("view_as_real.default")
def _(b, n, x):
    return None if all(map(_takes_part, n.users)) else b.env[x].whole()


def _unless(shortcut, overload):
    """The row of ``overload`` becomes shortcut(b, n, *args), or what it was where that returns NotImplemented."""
    usual = TABLE["aten." + overload]

    @row(overload)
    def _(b, n, *args):
        found = shortcut(b, n, *args)
        return usual(b, n, *args) if found is NotImplemented else found


_unless(lambda b, n, *_: None if all(map(_makes_pair, n.users)) else NotImplemented, "stack.default")
_unless(lambda b, n, x, axis, k: b.env[x.args[0]].part(k) if _takes_part(n) else NotImplemented, "select.int")


def _permuted(b, n, x, perm):
    """Of numbers that lie side by side, the parts stay so."""
    if not is_complex(meta(x)):
        return NotImplemented
    pair, perm = b.env[x], [norm_axis(p, rank(x)) for p in perm]
    if pair.is_whole():
        return Pair(b, whole=b.transpose(pair.whole(), [*perm, len(perm)]))
    return Pair(b, parts=[b.transpose(pair.part(k), perm) for k in (0, 1)])


def _swapped(r, i, j):
    perm = list(range(r))
    if perm:
        perm[i], perm[j] = perm[j], perm[i]
    return perm


_unless(_permuted, "permute.default")
_unless(lambda b, n, x, i, j: _permuted(b, n, x, _swapped(rank(x), i, j)), "transpose.int")


# -- Fourier transforms ----------------------------------------------------------------------------
def _scaled(b, name, x, axes, norm, inverse, dtype, sizes=None):
    """ONNX divides inverse transforms by the count; torch says what to do: 0 nothing, 1 its root, 2 the count."""
    count = math.prod(sizes or [static_dims(x, a)[0] for a in axes])
    factor = (1, count ** -0.5, 1 / count)[norm] * (count if inverse else 1)
    return name if factor == 1 else b.op("Mul", name, b.const(factor, dtype))


def _dft(b, name, axis, size=None, **attrs):
    return b.op("DFT", name, None if size is None else b.const(size), b.const(axis), **attrs)


def _real(node):
    return {torch.complex64: torch.float32, torch.complex128: torch.float64}.get(meta(node).dtype, meta(node).dtype)


def _real_part(b, x):
    """Of a complex node that was made of real numbers; None of others."""
    re, im = x.args[0].args[0] if x.target is aten.view_as_complex.default and _makes_pair(x) else (None, None)
    return b(re) if im is not None and im.target is aten.full_like.default and im.args[1] == 0 else None


@row("_fft_c2c.default")
def _(b, n, x, axes, norm, forward):
    real = _real_part(b, x) if axes else None
    name = b.env[x].whole() if real is None else b.unsqueeze(real, rank(x))
    for axis in (norm_axis(a, rank(x)) for a in reversed(axes)):
        name = _dft(b, name, axis, inverse=int(not forward))
    return Pair(b, whole=_scaled(b, name, x, axes, norm, not forward, _real(n)) if axes else name)


@row("_fft_r2c.default")
def _(b, n, x, axes, norm, onesided):
    *others, last = [norm_axis(a, rank(x)) for a in axes]
    name = _dft(b, b.unsqueeze(b(x), rank(x)), last, onesided=int(onesided))
    for axis in others:
        name = _dft(b, name, axis)
    return Pair(b, whole=_scaled(b, name, x, axes, norm, False, _real(n)))


@row("_fft_c2r.default")
def _(b, n, x, axes, norm, size):
    *others, last = [norm_axis(a, rank(x)) for a in axes]
    if not isinstance(size, int):
        raise Decline("a Fourier transform of a symbolic length")
    name = b.env[x].whole()
    for axis in others:
        name = _dft(b, name, axis, inverse=1)
    name = b.squeeze(_dft(b, name, last, size, inverse=1, onesided=1), rank(x))
    return _scaled(b, name, n, axes, norm, True, _real(n))


# -- overloads on parts ----------------------------------------------------------------------------
def _parts(value):
    """Real and imaginary part; those of a real tensor or number are itself and zero."""
    if isinstance(value, torch.Tensor):
        if not value.is_complex():
            return value, 0
        pair = torch.view_as_real(value)
        return pair.select(-1, 0), pair.select(-1, 1)
    return (value.real, value.imag) if isinstance(value, complex) else (value, 0)


def _join(re, im, dtype=None):
    """The complex tensor of two parts, of which one may be a number."""
    if not isinstance(re, torch.Tensor):
        re = torch.full_like(im, re)
    if not isinstance(im, torch.Tensor):
        im = torch.full_like(re, im)
    if dtype is not None:
        re, im = re.to(dtype), im.to(dtype)
    return torch.view_as_complex(torch.stack(torch.broadcast_tensors(re, im), -1))


def complex_rule(*overloads):
    """Registers a decomposition for calls with complex values; composite overloads, torch takes apart itself."""
    def register(function):
        def decomposed(*args, **kwargs):
            wanted = any(map(is_complex, pytree.tree_leaves((args, kwargs)))) or _makes_complex(kwargs)
            return function(*args, **kwargs) if wanted else NotImplemented
        DECOMPOSED.update({_overload(name): decomposed for name in overloads})
        return function
    return register


def _makes_complex(kwargs):
    return isinstance(kwargs.get("dtype"), torch.dtype) and kwargs["dtype"].is_complex


def _plus(a, b):
    return a if _is_zero(b) else b if _is_zero(a) else a + b


def _times(a, b):
    return 0 if _is_zero(a) or _is_zero(b) else a * b


def _minus(a, b):
    return a if _is_zero(b) else -b if _is_zero(a) else a - b


def _is_zero(v):
    return not isinstance(v, torch.Tensor) and v == 0


@complex_rule("add.Tensor", "add.Scalar")
def _(x, y, alpha=1):
    (a, b), (c, d) = _parts(x), _parts(y if alpha == 1 else y * alpha)
    return _join(_plus(a, c), _plus(b, d))


@complex_rule("sub.Tensor", "sub.Scalar")
def _(x, y, alpha=1):
    (a, b), (c, d) = _parts(x), _parts(y if alpha == 1 else y * alpha)
    return _join(_minus(a, c), _minus(b, d))


@complex_rule("rsub.Tensor", "rsub.Scalar")
def _(x, y, alpha=1):
    return y - (x if alpha == 1 else x * alpha)


@complex_rule("mul.Tensor", "mul.Scalar")
def _(x, y):
    (a, b), (c, d) = _parts(x), _parts(y)
    return _join(_minus(_times(a, c), _times(b, d)), _plus(_times(a, d), _times(b, c)))


@complex_rule("div.Tensor", "div.Scalar")
def _(x, y):
    c, d = _parts(y)
    if _is_zero(d):
        return _join(*[part / c for part in _parts(x)])
    size = c * c + d * d
    return x * _join(c / size, -d / size)


@complex_rule("reciprocal.default")
def _(x):
    a, b = _parts(x)
    size = a * a + b * b
    return _join(a / size, -b / size)


@complex_rule("_conj.default", "_conj_physical.default")
def _(x):
    a, b = _parts(x)
    return _join(a, -b)


def _size(x):
    """|x|, whose gradient at 0 is 0."""
    a, b = _parts(x)
    square = a * a + b * b
    none = square == 0
    return torch.where(none, 0, torch.where(none, 1, square).sqrt())


complex_rule("abs.default")(_size)


@complex_rule("angle.default")
def _(x):
    a, b = _parts(x)
    return torch.atan2(b, a)


@complex_rule("sgn.default")
def _(x):
    a, b = _parts(x)
    square = a * a + b * b
    none = square == 0
    size = torch.where(none, 1, square).sqrt()
    return _join(a / size, b / size)


@complex_rule("exp.default")
def _(x):
    a, b = _parts(x)
    return _polar(a.exp(), b)


def _polar(size, angle):
    return _join(size * angle.cos(), size * angle.sin())


@complex_rule("log.default")
def _(x):
    return _join(x.abs().log(), x.angle())


@complex_rule("exp2.default")
def _(x):
    a, b = _parts(x)
    return _polar(a.exp2(), b * math.log(2))


@complex_rule("log2.default")
def _(x):
    return _join(x.abs().log2(), x.angle() / math.log(2))


@complex_rule("log10.default")
def _(x):
    return _join(x.abs().log10(), x.angle() / math.log(10))


@complex_rule("sqrt.default")
def _(x):
    return _polar(x.abs().sqrt(), x.angle() / 2)


@complex_rule("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def _(x, exponent):
    if isinstance(exponent, (int, float)) and exponent in (1, 2, 3):
        return (x, x * x, x * x * x)[int(exponent) - 1]
    return (exponent * torch.log(x)).exp() if isinstance(x, torch.Tensor) else _power_of(x, exponent)


def _power_of(base, exponent):
    base = complex(base)
    return (exponent * complex(math.log(abs(base)), math.atan2(base.imag, base.real))).exp()


@complex_rule("sin.default")
def _(x):
    a, b = _parts(x)
    return _join(a.sin() * b.cosh(), a.cos() * b.sinh())


@complex_rule("cos.default")
def _(x):
    a, b = _parts(x)
    return _join(a.cos() * b.cosh(), -a.sin() * b.sinh())


@complex_rule("eq.Tensor", "eq.Scalar")
def _(x, y):
    (a, b), (c, d) = _parts(x), _parts(y)
    return (a == c) & (b == d)


@complex_rule("ne.Tensor", "ne.Scalar")
def _(x, y):
    (a, b), (c, d) = _parts(x), _parts(y)
    return (a != c) | (b != d)


@complex_rule("isnan.default")
def _(x):
    a, b = _parts(x)
    return a.isnan() | b.isnan()


@complex_rule("_to_copy.default")
def _(x, dtype=None, **_):
    dtype = dtype or x.dtype
    a, b = _parts(x)
    return _join(a, b, dtype.to_real()) if dtype.is_complex else a.to(dtype)


@complex_rule("linalg_vector_norm.default", "norm.ScalarOpt_dim", "norm.Scalar")
def _(x, *args, **kwargs):
    return torch.linalg.vector_norm(_size(x), *args, **kwargs)


@complex_rule("masked_fill.Scalar", "masked_fill.Tensor")
def _(x, mask, value):
    return _join(*[part.masked_fill(mask, v) for part, v in zip(_parts(x), _parts(value))])


def _value_last(overload):
    """An overload whose last argument is a number to fill with."""
    @complex_rule(overload)
    def _(*args, dtype=None, **kwargs):
        function = _overload(overload)
        kwargs["dtype"] = (dtype or args[0].dtype).to_real()
        return _join(*[function(*args[:-1], v, **kwargs) for v in _parts(args[-1])])


def _zero_imaginary(overload):
    """An overload that makes real numbers of a complex type."""
    @complex_rule(overload)
    def _(*args, dtype=None, **kwargs):
        kwargs["dtype"] = (dtype or args[0].dtype).to_real()
        args = [_parts(a)[0] if is_complex(a) else a for a in args]
        return _join(_overload(overload)(*args, **kwargs), 0)


for _name in ("full.default", "full_like.default", "new_full.default"):
    _value_last(_name)
for _name in ("zeros.default", "ones.default", "empty.memory_format", "zeros_like.default", "ones_like.default",
              "empty_like.default", "new_zeros.default", "new_ones.default", "new_empty.default", "eye.default",
              "scalar_tensor.default"):
    _zero_imaginary(_name)


@complex_rule("constant_pad_nd.default")
def _(x, pads, value=0):
    return _join(*[aten.constant_pad_nd(part, pads, v) for part, v in zip(_parts(x), _parts(value))])


def _componentwise(overload):
    """An overload that moves or adds numbers without looking at them."""
    @complex_rule(overload)
    def _(*args, **kwargs):
        kwargs.pop("dtype", None)
        leaves, spec = pytree.tree_flatten((args, kwargs))
        sides = []
        for k in (0, 1):
            taken = [_component(leaf, k) for leaf in leaves]
            args, kwargs = pytree.tree_unflatten(taken, spec)
            sides.append(_overload(overload)(*args, **kwargs))
        if isinstance(sides[0], (tuple, list)):
            return type(sides[0])(map(_join, *sides))
        return _join(*sides)


def _component(leaf, k):
    if not isinstance(leaf, torch.Tensor):
        return leaf
    if leaf.is_complex():
        return _parts(leaf)[k]
    return torch.zeros_like(leaf) if k and leaf.is_floating_point() else leaf


for _name in """view.default _unsafe_view.default unsqueeze.default squeeze.dim squeeze.dims squeeze.default
        t.default expand.default repeat.default slice.Tensor select.int cat.default
        stack.default split.Tensor split_with_sizes.default unbind.int flip.default roll.default diagonal.default
        tril.default triu.default unfold.default index_select.default gather.default index.Tensor index_put.default
        scatter.src scatter_add.default index_add.default index_copy.default slice_scatter.default
        select_scatter.default copy.default where.self clone.default alias.default detach.default
        lift_fresh_copy.default neg.default sum.default sum.dim_IntList mean.default mean.dim cumsum.default
        as_strided.default diag_embed.default native_dropout.default embedding.default""".split():
    _componentwise(_name)


def _bilinear(overload):
    """An overload that is linear in each of its first two arguments."""
    @complex_rule(overload)
    def _(x, y, *others):
        if any(isinstance(other, torch.Tensor) for other in others):
            return NotImplemented
        (a, b), (c, d) = _parts(x), _parts(y)

        def product(x, y):
            return 0 if _is_zero(x) or _is_zero(y) else _overload(overload)(x, y, *others)
        return _join(_minus(product(a, c), product(b, d)), _plus(product(a, d), product(b, c)))


for _name in "mm.default bmm.default mv.default dot.default convolution.default".split():
    _bilinear(_name)


@complex_rule("vdot.default")
def _(x, y):
    return torch.dot(x.conj(), y)


DECOMPOSED[aten.complex.default] = _join  # of real arguments
DECOMPOSED[aten.polar.default] = _polar

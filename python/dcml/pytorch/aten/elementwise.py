"""Rows of element-wise operators: arithmetic with type promotion, comparisons, activations, casts.

The recorded type of the result decides the type that a row computes in, so torch's promotion
rules need no restatement here; comparisons and bitwise rows ask torch for the common type.
"""
import math

import torch

from ... import _core
from .builder import TABLE, Decline, dims, meta, rank, row, used_outputs


@row("ceil.default", "floor.default", "round.default", "relu.default", "neg.default")
def _(b, n, x):
    name, dtype = str(n.target).split(".")[1], meta(n).dtype
    if dtype == torch.bool:
        _refuse_bool(name, x)
    if not dtype.is_floating_point and name != "neg":  # ONNX rounds floats only; relu is left to Max
        return b.op("Max", b(x), b.const(0, dtype)) if name == "relu" else b(x)
    return b.op(name.capitalize(), b(x, dtype))


@row("bitwise_not.default")
def _(b, n, x):
    return b.op("Not", b(x)) if meta(n).dtype == torch.bool else b.op("BitwiseNot", b(x))


@row("detach.default")
def _(b, n, x):
    return b.stop(b(x)) if meta(x).dtype.is_floating_point else b(x)


@row("copy.default")
def _(b, n, x, source, *_):
    value = b(source, meta(n).dtype)
    return value if dims(source) == dims(n) else b.op("Expand", value, b.shape(x))


# -- unary operators written with others -----------------------------------------------------------
def _unary(*overloads):
    """Registers f(b, x, const) where x is the argument in the result's type and const makes constants of it."""
    def register(f):
        @row(*overloads)
        def unary(b, n, x, *args, **kwargs):
            dtype = meta(n).dtype
            return f(b, b(x, dtype), lambda v: b.const(v, dtype), *args, **kwargs)
        return f
    return register


def _trunc(b, name, dtype):
    return b.op("Trunc", name, domain="dcml") if dtype.is_floating_point else name


@row("sign.default", "sgn.default")
def _(b, n, x):
    """0 of NaN and of -0 too."""
    dtype, name = meta(n).dtype, b(x)
    if not dtype.is_floating_point:
        return name if dtype == torch.bool else b.op("Sign", name)
    other = b.op("Greater", b.op("Abs", name), b.const(0, dtype))
    return b.op("Where", other, b.op("Sign", name), b.const(0, dtype))


@row("trunc.default", "fix.default")
def _(b, n, x):
    _refuse_bool("trunc", x)
    return _trunc(b, b(x), meta(n).dtype)


@_unary("logit.default", "special_logit.default")
def _(b, x, c, eps=None):
    if eps is not None:
        x = b.op("Clip", x, c(eps), c(1 - eps))
    return b.op("Logit", x, domain="dcml")


@row("log_sigmoid_forward.default")
def _(b, n, x):
    x = b(x)
    buffer = b.op("Exp", b.op("Neg", b.op("Abs", x))) if 1 in used_outputs(n) else None
    return [b.op("Neg", b.op("Softplus", b.op("Neg", x))), buffer]


@_unary("elu.default")
def _(b, x, c, alpha=1, scale=1, input_scale=1):
    if input_scale != 1:
        raise Decline("elu with an input scale")
    y = b.op("Elu", x, alpha=float(alpha))
    return y if scale == 1 else b.op("Mul", y, c(scale))


@row("softplus.default")
def _(b, n, x, beta=1, threshold=20):
    dtype = meta(n).dtype
    x, c = b(x, dtype), lambda v: b.const(v, dtype)
    scaled = x if beta == 1 else b.op("Mul", x, c(beta))
    y = b.op("Softplus", scaled)
    y = y if beta == 1 else b.op("Div", y, c(beta))
    # above the threshold torch is linear, which the type may be unable to tell from the function itself
    same = math.exp(-abs(threshold)) < threshold * torch.finfo(dtype).eps / 4
    return y if same else b.op("Where", b.op("Greater", scaled, c(threshold)), x, y)


@row("prelu.default", "_prelu_kernel.default")
def _(b, n, x, weight):
    slope = b(weight)
    if rank(weight) == 1 and rank(x) != 1:  # one slope for all, or one per channel of an NC... tensor
        slope = b.reshape(slope, dims(weight) + [1] * (rank(x) - 2) if rank(x) else [])
    return b.op("PRelu", b(x), slope)


@row("glu.default")
def _(b, n, x, dim=-1):
    left, right = b.op("Split", b(x), outs=2, axis=dim, num_outputs=2)
    return b.op("Mul", left, b.op("Sigmoid", right))


# -- arithmetic ------------------------------------------------------------------------------------
def _scaled(b, x, alpha, dtype):
    x = b(x, dtype)
    return x if isinstance(alpha, (int, float)) and alpha == 1 else b.op("Mul", x, b(alpha, dtype))


@row("add.Tensor", "add.Scalar")
def _(b, n, x, y, alpha=1):
    dtype = meta(n).dtype
    return b.op("Or" if dtype == torch.bool else "Add", b(x, dtype), _scaled(b, y, alpha, dtype))


def _refuse_bool(name, *operands):
    if any(isinstance(v, torch.fx.Node) and meta(v).dtype == torch.bool for v in operands):
        raise _core.UnsupportedOpError(f"{name} of booleans, which torch does not compute either")


@row("sub.Tensor", "sub.Scalar")
def _(b, n, x, y, alpha=1):
    dtype = meta(n).dtype
    _refuse_bool("a difference", x, y)
    return b.op("Sub", b(x, dtype), _scaled(b, y, alpha, dtype))


@row("rsub.Tensor", "rsub.Scalar")
def _(b, n, x, y, alpha=1):
    dtype = meta(n).dtype
    _refuse_bool("a difference", x, y)
    return b.op("Sub", b(y, dtype), _scaled(b, x, alpha, dtype))


@row("mul.Tensor", "mul.Scalar")
def _(b, n, x, y):
    dtype = meta(n).dtype
    return b.op("And" if dtype == torch.bool else "Mul", b(x, dtype), b(y, dtype))


def _divide_rounded(b, n, x, y, mode):
    dtype = meta(n).dtype
    if mode == "floor":
        return b.op("FloorDiv", b(x, dtype), b(y, dtype), domain="dcml")
    quotient = b.op("Div", b(x, dtype), b(y, dtype))  # of integers it truncates
    return _trunc(b, quotient, dtype) if mode == "trunc" else quotient


@row("div.Tensor_mode", "div.Scalar_mode")
def _(b, n, x, y, rounding_mode=None):
    return _divide_rounded(b, n, x, y, rounding_mode)


@row("floor_divide.default", "floor_divide.Scalar")
def _(b, n, x, y):
    return _divide_rounded(b, n, x, y, "floor")


@row("pow.Tensor_Scalar")
def _(b, n, x, exponent):
    dtype = meta(n).dtype
    x = b(x, dtype)
    if exponent in (2, 3):
        square = b.op("Mul", x, x)
        return square if exponent == 2 else b.op("Mul", square, x)
    if exponent == 1:
        return x
    if dtype.is_floating_point and exponent in (0.5, -1, -0.5):
        root = x if exponent == -1 else b.op("Sqrt", x)
        return root if exponent == 0.5 else b.op("Reciprocal", root)
    return b.op("Pow", x, b.const(exponent, dtype))


@row("pow.Tensor_Tensor", "pow.Scalar")
def _(b, n, x, exponent):
    dtype = meta(n).dtype
    return b.op("Pow", b(x, dtype), b(exponent, dtype))


@row("maximum.default")
def _(b, n, x, y):
    dtype = meta(n).dtype
    return b.op("Or" if dtype == torch.bool else "Max", b(x, dtype), b(y, dtype))


@row("minimum.default")
def _(b, n, x, y):
    dtype = meta(n).dtype
    return b.op("And" if dtype == torch.bool else "Min", b(x, dtype), b(y, dtype))


TABLE["aten.max.other"], TABLE["aten.min.other"] = TABLE["aten.maximum.default"], TABLE["aten.minimum.default"]


@row("fmax.default", "fmin.default")
def _(b, n, x, y):
    """The greater or lesser one, of two of which one is NaN the other."""
    kind = "maximum" if "fmax" in str(n.target) else "minimum"
    dtype = meta(n).dtype
    if not dtype.is_floating_point:
        return TABLE[f"aten.{kind}.default"](b, n, x, y)
    x, y = b(x, dtype), b(y, dtype)
    first = b.op("GreaterOrEqual" if kind == "maximum" else "LessOrEqual", x, y)
    return b.op("Where", b.op("Or", first, b.op("IsNaN", y)), x, y)


@row("clamp.default", "clamp.Tensor", "clip.default", "clip.Tensor")
def _(b, n, x, lo=None, hi=None):
    dtype = meta(n).dtype
    if all(not isinstance(v, torch.fx.Node) for v in (lo, hi)):
        return b.op("Clip", b(x, dtype), b(lo, dtype), b(hi, dtype))
    return _within(b, n, x, lo, hi)


def _within(b, n, x, lo, hi):
    """Of floats, with all of the gradient where a value is its bound, as torch has it, where Max and Min give each a half."""
    dtype = meta(n).dtype
    if not dtype.is_floating_point:
        x = b(x, dtype) if lo is None else b.op("Max", b(x, dtype), b(lo, dtype))
        return x if hi is None else b.op("Min", x, b(hi, dtype))
    x = _expanded(b, n, x)
    x = x if lo is None else b.op("AtLeast", x, _expanded(b, n, lo), domain="dcml")
    return x if hi is None else b.op("AtMost", x, _expanded(b, n, hi), domain="dcml")


@row("hardtanh.default", "relu6.default")
def _(b, n, x, least=-1, most=1):
    least, most = (0, 6) if "relu6" in str(n.target) else (least, most)
    if meta(n).dtype.is_floating_point:
        return b.op("HardTanh", b(x), domain="dcml", least=float(least), most=float(most))
    return b.op("Clip", b(x), b.const(least, meta(n).dtype), b.const(most, meta(n).dtype))


@row("clamp_min.default", "clamp_min.Tensor")
def _(b, n, x, lo):
    dtype = meta(n).dtype
    if isinstance(lo, torch.fx.Node):
        return _within(b, n, x, lo, None)
    return b.op("Clip", b(x, dtype), b(lo, dtype))


@row("clamp_max.default", "clamp_max.Tensor")
def _(b, n, x, hi):
    dtype = meta(n).dtype
    if isinstance(hi, torch.fx.Node):
        return _within(b, n, x, None, hi)
    return b.op("Clip", b(x, dtype), None, b(hi, dtype))


@row("addcmul.default")
def _(b, n, x, y, z, value=1):
    dtype = meta(n).dtype
    product = b.op("Mul", b(y, dtype), b(z, dtype))
    return b.op("Add", b(x, dtype), product if value == 1 else b.op("Mul", product, b(value, dtype)))


@row("addcdiv.default")
def _(b, n, x, y, z, value=1):
    dtype = meta(n).dtype
    ratio = b.op("Div", b(y, dtype), b(z, dtype))
    return b.op("Add", b(x, dtype), ratio if value == 1 else b.op("Mul", ratio, b(value, dtype)))


@row("lerp.Scalar", "lerp.Tensor")
def _(b, n, x, y, weight):
    dtype = meta(n).dtype
    return b.op("Add", b(x, dtype), b.op("Mul", b(weight, dtype), b.op("Sub", b(y, dtype), b(x, dtype))))


@row("logaddexp.default")
def _(b, n, x, y):
    dtype = meta(n).dtype
    x, y = b(x, dtype), b(y, dtype)
    same = b.op("Equal", x, y)  # infinities too
    gap = b.op("Where", same, b.const(0, dtype), b.op("Neg", b.op("Abs", b.op("Sub", x, y))))
    return b.op("Add", b.op("Max", x, y), b.op("Softplus", gap))


# -- comparison and logic --------------------------------------------------------------------------
def _common(x, y):
    """torch's promotion of two arguments, of which scalars keep their category only."""
    def sample(v):
        v = meta(v)
        return 0 if isinstance(v, torch.SymInt) else 0.0 if isinstance(v, torch.SymFloat) else v
    return torch.result_type(sample(x), sample(y))


def _compare(kind, negate=False):
    def compare(b, n, x, y):
        dtype = _common(x, y)
        if dtype == torch.bool and kind != "Equal":
            dtype = torch.int32
        y = b.op(kind, b(x, dtype), b(y, dtype))
        return b.op("Not", y) if negate else y
    return compare


for _name, _kind, _negate in (("eq", "Equal", False), ("ne", "Equal", True), ("lt", "Less", False),
                              ("le", "LessOrEqual", False), ("gt", "Greater", False), ("ge", "GreaterOrEqual", False)):
    TABLE[f"aten.{_name}.Tensor"] = TABLE[f"aten.{_name}.Scalar"] = _compare(_kind, _negate)


def _bits(kind, logical):
    def bits(b, n, x, y):
        dtype = meta(n).dtype
        return b.op(logical if dtype == torch.bool else kind, b(x, dtype), b(y, dtype))
    return bits


for _name in ("and", "or", "xor"):
    _kind = _name.capitalize()
    for _overload in ("Tensor", "Scalar"):
        TABLE[f"aten.bitwise_{_name}.{_overload}"] = _bits("Bitwise" + _kind, _kind)
        TABLE[f"aten.__{_name}__.{_overload}"] = _bits("Bitwise" + _kind, _kind)


@row("isnan.default")
def _(b, n, x):
    return b.op("IsNaN", b(x)) if meta(x).dtype.is_floating_point else b.fill(False, dims(x), torch.bool)


@row("isinf.default")
def _(b, n, x):
    return b.op("IsInf", b(x)) if meta(x).dtype.is_floating_point else b.fill(False, dims(x), torch.bool)


@row("isfinite.default")
def _(b, n, x):
    if not meta(x).dtype.is_floating_point:
        return b.fill(True, dims(x), torch.bool)
    return b.op("Not", b.op("Or", b.op("IsNaN", b(x)), b.op("IsInf", b(x))))


# -- signs and digits ------------------------------------------------------------------------------
@row("signbit.default")
def _(b, n, x):
    return b.op("SignBit", b(x), domain="dcml")


@row("angle.default")
def _(b, n, x):
    dtype = meta(n).dtype
    name, zero = b(x, dtype), b.const(0, dtype)
    turned = b.op("Where", b.op("Less", name, zero), b.const(math.pi, dtype), zero)
    return b.op("Where", b.op("IsNaN", name), b.stop(name), turned)


@row("copysign.Tensor", "copysign.Scalar")
def _(b, n, x, y):
    dtype = meta(n).dtype
    size = b.op("Abs", b(x, dtype))
    return b.op("Where", b.op("SignBit", b(y, dtype), domain="dcml"), b.op("Neg", size), size)


@row("round.decimals")
def _(b, n, x, *, decimals):
    dtype = meta(n).dtype
    if not dtype.is_floating_point:
        return b(x)
    scale = b.const(10.0 ** abs(decimals), dtype)
    first, last = ("Mul", "Div") if decimals >= 0 else ("Div", "Mul")
    return b.op(last, b.op("Round", b.op(first, b(x), scale)), scale)


@row("frexp.Tensor")
def _(b, n, x):
    return b.op("Frexp", b(x), outs=2, domain="dcml")


# -- rows of two arguments that do not broadcast, since their gradients are clauses -------------------------
def _expanded(b, n, x):
    """x in the type and the extents of the result."""
    value = b(x, meta(n).dtype)
    return value if isinstance(x, torch.fx.Node) and dims(x) == dims(n) else b.op("Expand", value, b.shape(n))


def _of_equals(operator, *overloads, **attributes):
    for overload in overloads:
        TABLE["aten." + overload] = lambda b, n, x, y: b.op(operator, _expanded(b, n, x), _expanded(b, n, y), domain="dcml", **attributes)


_of_equals("Hypot", "hypot.default")
_of_equals("NextAfter", "nextafter.default")
_of_equals("XLogY", "xlogy.Tensor", "xlogy.Scalar_Self", "xlogy.Scalar_Other")
_of_equals("XLog1pY", "special_xlog1py.default", "special_xlog1py.self_scalar", "special_xlog1py.other_scalar")
_of_equals("Zeta", "special_zeta.default", "special_zeta.self_scalar", "special_zeta.other_scalar")
_of_equals("Igamma", "igamma.default", upper=0)
_of_equals("Igamma", "igammac.default", upper=1)


# -- orthogonal polynomials -------------------------------------------------------------------------
def _polynomial(name, family, shifted=0):
    """Of a degree that is a number there is an operator without a loop."""
    def polynomial(b, n, x, degree):
        dtype, attributes = meta(n).dtype, {"family": family, "shifted": shifted, "domain": "dcml"}
        if isinstance(degree, (int, float)) and 0 <= degree <= _UNROLLED:
            return b.op("OrthogonalOf", b(x, dtype), degree=int(degree), **attributes)
        return b.op("Orthogonal", _expanded(b, n, x), _expanded(b, n, degree), **attributes)
    for overload in ("default", "x_scalar", "n_scalar"):
        TABLE[f"aten.special_{name}.{overload}"] = polynomial


_UNROLLED = 32
for _kind in "tuvw":
    _polynomial("chebyshev_polynomial_" + _kind, _kind)
    _polynomial("shifted_chebyshev_polynomial_" + _kind, _kind, 1)
for _name, _kind in (("hermite_polynomial_h", "hermite"), ("hermite_polynomial_he", "hermite_e"), ("laguerre_polynomial_l", "laguerre"),
                     ("legendre_polynomial_p", "legendre")):
    _polynomial(_name, _kind)

"""What NumPy's ufuncs are in scalar expressions of the text form.

The one idea: NumPy itself says in which type a ufunc computes (``resolve_dtypes``); a row here says how, once.
Must not know: arrays or Python source.
"""
import math

import numpy as np

from .array import converted, literal, type_name
from .index import Index

# {0}, {1}: operands in the type that NumPy computes in; {one}: 1 of that type, and so on for the constants below
_ROWS = {
    "add": "({0} + {1})", "subtract": "({0} - {1})", "multiply": "({0} * {1})", "divide": "({0} / {1})",
    "floor_divide": "({0} // {1})", "remainder": "({0} % {1})", "fmod": "fmod({0}, {1})", "power": "pow({0}, {1})",
    "float_power": "pow({0}, {1})", "maximum": "max({0}, {1})", "minimum": "min({0}, {1})", "negative": "(-({0}))",
    "positive": "{0}", "absolute": "abs({0})", "fabs": "abs({0})", "sign": "sign({0})", "floor": "floor({0})",
    "ceil": "ceil({0})", "trunc": "trunc({0})", "rint": "round({0})", "exp": "exp({0})", "expm1": "expm1({0})",
    "exp2": "exp2({0})", "log": "log({0})", "log1p": "log1p({0})", "log2": "log2({0})",
    "log10": "log10({0})", "sqrt": "sqrt({0})", "square": "({0} * {0})", "reciprocal": "({one} / {0})",
    "sin": "sin({0})", "cos": "cos({0})", "tan": "tan({0})", "arcsin": "asin({0})", "arccos": "acos({0})",
    "arctan": "atan({0})", "sinh": "sinh({0})", "cosh": "cosh({0})", "tanh": "tanh({0})", "arcsinh": "asinh({0})",
    "arccosh": "acosh({0})", "arctanh": "atanh({0})", "hypot": "sqrt({0} * {0} + {1} * {1})",
    **dict.fromkeys(("deg2rad", "radians"), "({0} * {radian})"), **dict.fromkeys(("rad2deg", "degrees"), "({0} / {radian})"),
    "cbrt": "(sign({0}) * pow(abs({0}), {third}))",
    "fmax": "(isnan({0}) ? {1} : isnan({1}) ? {0} : max({0}, {1}))", "fmin": "(isnan({0}) ? {1} : isnan({1}) ? {0} : min({0}, {1}))",
    "heaviside": "({0} < {zero} ? {zero} : {0} == {zero} ? {1} : {0} > {zero} ? {one} : {0})",
    "copysign": "(signbit({1}) ? -abs({0}) : abs({0}))",
    "logaddexp": "(max({0}, {1}) + log1p(exp(-(abs({0} - {1})))))",
    "logaddexp2": "(max({0}, {1}) + log1p(exp(-(abs({0} - {1}) * {ln2}))) / {ln2})",
    "greater": "({0} > {1})", "greater_equal": "({0} >= {1})", "less": "({0} < {1})", "less_equal": "({0} <= {1})",
    "equal": "({0} == {1})", "not_equal": "({0} != {1})", "isnan": "isnan({0})", "isinf": "isinf({0})",
    "isfinite": "not(isnan({0}) || isinf({0}))", "signbit": "signbit({0})",
    "logical_and": "({0} && {1})", "logical_or": "({0} || {1})", "logical_not": "not({0})", "logical_xor": "({0} != {1})",
    "bitwise_and": "band({0}, {1})", "bitwise_or": "bor({0}, {1})", "bitwise_xor": "bxor({0}, {1})",
    "conjugate": "conj({0})",
    "invert": "bnot({0})", "left_shift": "shl({0}, {1})", "right_shift": "shr({0}, {1})"}
# where NumPy computes on bool
_BOOL = {"add": "({0} || {1})", "multiply": "({0} && {1})", "maximum": "({0} || {1})", "minimum": "({0} && {1})",
         "bitwise_and": "({0} && {1})", "bitwise_or": "({0} || {1})", "bitwise_xor": "({0} != {1})",
         "invert": "not({0})", "absolute": "{0}", "positive": "{0}", "less": "(not({0}) && {1})",
         "greater": "({0} && not({1}))", "less_equal": "(not({0}) || {1})", "greater_equal": "({0} || not({1}))"}
_COMPLEX = {  # where it computes on complex numbers
    "add", "subtract", "multiply", "divide", "power", "float_power", "negative", "positive", "absolute", "sign", "exp", "exp2", "log",
    "log2", "log10", "sqrt", "square", "reciprocal", "sin", "cos", "tan", "sinh", "cosh", "tanh", "equal", "not_equal", "isnan",
    "isinf", "isfinite", "conjugate"}
_WHOLE = {"floor": "{0}", "ceil": "{0}", "trunc": "{0}", "isnan": "false", "isinf": "false", "isfinite": "true", "fmax": "max({0}, {1})",
          "fmin": "min({0}, {1})"}
_TRUTH = {"logical_and", "logical_or", "logical_not", "logical_xor"}  # of whatever they get
_CONSTANTS = {"one": 1, "zero": 0, "ln2": math.log(2), "radian": math.pi / 180,
              "third": 1 / 3}
BEYOND = {"erf": "erf({0})"}  # functions of math that are no ufuncs; of one float

OPERATORS = {"Add": "add", "Sub": "subtract", "Mult": "multiply", "Div": "divide", "FloorDiv": "floor_divide",
             "Mod": "remainder", "Pow": "power", "BitAnd": "bitwise_and", "BitOr": "bitwise_or", "BitXor": "bitwise_xor",
             "LShift": "left_shift", "RShift": "right_shift", "USub": "negative", "UAdd": "positive", "Invert": "invert",
             "Not": "logical_not", "Gt": "greater", "GtE": "greater_equal", "Lt": "less", "LtE": "less_equal",
             "Eq": "equal", "NotEq": "not_equal", "And": "logical_and", "Or": "logical_or"}


def is_known(name):
    return name in _ROWS


def type_of(value):
    """What NumPy's promotion sees: a dtype, or int, float or complex for a number of Python's."""
    if isinstance(value, (bool, np.bool_)):
        return np.dtype(bool)
    if isinstance(value, Index) or type(value) is int:
        return int
    if type(value) in (float, complex):
        return type(value)
    return getattr(value, "weak", None) or np.dtype(value.dtype)


def concrete(kind):
    """The dtype of a number of Python's where nothing else decides."""
    return {int: np.dtype(np.int64), float: np.dtype(np.float64), complex: np.dtype(np.complex128)}.get(kind, kind)


def is_number(value):
    """Is it a number that arrays are computed with, besides indices?"""
    return isinstance(value, (float, complex, bool, np.generic))


def weakest(kinds):
    """The type of Python's that a number computed of such numbers has; None where one is no such number."""
    if not all(isinstance(k, type) for k in kinds):  # a dtype of NumPy's equals a type of Python's
        return None
    return next(k for k in (complex, float, int) if k in kinds)


def resolve(name, operands):
    """(types of operands, type of the result, weak type of the result or None)."""
    kinds = [type_of(v) for v in operands]
    ufunc = getattr(np, name)
    if weakest(kinds):
        types = ufunc.resolve_dtypes((*map(concrete, kinds), *[None] * ufunc.nout))
        weak = {"i": int, "f": float, "c": complex}.get(types[-1].kind)
    else:
        types, weak = ufunc.resolve_dtypes((*kinds, *[None] * ufunc.nout)), None
    if types[0].kind == "c" and name not in _COMPLEX | _TRUTH:
        raise TypeError(f"{name} of complex numbers is not understood; write it for their parts, x.real and x.imag")
    return types[:ufunc.nin], types[ufunc.nin], weak


def text_of(value, index, dtype):
    """The text of an operand's element in a type."""
    if isinstance(value, Index):
        return converted(f"({value})", np.int64, dtype)
    if not hasattr(value, "text"):
        return literal(value, dtype)
    return converted(value.text(index), value.dtype, dtype)


def combine(name, texts, types, result):
    """The text of a ufunc of operands that have the types in which it computes."""
    kind = types[0]
    if name in _TRUTH:
        texts = [converted(t, k, np.bool_) for t, k in zip(texts, types)]
        row = _ROWS[name]
    elif kind.kind == "b":
        row = _BOOL.get(name, _ROWS[name])
    elif kind.kind in "iu" and name in _WHOLE:
        row = _WHOLE[name]
    else:
        row = _ROWS[name]
    narrow = kind == np.float16  # computed as float, and rounded
    compute = np.dtype(np.float32) if narrow else kind
    if narrow:
        texts = [converted(t, kind, compute) for t in texts]
    constants = {k: literal(v, compute) for k, v in _CONSTANTS.items() if "{" + k + "}" in row}
    text = row.format(*texts, **constants)
    return f"{type_name(result)}({text})" if narrow and result == np.float16 else text

"""MXNet's ``np``: the array and functions of NumPy around it.

The one idea: names only; ``functions`` says what they do.
Must not know: anything else.
"""
import numpy as _onp

from . import functions as _functions
from . import random as random
from .array import ndarray as ndarray

for _name, _value in vars(_functions).items():
    if callable(_value) and not _name.startswith("_") and getattr(_value, "__module__", "") == _functions.__name__:
        globals()[_name] = _value
abs, round, power, bool = _functions.abs_, _functions.round_, _functions._power, _onp.bool_
for _name in ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool_", "dtype",
              "pi", "e", "inf", "nan", "newaxis", "euler_gamma"):
    globals()[_name] = getattr(_onp, _name)

__all__ = sorted(name for name in globals() if not name.startswith("_"))

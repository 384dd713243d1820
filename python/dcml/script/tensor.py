"""Tensor: the value of a variable of a script while it runs.

The one idea: an array with ONNX's arithmetic: types are ONNX's, and a number takes the type of the tensor beside it.
Must not know: scripts.
"""
import numpy as np

from .onnx_types import DataType


class Tensor:
    """An array with the operators of scripts.

    value: a numpy array (or numpy's scalar).  ``value shape rank dtype onnx_dtype``; ``+ - * / ** % @ & |``, comparisons,
    unary ``-``, indexing as in a script, truth, ``int()``, ``float()`` and ``range()`` of a single element.
    """

    __slots__ = ("_value",)
    __array_ufunc__ = None  # an array beside it leaves the operator to it
    __hash__ = None

    def __init__(self, nparray=None, opset=None):
        if nparray is not None and not isinstance(nparray, (np.ndarray, np.generic)):
            raise TypeError(f"a Tensor is made of a numpy array, not {type(nparray).__name__}")
        self._value = nparray if nparray is None or isinstance(nparray, np.ndarray) else np.asarray(nparray)

    @property
    def value(self):
        """The numpy array; ValueError if it has none."""
        if self._value is None:
            raise ValueError("the Tensor has no value")
        return self._value

    @property
    def shape(self):
        """A tuple of lengths."""
        return self.value.shape

    @property
    def rank(self):
        """The number of dimensions."""
        return self.value.ndim

    @property
    def is_scalar(self):
        return self.value.ndim == 0

    @property
    def dtype(self):
        """numpy's element type."""
        return self.value.dtype

    @property
    def onnx_dtype(self):
        """ONNX's element type, a DataType: an int."""
        from ..onnx.host.values import COMPLEX, STRING, code_of, is_string
        value = self.value
        code = STRING if is_string(value) else code_of(value) or {name: code for code, name in COMPLEX.items()}[value.dtype.name]
        return DataType(code)

    def __repr__(self):
        return f"Tensor({self._value!r})"

    def __str__(self):
        return repr(self)

    # -- one element --------------------------------------------------------------------------------
    def __bool__(self):
        return bool(self.value)

    def __int__(self):
        return int(self._single("int"))

    def __float__(self):
        return float(self._single("float"))

    def __index__(self):
        return self._single("index").__index__()

    def _single(self, what):
        if self.value.size != 1:
            raise TypeError(f"a Tensor of shape {list(self.shape)} has no {what}: it has more than one element")
        return self.value.reshape(())[()]

    def __len__(self):
        return len(self.value)

    def __array__(self, dtype=None, copy=None):
        return np.array(self.value, dtype) if copy else np.asarray(self.value, dtype)

    def __getitem__(self, index):
        return eager.index(self, index)

    def __iter__(self):
        raise TypeError("a Tensor is not unpacked; use op.Split, or indices")

    def __setitem__(self, index, value):
        raise TypeError("a Tensor is not changed in place; use op.ScatterElements or op.ScatterND")


def _binary(op, swapped=False, negated=False):
    def method(self, other):
        return eager.arithmetic(op, other, self, negated) if swapped else eager.arithmetic(op, self, other, negated)
    return method


for _word, _op in {"add": "Add", "sub": "Sub", "mul": "Mul", "truediv": "Div", "pow": "Pow", "mod": "Mod", "matmul": "MatMul", "and": "And",
                   "or": "Or"}.items():
    setattr(Tensor, f"__{_word}__", _binary(_op))
    setattr(Tensor, f"__r{_word}__", _binary(_op, True))
for _word, _op in {"lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual", "eq": "Equal"}.items():
    setattr(Tensor, f"__{_word}__", _binary(_op))
Tensor.__ne__ = _binary("Equal", negated=True)


def _negative(self):
    return eager.arithmetic("Neg", self)


Tensor.__neg__ = _negative
Tensor.__pos__ = lambda self: self

from . import eager  # noqa: E402 -- which needs Tensor

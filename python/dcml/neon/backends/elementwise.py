"""The methods that make op-trees: element-wise ones, reductions, products, indices.

The one idea: a method is a line that names an operator; all take ``out``, a Tensor to be filled at once, which is then what
they return, and give a lazy OpTreeNode without it.  Must not know: how trees run.
"""
import numpy as np

from ... import _core
from .run import Draws
from .tensor import Tensor
from .tree import OpTreeNode, as_method, assigned, axes_of, binary, dot, is_number, operand, reduce, shape_of, unary

_UNARY = {
    "absolute": ("abs", "The absolute values"), "fabs": ("abs", "The absolute values"), "negative": ("neg", "The negated elements"),
    "sgn": ("sgn", "The signs: -1, 0 or 1"), "sqrt": ("sqrt", "The square roots"), "square": ("sqr", "The squares"),
    "exp": ("exp", "The exponential function"), "exp2": ("exp2", "2 to the power of the elements"),
    "log": ("log", "The natural logarithms"), "log2": ("log2", "The logarithms to base 2"),
    "safelog": ("safelog", "The natural logarithms, -50 where they are less or the element is not positive"),
    "sig": ("sig", "The logistic function, 1/(1+exp(-a))"), "sig2": ("sig2", "The logistic function to base 2, 1/(1+2**-a)"),
    "tanh": ("tanh", "The hyperbolic tangent"), "tanh2": ("tanh2", "The hyperbolic tangent to base 2, (2**2a-1)/(2**2a+1)"),
    "finite": ("finite", "1 where the element is a finite number, else 0"),
    "rint": ("rint", "The nearest whole numbers, halves to even ones")}
_BINARY = {
    "add": ("add", "The sums"), "subtract": ("sub", "The differences"), "multiply": ("mul", "The products"),
    "divide": ("div", "The quotients, of whole numbers too"), "true_divide": ("div", "The quotients; the same as divide()"),
    "power": ("pow", "The powers"), "maximum": ("maximum", "The greater elements"), "minimum": ("minimum", "The lesser elements"),
    "equal": ("eq", "1 where the elements are equal, else 0"), "not_equal": ("ne", "1 where the elements differ, else 0"),
    "less": ("lt", "1 where a < b, else 0"), "less_equal": ("le", "1 where a <= b, else 0"),
    "greater": ("gt", "1 where a > b, else 0"), "greater_equal": ("ge", "1 where a >= b, else 0")}
_SHAPES = """

    {0}: Tensor, OpTreeNode or number{1}.  out: Tensor to fill.
    Returns an OpTreeNode, or out.  Raises ShapeError for shapes that do not fit, TypeError for other operands."""


def checked_binary(method, op, a, b, **kwargs):
    """A node of two operands; raises TypeError for what is none."""
    node = binary(op, a, b, **kwargs)
    return binary(op, operand(a, method), operand(b, method), **kwargs) if node is NotImplemented else node


def _one(method, op):
    def call(self, a, out=None):
        return assigned(unary(op, a), out)
    return as_method(op, call, 1, 1)


def _two(method, op):
    def call(self, a, b, out=None):
        return assigned(checked_binary(method, op, a, b), out)
    return as_method(op, call, 1, 2)


class Elementwise:
    """Methods of a backend that make op-trees."""

    for _rows, _make, _operands in ((_UNARY, _one, ("a", "")), (_BINARY, _two, ("a, b", ", of shapes that broadcast"))):
        for _name, (_op, _what) in _rows.items():
            _method = _make(_name, _op)
            _method.__name__, _method.__qualname__ = _name, f"Backend.{_name}"
            _method.__doc__ = f"{_what}.{_SHAPES.format(*_operands)}"
            locals()[_name] = _method
    del _rows, _make, _operands, _name, _op, _what, _method

    def reciprocal(self, a, out=None):
        """1 divided by the elements of a; an OpTreeNode, or out, which is filled."""
        return assigned(checked_binary("reciprocal", "div", 1.0, a), out)

    def clip(self, a, a_min, a_max, out=None):
        """The elements of a, but at least a_min and at most a_max; an OpTreeNode, or out, which is filled."""
        low = checked_binary("clip", "maximum", a, a_min)
        return assigned(checked_binary("clip", "minimum", low, a_max), out)

    def shift(self, a, b, value=True, out=None):
        """a times a power of two: the nearest to b, with b's sign, or 2**b where ``value`` is false.

        Returns an OpTreeNode, or out, which is filled.
        """
        return assigned(checked_binary("shift", "shift", a, b, value=bool(value)), out)

    def binarize(self, a, stochastic=True, out=None):
        """-1 or 1: by a's sign (0 gives 1), or by chance, 1 with probability (a+1)/2, drawn anew at each assignment.

        Returns an OpTreeNode, or out, which is filled.
        """
        a = operand(a, "binarize")
        draws = Draws(self, shape_of(a)) if stochastic else None
        return assigned(OpTreeNode({"op": "binarize", "shape": shape_of(a), "stochastic": bool(stochastic)}, a, draws), out)

    # -- reductions --------------------------------------------------------------------------------
    def sum(self, a, axis=None, out=None, keepdims=True):
        """The sums along an axis, several, or all (None); the extents stay as 1 (see docs/neon.md for keepdims).

        Returns an OpTreeNode, or out, which is filled.  Raises ValueError_ for an axis that a does not have.
        """
        return assigned(reduce("sum", a, axis, keepdims), out)

    def max(self, a, axis=None, out=None, keepdims=True):
        """The greatest elements along an axis, several, or all (None), as sum()."""
        return assigned(reduce("max", a, axis, keepdims), out)

    def min(self, a, axis=None, out=None, keepdims=True):
        """The least elements along an axis, several, or all (None), as sum()."""
        return assigned(reduce("min", a, axis, keepdims), out)

    def argmax(self, a, axis=1, out=None, keepdims=True):
        """Where the greatest element stands along an axis, or in the flat tensor (None); of equal ones the first."""
        return assigned(reduce("argmax", a, axis, keepdims), out)

    def argmin(self, a, axis=1, out=None, keepdims=True):
        """Where the least element stands along an axis, or in the flat tensor (None); of equal ones the first."""
        return assigned(reduce("argmin", a, axis, keepdims), out)

    def mean(self, a, axis=None, partial=None, out=None, keepdims=True):
        """The arithmetic means along an axis, several, or all (None), as sum(); ``partial`` is not used."""
        return assigned(reduce("mean", a, axis, keepdims), out)

    def var(self, a, axis=None, partial=None, out=None, keepdims=True, binary=False):
        """The variances (divided by the number of elements), as mean(); binary: with shift() in the place of the square."""
        return assigned(self._var("var", a, axis, keepdims, binary), out)

    def std(self, a, axis=None, partial=None, out=None, keepdims=True):
        """The square roots of the variances, as mean()."""
        return assigned(unary("sqrt", self._var("std", a, axis, keepdims, False)), out)

    def _var(self, method, a, axis, keepdims, binary):
        a = operand(a, method)
        axes_of(axis, len(shape_of(a)), method)
        off = checked_binary(method, "sub", a, reduce("mean", a, axis))
        return reduce("mean", self.shift(off, off) if binary else unary("sqr", off), axis, keepdims)

    # -- products and indices ----------------------------------------------------------------------
    def dot(self, a, b, out=None):
        """The product of two matrices; an OpTreeNode, or out.  Raises ShapeError for extents that do not fit."""
        return assigned(dot(a, b), out)

    def take(self, a, indices, axis, out=None):
        """Elements of a at indices along an axis, or, for None, of the flat a.

        indices: Tensor of any type, array or list of whole numbers; -1 is the last.  An index outside is an error when the
        tree is assigned.  Returns an OpTreeNode, or out, which is filled.
        """
        a = operand(a, "take")
        if not isinstance(indices, Tensor):
            array = np.asarray(indices)
            if array.dtype.kind not in "iu" and array.size:
                raise TypeError(f"take(): indices of type {array.dtype}, expected whole numbers")
            indices = Tensor(self, dtype=np.int64, ary=array.astype(np.int64))
        if axis is None:
            shape = indices.shape
        else:
            if not hasattr(axis, "__index__"):
                raise _core.ValueError_(f"take(): axis is {axis!r}, expected a whole number or None")
            axis, = axes_of(axis, len(shape_of(a)), "take")
            shape = shape_of(a)[:axis] + (indices.size,) + shape_of(a)[axis + 1:]
        return assigned(OpTreeNode({"op": "take", "shape": shape, "axis": axis}, a, indices), out)

    def onehot(self, indices, axis, out=None):
        """Columns (axis 0) or rows (axis 1) that are 1 at the index of a class and 0 elsewhere.

        indices: Tensor of whole numbers, one for each column or row.  The number of classes is that of what the tree is
        combined with or assigned to; an index outside it gives zeros.  Returns an OpTreeNode, or out, which is filled.
        Raises ValueError_ for another axis, DTypeError for indices that are not of a type of whole numbers.
        """
        if isinstance(axis, bool) or axis not in (0, 1):
            raise _core.ValueError_(f"onehot(): axis is {axis!r}, expected 0 or 1")
        if not isinstance(indices, Tensor):
            raise TypeError(f"onehot(): indices are a Tensor, not {type(indices).__name__}")
        if indices.dtype.kind not in "iu":
            raise _core.DTypeError(f"onehot(): indices of type {indices.dtype}, expected whole numbers")
        shape = (None, indices.size) if axis == 0 else (indices.size, None)
        return assigned(OpTreeNode({"op": "onehot", "shape": shape, "axis": axis}, indices, None), out)

    def make_binary_mask(self, out, keepthresh=0.5):
        """Fills out with 0 and 1; keepthresh is the probability of 1."""
        if not isinstance(out, Tensor):
            raise TypeError(f"make_binary_mask(): out is a Tensor, not {type(out).__name__}")
        if not is_number(keepthresh):
            raise TypeError(f"make_binary_mask(): keepthresh is a number, not {type(keepthresh).__name__}")
        return assigned(checked_binary("make_binary_mask", "lt", Draws(self, out.shape), keepthresh), out)

"""Op-trees: what is to be computed, as tuples (operator, left operand, right operand).

The one idea: a node knows its operator and the shape of its value, and nothing else; nothing runs before a tree is
assigned to a tensor.  Must not know: how operators are computed (operators.py), where tensors lie (tensor.py).
"""
from functools import update_wrapper

from ... import _core

REDUCTIONS = frozenset(("sum", "max", "min", "argmax", "argmin"))
_SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "pow": "**"}


class Operand:
    """What may stand in an op-tree besides numbers: has a ``shape``; arithmetic on it makes nodes."""

    __slots__ = ()
    __array_ufunc__ = None  # numpy's scalars leave arithmetic to us

    __hash__ = object.__hash__

    def __array__(self, dtype=None, copy=None):
        """The value as a new array, for functions of numpy that take arrays."""
        return self.get() if dtype is None else self.get().astype(dtype)


class OpTreeNode(Operand, tuple):
    """A node of an op-tree: (dictionary of the operator, left operand, right operand or None).

    The dictionary holds ``op``, the ``shape`` of the value, and what else the operator needs, such as ``axis``.
    """

    __slots__ = ()

    def __new__(cls, *args):
        if len(args) != 3 or not isinstance(args[0], dict) or "op" not in args[0]:
            raise _core.ValueError_("an OpTreeNode is made of {'op': ...}, a left and a right operand")
        return tuple.__new__(cls, args)

    @staticmethod
    def build(op, a, b, out=None, **kwargs):
        """A node, or, with ``out``, ``out`` after the node was assigned to it; NotImplemented for operands that are none.

        op: the operator; a, b: Tensor, OpTreeNode, number, or None where the operator has one operand.
        kwargs: what else the operator needs, such as axis.  Raises ValueError_ for what the operator does not take.
        """
        if not all(x is None or isinstance(x, Operand) or is_number(x) for x in (a, b)):
            return NotImplemented
        if op == "assign":
            return OpTreeNode({"op": op, "shape": a.shape}, a, b).execute()
        if op in REDUCTIONS:
            node = reduce(op, a, kwargs.pop("axis", None), **kwargs)
        elif op == "dot":
            node = dot(a, b)
        elif op == "transpose":
            node = transposed(a)
        else:
            node = unary(op, a, **kwargs) if b is None else binary(op, a, b, **kwargs)
        return assigned(node, out)

    @property
    def shape(self):
        """The extents of the value."""
        return self[0].get("shape", (1, 1))

    @property
    def T(self):
        """The transposed value: dimensions in reverse order."""
        return transposed(self)

    def transpose(self, out=None):
        """``T``, assigned to ``out`` if that is given."""
        return assigned(self.T, out)

    def execute(self):
        """Runs an assignment, (op 'assign', target, value); returns the target.

        Raises ValueError_ for any other operator at the top.
        """
        target = self[1]
        if self[0]["op"] != "assign" or not hasattr(target, "backend"):
            raise _core.ValueError_(f"execute() takes a tree with 'assign' to a tensor at the top, not {self[0]['op']!r}")
        return target.backend.execute(self)

    def traverse(self, stack):
        """Appends operands and dictionaries of operators to a list, operands first, and returns it."""
        left = [self]
        while left:
            x = left.pop()
            if type(x) is _Last:
                stack.append(x.operator)
            elif isinstance(x, OpTreeNode):
                left += [_Last(x[0]), x[2], x[1]]
            elif x is not None:
                stack.append(x)
        return stack

    def key(self):
        """A tuple that is equal for trees of the same operators on the same tensors and numbers."""
        found = []
        for x in self.traverse([]):
            if isinstance(x, dict):
                found.append(tuple((k, _hashable(v)) for k, v in x.items()))
            else:
                found.append(_hashable(x))
        return tuple(found)

    def pp(self):
        """The tree as text, with infix signs and the names of tensors."""
        parts, left = [], [self]
        while left:
            x = left.pop()
            if isinstance(x, str):
                parts.append(x)
            elif not isinstance(x, OpTreeNode):
                parts.append(_name(x))
            elif x[2] is None:
                left += [")", x[1], f"({x[0]['op']} "]
            else:
                op = x[0]["op"]
                left += [")", x[2], f" {_SIGNS.get(op, op)} ", x[1], "("]
        return "".join(parts)

    def astensor(self):
        """The value as a new Tensor of the backend's default type.

        Raises ValueError_ for a tree without any tensor, which belongs to no backend.
        """
        left, seen = [self], set()
        while left:
            x = left.pop()
            if hasattr(x, "backend"):
                value = x.backend.empty(self.shape)
                value[:] = self
                return value
            if isinstance(x, OpTreeNode) and id(x) not in seen:
                seen.add(id(x))
                left += [x[2], x[1]]
        raise _core.ValueError_(f"{self.pp()}: a tree without a tensor has no backend; assign it to a tensor")

    def asnumpyarray(self):
        """The value as a new array of numpy."""
        return self.astensor().get()

    get = asnumpyarray

    def __str__(self):
        return f"({self[0]}, {_name(self[1])}, {_name(self[2])})"

    __repr__ = __str__


class _Last:
    """An operator that comes behind its operands."""

    __slots__ = ("operator",)

    def __init__(self, operator):
        self.operator = operator


def _name(x):
    if isinstance(x, OpTreeNode):
        return x.pp()
    return getattr(x, "name", None) or (f"tensor-{id(x):#x}" if isinstance(x, Operand) else str(x))


def _hashable(x):
    return ("operand", id(x)) if isinstance(x, Operand) else x


# -- numbers and shapes ----------------------------------------------------------------------------

def is_number(x):
    """Is this a real number of Python's or numpy's?"""
    return isinstance(x, (int, float)) or (hasattr(x, "dtype") and getattr(x, "shape", None) == () and x.dtype.kind in "biuf"
                                           and not isinstance(x, Operand))


def plain(x):
    """A number as int or float."""
    return x if type(x) in (int, float) else x.item() if hasattr(x, "item") else int(x) if isinstance(x, int) else float(x)


def operand(x, op):
    """An operand or a plain number; raises TypeError for anything else."""
    if isinstance(x, Operand):
        return x
    if is_number(x):
        return plain(x)
    raise TypeError(f"{op}() takes tensors, op-trees and numbers, not {type(x).__name__}")


def extents(a, b, op):
    """The extents of two shapes together, as numpy broadcasts; None is an extent that the target will tell."""
    n = max(len(a), len(b))
    out = []
    for x, y in zip((1,) * (n - len(a)) + tuple(a), (1,) * (n - len(b)) + tuple(b)):
        if x != y and x != 1 and y != 1 and x is not None and y is not None:
            raise _core.ShapeError(f"{op}(): shapes {tuple(a)} and {tuple(b)} do not fit")
        out.append(x if y == 1 or x == y else y if x == 1 or x is None else x)
    return tuple(out)


def shape_of(x):
    """The extents of an operand; a number has (1, 1)."""
    return x.shape if isinstance(x, Operand) else (1, 1)


_new = tuple.__new__


def unary(op, a, **kwargs):
    """A node of one operand."""
    if not isinstance(a, Operand):
        a = operand(a, op)
    return _new(OpTreeNode, ({"op": op, "shape": shape_of(a), **kwargs}, a, None))


def binary(op, a, b, **kwargs):
    """A node of two operands; NotImplemented for operands that are none, so that operators of Python raise TypeError."""
    if isinstance(a, Operand):
        shape = a.shape
        if isinstance(b, Operand):
            other = b.shape
            if shape != other:
                shape = extents(shape, other, op)
        elif type(b) is not float and type(b) is not int:
            if not is_number(b):
                return NotImplemented
            b = plain(b)
    elif is_number(a) and (isinstance(b, Operand) or is_number(b)):
        a, b = plain(a), b if isinstance(b, Operand) else plain(b)
        shape = shape_of(b)
    else:
        return NotImplemented
    return _new(OpTreeNode, ({"op": op, "shape": shape, **kwargs} if kwargs else {"op": op, "shape": shape}, a, b))


def as_method(op, otherwise, first, operands, reflected=False):
    """A method that makes nodes of one or two operands, which its arguments from ``first`` on are.

    The core serves calls with operands of one shape, or with a plain number; ``otherwise``, the method in Python, all others.
    """
    return update_wrapper(_core.TreeOperator(op, otherwise, OpTreeNode, Operand, first, operands, reflected), otherwise)


def _add_arithmetic():
    """Gives operands the operators of Python."""
    def one(op):
        return lambda self: unary(op, self)

    def two(op, reflected=False):
        return (lambda self, other: binary(op, other, self)) if reflected else lambda self, other: binary(op, self, other)
    methods = {f"__{op}__": as_method(op, one(op), 0, 1) for op in ("neg", "abs")}
    for op, name in (("add", "add"), ("sub", "sub"), ("mul", "mul"), ("div", "truediv"), ("div", "div"), ("pow", "pow")):
        methods[f"__{name}__"] = as_method(op, two(op), 0, 2)
        methods[f"__r{name}__"] = as_method(op, two(op, True), 0, 2, True)
    for op in ("eq", "ne", "lt", "le", "gt", "ge"):
        methods[f"__{op}__"] = as_method(op, two(op), 0, 2)
    for name, method in methods.items():
        method.__name__, method.__qualname__ = name, f"Operand.{name}"
        setattr(Operand, name, method)


_add_arithmetic()


def axes_of(axis, rank, op):
    """Sorted axes from None, an integer or several; raises ValueError_ for one that is not there."""
    if axis is None:
        return tuple(range(rank))
    found = axis if isinstance(axis, (tuple, list)) else (axis,)
    for x in found:
        if not hasattr(x, "__index__") or not -rank <= x < rank:
            raise _core.ValueError_(f"{op}(): axis {x!r} of a value with {rank} dimensions")
    return tuple(sorted({x.__index__() % rank for x in found}))


def reduce(op, a, axis, keepdims=True):
    """A reduction over one, several or all (None) axes; the extents stay as 1, or go where two others are left."""
    a = operand(a, op)
    shape = shape_of(a)
    axes = axes_of(axis, len(shape), op)
    if op.startswith("arg") and axis is not None and len(axes) != 1:
        raise _core.ValueError_(f"{op}(): expected one axis or None, got {axis!r}")
    if None in shape:
        raise _core.ShapeError(f"{op}(): the extent of a onehot alone is not known")
    drop = not keepdims and len(shape) - len(axes) >= 2
    kept = tuple(1 if d in axes else n for d, n in enumerate(shape) if d not in axes or not drop)
    options = {"axis": axis if axis is None or isinstance(axis, int) else axes, **({"drop": True} if drop else {})}
    return _new(OpTreeNode, ({"op": op, "shape": kept, **options}, a, None))


def dot(a, b):
    """The product of two matrices."""
    a, b = operand(a, "dot"), operand(b, "dot")
    p, q = shape_of(a), shape_of(b)
    if len(p) != 2 or len(q) != 2 or (p[1] != q[0] and p[1] is not None and q[0] is not None):
        raise _core.ShapeError(f"dot(): matrices of shapes {p} and {q} cannot be multiplied")
    return _new(OpTreeNode, ({"op": "dot", "shape": (p[0], q[1])}, a, b))


def transposed(a):
    """Dimensions in reverse order."""
    a = operand(a, "transpose")
    return _new(OpTreeNode, ({"op": "transpose", "shape": tuple(reversed(shape_of(a)))}, a, None))


def assigned(node, out):
    """The node, or ``out`` after the node was assigned to it."""
    if out is None or node is NotImplemented:
        return node
    if not hasattr(out, "backend"):
        raise TypeError(f"out= takes a Tensor, not {type(out).__name__}")
    return out.backend.execute(_new(OpTreeNode, ({"op": "assign", "shape": out.shape}, out, node)))

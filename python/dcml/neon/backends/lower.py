"""From op-trees to graphs of the core.

The one idea: an assignment is one graph, whose arguments are the tensors of its trees and the target; gradients are the
core's, of a graph of the differentiated tree, put inline.  Must not know: operators (operators.py), or which
arrays the arguments are at a call (run.py).
"""
from dataclasses import dataclass

import numpy as np

from ... import _core
from .layout import index_text
from .operators import ROWS
from .tree import OpTreeNode, extents

_CODES = {"f4": 1, "u1": 2, "i1": 3, "u2": 4, "i2": 5, "i4": 6, "i8": 7, "b1": 9, "f2": 10, "f8": 11, "u4": 12, "u8": 13}
_DOUBLE = np.dtype("f8")


def code_of(dtype):
    """The core's number of a type of numpy's."""
    return _CODES[f"{dtype.kind}{dtype.itemsize}"]


@dataclass(frozen=True)
class Value:
    """A container of the graph.  weak: made of numbers alone, takes the type of what it meets."""

    name: str
    dtype: np.dtype
    weak: bool = False


@dataclass(frozen=True)
class Number:
    """A number of a tree: an argument, of the type of what it meets, unless its value is part of the structure."""

    name: str
    value: object  # int or float; used where the structure holds it, and for the kind


class Emitter:
    """Appends nodes to a graph of its own."""

    def __init__(self, sources):
        self.graph = _core.Graph("tree", 21)
        self.graph.add_state("main")
        self.sources = sources  # what is behind tensors and numbers of trees
        self.arguments = {}  # name -> (dtype, extents), in the order of declaration
        self.views = {}  # slot -> Value
        self.values = {}  # id of a node -> Value
        self.gradients = {}  # (differentiated tree, error, argument) -> name of a container
        self.constants = {}

    # -- appending ---------------------------------------------------------------------------------
    def value(self, op, dtype, *inputs, domain="", to=None, **attributes):
        """The first output of an operator, cast if ``to`` is another type."""
        names = self.graph.add_node(op, [x.name for x in inputs], 1, attributes, domain)
        weak = bool(inputs) and all(getattr(x, "weak", False) for x in inputs)
        found = Value(names[0], dtype, weak)
        return found if to is None else self.cast(found, to)

    def const(self, value, dtype):
        """A constant; dtype None: the array as it is."""
        array = np.asarray(value) if dtype is None else np.asarray(value, dtype)
        key = array.dtype.char, array.shape, array.tobytes()
        if key not in self.constants:
            self.constants[key] = Value(self.graph.add_const("c", array), array.dtype, dtype is not None)
        return self.constants[key]

    def append(self, text):
        self.graph.append(0, text)

    def temporary(self, name, dtype, shape):
        return self.graph.add_array(name, code_of(dtype), list(shape), True)

    def argument(self, name, dtype, shape):
        """Declares an argument, once."""
        if name not in self.arguments:
            self.arguments[name] = dtype, tuple(shape)
            self.graph.add_array(name, code_of(dtype), list(shape), False)
        return name

    def shape(self, x):
        """The extents of a value, as the core infers them."""
        self.graph.run_pass("infer")
        return self.graph.info(x.name)[1]

    # -- types -------------------------------------------------------------------------------------
    def cast(self, x, dtype):
        if isinstance(x, Number):
            return self.number(x, dtype)
        return x if x.dtype == dtype else Value(self.graph.add_node("Cast", [x.name], 1, {"to": code_of(dtype)})[0], dtype, x.weak)

    def number(self, x, dtype):
        if x.name is None:
            return self.const(x.value, dtype)
        return Value(self.argument(x.name, dtype, ()), dtype, True)

    def known(self, x):
        """The value of a number that the structure holds, else None."""
        return x.value if isinstance(x, Number) and x.name is None else None

    def whole(self, x):
        """An operand as a value of its own type; comparisons' and flags' are numbers."""
        if isinstance(x, Number):
            return self.number(x, _DOUBLE)
        return self.cast(x, np.dtype("i1")) if x.dtype.kind == "b" else x

    def floating(self, x):
        """An operand as a value of a floating type, the one that numpy's functions take."""
        x = self.whole(x)
        return x if x.dtype.kind == "f" else self.cast(x, np.result_type(x.dtype, np.float16))

    def pair(self, a, b):
        """Two operands as values of one type."""
        dtype = self._common(a, b)
        return self.cast(a, dtype), self.cast(b, dtype)

    def _common(self, a, b):
        weak = [x for x in (a, b) if isinstance(x, Number) or x.weak]
        strong = [x.dtype if x.dtype.kind != "b" else np.dtype("i1") for x in (a, b) if not (isinstance(x, Number) or x.weak)]
        if not strong:
            return _DOUBLE
        dtype = np.result_type(*strong)
        if dtype.kind == "f" or all(isinstance(x.value if isinstance(x, Number) else 0.0, int) for x in weak):
            return dtype
        return _DOUBLE

    # -- shapes ------------------------------------------------------------------------------------
    def reshape(self, x, shape):
        x = self.whole(x)
        return self.value("Reshape", x.dtype, x, self.const(np.array(shape, np.int64), None))

    def table(self, x):
        """An operand with dimensions: a number is a matrix of one element."""
        x = self.whole(x)
        return x if self.shape(x) else self.reshape(x, (1, 1))

    # -- tensors -----------------------------------------------------------------------------------
    def tensor(self, slot):
        """The value of a tensor."""
        if slot not in self.views:
            name, layout = self.sources.place(slot)
            dtype = np.dtype(layout[0])
            self.views[slot] = self.view(self.argument(name, dtype, layout[1]), layout)
        return self.views[slot]

    def view(self, name, layout):
        """The elements of a container that a layout says."""
        dtype = np.dtype(layout[0])
        if len(layout) == 3:
            found = Value(name, dtype)
            return self.value("Transpose", dtype, found, perm=[int(k) for k in np.argsort(layout[2])]) if layout[2] else found
        shape = layout[2]
        indices = [f"i{d}" for d in range(len(shape))]
        copy = self.temporary("v", dtype, shape)
        ranges = ", ".join(f"i{d} in 0:{n}" for d, n in enumerate(shape))
        self.append(f"map {ranges} {{ {copy}[{', '.join(indices)}] = {name}[{index_text(layout, indices)}] }}")
        return Value(copy, dtype)

    def write(self, slot, x):
        """Writes a value into a tensor, as numpy broadcasts."""
        name, layout = self.sources.place(slot)
        dtype, shape = np.dtype(layout[0]), self.sources.shape(slot)
        x = self.cast(x, dtype)
        given = self.shape(x)
        while len(given) > len(shape) and given[0] == 1:
            given = given[1:]
        if extents(given, shape, "assign") != tuple(shape):
            raise _core.ShapeError(f"a value of shape {self.shape(x)} does not fit a tensor of shape {shape}")
        self.argument(name, dtype, layout[1])
        indices = [f"i{d}" for d in range(len(shape))]
        ranges = ", ".join(f"i{d} in 0:{n}" for d, n in enumerate(shape))
        read = ["0"] * (len(self.shape(x)) - len(given))
        read += [i if n != 1 else "0" for i, n in zip(indices[len(shape) - len(given):], given)]
        self.append(f"map {ranges} {{ {name}[{index_text(layout, indices)}] = {x.name}[{', '.join(read)}] }}")

    # -- trees -------------------------------------------------------------------------------------
    def operand(self, node, side, values):
        x = node[side]
        if isinstance(x, OpTreeNode):
            return values[id(x)]
        return None if x is None else self.sources.leaf(self, node, side)

    def tree(self, root):
        """The value of a tree, a tensor or a number."""
        if not isinstance(root, OpTreeNode):
            return self.whole(self.sources.leaf(self, root, None))
        values = self.values
        for node in postorder([root]):
            op = node[0]["op"]
            if id(node) in values:
                continue
            if op == "grad":
                values[id(node)] = self.gradient(node, values)
            elif op != "of":
                values[id(node)] = self.row(op, node, values)
        return values[id(root)]

    def row(self, op, node, values):
        """The value of one operator; nodes may be made by anyone, so operands and options may be missing."""
        if op not in ROWS:
            raise _core.UnsupportedOpError(f"op-trees have no operator {op!r}")
        operands = self.operand(node, 1, values), self.operand(node, 2, values)
        try:
            return ROWS[op](self, self.sources.dictionary(node), *operands)
        except (AttributeError, KeyError) as error:
            raise _core.ValueError_(f"operator {op!r} of an op-tree lacks an operand or an option: {error}") from error

    # -- gradients ---------------------------------------------------------------------------------
    def gradient(self, node, values):
        """The gradient of node[1] in a tensor, times an error: node[2] is ('of', error, tensor)."""
        (_, tree, (_, error, _)), slot = node, self.sources.tensor_slot(node[2], 2)
        place, layout = self.sources.place(slot)
        key = id(tree), id(error)
        if (key, place) not in self.gradients:
            self._differentiate(key, tree, self.operand(node[2], 1, values), self.sources.wanted(key) | {place})
        return self.view(self.gradients[key, place], layout)

    def _differentiate(self, key, tree, error, places):
        inner = Emitter(self.sources)
        out = inner.tree(tree)
        out = inner.value("Identity", out.dtype, out)
        shape = inner.shape(out)
        wrt = sorted(p for p in places if p in inner.arguments and out.dtype.kind == "f")  # whole numbers have steps alone
        for p in places:
            dtype, extents = self.sources.argument(p)
            if dtype.kind != "f":
                raise _core.DTypeError(f"a tensor of type {dtype} has no gradient")
            if p not in wrt:
                zero = self.value("Expand", dtype, self.const(0, dtype), self.const(np.array(extents, np.int64), None))
                self.gradients[key, p] = zero.name
        if wrt:
            inner.graph.add_backward(0, [out.name], wrt)
            self._inline(key, inner, wrt, {f"gradient_{out.name}": self.expanded(error, out.dtype, shape)})

    def expanded(self, x, dtype, shape):
        """The name of a value of this type, broadcast to a shape."""
        found = self.value("Expand", dtype, self.cast(x, dtype), self.const(np.array(shape, np.int64), None))
        self.graph.run_pass("infer")
        return found.name

    def _inline(self, key, inner, wrt, names):
        for p in inner.arguments:
            names[p] = self.argument(p, *inner.arguments[p])
        for p in wrt:
            names[f"gradient_{p}"] = self.gradients[key, p] = self.temporary("d", *inner.arguments[p])
        self.graph.inline(0, inner.graph, {inside: (outside, None) for inside, outside in names.items()}, {})


def postorder(roots, entering=False):
    """The nodes of trees, operands first, each once; a differentiated tree is entered if ``entering``."""
    seen, out, left = set(), [], [(root, False) for root in reversed(roots) if isinstance(root, OpTreeNode)]
    while left:
        node, done = left.pop()
        if done:
            out.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            left.append((node, True))
            for side in (2, 1) if entering or node[0]["op"] != "grad" else (2,):
                if isinstance(node[side], OpTreeNode):
                    left.append((node[side], False))
    return out

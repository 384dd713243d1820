"""Python expressions as arrays, indices and constants of a program.

The one idea: what no array takes part in is computed by Python itself; the rest is a ufunc, a view, or a function of
``functions.py``.
Must not know: statements.
"""
import ast
import builtins
import inspect
import numbers
import sys
import types

import numpy as np

from .. import _core
from ..sdfg.symbolic import symbol
from . import ufuncs
from .array import Array, aligned, broadcast, literal, subscript, transposed
from .index import Index, NeedsValue, atom, is_index, names
from .markers import Callable, Marker

_DEPTH = 40  # of functions inside each other


class LocalFunction:
    """A lambda or def inside a program."""

    def __init__(self, node, frame):
        self.node, self.frame = node, frame


class Method:
    """A method of an array, not yet called."""

    def __init__(self, array, name):
        self.array, self.name = array, name


class Frame:
    """The names of a function that is being translated."""

    def __init__(self, source, function=None, outer=None, symbols=None):
        self.source, self.outer, self.names = source, outer, {}
        self.symbols = symbols if symbols is not None else {}  # extents that a caller's arrays give to symbols
        self.depth, self.level = outer.depth + 1 if outer else 0, None  # level: loops around the function's statements
        self.closure = _closure(function) if function is not None else {}
        self.globals = function.__globals__ if function is not None else {}

    def find(self, name, surroundings):
        """(found, value) of a name; where it is one of the surroundings, these get (their dict or cell, name, value)."""
        frame = self
        while frame is not None:
            if name in frame.names:
                return True, frame.names[name]
            if frame.outer is None or frame.globals:
                break
            frame = frame.outer
        if name in frame.closure:
            cell, value = frame.closure[name]
            surroundings.append((cell, None, value))
            return True, value
        if name in frame.globals:
            surroundings.append((frame.globals, name, frame.globals[name]))
            return True, frame.globals[name]
        return name in vars(builtins), vars(builtins).get(name)


def _closure(function):
    values = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            values[name] = cell, cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return values


def is_array(value):
    return isinstance(value, Array)


def part(array, name):
    """The real or imaginary part of each element, ``name`` is "real" or "imag"; of a real array: itself, or zeros."""
    if array.dtype.kind != "c":
        return array if name == "real" else Array(array.shape, array.dtype, text=lambda index: literal(0, array.dtype))
    made = Array(array.shape, np.empty(0, array.dtype).real.dtype, text=lambda index: f"{name}({array.text(index)})", leaves=array.leaves)
    made.frozen = f"it is the {name} part of a complex array; write {name} parts by A[:] = re + 1j * im"
    return made


def is_runtime(value):
    """Is it, or does it hold, what only a call knows?"""
    if isinstance(value, (list, tuple)):
        return any(map(is_runtime, value))
    return isinstance(value, (Array, Index, LocalFunction, Method))


class Expressions:
    """Mixin of the translator: ``expr`` and ``pending`` give values of syntax trees.

    Needs: out (an Emitter), frame, error(node, message), call(function, node, args, kwargs), in_tasklet.
    """

    def expr(self, node):
        """The value, with arrays computed."""
        value = self.pending(node)
        return self.out.settle(value) if is_array(value) else value

    def pending(self, node):
        """The value; an array may be an operation that is still to be written somewhere."""
        method = getattr(self, "_" + type(node).__name__.lower(), None)
        if method is None:
            raise self.error(node, f"{type(node).__name__} expressions are not understood")
        with self.frame.source.at(node):
            return method(node)

    # -- names and constants --------------------------------------------------------------------
    def _constant(self, node):
        return node.value

    def _name(self, node):
        found, value = self.frame.find(node.id, self.surroundings)
        if not found and ufuncs.is_known(node.id) and self.in_tasklet:
            return getattr(np, node.id)
        if not found and self.in_tasklet and getattr(np, node.id, None) is not None:
            return getattr(np, node.id)
        if not found:
            raise self.error(node, f"the name {node.id!r} is not defined here")
        if isinstance(value, Output):
            raise self.error(node, f"output {node.id} is read before it is assigned; write {node.id}[:] = ... first")
        if isinstance(value, Unusable):
            raise self.error(node, value.why.format(name=node.id))
        return self.wrapped(value, node.id)

    def wrapped(self, value, name="c"):
        """A value of the program's surroundings: arrays and symbols become the program's."""
        if isinstance(value, np.ndarray):
            return self.out.constant(value, name)
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor):
            return self.out.constant(self.constant_of(value), name)
        if isinstance(value, symbol):
            return self.size(value)
        return value

    def constant_of(self, tensor):
        """A torch tensor's contents; the same array each time."""
        if id(tensor) not in self._tensors:
            self._tensors[id(tensor)] = (tensor, tensor.detach().cpu().numpy())
        return self._tensors[id(tensor)][1]

    def size(self, value):
        """An extent of a descriptor, an int, a symbol or arithmetic on symbols, in this program."""
        if isinstance(value, numbers.Integral):
            return int(value)
        if not isinstance(value, Index):
            raise _core.ValueError_(f"an extent {value!r}; expected an integer, a symbol or an expression of them")
        known = {name: self.frame.symbols[name] for name in names(value) & set(self.frame.symbols)}
        for name in value.free_symbols - set(known):
            self.out.symbol(name)
        return value.subs(known) if known else value

    def _tuple(self, node):
        return tuple(self.expr(e) for e in self._items(node))

    def _list(self, node):
        return [self.expr(e) for e in self._items(node)]

    def _items(self, node):
        for item in node.elts:
            if isinstance(item, ast.Starred):
                yield from (ast.Constant(v) for v in self.static(item.value))
            else:
                yield item

    def _dict(self, node):
        return {self.static(k): self.expr(v) for k, v in zip(node.keys, node.values)}

    def _slice(self, node):
        return slice(*(None if e is None else self.index(e) for e in (node.lower, node.upper, node.step)))

    def _lambda(self, node):
        return LocalFunction(node, self.frame)

    def _joinedstr(self, node):
        return "".join(str(v.value) if isinstance(v, ast.Constant) else format(self.static(v.value)) for v in node.values)

    def _listcomp(self, node):
        if len(node.generators) != 1:
            raise self.error(node, "a comprehension with several loops; write them one inside the other")
        loop, values, names = node.generators[0], [], dict(self.frame.names)
        for item in self.static_items(loop.iter):
            self.bind(loop.target, item)
            if all(self.static(c) for c in loop.ifs):
                values.append(self.expr(node.elt))
        self.frame.names = names
        return values

    _generatorexp = _listcomp

    def static(self, node):
        """A value that is known now."""
        value = self.expr(node)
        if is_runtime(value):
            raise self.error(node, "the value must be known when the program is compiled")
        return value

    def index(self, node):
        """An integer or index, or a scalar integer that the program computes."""
        value = self.expr(node)
        if value is None or is_index(value):
            return int(value) if isinstance(value, numbers.Integral) else value
        if is_array(value) and value.ndim == 0 and value.dtype.kind in "iu":
            return self.as_index(value)
        raise self.error(node, f"{describe(value)} where an integer is expected")

    def as_index(self, value):
        return atom(f"i64({value.text([])})")

    # -- operators ------------------------------------------------------------------------------
    def _binop(self, node):
        return self.binary(node, type(node.op).__name__, self.expr(node.left), self.expr(node.right))

    def binary(self, node, operator, left, right):
        if not is_runtime(left) and not is_runtime(right) or (isinstance(left, (list, tuple)) or isinstance(right, (list, tuple))):
            return self.natively(node, _PYTHON[operator], left, right)
        if is_index(left) and is_index(right) and operator in _INDEX:
            value = _INDEX[operator](left, right)
            if value is not NotImplemented:
                return value
        if operator == "MatMult":
            return self.call(np.matmul, node, [left, right], {})
        if operator == "Pow" and isinstance(right, (int, float)) and right in (2, 1, 0.5) and is_array(left):
            if right == 2:
                return self.ufunc(node, "square", left)
            if left.dtype.kind == "f" and right == 0.5:
                return self.ufunc(node, "sqrt", left)
        return self.ufunc(node, ufuncs.OPERATORS[operator], left, right)

    def natively(self, node, function, *args, **kwargs):
        """What Python computes itself; its errors get the line."""
        try:
            return self.wrapped(function(*args, **kwargs))
        except (_core.Error, NotImplementedError):
            raise
        except Exception as error:
            unknown = [a for a in (*args, *kwargs.values()) if isinstance(a, Index)]
            if unknown:
                raise NeedsValue(f"the number {unknown[0]}") from error
            raise self.error(node, f"{type(error).__name__}: {error}") from error

    def _unaryop(self, node):
        value = self.expr(node.operand)
        operator = type(node.op).__name__
        if isinstance(value, Index) and operator in ("USub", "UAdd"):
            return -value if operator == "USub" else value
        if is_runtime(value):
            return self.ufunc(node, ufuncs.OPERATORS[operator], value)
        return self.natively(node, _PYTHON[operator], value)

    def _compare(self, node):
        left, out = self.expr(node.left), None
        for operator, right in zip(node.ops, map(self.expr, node.comparators)):
            name = type(operator).__name__
            if isinstance(right, bool) and is_array(left) and not left.ndim and left.dtype == bool:  # "flag is False" means its value
                name = {"Is": "Eq", "IsNot": "NotEq"}.get(name, name)
            if is_array(left) and name in ("Is", "IsNot", "Eq", "NotEq") and right is None:
                part = name in ("IsNot", "NotEq")
            elif not is_runtime(left) and not is_runtime(right) or name not in ufuncs.OPERATORS or _structured(left, right):
                part = self.natively(node, _PYTHON[name], left, right)
            elif is_index(left) and is_index(right) and not isinstance(left - right, Index):
                part = _PYTHON[name](left - right, 0)
            elif is_index(left) and is_index(right) and self.out.is_open(left - right):
                raise NeedsValue(f"whether {ast.unparse(node)}")
            else:
                part = self.ufunc(node, ufuncs.OPERATORS[name], left, right)
            out = part if out is None else self.both(node, "And", out, part)
            left = right
        return out

    def both(self, node, operator, left, right):
        if not is_runtime(left):
            left = bool(left)
            return right if left == (operator == "And") else left
        return self.ufunc(node, ufuncs.OPERATORS[operator], self.out.settle(left) if is_array(left) else left, right)

    def _boolop(self, node):
        operator = type(node.op).__name__
        out = self.expr(node.values[0])
        for item in node.values[1:]:
            if not is_runtime(out) and not isinstance(out, Array):
                if bool(out) != (operator == "And"):
                    return out
                out = self.expr(item)
                continue
            right = self.expr(item)
            if any(is_array(v) and v.ndim for v in (out, right)):
                raise self.error(node, f"'{operator.lower()}' of arrays; write np.logical_{operator.lower()}(a, b)")
            out = self.both(node, operator, out, right)
        return out

    def _ifexp(self, node):
        condition = self.expr(node.test)
        if not is_runtime(condition):
            return self.pending(node.body if condition else node.orelse)
        if is_array(condition) and condition.ndim:
            raise self.error(node, "an array as a condition; write np.where(condition, a, b)")
        return self.select(node, condition, self.expr(node.body), self.expr(node.orelse))

    def select(self, node, condition, yes, no):
        """np.where, also of numbers."""
        weak = ufuncs.weakest([ufuncs.type_of(v) for v in (yes, no)])
        dtype = ufuncs.concrete(weak) if weak else ufuncs.resolve("add", [yes, no])[1]
        operands = [condition, yes, no]
        shape = broadcast([getattr(v, "shape", ()) for v in operands if not isinstance(v, Index)], self.out.same)

        def text(index):
            parts = [ufuncs.text_of(v, aligned(v, index) if is_array(v) else [], t)
                     for v, t in zip(operands, (np.dtype(bool), dtype, dtype))]
            return "({} ? {} : {})".format(*parts)
        return Array(shape, dtype, text=text, leaves=self.leaves_of(operands, shape), weak=weak)

    def leaves_of(self, operands, shape):
        return [lambda index, leaf=leaf, v=v: leaf(aligned(v, index)) for v in operands if is_array(v) for leaf in v.leaves]

    def ufunc(self, node, name, *operands):
        """A ufunc of arrays, indices and numbers, as one operation."""
        for value in operands:
            if not (is_array(value) or is_index(value) or ufuncs.is_number(value)):
                raise self.error(node, f"{name} of {describe(value)}")
        if not ufuncs.is_known(name):
            raise self.error(node, f"numpy.{name} is not understood")
        try:
            kinds, result, weak = ufuncs.resolve(name, operands)
        except TypeError as error:
            raise self.error(node, str(error), _core.DTypeError) from error
        shape = broadcast([v.shape for v in operands if is_array(v)], self.out.same)

        def text(index):
            parts = [ufuncs.text_of(v, aligned(v, index) if is_array(v) else [], kind) for v, kind in zip(operands, kinds)]
            return ufuncs.combine(name, parts, kinds, result)
        for value, kind in zip(operands, kinds):
            if not is_array(value) and not isinstance(value, Index):
                literal(value, kind)  # numbers that the type does not hold are told of here
        return Array(shape, result, text=text, leaves=self.leaves_of(operands, shape), weak=weak)

    # -- attributes, subscripts, calls -----------------------------------------------------------
    def _attribute(self, node):
        value = self.expr(node.value)
        if not is_array(value):
            return self.natively(node, getattr, value, node.attr)
        if node.attr == "T":
            return transposed(value, range(value.ndim)[::-1])
        plain = {"shape": lambda: value.shape, "ndim": lambda: value.ndim, "dtype": lambda: value.dtype, "size": lambda: value.size}
        if node.attr in plain:
            return plain[node.attr]()
        if node.attr in ("real", "imag"):
            return part(value, node.attr)
        return Method(value, node.attr)

    def _subscript(self, node):
        value = self.expr(node.value)
        if not is_array(value):
            return self.natively(node, lambda v, k: v[k], value, self.static(node.slice))
        return subscript(value, self.items(node.slice), self.out)

    def items(self, node):
        """The indices of a subscript."""
        out, inside = [], isinstance(node, ast.Tuple)
        for item in node.elts if inside else [node]:
            value = self.expr(item)
            if isinstance(value, (list, tuple) if inside else list) and not is_runtime(value):  # a tuple by itself is all the indices
                value = self.out.constant(self.held(np.asarray(value)))
            if is_array(value) and value.ndim and not value.is_stored:
                value = self.out.materialize(value)
            values = value if isinstance(value, tuple) else [value]
            out += [int(v) if isinstance(v, np.integer) else v for v in values]
        return out

    def held(self, data):
        """A new constant, kept alive."""
        self._tensors[id(data)] = (data, data)
        return data

    def _call(self, node):
        function = self.expr(node.func)
        args = []
        for item in node.args:
            args += self.expr(item.value) if isinstance(item, ast.Starred) else [self.expr(item)]
        kwargs = {}
        for item in node.keywords:
            kwargs.update(self.expr(item.value) if item.arg is None else {item.arg: self.expr(item.value)})
        return self.call(function, node, args, kwargs)

    # -- functions of Python --------------------------------------------------------------------
    def inline(self, node, function, args, kwargs):
        """The value that a function of Python returns, read as part of this program."""
        local = isinstance(function, LocalFunction)
        source = self.frame.source if local else self.source_of(function)
        tree = function.node if local else source.tree
        frame = Frame(source, None if local else function, function.frame if local else None)
        if local:
            frame.symbols = self.frame.symbols
        frame.depth, frame.level = self.frame.depth + 1, self.level()
        if frame.depth > _DEPTH:
            raise self.error(node, "functions that call each other without end")
        parameters = _signature(self, tree, function)
        try:
            bound = parameters.bind(*args, **kwargs)
        except TypeError as error:
            raise self.error(node, f"{getattr(function, '__name__', 'the function')}: {error}") from error
        bound.apply_defaults()
        frame.names.update(bound.arguments)
        if not local:
            self.check_annotations(node, function, frame)
        outer, self.frame = self.frame, frame
        try:
            return self.expr(tree.body) if isinstance(tree, ast.Lambda) else self.body(tree.body)
        finally:
            self.frame = outer


class Output:
    """A parameter that gets its shape from what is assigned to all of it; container: its name in the graph."""

    def __init__(self, name, container, dtype=None):
        self.name, self.container, self.dtype = name, container, dtype


class Unusable:
    """What a name stands for after a place that leaves it without a value."""

    def __init__(self, why):
        self.why = why


def _signature(translator, tree, function):
    if not isinstance(function, LocalFunction):
        return inspect.signature(function)
    made, a = [], tree.args
    kinds = inspect.Parameter
    plain = a.posonlyargs + a.args
    missing = len(plain) - len(a.defaults)
    for k, p in enumerate(plain):
        default = translator.expr(a.defaults[k - missing]) if k >= missing else kinds.empty
        made.append(kinds(p.arg, kinds.POSITIONAL_OR_KEYWORD, default=default))
    for p, d in zip(a.kwonlyargs, a.kw_defaults):
        made.append(kinds(p.arg, kinds.KEYWORD_ONLY, default=kinds.empty if d is None else translator.expr(d)))
    if a.vararg or a.kwarg:
        raise translator.error(tree, "a function inside a program with a variable number of parameters")
    return inspect.Signature(made)


def _structured(left, right):
    return any(isinstance(v, (tuple, list, str, type, np.dtype)) for v in (left, right))


def describe(value):
    """What a value is, for messages."""
    if isinstance(value, Array):
        return f"an array of {value.dtype.name}{list(value.shape)}"
    if isinstance(value, (Marker, Callable)) or isinstance(value, types.FunctionType):
        return f"the function {getattr(value, '__name__', value)}"
    return f"{value!r}"


_INDEX = {"Add": lambda a, b: a + b, "Sub": lambda a, b: a - b, "Mult": lambda a, b: a * b,
          "FloorDiv": lambda a, b: a // b, "Mod": lambda a, b: a % b}
_PYTHON = {**_INDEX, "Div": lambda a, b: a / b, "Pow": lambda a, b: a ** b, "MatMult": lambda a, b: a @ b,
           "BitAnd": lambda a, b: a & b, "BitOr": lambda a, b: a | b, "BitXor": lambda a, b: a ^ b,
           "LShift": lambda a, b: a << b, "RShift": lambda a, b: a >> b, "USub": lambda a: -a, "UAdd": lambda a: +a,
           "Invert": lambda a: ~a, "Not": lambda a: not a, "Gt": lambda a, b: a > b, "GtE": lambda a, b: a >= b,
           "Lt": lambda a, b: a < b, "LtE": lambda a, b: a <= b, "Eq": lambda a, b: a == b, "NotEq": lambda a, b: a != b,
           "Is": lambda a, b: a is b, "IsNot": lambda a, b: a is not b, "In": lambda a, b: a in b,
           "NotIn": lambda a, b: a not in b}

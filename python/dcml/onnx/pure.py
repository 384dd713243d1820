"""Operators written with numpy: a function body becomes a row of the operator language.

The one idea: an array expression is text that can be read at any index pack.  Element-wise code
composes such text; a reduction or matrix product first stores its argument in a local array.
The row then gets shapes, gradient and code like every built-in row.
Must not know: how rows are parsed or compiled.
"""
import ast
import inspect
import textwrap
from dataclasses import dataclass
from typing import Callable, Optional

from .. import _core

_UNARY = {"exp": "exp", "log": "log", "sqrt": "sqrt", "sin": "sin", "cos": "cos", "tan": "tan", "arcsin": "asin",
          "arccos": "acos", "arctan": "atan", "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "arcsinh": "asinh",
          "arccosh": "acosh", "arctanh": "atanh", "abs": "abs", "absolute": "abs", "fabs": "abs", "sign": "sign",
          "floor": "floor", "ceil": "ceil", "round": "round", "rint": "round", "trunc": "trunc", "expm1": "expm1",
          "log1p": "log1p", "isnan": "isnan", "isinf": "isinf"}
_ANY_TYPE = {"abs", "absolute", "sign", "isnan", "isinf"}  # the others make the operator floating point
_TESTS = {"isnan", "isinf"}
_BINARY = {"maximum": "max", "minimum": "min", "power": "pow", "fmod": "fmod"}
_INFIX = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "true_divide": "/", "floor_divide": "//",
          "mod": "%", "remainder": "%"}
_COMPARE = {"greater": ">", "greater_equal": ">=", "less": "<", "less_equal": "<=", "equal": "==", "not_equal": "!=",
            "logical_and": "&&", "logical_or": "||"}
_REDUCE = {"sum": "sum", "prod": "prod", "max": "max", "amax": "max", "min": "min", "amin": "min", "mean": "sum"}
_CONSTANTS = {"pi": "3.141592653589793", "e": "2.718281828459045", "inf": "inf", "nan": "nan"}
_OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%"}
_COMPARATORS = {ast.Gt: ">", ast.GtE: ">=", ast.Lt: "<", ast.LtE: "<=", ast.Eq: "==", ast.NotEq: "!="}


@dataclass
class _Value:
    """at(index) is the text of the element at an index pack; shape is a pack expression, None for a number."""
    at: Callable[[str], str]
    shape: Optional[str] = None
    test: bool = False      # boolean
    name: Optional[str] = None   # an array of this name, read without computation


def python_pure_op_implementation(function=None, *, name=None):
    """Defines, or redefines, an ONNX operator by a numpy function.

    function: its parameters are the operator's inputs and outputs; an output is one that the body assigns with
        ``Y[:] = ...``; a parameter with a default value is an attribute.  The body consists of assignments of
        element-wise numpy expressions, reductions (sum, mean, prod, max, min with axis and keepdims), ``@``,
        ``np.where`` and ``.T``.
    name: the operator's name, by default the function's.
    Returns the function, with the text of the row in its attribute ``row``.
    Raises UnsupportedOpError for anything else, naming the line.

    >>> import numpy as np
    >>> @python_pure_op_implementation
    ... def Softplus(X, Y):
    ...     Y[:] = np.log(1 + np.exp(X))  # doctest: +SKIP
    """
    def define(f):
        f.row = row_of(f, name)
        _core.add_ops(f.row)
        return f
    return define if function is None else define(function)


def row_of(function, name=None):
    """The row of a numpy function, as text of the operator language."""
    lines, first = inspect.getsourcelines(function)
    tree = ast.parse(textwrap.dedent("".join(lines))).body[0]
    return _Translator(function, tree, name or function.__name__, first).row()


class _Translator:
    def __init__(self, function, tree, name, first_line):
        self.name, self.tree, self.first_line = name, tree, first_line
        self.file = inspect.getsourcefile(function) or "?"
        self.globals = function.__globals__
        self.where, self.statements = [], []
        self.values = {}       # Python name -> _Value
        self.tests = set()     # inputs used as conditions
        self.floating = False
        self.outputs = {}      # output name -> _Value of its declaration
        self.count = 0
        self._parameters()

    def error(self, node, message):
        line = self.first_line + getattr(node, "lineno", 1) - 1
        return _core.UnsupportedOpError(f"operator {self.name}: {message} ({self.file}:{line})")

    def fresh(self):
        self.count += 1
        return self.count

    # -- signature ------------------------------------------------------------------------------
    def _parameters(self):
        arguments = self.tree.args
        if arguments.vararg or arguments.kwarg:
            raise self.error(self.tree, "a variable number of parameters")
        named = [a.arg for a in arguments.args]
        defaults = dict(zip(named[len(named) - len(arguments.defaults):], arguments.defaults))
        defaults.update({a.arg: d for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults) if d is not None})
        self.attributes = {k: self._default(v) for k, v in defaults.items()}
        assigned = {self._subscript_name(t) for s in ast.walk(self.tree) if isinstance(s, ast.Assign)
                    for t in s.targets if isinstance(t, ast.Subscript)}
        tensors = [n for n in named if n not in self.attributes]
        self.inputs = [n for n in tensors if n not in assigned]
        self.declared = [n for n in tensors if n in assigned]
        if not self.declared:
            raise self.error(self.tree, "no output is assigned; write for example Y[:] = ...")
        for name in self.inputs:
            self.values[name] = _Value(lambda index, name=name: f"{name}[^{index}]", f"D_{name}", name=name)
        for name in self.attributes:
            self.values[name] = _Value(lambda index, name=name: name)

    def _default(self, node):
        try:
            value = ast.literal_eval(node)
        except ValueError:
            value = None
        if not isinstance(value, (int, float)):
            raise self.error(node, "an attribute's default must be a number")
        return repr(int(value) if isinstance(value, bool) else value)

    @staticmethod
    def _subscript_name(target):
        return target.value.id if isinstance(target.value, ast.Name) else None

    # -- statements -----------------------------------------------------------------------------
    def row(self):
        for statement in self.tree.body:
            self._statement(statement)
        missing = [n for n in self.declared if n not in self.outputs]
        if missing:
            raise self.error(self.tree, f"output {missing[0]} is not assigned on its own")
        kind = "float" if self.floating else "num"
        ins = ", ".join(f"{n}:{'bool' if n in self.tests else 'T'}[D_{n}..]" for n in self.inputs)
        attrs = "; " + ", ".join(f"{k}={v}" for k, v in self.attributes.items()) if self.attributes else ""
        outs = ", ".join(f"{n}:{'bool' if self.outputs[n].test else 'T'}[D_{n}..]" for n in self.declared)
        typed = any(n not in self.tests for n in self.inputs)
        return (f"{self.name}.{_versions(self.name)} ({ins}{attrs}) -> ({outs})"
                + (f" with T in {kind}" if typed else "")
                + (" where " + ", ".join(self.where) if self.where else "")
                + "\n : " + ";\n   ".join(self.statements) + "\n")

    def _statement(self, node):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return  # documentation
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            raise self.error(node, f"{type(node).__name__} statements; only assignments are understood")
        target = node.targets[0]
        if isinstance(target, ast.Name):
            value = self.expression(node.value)
            self.values[target.id] = value if value.shape is None or value.name else self._store(value)
            return
        if not isinstance(target, ast.Subscript) or self._subscript_name(target) not in self.declared:
            raise self.error(node, "an assignment to something that is neither an output nor a name")
        index = target.slice
        whole = isinstance(index, ast.Slice) and not (index.lower or index.upper or index.step)
        if not whole and not (isinstance(index, ast.Constant) and index.value is Ellipsis):
            raise self.error(node, "an assignment to a part of an output; write Y[:] = ...")
        self._output(self._subscript_name(target), self.expression(node.value), node)

    def _output(self, name, value, node):
        if name in self.outputs:
            raise self.error(node, f"a second assignment to output {name}")
        if value.shape is None:
            raise self.error(node, f"output {name} depends on no input")
        self.where.append(f"D_{name}..={value.shape}")
        self.statements.append(f"{name}[d_{name.lower()}..] = {value.at(f'd_{name.lower()}..')}")
        self.outputs[name] = value
        self.values[name] = _Value(lambda index: f"{name}[^{index}]", f"D_{name}", value.test, name)

    def _store(self, value):
        """The value as a local array."""
        if value.name:
            return value
        k = self.fresh()
        name = f"v{k}"
        self.where.append(f"D_{k}..={value.shape}")
        kind = ":bool" if value.test else ""
        self.statements.append(f"{name}{kind}[d_{k}..] = {value.at(f'd_{k}..')}")
        return _Value(lambda index: f"{name}[^{index}]", f"D_{k}", value.test, name)

    # -- expressions ----------------------------------------------------------------------------
    def expression(self, node):
        method = getattr(self, "_" + type(node).__name__.lower(), None)
        if method is None:
            raise self.error(node, f"{type(node).__name__} expressions")
        return method(node)

    def _name(self, node):
        if node.id in self.values:
            return self.values[node.id]
        if node.id in self.declared:
            raise self.error(node, f"output {node.id} is read before it is assigned")
        value = self.globals.get(node.id)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return _number(value)
        raise self.error(node, f"the name {node.id!r} is neither a parameter nor a number")

    def _constant(self, node):
        if isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
            return _number(node.value)
        raise self.error(node, f"the constant {node.value!r}")

    def _attribute(self, node):
        if node.attr in _CONSTANTS and self._is_module(node.value):
            return _Value(lambda index: _CONSTANTS[node.attr])
        if node.attr == "T":
            return self._transposed(self.expression(node.value))
        raise self.error(node, f"the attribute {node.attr!r}")

    def _binop(self, node):
        if isinstance(node.op, ast.MatMult):
            return self._product(self.expression(node.left), self.expression(node.right), node)
        left, right = self.expression(node.left), self.expression(node.right)
        if isinstance(node.op, ast.Pow):
            return self._combine("pow({}, {})", left, right)
        if isinstance(node.op, (ast.BitAnd, ast.BitOr)) and left.test and right.test:
            both = "({} && {})" if isinstance(node.op, ast.BitAnd) else "({} || {})"
            return self._combine(both, left, right, test=True)
        if type(node.op) not in _OPERATORS:
            raise self.error(node, f"the operator {type(node.op).__name__}")
        self.floating |= isinstance(node.op, ast.Div)
        return self._combine("({} " + _OPERATORS[type(node.op)] + " {})", left, right)

    def _unaryop(self, node):
        value = self.expression(node.operand)
        if isinstance(node.op, ast.USub):
            return self._combine("(-{})", value)
        if isinstance(node.op, (ast.Invert, ast.Not)) and value.test:
            return self._combine("(!{})", value, test=True)
        if isinstance(node.op, ast.UAdd):
            return value
        raise self.error(node, f"the operator {type(node.op).__name__}")

    def _compare(self, node):
        if len(node.ops) != 1 or type(node.ops[0]) not in _COMPARATORS:
            raise self.error(node, "a comparison of this form")
        left, right = self.expression(node.left), self.expression(node.comparators[0])
        return self._combine("({} " + _COMPARATORS[type(node.ops[0])] + " {})", left, right, test=True)

    def _ifexp(self, node):
        raise self.error(node, "a conditional expression; write np.where(condition, a, b)")

    def _call(self, node):
        if not isinstance(node.func, ast.Attribute):
            raise self.error(node, "a call of something that is not a numpy function")
        function = node.func.attr
        if self._is_module(node.func.value):
            arguments = node.args
        else:
            arguments = [node.func.value, *node.args]  # X.sum(1)
            if function not in _REDUCE and function not in ("dot", "transpose"):
                raise self.error(node, f"the method {function!r}")
        if function in _REDUCE:
            return self._reduce(function, arguments, node)
        if node.keywords:
            raise self.error(node, f"the keyword argument {node.keywords[0].arg!r}")
        return self._function(function, [self.expression(a) for a in arguments], node)

    def _function(self, function, values, node):
        self.floating |= function in _UNARY and function not in _ANY_TYPE
        if function in _UNARY and len(values) == 1:
            return self._combine(_UNARY[function] + "({})", *values, test=function in _TESTS)
        if function in _BINARY and len(values) == 2:
            return self._combine(_BINARY[function] + "({}, {})", *values)
        if function in _INFIX and len(values) == 2:
            self.floating |= function in ("divide", "true_divide")
            return self._combine("({} " + _INFIX[function] + " {})", *values)
        if function in _COMPARE and len(values) == 2:
            return self._combine("({} " + _COMPARE[function] + " {})", *values, test=True)
        if function == "where" and len(values) == 3:
            if values[0].name in self.inputs:
                self.tests.add(values[0].name)
            return self._combine("({} ? {} : {})", *values)
        simple = {"square": "({0} * {0})", "negative": "(-{})", "reciprocal": "(1 / {})", "logical_not": "(!{})",
                  "positive": "{}"}
        if function in simple and len(values) == 1:
            self.floating |= function == "reciprocal"
            return self._combine(simple[function], *values, test=function == "logical_not")
        if function == "clip" and len(values) == 3:
            return self._combine("min(max({}, {}), {})", *values)
        if function in ("matmul", "dot") and len(values) == 2:
            return self._product(*values, node)
        if function == "transpose" and len(values) == 1:
            return self._transposed(values[0])
        raise self.error(node, f"numpy.{function} with {len(values)} arguments")

    def _is_module(self, node):
        """numpy or math by whatever name the function knows it."""
        module = self.globals.get(node.id) if isinstance(node, ast.Name) else None
        return getattr(module, "__name__", None) in ("numpy", "math")

    # -- building blocks ------------------------------------------------------------------------
    def _combine(self, pattern, *values, test=False):
        shapes = list(dict.fromkeys(v.shape for v in values if v.shape is not None))
        shape = None if not shapes else shapes[0] if len(shapes) == 1 else f"bcast({', '.join(shapes)})"
        return _Value(lambda index: pattern.format(*(v.at(index) for v in values)), shape, test)

    def _reduce(self, function, arguments, node):
        value = self.expression(arguments[0])
        if value.shape is None:
            raise self.error(node, f"{function} of a number")
        options = {k.arg: k.value for k in node.keywords}
        if len(arguments) > 1:
            options["axis"] = arguments[1]
        axis = self._literal(options.pop("axis", None), node, None)
        keep = self._literal(options.pop("keepdims", None), node, False)
        if options or len(arguments) > 2:
            raise self.error(node, f"this use of {function}")
        axes = "none" if axis is None else str([axis] if isinstance(axis, int) else list(axis))
        value, k = self._store(value), self.fresh()
        self.floating |= function == "mean"
        self.where += [f"ax{k}=redax({axes}, 0, len({value.shape}))", f"K_{k}..=pick({value.shape}, ax{k})",
                       f"R_{k}..=drop({value.shape}, ax{k})"]
        total = f" / total(K_{k})" if function == "mean" else ""
        self.statements.append(f"v{k}[r_{k}..] = {_REDUCE[function]}[k_{k}..] "
                               f"{value.name}[weave(ax{k}, k_{k}.., r_{k}..)]{total}")
        if not keep:
            return _Value(lambda index: f"v{k}[^{index}]", f"R_{k}", name=f"v{k}")
        m = self.fresh()
        self.where.append(f"O_{m}..=weave(ax{k}, 1, R_{k})")
        self.statements.append(f"v{m}[o_{m}..] = v{k}[drop(o_{m}.., ax{k})]")
        return _Value(lambda index: f"v{m}[^{index}]", f"O_{m}", name=f"v{m}")

    def _literal(self, node, where, default):
        if node is None:
            return default
        try:
            return ast.literal_eval(node)
        except ValueError:
            raise self.error(where, "an axis or keepdims that is not a constant") from None

    def _product(self, left, right, node):
        if left.shape is None or right.shape is None:
            raise self.error(node, "a matrix product with a number")
        a, b, k = self._store(left), self._store(right), self.fresh()
        p, q = a.shape, b.shape
        self.where += [
            f"ra{k}=len({p})", f"rb{k}=len({q})",
            f"O_{k}..=bcast(sub({p}, 0, max(ra{k}-2, 0)), sub({q}, 0, max(rb{k}-2, 0)))",
            f"R_{k}.. = ra{k}>1 ? [at({p}, ra{k}-2)] : []", f"U_{k}.. = rb{k}>1 ? [at({q}, rb{k}-1)] : []",
            f"K_{k}=same(at({p}, ra{k}-1), at({q}, max(rb{k}-2, 0)))"]
        self.statements.append(f"v{k}[o_{k}..,r_{k}..,u_{k}..] = sum[k_{k}] {a.name}[^o_{k}..,r_{k}..,k_{k}]"
                               f" * {b.name}[^o_{k}..,k_{k},u_{k}..]")
        return _Value(lambda index: f"v{k}[^{index}]", f"cat(O_{k}, R_{k}, U_{k})", name=f"v{k}")

    def _transposed(self, value):
        if value.shape is None:
            return value
        value, k = self._store(value), self.fresh()
        self.where.append(f"T_{k}..=rev({value.shape})")
        self.statements.append(f"v{k}[t_{k}..] = {value.name}[rev(t_{k}..)]")
        return _Value(lambda index: f"v{k}[^{index}]", f"T_{k}", name=f"v{k}")


def _number(value):
    text = repr(float(value)) if isinstance(value, float) else repr(value)
    return _Value(lambda index: text if not text.startswith("-") else f"({text})")


def _versions(name):
    """All versions of a standard operator, so that the row serves models of every opset; 1 for a new operator."""
    try:
        from onnx import defs
    except ImportError:
        return "1"
    versions = sorted({s.since_version for s in defs.get_all_schemas_with_history()
                       if s.name == name and s.domain == ""})
    return ",".join(map(str, versions)) or "1"

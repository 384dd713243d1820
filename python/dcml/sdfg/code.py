"""Code of tasklets: from Python's statements to the core's, ``name = expression if guard``.

The one idea: the statements are run on texts.  A name stands for the text of its value and the condition under which it
has one; where branches of an ``if`` meet, a value is a choice between two.  Nothing is said about types: connectors have
none yet, the core knows them when it builds the state.
Must not know: graphs.
"""
import ast
import dataclasses
import functools
import math
import textwrap

from .. import _core, dtypes

_UNROLLED = 256   # statements of loops that are written out
_LENGTH = 100000  # of code

# a quotient of integers is a fraction, as in Python: times 1.0 changes no real number, and makes an integer real
_BINARY = {ast.Add: "({0} + {1})", ast.Sub: "({0} - {1})", ast.Mult: "({0} * {1})", ast.Div: "({0} * 1.0 / {1})",
           ast.FloorDiv: "({0} // {1})", ast.Mod: "({0} % {1})"}
_CALLED = {ast.Pow: "pow", ast.BitAnd: "band", ast.BitOr: "bor", ast.BitXor: "bxor", ast.LShift: "shl", ast.RShift: "shr"}
_COMPARED = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
_MODULES = {"math", "np", "numpy", "dace", "dcml", "cmath", "torch"}
_CONSTANTS = {"pi": repr(math.pi), "e": repr(math.e), "inf": "inf", "nan": "nan", "tau": repr(math.tau)}
_ALIASES = {"fabs": "abs", "absolute": "abs", "power": "pow", "maximum": "max", "minimum": "min", "Max": "max", "Min": "min",
            "fmax": "max", "fmin": "min", "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arcsinh": "asinh",
            "arccosh": "acosh", "arctanh": "atanh", "rint": "round", "conjugate": "conj",
            "logical_not": "not", "invert": "bnot", "Abs": "abs",
            "bitwise_and": "band", "bitwise_or": "bor", "bitwise_xor": "bxor", "left_shift": "shl", "right_shift": "shr"}
_WRITTEN = {  # functions that are expressions of others
    "where": "({0} ? {1} : {2})", "select": "({0} ? {1} : {2})", "ITE": "({0} ? {1} : {2})", "reciprocal": "(1.0 / {0})",
    "int_floor": "({0} // {1})", "int_ceil": "(({0} + {1} - 1) // {1})", "mod": "({0} % {1})", "square": "({0} * {0})",
    "logical_and": "({0} && {1})", "logical_or": "({0} || {1})", "add": "({0} + {1})", "subtract": "({0} - {1})",
    "multiply": "({0} * {1})", "divide": _BINARY[ast.Div], "negative": "(-{0})"}
_TRUTHS = {"isnan", "isinf", "signbit", "not", "bool", "logical_and", "logical_or"}
_CONDITIONS = {"where", "select", "ITE"}  # the first argument is a condition
_CASTS = {"int": "i64", "float": "f64", "bool": "bool"}


@dataclasses.dataclass(frozen=True)
class Code:
    """What code became: ``statements`` of the core, and the names that it takes from around the tasklet."""
    statements: str
    free: frozenset


def translate(what, code, inputs, outputs):
    """The Code of Python text.

    what: the tasklet in messages; inputs, outputs: names of connectors, read and assigned as variables or, where they
    are arrays, with indices.
    Raises ValueError_ with the line of the code for what is no assignment, ``if``/``else``, ``pass`` or ``for`` over a
    constant ``range``; for a name that is read before it has a value, and for an output that never gets one.
    """
    if not isinstance(code, str):
        raise _core.ValueError_(f"{what}: expected its code as a text, got {type(code).__name__}")
    if len(code) > _LENGTH:
        raise _core.ValueError_(f"{what}: its code has more than {_LENGTH} characters")
    text = textwrap.dedent(code).strip()
    try:
        body = ast.parse(text).body
        return _Run(what, text, inputs, outputs).code(body)
    except _core.Error:
        raise
    except SyntaxError as error:
        line = text.splitlines()[error.lineno - 1] if 0 < (error.lineno or 0) <= text.count("\n") + 1 else ""
        raise _core.ValueError_(f"{what}, line {error.lineno}: {line.strip()[:100]!r}: {error.msg}") from None
    except (RecursionError, MemoryError, ValueError):
        raise _core.ValueError_(f"{what}: its code is nested too deeply, or no text") from None


@functools.cache
def _primitives():
    """{name: number of arguments} of the functions that the core computes with."""
    return {name: arity for name, arity in _core.primitives().items() if name.isidentifier()}


@functools.cache
def _types():
    """{name: the core's name} of element types, as functions that convert."""
    return {**{name: _core.type_names()[int(dtypes.of(name))] for name in dtypes.NAMES if name != "string"}, **_CASTS}


@dataclasses.dataclass(frozen=True)
class _Value:
    """text: of the value; guard: of the condition under which there is one, None for always; truth: it is a bool."""
    text: str
    guard: str = None
    truth: bool = False


class _Run:
    def __init__(self, what, source, inputs, outputs):
        self.what, self.lines = what, source.splitlines()
        self.inputs, self.outputs = frozenset(inputs), tuple(outputs)
        self.statements, self.written, self.free, self.used = [], set(), set(), set()
        self.values = {}       # name -> _Value
        self.guards = []       # conditions of the branches that are being run
        self.unrolled, self.line = 0, 1

    def code(self, body):
        self.block(body)
        for name in self.outputs:
            value = self.values.get(name)
            if value is not None:
                self.statements.append(f"{name} = {value.text}" + (f" if {value.guard}" if value.guard else ""))
            elif name not in self.written:
                raise _core.ValueError_(f"{self.what}: output {name!r} is never assigned")
        return Code("\n".join(self.statements), frozenset(self.free))

    def fail(self, expected, node=None):
        line = getattr(node, "lineno", self.line)
        text = self.lines[line - 1].strip()[:100] if line <= len(self.lines) else ""
        return _core.ValueError_(f"{self.what}, line {line}: {text!r}: {expected}")

    def fresh(self, name):
        """A name for a part of the code that nothing else has."""
        k, taken = 1, self.inputs | set(self.outputs) | self.used
        while f"{name}_{k}" in taken:
            k += 1
        self.used.add(f"{name}_{k}")
        return f"{name}_{k}"

    def named(self, text, name):
        """The text of a value that may be used more than once: a name or a number, set in a statement if need be."""
        if text.isidentifier() or text.replace(".", "").isdecimal():
            return text
        name = self.fresh(name)
        self.statements.append(f"{name} = {text}")
        return name

    # -- statements -----------------------------------------------------------------------------
    def block(self, body):
        for node in body:
            self.line = node.lineno
            self.statement(node)

    def statement(self, node):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self.assign(target, node.value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self.assign(node.target, node.value)
        elif isinstance(node, ast.AugAssign):
            read = ast.Name(node.target.id, ast.Load(), lineno=node.lineno) if isinstance(node.target, ast.Name) else None
            if read is None:
                raise self.fail("expected a name before the operator; combine into an array by the memlet's wcr", node)
            self.assign(node.target, ast.BinOp(read, node.op, node.value, lineno=node.lineno))
        elif isinstance(node, ast.If):
            self.branch(node)
        elif isinstance(node, ast.For):
            self.loop(node)
        elif not (isinstance(node, ast.Pass) or isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            raise self.fail("expected assignments, if, else, and for over a constant range", node)

    def assign(self, target, value):
        if isinstance(target, (ast.Tuple, ast.List)):
            if not isinstance(value, (ast.Tuple, ast.List)) or len(value.elts) != len(target.elts):
                raise self.fail("expected as many values as names", target)
            values = [self.expression(v) for v in value.elts]
            for part, text in zip(target.elts, values):
                self.store(part, text)
        else:
            self.store(target, self.expression(value))

    def store(self, target, value):
        if isinstance(target, ast.Name):
            if target.id in self.inputs:
                raise self.fail(f"{target.id!r} is an input: expected another name", target)
            self.values[target.id] = value
            return
        name = target.value.id if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name) else None
        if name not in self.outputs:
            raise self.fail("expected a name or an output connector with indices", target)
        self.written.add(name)
        guard = " && ".join(self.guards)
        self.statements.append(f"{name}[{self.indices(target)}] = {value.text}" + (f" if {guard}" if guard else ""))

    def branch(self, node):
        condition = self.named(self.condition(node.test), "holds")
        base = dict(self.values)
        ends = []
        for body, guard in ((node.body, condition), (node.orelse, f"not({condition})")):
            self.values = dict(base)
            self.guards.append(guard)
            self.block(body)
            self.guards.pop()
            ends.append(self.values)
        yes, no = ends
        self.values = {name: _joined(condition, yes.get(name), no.get(name)) for name in {**yes, **no}}

    def loop(self, node):
        call = node.iter
        is_range = isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "range"
        try:
            bounds = [ast.literal_eval(arg) for arg in call.args] if is_range and not call.keywords else None
            values = range(*bounds)
        except (TypeError, ValueError):
            values = None
        if values is None or not isinstance(node.target, ast.Name) or node.orelse:
            raise self.fail("expected a loop over a range of constants; a longer one is a map", node)
        for value in values:
            self.unrolled += len(node.body)
            if self.unrolled > _UNROLLED:
                raise self.fail(f"a loop of more than {_UNROLLED} statements: expected a map", node)
            self.values[node.target.id] = _Value(str(value))
            self.block(node.body)

    # -- expressions ----------------------------------------------------------------------------
    def text(self, node):
        return self.expression(node).text

    def condition(self, node):
        value = self.expression(node)
        return value.text if value.truth else f"bool({value.text})"

    def expression(self, node):
        method = getattr(self, "at_" + type(node).__name__, None)
        if method is None:
            raise self.fail(f"expected an expression of numbers, names, operators and functions, not {ast.unparse(node)!r}", node)
        return method(node)

    def at_Constant(self, node):
        value = node.value
        if isinstance(value, bool):
            return _Value("true" if value else "false", truth=True)
        if isinstance(value, int) and value < 2**63:
            return _Value(str(value))
        if isinstance(value, float):
            return _Value("inf" if value == math.inf else repr(value))
        if isinstance(value, complex) and math.isfinite(value.imag):  # a literal has no real part
            return _Value(f"complex(0.0, {value.imag!r})")
        raise self.fail(f"{value!r} is no number that an element can have", node)

    def at_Name(self, node):
        name = node.id
        value = self.values.get(name)
        if value is not None:
            if value.guard is not None:
                raise self.fail(f"{name!r} has no value in a branch of the if before: expected one in each", node)
            if not value.text.isidentifier():
                value = self.values[name] = dataclasses.replace(value, text=self.named(value.text, name))
            return value
        if name in self.inputs:
            return _Value(f"{name}[]")
        if name in self.outputs:
            raise self.fail(f"output {name!r} is read before it is assigned", node)
        if name in ("inf", "nan"):
            return _Value(name)
        self.free.add(name)
        return _Value(name)

    def at_Attribute(self, node):
        if isinstance(node.value, ast.Name) and node.value.id in _MODULES and node.attr in _CONSTANTS:
            return _Value(_CONSTANTS[node.attr])
        if node.attr in ("real", "imag") and not self.is_module(node.value):
            return _Value(f"{node.attr}({self.text(node.value)})")
        raise self.fail(f"{ast.unparse(node)!r} is no constant", node)

    def at_Subscript(self, node):
        name = getattr(node.value, "id", None)
        if name not in self.inputs:
            raise self.fail(f"{ast.unparse(node.value)!r} is no input: expected indices after one", node)
        return _Value(f"{name}[{self.indices(node)}]")

    def indices(self, node):
        items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if any(isinstance(item, ast.Slice) for item in items):
            raise self.fail("expected an index in each dimension", node)
        return ", ".join(self.text(item) for item in items)

    def at_UnaryOp(self, node):
        if isinstance(node.op, ast.Not):
            return _Value(f"not({self.condition(node.operand)})", truth=True)
        text = self.text(node.operand)
        if isinstance(node.op, ast.UAdd):
            return _Value(text)
        return _Value(f"(-{text})" if isinstance(node.op, ast.USub) else f"bnot({text})")

    def at_BinOp(self, node):
        a, b = self.text(node.left), self.text(node.right)
        if type(node.op) in _BINARY:
            return _Value(_BINARY[type(node.op)].format(a, b))
        if type(node.op) in _CALLED:
            return _Value(f"{_CALLED[type(node.op)]}({a}, {b})")
        raise self.fail("expected + - * / // % ** & | ^ << >>", node)

    def at_BoolOp(self, node):
        sign = " && " if isinstance(node.op, ast.And) else " || "
        return _Value("(" + sign.join(self.condition(v) for v in node.values) + ")", truth=True)

    def at_Compare(self, node):
        if any(type(op) not in _COMPARED for op in node.ops):
            raise self.fail("expected < <= > >= == !=", node)
        sides = [self.text(side) for side in [node.left, *node.comparators]]
        pairs = [f"({a} {_COMPARED[type(op)]} {b})" for a, op, b in zip(sides, node.ops, sides[1:])]
        return _Value(pairs[0] if len(pairs) == 1 else f"({' && '.join(pairs)})", truth=True)

    def at_IfExp(self, node):
        return self.choice(self.condition(node.test), self.expression(node.body), self.expression(node.orelse))

    @staticmethod
    def choice(condition, yes, no):
        return _Value(f"({condition} ? {yes.text} : {no.text})", truth=yes.truth and no.truth)

    def is_module(self, node):
        return isinstance(node, ast.Name) and node.id in _MODULES and node.id not in self.inputs and node.id not in self.values

    def at_Call(self, node):
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("conj", "conjugate") and not node.args \
                and not self.is_module(node.func.value):
            return _Value(f"conj({self.text(node.func.value)})")
        name = self.function(node.func)
        if node.keywords or any(isinstance(arg, ast.Starred) for arg in node.args):
            raise self.fail(f"{name}: expected arguments without names", node)
        args = [self.condition(arg) if k == 0 and name in _CONDITIONS else self.text(arg) for k, arg in enumerate(node.args)]
        truth = name in _TRUTHS
        if name in _types():
            self.count(node, name, len(args) == 1, "one argument")
            return _Value(f"{_types()[name]}({args[0]})", truth=truth)
        if name in _WRITTEN:
            needed = 1 + max(k for k in range(3) if f"{{{k}}}" in _WRITTEN[name])
            self.count(node, name, len(args) == needed, f"{needed} arguments")
            return _Value(_WRITTEN[name].format(*args), truth=truth)
        arity = _primitives().get(name, 1 if name == "not" else None)
        if arity is None:
            raise self.fail(f"there is no function {ast.unparse(node.func)!r}; there are {', '.join(sorted(_primitives()))}", node)
        self.count(node, name, len(args) == arity or name in ("min", "max") and len(args) > 2, f"{arity} arguments")
        return _Value(f"{name}({', '.join(args)})", truth=truth)

    def function(self, node):
        """The name of what is called: ``sqrt``, ``math.sqrt``, ``dace.math.sqrt``."""
        if isinstance(node, ast.Attribute):
            root = node.value
            while isinstance(root, ast.Attribute):
                root = root.value
            if isinstance(root, ast.Name) and root.id in _MODULES:
                return _ALIASES.get(node.attr, node.attr)
        if isinstance(node, ast.Name):
            return _ALIASES.get(node.id, node.id)
        raise self.fail(f"{ast.unparse(node)!r} is no function of math, numpy or dcml", node)

    def count(self, node, name, fits, wanted):
        if not fits:
            raise self.fail(f"{name}: expected {wanted}, got {len(node.args)}", node)


def _joined(condition, yes, no):
    """The value of a name after an ``if`` from those at the ends of its branches; None: it has none there."""
    if yes == no:
        return yes
    if yes is None:
        return dataclasses.replace(no, guard=_both(f"not({condition})", no.guard))
    if no is None:
        return dataclasses.replace(yes, guard=_both(condition, yes.guard))
    guard = None
    if yes.guard or no.guard:
        guard = f"({_both(condition, yes.guard)} || {_both(f'not({condition})', no.guard)})"
    return _Value(f"({condition} ? {yes.text} : {no.text})", guard, yes.truth and no.truth)


def _both(a, b):
    return a if b is None else f"({a} && {b})"

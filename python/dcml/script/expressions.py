"""Expressions of a script as values of a graph.

The one idea: what reads none of the script's own names is Python's to evaluate, and becomes a constant; all else is a
node for each operator.
Must not know: statements.
"""
import ast

from . import constants
from .calls import apply_operator, call
from .context import NOTHING, Body, Value
from .operators import Operator
from .parameters import Attribute
from .source import names_read
from .subscripts import subscript

_BINARY = {ast.Add: "Add", ast.Sub: "Sub", ast.Mult: "Mul", ast.Div: "Div", ast.Pow: "Pow", ast.Mod: "Mod", ast.MatMult: "MatMul",
           ast.BitAnd: "And", ast.BitOr: "Or"}
_COMPARE = {ast.Eq: "Equal", ast.NotEq: "Equal", ast.Lt: "Less", ast.LtE: "LessOrEqual", ast.Gt: "Greater", ast.GtE: "GreaterOrEqual"}
_INSTEAD = {ast.FloorDiv: "op.Floor(a / b)", ast.BitXor: "op.Xor", ast.Invert: "op.Not or op.BitwiseNot", ast.LShift: "op.BitShift",
            ast.RShift: "op.BitShift", ast.In: "op.Equal", ast.Is: "==", ast.IsNot: "!="}


def static(c, node):
    """The Python value of an expression that reads none of the script's own names, and calls no operator; else NOTHING."""
    names = names_read(node) - {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    if names & c.function.own or any(_calls_operator(c, n) for n in ast.walk(node) if isinstance(n, ast.Call)):
        return NOTHING
    return evaluate(c, node)


def evaluate(c, node, names=None):
    """The value of a Python expression; an error of the script if it fails."""
    try:
        return c.function.source.evaluate(node, names)
    except NameError as error:
        name = getattr(error, "name", None) or str(error).split("'")[1]
        raise c.function.fail(f"Unbound name: {name}", node) from None
    except Exception as error:  # whatever the user's expression raises
        raise c.function.fail(f"{ast.unparse(node)} cannot be evaluated: {type(error).__name__}: {error}", node) from error


def _calls_operator(c, node):
    root = node.func
    while isinstance(root, (ast.Attribute, ast.Subscript)):
        root = root.value
    if not isinstance(root, ast.Name):
        return False
    try:
        found = c.function.source.lookup(root.id)
    except KeyError:
        return False
    if isinstance(node.func, ast.Attribute):
        try:
            found = c.function.source.evaluate(node.func.value)
        except Exception:  # it is evaluated again, and then told
            return False
        return type(found).__name__ == "Opset" or hasattr(getattr(found, node.func.attr, None), "to_function_proto")
    return hasattr(found, "operator") or hasattr(found, "to_function_proto")


# -- values ---------------------------------------------------------------------------------------------
def value_of(c, node, hint="tmp"):
    """The Value of an expression; an error for None."""
    value = value_or_none(c, node, hint)
    if value is None:
        raise c.function.fail("None stands for an input that is left out; it is no value", node)
    return value


def value_or_none(c, node, hint="tmp", taken=None):
    """The Value of an expression, None for None.  taken: the operator's input that it is for."""
    before, c.function.place = c.function.place, node
    value = _value(c, node, hint, taken)
    c.function.place = before
    return value


def _value(c, node, hint, taken):
    if isinstance(node, ast.Name) and node.id in c.function.own:
        return as_value(c, c.env.get(node.id, NOTHING), node.id)
    if isinstance(node, (ast.List, ast.Tuple)) and taken is not None and taken.sequences and not taken.tensors:
        return _sequence(c, node, hint)
    python = static(c, node)
    if python is not NOTHING:
        return _of_python(c, python, node, hint, taken)
    translate = _EXPRESSIONS.get(type(node))
    if translate is None:
        instead = "op.Shape, op.Size or another operator" if isinstance(node, ast.Attribute) else "operators of an opset"
        raise c.function.fail(f"{type(node).__name__} is no expression of scripts: write {instead}", node)
    return translate(c, node, hint)


def _of_python(c, value, node, hint, taken):
    if value is None:
        return None
    if not constants.is_constant(value):
        message = f"{ast.unparse(node)} is a {type(value).__name__}, no value of a graph: numbers, arrays and TensorProtos are"
        raise c.function.fail(message, node)
    dtype = None
    if taken is not None and taken.only and (constants.is_number(value) or constants.is_numbers(value)):
        from ..onnx.host.values import dtype_of
        dtype = dtype_of(taken.only)
    return c.constant(value, hint if hint != "tmp" else "const", dtype)


def as_value(c, binding, name):
    """The Value of what a name is bound to."""
    if isinstance(binding, Value) or binding is None:
        return binding
    if isinstance(binding, Attribute):
        return _of_attribute(c, binding)
    if isinstance(binding, Body):
        raise c.function.fail(f"{name!r} is a function, not a value; give it to an operator as its body")
    raise c.function.fail(f"{name!r} has no value here: it is not set on every way to this line")


def _of_attribute(c, attribute):
    """A parameter that is an attribute, as a constant."""
    from onnx import AttributeProto
    field = {"INT": "value_int", "FLOAT": "value_float", "STRING": "value_string", "INTS": "value_ints", "FLOATS": "value_floats",
             "STRINGS": "value_strings"}[attribute.kind]
    proto = AttributeProto(name=field, ref_attr_name=attribute.name, type=getattr(AttributeProto, attribute.kind))
    value, = c.emit("Constant", [], [attribute.name], [proto])
    value.code = {"INT": 7, "FLOAT": 1, "INTS": 7, "FLOATS": 1}.get(attribute.kind)
    if attribute.is_bool:
        value, = c.emit("Cast", [value], [attribute.name + "_as_bool"], [constants.attribute_proto("to", "INT", 9)])
        value.code = 9
    value.castable = True
    return value


def _sequence(c, node, hint="tmp"):
    items = [value_of(c, item) for item in node.elts]
    return c.emit("SequenceConstruct", items, [hint])[0] if items else c.emit("SequenceEmpty", [], [hint])[0]


# -- operators of Python ----------------------------------------------------------------------------------
def _implicit(c, op, given, hint, attributes=()):
    """An operator that Python writes with a sign."""
    opset = c.function.operators
    operator = Operator(opset, op, opset.schema(op))
    inputs = [(operator.inputs[k] if operator.inputs else None, value) for k, value in enumerate(given)]
    return apply_operator(c, operator, inputs, [hint], attributes)[0]


def _known(c, op, node):
    name = _BINARY.get(type(op)) or _COMPARE.get(type(op))
    if name is None:
        instead = _INSTEAD.get(type(op), "an operator of an opset")
        raise c.function.fail(f"{type(op).__name__} is no operator of scripts: write {instead}", node)
    return name


def _binary(c, node, hint):
    op = _known(c, node.op, node)
    left, right = value_of(c, node.left), value_of(c, node.right)
    floats = op == "Mod" and any(value.code in (1, 10, 11, 16) for value in (left, right))
    return _implicit(c, op, [left, right], hint, [constants.attribute_proto("fmod", "INT", 1)] if floats else ())


def _unary(c, node, hint):
    if isinstance(node.op, ast.UAdd):
        return value_of(c, node.operand, hint)
    if not isinstance(node.op, (ast.USub, ast.Not)):
        _known(c, node.op, node)
    return _implicit(c, "Neg" if isinstance(node.op, ast.USub) else "Not", [value_of(c, node.operand)], hint)


def _compare(c, node, hint):
    left, result = node.left, None
    for op, right in zip(node.ops, node.comparators):
        this = _comparison(c, node, left, op, right, hint if len(node.ops) == 1 else "tmp")
        result = this if result is None else _implicit(c, "And", [result, this], hint)
        left = right
    return result


def _comparison(c, node, left, op, right, hint):
    absent = [isinstance(side, ast.Constant) and side.value is None for side in (left, right)]
    if any(absent) and isinstance(op, (ast.Is, ast.IsNot, ast.Eq, ast.NotEq)):
        there, = c.emit("OptionalHasElement", [value_of(c, right if absent[0] else left)])
        return there if isinstance(op, (ast.IsNot, ast.NotEq)) else c.emit("Not", [there], [hint])[0]
    name = _known(c, op, node)
    given = [value_of(c, left), value_of(c, right)]
    if isinstance(op, ast.NotEq):
        return _implicit(c, "Not", [_implicit(c, name, given, "tmp")], hint)
    result = _implicit(c, name, given, hint)
    result.code = 9
    return result


def _bool_op(c, node, hint):
    op, values = "And" if isinstance(node.op, ast.And) else "Or", [value_of(c, v) for v in node.values]
    result = values[0]
    for k, value in enumerate(values[1:], 2):
        result = _implicit(c, op, [result, value], hint if k == len(values) else "tmp")
    return result


def _if_else(c, node, hint):
    kept = static(c, node.test)
    if kept is not NOTHING:
        return value_of(c, node.body if kept else node.orelse, hint)
    from .statements import write_if
    return write_if(c, value_of(c, node.test), lambda inner, part: [value_of(inner, node.body if part else node.orelse, hint)], [hint])[0]


def _call(c, node, hint):
    return call(c, node, [hint])[0]


_EXPRESSIONS = {ast.BinOp: _binary, ast.UnaryOp: _unary, ast.Compare: _compare, ast.BoolOp: _bool_op, ast.IfExp: _if_else, ast.Call: _call,
                ast.Subscript: subscript, ast.List: _sequence, ast.Tuple: _sequence}

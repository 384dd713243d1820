"""Calls in a script: of operators, and of other scripts.

The one idea: arguments are bound by the callee's signature; a number beside a value takes its type.
Must not know: Python's other expressions.
"""
import ast
import warnings

from . import constants
from .context import NOTHING, Body, Value
from .parameters import Attribute
from .source import ScriptTypeError, names_read
from .values import OnnxFunction, Opset


def call(c, node, hints):
    """The Values that a call gives.  hints: a name for each that is wanted; None: those that are never left out."""
    for argument in [*node.args, *(k for k in node.keywords if k.arg is None)]:
        if isinstance(argument, (ast.Starred, ast.keyword)):
            raise c.function.fail("a call in a script has each argument by itself, without * and **", argument)
    callee = _callee(c, node.func)
    named = {k.arg: k.value for k in node.keywords}
    try:
        if isinstance(callee, OnnxFunction):
            return _call_script(c, callee, node.args, named, hints)
        given, attributes = callee.bind(node.args, named)
    except TypeError as error:
        raise error if isinstance(error, ScriptTypeError) else c.function.fail(str(error), node, ScriptTypeError) from None
    return _call_operator(c, callee, given, attributes, hints)


def _callee(c, node):
    """The Operator or OnnxFunction that a call names."""
    from .expressions import evaluate
    if names_read(node) & c.function.own:
        raise c.function.fail(f"{ast.unparse(node)} is a value of the script; operators of an opset and scripts can be called", node)
    if isinstance(node, ast.Attribute) and isinstance(home := evaluate(c, node.value), Opset):
        found = _member(home, node.attr)
    else:
        found = evaluate(c, node)
    found = getattr(found, "operator", found)
    if isinstance(found, OnnxFunction) or hasattr(found, "bind") and hasattr(found, "opset"):
        return found
    what = "a plain Python function: put @script() above it" if type(found).__name__ == "function" else f"a {type(found).__name__}"
    raise c.function.fail(f"{ast.unparse(node)} is {what}; operators of an opset and scripts can be called", node, ScriptTypeError)


def _member(opset, name):
    """An opset's member; a name that it does not have is an operator nonetheless, with a warning: models may hold it."""
    from .operators import Operator
    if name in opset.functions:
        return opset.functions[name]
    try:
        return getattr(opset, name)
    except AttributeError:
        warnings.warn(f"{opset!r} has no operator {name!r}: the node has the arguments as they are written", stacklevel=2)
        return Operator(opset, name)


# -- operators ------------------------------------------------------------------------------------------
def _call_operator(c, operator, given, attributes, hints):
    from .expressions import value_or_none
    before = c.function.place
    inputs = [(taken, None if node is None else value_or_none(c, node, taken=taken)) for taken, node in given]
    protos = []
    for name, node in attributes.items():
        c.function.place = node
        kind = operator.attributes[name][0] if operator.schema else None
        proto = _attribute(c, name, kind, node)
        if proto is None and operator.schema and operator.attributes[name][2]:
            raise c.function.fail(f"{operator.name}(): attribute {name!r} must be given, not None", node, ScriptTypeError)
        protos += [proto] if proto is not None else []
    c.function.place = before
    if hints is None:
        hints = ["tmp"] if operator.required == 1 else [f"tmp{k}" for k in range(operator.required)]
    if operator.most is not None and operator.schema and len(hints) > operator.most:
        raise c.function.fail(f"{operator.name}() has {operator.most} outputs, {len(hints)} are wanted")
    return apply_operator(c, operator, inputs, hints, protos)


def apply_operator(c, operator, inputs, hints, attributes=()):
    """A node of an operator; inputs: [(Input, Value or None)], where numbers get the type of the value that shares it."""
    models = {}
    for taken, value in inputs:
        if value is not None and taken is not None and taken.type and not value.castable:
            models.setdefault(taken.type, value)
    given = [c.cast_like(value, models[taken.type]) if value is not None and value.castable and taken is not None and taken.type in models
             else value for taken, value in inputs]
    return c.emit(operator.name, given, hints, attributes, operator.opset)


def _attribute(c, name, kind, node):
    """The AttributeProto of an argument; None if it is None.  kind: ONNX's, or None where nothing declares it."""
    from onnx import AttributeProto
    from .expressions import evaluate
    bound = c.env.get(node.id, NOTHING) if isinstance(node, ast.Name) and node.id in c.function.own else None
    if isinstance(bound, Attribute):
        wanted = kind or bound.kind
        if wanted != bound.kind:
            message = f"attribute {name!r} is of kind {wanted}, the parameter {bound.name!r} of {bound.kind}"
            raise c.function.fail(message, node, ScriptTypeError)
        return AttributeProto(name=name, ref_attr_name=bound.name, type=getattr(AttributeProto, wanted))
    if isinstance(bound, Body):
        from .statements import graph_of
        return constants.attribute_proto(name, "GRAPH", graph_of(c, bound))
    known = {}
    for label in names_read(node) & c.function.own:
        binding = c.env.get(label)
        if isinstance(binding, Value) and binding.constant is not NOTHING:
            known[label] = binding.constant
        elif label in c.env or not _is_comprehensions(node, label):
            raise c.function.fail(f"attribute {name!r} must be known when the script is translated, but {label!r} is computed: "
                                  "write a constant, or a parameter annotated int, float, str or Sequence of these", node)
    value = evaluate(c, node, known)
    if value is None:
        return None
    try:
        kind = kind or constants.kind_of(value)
        if kind == "GRAPH" and not constants.is_proto(value, "GraphProto"):
            raise TypeError(f"attribute {name!r} is a function within the script under @graph(), not {type(value).__name__}")
        return constants.attribute_proto(name, kind, constants.attribute_value(name, kind, value))
    except (TypeError, ValueError) as error:
        raise c.function.fail(str(error), node, ScriptTypeError) from None


def _is_comprehensions(node, label):
    return any(isinstance(n, ast.Name) and n.id == label and isinstance(n.ctx, ast.Store) for n in ast.walk(node))


# -- scripts --------------------------------------------------------------------------------------------
def _call_script(c, script, positional, named, hints):
    from .expressions import value_or_none
    from .parameters import bind
    inputs, protos = [], []
    for parameter, node in bind(script.name, script._parameters, positional, named):
        if parameter.kind is not None:
            if node is not None:
                proto = _attribute(c, parameter.name, parameter.kind, node)
                protos += [proto] if proto is not None else []
            elif parameter.is_required:
                raise TypeError(f"{script.name}() is missing attribute {parameter.name!r}")
        elif node is not None:
            inputs.append((None, value_or_none(c, node)))
        elif parameter.is_required:
            raise TypeError(f"{script.name}() is missing input {parameter.name!r}")
        else:
            inputs.append((None, None if parameter.default is None else c.constant(parameter.default, parameter.name)))
    outputs = script.translation.proto.output
    if hints is None:
        hints = ["tmp"] if len(outputs) == 1 else [f"tmp{k}" for k in range(len(outputs))]
    if len(hints) > len(outputs):
        raise c.function.fail(f"{script.name}() gives {len(outputs)} values, {len(hints)} are wanted")
    known = c.function.called.setdefault((script.opset.domain, script.name), script)
    if known is not script:
        raise c.function.fail(f"two scripts are called {script.name!r} in opset {script.opset.domain!r}; give one another name, or opset")
    return c.emit(script.name, [value for _, value in inputs], hints, protos, script.opset)

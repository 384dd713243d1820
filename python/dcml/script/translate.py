"""From a script's text to an ONNX function.

The one idea: one pass over the tree; what this file has is the frame: parameters, opsets, the FunctionProto.
Must not know: statements or expressions.
"""
import ast

from . import constants
from .context import Context, Function
from .parameters import Attribute, annotation_of
from .source import TranslationError
from .statements import block, results
from .values import OnnxFunction, Opset


class Translation:
    """proto: the FunctionProto; called: the scripts that it calls; input_types, output_types: lists of types or None;
    value_infos: {name: type}; error: what to raise when someone asks for the model, or None."""

    def __init__(self, proto, called, input_types, output_types, value_infos, error):
        self.proto, self.called, self.input_types, self.output_types = proto, called, input_types, output_types
        self.value_infos, self.error = value_infos, error


def translate(source, parameters, home, default_opset):
    """The Translation of a script.  Raises TranslationError."""
    function = Function(source, _own_names(source.tree), default_opset, _scan(source))
    context = Context(function)
    for p in parameters.values():
        if p.kind is None:
            context.env[p.name] = context.take(p.name, p.type)
        else:
            function.fresh(p.name)
            context.env[p.name] = Attribute(p.name, p.kind, p.is_bool)
    outputs = results(context, block(context, source.tree.body, set(), returns=True), "return_val")
    proto = _function_proto(source, home, function, context, parameters, outputs)
    given = _returned(source, source.tree.returns, len(outputs))
    types = [p.type for p in parameters.values() if p.kind is None]
    return Translation(proto, list(function.called.values()), types, given, function.value_infos, function.error)


def _own_names(tree):
    """Names that the script or a function in it assigns."""
    nodes = list(ast.walk(tree))
    inner = {n.name for n in nodes if isinstance(n, ast.FunctionDef) and n is not tree}
    comprehended = {m.id for n in nodes if isinstance(n, ast.comprehension) for m in ast.walk(n.target) if isinstance(m, ast.Name)}
    stored = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return inner | (stored - comprehended) | {n.arg for n in nodes if isinstance(n, ast.arg)}


def _scan(source):
    """The opset of ai.onnx whose operators the script names first, or that of a script that it calls; None if there is none."""
    called = None
    for node in ast.walk(source.tree):
        if not isinstance(node, (ast.Name, ast.Attribute)):
            continue
        try:
            found = source.lookup(node.id) if isinstance(node, ast.Name) else source.evaluate(node) if _is_dotted(node) else None
        except Exception:  # a name of the script's own, or one that is told of where it is read
            continue
        operator = getattr(found, "operator", None) if callable(found) and not isinstance(found, (Opset, OnnxFunction)) else None
        found = operator.opset if hasattr(operator, "opset") else found
        if isinstance(found, Opset) and found.domain == "":
            return found
        if isinstance(found, OnnxFunction) and called is None:
            called = next((Opset("", o.version) for o in found._translation.proto.opset_import if o.domain == ""), None)
    return called


def _is_dotted(node):
    """Whether it is a.b.c: names of modules may be evaluated, calls not."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _function_proto(source, home, function, context, parameters, outputs):
    import onnx
    proto = onnx.FunctionProto(name=source.name, domain=home.domain, doc_string=ast.get_docstring(source.tree) or "", node=context.nodes)
    proto.input.extend(context.inputs)
    proto.output.extend([value.name for value in outputs])
    for p in parameters.values():
        if p.kind is None:
            continue
        if p.is_required or p.default is None:
            proto.attribute.append(p.name)
            continue
        try:
            value = constants.attribute_value(p.name, p.kind, p.default)
        except TypeError as error:
            raise source.error(source.tree, f"the default of {error}") from None
        proto.attribute_proto.append(constants.attribute_proto(p.name, p.kind, value))
    for domain, version in function.versions.items():
        proto.opset_import.add(domain=domain, version=version)
    return proto


def _returned(source, annotation, n):
    """The types that the function's return annotation gives to its n outputs, None where it gives none."""
    import typing
    if annotation is None:
        return [None] * n
    found = annotation_of(source, ast.unparse(annotation))
    if isinstance(found, str):
        found = annotation_of(source, found)
    kinds = list(found) if isinstance(found, tuple) else list(typing.get_args(found)) if typing.get_origin(found) is tuple else [found]
    if not any(hasattr(k, "to_type_proto") for k in kinds):
        return [None] * n
    if len(kinds) != n:
        raise TranslationError(f"{source.file}:{source.first}: script {source.name!r} returns {n} values, "
                               f"its annotation has {len(kinds)} types")
    return [k if hasattr(k, "to_type_proto") else None for k in kinds]

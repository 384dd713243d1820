"""Models: the ModelProto of a script, with the scripts that it calls as local functions.

The one idea: a model's graph is the function's nodes with types around them; attributes have their defaults.
Must not know: how the function was made.
"""
import inspect

from .. import _core
from .onnx_types import type_proto
from .values import OnnxFunction


def model_of(script, io_types, input_types, output_types, value_infos, functions, fields):
    """See OnnxFunction.to_model_proto."""
    import onnx
    translation = script.translation
    proto = translation.proto
    model = onnx.ModelProto()
    graph = model.graph
    graph.name, graph.doc_string = script.name, proto.doc_string
    graph.node.extend(proto.node)
    _give_defaults(script, graph)
    _declare(graph.input, proto.input, _types(script, "input_types", translation.input_types, input_types, io_types))
    kinds = _types(script, "output_types", translation.output_types, output_types, io_types)
    _declare(graph.output, proto.output, kinds)
    for name, kind in {**translation.value_infos, **(value_infos or {})}.items():
        graph.value_info.add(name=name).type.CopyFrom(type_proto(kind))
    local = _local_functions(script, functions)
    model.functions.extend(local)
    _import(model, script, proto, local)
    _fill(model, fields)
    if any(kind is None for kind in kinds) and all(i.HasField("type") for i in graph.input):
        _infer_outputs(model)
    return model


def _types(script, word, annotated, given, fallback):
    if given is not None:
        given = list(given)
        if len(given) != len(annotated):
            raise _core.ValueError_(f"{script.name}: {word} has {len(given)} types, expected {len(annotated)}")
        return given
    return [kind or fallback for kind in annotated]


def _declare(place, names, kinds):
    for name, kind in zip(names, kinds):
        info = place.add(name=name)
        if kind is not None:
            info.type.CopyFrom(type_proto(kind))


def _infer_outputs(model):
    """Types of outputs that nobody gave, as far as ONNX's inference finds them."""
    import onnx
    try:
        inferred = onnx.shape_inference.infer_shapes(model)
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError):
        return  # an output without a type is what ONNX allows, and whoever runs the model tells what is wrong
    for output, found in zip(model.graph.output, inferred.graph.output):
        if not output.HasField("type") and found.HasField("type"):
            output.type.CopyFrom(found.type)


# -- attributes -----------------------------------------------------------------------------------------
def _give_defaults(script, graph):
    """Attributes that refer to the script's parameters get those parameters' defaults; without one, the node has none."""
    defaults = {a.name: a for a in script.translation.proto.attribute_proto}
    lacking = [p.name for p in script._parameters.values() if p.kind is not None and p.default is inspect.Parameter.empty]
    for node in graph.node:
        for attribute in list(node.attribute):
            wanted = attribute.ref_attr_name
            if attribute.HasField("g"):
                _give_defaults(script, attribute.g)
            if not wanted:
                continue
            if wanted in lacking:
                raise _core.ValueError_(f"{script.name}: attribute {wanted!r} has no default, which a model needs; "
                                        "call the script from another one")
            name = attribute.name
            if wanted in defaults:
                attribute.CopyFrom(defaults[wanted])
                attribute.name = name
            else:
                node.attribute.remove(attribute)


# -- functions and versions -----------------------------------------------------------------------------
def _local_functions(script, more):
    """FunctionProtos of all scripts that it calls, and that they call, each once; more: in place of, or beside them."""
    found, queue = {}, list(script.translation.called)
    for function in more or ():
        proto = function.to_function_proto() if isinstance(function, OnnxFunction) else function
        found[proto.domain, proto.name] = proto
        queue += function.translation.called if isinstance(function, OnnxFunction) else []
    for function in queue:  # grows as calls are found
        key = function.opset.domain, function.name
        if key not in found:
            found[key] = function.translation.proto
            queue += function.translation.called
    return list(found.values())


def _import(model, script, proto, local):
    versions = {o.domain: o.version for o in proto.opset_import}
    inner = {}
    for function in local:
        for o in function.opset_import:
            inner[o.domain] = max(o.version, inner.get(o.domain, 0))
    for domain, version in inner.items():
        versions.setdefault(domain, version)
    for domain, version in versions.items():
        model.opset_import.add(domain=domain, version=version)


def _fill(model, fields):
    from onnx import helper
    known = set(model.DESCRIPTOR.fields_by_name) - {"graph", "functions"}
    for name, value in fields.items():
        if name == "opset_imports":  # as onnx.helper.make_model calls it
            name = "opset_import"
        if name not in known:
            raise TypeError(f"to_model_proto() got {name!r}, which is no field of a ModelProto; they are {', '.join(sorted(known))}")
        if isinstance(getattr(model, name), (str, int)):
            setattr(model, name, value)
        else:
            del getattr(model, name)[:]
            getattr(model, name).extend(value)
    if "ir_version" not in fields:
        model.ir_version = max(8, helper.find_min_ir_version_for(model.opset_import, ignore_unknown=True))


# -- schemas --------------------------------------------------------------------------------------------
def schema_of(script):
    """The script as an OpSchema: a type variable for each type of its values."""
    from onnx import defs
    schema = defs.OpSchema
    translation, constraints, names = script.translation, [], {}

    def variable(kind):
        allowed = (kind.to_string(),) if kind is not None else tuple(sorted(defs.OpSchema.all_tensor_types()))
        key = allowed if kind is not None else len(constraints)
        if key not in names:
            names[key] = f"T{len(constraints)}"
            constraints.append((names[key], list(allowed), ""))
        return names[key]

    inputs = [p for p in script._parameters.values() if p.kind is None]
    given = [schema.FormalParameter(p.name, variable(p.type), param_option=schema.FormalParameterOption.Single if p.is_required else
                                    schema.FormalParameterOption.Optional) for p in inputs]
    made = [schema.FormalParameter(name, variable(kind)) for name, kind in zip(translation.proto.output, translation.output_types)]
    attributes = [schema.Attribute(a.name, default_value=a) for a in translation.proto.attribute_proto]
    attributes += [schema.Attribute(p.name, type=getattr(schema.AttrType, p.kind), required=p.is_required)
                   for p in script._parameters.values() if p.kind is not None and (p.is_required or p.default is None)]
    return schema(script.name, script.opset.domain, script.opset.version, doc=translation.proto.doc_string, inputs=given, outputs=made,
                  type_constraints=constraints, attributes=attributes)

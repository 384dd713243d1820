"""One operator on values, as a function: eager().

The one idea: the core runs it; what only the host serves (sequences, strings, subgraphs, shapes that depend on data) is
a model of one node, kept for inputs of the same kinds.
Must not know: what an operator computes.
"""
import numpy as np

from .. import _core
from .host import values as v
from .host.table import FALLBACKS, HOST, VARIANTS

_KEPT = 256
_models = {}  # what a call is -> ONNXModel, the oldest first


def eager(op, domain, opset, values, attributes=None, outputs=None):
    """The outputs of an operator, as a tuple.

    values: numpy arrays or torch tensors, of any type; lists are sequences, None is absent (or an empty optional),
        dicts are maps.
    attributes: {name: int, float, str, array, list of these, onnx.GraphProto, onnx.TypeProto}; None is absent.
    outputs: how many there are; None: those that the operator never leaves out.
    Raises UnsupportedOpError for an operator that dcml lacks, and what is wrong with the inputs: ShapeError,
    DTypeError, ModelError, ValueError_, each with the operator's name.
    """
    if not _is_for_host(op, domain, values, attributes):
        try:
            return _core.eager(op, domain, opset, values, attributes, outputs)
        except (_core.UnsupportedOpError, _core.DTypeError):
            if not _has_host_values(values) and (domain, op) not in FALLBACKS:
                raise
    return _on_host(op, domain, opset, list(values), {k: a for k, a in (attributes or {}).items() if a is not None}, outputs)


def _is_for_host(op, domain, values, attributes):
    if (domain, op) in HOST or any([type(value) is list or type(value) is dict for value in values]):
        return True
    variant = VARIANTS.get((domain, op))
    return variant is not None and bool(variant[1](attributes or {}))


def _has_host_values(values):
    return any([v.is_string(value) or v.is_complex(value) for value in values])


# -- a model of one node ------------------------------------------------------------------------------------
def _on_host(op, domain, opset, values, attributes, outputs):
    values = [v.as_value(value) for value in values]
    kinds = tuple([_kind(value) for value in values])
    count = outputs or _outputs_of(op, domain, opset)
    key = (op, domain, opset, kinds, count, tuple((name, _frozen(value)) for name, value in attributes.items()))
    model = _models.get(key)
    if model is None:
        model = _model(op, domain, opset, kinds, attributes, count)
        if len(_models) >= _KEPT:
            _models.pop(next(iter(_models)), None)
        _models[key] = model
    results = model(*[value for value in values if value is not None])
    return results if isinstance(results, tuple) else (results,)


def _outputs_of(op, domain, opset):
    from onnx import defs
    try:
        schema = defs.get_schema(op, opset, domain)
    except defs.SchemaError as error:
        raise _core.UnsupportedOpError(f"{op}: {error}") from None
    return max(1, schema.min_output)


def _kind(value):
    """What a model declares of a value: its type, without extents; None if it is absent."""
    if value is None:
        return None
    if isinstance(value, list):
        kinds = {_kind(item) for item in value}
        if len(kinds) > 1:
            raise _core.DTypeError(f"a sequence of {' and '.join(sorted(map(str, kinds)))}: expected elements of one type")
        return "sequence", next(iter(kinds), ("tensor", 1, None))[:2]
    if isinstance(value, dict):
        return "map", *(_kind(np.asarray(list(part)))[1] for part in (value.keys(), value.values()))
    if v.is_string(value):
        return "tensor", v.STRING, value.ndim
    code = v.code_of(value) or {name: code for code, name in v.COMPLEX.items()}.get(str(value.dtype))
    if not code:
        raise _core.DTypeError(f"a value of type {value.dtype}: expected one of ONNX's types")
    return "tensor", code, value.ndim


def _frozen(value):
    if hasattr(value, "SerializeToString"):
        return type(value).__name__, value.SerializeToString()
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, tuple(value.ravel()) if value.dtype.hasobject else value.tobytes()
    return type(value).__name__, tuple(map(_frozen, value)) if isinstance(value, (list, tuple)) else value


def _type_proto(kind, proto):
    if kind[0] == "sequence":
        _type_proto((*kind[1], None), proto.sequence_type.elem_type)
    elif kind[0] == "map":
        proto.map_type.key_type = kind[1]
        proto.map_type.value_type.tensor_type.elem_type = kind[2]
    else:
        proto.tensor_type.elem_type = kind[1]
        for d in range(kind[2] or 0):
            proto.tensor_type.shape.dim.add()
        if kind[2] is not None:
            proto.tensor_type.shape.SetInParent()
    return proto


def _model(op, domain, opset, kinds, attributes, count):
    import onnx
    from . import ONNXModel
    model = onnx.ModelProto(ir_version=10)
    for name, version in {"": 21, domain: opset}.items():
        model.opset_import.add(domain=name, version=version)
    graph, node = model.graph, model.graph.node.add(op_type=op, domain=domain)
    graph.name = op
    for k, kind in enumerate(kinds):
        node.input.append("" if kind is None else f"input{k}")
        if kind is not None:
            _type_proto(kind, graph.input.add(name=f"input{k}").type)
    for k in range(count):
        node.output.append(f"output{k}")
        graph.output.add(name=f"output{k}")
    for name, value in attributes.items():
        node.attribute.append(_attribute(name, value))
    return ONNXModel(op, model, infer_shapes=False)


def _attribute(name, value):
    import onnx
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
        value = onnx.numpy_helper.from_array(array.astype(object) if array.dtype.kind == "U" else array)
    if isinstance(value, (list, tuple)) and not value:
        return onnx.AttributeProto(name=name, type=onnx.AttributeProto.INTS)
    try:
        return onnx.helper.make_attribute(name, list(value) if isinstance(value, tuple) else value)
    except (TypeError, ValueError) as error:
        raise _core.ValueError_(f"attribute {name!r}: {error}") from error

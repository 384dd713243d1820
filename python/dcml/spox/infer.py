"""Types and values of what a node gives.

The one idea: the core infers what it has a row for, with symbols and known values; ONNX's inference is asked for the rest:
sequences, strings, unknown ranks, subgraphs.  A value that depends on constants alone is computed when someone asks.
Must not know: constructors or models.
"""
import warnings

import numpy as np

from .. import _core
from . import attributes as attrs
from . import types
from .control import fact_of
from .var import LAZY, make, settle

_SMALL = 1024  # elements of a constant that shapes may be made of
_TRUE_TYPES = {7: np.int64, 6: np.int32, 9: np.bool_}  # types whose known elements make a value


class InferenceError(_core.ModelError):
    """Inputs and attributes that do not go together; the message tells the operator and the types that came."""


class InferenceWarning(Warning):
    """A type is not known, or only in part; operators that need it cannot be checked."""


class _Levels:
    """What is warned of: "none", "critical" (types that are missing) or "initial" (incomplete ones, too)."""
    warn = "initial"


def infer(node):
    """The node's outputs, a variable each."""
    if node.op.name == "Constant" and not node.op.domain:
        return _constant(node)
    found = None if node.graphs else _by_core(node)
    if found is not None:
        results = _of_core(node, found)
    else:
        results = _of_onnx(node, _by_onnx(node))
    if any([not _is_complete(var.type) for var in results]):
        _warn(node, results)
    return results


def _is_complete(kind):
    return kind is not None and (kind.shape is not None if type(kind) is types.Tensor else True)


def _warn(node, results):
    if _Levels.warn == "none":
        return
    complete_inputs = all([v is None or _is_complete(v.type) for v in node.inputs])
    for var in results:
        name = node.fields[var._index]
        if var.type is None:
            warnings.warn(InferenceWarning(f"the type of output {name!r} of {node.op.where} is not known"), stacklevel=5)
        elif not _is_complete(var.type) and complete_inputs and _Levels.warn != "critical":
            warnings.warn(InferenceWarning(f"of output {name!r} of {node.op.where} only the element type is known"), stacklevel=5)


# -- constants --------------------------------------------------------------------------------------------
def constant_fact(array):
    """What the core takes of a constant."""
    kind = types.of_array(array)
    fact = fact_of(kind)
    return kind, array if fact and array.size <= _SMALL else fact


def known(node, index, array):
    """A variable whose value is an array."""
    kind, fact = constant_fact(array)
    return make(node, index, kind, (array,), fact)


def _constant(node):
    if len(node.attributes) != 1:
        raise InferenceError(f"{node.op.function}(): expected one of the attributes, got {[name for name, _, _ in node.attributes]}")
    name, kind, value = node.attributes[0]
    element = {"f": np.float32, "i": np.int64, "t": str}[kind[0]] if kind != "tensor" else None
    array = value if kind == "tensor" else np.array(value, element)
    array.flags.writeable = False
    return (known(node, 0, array),)


def _constancy(node):
    """LAZY if the outputs depend on constants alone, else None."""
    if node.graphs or node.op.draws or any([v is not None and v._value is None for v in node.inputs]):
        return None
    return LAZY


def evaluate(var):
    """Computes a LAZY value, and those that it needs."""
    stack = [var]
    while stack:
        wanted = stack[-1]
        if wanted._value is not LAZY:
            stack.pop()
            continue
        waiting = [v for v in wanted._node.inputs if v is not None and v._value is LAZY]
        if waiting:
            stack += waiting
            continue
        settle(wanted, _compute(wanted))


def _compute(var):
    from ..onnx.eager import eager
    node = var._node
    if any([v is not None and not isinstance(v._value, tuple) for v in node.inputs]):
        return None
    values = [None if v is None else v._value[0] for v in node.inputs]
    if hasattr(node.op, "evaluate"):
        outputs = node.op.evaluate(values)
    else:
        attributes = {name: types.to_proto(value) if kind == "type" else attrs.for_core(kind, value)
                      for name, kind, value in node.attributes}
        try:
            outputs = eager(node.op.name, node.op.domain, node.op.since, [_to_eager(v) for v in values], attributes, len(node.fields))
        except _core.Error:
            return None  # it is known when the model runs, if at all
    value = outputs[var._index]
    return (value.astype(str) if isinstance(value, np.ndarray) and value.dtype.kind == "O" else value,)


def _to_eager(value):
    return value.astype(object) if isinstance(value, np.ndarray) and value.dtype.kind == "U" else value


# -- the core ---------------------------------------------------------------------------------------------
def _by_core(node):
    """What the core infers; None if it is not its to say."""
    facts = []
    for var in node.inputs:
        if var is None:
            facts.append(None)
        elif var._fact is None:
            return None
        else:
            facts.append(var._fact)
    attributes = {}
    for name, kind, value in node.attributes:
        if kind == "type":
            return None
        attributes[name] = value
    op = node.op
    try:
        return _core.infer(op.name, op.domain, op.since, facts, attributes, len(node.fields))
    except _core.UnsupportedOpError as error:
        return _once_more(node, facts, attributes) if error.needs_value else None
    except _core.DTypeError as error:
        _check_types(node, error)
        return None
    except _core.Error as error:
        raise _failed(node, error) from None


def _once_more(node, facts, attributes):
    """With the values of inputs that are constant but were not computed yet."""
    again = list(facts)
    for k, var in enumerate(node.inputs):
        if var is None or isinstance(again[k], np.ndarray):
            continue
        if var._value is LAZY:
            evaluate(var)
        if type(var._value) is tuple and isinstance(var._value[0], np.ndarray):
            again[k] = np.ascontiguousarray(var._value[0]).reshape(var._value[0].shape)
    if all([a is b for a, b in zip(again, facts)]):
        return None
    try:
        return _core.infer(node.op.name, node.op.domain, node.op.since, again, attributes, len(node.fields))
    except _core.UnsupportedOpError:
        return None
    except _core.Error as error:
        raise _failed(node, error) from None


def _of_core(node, found):
    symbols = None
    constancy = _constancy(node)
    results = []
    for k, (code, shape, elements) in enumerate(found):
        fact_shape = shape
        if any([type(d) is str for d in shape]):
            if symbols is None:
                facts = [v._fact for v in node.inputs if v is not None and type(v._fact) is tuple]
                symbols = {d for fact in facts for d in (*fact[1], *(fact[2] if len(fact) > 2 else ())) if type(d) is str}
            fact_shape = tuple([_symbol(d, symbols) for d in shape])
            shape = tuple([None if type(d) is str and d[0] == "(" else d for d in fact_shape])
        kind = types.tensor(code, shape)
        value, fact = constancy, (code, fact_shape)
        if elements is not None:
            if constancy is LAZY and code in _TRUE_TYPES and all([type(e) is int for e in elements]):
                fact = np.array(elements, _TRUE_TYPES[code]).reshape(shape)
                value = (fact,)
            elif constancy is None:
                fact = (code, fact_shape, tuple([_symbol(d, symbols or ()) for d in elements]))
        results.append(make(node, k, kind, value, fact))
    return tuple(results)


def _symbol(extent, symbols):
    """An expression of symbols becomes one in brackets, which the core takes for a symbol like any other."""
    if type(extent) is not str or extent in symbols or extent.isidentifier():
        return extent
    return f"({extent})"


# -- ONNX -------------------------------------------------------------------------------------------------
def _failed(node, error):
    """An InferenceError that shows what was passed."""
    names = _input_names(node)
    inputs = ", ".join(f"{name}: {None if v is None else v.type}" for name, v in zip(names, node.inputs))
    kept = ", ".join(f"{name}={value!r}" for name, kind, value in node.attributes if kind != "tensor")
    return InferenceError(f"{node.op.function}(): {error} -- for {node.op.where} of [{inputs}]{f' with {kept}' if kept else ''}")


def _input_names(node):
    names = [name for name, _ in node.op.inputs]
    last = names[-1] if names else "input"
    return names + [last] * (len(node.inputs) - len(names))


def _name_of_type(kind):
    """As ONNX writes it: seq(tensor(float))."""
    if type(kind) is types.Tensor:
        return f"tensor({_ONNX_NAMES.get(kind._code) or kind.dtype.name})"
    return f"{'seq' if type(kind) is types.Sequence else 'optional'}({_name_of_type(kind.elem_type)})"


_ONNX_NAMES = {1: "float", 8: "string", 9: "bool", 11: "double", 17: "float8e4m3fn", 18: "float8e4m3fnuz", 19: "float8e5m2",
               20: "float8e5m2fnuz", 23: "float4e2m1", 24: "float8e8m0"}


def _check_types(node, error=None):
    """That the inputs have types that the schema allows, and one type where it wants one; error: why the core refused."""
    schema, bound = node.op.schema, {}
    for k, var in enumerate(node.inputs):
        if var is None or var.type is None:
            continue
        parameter = schema.inputs[min(k, len(schema.inputs) - 1)]
        name = _name_of_type(var.type)
        if name not in parameter.types:
            raise _failed(node, f"input {parameter.name!r} cannot be of type {name}")
        if parameter.is_homogeneous and bound.setdefault(parameter.type_str, name) != name:
            raise _failed(node, error or f"input {parameter.name!r} is of type {name}, expected {bound[parameter.type_str]}")
    return bound


def _by_onnx(node):
    """Types by output, None where there is none."""
    if any([v is not None and v.type is None for v in node.inputs]):
        return [None] * len(node.fields)
    import onnx.checker
    import onnx.shape_inference
    bound = _check_types(node)
    proto = onnx.NodeProto(op_type=node.op.name, domain=node.op.domain)
    proto.input.extend(["" if v is None else f"i{k}" for k, v in enumerate(node.inputs)])
    proto.output.extend([f"o{k}" for k in range(len(node.fields))])
    for name, kind, value in node.attributes:
        attrs.write(proto.attribute.add(), name, kind, value)
    for name, graph in node.graphs.items():
        attribute = proto.attribute.add(name=name, type=onnx.AttributeProto.GRAPH)
        attribute.g.CopyFrom(_typed_graph(graph))
    data = {}
    for k, var in enumerate(node.inputs):
        if var is not None and isinstance(var._value, tuple) and isinstance(var._value[0], np.ndarray) and var._value[0].size <= _SMALL:
            data[f"i{k}"] = attrs.tensor_proto(var._value[0], f"i{k}")
    given = {f"i{k}": types.to_proto(v.type) for k, v in enumerate(node.inputs) if v is not None}
    version = onnx.helper.make_opsetid(node.op.domain, node.op.since)
    try:
        found = onnx.shape_inference.infer_node_outputs(node.op.schema, proto, given, data, opset_imports=[version])
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, RuntimeError, ValueError) as error:
        raise _failed(node, error) from None
    kinds = [types.from_proto(found[o]) if o in found else None for o in proto.output]
    if node.op.name == "Loop":
        _keep_carried(node, kinds)
    return [kind or _by_schema(node, k, bound) for k, kind in enumerate(kinds)]


def _typed_graph(graph):
    """A graph that has the subgraph's types and nothing else."""
    import onnx
    proto = onnx.GraphProto(name="body")
    for k, var in enumerate(graph.arguments):
        proto.input.add(name=f"a{k}").type.CopyFrom(types.to_proto(var.unwrap_type()))
    for k, var in enumerate(graph.results):
        proto.node.add(op_type="Identity", input=[f"x{k}"], output=[f"r{k}"])
        for place, name in ((proto.value_info, f"x{k}"), (proto.output, f"r{k}")):
            info = place.add(name=name)
            if var.type is not None:
                info.type.CopyFrom(types.to_proto(var.type))
    return proto


def _keep_carried(node, kinds):
    """A carried value has the type that the body gives it; if the body changes a shape, only its rank is known, or not even that."""
    body = node.graphs["body"]
    before, after = [v.type for v in body.arguments[2:]], [v.type for v in body.results[1:]]
    for k, (first, then) in enumerate(zip(before, after)):
        if then is not None and not _same_kind(first, then):
            raise _failed(node, f"the body's result {node.fields[k]!r} is {then}, but it is {first} before")
        kinds[k] = first if first == then else _erased(then)


def _same_kind(a, b):
    if type(a) is not type(b):
        return False
    return a._code == b._code if type(a) is types.Tensor else _same_kind(a.elem_type, b.elem_type)


def _erased(kind):
    if type(kind) is types.Tensor:
        return types.tensor(kind._code, None)
    return kind and type(kind)(_erased(kind.elem_type))


def _by_schema(node, k, bound):
    """At least the element type, where the schema leaves one."""
    parameter = node.op.schema.outputs[min(k, len(node.op.schema.outputs) - 1)]
    name = bound.get(parameter.type_str) or (list(parameter.types)[0] if len(parameter.types) == 1 else "")
    if not name.startswith("tensor("):
        return None
    word = name[7:-1]
    code = next((code for code, known in _ONNX_NAMES.items() if known == word), None) or types._CODES.get(word)
    return code and types.tensor(code, None)


def _of_onnx(node, kinds):
    constancy = _constancy(node)
    return tuple([make(node, k, kind, constancy, fact_of(kind)) for k, kind in enumerate(kinds)])

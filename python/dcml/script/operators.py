"""Operators as scripts call them: what each takes, and a Python function with its signature that runs it at once.

The one idea: both are made from ONNX's schema when an operator is first asked for; calls in a script and calls that run
bind their arguments by the same signature.
Must not know: how a script becomes a model, or how an operator is computed.
"""
import inspect

from .. import opsets

_HINTS = {"INT": "int", "FLOAT": "float", "STRING": "str", "INTS": "Sequence[int]", "FLOATS": "Sequence[float]", "STRINGS": "Sequence[str]",
          "TENSOR": "TensorProto", "GRAPH": "GraphProto", "TYPE_PROTO": "TypeProto", "SPARSE_TENSOR": "SparseTensorProto"}
_KEYWORD, _POSITIONAL, _ROW = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.VAR_POSITIONAL


class Input:
    """An input of an operator: its name; kind "single", "optional" or "variadic"; type, a variable that several inputs
    share or None; only, the element type if it takes but one; sequences, whether it takes them."""

    __slots__ = ("name", "kind", "type", "only", "sequences", "tensors")

    def __init__(self, parameter):
        self.name, self.kind = parameter.name, parameter.option.name.lower()
        types = set(parameter.types)
        shared = parameter.type_str not in types and (self.kind != "variadic" or parameter.is_homogeneous)
        self.type = parameter.type_str if shared else None
        self.only = _code(next(iter(types))) if len(types) == 1 else None
        self.sequences = any([t.startswith("seq(") for t in types])
        self.tensors = any([t.startswith("tensor(") for t in types])


def _code(text):
    from .onnx_types import tensor_type_registry
    return next((code for code, kind in tensor_type_registry.items() if kind.to_string() == text), None)


class Operator:
    """An operator of an opset.

    ``schema`` is None for one that nobody declared: then every positional argument is an input.  ``inputs`` are Inputs,
    ``attributes`` {name: (ONNX's kind, default, required)}.
    """

    def __init__(self, opset, name, schema=None):
        self.opset, self.name, self.schema, self.domain, self.version = opset, name, schema, opset.domain, opset.version
        self.inputs = [Input(p) for p in schema.inputs] if schema else []
        self.attributes = {} if schema is None else {
            label: (a.type.name, opsets.default_of(a), a.required) for label, a in sorted(schema.attributes.items())}
        self.required = max(1, schema.min_output) if schema else 1
        self.most = None if schema is None or any(p.option.name == "Variadic" for p in schema.outputs) else len(schema.outputs)
        self.signature = None if schema is None else self._signature()

    @property
    def opset_name(self):
        return f"{self.domain or 'ai.onnx'} {self.version}"

    @property
    def counts(self):
        """Whether how many outputs there are depends on the call."""
        return self.most is None or self.most > self.required

    def _signature(self):
        parameters = []
        for taken in self.inputs:
            fallback = None if taken.kind == "optional" and self.inputs[-1].kind != "variadic" else inspect.Parameter.empty
            if fallback is not None and any(p.default is None for p in parameters):
                fallback = None
            parameters.append(inspect.Parameter(taken.name, _ROW) if taken.kind == "variadic" else
                              inspect.Parameter(taken.name, _POSITIONAL, default=fallback, annotation=_hint_of(taken)))
        for name, (kind, default, required) in self.attributes.items():
            hint = _HINTS.get(kind, kind) if required or default is not None else f"Optional[{_HINTS.get(kind, kind)}]"
            fallback = inspect.Parameter.empty if required and default is None else default
            parameters.append(inspect.Parameter(name, _KEYWORD, default=fallback, annotation=hint))
        return inspect.Signature(parameters, return_annotation=_returns(self.schema))

    def bind(self, args, kwargs):
        """([(Input or None, value)], {attribute: value}) of a call; TypeError for arguments that it does not take."""
        if self.signature is None:
            return [(None, value) for value in args], dict(kwargs)
        unknown = [name for name in kwargs if name not in self.signature.parameters]
        if unknown:
            names = ", ".join(self.signature.parameters)
            raise TypeError(f"{self.name}() got an unexpected keyword argument {unknown[0]!r}; its parameters are {names}")
        try:
            bound = self.signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{self.name}() {error}") from None
        given = []
        for taken in self.inputs:
            if taken.kind == "variadic":
                given += [(taken, value) for value in bound.get(taken.name, ())]
            else:
                given.append((taken, bound.get(taken.name)))
        return given, {name: bound[name] for name in self.attributes if name in bound}


def _hint_of(taken):
    return f"Optional[{taken.type or 'Tensor'}]" if taken.kind == "optional" else taken.type or "Tensor"


def _returns(schema):
    hints = [p.type_str for p in schema.outputs]
    return hints[0] if len(hints) == 1 else f"Tuple[{', '.join(hints)}]"


def function_of(operator):
    """A Python function with the operator's signature and documentation that runs it on values."""
    from . import eager
    defaults = {name: default for name, (_, default, _) in operator.attributes.items()}
    space = {"_apply": eager.apply, "_operator": operator, "_defaults": defaults}
    text = f"def {operator.name}{_head(operator)}:\n{_body(operator)}"
    if eager.is_plain(operator):
        text = f"def {operator.name}{_head(operator)}:\n{_plain_body(operator)}"
        space.update(eager.PLAIN)
    exec(compile(text, f"<{opsets.where(operator.schema)}>", "exec"), space)
    function = space[operator.name]
    function.__annotations__ = {p.name: p.annotation for p in operator.signature.parameters.values() if p.annotation is not p.empty}
    function.__annotations__["return"] = operator.signature.return_annotation
    function.__module__, function.__qualname__ = "dcml.script.onnx_opset", f"opset{operator.version}.{operator.name}"
    function.__doc__ = opsets.documentation(operator.schema, "Tensor")
    function.operator, function.op_schema = operator, operator.schema
    return function


def _given(operator):
    """The inputs as a tuple, as source."""
    return "".join(f"*{i.name}, " if i.kind == "variadic" else f"{i.name}, " for i in operator.inputs)


def _body(operator):
    attributes = ", ".join(f"{name!r}: {name}" for name in operator.attributes)
    return f"    return _apply(_operator, ({_given(operator)}), {{{attributes}}})\n"


def _plain_body(operator):
    """The shortest way for an operator without attributes: where all inputs are arrays, or Tensors, the core is asked at once."""
    names = [i.name for i in operator.inputs]
    arrays, tensors = (" and ".join(f"type({name}) is {kind}" for name in names) for kind in ("_array", "_Tensor"))
    call = f"_eager({operator.name!r}, {operator.domain!r}, {operator.version}, _given, None, 1)"
    return (f"    if {arrays}:\n        _given = ({_given(operator)})\n"
            f"    elif {tensors}:\n        _given = ({''.join(f'{name}._value, ' for name in names)})\n"
            f"    else:\n        return _compute(_operator, ({_given(operator)}), None, 1)\n"
            f"    try:\n        _result, = {call}\n"
            f"    except _refused:\n        return _compute(_operator, ({_given(operator)}), None, 1)\n"
            f"    _tensor = _new(_Tensor)\n    _tensor._value = _result\n    return _tensor\n")


def _head(operator):
    """The parameters as source, whose defaults are objects by name."""
    words, named = [], False
    for p in operator.signature.parameters.values():
        if p.kind is _KEYWORD and not named:
            named = True
            if not any(w.startswith("*") for w in words):
                words.append("*")
        default = "" if p.default is p.empty else " = None" if p.kind is not _KEYWORD else f" = _defaults[{p.name!r}]"
        words.append(("*" if p.kind is _ROW else "") + p.name + default)
    return f"({', '.join(words)})"

"""Operators as constructors: functions of variables with the signature that the operator has.

The one idea: which operators a version has follows from the operator table (and the host's), what each takes from its
schema, from which a function is made when it is first asked for.  No operator is written here.
Must not know: models.
"""
import functools
import keyword
import re

from .. import _core, opsets
from . import attributes as attrs
from .apply import apply

# Words that ONNX writes in two and Python programmers in one.
_ONE_WORD = {"MatMul": "Matmul", "CumSum": "Cumsum", "IsInf": "Isinf", "IsNaN": "Isnan"}


def python_name(op):
    """The constructor's name: an underscore where a capital follows a small letter or a digit, small letters, and one
    at the end of a word that Python keeps for itself."""
    for two, one in _ONE_WORD.items():
        op = op.replace(two, one)
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", op).lower()
    return name + "_" if keyword.iskeyword(name) else name


class Opset:
    """The operators of a domain as of a version: constructors by Python name, made when they are first asked for."""

    def __init__(self, domain, version):
        self.domain, self.version = domain, version
        self._operators = {python_name(op): op for op in sorted(opsets.operators_of(domain))}
        self._made = {}

    def names(self):
        """Python names of the operators, in the order of ONNX's names."""
        return [name for name, op in self._operators.items() if opsets.schema_of(self.domain, op, self.version)]

    def constructor(self, name):
        """The function of a Python name; None if there is no such operator in this version."""
        if name not in self._made:
            op = self._operators.get(name)
            schema = op and opsets.schema_of(self.domain, op, self.version)
            self._made[name] = constructor_of(schema, name) if schema else None
        return self._made[name]


# -- what an operator takes ---------------------------------------------------------------------------
class Operator:
    """What calls need of a schema: ``inputs`` are (name, kind) with kind "single", "optional" or "variadic", ``outputs``
    (name, variadic), ``attributes`` (name, kind, default in the node or None) but for sparse tensors, ``graphs`` names."""

    __slots__ = ("name", "domain", "since", "function", "inputs", "outputs", "attributes", "graphs", "required", "min_input", "min_output",
                 "_schema", "draws")

    def __init__(self, schema, function):
        self.name, self.domain, self.since, self.function, self._schema = schema.name, schema.domain, schema.since_version, function, schema
        self.inputs = [(p.name, p.option.name.lower()) for p in schema.inputs]
        self.outputs = [(p.name.rstrip("."), p.option.name == "Variadic") for p in schema.outputs]
        self.attributes, self.graphs, self.required = [], [], set()
        for name in sorted(schema.attributes):
            attribute = schema.attributes[name]
            kind = attrs.kind_of(name, attribute.type.name)
            if kind == "graph":
                self.graphs.append(name)
            elif kind != "sparse":
                self.attributes.append((name, kind, _default(attribute, kind)))
            if attribute.required:
                self.required.add(name)
        self.min_input, self.min_output = schema.min_input, schema.min_output
        row = _core.operator(self.domain, self.name, self.since)
        self.draws = row is not None and re.search(r"\brand\(|seeded|\bnormal\(|\buniform\(", row["text"]) is not None

    @property
    def schema(self):
        """ONNX's schema."""
        return self._schema

    @property
    def where(self):
        """Name and version, for messages."""
        return opsets.where(self._schema)

    def counts_outputs(self):
        """Must a call say how many outputs there are?"""
        variadic = any(variadic for _, variadic in self.outputs)
        return variadic and not self.graphs and not any(name == "num_outputs" for name, _, _ in self.attributes)


def _default(attribute, kind):
    value = opsets.default_of(attribute)
    if kind == "dtype" and value is not None:
        from .types import _dtype as dtype
        return dtype(value).type
    return value


# -- functions ----------------------------------------------------------------------------------------
_HINTS = {"single": "Var", "optional": "Var | None", "variadic": "Sequence[Var]"}


def constructor_of(schema, name):
    """A function that applies the operator of a schema to variables."""
    operator = Operator(schema, name)
    parameters, hints, taken = [], {}, []
    open_end = False  # a parameter without default cannot follow one with
    for k, (parameter, kind) in enumerate(operator.inputs):
        open_end |= kind == "optional" or (kind == "variadic" and schema.inputs[k].min_arity == 0)
        fallback = "" if not open_end else " = ()" if kind == "variadic" else " = None"
        parameters.append(parameter + fallback)
        hints[parameter] = _HINTS[kind]
        taken.append(parameter)
    named, defaults = [], {}
    counted = operator.counts_outputs()
    if counted:
        named.append("outputs_count")
        hints["outputs_count"] = "int"
    kinds = {parameter: (kind, default) for parameter, kind, default in operator.attributes}
    for parameter in sorted([*kinds, *operator.graphs]):
        kind, default = kinds.get(parameter, ("graph", None))
        required = parameter in operator.required and default is None
        defaults[parameter] = default
        named.append(parameter if required else f"{parameter} = _defaults[{parameter!r}]")
        hints[parameter] = attrs.HINTS[kind] if kind != "graph" else _callable_hint(operator)
        if not required and default is None:
            hints[parameter] += " | None"
    hints["return"] = _returns(operator)
    text = _source(name, parameters, named, taken, list(defaults), counted)
    return _compiled(text, name, operator, defaults, hints)


def _returns(operator):
    items = ["Sequence[Var]" if variadic else "Var" for _, variadic in operator.outputs]
    return items[0] if len(items) == 1 else f"tuple[{', '.join(items)}]"


def _callable_hint(operator):
    return "Callable[[], Iterable[Var]]" if len(operator.graphs) > 1 else "Callable[..., Iterable[Var]]"


def _source(name, parameters, named, inputs, attributes, counted):
    head = ", ".join([*parameters, *(["*", *named] if named else [])])
    given = "".join(f"{i}, " for i in inputs)
    values = ", ".join(f"{a!r}: {a}" for a in attributes)
    return f"def {name}({head}):\n    return _apply(_operator, ({given}), {{{values}}}, {'outputs_count' if counted else None})\n"


def _compiled(text, name, operator, defaults, hints):
    space = {"_apply": apply, "_operator": operator, "_defaults": defaults, "__name__": __name__}
    exec(compile(text, f"<constructor of {operator.where}>", "exec"), space)
    function = space[name]
    function.__annotations__ = hints
    function.__qualname__, function.__doc__ = name, opsets.documentation(operator.schema, "Var")
    return _by_position(function, operator) if len(operator.graphs) > 1 else function


def _by_position(function, operator):
    """Subgraphs may also come by position, behind the inputs; of two, the one for what holds first."""
    graphs = sorted(operator.graphs, reverse=True)
    n = len(operator.inputs)

    @functools.wraps(function)
    def flexible(*args, **kwargs):
        for graph, value in zip(graphs, args[n:]):
            if graph in kwargs:
                raise TypeError(f"{function.__name__}() got multiple values for argument {graph!r}")
            kwargs[graph] = value
        return function(*args[:n], *args[n + len(graphs):], **kwargs)
    return flexible

"""Operators as library nodes: a class ONNX<Op> for each, made at first use from its schema.

The one idea: a node holds what its schema calls it: attributes as Python values, parameters as connectors.  Which version
of the operator it is follows from what it is given.
Must not know: how operators are computed, or who chooses their implementation.
"""
import inspect
import re

from ... import _core
from ...sdfg import SDFG
from ...sdfg.nodes import LibraryNode
from ..schema import ONNXParameterType, element_type
from . import operators
from .describe import class_doc
from .graphs import body, is_graph
from .values import attribute_value

_REQUESTS = {"implementation": "__implementation", "backward_implementation": "__backward_implementation"}  # as attributes in the core


class _Schema:
    """``schema``: of a class that of a node made by hand, of a node that of its own version."""

    def __get__(self, node, cls):
        if cls._operator is None:
            return None
        return operators.schema(cls._operator, node.opset if node is not None else operators.default_opset(cls._operator))


class _Documentation:
    """``__doc__``, written when asked for."""

    def __get__(self, node, cls):
        return class_doc(cls.__name__, cls.schema)


class _Attribute:
    """An attribute of the operator as a property of its nodes; ``None`` stands for one that is absent."""

    def __init__(self, name):
        self.name = name

    def __get__(self, node, cls):
        if node is None:
            return self
        described = node.schema.attributes.get(self.name)
        if described is None:
            raise AttributeError(f"{node._title()} has no attribute {self.name!r} in opset {node.opset}")
        given = node._attributes()
        value = given[self.name] if self.name in given else described.default_value
        return SDFG(value[0]) if is_graph(value) else value

    def __set__(self, node, value):
        given = node._attributes()
        given.pop(self.name, None)
        node._give({**given, self.name: value} if value is not None else given)


class _Request:
    """A property of a node that says how it is to be run, None: as its class or the library says."""

    def __init__(self, name, doc):
        self.name, self.__doc__ = name, doc

    def __get__(self, node, cls):
        return self if node is None else node._attributes().get(_REQUESTS[self.name])

    def __set__(self, node, value):
        if value is not None and not isinstance(value, str):
            raise TypeError(f"{node._title()}: {self.name} is the name of an implementation, not {value!r}")
        given = {key: item for key, item in node._attributes().items() if key != _REQUESTS[self.name]}
        node._put(node.opset, {**given, _REQUESTS[self.name]: value} if value is not None else given)


class ONNXOp(LibraryNode):
    """Base of the operators; make nodes of its subclasses, as ``ONNXConv("conv", strides=[2, 2])``.

    name: a label for the node; attributes: the operator's, as Python values (int, float, str, lists of them, arrays).
    A node is of opset 12 (ai.onnx.ml: 2), or of the first version that has the attributes and connectors it is given.
    Raises TypeError for an attribute that is unknown, missing or of another type.

    ``schema``: the ONNXSchema of its version; ``opset``: that version; ``default_implementation``: of the class, see
    dcml.library.
    """
    _operator = None  # the operator's name
    default_implementation = None
    default_backward_implementation = None
    schema = _Schema()
    implementation = _Request("implementation", "The name of the implementation to use for this node; None: the default.")
    backward_implementation = _Request("backward_implementation",
                                       "Which implementation this library node will expand into in the backward pass; None: the default.")

    def __init__(self, *args, **kwargs):
        if self._operator is None:
            raise TypeError("ONNXOp is no operator; make a node of ONNXAbs, ONNXAdd, ...")
        name, attributes = self._name_and_attributes(*args, **kwargs)
        domain = operators.domain_of(self._operator)
        self._op = self._operator, domain, operators.default_opset(self._operator)
        given = {key: value for key, value in attributes.items() if value is not None}
        self._op = self._operator, domain, self._version_for(given, ())
        given = _checked(self._title(), self.schema, given, self.opset)
        super().__init__(name, _required(self.schema.inputs), _required(self.schema.outputs))
        self._own_attributes = given

    def _name_and_attributes(self, *args, **attributes):
        if not args and "name" not in attributes:
            raise TypeError(f"{self._title()} needs the node's 'name'")
        if len(args) > 1 or (args and "name" in attributes):
            raise TypeError(f"{self._title()} takes the node's name, attributes are given by keyword; "
                            f"got {args[1:] or attributes['name']!r} too")
        return (args[0], attributes) if args else (attributes.pop("name"), attributes)

    def __setattr__(self, name, value):
        if not name.startswith("_") and not hasattr(type(self), name):
            raise TypeError(f"{self._title()} has no attribute {name!r}")
        super().__setattr__(name, value)

    # -- version and attributes -----------------------------------------------------------------
    def _title(self):
        return type(self).__name__

    @property
    def opset(self):
        """The opset whose version of the operator this is."""
        return self._op[2]

    def _version_for(self, given, connectors):
        """The opset for a node with these attributes and connectors: its own if that has them, else the first later
        one that does, else the last earlier one."""
        all_versions = operators.versions(self._operator)
        later = [v for v in all_versions if v > self.opset]
        earlier = [v for v in reversed(all_versions) if v <= self.opset]
        for opset in [self.opset, *later, *earlier[1:]]:
            schema = operators.schema(self._operator, opset)
            parameters = {p.name for p in (*schema.inputs, *schema.outputs)}
            required = {name for name, a in schema.attributes.items() if a.required}
            fits = {name for name in given if not name.startswith("__")} <= schema.attributes.keys()
            if fits and (opset == self.opset or required <= given.keys()) and set(connectors) <= parameters:
                return opset
        return self.opset

    def _give(self, given):
        """Takes new attributes, and the version that has them.  Raises TypeError for one that is wrong."""
        opset = self._version_for(given, self._added())
        requests = {key: value for key, value in given.items() if key.startswith("__")}
        plain = {key: value for key, value in given.items() if key not in requests}
        checked = _checked(self._title(), operators.schema(self._operator, opset), plain, opset)
        self._put(opset, {**checked, **requests})

    def _put(self, opset, attributes):
        """Stores version and attributes, here or, for a node in a state, in the core."""
        before, self._op = self.schema, (*self._op[:2], opset)
        if self._state is not None:
            self._state._edit().set_attributes(self._id, attributes, opset)
        elif self.schema is not before:  # what is required may have another name
            self._in = dict.fromkeys([*_required(self.schema.inputs), *(c for c in self._in if c not in _required(before.inputs))])
            self._out = dict.fromkeys([*_required(self.schema.outputs), *(c for c in self._out if c not in _required(before.outputs))])
        self._own_attributes = attributes

    def _added(self):
        """The parameters whose connectors somebody added."""
        own = {*_required(self.schema.inputs), *_required(self.schema.outputs)}
        return [base_name(c) for c in (*self.in_connectors, *self.out_connectors) if c not in own]

    def add_in_connector(self, connector_name, dtype=None, force=False):
        """Adds an input parameter: an optional one by its name, ``data_0__1`` for the second of a variadic data_0."""
        self._take_version_with(connector_name)
        return super().add_in_connector(connector_name, dtype, force)

    def add_out_connector(self, connector_name, dtype=None, force=False):
        """Adds an output parameter, as add_in_connector an input."""
        self._take_version_with(connector_name)
        return super().add_out_connector(connector_name, dtype, force)

    def _take_version_with(self, connector):
        given = self._attributes()
        opset = self._version_for(given, [*self._added(), base_name(connector)])
        if opset != self.opset:
            self._put(opset, given)

    # -- edges ----------------------------------------------------------------------------------
    def iter_inputs_in_onnx_order(self, state):
        """The edges into this node in the order of the inputs of a NodeProto.

        state: the SDFGState of the node, which has been validated.  Returns a list of edges.
        """
        return _in_order(self.schema.inputs, [(e.dst_conn, e) for e in state.in_edges(self)])

    def iter_outputs_in_onnx_order(self, state):
        """The edges out of this node in the order of the outputs of a NodeProto.

        state: the SDFGState of the node, which has been validated.  Returns a list of edges.
        """
        return _in_order(self.schema.outputs, [(e.src_conn, e) for e in state.out_edges(self)])

    def iter_edges(self, state):
        """Pairs of an edge and whether it is an input, inputs before outputs, in the schema's order.

        state: the SDFGState of the node, which has been validated.
        """
        yield from ((edge, True) for edge in self.iter_inputs_in_onnx_order(state))
        yield from ((edge, False) for edge in self.iter_outputs_in_onnx_order(state))

    # -- validation -----------------------------------------------------------------------------
    def validate(self, sdfg, state):
        """Checks connectors and types against the schema.

        sdfg, state: the SDFG and SDFGState that hold the node.
        Raises ModelError, or DTypeError for a type that the schema refuses, with the node and the parameter.
        """
        schema, types = self.schema, {}
        for side, parameters, edges in (("input", schema.inputs, [(e.dst_conn, e) for e in state.in_edges(self)]),
                                        ("output", schema.outputs, [(e.src_conn, e) for e in state.out_edges(self)])):
            connectors = self.in_connectors if side == "input" else self.out_connectors
            self._check_connectors(side, parameters, list(connectors), [name for name, _ in edges])
            for name, edge in edges:
                self._check_type(sdfg, side, parameters, name, edge, types)
        for name, attribute in schema.attributes.items():
            if attribute.required and name not in self._attributes():
                raise self._invalid(f"attribute {name!r} is required")

    def _invalid(self, text, error=_core.ModelError):
        return error(f"{self._title()} {self.label!r}: {text}")

    def _check_connectors(self, side, parameters, connectors, connected):
        known = ", ".join(p.name for p in parameters) or "none"
        for name in [*connectors, *connected]:
            if name is None:
                raise self._invalid(f"an {side} edge has no connector; its {side}s are {known}")
            if parameter_of(parameters, name) is None:
                raise self._invalid(f"there is no {side} {name!r}; its {side}s are {known}")
        for name in connectors:
            if connected.count(name) != 1 and (side == "input" or not connected.count(name)):
                raise self._invalid(f"{side} {name!r} has {connected.count(name)} edges, expected one")
        for p in parameters:
            if p.param_type is ONNXParameterType.Single and p.name not in connectors:
                raise self._invalid(f"{side} {p.name!r} is required")
            if p.param_type is ONNXParameterType.Variadic:
                self._check_sequence(side, p.name, [name for name in connectors if base_name(name) == p.name])

    def _check_sequence(self, side, name, connectors):
        """Variadic parameters: name__0, name__1, ... without gaps or leading zeros."""
        indices = [c.rpartition("__")[2] for c in connectors]
        padded = [c for c, index in zip(connectors, indices) if index != str(int(index))]
        if padded:
            expected = f"{name}__{int(padded[0].rpartition('__')[2])}"
            raise self._invalid(f"{side} {padded[0]!r} is written with a leading zero, expected {expected}")
        lacking = sorted(set(range(len(indices))) - {int(index) for index in indices})
        if lacking:
            raise self._invalid(f"variadic {side} {name!r} has a gap: {name}__{lacking[0]} is missing")

    def _check_type(self, sdfg, side, parameters, name, edge, types):
        have = sdfg.arrays[edge.data.data].dtype if edge.data is not None and edge.data.data is not None else None
        if have is None:
            return  # not inferred yet
        parameter = parameter_of(parameters, name)
        constraint = self.schema.type_constraints.get(parameter.type_str)
        allowed = constraint.types if constraint else [element_type(parameter.type_str)]
        if have not in allowed and have.code not in operators.accepted(self.op, self.opset, side + "s", parameters.index(parameter)):
            raise self._invalid(f"{name!r} is the array {edge.data.data!r} of {have}, expected {', '.join(map(str, allowed))}",
                                _core.DTypeError)
        first = types.setdefault(parameter.type_str, (have, name)) if constraint and parameter.homogeneous else (have, name)
        if first[0] != have:
            raise self._invalid(f"{name!r} is of {have}, but {first[1]!r} of {first[0]}; both are {parameter.type_str}", _core.DTypeError)


def _required(parameters):
    return [p.name for p in parameters if p.param_type is ONNXParameterType.Single]


def base_name(connector):
    """The parameter that a connector belongs to: data_0 of data_0__3."""
    return re.sub(r"__\d+\Z", "", connector) if connector else connector


def parameter_of(parameters, connector):
    """The ONNXParameter that a connector stands for, or None."""
    for p in parameters:
        variadic = p.param_type is ONNXParameterType.Variadic
        if base_name(connector) == p.name and (connector != p.name) == variadic:
            return p
    return None


def _place(parameters, connector):
    """Where a connector stands among the arguments of a NodeProto."""
    base = base_name(connector)
    index = 0 if connector == base else int(connector.rpartition("__")[2])
    return next(k for k, p in enumerate(parameters) if p.name == base) + index


def parameter_name(domain, op, opset, is_input, k):
    """The connector of the k-th input or output of an operator; "" past the last, None for an unknown operator.

    The core asks for those that have no row.
    """
    if library_class(domain, op, opset) is None:
        return None
    schema = operators.schema(op, opset)
    parameters = schema.inputs if is_input else schema.outputs
    last = parameters[min(k, len(parameters) - 1)] if parameters else None
    if last is not None and last.param_type is ONNXParameterType.Variadic:
        return f"{last.name}__{k - len(parameters) + 1}"
    return last.name if k < len(parameters) else ""


def connectors_in_order(parameters, connectors):
    """A connector or None for each argument of a NodeProto, up to the last that is there."""
    places = {_place(parameters, name): name for name in connectors}
    return [places.get(k) for k in range(max(places, default=-1) + 1)]


def _in_order(parameters, edges):
    return [edge for _, edge in sorted(edges, key=lambda item: _place(parameters, item[0]))]


def _checked(title, schema, given, opset):
    """Attributes of the schema's types.  Raises TypeError for one that is unknown, missing or of another type."""
    for name in given:
        if name not in schema.attributes:
            known = f"its attributes are {', '.join(schema.attributes)}" if schema.attributes else "it has none"
            raise TypeError(f"{title} has no attribute {name!r}; {known}")
    for name, attribute in schema.attributes.items():
        if attribute.required and name not in given:
            raise TypeError(f"{title} needs the attribute {name!r}")
    return {name: body(value, opset, 0 if schema.name == "If" else None) if is_graph(value) else
            attribute_value(f"{title}: attribute {name!r}", schema.attributes[name].attribute_type, value)
            for name, value in given.items()}


# -- classes --------------------------------------------------------------------------------------
_classes = {}  # operator -> class


def _signature(schema):
    named = [inspect.Parameter("name", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    for name, attribute in sorted(schema.attributes.items()):
        default = inspect.Parameter.empty if attribute.required else attribute.default_value
        named.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default))
    return inspect.Signature(named)


def _class_of(name):
    if name not in _classes:
        every = {a for version in operators.versions(name) for a in operators.schema(name, version).attributes}
        schema = operators.schema(name, operators.default_opset(name))
        made = type("ONNX" + name, (ONNXOp,), {
            "__module__": __name__, "__doc__": _Documentation(), "__signature__": _signature(schema), "_operator": name,
            **{a: _Attribute(a) for a in every}})
        _classes.setdefault(name, made)  # another thread may have been faster
    return _classes[name]


def __getattr__(name):
    if not name.startswith("ONNX") or not has_onnx_node(name[len("ONNX"):]):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _class_of(name[len("ONNX"):])


def __dir__():
    return sorted([*globals(), *("ONNX" + name for name in operators.names())])


def classes_made():
    """{operator: class} of those that somebody asked for."""
    return dict(_classes)


def library_class(domain, op, opset):
    """The class of an operator in a graph; None if the table lacks it."""
    known = operators.exists(op) and operators.domain_of(op) == ("" if domain == "ai.onnx" else domain)
    return _class_of(op) if known and opset >= operators.versions(op)[0] else None


def has_onnx_node(name):
    """Is there an ONNX operator of this name (without "ONNX")?"""
    return operators.exists(name)


def get_onnx_node(name):
    """The class of an ONNX operator by its name (without "ONNX").  Raises UnsupportedOpError if there is none."""
    operators.domain_of(name)
    return _class_of(name)


__all__ = ["ONNXOp", "get_onnx_node", "has_onnx_node"]

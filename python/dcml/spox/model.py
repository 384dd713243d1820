"""build(): from variables to an ONNX model.

The one idea: a value is computed in the innermost graph that all its uses can see.  Graphs are visited from the
outside in, and a node that two graphs use moves to the one around both; then each graph writes its nodes in one
order of the whole.
Must not know: types or values of operators.
"""
import numpy as np

from . import attributes as attrs
from . import types
from .var import Argument, Initializer, Var

OLDEST = 14  # the ai.onnx that a model imports at least


class BuildError(Exception):
    """A subgraph's argument is used where it is not visible, or the model cannot be of one version."""


def argument(typ):
    """A variable of a type that may be an input of a model.  Raises TypeError for anything but a Type."""
    from .control import new_argument
    if not isinstance(typ, types.Type) or type(typ) is types.Type:
        raise TypeError(f"argument() takes a Tensor, Sequence or Optional type, got {typ!r}")
    return new_argument(typ)


def build(inputs, outputs, *, drop_unused_inputs=False):
    """A model that computes the outputs from the inputs.

    inputs: {name: Var made by argument()}.  outputs: {name: Var}.  Their order is the model's.
    drop_unused_inputs: leave out inputs that the outputs do not depend on.
    Returns an onnx.ModelProto, which imports the newest versions of operators used; older ones are converted.
    Raises TypeError for what is no such Var, KeyError if the outputs depend on an argument that is not among the inputs,
    ValueError without outputs, for a type that is not known, or for names that are used twice, and BuildError.
    """
    _check(inputs, outputs)
    main = _Graph(None, None, [inputs[name] for name in inputs], list(outputs.values()))
    scopes = _Scopes(main)
    missing = [node for node in scopes.loose if all(node is not v._node for v in inputs.values())]
    if missing:
        raise KeyError(f"the outputs depend on {len(missing)} argument{'s' * (len(missing) > 1)} that are not among the inputs "
                       f"{list(inputs)}")
    import onnx
    writer = _Writer(scopes, [*inputs, *outputs])
    for name, var in inputs.items():
        writer.names[var._node, 0] = name
    model = onnx.ModelProto(producer_name="dcml.spox")
    used = {name: var for name, var in inputs.items() if not drop_unused_inputs or var._node in scopes.arguments}
    writer.write(main, model.graph, "dcml_graph", "", used, outputs)
    for domain, version in sorted(writer.versions.items()):
        model.opset_import.add(domain=domain, version=version)
    newer = writer.versions[""] > 23
    model.ir_version = max(10, onnx.helper.find_min_ir_version_for(list(model.opset_import), ignore_unknown=True) if newer else 10)
    return model


def _check(inputs, outputs):
    for what, values in (("inputs", inputs), ("outputs", outputs)):
        if not hasattr(values, "items"):
            raise TypeError(f"build(): {what} are a dict from names to Vars, not {type(values).__name__}")
        for name, var in values.items():
            if type(name) is not str or not name:
                raise TypeError(f"build(): a name of {what} is a str that is not empty, not {name!r}")
            if type(var) is not Var:
                raise TypeError(f"build(): {what}[{name!r}] is a Var, not {type(var).__name__}")
    for name, var in inputs.items():
        if var._node.op is not Argument:
            raise TypeError(f"build(): inputs[{name!r}] must be made by argument(), not by {var._node.op.name}")
    if not outputs:
        raise ValueError("build(): a model needs outputs")
    twice = set(inputs) & set(outputs)
    if twice:
        raise ValueError(f"build(): {sorted(twice)[0]!r} names an input and an output")
    if len({var._node for var in inputs.values()}) < len(inputs):
        raise ValueError("build(): an argument is given twice among the inputs")


# -- where nodes belong -----------------------------------------------------------------------------------
class _Graph:
    """The main graph, or a subgraph: who owns it, under which attribute, what it takes and gives."""

    __slots__ = ("owner", "key", "arguments", "results", "nodes")

    def __init__(self, owner, key, arguments, results):
        self.owner, self.key, self.arguments, self.results, self.nodes = owner, key, arguments, results, []


class _Scopes:
    """For each node the graph that computes it; ``loose`` are arguments that no subgraph declares."""

    def __init__(self, main):
        self.main, self.of, self.bodies = main, {}, {}
        self._order = self._topological()
        self.arguments = {node for node in self._order if type(node) is not _Graph and node.op is Argument}
        graphs = [main]
        for graph in graphs:  # grows: subgraphs come behind the graph that holds them
            self._place(graph, graphs)
        declared = {v._node: graph for graph in graphs for v in graph.arguments}
        self.loose = [node for node in self.arguments if node not in declared]
        for node in self.arguments & declared.keys():
            if node in self.of and all(graph is not declared[node] for graph in self._path(self.of[node])):
                raise BuildError("an argument of a subgraph is used outside of it; "
                                 "a function given to an operator must not keep what it is given")
        for node in self._order:
            if type(node) is not _Graph and node in self.of:
                self.of[node].nodes.append(node)

    def _bodies(self, node):
        if node.graphs and node not in self.bodies:
            self.bodies[node] = [_Graph(node, key, g.arguments, g.results) for key, g in node.graphs.items()]
        return self.bodies.get(node, ())

    def _topological(self):
        """All nodes, each behind what it needs, those of bodies included, depth first."""
        order, seen, stack = [], {self.main}, [(self.main, iter([v._node for v in self.main.results]))]
        while stack:
            item, rest = stack[-1]
            for needed in rest:
                if needed not in seen:
                    seen.add(needed)
                    if type(needed) is _Graph:
                        stack.append((needed, iter([v._node for v in needed.results])))
                    else:
                        stack.append((needed, iter([*[v._node for v in needed.inputs if v is not None], *self._bodies(needed)])))
                    break
            else:
                order.append(item)
                stack.pop()
        return order

    def _place(self, graph, graphs):
        """Puts what the graph needs into it, or into a graph around it and the other users."""
        stack = [v._node for v in graph.results]
        while stack:
            node = stack.pop()
            before = self.of.get(node)
            scope = graph if before is None else self._around(graph, before)
            if scope is before:
                continue  # and so is all that it needs
            self.of[node] = scope
            if before is None:
                graphs += self._bodies(node)
            stack += [v._node for v in node.inputs if v is not None]

    def _path(self, graph):
        path = [graph]
        while path[-1].owner is not None:
            path.append(self.of[path[-1].owner])
        return path

    def _around(self, a, b):
        """The innermost graph that holds both."""
        if a is b:
            return a
        holders = set(map(id, self._path(a)))
        return next(graph for graph in self._path(b) if id(graph) in holders)


# -- names and protos ---------------------------------------------------------------------------------------
class _Writer:
    def __init__(self, scopes, taken):
        self.names, self.versions = {}, {"": OLDEST}
        self._scopes, self._taken, self._counts = scopes, set(taken), {}
        for node in scopes._order:
            for domain, version in _requirements(node):
                self.versions[domain] = max(version, self.versions.get(domain, 0))

    def numbered(self, base):
        """A name of a node that nothing else has."""
        while True:
            k = self._counts.get(base, 0)
            self._counts[base] = k + 1
            name = f"{base}_{k}"
            if name not in self._taken:
                return name

    def fresh(self, base):
        """A name of a value that nothing else has."""
        name = base
        while name in self._taken:
            name = self.numbered(base)
        self._taken.add(name)
        return name

    def name_of(self, var):
        return self.names[var._node, var._index]

    def write(self, graph, proto, name, prefix, inputs, outputs):
        """Fills a GraphProto.  inputs, outputs: {name: Var}; of a subgraph a list, whose names are made."""
        proto.name = name
        if not isinstance(inputs, dict):
            for var in inputs:
                self.names[var._node, 0] = self.fresh(f"{self.numbered(prefix + 'Argument')}_arg")
            inputs = {self.name_of(var): var for var in inputs}
        for label, var in inputs.items():
            _declare(proto.input, label, var, "input", graph)
        for node in graph.nodes:
            if node.op is not Argument:
                self._write_node(node, proto, prefix)
        last = self.numbered(prefix + "Introduce")
        if not isinstance(outputs, dict):
            outputs = {self.fresh(f"{last}_outputs_{k}"): var for k, var in enumerate(outputs)}
        for k, (label, var) in enumerate(outputs.items()):
            proto.node.add(op_type="Identity", name=f"{last}_id{k}", input=[self.name_of(var)], output=[label])
            _declare(proto.output, label, var, "output", graph)

    def _write_node(self, node, proto, prefix):
        name = self.numbered(prefix + node.op.name)
        for k, field in enumerate(node.fields):
            self.names[node, k] = self.fresh(f"{name}_{field}")
        given = ["" if v is None else self.name_of(v) for v in node.inputs]
        made = [self.names[node, k] for k in range(len(node.fields))]
        if node.op is Initializer:
            proto.initializer.append(attrs.tensor_proto(node.attributes[0][2], made[0]))
        elif hasattr(node.op, "nodes"):
            proto.node.extend(node.op.nodes(name, given, made, self))
        else:
            self._write_operator(node, proto, name, given, made)

    def _write_operator(self, node, proto, name, given, made):
        written = proto.node.add(op_type=node.op.name, domain=node.op.domain, name=name)
        written.input.extend(given)
        written.output.extend(made)
        for label, kind, value in node.attributes:
            attrs.write(written.attribute.add(), label, kind, value)
        for body in self._scopes._bodies(node):
            label = f"{name}_{body.key}"
            attribute = written.attribute.add(name=body.key, type=5)
            self.write(body, attribute.g, label, f"{label}__", body.arguments, body.results)
        if not node.graphs and node.op.since != self.versions[node.op.domain]:
            self._convert(node, written, proto)

    def _convert(self, node, written, proto):
        """The node as the version that the model imports has it."""
        from .convert import converted
        newer = converted(node, written, self.versions[node.op.domain], self.fresh)
        if newer is not None:
            del proto.node[-1]
            proto.node.extend(newer)


def _requirements(node):
    if type(node) is _Graph or node.op in (Argument, Initializer):
        return ()
    return node.op.requirements if hasattr(node.op, "requirements") else ((node.op.domain, node.op.since),)


def _declare(place, name, var, what, graph):
    """An input or output with its type: a model's have a shape, those of bodies may have any."""
    if var.type is None or graph.owner is None and isinstance(var.type, types.Tensor) and var.type.shape is None:
        raise ValueError(f"build(): the {what} {name!r} needs a type with a shape, it has {var.type}")
    place.add(name=name).type.CopyFrom(types.to_proto(var.type))


def initializer(value, dtype=None):
    """A constant that is an initializer of the model, not a node.  value: what numpy.array takes."""
    from .infer import known
    from .var import Node
    array = attrs.convert(Initializer, "value", "tensor", np.array(value, dtype))
    array.flags.writeable = False
    return known(Node(Initializer, (), [("value", "tensor", array)], {}, ["arg"]), 0, array)

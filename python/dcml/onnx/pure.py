"""Operators written with numpy: a function whose body is a program becomes an implementation of an operator.

The one idea: for each node the function is translated as a program, with the types and shapes of the node's arrays and
its attributes as values of Python; the graph takes the node's place.  So it has a gradient and runs like any program.
Must not know: how programs are translated, or who chooses among implementations.
"""
import ast
import inspect
from types import SimpleNamespace

from .. import _core

_NEW = {}  # operators that only a function defines: name -> _Operator


def python_pure_op_implementation(function=None, *, name=None, **compute):
    """Defines the implementation "pure" of an ONNX operator, or a new operator, by a numpy function.

    function: its parameters are inputs, outputs and attributes of the operator, by their names in ONNX, or else inputs
        and then outputs in their order.  An output is one that the body assigns, first as a whole: ``Y[:] = ...``;
        absent optional inputs are None; a parameter with a default value is an attribute.  The body is one of a program
        (dcml.program): numpy expressions, reductions, slices, products, maps.
    name: the operator's name, by default the function's.
    compute: names for the body, each with a function of the node, or of (node, state, sdfg), that gives its value:
        ``@python_pure_op_implementation(axes=lambda node: node.axes)``.
    Returns the function.  What the body says is read when a node is implemented, and not understood then raises
    UnsupportedOpError, naming file and line.

    >>> import numpy as np
    >>> @python_pure_op_implementation
    ... def Softplus(X, Y):
    ...     Y[:] = np.log(1 + np.exp(X))  # doctest: +SKIP
    """
    def define(f):
        _Operator(f, name or f.__name__, compute).register()
        return f
    return define if function is None else define(function)


class _Operator:
    """A function as the definition of an operator."""

    def __init__(self, function, name, compute):
        from ..program.source import Source
        self.function, self.name, self.compute = function, name, compute
        self.source = Source(function, "operator", name)
        parameters = inspect.signature(function).parameters.values()
        if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
            raise self.source.error(self.source.tree, "a variable number of parameters; name each")
        self.parameters = [p.name for p in parameters]
        self.defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
        self.assigned = _assigned(self.source.tree)
        if not any(n in self.assigned for n in self.parameters):
            raise self.source.error(self.source.tree, "no output is assigned; write for example Y[:] = ...")

    def register(self):
        from .nodes import operators
        if self.name not in _NEW and operators.exists(self.name):
            from .forward_implementation_abc import ONNXForward
            from .op_implementations import op_implementation
            members = {"forward": staticmethod(self.forward), "forward_can_be_applied": staticmethod(self.can_be_applied),
                       "__doc__": self.function.__doc__}
            op_implementation(op=self.name, name="pure")(type(self.name, (ONNXForward,), members))
        else:
            _NEW[self.name] = self

    # -- as the implementation of a node ---------------------------------------------------------
    @staticmethod
    def can_be_applied(node, state, sdfg):
        """Programs compute with all of its types."""
        from ..program.array import NAMES
        edges = [*state.in_edges(node), *state.out_edges(node)]
        return all(getattr(sdfg.arrays[e.data.data].dtype, "name", None) in NAMES for e in edges)

    def forward(self, node, state, sdfg):
        from ..sdfg import SDFG
        given = {e.dst_conn: sdfg.arrays[e.data.data] for e in state.in_edges(node)}
        made = {e.src_conn: sdfg.arrays[e.data.data] for e in state.out_edges(node)}
        attributes = {a: getattr(node, a) for a in node.schema.attributes}
        names = [[p.name for p in side] for side in (node.schema.inputs, node.schema.outputs)]
        return SDFG(self.graph(node, state, sdfg, given, made, attributes, *names))

    def graph(self, node, state, sdfg, given, made, attributes, inputs, outputs):
        """The core Graph for arrays {connector: descriptor}; inputs, outputs: names of all parameters."""
        from ..program.api import instance
        roles = self.roles(inputs, outputs, attributes)
        values = {name: self.value_of(f, node, state, sdfg) for name, f in self.compute.items()}
        arrays, results = {}, {}
        for parameter, (role, name) in roles.items():
            if role == "input":
                several = sorted((c for c in given if c.startswith(name + "__")), key=lambda c: int(c.rpartition("__")[2]))
                arrays[parameter] = [(c, given[c]) for c in several] or ((name, given[name]) if name in given else None)
            elif role == "output":
                results[parameter] = (name, made.get(name))
            elif name not in values:
                value = attributes.get(name)
                values[parameter] = self.defaults.get(parameter) if value is None else value
        return instance(self.source, self.function, arrays, results, values, self.name)

    def value_of(self, function, node, state, sdfg):
        takes = len(inspect.signature(function).parameters)
        return function(node) if takes == 1 else function(node, state, sdfg)

    def roles(self, inputs, outputs, attributes):
        """{parameter: (role, name in the operator)}."""
        known = {**dict.fromkeys(attributes, "attribute"), **dict.fromkeys(inputs, "input")}
        roles, order = {}, {"input": iter(inputs), "output": iter(outputs)}
        by_name = all(p in known or p in outputs or p in self.compute or p in self.defaults for p in self.parameters)
        for p in self.parameters:
            role = "output" if p in self.assigned else "attribute" if p in self.compute or p in self.defaults \
                and p not in inputs else known.get(p, "input") if by_name or known.get(p) == "attribute" else "input"
            name = p if by_name or role == "attribute" else next(order[role], None)
            if name is None:
                raise self.source.error(self.source.tree, f"parameter {p} is no {role} of {self.name}; those are "
                                        f"{', '.join(inputs if role == 'input' else outputs)}", _core.ModelError)
            roles[p] = role, name
        return roles


def _assigned(tree):
    """Names that are written by subscript, or as outputs of tasklets."""
    names = set()
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
        for target in targets:
            for part in target.elts if isinstance(target, ast.Tuple) else [target]:
                if isinstance(part, ast.Subscript) and isinstance(part.value, ast.Name):
                    names.add(part.value.id)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.RShift) and isinstance(node.left, ast.Name):
            names |= {n.id for n in ast.walk(node.right) if isinstance(n, ast.Name)}
        if isinstance(node, ast.keyword) and node.arg == "out" and isinstance(node.value, ast.Name):
            names.add(node.value.id)
    return names


# -- operators without a row ----------------------------------------------------------------------
def define(graph):
    """Replaces, in a core Graph, nodes of operators that only functions define; types of the graph are inferred up to
    the last of them.  Raises what inference and translation raise."""
    while _NEW:
        waiting = [node for node in graph.operators(True) if node[1] in _NEW]
        if not waiting:
            return
        _replace(graph, *waiting[0])


def defined(graph):
    """The graph, or, where it has operators that only functions define, a copy without them."""
    if not any(node[1] in _NEW for node in (graph.operators(True) if _NEW else ())):
        return graph
    copy = graph.clone()
    define(copy)
    return copy


def _replace(graph, id, op, domain, opset, description, inputs, outputs, known):
    from ..sdfg.data import Data
    operator = _NEW[op]
    try:
        graph.run_pass("infer")
    except _core.UnsupportedOpError:
        pass  # at the latest at this node; what comes before it has types now
    untyped = [n for n in inputs if n and not graph.info(n)[0]]
    if untyped:
        graph.run_pass("infer")
        raise _core.ModelError(f"{description}: the type of its input {untyped[0]!r} is not known")
    taken = [p for p in operator.parameters if p not in operator.assigned and p not in operator.defaults and p not in operator.compute]
    written = [p for p in operator.parameters if p in operator.assigned]
    if len(inputs) > len(taken) or len(outputs) > len(written):
        raise _core.ModelError(f"{description} has {len(inputs)} inputs and {len(outputs)} outputs, "
                               f"expected {len(taken)} and {len(written)}")
    attributes = graph.attributes(id)
    unknown = set(attributes) - set(operator.defaults)
    if unknown:
        raise _core.ModelError(f"{description} has no attribute {sorted(unknown)[0]!r}; {', '.join(operator.defaults) or 'it has none'}")
    given = {p: Data._handle(graph, n) for p, n in zip(taken, inputs) if n}
    node = SimpleNamespace(**{**operator.defaults, **attributes}, label=description)
    inner = operator.graph(node, None, None, given, {}, attributes, taken, written)
    names = {p: n for p, n in [*zip(taken, inputs), *zip(written, outputs)] if n}
    graph.replace(id, inner, names)

"""inline(): a model as an operator of its own.

The one idea: the model's nodes are written into the graph that uses it, under names that nothing else there has.
Must not know: where in the model it is written.
"""
import itertools


from . import types
from .model import OLDEST, initializer
from .control import fact_of
from .convert import convert_model
from .var import LAZY, Node, Var, make


def inline(model):
    """A function that applies an existing model to variables.

    model: onnx.ModelProto; its functions are inlined, its opsets may be older than those around it.
    Returns a function of the model's inputs, by position or by name, that gives {output name: Var}.  An input that has
    an initializer may be left out.  It raises TypeError for missing, double or unknown inputs, or inputs whose types the model
    does not take.
    """
    import onnx
    if not isinstance(model, onnx.ModelProto):
        raise TypeError(f"inline() takes an onnx.ModelProto, not {type(model).__name__}")
    op = _Inlined(model)

    def inlined(*args, **kwargs):
        return op.apply(args, kwargs)
    return inlined


class _Inlined:
    """The op of a node that stands for a model."""

    domain, name, since, draws, min_input = "", "Inline", 0, False, 0

    def __init__(self, model):
        import onnx.inliner
        if model.functions:
            model = onnx.inliner.inline_local_functions(model)
        self._model = onnx.ModelProto()
        self._model.CopyFrom(model)
        graph = self._model.graph
        self.inputs, self.outputs = [i.name for i in graph.input], [o.name for o in graph.output]
        self._version = max((i.version for i in model.opset_import if i.domain in ("", "ai.onnx")), default=OLDEST)
        self.requirements = {(i.domain if i.domain != "ai.onnx" else "", i.version) for i in model.opset_import} | {("", OLDEST)}
        self._takes = {i.name: types.from_proto(i.type, symbols=False) for i in graph.input}
        self._gives = [types.from_proto(o.type, symbols=False) for o in graph.output]
        given = set(self.inputs)
        self._defaults = {t.name: t for t in graph.initializer if t.name in given}
        constants = [onnx.helper.make_node("Constant", [], [t.name], value=t) for t in graph.initializer if t.name not in given]
        constants += [onnx.helper.make_node("Constant", [], [t.values.name], sparse_value=t) for t in graph.sparse_initializer]
        nodes = [*constants, *graph.node]
        del graph.initializer[:], graph.sparse_initializer[:], graph.node[:], graph.value_info[:]
        graph.node.extend(nodes)

    function = "inline"

    def apply(self, args, kwargs):
        """{output name: Var}"""
        said = f"the model takes {self.inputs}"
        if len(args) > len(self.inputs):
            raise TypeError(f"inline(): {len(args)} inputs were given, {said}")
        given = dict(zip(self.inputs, args))
        for name, var in kwargs.items():
            if name in given:
                raise TypeError(f"inline(): input {name!r} is given twice, {said}")
            if name not in self._takes:
                raise TypeError(f"inline(): there is no input {name!r}, {said}")
            given[name] = var
        inputs = [self._input(name, given, said) for name in self.inputs]
        node = Node(self, tuple(inputs), [], {}, [f"outputs_{k}" for k in range(len(self.outputs))])
        value = LAZY if all(v._value is not None for v in inputs) else None
        return {name: make(node, k, kind, value, fact_of(kind)) for k, (name, kind) in enumerate(zip(self.outputs, self._gives))}

    def _input(self, name, given, said):
        if name not in given:
            if name not in self._defaults:
                raise TypeError(f"inline(): input {name!r} is missing, {said}")
            from onnx import numpy_helper
            return initializer(numpy_helper.to_array(self._defaults[name]))
        var = given[name]
        if type(var) is not Var:
            raise TypeError(f"inline(): input {name!r} is a Var, not {type(var).__name__}")
        declared = self._takes[name]
        if declared is not None and var.type is not None and not declared._accepts(var.type):
            raise TypeError(f"inline(): input {name!r} is {var.type}, the model takes {declared}")
        return var

    def evaluate(self, values):
        """What it gives for constants; None if it cannot run."""
        from .. import _core
        from ..onnx import ONNXModel
        try:
            results = ONNXModel("inline", self._model, infer_shapes=False)(*values)
        except _core.Error:
            return [None] * len(self.outputs)
        return results if isinstance(results, tuple) else (results,)

    def nodes(self, name, given, made, writer):
        """NodeProtos under the names of the graph that they are written into."""
        model = self._model
        if self._version != writer.versions[""] and any(n.domain in ("", "ai.onnx") for n in model.graph.node):
            model = convert_model(model, writer.versions[""], name)
        renamed = {"": "", **dict(zip(self.outputs, made)), **dict(zip(self.inputs, given))}
        extra = [(i, o) for i, o in zip(self.outputs, made) if i in self.inputs]  # an input that is an output as it is
        graph = type(model.graph)()
        graph.CopyFrom(model.graph)
        _rename(graph, renamed, name, writer)
        first = [_identity(renamed[i], o) for i, o in extra]
        return [*graph.node, *first]


def _identity(source, target):
    from onnx import helper
    return helper.make_node("Identity", [source], [target])


def _rename(graph, renamed, name, writer):
    """Gives each value of the graph a name of its own; bodies see the names of the graph around them."""
    def new(old):
        if old not in renamed:
            renamed[old] = writer.fresh(f"{name}__{old}")
        return renamed[old]
    for tensor in itertools.chain(graph.input, graph.initializer, graph.output, graph.value_info):
        tensor.name = new(tensor.name)
    for tensor in graph.sparse_initializer:
        tensor.values.name = new(tensor.values.name)
    for node in graph.node:
        if node.name:
            node.name = writer.fresh(f"{name}__{node.name}")
        for names in (node.input, node.output):
            for k, old in enumerate(names):
                names[k] = new(old)
        for attribute in node.attribute:
            for body in [attribute.g] * attribute.HasField("g") + list(attribute.graphs):
                _rename(body, dict(renamed), name, writer)

"""torch.compile(model, backend="dcml"): dynamo's graphs go the way of any module.

Must not know: ATen rows or the core.
"""
import torch

from .module import DaceModule


def backend(graph_module, example_inputs, **_):
    """The backend for torch.compile, registered as the entry point ``torch_dynamo_backends: dcml``.

    graph_module: dynamo's module, whose arguments are example_inputs (tensors, and numbers for symbolic extents).
    Returns a callable of the same arguments; its results are differentiable.

    >>> compiled = torch.compile(torch.nn.Linear(2, 3), backend=backend)
    >>> compiled(torch.ones(4, 2)).shape
    torch.Size([4, 3])
    """
    _inline_checkpoints(graph_module)
    graph_module = _copied(graph_module)  # dynamo passes what its own graph takes
    numbers, extents = _take_numbers(graph_module), _take_extents(graph_module)
    if not torch.is_grad_enabled():  # a condition of this graph
        _disable_grad(graph_module.graph)
    graph_module.recompile()
    module = DaceModule(graph_module, backward=True, sdfg_name="dynamo")
    if not numbers and not extents:
        return torch.compiler.disable(module.forward)

    def call(*args):
        return module.forward(*[a.item() if k in numbers else a for k, a in enumerate(args) if k not in extents])
    return torch.compiler.disable(call)


def _inline_checkpoints(graph_module):
    """Regions of torch.utils.checkpoint become plain calls: what to compute again is the core's to decide."""
    for inner in [m for m in graph_module.modules() if isinstance(m, torch.fx.GraphModule)]:
        for node in list(inner.graph.nodes):
            if node.target is not torch.ops.higher_order.tag_activation_checkpoint:
                continue
            with inner.graph.inserting_before(node):
                call = inner.graph.call_module(node.args[0].target, node.args[1:])
            node.replace_all_uses_with(call)
            inner.graph.erase_node(node)
        inner.recompile()


def _copied(graph_module):
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(graph_module.graph, {}))
    return torch.fx.GraphModule(graph_module, graph)


def _disable_grad(graph):
    first = next(n for n in graph.nodes if n.op != "placeholder")
    with graph.inserting_before(first):
        graph.call_function(torch._C._set_grad_enabled, (False,))
    with graph.inserting_before(next(n for n in graph.nodes if n.op == "output")):
        graph.call_function(torch._C._set_grad_enabled, (True,))


def _take_extents(graph_module):
    """Positions of arguments that are extents of others (dynamic=True); the graph now asks those others."""
    graph, owners, taken = graph_module.graph, {}, {}
    places = [n for n in graph.nodes if n.op == "placeholder"]
    for place in places:
        if isinstance(tensor := place.meta.get("example_value"), torch.Tensor):
            for axis, extent in enumerate(tensor.shape):
                if isinstance(extent, torch.SymInt):
                    owners.setdefault(extent.node.expr, (place, axis))
    for position, place in enumerate(places):
        value = place.meta.get("example_value")
        if isinstance(value, torch.SymInt) and value.node.expr in owners:
            taken[position] = place
            with graph.inserting_after(places[-1]):
                place.replace_all_uses_with(graph.call_method("size", owners[value.node.expr]))
    for place in taken.values():
        graph.erase_node(place)
    return set(taken)


def _take_numbers(graph_module):
    """Positions of arguments that are tensors only to carry a Python float (dynamic=True); the graph now takes the
    float itself, and is captured for each value of it."""
    numbers = set()
    places = [n for n in graph_module.graph.nodes if n.op == "placeholder"]
    for position, place in enumerate(places):
        reads = list(place.users)
        if reads and all(n.op == "call_method" and n.target == "item" for n in reads):
            numbers.add(position)
            for read in reads:
                read.replace_all_uses_with(place)
                graph_module.graph.erase_node(read)
    return numbers

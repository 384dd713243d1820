"""Which results of a program are views of what it is given, and in which order the axes of others lie.

The one idea: a chain of operators that only look at the memory of an argument or parameter runs as it is, on that of each call.
Must not know: graphs of the core.
"""
import operator

import torch

from ..aten import extent

_NUMBERS = (torch.SymInt, int)
_ARITHMETIC = ("_operator", "operator")


def view_of(value, held):
    """(values, function of tensors that have them) if a value is a view of one of these, else None.

    held: the values that arguments and the module's own tensors have after the call.
    """
    if not _chain_to(value, held):
        return None
    needed, queue = set(), [value]
    for node in queue:  # grows
        if node not in needed:
            needed.add(node)
            queue += () if node in held else node.all_input_nodes
    if not all(node in held or _is_view(node) or _is_number(node) for node in needed):
        return None
    ordered = [node for node in value.graph.nodes if node in needed]
    given = [node for node in ordered if node in held]
    graph = torch.fx.Graph()
    made = {node: graph.placeholder(node.name) for node in given}
    for node in ordered:
        if node not in made:
            made[node] = graph.node_copy(node, made.__getitem__)
            made[node].meta = {}
    graph.output(made[value])
    return given, torch.fx.GraphModule(torch.nn.Module(), graph).forward


def _chain_to(value, held):
    while value not in held and value.op == "call_function" and (_is_view(value) or value.target is operator.getitem):
        value = value.args[0]
    return value in held


def _is_view(node):
    """Is the result of the operator memory of its first argument?  By its schema."""
    if node.target is operator.getitem:
        return True
    if not isinstance(node.target, torch._ops.OpOverload) or not isinstance(node.args[0] if node.args else None, torch.fx.Node):
        return False
    schema = node.target._schema
    aliases = [argument.alias_info for argument in schema.arguments]
    return (aliases[0] is not None and not any(a is not None and a.is_write for a in aliases)
            and any(result.alias_info is not None for result in schema.returns))


def _is_number(node):
    """Is it an extent of an argument, or made of such?"""
    if node.op != "call_function" or not isinstance(node.meta.get("val"), _NUMBERS):
        return False
    return str(node.target) == "aten.sym_size.int" or getattr(node.target, "__module__", "") in _ARITHMETIC


def order_of(tensor):
    """The axes of a dense tensor by how far apart their elements lie, from the farthest on; None where that is their own
    order."""
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided or tensor.dim() < 2:
        return None
    sizes, strides = ([_hint(v) for v in values] for values in (tensor.shape, tensor.stride()))
    if 0 in sizes:
        return None
    order = sorted(range(tensor.dim()), key=lambda axis: (-strides[axis], axis))
    inner = 1
    for axis in reversed(order):
        if sizes[axis] != 1 and strides[axis] != inner:
            return None
        inner *= sizes[axis]
    places = [axis for axis in order if sizes[axis] != 1]
    return tuple(order) if places != sorted(places) else None


_ANY = 1009


def _hint(number):
    """The value of an extent in the call that is traced, or one that it may have, where values tell it."""
    number = extent(number)
    if isinstance(number, int):
        return number
    node = number.node
    return node.hint if node.has_hint() else int(node.expr.subs(dict.fromkeys(node.expr.free_symbols, _ANY)))

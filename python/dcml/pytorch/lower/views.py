"""Which results of a program are views of its arguments, and in which order the axes of others lie.

The one idea: a chain of operators that only look at an argument's memory runs as it is, on the argument of each call.
Must not know: graphs of the core.
"""
import operator

import torch

from ..aten import extent

_NUMBERS = (torch.SymInt, int)
_ARITHMETIC = ("_operator", "operator")


def view_of(value, leaf_of):
    """(positions of leaves, function of them) if a value is a view of an argument, else None.

    leaf_of: {name of a placeholder: position of its leaf} of arguments that the program does not change.
    """
    if not _chain_to_leaf(value, leaf_of):
        return None
    needed, queue = set(), [value]
    for node in queue:  # grows
        if node not in needed:
            needed.add(node)
            queue += node.all_input_nodes
    if not all(node.name in leaf_of if node.op == "placeholder" else _is_view(node) or _is_number(node) for node in needed):
        return None
    ordered = [node for node in value.graph.nodes if node in needed]
    leaves = [node for node in ordered if node.op == "placeholder"]
    graph, made = torch.fx.Graph(), {}
    for node in leaves + [node for node in ordered if node.op != "placeholder"]:
        made[node] = graph.node_copy(node, made.__getitem__)
        made[node].meta = {}
    graph.output(made[value])
    function = torch.fx.GraphModule(torch.nn.Module(), graph).forward
    return tuple([leaf_of[node.name] for node in leaves]), function


def _chain_to_leaf(value, leaf_of):
    while value.op == "call_function" and (_is_view(value) or value.target is operator.getitem):
        value = value.args[0]
    return value.op == "placeholder" and value.name in leaf_of


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
    order, or where values tell it."""
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided or tensor.dim() < 2:
        return None
    sizes, strides = ([_hint(v) for v in values] for values in (tensor.shape, tensor.stride()))
    if None in sizes or None in strides or 0 in sizes:
        return None
    order = sorted(range(tensor.dim()), key=lambda axis: (-strides[axis], axis))
    inner = 1
    for axis in reversed(order):
        if sizes[axis] != 1 and strides[axis] != inner:
            return None
        inner *= sizes[axis]
    places = [axis for axis in order if sizes[axis] != 1]
    return tuple(order) if places != sorted(places) else None


def _hint(number):
    """The value of an extent in the call that is traced, None if values tell it."""
    number = extent(number)
    return number if isinstance(number, int) else number.node.hint if number.node.has_hint() else None

"""What a program takes and gives, and which results depend on which inputs by operations that torch
differentiates.

The one idea: autograd's tape is the path from floating-point value to floating-point value; a gradient that is zero all
along such a path is a tensor of zeros, and one without a path is None.
Must not know: graphs of the core, or derivatives.
"""
import torch

from ..aten import extent
from .views import order_of

_NO_TAPE = {"aten.detach", "aten.zeros_like", "aten.ones_like", "aten.full_like", "aten.empty_like", "aten.rand_like",
            "aten.randn_like", "aten.randint_like", "aten.new_zeros", "aten.new_ones", "aten.new_full",
            "aten.new_empty", "aten.new_empty_strided", "aten.empty_permuted", "aten.linspace", "aten.logspace",
            "dcml_border.cotangent"}
_ARGUMENTS = {"dcml_border.give": (0, 1), "dcml_border.take": (0,), "aten.type_as": (0,)}  # on the tape, where not all are
_STATISTICS = ("aten.native_batch_norm", "aten._native_batch_norm_legit", "aten._batch_norm")


def placeholders(program):
    """{placeholder: its Spec} of a program."""
    return dict(zip(program.graph.find_nodes(op="placeholder"), program.inputs))


def outputs(program):
    """[(Spec, value)], likewise."""
    return list(zip(program.outputs, next(iter(program.graph.find_nodes(op="output"))).args[0]))


def output_shapes(program):
    """Extents of each output, None where it is no tensor."""
    values = [v.meta.get("val") if isinstance(v, torch.fx.Node) else v for _, v in outputs(program)]
    return [list(map(extent, v.shape)) if isinstance(v, torch.Tensor) else None for v in values]


def output_orders(program):
    """The order of the axes of each output in memory, None for its own order."""
    return [order_of(v.meta.get("val")) if isinstance(v, torch.fx.Node) else None for _, v in outputs(program)]


def freed(program, positions, is_flagged):
    """{value: position} of those user outputs, by position, that requires_grad_() makes leaves: on whose tape lies no
    placeholder for which is_flagged(specification)."""
    specs = list(placeholders(program).values())
    results = [(value, places) for (spec, value), places in zip(outputs(program), tapes_of(program))
               if spec.kind.name == "USER_OUTPUT"]
    found = [(*results[k], k) for k in positions]
    return {value: k for value, places, k in found if isinstance(value, torch.fx.Node) and value.op == "call_function"
            and not any(is_flagged(specs[p]) for p in places)}


def tapes_of(program, leaves=None):
    """[{positions among the program's placeholders, and such as are given in ``leaves`` = {value: position}}] for each
    of its outputs."""
    leaves = leaves or {}
    tape = {node: {k} if _is_float(node.meta.get("val")) else set() for k, node in enumerate(placeholders(program))}
    for node in program.graph.nodes:
        if node.op == "call_function":
            tape[node] = set().union(*[tape.get(arg, ()) for arg in _differentiated(node)])
            tape[node] = {leaves[node]} if node in leaves else tape[node]
    return [tape.get(out, set()) if isinstance(out, torch.fx.Node) else set() for _, out in outputs(program)]


def _differentiated(node):
    """Nodes whose history the result of this one continues."""
    name = str(node.target).rsplit(".", 1)[0] if isinstance(node.target, torch._ops.OpOverload) else ""
    value = node.meta.get("val")
    if name in _NO_TAPE or node.target is torch.ops.aten.view.dtype:
        return ()
    if not isinstance(value, (list, tuple)) and not _is_float(value):  # extents too
        return ()
    if name.startswith(_STATISTICS):
        return [n for n in node.args[:3] if isinstance(n, torch.fx.Node)]
    if name in _ARGUMENTS:
        return [node.args[k] for k in _ARGUMENTS[name]]
    return node.all_input_nodes


def _is_float(value):
    return isinstance(value, torch.Tensor) and (value.dtype.is_floating_point or value.dtype.is_complex)

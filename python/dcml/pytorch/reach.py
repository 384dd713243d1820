"""Which results of a captured program depend on which of its inputs by operations that torch differentiates.

The one idea: autograd's tape is the path from floating-point value to floating-point value; a gradient that is zero all
along such a path is a tensor of zeros, and one without a path is None.
Must not know: graphs of the core, or derivatives.
"""
import torch

_NO_TAPE = {"aten.detach", "aten.zeros_like", "aten.ones_like", "aten.full_like", "aten.empty_like", "aten.rand_like",
            "aten.randn_like", "aten.randint_like", "aten.new_zeros", "aten.new_ones", "aten.new_full",
            "aten.new_empty", "aten.new_empty_strided", "aten.empty_permuted", "dcml_border.cotangent"}
_ARGUMENTS = {"dcml_border.give": (0, 1), "dcml_border.take": (0,)}  # on the tape, where not all are
_STATISTICS = ("aten.native_batch_norm", "aten._native_batch_norm_legit", "aten._batch_norm")


def reached(program):
    """[{positions among the program's placeholders}] for each of its outputs."""
    tape, places = {}, 0
    for node in program.graph.nodes:
        if node.op == "placeholder":
            tape[node] = {places} if _is_float(node.meta.get("val")) else set()
            places += 1
        elif node.op == "call_function":
            tape[node] = set().union(*[tape.get(arg, ()) for arg in _differentiated(node)])
    outputs = next(n for n in program.graph.nodes if n.op == "output").args[0]
    return [tape.get(out, set()) if isinstance(out, torch.fx.Node) else set() for out in outputs]


def _differentiated(node):
    """Nodes whose history the result of this one continues."""
    name = str(node.target).rsplit(".", 1)[0] if isinstance(node.target, torch._ops.OpOverload) else ""
    value = node.meta.get("val")
    if name in _NO_TAPE or isinstance(value, torch.Tensor) and not _is_float(value):
        return ()
    if name.startswith(_STATISTICS):
        return [n for n in node.args[:3] if isinstance(n, torch.fx.Node)]
    if name in _ARGUMENTS:
        return [node.args[k] for k in _ARGUMENTS[name]]
    return node.all_input_nodes


def _is_float(value):
    return isinstance(value, torch.Tensor) and value.dtype.is_floating_point

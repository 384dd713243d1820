"""The row of control flow, torch.cond.

Both branches are computed and the condition selects, so that they fuse with what surrounds them.  A branch sees its
operands through the condition too: the gradient of a branch that is not taken is dropped before it reaches them, even
where it is infinite.
"""
import torch

from .builder import TABLE, Decline, meta


def _gated(b, operand, flag, taken):
    """The operand's value; a gradient flows into it only where the flag is as ``taken`` says."""
    if not isinstance(operand, torch.fx.Node):
        raise Decline("an operand that is no tensor")
    held = b.env[operand]
    if not isinstance(held, str) or not meta(operand).dtype.is_floating_point:
        return held
    return b.op("Where", flag, *((held, b.stop(held)) if taken else (b.stop(held), held)))


def _branch(b, graph_module, operands, flag, taken):
    """Values of a branch's outputs.  What it asserts must hold only if it is taken."""
    before = len(b.checks)
    outputs = b.inline(graph_module, [_gated(b, x, flag, taken) for x in operands])
    excuse = b.op("Not", flag) if taken else flag
    b.checks[before:] = [(b.op("Or", excuse, name), *rest) for name, *rest in b.checks[before:]]
    return outputs


def _cond(b, n, condition, yes, no, operands):
    flag = b.reshape(b(condition, torch.bool), [])
    pairs = zip(_branch(b, b.env[yes], operands, flag, True), _branch(b, b.env[no], operands, flag, False))
    return [None if a is None else b.op("Where", flag, a, c) for a, c in pairs]


TABLE[str(torch.ops.higher_order.cond)] = _cond

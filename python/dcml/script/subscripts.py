"""Indexing: A[0], A[i], A[1:-1, ::2] as Slice and Gather, with numpy's meaning.

The one idea: all slices are one Slice; each index takes its dimension away by a Gather, in an order that leaves the places
of the others as they were.  Behind an ellipsis dimensions are counted from the end.
Must not know: statements.
"""
import ast

from .context import NOTHING

_LAST, _FIRST = (1 << 63) - 1, -(1 << 63)


def places(items, is_ellipsis):
    """[(axis, item)] of the parts of an index, axes behind an ellipsis negative; ValueError for a second ellipsis."""
    at = [k for k, item in enumerate(items) if is_ellipsis(item)]
    if len(at) > 1:
        raise ValueError("an index has one ellipsis at most")
    cut = at[0] if at else len(items)
    return [(k if k < cut else k - len(items), item) for k, item in enumerate(items) if k != cut]


def in_order(gathers):
    """Gathers in an order in which none moves the place of another: from the back, behind an ellipsis from the front."""
    return sorted([g for g in gathers if g[0] >= 0], key=lambda g: -g[0]) + sorted([g for g in gathers if g[0] < 0], key=lambda g: g[0])


def subscript(c, node, hint):
    from .expressions import static, value_of
    base = value_of(c, node.value)
    items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    try:
        parts = places(items, lambda item: isinstance(item, ast.Constant) and item.value is ...)
    except ValueError as error:
        raise c.function.fail(str(error), node) from None
    slices = [(axis, item) for axis, item in parts if isinstance(item, ast.Slice)]
    gathers = []
    for axis, item in parts:
        if isinstance(item, ast.Slice):
            continue
        known = static(c, item)
        if known is None or isinstance(known, (bool, float, str)):
            message = f"{ast.unparse(item)} is no index: an int, a slice or a tensor of ints is; op.Unsqueeze adds a dimension"
            raise c.function.fail(message, item)
        gathers.append((axis, item))
    kept = [(axis, item) for axis, item in slices if item.lower or item.upper or item.step]
    if kept:
        base = _slice(c, base, kept, hint if not gathers else "tmp")
    gathers = in_order(gathers)
    for k, (axis, item) in enumerate(gathers):
        base = _gather(c, base, axis, value_of(c, item), hint if k == len(gathers) - 1 else "tmp")
    if not kept and not gathers:
        base, = c.emit("Identity", [base], [hint])
    return base


def _gather(c, base, axis, index, hint):
    from .constants import attribute_proto
    return c.emit("Gather", [base, index], [hint], [attribute_proto("axis", "INT", axis)] if axis else [])[0]


def _slice(c, base, slices, hint):
    starts, ends, steps = [], [], []
    for _, item in slices:
        step = _bound(c, item.step, 1)
        if step == 0:
            raise c.function.fail("a slice's step is not 0", item)
        if not isinstance(step, int) and not (item.lower and item.upper):
            raise c.function.fail("a slice whose step is computed needs a start and an end: "
                                  "which they are depends on the step's sign", item)
        backward = isinstance(step, int) and step < 0
        starts.append(_bound(c, item.lower, _LAST if backward else 0))
        ends.append(_bound(c, item.upper, _FIRST if backward else _LAST))
        steps.append(step)
    inputs = [base, _joined(c, starts, "start"), _joined(c, ends, "end"), c.constant([axis for axis, _ in slices], "axes")]
    if steps != [1] * len(steps):
        inputs.append(_joined(c, steps, "step"))
    return c.emit("Slice", inputs, [hint])[0]


def _bound(c, node, fallback):
    """An int, or a Value of one element."""
    from .expressions import static, value_of
    if node is None:
        return fallback
    known = static(c, node)
    if known is None:
        return fallback
    if known is not NOTHING and hasattr(known, "__index__") and not isinstance(known, bool):
        return max(_FIRST, min(_LAST, known.__index__()))
    if known is not NOTHING:
        raise c.function.fail(f"{ast.unparse(node)} is no bound of a slice: an int or a tensor of one is", node)
    return value_of(c, node)


def _joined(c, bounds, hint):
    """A tensor of ints and Values."""
    from .constants import attribute_proto
    if all(isinstance(b, int) for b in bounds):
        return c.constant(bounds, hint)
    parts = []
    for bound in bounds:
        if isinstance(bound, int):
            parts.append(c.constant([bound], hint))
        else:
            if bound.code != 7:
                bound, = c.emit("Cast", [bound], [bound.name + "_int64"], [attribute_proto("to", "INT", 7)])
            parts.append(c.emit("Reshape", [bound, c.constant([1], "one")], [hint])[0])
    return parts[0] if len(parts) == 1 else c.emit("Concat", parts, [hint], [attribute_proto("axis", "INT", 0)])[0]

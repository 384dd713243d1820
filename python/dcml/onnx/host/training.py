"""Gradient in a program with host operators; elsewhere the core derives it.

Source: ai.onnx.preview.training.Gradient.
"""
import numpy as np

from . import values as v


def _names(node):
    return (*node["xs"], *node.get("zs", []))


def outer_values(node):
    """What y depends on besides xs and zs: it keeps its value."""
    return [name for name in node.part(_names(node), node["y"]).inputs if name not in _names(node)]


def gradient(call, *given):
    """The derivatives of the sum of y in each of xs, where y is computed anew from the given xs and zs."""
    from . import tape  # torch is needed only here
    names, xs = _names(call), call["xs"]
    program = call.part(names, call["y"])
    values = {**dict(zip(names, given)), **{name: call.outer(name) for name in program.inputs if name not in names}}
    _, gradients = tape.vjp(program, values, {call["y"]: np.ones(())}, xs)
    return [v.like(gradients[x], values[x]) for x in xs]


gradient.captured = outer_values

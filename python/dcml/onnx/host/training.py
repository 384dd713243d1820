"""Gradient: derivatives as an operator of the model.

Source: ai.onnx.preview.training.Gradient.
"""
import numpy as np

from . import values as v


def gradient(node, *given):
    """The derivatives of the sum of y in each of xs, where y is computed anew from the given xs and zs."""
    from . import tape  # torch is needed only here
    xs, zs, y = node["xs"], node.get("zs", []), node["y"]
    program = node.part((*xs, *zs), y)
    values = dict(zip((*xs, *zs), given))
    _, gradients = tape.vjp(program, values, {y: np.ones(())}, xs)
    return [v.like(gradients[x], values[x]) for x in xs]

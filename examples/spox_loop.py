"""A model with a loop, made as Spox makes models: square roots by Newton's method, and their derivatives.

The model is an ONNX file like any other; dcml runs it and differentiates through the loop.

    python examples/spox_loop.py
"""
import numpy as np
import torch

import dcml.spox.opset.ai.onnx.v17 as op
from dcml.onnx import ONNXModel
from dcml.spox import Tensor, argument, build


def square_roots(x, steps):
    """Newton's iteration from 1, a value for each iteration, too."""
    half = op.const(0.5, np.float32)

    def improve(iteration, condition, root):
        better = op.mul(half, op.add(root, op.div(x, root)))
        return condition, better, better  # the condition, what is carried, what is stacked

    start = op.add(op.sub(x, x), op.const(1.0, np.float32))
    return op.loop(steps, op.const(True), v_initial=[start], body=improve)


x, steps = argument(Tensor(np.float32, ("N",))), argument(Tensor(np.int64, ()))
roots, all_roots = square_roots(x, steps)
print("types:", roots.type, all_roots.type)

model = build({"x": x, "steps": steps}, {"roots": roots, "all_roots": all_roots})
with open("roots.onnx", "wb") as file:
    file.write(model.SerializeToString())

run = ONNXModel("roots", model)
numbers = np.array([0.25, 2, 9, 100], np.float32)
found, history = run(numbers, np.int64(10))
print(f"after {len(history)} steps the roots differ from numpy's by {abs(found - np.sqrt(numbers)).max():.1e}")

given = torch.from_numpy(numbers).requires_grad_()
run(given, torch.tensor(10))[0].sum().backward()
print(f"and their derivatives by {abs(given.grad - 0.5 / torch.sqrt(given)).max():.1e}")

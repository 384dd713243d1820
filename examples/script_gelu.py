"""Gelu as an ONNX function written in Python: run at once, as part of a model, and trained.

    python examples/script_gelu.py
"""
import math

import numpy as np
import torch

from dcml.onnx import ONNXModel
from dcml.script import FLOAT, script
from dcml.script import opset18 as op

M_SQRT1_2 = math.sqrt(0.5)


@script()
def Gelu(X):
    phiX = 0.5 * (op.Erf(M_SQRT1_2 * X) + 1.0)
    return X * phiX


@script()
def simple(A: FLOAT["N", "M"], W: FLOAT["M", "C"], Bias: FLOAT["C"]) -> FLOAT["N", "C"]:
    AW = op.MatMul(A, W)
    AWBias = AW + Bias
    Y = Gelu(AWBias)
    return Y


random = np.random.default_rng(0)
a, w, b = (random.standard_normal(shape).astype(np.float32) for shape in ((32, 64), (64, 16), (16,)))
at_once = simple(a, w, b)  # operator by operator: a breakpoint in simple or Gelu shows Tensors

model = simple.to_model_proto()
print("the model calls", ", ".join(f"{f.domain}.{f.name}" for f in model.functions))
with open("gelu.onnx", "wb") as file:
    file.write(model.SerializeToString())

run = ONNXModel("simple", model)
print(f"compiled it differs from the script by {abs(run(a, w, b) - at_once).max():.1e}")

given = [torch.from_numpy(v).requires_grad_() for v in (a, w, b)]
run(*given).sum().backward()
ours = [v.grad.clone() for v in given]
for v in given:
    v.grad = None
torch.nn.functional.gelu(given[0] @ given[1] + given[2]).sum().backward()
print(f"gradients differ from torch's by {max(float(abs(mine - v.grad).max()) for mine, v in zip(ours, given)):.1e}")

"""Dropout as an ONNX function written in Python: a branch on a tensor, values that both branches give, an attribute.

    python examples/script_dropout.py
"""
import numpy as np

from dcml.onnx import ONNXModel
from dcml.script import BOOL, FLOAT, script
from dcml.script import opset18 as op


@script()
def Dropout(data, ratio, training_mode, seed: float):
    if training_mode:
        rand = op.RandomUniformLike(data, seed=seed, dtype=FLOAT)
        mask = rand >= ratio
        output = op.Where(mask, data, 0) / (1.0 - ratio)
    else:
        mask = op.Expand(True, op.Shape(data))
        output = data
    return (output, mask)


@script()
def model(data: FLOAT["N"], training_mode: BOOL) -> (FLOAT["N"], BOOL["N"]):
    output, mask = Dropout(data, 0.25, training_mode, seed=7.0)
    return output, mask


x = np.arange(1, 10001, dtype=np.float32)
run = ONNXModel("dropout", model.to_model_proto())
for name, call in (("the script", model), ("its model", run)):
    kept, mask = call(x, np.array(True))
    same, everything = call(x, np.array(False))
    right = np.allclose(kept, np.where(mask, x / 0.75, 0)) and np.array_equal(same, x) and everything.all()
    print(f"{name} drops {1 - mask.mean():.2f} of the values in training, and is {'right' if right else 'wrong'}")

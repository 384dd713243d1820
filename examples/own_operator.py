"""An operator of one's own: what ONNX calls Gelu, written in NumPy, in a model and with its gradient.

Usage: own_operator.py
"""
import numpy as np
import onnx
import torch
from onnx import TensorProto, helper

import dcml.onnx as donnx
from dcml.autodiff import vjp
from dcml.library import change_default
from dcml.onnx import ONNXModel, python_pure_op_implementation


@python_pure_op_implementation
def Smooth(X, Y):
    """x * sigmoid(1.702 x), an approximation of Gelu."""
    Y[:] = X / (1 + np.exp(-1.702 * X))


def model():
    """An ONNX model of that operator alone."""
    value = helper.make_tensor_value_info
    graph = helper.make_graph([helper.make_node("Smooth", ["x"], ["y"])], "smooth", [value("x", TensorProto.FLOAT, ["n"])],
                              [value("y", TensorProto.FLOAT, ["n"])])
    return helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)])


def main():
    x = np.linspace(-3, 3, 7, dtype=np.float32)
    eager = torch.tensor(x, requires_grad=True)
    expected = eager * torch.sigmoid(1.702 * eager)
    expected.sum().backward()

    with change_default(donnx, "pure"):
        y = ONNXModel("smooth", model())(x)
        print(f"values differ by {np.abs(y - expected.detach().numpy()).max():.1e}")
        _, gradients = vjp(model(), {"x": x}, {"y": np.ones(7, np.float32)})
    print(f"gradients, derived from the function, differ by {np.abs(gradients['x'] - eager.grad.numpy()).max():.1e}")


if __name__ == "__main__":
    main()

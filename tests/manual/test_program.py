"""Chapters 2.1.4, 4.1, 6.1 and 6.2 of the manual: programs, as near to its text as can be."""
import numpy as np
import torch
import torch.nn.functional as F

import dcml as dace
import dcml.onnx as donnx
from dcml.autodiff import add_backward_pass
from dcml.library import change_default
from dcml.onnx import python_pure_op_implementation


def test_a_library_node_in_a_program():
    @dace.program
    def conv_program(X_arr: dace.float32[5, 3, 10, 10],
                     W_arr: dace.float32[16, 3, 3, 3]):
        output = dace.define_local([5, 16, 4, 4], dace.float32)
        donnx.ONNXConv(X=X_arr, W=W_arr, Y=output, strides=[2, 2])
        return output

    X = np.random.rand(5, 3, 10, 10).astype(np.float32)
    W = np.random.rand(16, 3, 3, 3).astype(np.float32)

    result = conv_program(X_arr=X, W_arr=W)

    torch_result = F.conv2d(torch.from_numpy(X), torch.from_numpy(W), stride=2).numpy()
    assert np.allclose(torch_result, result, rtol=1e-4)


def test_the_sdfg_of_the_program_contains_the_library_node():
    @dace.program
    def conv_program(X_arr: dace.float32[5, 3, 10, 10], W_arr: dace.float32[16, 3,
                                                                        3, 3]):
        output = np.ndarray([5, 16, 4, 4], dtype=np.float32)
        donnx.ONNXConv(X=X_arr, W=W_arr, Y=output, strides=[2, 2])
        return output

    sdfg = conv_program.to_sdfg()
    nodes = [n for n in sdfg.nodes()[0].nodes() if isinstance(n, donnx.ONNXConv)]
    assert len(nodes) == 1

    X = np.random.rand(5, 3, 10, 10).astype(np.float32)
    W = np.random.rand(16, 3, 3, 3).astype(np.float32)
    result = conv_program(X_arr=X, W_arr=W)
    torch_result = F.conv2d(torch.from_numpy(X), torch.from_numpy(W), stride=2).numpy()
    assert np.allclose(torch_result, result, rtol=1e-4)


def test_a_backward_pass_on_the_sdfg_of_a_program():
    @dace.program
    def dace_gemm(
        X: dace.float32[5, 4],
        Y: dace.float32[4, 3],
        Z: dace.float32[5, 3],
        S: dace.float32[1],
    ):
        Z[:] = X @ Y

        @dace.map(_[0:5, 0:3])
        def summap(i, j):
            s >> S(1, lambda x, y: x + y)[0]
            z << Z[i, j]
            s = z

    sdfg = dace_gemm.to_sdfg()

    add_backward_pass(sdfg=sdfg, state=sdfg.nodes()[0], inputs=["X", "Y"],
                      outputs=["S"])

    X, Y = np.random.rand(5, 4).astype(np.float32), np.random.rand(4, 3).astype(np.float32)
    Z, S = np.zeros((5, 3), np.float32), np.zeros(1, np.float32)
    gradient_X, gradient_Y = np.zeros_like(X), np.zeros_like(Y)
    sdfg(X=X, Y=Y, Z=Z, S=S, gradient_S=np.ones(1, np.float32), gradient_X=gradient_X, gradient_Y=gradient_Y)
    assert np.allclose(Z, X @ Y, rtol=1e-4) and np.allclose(S, (X @ Y).sum(), rtol=1e-4)
    assert np.allclose(gradient_X, np.ones((5, 3)) @ Y.T, rtol=1e-4)
    assert np.allclose(gradient_Y, X.T @ np.ones((5, 3)), rtol=1e-4)


def test_a_pure_implementation_of_softplus_serves_modules_forward_and_backward(registrations):
    calls = []

    @python_pure_op_implementation(seen=lambda node: calls.append(node.label))
    def Softplus(X, Y):
        Y[:] = np.log(1 + np.exp(X))

    class Mish(torch.nn.Module):
        def forward(self, x):
            x = x * (torch.tanh(F.softplus(x)))
            return x

    dace_input = torch.rand(8, 32, 7, 7)
    torch_input, dy = torch.clone(dace_input), torch.rand(8, 32, 7, 7)
    dace_input.requires_grad = True
    torch_input.requires_grad = True
    with change_default(donnx, "pure"):
        dace_output = dace.DaceModule(Mish(), backward=True)(dace_input)
    dace_output.backward(dy)
    torch_output = Mish()(torch_input)
    torch_output.backward(dy)
    assert len(calls) == 1
    assert torch.allclose(dace_output, torch_output, atol=1e-6)
    assert torch.allclose(dace_input.grad, torch_input.grad, atol=1e-6)

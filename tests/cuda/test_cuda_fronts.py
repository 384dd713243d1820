"""What users of SDFGs, programs, ONNX models and the command line hold, on the CUDA target: a fake GPU, or with --gpu a real one."""
import contextlib
import io
import os
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import dcml
from dcml.cli import main
from dcml.onnx import ONNXModel
from dcml.transformation import GPUTransformSDFG

if "DCML_CUDA_DRIVER" not in os.environ and "--gpu" not in sys.argv:
    pytest.skip("no GPU, and no fake one", allow_module_level=True)

N = dcml.symbol("N")


def dense(path=None):
    """Y = relu(X @ W)."""
    weights = np.arange(12, dtype=np.float32).reshape(3, 4) - 5
    graph = helper.make_graph([helper.make_node("MatMul", ["X", "W"], ["H"]), helper.make_node("Relu", ["H"], ["Y"])], "dense",
                              [helper.make_tensor_value_info("X", TensorProto.FLOAT, ["n", 3])],
                              [helper.make_tensor_value_info("Y", TensorProto.FLOAT, ["n", 4])],
                              [onnx.numpy_helper.from_array(weights, "W")])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    if path is not None:
        onnx.save(proto, path)
    return proto, weights


def rows(n):
    return np.linspace(-1, 1, 3 * n, dtype=np.float32).reshape(n, 3)


def places(function):
    return {name: function.forward_graph.device(name) for name in function.forward_graph.arrays}


def test_a_model_for_the_gpu_runs_there():
    proto, weights = dense()
    model = ONNXModel("dense", proto, cuda=True)
    for n in (2, 5):
        np.testing.assert_allclose(model(rows(n)), np.maximum(rows(n) @ weights, 0), rtol=1e-5, atol=1e-5)
    assert set(places(model._function(None)).values()) == {"cuda"}


def test_a_model_that_was_transformed_runs_there_too():
    proto, weights = dense()
    model = ONNXModel("dense", proto)
    model(rows(2))
    assert set(places(model._function(None)).values()) == {"cpu"}
    assert model.sdfg.apply_transformations(GPUTransformSDFG) == 1
    np.testing.assert_allclose(model(rows(2)), np.maximum(rows(2) @ weights, 0), rtol=1e-5, atol=1e-5)
    assert set(places(model._function(None)).values()) == {"cuda"}


def test_gradients_of_a_model_on_the_gpu_are_those_of_torch():
    torch = pytest.importorskip("torch")
    proto, weights = dense()
    model = ONNXModel("dense", proto, cuda=True)
    x = torch.from_numpy(rows(4)).requires_grad_()
    other = x.detach().clone().requires_grad_()
    model(x).square().sum().backward()
    torch.relu(other @ torch.from_numpy(weights)).square().sum().backward()
    torch.testing.assert_close(x.grad, other.grad, rtol=1e-4, atol=1e-4)


def test_a_loop_whose_count_is_computed_runs_its_segments_there():
    body = helper.make_graph([helper.make_node("Mul", ["y", "x"], ["z"]), helper.make_node("Identity", ["c"], ["d"])], "body",
                             [helper.make_tensor_value_info("k", TensorProto.INT64, []), helper.make_tensor_value_info("c", TensorProto.BOOL, []),
                              helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])],
                             [helper.make_tensor_value_info("d", TensorProto.BOOL, []), helper.make_tensor_value_info("z", TensorProto.FLOAT, [3])])
    graph = helper.make_graph([helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)], "power",
                              [helper.make_tensor_value_info("n", TensorProto.INT64, []), helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])])
    model = ONNXModel("power", helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), cuda=True)
    x = np.array([1, 2, 3], np.float32)
    np.testing.assert_array_equal(model(np.int64(2), x), x ** 3)
    functions = model._program.functions()
    assert functions and all("cuda" in places(f).values() for f in functions)


@dcml.program
def scaled(X: dcml.float32[N], Y: dcml.float32[N]):
    Y[:] = 2 * X + Y


@dcml.program(device=dcml.DeviceType.GPU)
def scaled_there(X: dcml.float32[N], Y: dcml.float32[N]):
    Y[:] = 2 * X + Y


def test_a_program_for_the_gpu_writes_arrays_of_numpy():
    x, y = np.arange(5, dtype=np.float32), np.ones(5, np.float32)
    scaled_there(x, y)
    np.testing.assert_array_equal(y, 2 * x + 1)
    sdfg = scaled_there.to_sdfg()
    assert {desc.storage for desc in sdfg.arrays.values()} == {dcml.StorageType.GPU_Global}
    sdfg(X=x, Y=y)
    np.testing.assert_array_equal(y, 4 * x + 1)


def test_an_sdfg_with_one_array_on_the_gpu_runs_there():
    sdfg = scaled.to_sdfg()
    sdfg.arrays["X"].storage = dcml.StorageType.GPU_Global
    x, y = np.arange(5, dtype=np.float32), np.ones(5, np.float32)
    compiled = sdfg.compile()
    compiled(X=x, Y=y)
    np.testing.assert_array_equal(y, 2 * x + 1)
    assert "cuda" in places(compiled._function).values()


def test_the_command_line_runs_a_model_there_and_says_so(tmp_path):
    path, (_, weights) = str(tmp_path / "dense.onnx"), dense(tmp_path / "dense.onnx")
    np.savez(tmp_path / "in.npz", X=rows(2))
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert main(["run", path, "--device", "cuda", "-i", str(tmp_path / "in.npz"), "-o", str(tmp_path / "out.npz")]) == 0
        assert main(["explain", path, "--device", "cuda", "--dim", "n=2"]) == 0
    np.testing.assert_allclose(np.load(tmp_path / "out.npz")["Y"], np.maximum(rows(2) @ weights, 0), rtol=1e-5, atol=1e-5)
    assert "forward, on the GPU: " in said.getvalue()


@pytest.mark.gpu
def test_tensors_of_the_gpu_run_a_program_there():
    import torch
    x, y = torch.arange(5.0, device="cuda"), torch.ones(5, device="cuda")
    scaled(x, y)
    assert torch.equal(y, 2 * x + 1)
    one, other = np.arange(5, dtype=np.float32), np.ones(5, np.float32)
    scaled(one, other)
    np.testing.assert_array_equal(other, 2 * one + 1)


@pytest.mark.gpu
def test_gradients_of_weights_lie_on_the_gpu():
    import torch
    proto, weights = dense()
    model = ONNXModel("dense", proto, cuda=True)
    weight, = model.parameters()
    x = torch.from_numpy(rows(4)).cuda()
    model(x).sum().backward()
    other = torch.from_numpy(weights).cuda().requires_grad_()
    torch.relu(x @ other).sum().backward()
    torch.testing.assert_close(weight.grad, other.grad, rtol=1e-4, atol=1e-4)

"""The manual's models and modules (2.3, 3, 4.1, 6.2, 8), as near to its text as can be, with smaller sizes."""
import os

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dcml import onnx as donnx
from dcml.library import change_default
from dcml.onnx import ONNXModel, python_pure_op_implementation
from dcml.pytorch import DaceModule, dace_module
from dcml.testing.profiling import print_time_statistics, time_funcs
from dcml.transformation import SubgraphFusion, TaskletFusion, TrivialMapRangeElimination, Vectorization
from dcml.util import utils


def maps(sdfg):
    return sum(node.kind == "entry" for node in sdfg.node(0).nodes())


def test_an_onnx_model_is_imported(tmp_path):
    # Download an ONNX model
    model_path = os.path.join(tmp_path, "efficientnet.onnx")
    body = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.BatchNorm2d(4), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5))
    body.eval()
    conv, norm, linear = body[0], body[1], body[5]
    weights = {"w": conv.weight, "b": conv.bias, "scale": norm.weight, "shift": norm.bias, "mean": norm.running_mean,
               "variance": norm.running_var, "v": linear.weight, "c": linear.bias}
    node, value = onnx.helper.make_node, onnx.helper.make_tensor_value_info
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph(
        [node("Conv", ["images", "w", "b"], ["conv"], strides=[2, 2]),
         node("BatchNormalization", ["conv", "scale", "shift", "mean", "variance"], ["norm"]),
         node("Sigmoid", ["norm"], ["gate"]), node("Mul", ["norm", "gate"], ["silu"]), node("GlobalAveragePool", ["silu"], ["pool"]),
         node("Flatten", ["pool"], ["flat"]), node("Gemm", ["flat", "v", "c"], ["scores"], transB=1)],
        "efficientnet", [value("images", 1, [1, 3, 32, 32])], [value("scores", 1, [1, 5])],
        [onnx.numpy_helper.from_array(w.detach().numpy(), name) for name, w in weights.items()]),
        opset_imports=[onnx.helper.make_opsetid("", 12)]), model_path)

    model = onnx.load(model_path)
    dace_model = ONNXModel("efficientnet", model)

    test_input = np.random.rand(1, 3, 32, 32).astype(np.float32)
    scores = dace_model(test_input)
    np.testing.assert_allclose(scores, body(torch.from_numpy(test_input)).detach(), rtol=1e-4, atol=1e-5)


def test_multihead_attention_as_wrapper():
    B, H, P, SM, SN = 2, 4, 8, 12, 12
    N = P * H
    Q, K, V = torch.randn([SN, B, N]), torch.randn([SM, B, N]), torch.randn([SM, B, N])
    ptmodel = nn.MultiheadAttention(N, H, bias=False)
    for result, want in zip(DaceModule(ptmodel)(Q, K, V), ptmodel(Q, K, V)):
        torch.testing.assert_close(result, want.detach(), rtol=1e-4, atol=1e-5)


def test_the_examples_of_the_classes():
    class MyModule(nn.Module):
        def forward(self, x):
            x = torch.log(x)
            x = torch.sqrt(x)
            return x
    assert str(MyModule()(torch.ones(2))) == str(DaceModule(MyModule())(torch.ones(2))) == "tensor([0., 0.])"

    @dace_module
    class MyDecoratedModule(MyModule):
        pass
    assert str(MyDecoratedModule()(torch.ones(2))) == "tensor([0., 0.])"


def test_model_by_decorator():
    @dace_module
    class Model(nn.Module):
        def __init__(self, kernel_size):
            super().__init__()
            self.conv1 = nn.Conv2d(1, 4, kernel_size)
            self.conv2 = nn.Conv2d(4, 4, kernel_size)

        def forward(self, x):
            x = F.relu(self.conv1(x))
            return F.relu(self.conv2(x))
    dace_model, x = Model(3), torch.rand(1, 1, 8, 8)
    torch.testing.assert_close(dace_model(x), dace_model.model(x).detach(), rtol=1e-4, atol=1e-5)


def test_gradients_flow_through_a_decorated_model():
    @dace_module(backward=True)
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1 = nn.Linear(784, 120)
            self.fc2 = nn.Linear(120, 32)
            self.fc3 = nn.Linear(32, 10)
            self.ls = nn.LogSoftmax(dim=-1)

        def forward(self, x):
            x = F.relu(self.fc1(x))
            x = F.relu(self.fc2(x))
            x = self.fc3(x)
            x = self.ls(x)
            return x
    x, y = torch.randn(8, 784), torch.tensor([0, 1, 2, 3, 4, 5, 6, 7], dtype=torch.long)
    model, criterion = Net(), nn.NLLLoss()
    loss = criterion(model(x), y)
    assert model.model.fc3.weight.grad is None
    loss.backward()
    found = model.model.fc3.weight.grad.clone()
    model.zero_grad()
    criterion(model.model(x), y).backward()
    torch.testing.assert_close(found, model.model.fc3.weight.grad, rtol=1e-3, atol=1e-5)


@pytest.fixture
def own_softplus(registrations):
    """The manual's definition of Softplus, as the operator's implementation \"pure\" during the test."""
    @python_pure_op_implementation
    def Softplus(X, Y):
        Y[:] = np.log(1 + np.exp(X))


class Mish(nn.Module):
    def forward(self, x):
        x = x * (torch.tanh(F.softplus(x)))
        return x


def test_mish_on_either_device(gpu, own_softplus):
    device = "cuda" if gpu else "cpu"

    @dace_module(cuda=gpu, backward=True)
    class DaCeMish(nn.Module):
        def __init__(self):
            super().__init__()

        def forward(self, x):
            x = x * (torch.tanh(F.softplus(x)))
            return x

    # create test inputs (size taken from YOLOv4)
    with torch.no_grad():
        dace_input = torch.rand(2, 4, 8, 8, device=device)
        torch_input = torch.clone(dace_input)
        dace_dy = torch.rand(2, 4, 8, 8, device=device)
        torch_dy = torch.clone(dace_dy)

    dace_input.requires_grad = True
    torch_input.requires_grad = True

    torch_mish = Mish().to(device)
    dace_mish = DaCeMish()

    dace_output = dace_mish(dace_input)
    dace_output.backward(dace_dy)
    torch_output = torch_mish(torch_input)
    torch_output.backward(torch_dy)

    assert torch.allclose(dace_output, torch_output)
    assert torch.allclose(dace_input.grad, torch_input.grad)
    assert dace_output.device == dace_input.grad.device == dace_input.device

    dace_mish.reset_sdfg()
    dace_mish.append_post_onnx_hook("auto_optimize", lambda module: utils.auto_optimize(module.sdfg, cuda=gpu, apply_strict=True))
    assert torch.allclose(dace_mish(dace_input), torch_output)


@pytest.mark.gpu
def test_the_leak_checker_finds_no_leak():
    def used():
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info()
        return total - free

    module, x = DaceModule(Mish().cuda(), backward=True), torch.rand(64, 1024, device="cuda", requires_grad=True)
    module(x).sum().backward()
    before = used()
    for _ in range(200):
        module(x).sum().backward()
    assert used() - before < 2 << 20


def test_tuning_mish_step_by_step(capsys, own_softplus):
    dace_mish, torch_mish = DaceModule(Mish(), backward=True), Mish()
    dace_input = torch.rand(2, 3, 16, 16)
    torch_input, dy = dace_input.clone().requires_grad_(), torch.rand(2, 3, 16, 16)
    dace_input.requires_grad_()
    torch_output = torch_mish(torch_input)
    torch_output.backward(dy)

    def check():
        dace_input.grad = None
        output = dace_mish(dace_input)
        output.backward(dy)
        assert torch.allclose(output, torch_output, atol=1e-6)
        assert torch.allclose(dace_input.grad, torch_input.grad, atol=1e-6)

    check()
    assert "Softplus" in str(dace_mish.sdfg) and len(dace_mish.forward_sdfg.nodes()) == 1
    dace_mish.reset_sdfg()
    matches = {}

    def expand_and_strict_transforms(module):
        with change_default(donnx, "pure"):
            utils.auto_optimize(module.sdfg, cuda=False, apply_strict=True)

    def fuse_sg(module):
        sdfg = module.sdfg
        sdfg.apply_transformations_repeated(TrivialMapRangeElimination)
        matches["subgraphs"] = SubgraphFusion.apply_to(sdfg, *sdfg.node(0).nodes())
        matches["nodes"] = maps(sdfg)

    dace_mish.append_post_onnx_hook("auto_optimize", expand_and_strict_transforms)
    dace_mish.append_post_onnx_hook("subgraph_fusion", fuse_sg)
    dace_mish.append_post_onnx_hook("fuse_tasklets", lambda x: matches.update(
        tasklets=x.dace_model.sdfg.apply_transformations_repeated(TaskletFusion)))

    def vectorize(fwd, bwd):
        matches["vectors"] = fwd.apply_transformations(Vectorization)
        bwd.apply_transformations(Vectorization)
        matches["backward"] = maps(bwd)

    dace_mish.append_post_autodiff_hook("vectorize", vectorize)
    check()
    assert matches["nodes"] == 1 and matches["backward"] >= 1
    assert min(matches[step] for step in ("subgraphs", "tasklets", "vectors")) > 0, matches

    def run_dace():
        dace_mish(dace_input).backward(dy)

    def run_torch():
        torch_mish(torch_input).backward(dy)

    times = time_funcs([run_dace, run_torch], func_names=["dace", "torch"], warmups=2, num_iters=3)
    print_time_statistics(times, ["dace", "torch"])
    assert capsys.readouterr().out.startswith("Name\tMin\tMean\tMedian\tStdev\tMax\ndace\t")


def test_transformations_count_their_matches():
    module = DaceModule(Mish(), dummy_inputs=(torch.rand(4, 8),))
    sdfg = module.sdfg
    assert sdfg.apply_transformations(SubgraphFusion) == 0  # operators are not maps yet
    sdfg.expand_library_nodes()
    assert maps(sdfg) == 3
    assert sdfg.apply_transformations([SubgraphFusion]) == 2 and maps(sdfg) == 1
    assert sdfg.apply_transformations_repeated(TaskletFusion) == 2
    torch.testing.assert_close(module(torch.ones(4, 8)), Mish()(torch.ones(4, 8)), rtol=1e-5, atol=1e-6)

"""precision="bf16": what autocast would compute, with parameters and their gradients in float32."""
import pickle

import pytest
import torch
from torch import nn

import dcml
from dcml.pytorch import DaceModule, dace_module


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.out = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.Linear(8, 4)

    def forward(self, x):
        y = torch.relu(self.norm(self.conv(x)))
        return torch.softmax(self.out(y.mean((2, 3))), -1)


class Encoder(nn.TransformerEncoderLayer):
    def __init__(self):
        super().__init__(16, 2, 32, dropout=0.0, batch_first=True)


def trained(module, x, low):
    """Result, gradients of the parameters and of x, of a step under autocast or without."""
    x = x.clone().requires_grad_()
    with torch.autocast(x.device.type, torch.bfloat16, enabled=low):
        result = module(x)
    result[:, 0].sum().backward()
    return [result.detach(), x.grad, *[p.grad for p in module.parameters()]]


def check(device, net=Net, shape=(4, 3, 8, 8)):
    torch.manual_seed(0)
    plain, x = net().to(device), torch.randn(shape, device=device)
    module = same_net(plain)
    compiled = DaceModule(module, backward=True, precision="bf16")
    got, wanted, exact = trained(compiled, x, False), trained(plain, x, True), trained(same_net(plain), x, False)
    for g, w, e in zip(got, wanted, exact):
        assert g.dtype == w.dtype
        assert (g - w).norm() <= 3 * (w - e).norm() + 1e-3 * e.norm() + 1e-6
    assert any((w - e).norm() > 0 for w, e in zip(wanted, exact))
    assert all(p.dtype == p.grad.dtype == torch.float32 for p in compiled.parameters())
    return compiled


def same_net(plain):
    other = type(plain)().to(next(plain.parameters()).device)
    other.load_state_dict(plain.state_dict())
    return other


def test_values_and_gradients_are_those_of_autocast():
    check("cpu")


def test_attention_whose_heads_are_rounded_too():
    check("cpu", Encoder, (4, 5, 16))


@pytest.mark.gpu
def test_on_a_gpu_too():
    check("cuda")


def test_products_and_convolutions_are_in_bfloat16():
    compiled = check("cpu")
    graph = compiled.sdfg.graph.clone()
    graph.run_pass("infer")
    convolution = next(node for node in graph.nodes(0) if node[2] == "Conv")
    assert {graph.info(name)[0] for name in convolution[4]} == {int(dcml.bfloat16)}


def test_autocast_around_the_call_does_not_change_it():
    torch.manual_seed(0)
    compiled = DaceModule(nn.Linear(3, 3), precision="bf16")
    x = torch.randn(2, 3)
    low = compiled(x)
    assert low.dtype == torch.bfloat16
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(compiled(x), low)


def test_it_survives_pickling_and_the_decorator_has_it():
    copied = pickle.loads(pickle.dumps(DaceModule(nn.Linear(3, 3), precision="bf16")))
    assert copied(torch.ones(2, 3)).dtype == torch.bfloat16

    @dace_module(precision="bf16")
    class Doubled(nn.Module):
        def forward(self, x):
            return x @ x

    assert Doubled()(torch.ones(2, 2)).dtype == torch.bfloat16


def test_an_unknown_precision_is_refused():
    with pytest.raises(dcml.ValueError_, match="precision='fp8': expected None or 'bf16'"):
        DaceModule(nn.Linear(3, 3), precision="fp8")


NORMS = {"layer": lambda: (nn.Linear(6, 8), nn.LayerNorm(8)), "rms": lambda: (nn.Linear(6, 8), nn.RMSNorm(8)),
         "group": lambda: (nn.Conv1d(6, 8, 1), nn.GroupNorm(2, 8)),
         "instance": lambda: (nn.Conv1d(6, 8, 1), nn.InstanceNorm1d(8, affine=True))}


@pytest.mark.parametrize("name", NORMS)
def test_a_normalisation_whose_weights_stay_wide_gives_what_autocast_gives(name):
    torch.manual_seed(0)
    module, x = nn.Sequential(*NORMS[name]()), torch.randn(3, 6) if name in ("layer", "rms") else torch.randn(3, 6, 5)
    with torch.autocast("cpu", torch.bfloat16):
        wanted = module(x)
    wanted.float().square().sum().backward()
    gradients = [p.grad.clone() for p in module.parameters()]
    module.zero_grad()
    result = DaceModule(module, backward=True, precision="bf16")(x)
    result.float().square().sum().backward()
    assert result.dtype == wanted.dtype == torch.bfloat16
    torch.testing.assert_close(result, wanted, rtol=1e-2, atol=1e-2)
    for ours, eager in zip(module.parameters(), gradients):
        assert (ours.grad - eager).norm() <= 0.05 * eager.norm() + 0.05


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_what_rms_norm_adds_by_itself_is_small_in_short_types_too(dtype):
    x = torch.full((2, 8), 1e-2, dtype=dtype)
    module = nn.RMSNorm(8, dtype=dtype)
    torch.testing.assert_close(DaceModule(module)(x), module(x), rtol=1e-2, atol=1e-2)

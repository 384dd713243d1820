"""Modules whose parameters are constants: results are eager's, and what is not for them is refused by name."""
import pytest
import torch
from torch import nn

from dcml import _core
from dcml.pytorch import DaceModule


def _network():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 1), nn.BatchNorm2d(32),
                        nn.SiLU(), nn.Conv2d(32, 32, 3, groups=32), nn.BatchNorm2d(32, affine=False),
                        nn.ConvTranspose2d(32, 16, 3, 2, groups=2),
                        nn.BatchNorm2d(16),
                        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4))
    for child in net:
        if isinstance(child, nn.BatchNorm2d):
            child.running_mean.normal_()
            child.running_var.uniform_(0.5, 2)
            if child.affine:
                nn.init.normal_(child.weight)
                nn.init.normal_(child.bias)
    return net.eval(), torch.randn(2, 3, 12, 12)


def test_results_are_those_of_eager_and_normalisations_are_in_the_filters():
    net, x = _network()
    frozen = DaceModule(net, frozen=True)
    for _ in range(3):
        torch.testing.assert_close(frozen(x), net(x).detach(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(frozen(torch.cat([x, x])), net(torch.cat([x, x])).detach(), rtol=1e-4, atol=1e-4)
    text = frozen._function().forward_graph.text()
    assert "sqrt" not in text and "BatchNormalization" not in text and "folded" in text


def test_what_changes_in_a_parameter_counts_after_refreeze():
    net, x = _network()
    frozen = DaceModule(net, frozen=True)
    before = frozen(x)
    with torch.no_grad():
        net[-1].weight.data.mul_(2)
        net[1].running_mean.add_(1)
    assert torch.equal(frozen(x), before)
    frozen.refreeze()
    torch.testing.assert_close(frozen(x), net(x).detach(), rtol=1e-4, atol=1e-4)
    net[-1] = nn.Linear(16, 5).eval()
    frozen.refreeze()
    torch.testing.assert_close(frozen(x), net(x).detach(), rtol=1e-4, atol=1e-4)


def test_gradients_and_training_are_refused_by_name():
    net, x = _network()
    with pytest.raises(_core.ValueError_, match="frozen=True with backward=True"):
        DaceModule(net, frozen=True, backward=True)
    with pytest.raises(_core.ValueError_, match="is not frozen"):
        DaceModule(net).refreeze()
    frozen = DaceModule(net, frozen=True)
    assert not frozen(x).requires_grad
    net.train()
    with pytest.raises(_core.ValueError_, match=r"in training mode: call eval\(\)"):
        frozen(x)
    frozen.eval()
    frozen.backward = True
    with pytest.raises(_core.ValueError_, match="have no gradients"):
        frozen(x)


def test_bf16_and_tied_parameters_may_be_frozen():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    net[2].weight = net[0].weight
    net = net.to(torch.bfloat16).eval()
    x = torch.randn(3, 8, dtype=torch.bfloat16)
    torch.testing.assert_close(DaceModule(net, frozen=True)(x), net(x).detach(), rtol=2e-2, atol=2e-2)

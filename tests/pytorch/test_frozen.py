"""Modules whose parameters are constants: results are eager's, and what is not for them is refused by name."""
import numpy as np
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


def _filters():
    """Convolutions whose filters libraries hold in layouts of their own."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 32, 5, stride=2), nn.Conv2d(32, 64, 3, padding=1), nn.Conv2d(64, 64, 3, stride=2)).eval()


WRITES = {
    "an element": lambda conv: conv.weight.data.view(-1)[-1].add_(1),
    "all of them": lambda conv: conv.weight.data.mul_(-1),
    "by NumPy": lambda conv: np.multiply(conv.weight.detach().numpy(), 2, out=conv.weight.detach().numpy()),
    "other memory": lambda conv: setattr(conv.weight, "data", conv.weight.data.flip(0)),
    "another parameter": lambda conv: setattr(conv, "weight", nn.Parameter(conv.weight.detach().flip(1))),
}


@pytest.mark.parametrize("write", WRITES)
def test_without_it_parameters_may_be_written_past_every_counter(write):
    net, x = _filters(), torch.randn(1, 3, 40, 40)
    module = DaceModule(net)
    with torch.no_grad():
        before = module(x)
        for conv in net:
            WRITES[write](conv)
            torch.testing.assert_close(module(x), net(x), rtol=1e-4, atol=1e-4)
            assert not torch.equal(module(x), before)


def test_bits_do_not_depend_on_what_was_held():
    net, x = _filters(), torch.randn(1, 3, 40, 40)
    module, old = DaceModule(net), [p.detach().clone() for p in net.parameters()]
    with torch.no_grad():
        first = module(x)
        for p in net.parameters():
            p.data.neg_()
        other = module(x)
        for p, q in zip(net.parameters(), old):
            p.data.copy_(q)
        assert torch.equal(module(x), first) and not torch.equal(other, first)
        assert torch.equal(DaceModule(_filters())(x), first)


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

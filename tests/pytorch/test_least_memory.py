"""memory="min": segments of the forward pass are computed again."""
import copy

import pytest
import torch
from torch import nn

import dcml
from dcml.pytorch import DaceModule, dace_module


def _deep(layers=6, width=64):
    torch.manual_seed(0)
    return nn.Sequential(*(m for _ in range(layers) for m in (nn.Linear(width, width), nn.BatchNorm1d(width), nn.GELU())))


class WithSkips(nn.Module):
    """Each block reads the result of the first one."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()) for _ in range(4))

    def forward(self, x):
        first = x = self.blocks[0](x)
        for block in self.blocks[1:]:
            x = block(x) + first
        return x


def _step(module, x):
    y = module(x)
    y.square().sum().backward()
    return [y.detach(), x.grad, *(p.grad for p in module.parameters()), *module.buffers()]


@pytest.mark.parametrize("make, shape", [(_deep, (32, 64)), (WithSkips, (4, 8, 10, 10)),
                                         (lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True), 2), (2, 6, 16))])
def test_a_step_is_that_of_eager_mode(make, shape):
    torch.manual_seed(1)
    x = torch.randn(shape, dtype=torch.float64)
    eager = make().double()
    module = DaceModule(copy.deepcopy(eager), backward=True, memory="min")
    wanted = _step(eager, x.clone().requires_grad_())
    for got, want in zip(_step(module, x.clone().requires_grad_()), wanted, strict=True):
        torch.testing.assert_close(got, want)


def test_draws_are_the_same_when_they_are_computed_again():
    torch.manual_seed(0)
    module = DaceModule(nn.Sequential(*(m for _ in range(4) for m in (nn.Linear(16, 16), nn.Dropout(0.5)))), backward=True, memory="min")
    x = torch.randn(64, 16, requires_grad=True)
    y = module(x)
    y.sum().backward()
    # y is linear in x where its masks are fixed: the gradient gives y back, up to the biases
    with torch.no_grad():
        for p in module.parameters():
            if p.dim() == 1:
                p.zero_()
    x.grad = None
    y = module(x)
    y.sum().backward()
    torch.testing.assert_close((x * x.grad).sum(1), y.sum(1), rtol=1e-4, atol=1e-5)


def _kept(module, x):
    module(x).sum().backward()
    forward, backward = module._function().report()
    return forward["saved_bytes"], forward["saved_bytes"] + backward["arena_bytes"]


def test_a_deep_network_needs_half_the_memory():
    torch.manual_seed(0)
    deep, x = nn.Sequential(*(m for _ in range(24) for m in (nn.Linear(128, 128), nn.Tanh()))), torch.randn(512, 128, requires_grad=True)
    saved, peak = _kept(DaceModule(deep, backward=True), x)
    least, lowest = _kept(DaceModule(deep, backward=True, memory="min"), x)
    assert least < saved / 3 and lowest < peak * 0.6


def test_the_decorator_takes_it_and_other_words_are_refused():
    @dace_module(backward=True, memory="min")
    class Net(nn.Linear):
        pass
    assert Net(2, 3)(torch.ones(1, 2)).shape == (1, 3)
    with pytest.raises(dcml.Error, match="memory='max': expected None or 'min'"):
        DaceModule(nn.Linear(2, 3), memory="max")

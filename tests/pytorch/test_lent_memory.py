"""The backward pass computes where saved values were, and memory of steps is that of the steps before."""
import pytest
import torch
from torch import nn

import dcml
from dcml.pytorch import DaceModule


def _deep(layers=8, width=256):
    torch.manual_seed(0)
    return nn.Sequential(*(m for _ in range(layers) for m in (nn.Linear(width, width), nn.Tanh())))


def _gradients(module, result, **how):
    return torch.autograd.grad(result.square().sum(), list(module.parameters()), **how)


def _resident():
    with open("/proc/self/status", encoding="ascii") as file:
        return int(file.read().split("VmRSS:")[1].split()[0]) * 1024


def test_a_graph_that_is_kept_gives_the_same_gradients_again():
    module, x = DaceModule(_deep(), backward=True), torch.randn(512, 256)
    result = module(x)
    kept = [_gradients(module, result, retain_graph=True) for _ in range(2)]
    last = _gradients(module, result)
    for first, second, third in zip(*kept, last, strict=True):
        assert torch.equal(first, second) and torch.equal(first, third)
    with pytest.raises(RuntimeError, match="second time"):
        _gradients(module, result)


def test_the_backward_pass_needs_little_besides_what_is_saved():
    module, x = DaceModule(_deep(), backward=True), torch.randn(512, 256)
    module(x).sum().backward()
    forward, backward = module._function().report()
    assert forward["saved_bytes"] >= 7 << 19 and backward["arena_bytes"] <= 3 << 19
    assert any(value["place"] == "lent" for value in backward["values"])


def test_two_calls_are_open_at_once():
    module, x, y = DaceModule(_deep(), backward=True), torch.randn(512, 256), torch.randn(512, 256)
    alone = [_gradients(module, module(t)) for t in (x, y)]
    both = [module(t) for t in (x, y)]
    for wanted, result in zip(alone, both):
        assert all(map(torch.equal, wanted, _gradients(module, result)))


def test_no_pass_follows_the_last():
    module, x = DaceModule(_deep(), backward=True), torch.randn(512, 256)
    module(x)
    function = module._function()
    result, call = function._run((x,))
    gradient = (torch.ones_like(result[0]),)
    call.start_last(gradient, tuple(result))
    with pytest.raises(dcml.Error, match="last backward pass"):
        call.start(gradient, tuple(result))


def test_a_thousand_steps_hold_what_a_hundred_do():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                          nn.Linear(16 * 64, 10))
    module, x = DaceModule(model, backward=True), torch.randn(32, 3, 16, 16)
    held = []
    for k in range(1100):
        module(x if k % 3 else x[:20]).square().sum().backward()
        if k in (99, 1099):
            held.append(_resident())
    assert held[1] - held[0] < 4 << 20

"""Steps that compute each channel by itself run together, some channels at a time."""
import re

import pytest
import torch
from torch import nn

from dcml.pytorch import DaceModule

CHANNELS = 97  # no multiple of what threads or caches like


def block(stride, act):
    """What MobileNets and their kin are made of."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(16, CHANNELS, 1, bias=False), nn.BatchNorm2d(CHANNELS), act(),
                         nn.Conv2d(CHANNELS, CHANNELS, 3, stride, 1, groups=CHANNELS, bias=False), nn.BatchNorm2d(CHANNELS), act(),
                         nn.Conv2d(CHANNELS, 16, 1, bias=False))


def step(module, x):
    x = x.clone().requires_grad_()
    y = module(x)
    (y * torch.linspace(-1, 1, y.numel()).view_as(y).to(y)).sum().backward()
    return [y.detach(), x.grad, *(p.grad for p in module.parameters())]


@pytest.mark.parametrize("stride, act", [(1, nn.ReLU6), (2, nn.SiLU)])
def test_a_chain_trains_like_eager_and_says_so(stride, act):
    module, x = block(stride, act), torch.randn(3, 16, 72, 64)
    exact = step(block(stride, act).double(), x.double())
    wanted = step(block(stride, act), x)
    compiled = DaceModule(module, backward=True)
    got = step(compiled, x)
    for value, eager, right in zip(got, wanted, exact, strict=True):
        allowed = 20 * (eager - right).abs().max() + 1e-6 * right.abs().max()
        assert (value - right).abs().max() <= allowed
    for name, value in block(stride, act).named_buffers():
        assert module.get_buffer(name).shape == value.shape and not torch.equal(module.get_buffer(name), value)
    together = re.findall(r"^  steps (\d+) to (\d+) run together, (\d+) of 97 channels at a time$", compiled.explain(), re.M)
    assert [int(end) - int(begin) + 1 for begin, end, _ in together] == [3, 4]  # the backward pass has two gradients between
    assert all(0 < int(n) < CHANNELS for _, _, n in together)


def test_threads_that_share_a_chain_compute_the_same_bits():
    results, before = [], torch.get_num_threads()
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        results.append(step(DaceModule(block(1, nn.ReLU6), backward=True), torch.ones(3, 16, 72, 64).cumsum(2) / 72)[:2])
    torch.set_num_threads(before)
    for other in results[1:]:
        assert all(map(torch.equal, results[0], other))


def test_times_of_a_chain_belong_to_its_steps():
    module = DaceModule(block(1, nn.ReLU6), backward=True)
    step(module, torch.randn(3, 16, 72, 64))
    core = module._function()
    core.time(True)
    step(module, torch.randn(3, 16, 72, 64))
    for report in core.report():
        assert all(item["runs"] == 1 and item["seconds"] > 0 for item in report["steps"] if item["bytes"] > 1e6)

"""Images that lie channels-last are taken as they lie: nothing is copied, and results and gradients are eager mode's."""
import copy

import pytest
import torch
from torch import nn

from dcml.pytorch import DaceModule

LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
MODULES = {
    "convolution": lambda: nn.Conv2d(16, 24, 3, padding=1),
    "depthwise": lambda: nn.Conv2d(16, 16, 3, padding=1, groups=16),
    "transposed": lambda: nn.ConvTranspose2d(16, 8, 4, 2, 1),
    "norm": lambda: nn.Sequential(nn.BatchNorm2d(16), nn.ReLU()),
    "groups": lambda: nn.GroupNorm(4, 16),
    "windows": lambda: nn.MaxPool2d(3, 2, 1),
    "windows that overlap": lambda: nn.MaxPool2d(3, 1, 1),
    "means": lambda: nn.AvgPool2d(2),
    "bilinear": lambda: nn.Upsample(scale_factor=2, mode="bilinear"),
    "reflection": lambda: nn.ReflectionPad2d(2),
    "block": lambda: nn.Sequential(nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
                                   nn.Conv2d(16, 32, 1)),
    "flat": lambda: nn.Sequential(nn.ReLU(), nn.Flatten(), nn.Linear(16 * 9 * 10, 5)),
    "shuffle": lambda: nn.PixelShuffle(2),
    "volumes": lambda: nn.Sequential(nn.Conv3d(16, 8, 3), nn.ReLU()),
}


def image(what, n=2, seed=0):
    shape = (n, 16, 5, 6, 7) if what == "volumes" else (n, 16, 9, 10)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return x.to(memory_format=LAST[x.dim()])


def assert_as_eager(compiled, plain, xs):
    """Results, with their strides, and gradients of each call."""
    for x in xs:
        inputs = [x.clone().requires_grad_() for _ in range(2)]
        results = [module(given) for module, given in zip((compiled, plain), inputs)]
        torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5, check_stride=True)
        for y in results:
            y.square().sum().backward()
        torch.testing.assert_close(inputs[0].grad, inputs[1].grad, rtol=1e-3, atol=1e-4)
        assert inputs[0].grad.shape == x.shape
    torch.testing.assert_close([p.grad for p in compiled.parameters()], [p.grad for p in plain.parameters()], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("what", MODULES)
def test_channels_last_images_are_taken_as_they_lie(what):
    torch.manual_seed(0)
    plain = MODULES[what]()
    compiled = DaceModule(copy.deepcopy(plain), backward=True)
    assert_as_eager(compiled, plain, [image(what, 2), image(what, 2, seed=1), image(what, 3), image(what, 3, seed=2)])
    assert compiled._function().forward_graph.inputs == ["input_as_it_lies"]


def test_a_module_takes_images_of_both_orders():
    torch.manual_seed(0)
    plain = MODULES["block"]()
    compiled = DaceModule(copy.deepcopy(plain), backward=True)
    x = image("block")
    assert_as_eager(compiled, plain, [x, x.contiguous(), x, x.contiguous(), x[..., ::2], x])


def test_only_what_lies_so_is_turned():
    def run(a, b, c, factor):
        return torch.einsum("nchw,ncdw->nchd", a, b) * factor + c.sum()

    class Module(nn.Module):
        def forward(self, *args, **named):
            return run(*args, **named)

    compiled = DaceModule(Module(), backward=True)
    given = [image("", seed=k) for k in range(3)]
    for _ in range(2):
        sides = [[x.clone().requires_grad_() for x in given] for _ in range(2)]
        results = [compiled(*sides[0], factor=2.0), run(*sides[1], factor=2.0)]
        torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4, check_stride=False)
        for y in results:
            y.sin().sum().backward()
        torch.testing.assert_close([x.grad for x in sides[0]], [x.grad for x in sides[1]], rtol=1e-3, atol=1e-3)
    names = compiled._function().forward_graph.inputs
    assert sum(name.endswith("_as_it_lies") for name in names) == 1  # products want rows


def test_an_image_changed_in_place():
    class Module(nn.Module):
        def forward(self, x, y):
            x.mul_(2)
            return x + y

    compiled = DaceModule(Module())
    for seed in range(3):
        x, y = image("", seed=seed), image("", seed=seed + 5)
        want = 2 * x
        torch.testing.assert_close(compiled(x, y), want + y, check_stride=True)
        assert torch.equal(x, want)


def test_without_gradients_frozen_and_skipped():
    plain = MODULES["block"]().eval()
    x = image("block")
    with torch.no_grad():
        want = plain(x)
        for options in ({}, {"frozen": True}):
            compiled = DaceModule(copy.deepcopy(plain), **options)
            for _ in range(3):
                torch.testing.assert_close(compiled(x), want, rtol=1e-4, atol=1e-5, check_stride=True)
    compiled, x = DaceModule(plain, backward=True, inputs_to_skip=["input"]), x.requires_grad_()
    compiled(x).sum().backward()
    assert x.grad is None and plain[0].weight.grad is not None


@pytest.mark.parametrize("skipped", [0, 1, 8])
def test_images_begin_at_any_address(skipped):
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Conv2d(32, 48, 3, padding=1), nn.BatchNorm2d(48), nn.Conv2d(48, 32, 3, padding=1))
    compiled = DaceModule(copy.deepcopy(plain), backward=True)
    images = [torch.randn(2 * 20 * 20 * 32 + skipped)[skipped:].view(2, 20, 20, 32).permute(0, 3, 1, 2) for _ in range(2)]
    x, cotangent = images
    found = []
    for module in (compiled, plain):
        given = x.detach().requires_grad_()
        y = module(given)
        y.backward(cotangent)
        found.append((y, given.grad))
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-4)


def test_an_inverted_bottleneck_brings_its_image_into_rows_once():
    plain = nn.Sequential(nn.Conv2d(16, 64, 1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1, groups=64), nn.ReLU(), nn.Conv2d(64, 16, 1))
    compiled = DaceModule(copy.deepcopy(plain), backward=True)
    assert_as_eager(compiled, plain, [torch.randn(2, 16, 40, 44).to(memory_format=torch.channels_last)])


def test_statistics_of_a_large_image_are_those_of_float64():
    plain = nn.BatchNorm2d(16)
    x = (torch.randn(4, 16, 112, 112) + 100).to(memory_format=torch.channels_last)
    exact = copy.deepcopy(plain).double()
    y = DaceModule(plain, backward=True)(x)
    torch.testing.assert_close(y, exact(x.double()).float(), rtol=0, atol=2e-4)
    torch.testing.assert_close(plain.running_var, exact.running_var.float(), rtol=1e-5, atol=0)


def test_second_derivatives():
    plain = nn.Sequential(nn.Conv2d(16, 8, 3), nn.Tanh())
    compiled = DaceModule(plain, backward=True)
    x = image("").requires_grad_()
    found = []
    for module in (compiled, plain, compiled):
        first, = torch.autograd.grad(module(x).square().sum(), x, create_graph=True)
        found.append(torch.autograd.grad(first.square().sum(), [x, *plain.parameters()]))
    torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(found[0], found[2], rtol=0, atol=0)

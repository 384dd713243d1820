"""Images that lie channels-last inside a compiled module: values and gradients are eager's, and callers see nothing of it."""
import pytest
import torch
from torch import nn

from dcml.pytorch import DaceModule


class Flattened(nn.Module):
    """What a convolution leaves is used as an image and, in both directions, as a row."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.next = nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.Conv2d(32, 16, 1)

    def forward(self, x):
        y = self.conv(x)
        rows = y.flatten(1)
        return self.next(torch.relu(self.norm(y))).mean((2, 3)), (rows * rows).sum(1), y


class Joined(nn.Module):
    """A transposed convolution without overlaps beside what it was made from, and pixels by themselves."""

    def __init__(self):
        super().__init__()
        self.first, self.down, self.up = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 32, 2, 2), nn.ConvTranspose2d(32, 16, 2, 2)
        self.mix, self.last = nn.Conv2d(32, 24, 1), nn.Conv2d(24, 4, 3, padding=1)

    def forward(self, x):
        y = torch.relu(self.first(x))
        return self.last(torch.relu(self.mix(torch.cat([self.up(self.down(y)), y], 1))))


CASES = {
    "joined": (Joined, (2, 3, 12, 10)),
    "pixels by themselves": (lambda: nn.Sequential(nn.Conv2d(6, 18, 1, bias=False), nn.ReLU(), nn.Conv2d(18, 4, 1, bias=False)),
                             (2, 6, 9, 7)),
    "windows": (lambda: nn.Sequential(nn.Conv2d(3, 32, 3), nn.MaxPool2d(3, 2, 1), nn.ReLU(), nn.Conv2d(32, 32, 3, 2, 1, groups=32), nn.BatchNorm2d(32),
                                      nn.SiLU(), nn.AvgPool2d(3, 2, 1), nn.Conv2d(32, 20, 1)), (2, 3, 23, 25)),
    "transposed": (lambda: nn.Sequential(nn.Conv2d(20, 24, 3), nn.ConvTranspose2d(24, 48, 3, 2, 1, 1), nn.PixelShuffle(2), nn.Upsample(scale_factor=2),
                                         nn.Conv2d(12, 16, 1), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(16, 4)), (2, 20, 7, 7)),
    "three dimensions": (lambda: nn.Sequential(nn.Conv3d(2, 16, 3, padding=1), nn.MaxPool3d(2), nn.InstanceNorm3d(16, affine=True), nn.Conv3d(16, 16, 3)),
                         (2, 2, 8, 9, 10)),
    "one dimension": (lambda: nn.Sequential(nn.Conv1d(4, 16, 5), nn.GELU(), nn.ConvTranspose1d(16, 24, 4, 2), nn.GroupNorm(4, 24)), (3, 4, 30)),
    "rows of an image": (Flattened, (2, 3, 8, 8)),
}


def _gradients(run, module, x, seed):
    torch.manual_seed(seed)
    x = x.clone().requires_grad_()
    results = run(x)
    results = results if isinstance(results, tuple) else (results,)
    cotangents = [torch.randn(y.shape) for y in results]
    return [y.detach() for y in results], torch.autograd.grad(results, [x, *module.parameters()], cotangents)


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_those_of_eager(name):
    torch.manual_seed(0)
    make, shape = CASES[name]
    module, x = make(), torch.randn(shape)
    compiled = DaceModule(module, backward=True)
    for extent in (shape[0], shape[0] + 3):  # the second one finds a symbol, or makes it
        x = torch.randn(extent, *shape[1:])
        (ours, got), (theirs, wanted) = _gradients(compiled, module, x, 1), _gradients(module, module, x, 1)
        for y, z in zip(ours, theirs, strict=True):
            assert y.is_contiguous()
            torch.testing.assert_close(y, z, rtol=1e-4, atol=1e-4)
        largest = max(g.norm() for g in wanted)  # some are 0 but for rounding: a bias before a normalisation
        for a, b in zip(got, wanted, strict=True):
            assert (a - b).norm() <= 1e-4 * largest

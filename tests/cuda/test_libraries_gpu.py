"""cuBLASLt and cuDNN on a GPU against torch on the same GPU: products and convolutions with their gradients."""
import pytest
import torch

import dcml.pytorch

pytestmark = pytest.mark.gpu
TYPES = {"f32": (torch.float32, 2e-3), "f64": (torch.float64, 1e-9), "f16": (torch.float16, 2e-2), "bf16": (torch.bfloat16, 5e-2)}
LAYERS = {
    "linear": (lambda: torch.nn.Linear(48, 40), (6, 5, 48)),
    "odd linear": (lambda: torch.nn.Linear(7, 3), (5, 7)),
    "conv": (lambda: torch.nn.Conv2d(16, 24, 3, padding=1), (4, 16, 12, 12)),
    "strided conv": (lambda: torch.nn.Conv2d(3, 32, 7, stride=2, padding=3, bias=False), (2, 3, 32, 32)),
    "depthwise conv": (lambda: torch.nn.Conv2d(32, 32, 3, padding=1, groups=32), (2, 32, 10, 10)),
    "conv of groups": (lambda: torch.nn.Conv2d(32, 64, 3, padding=2, dilation=2, groups=4), (2, 32, 10, 10)),
    "conv of one dimension": (lambda: torch.nn.Conv1d(8, 16, 5, stride=2), (3, 8, 40)),
    "conv of three dimensions": (lambda: torch.nn.Conv3d(4, 8, 3, padding=1), (2, 4, 6, 6, 6)),
    "transposed conv": (lambda: torch.nn.ConvTranspose2d(16, 8, 3, stride=2, padding=1, output_padding=1), (2, 16, 7, 7)),
    "same padding": (lambda: torch.nn.Conv2d(8, 8, 4, padding="same"), (2, 8, 9, 9)),
    "two convs": (lambda: torch.nn.Sequential(torch.nn.Conv2d(8, 16, 3), torch.nn.ReLU(), torch.nn.Conv2d(16, 8, 1)), (2, 8, 9, 9)),
}


@pytest.fixture(autouse=True)
def exact():
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def _step(module, x, seed):
    x = x.clone().requires_grad_()
    y = module(x)
    y.backward(torch.randn(y.shape, generator=torch.Generator().manual_seed(seed)).to(y))
    gradients = [p.grad.clone() for p in module.parameters()]
    for p in module.parameters():
        p.grad = None
    return [y.detach(), x.grad, *gradients]


def _far(got, wanted):
    return ((got.double() - wanted.double()).abs().max() / wanted.double().abs().max().clamp(min=1e-6)).item()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("layer", LAYERS)
def test_layers_equal_torch(layer, dtype):
    make, shape = LAYERS[layer]
    kind, tolerance = TYPES[dtype]
    torch.manual_seed(1)
    module, x = make().to("cuda", kind), torch.randn(shape).to("cuda", kind)
    wanted = _step(module, x, 2)
    compiled = dcml.pytorch.DaceModule(module, backward=True)
    got = _step(compiled, x, 2)
    again = _step(compiled, x, 2)
    for a, b, c in zip(got, wanted, again, strict=True):
        assert _far(a, b) < tolerance
        assert torch.equal(a, c)  # the same bits in each call


def test_tf32_follows_torch():
    module, x = torch.nn.Linear(512, 256).cuda(), torch.randn(64, 512, device="cuda")
    compiled = dcml.pytorch.DaceModule(module, backward=True)
    with torch.no_grad():
        exact, truth = compiled(x), torch.nn.functional.linear(x.double(), module.weight.double(), module.bias.double())
        torch.backends.cuda.matmul.allow_tf32 = True
        rounded = compiled(x)
    assert _far(exact, truth) < 1e-5
    assert 1e-5 < _far(rounded, truth) < 1e-2


def test_operands_that_are_not_aligned_are_taken():
    module = torch.nn.Conv2d(8, 8, 3, padding=1, bias=False).cuda()
    x = torch.randn(1 + 2 * 8 * 6 * 6, device="cuda")[1:].view(2, 8, 6, 6)
    assert _far(dcml.pytorch.DaceModule(module)(x).detach(), module(x).detach()) < 2e-3

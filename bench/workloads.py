"""What is measured: modules with arguments, and how far ahead of the strongest opponent dcml should be.

Each workload is made from a seed, so that all contenders, which run in processes of their own, get the same one.
"""
import math
from dataclasses import dataclass, field
from typing import Callable

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Workload:
    """title: of the row.  make: () -> (module, arguments).  training: forward and backward, else inference.
    goal: dcml's time over the strongest opponent's.  images: arguments are images, which may lie channels-last.
    options: dcml's; where they ask for bfloat16, opponents run under autocast.
    through: (what runs the module, arguments) -> the loss, where that holds derivatives of the module; arguments then require
    gradients only where `make` says so.
    goal_of_memory: dcml's peak over eager's.  tolerance: largest difference, as a share of a tensor's norm: gradients of deep
    networks differ by the order of sums, and where a ReLU flips."""
    title: str
    make: Callable
    training: bool
    goal: float
    images: bool = False
    options: dict = field(default_factory=dict)
    through: Callable | None = None
    goal_of_memory: float | None = None
    tolerance: float = 1e-2

    @property
    def autocasts(self):
        return "precision" in self.options

    def call(self, run, arguments):
        return self.through(run, arguments) if self.through else run(*arguments)


# -- element-wise and by rows ----------------------------------------------------------------------
class RMSNormGate(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x, gate):
        scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
        return x * scale * self.weight * F.silu(gate)


class NormAddRelu(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x, residual):
        return torch.relu(self.norm(x) + residual)


def mish():
    return nn.Mish(), (torch.rand(8, 32, 224, 224),)


def softmax():
    return nn.Softmax(-1), (torch.randn(4096, 1024),)


def layer_norm():
    return nn.LayerNorm(768), (torch.randn(4096, 768),)


def rms_norm_gate():
    return RMSNormGate(1024), (torch.randn(4096, 1024), torch.randn(4096, 1024))


def norm_add_relu():
    return NormAddRelu(64), (torch.randn(8, 64, 56, 56), torch.randn(8, 64, 56, 56))


# -- small networks --------------------------------------------------------------------------------
def mlp():
    return nn.Sequential(nn.Linear(784, 128), nn.GELU(), nn.Linear(128, 64), nn.GELU(), nn.Linear(64, 10)), (torch.randn(64, 784),)


def lenet():
    return nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
                         nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
                         nn.Linear(84, 10)), (torch.randn(8, 1, 28, 28),)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(256, 256, batch_first=True)

    def forward(self, x):
        return self.lstm(x)[0]


def lstm():
    return Tagger(), (torch.randn(16, 64, 256),)


# -- convolutional networks ------------------------------------------------------------------------
class Residual(nn.Module):
    """ResNet's basic block (He et al., 2016)."""

    def __init__(self, before, after, stride):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after)
        self.conv2, self.norm2 = nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after)
        same = stride == 1 and before == after
        self.shortcut = nn.Identity() if same else nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x):
        y = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


def resnet18(batch):
    layers, width = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for after, stride in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)):
        layers.append(Residual(width, after, stride))
        width = after
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000)), (torch.randn(batch, 3, 224, 224),)


class Bottleneck(nn.Module):
    """ResNet's block of three convolutions (He et al., 2016)."""

    def __init__(self, before, width, stride):
        super().__init__()
        after = 4 * width
        self.narrow, self.norm1 = nn.Conv2d(before, width, 1, bias=False), nn.BatchNorm2d(width)
        self.middle, self.norm2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.widen, self.norm3 = nn.Conv2d(width, after, 1, bias=False), nn.BatchNorm2d(after)
        same = stride == 1 and before == after
        self.shortcut = nn.Identity() if same else nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x):
        y = torch.relu(self.norm1(self.narrow(x)))
        y = torch.relu(self.norm2(self.middle(y)))
        return torch.relu(self.norm3(self.widen(y)) + self.shortcut(x))


def resnet50(batch, side=224):
    layers, before = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for k in range(blocks):
            layers.append(Bottleneck(before, width, stride if k == 0 else 1))
            before = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000)), (torch.randn(batch, 3, side, side),)


class Inverted(nn.Module):
    """MobileNetV2's block (Sandler et al., 2018); with squeeze and swish EfficientNet's MBConv (Tan and Le, 2019)."""

    def __init__(self, before, after, stride, activation, squeezes):
        super().__init__()
        wide = before * 6
        self.widen = nn.Sequential(nn.Conv2d(before, wide, 1, bias=False), nn.BatchNorm2d(wide), activation())
        self.depthwise = nn.Sequential(nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False), nn.BatchNorm2d(wide), activation())
        self.squeeze = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(wide, before // 4, 1), activation(),
                                     nn.Conv2d(before // 4, wide, 1), nn.Sigmoid()) if squeezes else None
        self.narrow = nn.Sequential(nn.Conv2d(wide, after, 1, bias=False), nn.BatchNorm2d(after))
        self.adds = stride == 1 and before == after

    def forward(self, x):
        y = self.depthwise(self.widen(x))
        y = self.narrow(y if self.squeeze is None else y * self.squeeze(y))
        return x + y if self.adds else y


def mobilenet():
    blocks = [Inverted(a, b, s, nn.ReLU6, False) for a, b, s in ((24, 24, 1), (24, 32, 2), (32, 32, 1), (32, 32, 1))]
    return nn.Sequential(*blocks), (torch.randn(8, 24, 56, 56),)


def mbconv(batch=8):
    blocks = [Inverted(a, b, s, nn.SiLU, True) for a, b, s in ((24, 24, 1), (24, 40, 2), (40, 40, 1))]
    return nn.Sequential(*blocks), (torch.randn(batch, 24, 56, 56),)


class ConvNeXt(nn.Module):
    """ConvNeXt's block (Liu et al., 2022)."""

    def __init__(self, channels):
        super().__init__()
        self.depthwise, self.norm = nn.Conv2d(channels, channels, 7, padding=3, groups=channels), nn.LayerNorm(channels)
        self.widen, self.narrow = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)
        self.scale = nn.Parameter(torch.full((channels,), 0.1))

    def forward(self, x):
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.scale * self.narrow(F.gelu(self.widen(y)))
        return x + y.permute(0, 3, 1, 2)


def convnext():
    return ConvNeXt(96), (torch.randn(4, 96, 56, 56),)


def _twice(before, after):
    return nn.Sequential(nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(),
                         nn.Conv2d(after, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU())


class UNet(nn.Module):
    """Two levels of a U-Net (Ronneberger et al., 2015), 16 to 64 channels."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.bottom = _twice(3, 16), _twice(16, 32), _twice(32, 64)
        self.up2, self.right2 = nn.ConvTranspose2d(64, 32, 2, 2), _twice(64, 32)
        self.up1, self.right1 = nn.ConvTranspose2d(32, 16, 2, 2), _twice(32, 16)
        self.head = nn.Conv2d(16, 2, 1)

    def forward(self, x):
        a = self.first(x)
        b = self.second(F.max_pool2d(a, 2))
        c = self.bottom(F.max_pool2d(b, 2))
        b = self.right2(torch.cat([self.up2(c), b], 1))
        return self.head(self.right1(torch.cat([self.up1(b), a], 1)))


def unet():
    return UNet(), (torch.randn(4, 3, 96, 96),)


class Generator(nn.Module):
    """DCGAN's generator (Radford et al., 2016) for images of 64 x 64."""

    def __init__(self):
        super().__init__()
        layers = []
        for before, after, stride in ((100, 256, 1), (256, 128, 2), (128, 64, 2), (64, 32, 2)):
            layers += [nn.ConvTranspose2d(before, after, 4, stride, 0 if stride == 1 else 1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.ConvTranspose2d(32, 3, 4, 2, 1, bias=False), nn.Tanh())

    def forward(self, z):
        return self.layers(z)


def dcgan():
    return Generator(), (torch.randn(16, 100, 1, 1),)


# -- transformers ----------------------------------------------------------------------------------
def bert(tokens=128, batch=8):
    return nn.TransformerEncoderLayer(768, 12, 3072, dropout=0.0, activation="gelu", batch_first=True), (torch.randn(batch, tokens, 768),)


class Decoder(nn.Module):
    """A block of GPT-2 (Radford et al., 2019)."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width))

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = (p.view(n, t, self.heads, c // self.heads).transpose(1, 2) for p in self.qkv(self.norm1(x)).split(c, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, t, c))
        return x + self.mlp(self.norm2(x))


def decoders(tokens, batch):
    return nn.Sequential(Decoder(768, 12), Decoder(768, 12)), (torch.randn(batch, tokens, 768),)


class GPT(nn.Module):
    """Two blocks, and the loss of the next token."""

    def __init__(self, width=384, vocabulary=4096, length=256):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(Decoder(width, 6), Decoder(width, 6))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        logits = self.head(self.norm(self.blocks(x)))
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def gpt():
    return GPT(), (torch.randint(0, 4096, (4, 256)),)


# -- second derivatives ----------------------------------------------------------------------------
class Critic(nn.Module):
    """DCGAN's critic for images of 32 x 32, without normalisation, as the penalty wants it."""

    def __init__(self):
        super().__init__()
        layers = []
        for before, after in ((3, 32), (32, 64), (64, 128)):
            layers += [nn.Conv2d(before, after, 4, 2, 1), nn.LeakyReLU(0.2)]
        self.layers = nn.Sequential(*layers, nn.Conv2d(128, 1, 4))

    def forward(self, x):
        return self.layers(x).flatten(1)


def critic():
    real, fake = torch.randn(16, 3, 32, 32), torch.randn(16, 3, 32, 32)
    share = torch.rand(16, 1, 1, 1)
    return Critic(), (real, fake, (share * real + (1 - share) * fake).requires_grad_())


def penalty(run, arguments):
    """The critic's loss with a penalty on the slope at points between real and made images (Gulrajani et al., 2017)."""
    real, fake, between = arguments
    slope, = torch.autograd.grad(run(between).sum(), between, create_graph=True)
    return run(fake).mean() - run(real).mean() + 10 * (slope.flatten(1).norm(2, 1) - 1).square().mean()


def field_of(points):
    layers = [nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)]
    return nn.Sequential(*layers), (torch.linspace(-1, 1, points)[:, None].requires_grad_(),)


def residual(run, arguments):
    """u'' = -pi^2 sin(pi x) at the points, as a physics-informed network learns it (Raissi et al., 2019)."""
    x, = arguments
    slope, = torch.autograd.grad(run(x).sum(), x, create_graph=True)
    curvature, = torch.autograd.grad(slope.sum(), x, create_graph=True)
    return (curvature + math.pi ** 2 * torch.sin(math.pi * x)).square().mean()


class Waves(nn.Module):
    """A perceptron for several tasks at once, whose weights are arguments: x [tasks, points, 1] -> [tasks, points, 1]."""

    def forward(self, x, weights):
        for k in range(0, len(weights), 2):
            x = x @ weights[k] + weights[k + 1].unsqueeze(-2)
            x = x.tanh() if k + 2 < len(weights) else x
        return x


def waves(tasks=25, points=10, width=40):
    sizes = [1, width, width, 1]
    weights = [w for a, b in zip(sizes, sizes[1:]) for w in (torch.randn(a, b) / math.sqrt(a), torch.zeros(b))]
    height, phase = torch.rand(tasks, 1, 1) * 4.9 + 0.1, torch.rand(tasks, 1, 1) * math.pi
    xs = [torch.rand(tasks, points, 1) * 10 - 5 for _ in range(2)]
    return Waves(), (*xs, *[height * torch.sin(x + phase) for x in xs], *[w.requires_grad_() for w in weights])


def after_a_step(run, arguments, rate=0.02):
    """The loss after an inner step of gradient descent, which is differentiated through it (Finn et al., 2017)."""
    x, x_new, y, y_new, *weights = arguments
    own = [w.expand(len(x), *w.shape) for w in weights]
    slopes = torch.autograd.grad((run(x, own) - y).square().mean((1, 2)).sum(), own, create_graph=True)
    return (run(x_new, [w - rate * slope for w, slope in zip(own, slopes)]) - y_new).square().mean()


BF16 = {"precision": "bf16"}
WORKLOADS = [
    Workload("nn.Mish 8×32×224², training step", mish, True, 0.2),
    Workload("nn.Mish 8×32×224², inference", mish, False, 1.0),
    Workload("softmax [4096, 1024], training", softmax, True, 0.75),
    Workload("LayerNorm [4096, 768], training", layer_norm, True, 0.75),
    Workload("RMSNorm + gate [4096, 1024], training", rms_norm_gate, True, 0.5),
    Workload("BatchNorm + residual + ReLU 8×64×56², training", norm_add_relu, True, 0.4, True),
    Workload("MLP 784-128-64-10 GELU, batch 64, training", mlp, True, 0.6),
    Workload("LeNet, batch 8, training", lenet, True, 0.4, True),
    Workload("ResNet-18 224², N=1, inference", lambda: resnet18(1), False, 1.0, True),
    Workload("ResNet-18 224², N=1, inference, frozen=True", lambda: resnet18(1), False, 1.0, True, {"frozen": True}),
    Workload("ResNet-18 224², N=8, training step", lambda: resnet18(8), True, 0.75, True, goal_of_memory=0.9),
    Workload("ResNet-18 224², N=8, training step, memory=\"min\"", lambda: resnet18(8), True, 1.0, True, {"memory": "min"},
             goal_of_memory=0.5),
    # gradients in bfloat16 are 0.4 off those in float64, eager mode's and ours
    Workload("ResNet-18 224², N=8, training step, bf16", lambda: resnet18(8), True, 0.8, True, BF16, tolerance=0.9),
    Workload("MobileNetV2 blocks, training", mobilenet, True, 0.5, True, goal_of_memory=0.9),
    Workload("MobileNetV2 blocks, training, memory=\"min\"", mobilenet, True, 1.0, True, {"memory": "min"},
             goal_of_memory=0.5),
    Workload("MBConv with swish and SE, training", mbconv, True, 0.5, True),
    Workload("ConvNeXt block 96ch 56², N=4, training", convnext, True, 0.7, True),
    Workload("ConvNeXt block 96ch 56², N=4, inference", convnext, False, 1.0, True),
    Workload("U-Net 16-64ch 96², N=4, training", unet, True, 0.7, True),
    Workload("U-Net 16-64ch 96², N=4, inference", unet, False, 1.0, True),
    Workload("U-Net 16-64ch 96², N=4, inference, frozen=True", unet, False, 1.0, True, {"frozen": True}),
    Workload("DCGAN generator 64², N=16, training", dcgan, True, 1.0, True),
    Workload("BERT layer (768, 12 heads, 128 tokens, N=8), inference", bert, False, 0.97),
    Workload("BERT layer (768, 12 heads, 128 tokens, N=8), training", bert, True, 0.9),
    Workload("BERT layer (768, 12 heads, 128 tokens, N=8), training, bf16", bert, True, 0.8, options=BF16, tolerance=0.1),
    Workload("two GPT blocks (384, causal, 256 tokens, N=4), training", gpt, True, 0.8),
    Workload("LSTM 256, N=16, 64 steps, training", lstm, True, 0.8),
    Workload("WGAN-GP, a critic's step, 32², N=16", critic, True, 0.7, through=penalty),
    Workload("physics-informed MLP 1-64-64-64-1, 1,024 points", lambda: field_of(1024), True, 0.7, through=residual),
    Workload("physics-informed MLP 1-64-64-64-1, 64 points", lambda: field_of(64), True, 0.7, through=residual),
    Workload("MAML, 25 tasks of sine waves, an inner step", waves, True, 0.7, through=after_a_step),
]

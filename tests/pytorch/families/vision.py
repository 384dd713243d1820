"""Networks that look at images."""
import torch
import torch.nn.functional as F
from family import both, family, images
from torch import nn


def conv_bn(inside, outside, kernel=3, stride=1, groups=1, act=nn.ReLU):
    layers = [nn.Conv2d(inside, outside, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(outside)]
    return nn.Sequential(*layers, *([act()] if act else []))


def pooled(x):
    return x.mean((2, 3))


class BasicBlock(nn.Module):
    def __init__(self, inside, outside, stride=1):
        super().__init__()
        self.first, self.second = conv_bn(inside, outside, 3, stride), conv_bn(outside, outside, act=None)
        self.short = conv_bn(inside, outside, 1, stride, act=None) if stride > 1 or inside != outside else nn.Identity()

    def forward(self, x):
        return F.relu(self.second(self.first(x)) + self.short(x), inplace=True)


@family(images())
class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(conv_bn(3, 8, 7, 2), nn.MaxPool2d(3, 2, 1))
        self.layers = nn.Sequential(BasicBlock(8, 8), BasicBlock(8, 16, 2), BasicBlock(16, 16))
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        return self.head(torch.flatten(F.adaptive_avg_pool2d(self.layers(self.stem(x)), 1), 1))


class DenseLayer(nn.Module):
    def __init__(self, inside, growth):
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(inside), nn.Conv2d(inside, 2 * growth, 1, bias=False)
        self.norm2, self.conv2 = nn.BatchNorm2d(2 * growth), nn.Conv2d(2 * growth, growth, 3, padding=1, bias=False)

    def forward(self, *features):
        y = self.conv1(F.relu(self.norm1(torch.cat(features, 1))))
        return self.conv2(F.relu(self.norm2(y)))


@family(images())
class DenseNet(nn.Module):
    def __init__(self, growth=4):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2, 1)
        self.blocks = nn.ModuleList([nn.ModuleList([DenseLayer(start + k * growth, growth) for k in range(3)]) for start in (8, 10)])
        self.transition = nn.Sequential(nn.BatchNorm2d(20), nn.ReLU(), nn.Conv2d(20, 10, 1), nn.AvgPool2d(2, 2))
        self.head = nn.Sequential(nn.BatchNorm2d(22), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(22, 5))

    def forward(self, x):
        x = self.stem(x)
        for k, block in enumerate(self.blocks):
            features = [x]
            for layer in block:
                features.append(layer(*features))
            x = torch.cat(features, 1)
            x = self.transition(x) if k == 0 else x
        return self.head(x)


class SqueezeExcite(nn.Module):
    def __init__(self, channels, inner, gate):
        super().__init__()
        self.down, self.up, self.gate = nn.Conv2d(channels, inner, 1), nn.Conv2d(inner, channels, 1), gate

    def forward(self, x):
        return x * self.gate(self.up(F.relu(self.down(F.adaptive_avg_pool2d(x, 1)))))


class InvertedResidual(nn.Module):
    """Of MobileNetV2; with ``gate`` and another activation that of V3 and of EfficientNet."""
    def __init__(self, inside, outside, stride, expand, kernel=3, act=nn.ReLU6, gate=None):
        super().__init__()
        middle = inside * expand
        layers = [conv_bn(inside, middle, 1, act=act)] if expand > 1 else []
        layers += [conv_bn(middle, middle, kernel, stride, middle, act)]
        layers += [SqueezeExcite(middle, max(1, middle // 4), gate)] if gate else []
        self.layers = nn.Sequential(*layers, conv_bn(middle, outside, 1, act=None))
        self.adds = stride == 1 and inside == outside

    def forward(self, x):
        return x + self.layers(x) if self.adds else self.layers(x)


class Inverted(nn.Module):
    def __init__(self, act, gate, kernel):
        super().__init__()
        rows = (8, 8, 1, 1), (8, 12, 2, 3), (12, 12, 1, 3)
        self.layers = nn.Sequential(conv_bn(3, 8, 3, 2, act=act), *[InvertedResidual(*row, kernel, act, gate) for row in rows],
                                    conv_bn(12, 24, 1, act=act))
        self.head = nn.Linear(24, 5)

    def forward(self, x):
        return self.head(pooled(self.layers(x)))


@family(images())
class MobileNetV2(Inverted):
    def __init__(self):
        super().__init__(nn.ReLU6, None, 3)


@family(images())
class MobileNetV3(Inverted):
    def __init__(self):
        super().__init__(nn.Hardswish, nn.Hardsigmoid(), 5)


@family(images())
class EfficientNet(Inverted):
    def __init__(self):
        super().__init__(nn.SiLU, nn.Sigmoid(), 3)


class ShuffleUnit(nn.Module):
    def __init__(self, channels):
        super().__init__()
        half = channels // 2
        self.branch = nn.Sequential(conv_bn(half, half, 1), conv_bn(half, half, 3, 1, half, None), conv_bn(half, half, 1))

    def forward(self, x):
        kept, given = x.chunk(2, 1)
        y = torch.cat((kept, self.branch(given)), 1)
        n, c, h, w = y.shape
        return y.view(n, 2, c // 2, h, w).transpose(1, 2).contiguous().view(n, c, h, w)


@family(images())
class ShuffleNetV2(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(conv_bn(3, 8, 3, 2), nn.MaxPool2d(3, 2, 1), ShuffleUnit(8), ShuffleUnit(8), conv_bn(8, 16, 1))
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        return self.head(pooled(self.layers(x)))


class Fire(nn.Module):
    def __init__(self, inside, squeezed, expanded):
        super().__init__()
        self.squeeze = nn.Conv2d(inside, squeezed, 1)
        self.one, self.three = nn.Conv2d(squeezed, expanded, 1), nn.Conv2d(squeezed, expanded, 3, padding=1)

    def forward(self, x):
        x = F.relu(self.squeeze(x))
        return torch.cat([F.relu(self.one(x)), F.relu(self.three(x))], 1)


@family(images(24))
class SqueezeNet(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(3, 8, 3, 2), nn.ReLU(True), nn.MaxPool2d(3, 2, ceil_mode=True), Fire(8, 4, 8), Fire(16, 4, 8),
                         nn.MaxPool2d(3, 2, ceil_mode=True), Fire(16, 6, 12), nn.Conv2d(24, 5, 1), nn.ReLU(True),
                         nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten())


@family(images())
class VGG(nn.Sequential):
    def __init__(self):
        layers, inside = [], 3
        for outside in (8, "pool", 12, 12, "pool"):
            if outside == "pool":
                layers.append(nn.MaxPool2d(2, 2))
                continue
            layers += [nn.Conv2d(inside, outside, 3, padding=1), nn.BatchNorm2d(outside), nn.ReLU(inplace=True)]
            inside = outside
        super().__init__(*layers, nn.AdaptiveAvgPool2d((2, 2)), nn.Flatten(), nn.Linear(48, 16), nn.ReLU(True), nn.Linear(16, 5))


class InceptionBlock(nn.Module):
    def __init__(self, inside):
        super().__init__()
        self.one = conv_bn(inside, 4, 1)
        self.five = nn.Sequential(conv_bn(inside, 4, 1), conv_bn(4, 6, 5))
        self.seven = nn.Sequential(nn.Conv2d(inside, 4, (1, 7), padding=(0, 3)), nn.Conv2d(4, 6, (7, 1), padding=(3, 0)), nn.ReLU())
        self.pool = conv_bn(inside, 4, 1)

    def forward(self, x):
        return torch.cat([self.one(x), self.five(x), self.seven(x), self.pool(F.avg_pool2d(x, 3, 1, 1))], 1)


@family(images())
class Inception(nn.Module):
    """With the second head of GoogLeNet and Inception V3, which there is in training only."""
    def __init__(self):
        super().__init__()
        self.stem, self.first, self.second = conv_bn(3, 8, 3, 2), InceptionBlock(8), InceptionBlock(20)
        self.aside, self.head = nn.Linear(20, 5), nn.Linear(20, 5)

    def forward(self, x):
        x = self.first(self.stem(x))
        aside = self.aside(pooled(x)) if self.training else None
        y = self.head(pooled(F.max_pool2d(self.second(x), 3, 2)))
        return (y, aside) if self.training else y


class RegBlock(nn.Module):
    def __init__(self, inside, outside, stride):
        super().__init__()
        self.layers = nn.Sequential(conv_bn(inside, outside, 1), conv_bn(outside, outside, 3, stride, outside // 4),
                                    SqueezeExcite(outside, 2, nn.Sigmoid()), conv_bn(outside, outside, 1, act=None))
        self.short = conv_bn(inside, outside, 1, stride, act=None) if inside != outside else None

    def forward(self, x):
        return F.relu(self.layers(x) + (x if self.short is None else self.short(x)))


@family(images())
class RegNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(conv_bn(3, 8, 3, 2), RegBlock(8, 12, 2), RegBlock(12, 12, 1))
        self.head = nn.Linear(12, 5)

    def forward(self, x):
        return self.head(pooled(self.layers(x)))


class ConvNeXtBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.depthwise, self.norm = nn.Conv2d(channels, channels, 7, padding=3, groups=channels), nn.LayerNorm(channels, eps=1e-6)
        self.up, self.down = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)
        self.scale = nn.Parameter(torch.full((channels,), 0.1))

    def forward(self, x):
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + (self.scale * self.down(F.gelu(self.up(y)))).permute(0, 3, 1, 2)


class ChannelNorm(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


@family(images())
class ConvNeXt(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 4, 4), ChannelNorm(8), ConvNeXtBlock(8), ChannelNorm(8), nn.Conv2d(8, 12, 2, 2),
                                    ConvNeXtBlock(12))
        self.norm, self.head = nn.LayerNorm(12), nn.Linear(12, 5)

    def forward(self, x):
        return self.head(self.norm(pooled(self.layers(x))))


@family(images())
class ViT(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.cls, self.places = nn.Parameter(torch.randn(1, 1, width)), nn.Parameter(torch.randn(1, 17, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, 2, 32, 0.0, F.gelu, batch_first=True, norm_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 2, nn.LayerNorm(width), enable_nested_tensor=False), nn.Linear(width, 5)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.head(self.encoder(x)[:, 0])


class SwinBlock(nn.Module):
    """Attention inside windows, which are shifted in every second block."""
    def __init__(self, width, heads, size, window, shift):
        super().__init__()
        self.heads, self.window, self.shift, self.size = heads, window, shift, size
        self.norm1, self.norm2, self.qkv, self.out = nn.LayerNorm(width), nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.table = nn.Parameter(torch.randn((2 * window - 1) ** 2, heads) * 0.1)
        place = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")).flatten(1)
        apart = (place[:, :, None] - place[:, None, :]).permute(1, 2, 0) + window - 1
        self.register_buffer("apart", apart[..., 0] * (2 * window - 1) + apart[..., 1])
        region = torch.zeros(1, size, size, 1)
        for k, (h, w) in enumerate((h, w) for h in self.slices() for w in self.slices()):
            region[:, h, w] = k
        region = self.windows(region).squeeze(-1)
        self.register_buffer("mask", torch.where(region[:, None, :] != region[:, :, None], -100.0, 0.0) if shift else None)

    def slices(self):
        return slice(0, -self.window), slice(-self.window, -self.shift or None), slice(-self.shift, None) if self.shift else slice(0, 0)

    def windows(self, x):
        b, h, w, c = x.shape
        x = x.view(b, h // self.window, self.window, w // self.window, self.window, c)
        return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, self.window ** 2, c)

    def attend(self, x):
        n, t, c = x.shape
        q, k, v = self.qkv(x).reshape(n, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        scores = q * (c // self.heads) ** -0.5 @ k.transpose(-2, -1)
        scores = scores + self.table[self.apart.view(-1)].view(t, t, -1).permute(2, 0, 1).contiguous().unsqueeze(0)
        if self.mask is not None:
            w = self.mask.shape[0]
            scores = (scores.view(n // w, w, self.heads, t, t) + self.mask.unsqueeze(1).unsqueeze(0)).view(-1, self.heads, t, t)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(n, t, c))

    def forward(self, x):
        b, h, w, c = x.shape
        y = self.norm1(x)
        y = torch.roll(y, (-self.shift, -self.shift), (1, 2)) if self.shift else y
        y = self.attend(self.windows(y)).view(b, h // self.window, w // self.window, self.window, self.window, c)
        y = y.permute(0, 1, 3, 2, 4, 5).contiguous().view(b, h, w, c)
        x = x + (torch.roll(y, (self.shift, self.shift), (1, 2)) if self.shift else y)
        return x + self.mlp(self.norm2(x))


@family(images())
class Swin(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 2, 2)
        self.blocks = nn.Sequential(SwinBlock(width, 2, 8, 4, 0), SwinBlock(width, 2, 8, 4, 2))
        self.norm, self.merge = nn.LayerNorm(4 * width), nn.Linear(4 * width, 2 * width, bias=False)
        self.head = nn.Linear(2 * width, 5)

    def forward(self, x):
        x = self.blocks(self.patches(x).permute(0, 2, 3, 1))
        x = torch.cat([x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]], -1)
        return self.head(self.merge(self.norm(x)).mean((1, 2)))


class MixerBlock(nn.Module):
    def __init__(self, places, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.across, self.along = (nn.Sequential(nn.Linear(n, 2 * n), nn.GELU(), nn.Linear(2 * n, n)) for n in (places, width))

    def forward(self, x):
        x = x + self.across(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.along(self.norm2(x))


@family(images())
class MLPMixer(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.patches, self.blocks = nn.Conv2d(3, width, 4, 4), nn.Sequential(MixerBlock(16, width), MixerBlock(16, width))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 5)

    def forward(self, x):
        x = self.patches(x).flatten(2).mT
        return self.head(self.norm(self.blocks(x)).mean(1))


def twice(a, b):
    return nn.Sequential(conv_bn(a, b), conv_bn(b, b))


@family(images())
class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList([twice(3, 6), twice(6, 8), twice(8, 12)])
        self.up = nn.ModuleList([nn.ConvTranspose2d(12, 8, 2, 2), nn.ConvTranspose2d(8, 6, 2, 2)])
        self.after, self.head = nn.ModuleList([twice(16, 8), twice(12, 6)]), nn.Conv2d(6, 2, 1)

    def forward(self, x):
        kept = []
        for k, block in enumerate(self.down):
            x = block(x)
            if k < 2:
                kept.append(x)
                x = F.max_pool2d(x, 2)
        for up, after, old in zip(self.up, self.after, reversed(kept)):
            x = after(torch.cat([old, up(x)], 1))
        return self.head(x)


@family(both(images(24), lambda n, g: (torch.rand(n, 63, 4, generator=g), torch.randint(0, 4, (n, 63), generator=g))))
class RetinaNet(nn.Module):
    """A pyramid of features with heads for classes and boxes, and the focal loss."""
    def __init__(self, classes=3, width=8):
        super().__init__()
        self.stages = nn.ModuleList([conv_bn(3, 6, 3, 4), conv_bn(6, 8, 3, 2), conv_bn(8, 12, 3, 2)])
        self.inner = nn.ModuleList([nn.Conv2d(c, width, 1) for c in (6, 8, 12)])
        self.outer = nn.ModuleList([nn.Conv2d(width, width, 3, padding=1) for _ in range(3)])
        self.classify = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, classes, 3, padding=1))
        self.regress = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, 4, 3, padding=1))
        self.classes = classes

    def pyramid(self, x):
        found = []
        for stage in self.stages:
            x = stage(x)
            found.append(x)
        top = None
        for x, inner, outer in list(zip(found, self.inner, self.outer))[::-1]:
            x = inner(x)
            top = x if top is None else x + F.interpolate(top, size=x.shape[-2:], mode="nearest")
            yield outer(top)

    def forward(self, x, boxes, labels):
        levels = list(self.pyramid(x))
        scores, deltas = (torch.cat([head(v).permute(0, 2, 3, 1).flatten(1, 2) for v in levels], 1) for head in (self.classify, self.regress))
        boxes, labels = boxes[:, :scores.shape[1]], labels[:, :scores.shape[1]]
        wanted = F.one_hot(labels, self.classes + 1)[..., 1:].to(scores.dtype)  # 0: background
        cross = F.binary_cross_entropy_with_logits(scores, wanted, reduction="none")
        p = scores.sigmoid()
        focal = (cross * (1 - (p * wanted + (1 - p) * (1 - wanted))) ** 2 * (0.25 * wanted + 0.75 * (1 - wanted))).sum()
        found = labels > 0
        return scores, (focal + F.smooth_l1_loss(deltas[found], boxes[found], reduction="sum")) / found.sum().clamp(min=1)


@family(images(24))
class DETR(nn.Module):
    def __init__(self, width=16, queries=4):
        super().__init__()
        self.backbone, self.conv = nn.Sequential(conv_bn(3, 8, 3, 4), conv_bn(8, 12, 3, 2)), nn.Conv2d(12, width, 1)
        self.transformer = nn.Transformer(width, 2, 1, 1, 32, 0.0)
        self.classes, self.boxes = nn.Linear(width, 4), nn.Linear(width, 4)
        self.queries = nn.Parameter(torch.rand(queries, width))
        self.row, self.column = nn.Parameter(torch.rand(10, width // 2)), nn.Parameter(torch.rand(10, width // 2))

    def forward(self, x):
        x = self.conv(self.backbone(x))
        h, w = x.shape[-2:]
        places = torch.cat([self.column[:w].unsqueeze(0).repeat(h, 1, 1), self.row[:h].unsqueeze(1).repeat(1, w, 1)], -1)
        memory = places.flatten(0, 1).unsqueeze(1) + 0.1 * x.flatten(2).permute(2, 0, 1)
        y = self.transformer(memory, self.queries.unsqueeze(1).repeat(1, x.shape[0], 1)).transpose(0, 1)
        return {"pred_logits": self.classes(y), "pred_boxes": self.boxes(y).sigmoid()}

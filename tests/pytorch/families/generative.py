"""Networks that make what looks like their data: diffusion, flows, autoencoders, adversaries."""
import math

import torch
import torch.nn.functional as F
from family import both, family, images, normal
from torch import nn


def time_embedding(t, width):
    rates = torch.exp(-math.log(10000) * torch.arange(width // 2, device=t.device) / (width // 2))
    angles = t[:, None].float() * rates[None]
    return torch.cat([angles.sin(), angles.cos()], -1)


def times(n, g):
    return (torch.randint(0, 10, (n,), generator=g),)


class TimedBlock(nn.Module):
    def __init__(self, inside, outside, time):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(2, inside), nn.Conv2d(inside, outside, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(2, outside), nn.Conv2d(outside, outside, 3, padding=1)
        self.time, self.short = nn.Linear(time, outside), nn.Conv2d(inside, outside, 1) if inside != outside else nn.Identity()

    def forward(self, x, t):
        y = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(t))[:, :, None, None]
        return self.short(x) + self.conv2(F.silu(self.norm2(y)))


class PixelAttention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.qkv, self.out = nn.GroupNorm(2, width), nn.Conv2d(width, 3 * width, 1), nn.Conv2d(width, width, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(b, 3, c, h * w).unbind(1)
        weights = torch.einsum("bci,bcj->bij", q, k).mul(c ** -0.5).softmax(-1)
        return x + self.out(torch.einsum("bij,bcj->bci", weights, v).reshape(b, c, h, w))


@family(both(images(8), images(8), times))
class DDPM(nn.Module):
    """Guesses the noise that was added to an image at step t."""
    def __init__(self, width=8):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(width, 16), nn.SiLU(), nn.Linear(16, 16))
        self.start, self.down = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, width, 3, 2, 1)
        self.first, self.inner, self.middle = TimedBlock(width, width, 16), TimedBlock(width, 12, 16), PixelAttention(12)
        self.up, self.last = nn.Conv2d(12, width, 3, padding=1), TimedBlock(2 * width, width, 16)
        self.end = nn.Sequential(nn.GroupNorm(2, width), nn.SiLU(), nn.Conv2d(width, 3, 3, padding=1))
        self.width = width
        self.register_buffer("alphas", torch.cumprod(1 - torch.linspace(1e-4, 0.02, 10), 0))

    def forward(self, images, noise, t):
        a = self.alphas[t][:, None, None, None]
        x = a.sqrt() * images + (1 - a).sqrt() * noise
        time = self.time(time_embedding(t, self.width).to(x.dtype))
        x = self.first(self.start(x), time)
        y = self.middle(self.inner(self.down(x), time))
        y = self.up(F.interpolate(y, scale_factor=2, mode="nearest"))
        return F.mse_loss(self.end(self.last(torch.cat([y, x], 1), time)), noise)


class DiTBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = (nn.LayerNorm(width, elementwise_affine=False, eps=1e-6) for _ in range(2))
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU("tanh"), nn.Linear(2 * width, width))
        self.steer = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))

    def forward(self, x, c):
        shift1, scale1, gate1, shift2, scale2, gate2 = self.steer(c).unsqueeze(1).chunk(6, -1)
        y = self.norm1(x) * (1 + scale1) + shift1
        x = x + gate1 * self.attention(y, y, y)[0]
        return x + gate2 * self.mlp(self.norm2(x) * (1 + scale2) + shift2)


@family(both(images(8), times, times))
class DiT(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.patches, self.time, self.kind = nn.Conv2d(3, width, 2, 2), nn.Linear(width, width), nn.Embedding(10, width)
        self.blocks, self.norm = nn.ModuleList([DiTBlock(width) for _ in range(2)]), nn.LayerNorm(width)
        self.end, self.places = nn.Linear(width, 2 * 2 * 3), nn.Parameter(torch.randn(1, 16, width) * 0.1, requires_grad=False)
        self.width = width

    def forward(self, x, t, kinds):
        n = x.shape[0]
        c = self.time(time_embedding(t, self.width).to(x.dtype)) + self.kind(kinds)
        x = self.patches(x).flatten(2).transpose(1, 2) + self.places
        for block in self.blocks:
            x = block(x, c)
        x = self.end(self.norm(x)).reshape(n, 4, 4, 2, 2, 3)
        return torch.einsum("nhwpqc->nchpwq", x).reshape(n, 3, 8, 8)


@family(both(lambda n, g: (torch.rand(n, 1, 6, 6, generator=g),), normal(4)))
class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Flatten(), nn.Linear(36, 16), nn.ReLU())
        self.mean, self.log_variance = nn.Linear(16, 4), nn.Linear(16, 4)
        self.decode = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 36), nn.Sigmoid())

    def forward(self, x, noise):
        y = self.encode(x)
        mean, log_variance = self.mean(y), self.log_variance(y)
        found = self.decode(mean + torch.exp(0.5 * log_variance) * noise)
        apart = -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())
        return F.binary_cross_entropy(found, x.view(-1, 36), reduction="sum") + apart, found


@family(lambda n, g: (torch.randn(n, 8, 1, 1, generator=g), torch.rand(n, 3, 16, 16, generator=g) * 2 - 1))
class DCGAN(nn.Module):
    """The losses of the generator and of the discriminator."""
    def __init__(self):
        super().__init__()
        self.generate = nn.Sequential(nn.ConvTranspose2d(8, 12, 4, 1, 0, bias=False), nn.BatchNorm2d(12), nn.ReLU(True),
                                      nn.ConvTranspose2d(12, 8, 4, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(True),
                                      nn.ConvTranspose2d(8, 3, 4, 2, 1, bias=False), nn.Tanh())
        self.judge = nn.Sequential(nn.Conv2d(3, 8, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True),
                                   nn.Conv2d(8, 12, 4, 2, 1, bias=False), nn.BatchNorm2d(12), nn.LeakyReLU(0.2, inplace=True),
                                   nn.Conv2d(12, 1, 4, 1, 0, bias=False), nn.Flatten(0))

    def forward(self, noise, real):
        fake = self.generate(noise)
        true, false = torch.ones(real.shape[0], dtype=real.dtype), torch.zeros(real.shape[0], dtype=real.dtype)
        loss = F.binary_cross_entropy_with_logits
        return loss(self.judge(real), true) + loss(self.judge(fake.detach()), false), loss(self.judge(fake), true)


@family(normal(4))
class RealNVP(nn.Module):
    """Couplings of half of the numbers with the other half, and the density that follows."""
    def __init__(self):
        super().__init__()
        self.couplings = nn.ModuleList([nn.Sequential(nn.Linear(4, 12), nn.LeakyReLU(), nn.Linear(12, 8)) for _ in range(4)])
        self.register_buffer("mask", torch.tensor([1.0, 0.0, 1.0, 0.0]))
        self.prior = torch.distributions.Normal(0.0, 1.0)

    def forward(self, x):
        volume = x.new_zeros(x.shape[0])
        for k, coupling in enumerate(self.couplings):
            mask = self.mask if k % 2 == 0 else 1 - self.mask
            scale, shift = coupling(x * mask).chunk(2, -1)
            scale = torch.tanh(scale) * (1 - mask)
            x = mask * x + (1 - mask) * (x * scale.exp() + shift)
            volume += scale.sum(-1)
        return -(self.prior.log_prob(x).sum(-1) + volume).mean(), x


class MaskedConv(nn.Conv2d):
    def __init__(self, kind, *args, **kwargs):
        super().__init__(*args, **kwargs)
        k = self.kernel_size[0]
        mask = torch.ones_like(self.weight)
        mask[:, :, k // 2, k // 2 + (kind == "B"):] = 0
        mask[:, :, k // 2 + 1:] = 0
        self.register_buffer("mask", mask)

    def forward(self, x):
        return self._conv_forward(x, self.weight * self.mask, self.bias)


@family(lambda n, g: (torch.randint(0, 4, (n, 1, 8, 8), generator=g),))
class PixelCNN(nn.Module):
    """Pixels from those above and to the left, by masks of the weights."""
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(MaskedConv("A", 1, 8, 7, padding=3), nn.BatchNorm2d(8), nn.ReLU(),
                                    MaskedConv("B", 8, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 4, 1))

    def forward(self, levels):
        x = levels.to(self.layers[0].weight.dtype) / 3
        return F.cross_entropy(self.layers(x), levels.squeeze(1))


@family(images(8))
class VQVAE(nn.Module):
    """The nearest entries of a book, with the gradient passed straight through."""
    def __init__(self, entries=6, width=4):
        super().__init__()
        self.encode, self.decode = nn.Conv2d(3, width, 4, 2, 1), nn.ConvTranspose2d(width, 3, 4, 2, 1)
        self.book = nn.Embedding(entries, width)

    def forward(self, x):
        z = self.encode(x).permute(0, 2, 3, 1)
        flat = z.reshape(-1, z.shape[-1])
        far = flat.pow(2).sum(1, keepdim=True) + self.book.weight.pow(2).sum(1) - 2 * flat @ self.book.weight.t()
        chosen = far.argmin(1)
        q = self.book(chosen).view(z.shape)
        loss = F.mse_loss(q.detach(), z) * 0.25 + F.mse_loss(q, z.detach())
        used = F.one_hot(chosen, self.book.num_embeddings).to(x.dtype).mean(0)
        perplexity = torch.exp(-torch.sum(used * torch.log(used + 1e-10)))
        found = self.decode((z + (q - z).detach()).permute(0, 3, 1, 2))
        return found, loss + F.mse_loss(found, x), perplexity

"""Networks for rays, tables, clicks, pairs and time."""
import torch
import torch.nn.functional as F
from family import both, family, images, normal
from torch import nn


@family(both(normal(3), normal(3)))
class NeRF(nn.Module):
    """Colours of rays from density and colour along them."""
    def __init__(self, width=16, frequencies=4, samples=6):
        super().__init__()
        inside = 3 + 6 * frequencies
        self.first, self.second = nn.Linear(inside, width), nn.Linear(width + inside, width)
        self.density, self.colour = nn.Linear(width, 1), nn.Sequential(nn.Linear(width + 3, 8), nn.ReLU(), nn.Linear(8, 3), nn.Sigmoid())
        self.frequencies, self.samples = frequencies, samples

    def encode(self, x):
        return torch.cat([x, *[f(2.0 ** k * x) for k in range(self.frequencies) for f in (torch.sin, torch.cos)]], -1)

    def forward(self, origin, direction):
        direction = F.normalize(direction, dim=-1)
        depth = torch.linspace(0.5, 2.0, self.samples, dtype=origin.dtype)
        x = self.encode(origin[:, None] + depth[:, None] * direction[:, None])
        y = F.relu(self.second(torch.cat([F.relu(self.first(x)), x], -1)))
        colour = self.colour(torch.cat([y, direction[:, None].expand(-1, self.samples, -1)], -1))
        step = torch.cat([depth[1:] - depth[:-1], depth.new_full((1,), 1e10)])
        alpha = 1 - torch.exp(-F.relu(self.density(y).squeeze(-1)) * step)
        passed = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], -1), -1)[:, :-1]
        weights = alpha * passed
        return (weights.unsqueeze(-1) * colour).sum(1), (weights * depth).sum(-1)


@family(both(images(8), images(8), lambda n, g: (torch.randint(0, 2, (n,), generator=g),)))
class Siamese(nn.Module):
    """The same network on both images; pairs that belong together are drawn together."""
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(54, 8))

    def forward(self, a, b, same):
        a, b = self.net(a), self.net(b)
        apart = F.pairwise_distance(a, b)
        loss = torch.mean(same * apart.pow(2) + (1 - same) * torch.clamp(1.0 - apart, min=0.0).pow(2))
        return loss, F.triplet_margin_loss(a, b, b.flip(0))


@family(both(images(8), images(8)))
class SimCLR(nn.Module):
    """Two views of an image find each other among all others."""
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 6, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(54, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 6))

    def forward(self, a, b):
        z = F.normalize(self.net(torch.cat([a, b])), dim=1)
        like = z @ z.T / 0.5
        like = like.masked_fill(torch.eye(like.shape[0], dtype=torch.bool), -9e15)
        n = a.shape[0]
        return F.cross_entropy(like, torch.cat([torch.arange(n, 2 * n), torch.arange(n)]))


def clicks(n, g):
    return torch.rand(n, 4, generator=g), torch.randint(0, 20, (n * 3,), generator=g), torch.arange(n) * 3, torch.randint(0, 9, (n,), generator=g)


@family(clicks)
class DLRM(nn.Module):
    """Sums of embeddings, and all products of features."""
    def __init__(self, width=6):
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, width))
        self.bag, self.one = nn.EmbeddingBag(20, width, mode="sum"), nn.Embedding(9, width)
        self.top = nn.Sequential(nn.Linear(width + 3, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, dense, indices, offsets, user):
        x = self.bottom(dense)
        features = torch.stack([x, self.bag(indices, offsets), self.one(user)], 1)
        products = torch.bmm(features, features.mT)
        row, column = torch.tril_indices(3, 3, -1)
        return torch.sigmoid(self.top(torch.cat([x, products[:, row, column]], 1))).squeeze(1)


@family(lambda n, g: (torch.stack([torch.randint(0, k, (n,), generator=g) for k in (3, 5, 7)], 1), torch.randn(n, 4, generator=g)))
class TabTransformer(nn.Module):
    """Columns of kinds are words; columns of numbers join after the attention."""
    def __init__(self, width=8):
        super().__init__()
        self.register_buffer("starts", torch.tensor([0, 3, 8]))
        self.embed, self.norm = nn.Embedding(15, width), nn.LayerNorm(4)
        layer = nn.TransformerEncoderLayer(width, 2, 16, 0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.Linear(3 * width + 4, 8), nn.SELU(), nn.Linear(8, 1))

    def forward(self, kinds, numbers):
        x = self.encoder(self.embed(kinds + self.starts))
        return self.head(torch.cat([x.flatten(1), self.norm(numbers)], 1))


@family(normal(3))
class NeuralODE(nn.Module):
    """Five steps of Runge and Kutta."""
    def __init__(self):
        super().__init__()
        self.slope = nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 3))

    def at(self, t, y):
        return self.slope(torch.cat([y, torch.full_like(y[:, :1], t)], 1))

    def forward(self, y):
        h, path = 0.2, [y]
        for k in range(5):
            t = k * h
            k1 = self.at(t, y)
            k2 = self.at(t + h / 2, y + h / 2 * k1)
            k3 = self.at(t + h / 2, y + h / 2 * k2)
            k4 = self.at(t + h, y + h * k3)
            y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            path.append(y)
        return torch.stack(path)


@family(both(images(8), normal(4)))
class FiLM(nn.Module):
    """A network that another one steers, with spectral norm."""
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.steer = nn.Conv2d(3, 6, 3), nn.InstanceNorm2d(6, affine=False), nn.Linear(4, 12)
        self.head = nn.utils.parametrizations.spectral_norm(nn.Linear(6, 3))

    def forward(self, x, wanted):
        scale, shift = self.steer(wanted)[:, :, None, None].chunk(2, 1)
        return self.head(F.leaky_relu((1 + scale) * self.norm(self.conv(x)) + shift).mean((2, 3)))


@family(lambda n, g: (torch.randn(n, 5, generator=g), torch.randint(0, 3, (n,), generator=g), torch.randn(n, generator=g), torch.randn(n, generator=g)))
class ActorCritic(nn.Module):
    """The clipped loss of PPO, with the entropy of the actions."""
    def __init__(self):
        super().__init__()
        self.body, self.actor, self.critic = nn.Sequential(nn.Linear(5, 12), nn.Tanh()), nn.Linear(12, 3), nn.Linear(12, 1)

    def forward(self, seen, action, before, advantage):
        y = self.body(seen)
        chance = torch.distributions.Categorical(logits=self.actor(y))
        ratio = (chance.log_prob(action) - before).exp()
        clipped = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        return -clipped + F.smooth_l1_loss(self.critic(y).squeeze(-1), advantage) - 0.01 * chance.entropy().mean()

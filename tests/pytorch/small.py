"""Modules that several tests ask about."""
from torch import nn


class Calls(nn.Module):
    """Calls a function of its arguments."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


class TiedLayers(nn.Module):
    """Two layers with one weight."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)
        self.b.weight = self.a.weight

    def forward(self, x):
        return self.b(self.a(x))


class TiedEmbedding(nn.Module):
    """An embedding whose weight is that of the last layer too."""

    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(6, 4)
        self.out = nn.Linear(4, 6, bias=False)
        self.out.weight = self.emb.weight

    def forward(self, x):
        return self.out(self.emb(x))

"""Three real training loops: for 200 steps the loss follows eager's within 1e-3."""
import copy
import pathlib

import torch
import torch.nn.functional as F
from torch import nn

from dcml.pytorch import DaceModule

STEPS, TOLERANCE = 200, 1e-3


def follow(net, batches, loss_of, optimizer):
    """Trains the network compiled and eager on the same batches, and compares losses step by step."""
    compiled = DaceModule(copy.deepcopy(net), backward=True)
    losses = []
    for model in (compiled, net):
        steps = optimizer(model.parameters())
        losses.append([])
        for x, y in batches:
            steps.zero_grad()
            loss = loss_of(model(x), y)
            loss.backward()
            steps.step()
            losses[-1].append(loss.item())
    found, want = map(torch.tensor, losses)
    assert len(want) == STEPS and want[-20:].mean() < 0.8 * want[:20].mean(), "eager itself learns nothing"
    gap = (found - want).abs()
    assert gap.max() < TOLERANCE, f"step {gap.argmax()}: {found[gap.argmax()]} instead of {want[gap.argmax()]}"


def test_convolutional_network_on_digits():
    from sklearn.datasets import load_digits
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
    labels = torch.tensor(digits.target)
    pick = torch.Generator().manual_seed(0)
    picked = [torch.randint(len(labels), (32,), generator=pick) for _ in range(STEPS)]
    batches = [(images[i], labels[i]) for i in picked]
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
                        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(64, 10))
    follow(net, batches, F.cross_entropy, lambda p: torch.optim.SGD(p, 0.05, momentum=0.9))


class Transformer(nn.Module):
    """A causal language model over bytes."""

    def __init__(self, symbols=128, width=32, context=24):
        super().__init__()
        self.symbols, self.places = nn.Embedding(symbols, width), nn.Parameter(torch.randn(context, width) * 0.1)
        # smooth: where a ReLU flips by the last bit, two runs of eager part too
        layer = nn.TransformerEncoderLayer(width, 4, 64, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, symbols)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(context))

    def forward(self, x):
        return self.head(self.layers(self.symbols(x) + self.places, mask=self.mask, is_causal=True))


def test_small_transformer_on_the_text_of_the_docs():
    root = pathlib.Path(__file__).parents[2]
    text = "".join((root / name).read_text() for name in ("README.md", "CONTRIBUTING.md", "docs/op-language.md"))
    data = torch.tensor([min(ord(c), 127) for c in text])
    pick = torch.Generator().manual_seed(0)
    batches = []
    for _ in range(STEPS):
        starts = torch.randint(len(data) - 25, (8,), generator=pick)
        rows = torch.stack([data[s:s + 25] for s in starts])
        batches.append((rows[:, :-1], rows[:, 1:]))
    torch.manual_seed(0)
    follow(Transformer(), batches, lambda out, y: F.cross_entropy(out.flatten(0, 1), y.flatten()),
           lambda p: torch.optim.SGD(p, 0.1, momentum=0.9))


class Counter(nn.Module):
    """Reads numbers one by one and says the sum of those whose marker was set."""

    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.LSTM(2, 24, batch_first=True), nn.Linear(24, 1)

    def forward(self, x):
        states, _ = self.cell(x)
        return self.head(states[:, -1])[:, 0]


def test_lstm_on_sums_of_marked_numbers():
    noise = torch.Generator().manual_seed(0)
    batches = []
    for _ in range(STEPS):
        numbers = torch.rand(32, 8, generator=noise)
        marks = (torch.rand(32, 8, generator=noise) < 0.3).float()
        batches.append((torch.stack([numbers, marks], 2), (numbers * marks).sum(1)))
    torch.manual_seed(0)
    follow(Counter(), batches, F.mse_loss, lambda p: torch.optim.Adam(p, 0.01))

"""Trains a small CNN on handwritten digits with dcml, beside eager PyTorch from the same weights and batches.

Prints loss, accuracy and time of both, writes the trained network as ONNX and runs it again from the file, and
writes digits-report.html.  Usage: digits.py [epochs]
"""
import copy
import statistics
import sys
import time
from html import escape

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

from dcml.onnx import ONNXModel
from dcml.pytorch import dace_module
from dcml.sdfg.view import svg

BATCH, HELD_OUT = 64, 360


class Digits(nn.Module):
    """Two convolutions with BatchNorm, a pooling and a linear layer: 8x8 images to 10 log-probabilities."""

    def __init__(self):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.conv2, self.norm2 = nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32)
        self.linear = nn.Linear(32 * 4 * 4, 10)

    def forward(self, x):
        x = F.relu(self.norm1(self.conv1(x)))
        x = F.max_pool2d(F.relu(self.norm2(self.conv2(x))), 2)
        return F.log_softmax(self.linear(x.flatten(1)), dim=-1)


@dace_module(backward=True)
class CompiledDigits(Digits):
    """The same network, compiled: the decorator is the only difference."""


def load():
    """(train images, train labels, held-out images, held-out labels)."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    images, labels = images[order], labels[order]
    return images[HELD_OUT:], labels[HELD_OUT:], images[:HELD_OUT], labels[:HELD_OUT]


def step(model, optimizer, x, y):
    """One training step; returns (loss, seconds)."""
    start = time.perf_counter()
    optimizer.zero_grad(set_to_none=True)
    loss = F.nll_loss(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item(), time.perf_counter() - start


def accuracy(model, x, y):
    """Share of images classified correctly, in eval mode."""
    model.eval()
    with torch.no_grad():
        share = (model(x).argmax(1) == y).float().mean().item()
    model.train()
    return share


def progress(done, total):
    """A bar on a terminal, nothing elsewhere."""
    if sys.stderr.isatty():
        bar = "#" * (40 * done // total)
        print(f"\r[{bar:<40}] {done}/{total} steps", end="\n" if done == total else "", file=sys.stderr, flush=True)


def train(models, optimizers, x, y, epochs):
    """Trains both models step by step in turn; returns their mean loss for each epoch and their step times."""
    losses, times = {name: [] for name in models}, {name: [] for name in models}
    steps = len(y) // BATCH
    for epoch in range(epochs):
        order = torch.randperm(len(y), generator=torch.Generator().manual_seed(epoch))
        sums = dict.fromkeys(models, 0.0)
        for k in range(steps):
            batch = order[k * BATCH:(k + 1) * BATCH]
            for name, model in models.items():
                loss, seconds = step(model, optimizers[name], x[batch], y[batch])
                sums[name] += loss
                times[name].append(seconds)
            progress(epoch * steps + k + 1, epochs * steps)
        for name in models:
            losses[name].append(sums[name] / steps)
    return losses, times


def curves_svg(curves, title, width=520, height=220):
    """Line plots of {name: [numbers]} over their positions, as SVG text."""
    colours = ["#1f77b4", "#d62728", "#2ca02c", "#9467bd"]
    values = [v for curve in curves.values() for v in curve]
    low, high = min(values), max(values)
    span, longest = (high - low) or 1, max(len(c) for c in curves.values())
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
             f'font-family="sans-serif" font-size="12"><text x="40" y="16">{escape(title)}</text>'
             f'<text x="2" y="34">{high:.3g}</text><text x="2" y="{height - 12}">{low:.3g}</text>']
    for k, (name, curve) in enumerate(curves.items()):
        points = " ".join(f"{40 + i * (width - 60) / max(longest - 1, 1):.1f},{height - 16 - (v - low) * (height - 50) / span:.1f}"
                          for i, v in enumerate(curve))
        dash = ' stroke-dasharray="6 4"' if k % 2 else ""
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colours[k % 4]}" stroke-width="2"{dash}/>'
                     f'<text x="{width - 130}" y="{30 + 16 * k}" fill="{colours[k % 4]}">{escape(name)}</text>')
    return "".join([*parts, "</svg>"])


def report(path, losses, module):
    """Loss curves and the graphs before and after optimisation, as one HTML file."""
    views = {"captured": module.sdfg.graph, "forward, compiled": module.forward_sdfg.graph,
             "backward, compiled": module.backward_sdfg.graph}
    body = [f"<h2>{title}</h2>{svg(graph)}" for title, graph in views.items()]
    with open(path, "w", encoding="utf-8") as file:
        file.write("<!doctype html><meta charset='utf-8'><title>digits</title><body style='font-family:sans-serif'><h1>Digits</h1>"
                   + curves_svg(losses, "mean training loss by epoch") + "".join(body))


def main(epochs=12):
    torch.manual_seed(0)
    compiled = CompiledDigits()
    eager = Digits()
    eager.load_state_dict(copy.deepcopy(compiled.state_dict()))
    models = {"dcml": compiled, "eager": eager}
    optimizers = {name: torch.optim.Adam(model.parameters(), lr=2e-3) for name, model in models.items()}
    x, y, held_x, held_y = load()

    losses, times = train(models, optimizers, x, y, epochs)
    print(f"{'epoch':>5} {'loss dcml':>12} {'loss eager':>12}")
    for k, (a, b) in enumerate(zip(losses["dcml"], losses["eager"])):
        print(f"{k + 1:>5} {a:>12.6f} {b:>12.6f}")
    shares = {name: accuracy(model, held_x, held_y) for name, model in models.items()}
    medians = {name: 1e3 * statistics.median(t[5:]) for name, t in times.items()}
    drift = abs(losses["dcml"][0] - losses["eager"][0]) / losses["eager"][0]
    print(f"\n{'':>12} {'dcml':>10} {'eager':>10}")
    print(f"{'accuracy':>12} {shares['dcml']:>10.2%} {shares['eager']:>10.2%}")
    print(f"{'ms per step':>12} {medians['dcml']:>10.3f} {medians['eager']:>10.3f}   "
          f"ratio {medians['dcml'] / medians['eager']:.2f}")
    print(f"first epoch: losses differ by {drift:.1e} (relative)")

    compiled.eval()
    with torch.no_grad():
        compiled(held_x)
    compiled.dace_model.save("digits.onnx")
    network = ONNXModel("digits", "digits.onnx")
    found = np.asarray(network(held_x.numpy())).argmax(1)
    again = float((found == held_y.numpy()).mean())
    print(f"from digits.onnx: accuracy {again:.2%}")

    compiled.train()
    step(compiled, optimizers["dcml"], x[:BATCH], y[:BATCH])
    report("digits-report.html", losses, compiled)
    print("wrote digits.onnx and digits-report.html")
    return drift, shares, medians, again


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))

"""A network learns to learn: model-agnostic meta-learning (Finn, Abbeel and Levine, 2017) of sine waves.

Each task is a sine wave; one inner step of gradient descent fits the network to ten of its points, and the outer loss, after
that step, is differentiated through it: a second derivative.  The fitted weights differ from task to task, so the weights
are arguments of the compiled network.
Usage: maml.py [steps]
"""
import math
import sys

import torch
from torch import nn

from dcml.pytorch import DaceModule


class Network(nn.Module):
    """A perceptron whose weights are arguments, for several tasks at once: x [tasks, points, 1] -> [tasks, points, 1]."""

    def forward(self, x, weights):
        for k in range(0, len(weights), 2):
            x = x @ weights[k] + weights[k + 1].unsqueeze(-2)
            x = x.tanh() if k + 2 < len(weights) else x
        return x


def first_weights(width=32):
    sizes = [1, width, width, 1]
    weights = [t for a, b in zip(sizes, sizes[1:]) for t in (torch.randn(a, b) / math.sqrt(a), torch.zeros(b))]
    return [nn.Parameter(w) for w in weights]


def waves(tasks, points=10):
    """(x, y) of points to learn from, and of points to be judged by."""
    height, phase = torch.rand(tasks, 1, 1) * 4.9 + 0.1, torch.rand(tasks, 1, 1) * math.pi
    xs = [torch.rand(tasks, points, 1) * 10 - 5 for _ in range(2)]
    return [(x, height * torch.sin(x + phase)) for x in xs]


def adapted_loss(network, weights, tasks, rate=0.02):
    """(mean loss before, mean loss after one inner step) over tasks."""
    (x, y), (x_new, y_new) = waves(tasks)
    own = [w.expand(tasks, *w.shape) for w in weights]
    loss = (network(x, own) - y).square().mean((1, 2))
    slopes = torch.autograd.grad(loss.sum(), own, create_graph=True)
    fitted = [w - rate * slope for w, slope in zip(own, slopes)]
    before = (network(x_new, [w.detach() for w in own]) - y_new).square().mean()
    return before, (network(x_new, fitted) - y_new).square().mean()


def main(steps=2000, tasks=25):
    torch.manual_seed(0)
    network, weights = DaceModule(Network(), backward=True), first_weights()
    optimizer = torch.optim.Adam(weights, lr=2e-3)
    for step in range(steps):
        optimizer.zero_grad()
        _, after = adapted_loss(network, weights, tasks)
        after.backward()
        optimizer.step()
    torch.manual_seed(1)
    before, after = (loss.item() for loss in adapted_loss(network, weights, 200))
    print(f"loss on new tasks {before:.3f}, after one step of gradient descent {after:.3f}")
    return before, after


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

"""A network learns to solve a differential equation: its loss holds second derivatives of the compiled network.

u'' = -pi^2 sin(pi x) on [-1, 1] with u(-1) = u(1) = 0, whose solution is sin(pi x) (a physics-informed network, Raissi et
al., 2019).  ``create_graph=True`` works as in eager mode, and the gradients are compiled as well.
Usage: heat_equation.py [steps]
"""
import math
import sys

import torch
from torch import nn

from dcml.pytorch import dace_module


@dace_module(backward=True)
class Field(nn.Module):
    """u(x) with the boundary values built in."""

    def __init__(self, width=32):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, x):
        return (1 - x * x) * self.layers(x)


def residual(field, x):
    u = field(x)
    slope, = torch.autograd.grad(u.sum(), x, create_graph=True)
    curvature, = torch.autograd.grad(slope.sum(), x, create_graph=True)
    return curvature + math.pi ** 2 * torch.sin(math.pi * x)


def main(steps=400):
    torch.manual_seed(0)
    field = Field()
    x = torch.linspace(-1, 1, 64)[:, None].requires_grad_()
    optimizer = torch.optim.Adam(field.parameters(), lr=5e-3)
    for step in range(steps):
        optimizer.zero_grad()
        loss = residual(field, x).square().mean()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step:3d}  loss {loss.item():9.4f}")
    with torch.no_grad():
        error = (field(x) - torch.sin(math.pi * x)).abs().max().item()
    print(f"largest error {error:.4f}")
    return error


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

"""What a call of a captured module returns, leaf by leaf, where that is not simply a tensor of the graph.

The one idea: each kind says by ``of`` how it is made of the graph's results and the arguments' leaves.
"""
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Fixed:
    """A result that is the same at every call (None, a number, a string)."""
    value: Any

    def of(self, results, leaves):
        return self.value


@dataclass(frozen=True)
class Passed:
    """A result that is one of the leaves itself: an argument, or one of the module's own tensors."""
    leaf: int

    def of(self, results, leaves):
        return leaves[self.leaf]


@dataclass(frozen=True)
class Freed:
    """A result on which forward called requires_grad_(): the input leaf whose gradient is that of the value."""
    index: int
    leaf: int

    def of(self, results, leaves):
        leaves[self.leaf].data = results[self.index]
        return leaves[self.leaf]


@dataclass(frozen=True)
class Number:
    """A result that is a Python number, such as an extent; the graph gives it as a tensor."""
    index: int

    def of(self, results, leaves):
        return results[self.index].item()


@dataclass(frozen=True)
class Ordered:
    """A result whose axes lie in memory in another order than they are counted in; order: of axes, from the outermost on.
    Compiled functions give it with its axes in that order (see compiled.py)."""
    index: int
    order: tuple

    def of(self, results, leaves):
        return results[self.index].permute(sorted(range(len(self.order)), key=self.order.__getitem__))


@dataclass(frozen=True)
class View:
    """A result that is a view of such leaves: function(*[leaves[k] for k in positions]) makes it of them."""
    positions: tuple
    function: Any

    def of(self, results, leaves):
        return self.function(*[torch.as_tensor(leaves[k]) for k in self.positions])


@dataclass(frozen=True)
class Complex:
    """A result of complex type; the graph gives real and imaginary parts side by side."""
    index: int

    def of(self, results, leaves):
        return torch.view_as_complex(results[self.index])


def real_form(tensor):
    """A tensor as graphs take it: complex ones as their parts side by side."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor

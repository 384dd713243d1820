"""What a family is: a small model as published, and what a batch of it is."""
from typing import Callable, NamedTuple

import torch


class Family(NamedTuple):
    make: Callable   # () -> nn.Module, whose weights come from torch's generator
    batch: Callable  # (size, generator) -> arguments of a call


FAMILIES = {}


def family(batch, **config):
    """Adds a class of modules; ``config`` goes to it.  The name is the class's."""
    def add(module):
        FAMILIES[module.__name__] = Family(lambda: module(**config), batch)
        return module
    return add


def normal(*shape):
    """A batch of one tensor of normally distributed numbers."""
    return lambda n, g: (torch.randn(n, *shape, generator=g),)


def images(size=16, channels=3):
    return normal(channels, size, size)


def tokens(length, words=32):
    return lambda n, g: (torch.randint(0, words, (n, length), generator=g),)


def both(*batches):
    """A batch whose arguments are those of several."""
    return lambda n, g: tuple(t for batch in batches for t in batch(n, g))

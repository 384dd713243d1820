"""Neon's backend: op-trees over tensors, on dcml's core.

``from dcml.neon import NervanaObject``; ``dcml.neon.backends`` has ``gen_backend``.  Must not know: what a method computes.
"""
import importlib

__all__ = ["NervanaObject"]


class NervanaObject:
    """What layers, costs and optimizers derive from: ``be`` is the backend that gen_backend() made last, or None."""

    be = None
    _made = {}  # by class: how many instances there were, which names the next

    def __init__(self, name=None):
        if name is None:
            number = NervanaObject._made.get(type(self), 0)
            NervanaObject._made[type(self)] = number + 1
            name = f"{self.classnm}_{number}"
        self.name = name

    @property
    def classnm(self):
        """The name of the class."""
        return type(self).__name__

    @property
    def modulenm(self):
        """The name of the class with that of its module."""
        return f"{type(self).__module__}.{self.classnm}"


def __getattr__(name):
    if name == "backends":
        return importlib.import_module("dcml.neon.backends")
    raise AttributeError(f"module 'dcml.neon' has no attribute {name!r}")


def __dir__():
    return sorted({*globals(), "backends"})

"""The decorator dace_module: a class whose instances are compiled.

The one idea: the decorated class is a DaceModule around an instance of the class, and what it lacks is the class's own.
Must not know: how a module is compiled.
"""
import inspect

import torch

from .. import _core
from .module import DaceModule


class _Decorating(type):
    """Of decorated classes: what they lack is an attribute of the class that was decorated."""

    def _decorated(cls):
        return next((vars(base)["moduleclass"] for base in cls.__mro__ if "moduleclass" in vars(base)), None)

    def __getattr__(cls, name):
        kind = cls._decorated()
        if kind is None or name.startswith("__"):
            raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}")
        found = inspect.getattr_static(kind, name)
        return found.__get__(None, cls) if hasattr(type(found), "__get__") else found

    def __setattr__(cls, name, value):
        kind = cls._decorated()
        owners = () if kind is None else [base for base in kind.__mro__ if base not in torch.nn.Module.__mro__]
        if any(name in vars(base) for base in owners) and not name.startswith("__"):
            setattr(kind, name, value)
        else:
            super().__setattr__(name, value)


def dace_module(moduleclass=None, dummy_inputs=None, cuda=None, training=None, backward=False, apply_strict=True,
                auto_optimize=True, sdfg_name=None, debug_transients=False, **later):
    """Decorator for nn.Module classes: their instances are DaceModules around an instance of the class.

    The arguments are those of DaceModule, ``later`` its keyword-only ones; it may be used with or without them.
    Raises ValueError_ for what is no such class.

    >>> @dace_module
    ... class Doubled(torch.nn.Module):
    ...     def forward(self, x):
    ...         return 2 * x
    >>> Doubled()(torch.ones(2))
    tensor([2., 2.])
    """
    options = dict(dummy_inputs=dummy_inputs, cuda=cuda, training=training, backward=backward,
                   apply_strict=apply_strict, auto_optimize=auto_optimize, debug_transients=debug_transients, **later)

    def decorate(cls):
        if isinstance(cls, torch.nn.Module):
            raise _core.ValueError_(f"dace_module decorates classes, got an instance of {type(cls).__name__}: use DaceModule(module)")
        if not (inspect.isclass(cls) and issubclass(cls, torch.nn.Module)):
            raise _core.ValueError_(f"dace_module decorates subclasses of nn.Module, got {cls!r}")

        class Decorated(DaceModule, metaclass=_Decorating):
            def __init__(self, *args, **kwargs):
                super().__init__(cls(*args, **kwargs), sdfg_name=sdfg_name or cls.__name__, **options)

        Decorated.moduleclass = cls
        for attribute in ("__name__", "__qualname__", "__module__", "__doc__"):
            setattr(Decorated, attribute, getattr(cls, attribute))
        return Decorated

    return decorate if moduleclass is None else decorate(moduleclass)

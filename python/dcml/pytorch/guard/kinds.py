"""What ``type`` is to code that asks for torch.Tensor while stand-ins for tensors are traced.

The one idea: called with one value it tells the type that the value stands for; in all else it is type itself.
Must not know: captures or how a module is traced.
"""
import torch

_TYPES = (torch.nn.Parameter, torch.Tensor)


class _Kinds(type):
    def __call__(cls, *args, **kwargs):
        kind = type(*args, **kwargs)
        if len(args) == 1 and issubclass(kind, torch.Tensor) and kind.__module__.startswith("torch._subclasses"):
            return next(known for known in _TYPES if isinstance(args[0], known))
        return kind

    def __instancecheck__(cls, value):
        return isinstance(value, type)


class traced_type(metaclass=_Kinds):  # noqa: N801
    """Stands in for ``type`` among the builtins of such code."""


def asks_for_tensors(code):
    """Does a function compare types with torch.Tensor?  (By the names in its code: it may.)"""
    return "type" in code.co_names and "Tensor" in code.co_names

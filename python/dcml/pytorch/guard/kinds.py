"""What ``type``, ``int`` and ``float`` are to code that asks them about stand-ins for tensors while these are traced.

The one idea: called with one stand-in, they tell the type that it stands for, or the number that is not known yet; in all
else they are themselves.
Must not know: captures or how a module is traced.
"""
import builtins
import dis
import sys

import torch

_STAND_INS = __package__.rpartition(".")[0] + ".record"
_TYPES = (torch.nn.Parameter, torch.Tensor)


class _Kinds(type):
    def __call__(cls, *args, **kwargs):
        kind = type(*args, **kwargs)
        if len(args) == 1 and issubclass(kind, torch.Tensor) and kind.__module__.startswith(("torch._subclasses", _STAND_INS)):
            return next(known for known in _TYPES if isinstance(args[0], known))
        return kind

    def __instancecheck__(cls, value):
        return isinstance(value, type)


class traced_type(metaclass=_Kinds):  # noqa: N801
    """Stands in for ``type`` among the builtins of such code."""


def asks_for_tensors(code):
    """Does a function compare types with torch.Tensor?  (By the names in its code: it may.)"""
    return "type" in code.co_names and "Tensor" in code.co_names


def _number(kind):
    """Code can only call what is made here: type(x) is int, or dtype=int, would ask for another."""
    def number(*args, **kwargs):
        if len(args) != 1 or kwargs or not isinstance(args[0], torch.Tensor):
            return getattr(builtins, kind)(*args, **kwargs)
        value = args[0].to(torch.float64) if kind == "float" else args[0] if args[0].is_floating_point() else args[0].to(torch.int64)
        value = value.item()
        return torch.sym_int(value) if kind == "int" and isinstance(value, torch.SymFloat) else value
    return number


NUMBERS = {kind: _number(kind) for kind in ("int", "float")}


def numbers_called(code):
    """Those of NUMBERS that a function calls and does nothing else with."""
    if sys.version_info < (3, 11) or NUMBERS.keys().isdisjoint(code.co_names):
        return ()
    loads = [(found.argval, found.arg & 1) for found in dis.get_instructions(code)
             if found.opname == "LOAD_GLOBAL" and found.argval in NUMBERS]  # the lowest bit: it is about to be called
    return tuple(sorted({name for name, _ in loads} - {name for name, called in loads if not called}))

"""What went wrong in torch.export, as an error of dcml's that names the user's line.

Must not know: what is exported.
"""
import os
import traceback

import torch

from ... import _core
from ..guard.place import WAYS_OUT
from ..guard.watch import foreign_file

_FOLDER = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")
_MIXED = ("two different devices", "on the same device", "on the expected device")  # of FakeTensors; of operators that look
_VALUES = {"DynamicOutputShapeException": "the extents of its result depend on values of tensors",
           "GuardOnDataDependentSymNode": "Python code that branches on values of tensors",
           "DataDependentOutputException": "Python code that branches on values of tensors",
           "UserError": "Python code that branches on values of tensors",
           "PendingUnbackedSymbolNotFound": "the extents of its result depend on values of tensors",
           "UnsupportedOperatorException": "torch.export cannot tell what its result looks like"}


def export_error(module, error, leaves=()):
    """leaves: the call's arguments, which are named where they lie on several devices."""
    if any(text in str(error) for text in _MIXED):
        return _core.DeviceError(f"{type(module).__name__} cannot be captured: {str(error).strip().splitlines()[0]}: "
                                 f"{_places(module, leaves)}{_traced_line(error)}")
    reason = _VALUES.get(type(error).__name__)
    if reason and (type(error).__name__ != "UserError" or "data-dependent" in str(error)):
        what = getattr(error, "func", None) or type(module).__name__
        return _core.UnsupportedOpError(f"{what} cannot be captured: {reason}{WAYS_OUT}{_traced_line(error)}")
    if "fake tensor in the exported program" in str(error):
        return _core.UnsupportedOpError(f"{type(module).__name__} cannot be captured: torch.export loses a tensor on the way, "
                                        "as where torch.autograd.grad is taken inside forward with respect to an input: "
                                        "take it outside, of the compiled module's results, or by torch.func.grad")
    text = str(error).strip().split("\n\n")[0]
    text = f"torch.export cannot trace {type(module).__name__}: {type(error).__name__}: {text}{_traced_line(error)}"
    return _error_like(error)(text)


def _places(module, leaves):
    """'argument 0 is on cpu, parameter 'weight' is on cuda:0': the first tensor on each device."""
    named = [(f"argument {k}", leaf) for k, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    named += [(f"parameter '{name}'", p) for name, p in module.named_parameters()]
    named += [(f"buffer '{name}'", b) for name, b in module.named_buffers()]
    found = {}
    for name, tensor in named:
        found.setdefault(tensor.device, name)
    return ", ".join([f"{name} is on {device}" for device, name in found.items()])


def is_of_forward(error):
    """Is it an error of a class of the user's, raised by the user's code?"""
    return type(error).__module__ != "builtins" and not foreign_file(traceback.extract_tb(error.__traceback__)[-1].filename)


def _error_like(error):
    """Makes ModelErrors that may be caught as the error that forward itself raised, where it is one of Python's."""
    kind = type(error)
    if kind.__module__ != "builtins" or issubclass(_core.ModelError, kind):
        return _core.ModelError
    return type("ModelError", (_core.ModelError, kind), {"__module__": _core.ModelError.__module__})


def _traced_line(error):
    """' (file:line: code)' of the user's line that was being traced, or of the innermost of torch.nn."""
    if getattr(error, "line", None):  # which was traced without one, and failed in lowering
        return error.line
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<")
              and (f.name == "trace" or not f.filename.startswith(_FOLDER))]
    inside = next((k for k, f in enumerate(frames) if f.name == "trace"), -1)
    users = [f for f in frames[inside + 1:] if not foreign_file(f.filename)]
    users = users or [f for f in frames[inside + 1:] if "/torch/nn/modules/" in f.filename.replace("\\", "/")
                  and f.name == "forward"]
    return f" ({users[-1].filename}:{users[-1].lineno}: {(users[-1].line or '').strip()})" if users else ""

"""What forward asks of autograd or does to it by other ways than operators, while a module is traced.

The one idea: torch.export traces with gradients on and inputs that require none; here forward is told what is so in the
call itself, that it asked is noted, and what torch.export does not record is said by what it does.
Must not know: graphs or captures.
"""
import contextlib
import sys
import threading

import torch
from torch.autograd import grad_mode
from torch.overrides import TorchFunctionMode

from .. import _core
from .watch import foreign_file

_IS_GRAD_ENABLED, _TENSOR = torch.is_grad_enabled, torch._C.TensorBase
_OF_ARGUMENTS = {_TENSOR.requires_grad.__get__: "requires_grad", _TENSOR.is_leaf.__get__: "is_leaf"}
_REFUSED = {_TENSOR.grad.__get__: "reads .grad of a tensor", _TENSOR.storage_offset: "asks where in its storage a tensor lies"}


def mark(tensor, known):
    """Notes on a stand-in for an argument what known_of gave for the argument."""
    tensor._dcml_known = known


def known_of(value):
    """What forward may ask of an argument that its stand-in does not tell, by name; hashable."""
    return (("requires_grad", value.requires_grad), ("is_leaf", value.is_leaf)) if isinstance(value, torch.Tensor) else ()


def _set_data(tensor, value):
    if tensor.shape != value.shape or tensor.dtype != value.dtype:
        raise _core.UnsupportedOpError("inside forward, .data is set to a tensor of another shape or type")
    tensor.detach().copy_(value)  # which has no part in gradients, see ungraded.py


def _grad(outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=False, *args, **kwargs):
    """As torch.autograd.grad, whose results have no history unless they are asked to."""
    found = torch.autograd.grad(outputs, inputs, grad_outputs, True, create_graph, *args, **kwargs)
    return found if create_graph else tuple([None if g is None else g.detach() for g in found])


class Asked(TorchFunctionMode):
    """grad: does the call run with gradients on?  Afterwards, ``any``: has forward asked?"""

    def __init__(self, grad):
        super().__init__()
        self.grad, self.any = grad, False

    def __torch_function__(self, function, types, args=(), kwargs=None):
        asked = _OF_ARGUMENTS.get(function)
        known = dict(getattr(args[0], "_dcml_known", ())) if asked else {}
        if asked in known and self._note(sys._getframe(1)):
            return known[asked]
        if function in _REFUSED and not _foreign(sys._getframe(1)):
            raise _core.UnsupportedOpError(f"forward {_REFUSED[function]}, which is no part of a captured module")
        return _FUNCTIONS.get(function, function)(*args, **(kwargs or {}))

    def _note(self, frame):
        """Torch asks often, and never to decide about values."""
        foreign = _foreign(frame)
        self.any |= not foreign
        return not foreign

    def is_grad_enabled(self, frame):
        return _IS_GRAD_ENABLED() and (not self._note(frame) or self.grad)


def _foreign(frame):
    while frame.f_code.co_name == "__torch_function__":  # of other modes
        frame = frame.f_back
    return foreign_file(frame.f_code.co_filename)


_FUNCTIONS = {_TENSOR.data.__get__: torch.Tensor.detach, _TENSOR.data.__set__: _set_data, torch.autograd.grad: _grad}


@contextlib.contextmanager
def asked(grad):
    """Yields the Asked of what this thread traces meanwhile; one thread may do this at a time."""
    thread, mode, outer = threading.get_ident(), Asked(grad), grad_mode.inference_mode
    enter, leave = outer.__enter__, outer.__exit__

    def is_grad_enabled():
        return mode.is_grad_enabled(sys._getframe(1)) if threading.get_ident() == thread else _IS_GRAD_ENABLED()

    def begin(self):
        if threading.get_ident() != thread:
            return enter(self)
        self.gradient_before = _IS_GRAD_ENABLED()
        torch._C._set_grad_enabled(not self.mode)

    def end(self, *error):
        if not hasattr(self, "gradient_before"):
            return leave(self, *error)
        torch._C._set_grad_enabled(vars(self).pop("gradient_before"))
    outer.__enter__, outer.__exit__, torch.is_grad_enabled = begin, end, is_grad_enabled
    try:
        with mode:
            yield mode
    finally:
        outer.__enter__, outer.__exit__, torch.is_grad_enabled = enter, leave, _IS_GRAD_ENABLED

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
from torch.utils import _pytree as pytree

from ... import _core
from . import attributes
from .place import WAYS_OUT, place
from .state import frozen
from .watch import foreign_file

_TENSOR = torch._C.TensorBase
_OF_ARGUMENTS = {_TENSOR.requires_grad.__get__: "requires_grad", _TENSOR.is_leaf.__get__: "is_leaf",
                 torch.Tensor.stride: "stride"}
_WITHOUT_HISTORY = {torch.Tensor.detach, torch.Tensor.detach_, _TENSOR.data.__get__}
_SETS_REQUIRES_GRAD = {torch.Tensor.requires_grad_, _TENSOR.requires_grad.__set__}
_REFUSED = {_TENSOR.grad.__get__: "reads .grad of a tensor", _TENSOR.storage_offset: "asks where in its storage a tensor lies"}


def mark(stand_in, argument, known):
    """Notes on a stand-in for an argument what is known_of it, and its attributes."""
    stand_in._dcml_known, stand_in._dcml_attributes = known, _attributes(argument)


def _requires(stand_in):
    """Would a tensor require a gradient in a call with gradients on?"""
    known = dict(getattr(stand_in, "_dcml_known", ()))
    if known:
        return known["requires_grad"]
    with torch._C.DisableTorchFunction():
        return stand_in.requires_grad or getattr(stand_in, "_dcml_requires", False)


def known_of(value):
    """What forward may ask of an argument that its stand-in does not tell, by name; hashable."""
    if not isinstance(value, torch.Tensor):
        return ()
    known = [("requires_grad", value.requires_grad), ("is_leaf", value.is_leaf)]
    if value.layout is torch.strided and not value.is_contiguous():  # of others, the extents tell
        known.append(("stride", value.stride()))
    if held := _attributes(value):
        objects = []
        known.append(("attributes", (frozen(held, objects), *map(_Same, objects))))
    return tuple(known)


class _Same:
    """Is equal for the same object, which it keeps."""

    def __init__(self, held):
        self.held = held

    def __eq__(self, other):
        return isinstance(other, _Same) and self.held is other.held

    def __hash__(self):
        return id(self.held)


def _attributes(tensor):
    """What users have set on a tensor."""
    return {name: held for name, held in getattr(tensor, "__dict__", {}).items() if name not in ("grad", "data")}


def set_on(stand_in):
    """What forward has set on a tensor while it was traced, {name: value}."""
    own = {*getattr(type(stand_in), "__annotations__", ()), "grad", "data"}
    return {name: held for name, held in vars(stand_in).items() if not name.startswith("_") and name not in own}


def _set_data(tensor, value):
    if tensor.shape != value.shape or tensor.dtype != value.dtype:
        raise _core.UnsupportedOpError("inside forward, .data is set to a tensor of another shape or type")
    if value is not tensor:  # as in module.to(), where nothing is converted
        tensor.detach().copy_(value)  # which has no part in gradients, see trace/ungraded.py


def _grad(outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=False, *args, **kwargs):
    """As torch.autograd.grad, whose results have no history unless they are asked to."""
    found = torch.autograd.grad(outputs, inputs, grad_outputs, True, create_graph, *args, **kwargs)
    return found if create_graph else tuple([None if g is None else g.detach() for g in found])


class Asked(TorchFunctionMode):
    """grad: does the call run with gradients on?  kind: the class of stand-ins.  Afterwards, ``any``: has forward asked?
    ``attributes``: for those that users set on arguments?"""

    def __init__(self, grad, kind):
        super().__init__()
        self._kind = kind
        self.grad, self.any, self.attributes = grad, False, False
        self._turned_off = False
        self._now, self._before = grad, {}  # the mode that the call has by now; id of a region -> (itself, the mode before it)

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch._C._set_grad_enabled:
            self._follow(calling_frame(sys._getframe(1)), args[0])
        asked = _OF_ARGUMENTS.get(function)
        known = dict(getattr(args[0], "_dcml_known", ())) if asked else {}
        if asked in known and self._note(calling_code(sys._getframe(1))):
            axis = [*args[1:], *(kwargs or {}).values()]  # of stride()
            return known[asked][axis[0]] if axis else known[asked]
        computed = asked == "requires_grad" and not known and not isinstance(args[0], torch.nn.Parameter)
        if computed and self._note(calling_code(sys._getframe(1))):
            return self.grad and _requires(args[0])
        if function in _REFUSED and not _foreign(frame := sys._getframe(1)):
            frame = calling_frame(frame)
            raise _core.UnsupportedOpError(f"forward {_REFUSED[function]}, which is no part of a captured module{WAYS_OUT}"
                                           f"{place(frame.f_code.co_filename, frame.f_lineno)}")
        if function in _SETS_REQUIRES_GRAD:
            self._require(function, args[0], *args[1:], **(kwargs or {}))
        result = _FUNCTIONS.get(function, function)(*args, **(kwargs or {}))
        made = [one for one in pytree.tree_leaves(result) if isinstance(one, torch.Tensor)]
        if function is torch.Tensor.__setitem__:
            made = [args[0]]
        if made and function not in _WITHOUT_HISTORY and torch.is_grad_enabled():
            if any(isinstance(read, torch.Tensor) and _requires(read) for read in pytree.tree_leaves((args, kwargs))):
                for one in made:
                    if one.is_floating_point() or one.is_complex():
                        one._dcml_requires = True
        if made:
            for read in pytree.tree_leaves((args, kwargs)):
                if isinstance(read, self._kind) and read is not result:
                    read._dcml_used = True
                if getattr(read, "_dcml_known", ()) and read is not result:
                    read._dcml_read = True
        return result

    def _require(self, function, tensor, requires_grad=True):
        """Forward sets a flag: that of an argument is the caller's, any other may make a leaf."""
        self.any = True
        known = dict(getattr(tensor, "_dcml_known", ()))
        if not known:
            tensor._dcml_freed = requires_grad
            return
        same = known["requires_grad"] == requires_grad
        if same and (known["is_leaf"] or function is torch.Tensor.requires_grad_):
            return
        if not known["is_leaf"]:
            raise RuntimeError("you can only change requires_grad flags of leaf variables.")
        if getattr(tensor, "_dcml_read", False):
            raise _core.UnsupportedOpError("forward sets requires_grad of an argument that it has computed with before")
        tensor._dcml_known = tuple({**known, "requires_grad": requires_grad}.items())

    def _note(self, code):
        """Torch asks often, and never to decide about values; so do modes of ours."""
        foreign = foreign_file(code.co_filename)
        self.any |= not foreign
        return not foreign

    def attribute(self, tensor, name, frame):
        """Of an argument, one that tensors do not have."""
        held = vars(tensor).get("_dcml_attributes")
        if held is not None and not _foreign(frame):
            self.any = self.attributes = True
            if name in held and any(isinstance(v, torch.Tensor) for v in pytree.tree_leaves(held[name])):
                raise _core.UnsupportedOpError(f"forward reads the attribute {name!r} of an argument, which holds a "
                                               "tensor: give that as an argument")
            if name in held:
                return held[name]
        raise AttributeError(f"{type(tensor).__name__!r} object has no attribute {name!r}")

    def around_is_grad_enabled(self, frame):
        """Before torch.is_grad_enabled() is called in a frame, and with None after it: forward is told of the call's mode."""
        if frame is None and self._turned_off:
            self._turned_off = False
            _set_grad_enabled(True)
        elif frame is not None and self._note(frame.f_code) and not self._now and torch.is_grad_enabled():
            self._turned_off = True
            _set_grad_enabled(False)

    def _follow(self, frame, flag):
        """A mode is set in a frame; what torch's own regions go back to is the call's, not the trace's."""
        region = None
        while frame.f_code.co_filename == grad_mode.__file__:  # no_grad is made of set_grad_enabled
            region, part, frame = frame.f_locals.get("self"), frame.f_code.co_name, frame.f_back
        if region is not None and part == "__exit__":
            flag = self._before.pop(id(region), (region, flag))[1]
        elif region is not None:
            self._before.setdefault(id(region), (region, self._now))
        self._now = flag

    INFERENCE_MODE = grad_mode.inference_mode.__enter__.__code__

    def leave_inference_mode(self, frame):
        """At the end of inference_mode.__enter__: torch.export knows torch.no_grad() only."""
        entered = frame.f_locals["self"]
        entered._inference_mode_context.__exit__(None, None, None)
        entered._inference_mode_context = _NoInference(torch.is_grad_enabled())
        torch._C._set_grad_enabled(not entered.mode)


def _set_grad_enabled(flag):
    """Unseen by modes, which would note a region."""
    with torch._C.DisableTorchFunction():
        torch._C._set_grad_enabled(flag)


class _NoInference:
    """What a region with torch.inference_mode() ends with."""

    def __init__(self, before):
        self._before = before

    def __exit__(self, *error):
        torch._C._set_grad_enabled(self._before)


def calling_frame(frame):
    """The frame that called a function of torch, as a mode sees it in the frame that called the mode."""
    while frame.f_code.co_name == "__torch_function__" or frame.f_code.co_filename == attributes.__file__:
        frame = frame.f_back  # of other modes, and of what stands for getattr
    return frame


def calling_code(frame):
    return calling_frame(frame).f_code


def _foreign(frame):
    return foreign_file(calling_code(frame).co_filename)


_FUNCTIONS = {_TENSOR.data.__get__: torch.Tensor.detach, _TENSOR.data.__set__: _set_data, torch.autograd.grad: _grad}


@contextlib.contextmanager
def asked(grad, kind):
    """Yields the Asked of what this thread traces meanwhile, with stand-ins of this class; one thread may do this at a time."""
    thread, mode = threading.get_ident(), Asked(grad, kind)

    def attribute(tensor, name):  # called for those that are missing
        if threading.get_ident() == thread and not name.startswith("_"):
            return mode.attribute(tensor, name, sys._getframe(1))
        raise AttributeError(f"{type(tensor).__name__!r} object has no attribute {name!r}")
    kind.__getattr__ = attribute
    try:
        with mode:
            yield mode
    finally:
        del kind.__getattr__

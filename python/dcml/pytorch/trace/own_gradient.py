"""torch.autograd.Function while a module is captured: its forward and its own backward, both in the graph.

The one idea: backward is run once on stand-ins for the gradients of the results, so that torch.export writes it down
like any other code; three operators draw the border, and the core moves what lies behind it to the backward pass.
Must not know: graphs or the core.
"""
import builtins
import contextlib
import functools
import sys
import threading
import types

import torch
from torch.nn.modules._functions import BackwardHookFunction
from torch.utils.checkpoint import CheckpointFunction

from ... import _core

NAMESPACE = "dcml_border"
_OPERATORS = {"cotangent(Tensor y) -> Tensor": torch.zeros_like,  # stands for the gradient of y
              "give(Tensor y, Tensor x, Tensor b) -> Tensor": lambda y, x, b: y.clone(),  # b is the gradient of x
              "take(Tensor y, Tensor c) -> Tensor": lambda y, c: y.clone()}  # the gradient of the result is c


@functools.cache
def define_border():
    """The three operators, once."""
    library = torch.library.Library(NAMESPACE, "DEF")
    for schema, function in _OPERATORS.items():
        library.define(schema)
        library.impl(schema.partition("(")[0], function, "CompositeExplicitAutograd")
    return library


class _Context:
    """What forward and backward are given as ``ctx``."""

    def __init__(self, args):
        self.needs_input_grad = tuple([_is_float(a) for a in args])
        self.saved_tensors, self._outside, self.materialize_grads = (), (), True

    def save_for_backward(self, *tensors):
        self.saved_tensors = tensors

    def save_for_forward(self, *tensors):
        """For forward mode, which compiled modules do not have."""

    def mark_non_differentiable(self, *tensors):
        self._outside = tensors

    def mark_dirty(self, *tensors):
        raise _core.UnsupportedOpError("an autograd.Function that changes its inputs in place (mark_dirty)")

    def set_materialize_grads(self, value):
        self.materialize_grads = value

    def is_outside(self, tensor):
        return any(t is tensor for t in self._outside)


def _is_float(value):
    return isinstance(value, torch.Tensor) and value.dtype.is_floating_point


def _captured_apply(cls, args, kwargs):
    """What ``cls.apply(*args)`` is in a captured graph."""
    if issubclass(cls, CheckpointFunction):  # what to compute again is ours to decide
        run, _preserve_rng_state, *inputs = args
        return run(*inputs)
    if issubclass(cls, BackwardHookFunction):
        raise _core.UnsupportedOpError("full backward hooks of a submodule do not run in a compiled module: "
                                       "register them on the compiled module itself")
    if kwargs:
        raise TypeError(f"{cls.__name__}.apply() takes no keyword arguments")
    context = _Context(args)
    with torch.no_grad():
        results = _forward(cls, context, args)
    single = not isinstance(results, tuple)
    outputs = [results] if single else list(results)
    tracked = [k for k, y in enumerate(outputs) if _is_float(y) and not context.is_outside(y)]
    inputs = [k for k, needed in enumerate(context.needs_input_grad) if needed]
    if tracked and inputs:
        _mark(cls, context, args, inputs, outputs, tracked)
    outputs = [y.detach() if _is_float(y) and k not in tracked else y for k, y in enumerate(outputs)]
    return outputs[0] if single else tuple(outputs)


def _forward(cls, context, args):
    if _sets_up_in_forward(cls):
        return cls.forward(context, *args)
    results = cls.forward(*args)
    cls.setup_context(context, args, results)
    return results


def _sets_up_in_forward(cls):
    return cls.setup_context is torch.autograd.function._SingleLevelFunction.setup_context


def _mark(cls, context, args, inputs, outputs, tracked):
    """Draws the border around what backward computes, and puts results that end at it into ``outputs``."""
    border = getattr(torch.ops, NAMESPACE)
    cotangents = {k: border.cotangent(outputs[k]) for k in tracked}
    given = [cotangents[k] if k in cotangents else _zeros(context, y) for k, y in enumerate(outputs)]
    with torch.no_grad():
        gradients = cls.backward(context, *given)
    gradients = gradients if isinstance(gradients, tuple) else (gradients,)
    if len(gradients) < len(args) or any(g is not None for g in gradients[len(args):]):
        raise RuntimeError(f"function {cls.__name__}.backward returned an incorrect number of gradients "
                           f"(expected {len(args)}, got {len(gradients)})")
    for j in inputs:
        gradient = gradients[j]
        if gradient is None:
            continue
        if gradient.shape != args[j].shape:
            gradient = gradient.sum_to_size(args[j].shape)
        for k in tracked:
            outputs[k] = border.give(outputs[k], args[j], gradient.to(args[j].dtype))
    for k in tracked:
        outputs[k] = border.take(outputs[k], cotangents[k])


def hooked(tensor, hook):
    """As Tensor.register_hook on a tensor that forward has computed: from here on it is one whose gradient goes through the
    hook."""
    if isinstance(tensor, torch.nn.Parameter) or getattr(tensor, "_dcml_known", ()):
        raise _core.UnsupportedOpError("Tensor.register_hook on an argument or a parameter inside forward: register it outside, once")
    if getattr(tensor, "_dcml_used", False):
        raise _core.UnsupportedOpError("Tensor.register_hook on a tensor that forward has computed with before: register it first")
    border = getattr(torch.ops, NAMESPACE)
    cotangent = border.cotangent(tensor)
    with torch.no_grad():
        gradient = hook(cotangent)
    if gradient is not None:
        value = border.give(tensor.detach(), tensor, gradient)
        tensor.copy_(border.take(value, cotangent))
    return _Handle()


class _Handle:
    """Of a hook that is part of a compiled module."""

    def remove(self):
        raise _core.UnsupportedOpError("a hook on a tensor inside forward cannot be removed from a compiled module")


def straight_through(graph, node, tensor, source):
    """Adds to an fx graph, after ``node``, the value that ``tensor`` then has, whose gradient goes to what ``source`` was
    before.  Returns the fx node."""
    border = getattr(torch.ops, NAMESPACE)

    def call(function, *args):
        made = graph.call_function(function, args)
        made.meta = dict(tensor.meta)
        return made
    with graph.inserting_before(node):
        source = call(torch.ops.aten.clone.default, source)
    with graph.inserting_after(node):
        value = call(torch.ops.aten.detach.default, tensor)
    with graph.inserting_after(value):
        gradient = call(border.cotangent.default, value)
    with graph.inserting_after(gradient):
        value = call(border.give.default, value, source, gradient)
    with graph.inserting_after(value):
        return call(border.take.default, value, gradient)


def _zeros(context, output):
    return torch.zeros_like(output) if context.materialize_grads and isinstance(output, torch.Tensor) else None


_APPLY = torch.autograd.Function.__dict__["apply"]


def _super():
    """``super()`` in Function.apply, whose own apply captures, whatever name a user's code has given to Function.apply."""
    cls = sys._getframe(1).f_locals["cls"]
    return types.SimpleNamespace(apply=lambda *args, **kwargs: _captured_apply(cls, args, kwargs))


_IN_PYTHON = isinstance(_APPLY, classmethod)  # up to torch 2.13
# for frames that are traced, see guard/traced_code.py
BUILTINS = {_APPLY.__func__.__code__: {**vars(builtins), "super": _super}} if _IN_PYTHON else {}


@contextlib.contextmanager
def captured_functions():
    """While it lasts, ``apply`` of this thread's Functions captures where it is no frame that is traced.

    Under a name given to it before, an apply in C asks the class for ``_backward_cls`` and then, with gradients disabled, for
    ``forward``: it is given ours.
    """
    if _IN_PYTHON:
        yield
        return
    thread, kind = threading.get_ident(), type(torch.autograd.Function)
    begun, finished = [], []  # (class, are gradients enabled?) that has been asked for no forward yet; classes set up by us

    def run(cls, graded, *args):
        late = not _sets_up_in_forward(cls)
        _set_grad_enabled(graded)
        try:
            return _captured_apply(cls, args if late else args[1:], {})
        finally:
            _set_grad_enabled(False)
            if late:
                finished.append(cls)

    def attribute(cls, name):
        found = type.__getattribute__(cls, name)
        if threading.get_ident() != thread:
            return found
        if name == "apply" and isinstance(found, types.BuiltinMethodType):  # not a user's own
            return functools.partial(_captured, cls)
        if name == "_backward_cls":
            begun.append((cls, torch.is_grad_enabled()))
        elif name == "forward" and begun and begun[-1][0] is cls:
            return functools.partial(run, *begun.pop())
        elif name == "setup_context" and finished and finished[-1] is cls:
            finished.pop()
            return lambda context, inputs, output: None
        return found

    kind.__getattribute__ = attribute
    try:
        yield
    finally:
        del kind.__getattribute__


def _captured(cls, *args, **kwargs):
    return _captured_apply(cls, args, kwargs)


def _set_grad_enabled(enabled):
    """As torch's, unseen by modes, which would write it into the graph."""
    with torch._C.DisableTorchFunction():
        torch._C._set_grad_enabled(enabled)

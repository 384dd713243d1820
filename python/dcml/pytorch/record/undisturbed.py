"""Torch's own Python code for device "meta", run without loading torch.compile and sympy.

The one idea: that code imports, inside its functions, what keeps torch.compile out and what asks symbolic extents; extents are
plain numbers where we run it, so its frames find among their builtins a ``getattr`` and an ``__import__`` of ours, which
give the plain answers at once.
Must not know: what is recorded.
"""
import builtins
import contextlib
import operator
import sys

import torch

from ... import _core

_SHAPES = "torch.fx.experimental.symbolic_shapes"
_WRAPPER = torch._disable_dynamo(print).__code__  # around functions that torch.compile is kept out of


def _of_kept(function, name, default):
    """``getattr``, as the wrapper calls it: what is kept out already."""
    return function if name == "__dynamo_disable" else getattr(function, name, default)


def _equal(x, y):
    if isinstance(x, (tuple, list)) and isinstance(y, (tuple, list)):
        return len(x) == len(y) and all(map(_equal, x, y))
    return x == y


def _all(first, *others):
    return first if not others else all((first, *others))


def _any(first, *others):
    return first if not others else any((first, *others))


class _Shapes:
    """Functions of torch's module of symbolic extents, of numbers; others are torch's own."""
    sym_eq, sym_and, sym_or = map(staticmethod, (_equal, _all, _any))
    guard_or_false = guard_or_true = guard_size_oblivious = statically_known_true = expect_true = staticmethod(bool)
    guard_int = guarding_hint_or_throw = staticmethod(operator.index)
    has_guarding_hint, is_nested_int, free_unbacked_symbols = map(staticmethod, (lambda x: True, lambda x: False, lambda x: set()))

    def __getattr__(self, name):
        return getattr(__import__(_SHAPES, fromlist=("*",)), name)


def _import(name, globals=None, locals=None, fromlist=(), level=0):
    if name == _SHAPES and fromlist or name in _STAND_INS and name not in sys.modules:
        return _STAND_INS[name]
    return __import__(name, globals, locals, fromlist, level)


class _Sympy:
    """Of which no expression exists as long as it is not loaded."""
    Basic = type("Basic", (), {})


_STAND_INS = {_SHAPES: _Shapes(), "sympy": _Sympy}
_TORCH = torch.__file__.removesuffix("__init__.py")
_OF_WRAPPER = {**vars(builtins), "getattr": _of_kept}
_OF_OTHERS = {**vars(builtins), "__import__": _import}


def builtins_of(code):
    """The builtins for frames of a code of torch, None for their own."""
    if code is _WRAPPER:
        return _OF_WRAPPER
    if code.co_name == "<module>" or _STAND_INS.keys().isdisjoint(code.co_names):  # a module keeps what it imports
        return None
    return _OF_OTHERS if code.co_filename.startswith(_TORCH) else None


def _nothing(frame):
    """Of a function that nobody calls."""


@contextlib.contextmanager
def undisturbed():
    """What runs in this context and thread, and is not told of by another."""
    before = sys.getprofile()
    sys.setprofile(None)
    _core.tell_of_code(lambda code, table: builtins_of(code), _nothing, _nothing, _nothing.__code__, _nothing)
    try:
        yield
    finally:
        _core.tell_of_code()
        if hasattr(before, "enable"):  # a profiler in C
            before.enable()
        else:
            sys.setprofile(before)

"""Backward passes for many gradients at once: is_grads_batched=True, vectorize=True, torch.vmap around torch.autograd.grad.

The one idea: what torch.vmap hands over is taken apart, each gradient has a pass of its own, and what they find is put together
again; compiled functions know no further axis.
Must not know: plans, graphs or modules.
"""
import contextlib
import functools

import torch
from torch._C import _functorch
from torch._functorch.pyfunctorch import retrieve_current_functorch_interpreter

from ... import _core


def is_batched(grads):
    """Does torch.vmap, or what torch.autograd has of its own for it, run the pass for many gradients at once?"""
    return any(g is not None and (_functorch.is_batchedtensor(g) or _functorch.is_legacy_batchedtensor(g)) for g in grads)


def one_after_another(derive):
    """A function that finds gradients, (..., grads, results) -> [by argument], also for those that are batched."""
    @functools.wraps(derive)
    def found(function, call, arguments, wanted, grads, results):
        if not is_batched(grads):
            return derive(function, call, arguments, wanted, grads, results)
        legacy = any(g is not None and _functorch.is_legacy_batchedtensor(g) for g in grads)
        with (_autograds_own if legacy else _functorchs)() as (taken_apart, put_together):
            lines = [g if g is None else taken_apart(g) for g in grads]
            size = max(len(line) for line in lines if line is not None)
            lines = [[None] * size if line is None else line if len(line) == size else line * size for line in lines]
            rows = list(zip(*lines)) or [[None if g is None else torch.zeros(g.shape, dtype=g.dtype, device=g.device) for g in grads]]
            each = [found(function, call, arguments, wanted, tuple(row), results) for row in rows]
            columns = [None if column[0] is None else torch.stack(column)[:size] for column in zip(*each)]
        return [None if column is None else put_together(column) for column in columns]
    return found


@contextlib.contextmanager
def _functorchs():
    """(a function that gives the gradients batched in one, its opposite) for the innermost torch.vmap, which is left meanwhile."""
    interpreter = retrieve_current_functorch_interpreter()
    if interpreter.key() != _functorch.TransformType.Vmap:
        raise _core.UnsupportedOpError("torch.func (functorch) transforms do not go through the backward pass of a compiled module: "
                                       "transform module.model instead")
    level = interpreter.level()

    def taken_apart(grad):
        if not _functorch.is_batchedtensor(grad) or _functorch.maybe_get_level(grad) != level:
            return [grad]
        return _functorch.get_unwrapped(grad).movedim(_functorch.maybe_get_bdim(grad), 0).unbind(0)
    with interpreter.lower():
        yield taken_apart, lambda column: _functorch._add_batch_dim(column, 0, level)


@contextlib.contextmanager
def _autograds_own():
    """The same for the one that torch.autograd.grad has of its own."""
    torch._C._vmapmode_increment_nesting()
    level = torch._C._vmapmode_decrement_nesting()
    if level == 0:  # a thread of the engine's, for a device
        raise _core.UnsupportedOpError("is_grads_batched=True does not go through a compiled module on a GPU: "
                                       "ask for the gradients one by one, or by torch.vmap")
    yield lambda grad: torch._remove_batch_dim(grad, level, 1, 0).unbind(0), lambda column: torch._add_batch_dim(column, 0, level)

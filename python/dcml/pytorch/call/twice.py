"""Gradients of a call by a function of their own: those that are to be differentiated in turn, or of some results only.

The one idea: the gradients are a function like any other, of the call's arguments and of what it was given; the core
derives that function when it is first asked for, and it carries autograd nodes of its own, so that derivatives of any
order come of one rule.
Must not know: plans, graphs or modules.
"""
import torch

from ... import _core
from .batched import one_after_another

_NONE, _ZEROS = 0, 1


class _Refused(torch.autograd.Function):
    """Gradients that cannot be differentiated: those of all that they depend on, which raises, whichever is asked for."""
    @staticmethod
    def forward(ctx, why, found, *sources):
        ctx.why = why
        return tuple([None if grad is None else grad.detach() for grad in found])

    @staticmethod
    def backward(ctx, *grads):
        raise _core.UnsupportedOpError(f"the gradients of a compiled function cannot be differentiated: {ctx.why}")


@one_after_another
def gradients(function, call, arguments, wanted, grads, results):
    """The gradients of a call, with history.

    function: the core function; call: its record of the call; arguments: the call's inputs and parameters, with their
    history; wanted: by argument, whether its gradient is asked for; grads: by output, a gradient or None; results: by output,
    what the backward pass reads of them; None if it reads none, or they were changed since.
    Returns a list by argument: tensors, None where there is no gradient.
    """
    try:
        found = _derived(function, call, arguments, tuple([wanted[p] for p in function.wrt_positions]), tuple(grads))
    except _core.UnsupportedOpError as error:
        with torch.no_grad():
            found = call.backward(tuple(grads), results)
        sources = [t for t in (*arguments, *grads) if t is not None and t.requires_grad]
        found = _Refused.apply(str(error), found, *sources)
    return _by_argument(function, arguments, found)


@one_after_another
def anew(function, call, arguments, wanted, grads, results):
    """The gradients, without history, from the arguments alone: a result that the backward pass would read was changed in place.

    Eager mode refuses that where an operator keeps its result, and allows it where it keeps its operands.  Raises RuntimeError
    where the core cannot derive the gradients.
    """
    try:
        with torch.no_grad():
            found = _derived(function, call, arguments, tuple([wanted[p] for p in function.wrt_positions]), tuple(grads))
    except _core.UnsupportedOpError as error:
        raise RuntimeError("one of the variables needed for gradient computation has been modified by an inplace operation: a result of a "
                           f"compiled function, whose gradients cannot be computed without it: {error}") from None
    return _by_argument(function, arguments, found)


def _by_argument(function, arguments, found):
    out = [None] * len(arguments)
    for position, gradient in zip(function.wrt_positions, found):
        out[position] = gradient
    return out


def at_once(call, n_arguments, grads, is_last, results):
    """(gradients by argument, is one NaN?) of an ordinary pass, all parts of it, to which some results gave no gradient.

    The pass takes zeros for those, and zero times an infinite derivative is NaN where eager mode has no product at all: the
    caller then asks ``of_some``.
    """
    run, found = (call.start_last if is_last else call.start)(grads, results), [None] * n_arguments
    with torch.no_grad():
        for completes, _, _ in call.parts:
            for position, gradient in zip(completes, run.next()):
                found[position] = gradient
        some = [g for g in found if g is not None and g.numel()]
        sizes = torch._foreach_norm(some) if some else ()
    return found, any(size != size for size in map(float, sizes))


@one_after_another
def of_each(function, call, arguments, wanted, grads, results):
    """The gradients, without history, that torch.vmap asks for: an ordinary pass for each."""
    found, unclear = at_once(call, len(arguments), grads, False, results)
    return of_some(function, call, arguments, wanted, grads, found) if unclear and any(g is None for g in grads) else found


def of_some(function, call, arguments, wanted, grads, found):
    """The gradients of those results alone that gave one; ``found`` by the pass where the core cannot derive them."""
    positions, out = function.wrt_positions, list(found)
    try:
        with torch.no_grad():
            derived = _derived(function, call, arguments, tuple([wanted[p] and found[p] is not None for p in positions]), tuple(grads))
    except _core.UnsupportedOpError:
        return out
    for position, gradient in zip(positions, derived):
        out[position] = found[position] if gradient is None else gradient
    return out


def _derived(function, call, arguments, wanted, grads):
    derivative, kinds, shared = call.derivative(grads, wanted)
    results = iter(())
    if derivative is not None:
        n = len(arguments) - len(function.params or ())
        derivative.set_params(arguments[n:])
        seeds = [g for g in grads if g is not None and g.dtype.is_floating_point]
        results = iter(derivative(*arguments[:n], *seeds, *shared))
    of = [arguments[p] for p in function.wrt_positions]
    return [None if kind == _NONE else torch.zeros_like(x) if kind == _ZEROS else next(results) for kind, x in zip(kinds, of)]

"""When a call need not be looked at by Python, because it is like an earlier one.

The one idea: all that a call depends on is either compared by the core in microseconds, or forbids this.
Must not know: what a call computes.
"""
import functools

import torch

from .. import _core
from .call import node, trees
from .call.device import draw_seed
from .call.recipe import profiling
from .guard.state import GLOBAL_HOOKS, HOOKS

OWN_CALL = {"forward", "_compiled_call_impl"}  # attributes of an instance that decide what a call of it does


def repeated_call(module, forward, captures, recipe, function, args, kwargs):
    """The core's check for calls of a DaceModule like this one, which has just run; None where Python has to look at the
    arguments.  forward: of the class itself."""
    compiled = recipe.compiled
    capture, held = compiled.capture, vars(module)
    hooks = {name: held[name] for name in HOOKS}
    if not module.compile_torch_extension or type(module).forward is not forward or not OWN_CALL.isdisjoint(held):
        return None
    if recipe.changed or recipe.complex or recipe.flagged or recipe.freed or capture.counted or capture.asks_attributes:
        return None
    if recipe.named is not None or recipe.sets or recipe.altered or capture.places or compiled.moved:
        return None
    if recipe.decided and recipe.seed:
        return None
    if any(GLOBAL_HOOKS) or any(hooks.values()) or any(table[key].is_complex() for table, key in compiled.slots):
        return None
    form, leaves = (None, args) if recipe.inputs is None else (_form((args, kwargs)), trees.flatten((args, kwargs))[0])
    if form is _OTHER or not all(isinstance(leaves[i], torch.Tensor) for i in recipe.inputs or ()):
        return None
    if torch._C._is_any_autocast_enabled() or node.forward_level() >= 0 or profiling():
        return None
    ties = [(*other, table[key]) for (table, key), other in compiled.ties]
    unhooked = [*[(held, *item) for item in hooks.items()], *[(table, ()) for table in hooks.values()]]
    unsettled = [] if node.is_final() else [(vars(node), "modes", node.modes)]
    watched = (*captures.state.watched(), *ties, *unhooked, *unsettled)
    taken = None if recipe.inputs is None else tuple(recipe.inputs)
    turned = tuple(compiled.turned.items())
    last = functools.partial(draw_seed, compiled.device) if recipe.seed else None
    return _core.RepeatedCall(function, args, kwargs, form, len(leaves), taken, turned, compiled.slots, watched, node.modes,
                              module.backward or captures.asks, last)


_OTHER = object()  # a form that the core does not compare


def _form(value):
    """A value with ... for each tensor, or _OTHER where it holds more than these, numbers, texts and containers of them."""
    kind = type(value)
    if isinstance(value, torch.Tensor):
        return ...
    if value is None or kind in (bool, int, str):
        return value
    if kind not in (tuple, list, dict):
        return _OTHER
    forms = list(map(_form, value.values() if kind is dict else value))
    if any(form is _OTHER for form in forms):
        return _OTHER
    return dict(zip(value, forms)) if kind is dict else kind(forms)

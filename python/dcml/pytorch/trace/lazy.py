"""Modules whose parameters take their shapes from the first call (torch.nn.LazyLinear and its kin).

The one idea: as in eager mode, forward runs on the arguments of the first call; it ends where the last lazy module has its shapes.
Must not know: how a module is traced.
"""
import contextlib

import torch
from torch.nn.modules.lazy import LazyModuleMixin


class _Initialised(BaseException):
    """Not an Exception, which forward may catch."""


def initialise(module, args, kwargs):
    """Gives lazy modules inside a module the shapes that this call leads to; those that it does not run stay as they are.

    Forward runs in evaluation mode and without gradients, so that statistics stay as they are.  Raises what it raises.
    """
    left = {m for m in module.modules() if isinstance(m, LazyModuleMixin) and m.has_uninitialized_params()}
    if not left:
        return

    def met(one, _):
        left.discard(one)
        if not left:
            raise _Initialised

    hooks = [one.register_forward_pre_hook(met) for one in left]  # after the one that initialises
    modes = [(m, m.training) for m in module.modules()]
    try:
        module.eval()
        with torch.no_grad(), contextlib.suppress(_Initialised):
            module(*args, **kwargs)
    finally:
        for hook in hooks:
            hook.remove()
        for m, training in modes:
            m.training = training

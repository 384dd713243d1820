"""A module in a state that torch.export takes, and as it was afterwards.

Must not know: how a module is exported or lowered.
"""
import contextlib
import threading

import torch

from ... import _core
from ..guard.state import GLOBAL_HOOKS


@contextlib.contextmanager
def prepared(module, train):
    """The module in the wanted state, with constructs that export rejects made traceable; yields the statistics of
    batch norms with momentum=None, as {running statistic: call counter}."""
    _refuse_uninitialised(module)
    _refuse_backward_hooks(module)
    _refuse_quantised(module)
    replaced = _replace_unusual_parameters(module)
    flags = [(m, m.training) for m in module.modules()] if train is not None else []
    cumulative, averaging = {}, []
    try:
        if train is not None:
            module.train(train)
        for path, m in module.named_modules():
            if isinstance(m, torch.nn.modules.batchnorm._BatchNorm) and m.momentum is None and m.training:
                prefix = path + "." if path else ""
                for statistic in ("running_mean", "running_var"):
                    cumulative[prefix + statistic] = prefix + "num_batches_tracked"
                averaging.append(m)
                m.momentum = 1.0
        yield cumulative
    finally:
        for m in averaging:
            m.momentum = None
        for table, key, tensor in replaced:
            table[key] = tensor
        for m, flag in flags:
            m.training = flag


def _refuse_uninitialised(module):
    lazy = torch.nn.parameter.UninitializedTensorMixin
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if isinstance(tensor, lazy):
            raise _core.ModelError(f"parameter {name!r} has no shape yet: none of the calls so far has run its module, which is lazy")


def _refuse_backward_hooks(module):
    """A compiled module runs no backward pass of its parts."""
    everywhere = torch.nn.modules.module
    if everywhere._global_backward_hooks or everywhere._global_backward_pre_hooks:
        raise _core.UnsupportedOpError("backward hooks of all modules do not run in a compiled module")
    for path, m in module.named_modules():
        if m._backward_hooks or m._backward_pre_hooks:
            what = f"the part {path!r}" if path else "the wrapped module"
            raise _core.UnsupportedOpError(f"backward hooks of {what} ({type(m).__name__}) do not run in a compiled "
                                           "module: register them on the compiled module itself")


def _refuse_quantised(module):
    """Weights that torch.ao has packed are no tensors."""
    for path, m in module.named_modules():
        if type(m).__module__.startswith("torch.ao.nn.") and any(isinstance(v, torch.ScriptObject) for v in vars(m).values()):
            raise _core.UnsupportedOpError(f"the part {path!r} ({type(m).__name__}) holds weights that torch.ao has quantised and packed: "
                                           "wrap the module as it was before torch.ao converted it")


def _replace_unusual_parameters(module):
    """torch.export takes nn.Parameters only, none made in inference mode; returns [(table, key, tensor replaced)]."""
    replaced, made = [], {}
    for m in module.modules():
        for key, tensor in m._parameters.items():
            if tensor is None or isinstance(tensor, torch.nn.Parameter) and not tensor.is_inference():
                continue
            if id(tensor) not in made:
                fresh = tensor.clone() if tensor.is_inference() else tensor.detach()
                made[id(tensor)] = torch.nn.Parameter(fresh, requires_grad=fresh.is_floating_point())
            replaced.append((m._parameters, key, tensor))
            m._parameters[key] = made[id(tensor)]
    return replaced


@contextlib.contextmanager
def same_attributes(module):
    """torch.export leaves copies of lists and dictionaries in a module; they become again what they were."""
    kept = [(vars(m), dict(vars(m))) for m in module.modules()]
    try:
        yield
    finally:
        for table, was in kept:
            table.update({name: value for name, value in was.items() if table.get(name) is not value})


@contextlib.contextmanager
def hooks_inside(module):
    """torch.export's own modules call hooks of all modules; they are for those inside this one, and for the outermost
    it is the DaceModule that calls them."""
    inside, thread = {id(m) for m in module.modules() if m is not module}, threading.get_ident()

    def narrowed(hook):
        return lambda m, *args: hook(m, *args) if id(m) in inside or threading.get_ident() != thread else None
    kept = [(table, dict(table)) for table in GLOBAL_HOOKS]
    for table, was in kept:
        table.update({key: narrowed(hook) for key, hook in was.items() if callable(hook)})
    try:
        yield
    finally:
        for table, was in kept:
            table.update(was)

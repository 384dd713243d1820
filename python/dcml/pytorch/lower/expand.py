"""One call of an overload as calls of others: what torch's own code does, written down by running it on the call's fake
tensors.

The one idea: only such calls are traced again that no row serves, or that may look at memory or change it in ways that
their schemas do not tell; everything else stays as the one pass of tracing has recorded it.
Must not know: programs, rows, or what is done with the calls.
"""
import contextlib
import functools

import torch
from torch.utils import _pytree as pytree

from ..record.recorder import Recorder, Telling, above_autograd
from ..record.stand_in import StandIn, memory_of
from .program import Region

_AUTOCAST = {"cpu": torch._C.DispatchKey.AutocastCPU, "cuda": torch._C.DispatchKey.AutocastCUDA}
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd


def fake(value):
    """The fake tensor or number that stands for an fx node; others stand for themselves."""
    return value.meta["val"] if isinstance(value, torch.fx.Node) else value


def expanded(function, args, kwargs, worlds, seen=lambda tensor: tensor):
    """(a Region or GraphModule of the calls that ``function`` makes, its arguments in order) for arguments that are fx nodes and
    others; None where it says that it makes none (NotImplemented).  ``function`` gets seen(tensor) of tensors.  worlds: a program's."""
    leaves, spec = pytree.tree_flatten((_plain(args), _plain(kwargs)))
    places = [k for k, leaf in enumerate(leaves) if isinstance(leaf, torch.fx.Node)]

    def run(*values):
        filled = list(leaves)
        for k, value in zip(places, values):
            filled[k] = value
        given, named = pytree.tree_unflatten(filled, spec)
        with torch._C.DisableTorchFunction():
            made = function(*given, **named)
        declined.append(made is NotImplemented)
        return () if declined[-1] else tuple(pytree.tree_leaves(made))
    declined = []
    values = [fake(leaves[k]) for k in places]
    with _mode_of(values):
        values = [seen(value) if isinstance(value, torch.Tensor) else value for value in values]
        values = _distinct([leaves[k] for k in places], values)
    with _mode_of(values) if worlds is None else contextlib.nullcontext():
        trace = torch.fx.experimental.proxy_tensor.make_fx(run, pre_dispatch=True) if worlds is None else _recorded(run, worlds)
        made = trace(*values)
    return None if any(declined) else (made, [leaves[k] for k in places])


def _recorded(run, worlds):
    """As make_fx: from stand-ins to a Region."""
    def trace(*values):
        constants = {}

        def constant(tensor):
            name = f"constant_{len(constants)}"
            constants[name] = tensor
            node = recorder.graph.get_attr(name)
            node.meta["val"] = StandIn.of(tensor, worlds)
            recorder.name(tensor, node)
            return node
        recorder = Recorder(worlds, real=constant)
        for k, value in enumerate(values):
            recorder.placeholder(f"value_{k}", value)
        with above_autograd(recorder):
            made = run(*values)
        recorder.graph.output(tuple(map(recorder.node, made)))
        return Region(recorder.graph, constants)
    return trace


def _distinct(nodes, values):
    """The values of nodes, of which no two have the same tensor, since torch takes nodes apart by their tensors."""
    first = {}
    with torch.no_grad():
        return [value.detach() if isinstance(value, torch.Tensor) and first.setdefault(id(value), node) is not node else value
                for node, value in zip(nodes, values)]


def settled(tensor):
    """The fake tensor as values have it: torch's marks for what is to be conjugated or negated are calls in a program."""
    if not (tensor.is_conj() or tensor.is_neg()):
        return tensor
    with _mode_of([tensor]), torch.no_grad():
        tensor = tensor.detach()
    torch._C._set_conj(tensor, False)
    torch._C._set_neg(tensor, False)
    return tensor


def _plain(value):
    """Lists and dictionaries of an fx node, which refuse changes, as those that any code gets."""
    if isinstance(value, (list, tuple)):
        return (list if isinstance(value, list) else tuple)([_plain(one) for one in value])
    return {name: _plain(one) for name, one in value.items()} if isinstance(value, dict) else value


def result_of(function, args, kwargs):
    """What a call gives for the fake tensors of its arguments; unseen by torch.autocast."""
    args, kwargs = torch.fx.map_arg((args, kwargs), fake)
    with torch._C._DisableAutocast(), _mode_of(pytree.tree_leaves((args, kwargs))):
        return function(*args, **kwargs)


def _mode_of(values):
    """The mode in which operators tell what they give for the stand-ins or fake tensors among these."""
    for value in values:
        if isinstance(value, StandIn):
            return above_autograd(Telling(value.worlds))
        if hasattr(value, "fake_mode"):
            return value.fake_mode
    return contextlib.nullcontext()


@functools.cache
def is_composite(overload):
    """Is it made of others, before autograd sees it?"""
    return torch._C._dispatch_has_kernel_for_dispatch_key(overload.name(), _COMPOSITE) or _COMPOSITE in overload.py_kernels


@functools.cache
def is_opaque(overload):
    """Is it a composite that may look at the memory of its arguments or change it?  What it does there is seen in its parts."""
    if not is_composite(overload):
        return False
    schema = overload._schema
    return (torch.Tag.maybe_aliasing_or_mutating in overload.tags or schema.is_mutable
            or any(argument.alias_info is not None for argument in schema.arguments))


def shares_memory(node):
    """Does a result of an fx node lie in the memory of an argument, as it was traced?  Schemas of composites need not say so."""
    given, made = [{memory_of(leaf) for leaf in pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor)}
                   for values in ([one.meta.get("val") for one in node.all_input_nodes], node.meta.get("val"))]
    return not given.isdisjoint(made)


def autocast_key(device):
    """The dispatch key of torch.autocast for a device, None where it is off."""
    return _AUTOCAST.get(device) if device in _AUTOCAST and torch.is_autocast_enabled(device) else None


@functools.cache
def casts(overload, key):
    """Does torch.autocast convert arguments of this overload?"""
    return torch._C._dispatch_has_kernel_for_dispatch_key(overload.name(), key)

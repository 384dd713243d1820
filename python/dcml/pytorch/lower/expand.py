"""One call of an overload as calls of others: what torch's own code does, written down by running it on the call's fake
tensors.

The one idea: only such calls are traced again that no row serves, or that may look at memory or change it in ways that
their schemas do not tell; everything else stays as the one pass of tracing has recorded it.
Must not know: programs, rows, or what is done with the calls.
"""
import contextlib
import functools

import torch
from torch._subclasses import FakeTensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

_AUTOCAST = {"cpu": torch._C.DispatchKey.AutocastCPU, "cuda": torch._C.DispatchKey.AutocastCUDA}
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd


def fake(value):
    """The fake tensor or number that stands for an fx node; others stand for themselves."""
    return value.meta["val"] if isinstance(value, torch.fx.Node) else value


def expanded(function, args, kwargs, seen=lambda tensor: tensor):
    """(a GraphModule of the calls that ``function`` makes, its arguments in order) for arguments that are fx nodes and others;
    None where it says that it makes none (NotImplemented).  ``function`` gets seen(tensor) of tensors."""
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
        made = make_fx(run, pre_dispatch=True)(*_distinct([leaves[k] for k in places], values))
    return None if any(declined) else (made, [leaves[k] for k in places])


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
    """The mode of the fake tensors among these."""
    return next((value.fake_mode for value in values if isinstance(value, FakeTensor)), contextlib.nullcontext())


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
    given, made = [{leaf.untyped_storage()._cdata for leaf in pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor)}
                   for values in ([one.meta.get("val") for one in node.all_input_nodes], node.meta.get("val"))]
    return not given.isdisjoint(made)


def autocast_key(device):
    """The dispatch key of torch.autocast for a device, None where it is off."""
    return _AUTOCAST.get(device) if device in _AUTOCAST and torch.is_autocast_enabled(device) else None


@functools.cache
def casts(overload, key):
    """Does torch.autocast convert arguments of this overload?"""
    return torch._C._dispatch_has_kernel_for_dispatch_key(overload.name(), key)

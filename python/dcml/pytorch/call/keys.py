"""What tells one kind of arguments from another.

The one idea: a quick key of all that a plan may depend on, extents included, and for a capture, which serves many extents,
a kind of each leaf.
Must not know: captures or how a call is run.
"""
import inspect

import torch

from ... import _core, arguments
from ..guard.state import frozen
from . import trees
from .node import forward_level


def same_leaves(leaves):
    """Which leaves are one object, where some are."""
    return len(set(map(id, leaves))) == len(leaves) or tuple(trees.first_places(leaves))


def _tensor_key(tensor):
    dense = tensor.layout is not torch.strided or tensor.is_contiguous()
    return tensor.shape, tensor.dtype, tensor.device, dense or tensor.stride()


def arrangement(tensor):
    """How a tensor lies in memory, as far as forward may decide by it: the order of its axes, and whether it has gaps."""
    if tensor.layout is not torch.strided or tensor.is_contiguous():
        return None
    order = sorted(range(tensor.dim()), key=lambda axis: -tensor.stride(axis))
    return tuple(order), tensor.permute(order).is_contiguous()


def kind_of(leaf):
    """As the quick key of a leaf, without a tensor's extents."""
    return (leaf.dtype, leaf.device, arrangement(leaf)) if isinstance(leaf, torch.Tensor) else _leaf_key(leaf)


def _leaf_key(leaf):
    if isinstance(leaf, torch.Tensor):
        return _tensor_key(leaf)
    held = []
    key = frozen(leaf, held)
    if held:
        raise _core.ValueError_(f"an argument of type {type(leaf).__name__} is neither a tensor nor a number, text or "
                                "None, nor a container or plain object of them")
    return key


def quick_key(args, kwargs):
    """Types, extents and devices of tensor arguments and the values of others; hashable."""
    try:
        if not kwargs:
            for arg in args:
                if not isinstance(arg, torch.Tensor):
                    break
            else:
                return same_leaves(args), tuple(map(_tensor_key, args))
        leaves, spec = trees.flatten((args, kwargs))
        return str(spec), same_leaves(leaves), tuple([_leaf_key(leaf) for leaf in leaves])
    except _core.Error:
        raise
    except Exception as error:
        raise _blamed(args, kwargs, error) from error


def _blamed(args, kwargs, error):
    """An error that names the first argument that cannot be looked at: its own methods fail, or it holds itself."""
    named = [*enumerate(args), *kwargs.items()]
    while len(named) > 1:
        try:
            quick_key((named[0][1],), {})
        except _core.Error:
            break
        named.pop(0)
    name, value = named[0]
    return arguments.blamed(f"argument {name!r}", error, value, "tensors, numbers or text in containers or plain objects")


def _span(tensor):
    """(first, last) address of a tensor's elements."""
    last = sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride()))
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size() - 1


def refuse_overlap(leaves, changed):
    """A compiled call changes an argument at its end, which others must not see."""
    tensors = {id(t): t for t in leaves if isinstance(t, torch.Tensor) and t.numel()}.values()
    spans = [_span(t) for t in tensors]
    for first, last in [_span(leaves[k]) for k in changed if leaves[k].numel()]:
        if sum(a <= last and first <= b for a, b in spans) > 1:
            raise _core.UnsupportedOpError("an argument that the module changes in place overlaps another one in memory")


def surroundings():
    """Global modes that a capture has built in; refuses those that it cannot honour."""
    if torch._C._functorch.peek_interpreter_stack() is not None:
        raise _core.UnsupportedOpError("torch.func (functorch) transforms do not go through a compiled module: "
                                       "transform module.model instead")
    if forward_level() >= 0:
        raise _core.UnsupportedOpError("forward-mode differentiation does not go through a compiled module")
    if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
        low = tuple([torch.get_autocast_dtype(d) if torch.is_autocast_enabled(d) else None for d in ("cpu", "cuda")])
        return torch.get_default_dtype(), low
    return torch.get_default_dtype()


def bind_arguments(module, args, kwargs):
    """Arguments by parameter name of the module's forward, for guards."""
    try:
        args, kwargs = trees.simple(*trees.flatten((tuple(args), dict(kwargs))))
        return {**dict(inspect.signature(module.forward).bind(*args, **kwargs).arguments), **kwargs}
    except (TypeError, ValueError):
        return {}

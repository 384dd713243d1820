"""Operators that change tensors or look at their memory, and the operators that do the same to values.

The one idea: both are read from schemas; only how a view is undone is a table, of torch's primitive views.
Must not know: programs, rows or the core.
"""
import functools
from dataclasses import dataclass

import torch

from .expand import fake, result_of

aten = torch.ops.aten


@dataclass(frozen=True)
class Effect:
    """viewed: the argument whose memory the result is, or None; written: names of arguments that are changed."""
    viewed: str | None
    written: tuple


@functools.cache
def effect(overload):
    """The Effect of an overload, None where it has none."""
    schema = overload._schema
    written = tuple([a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write])
    viewed = [a.name for a in schema.arguments if a.alias_info is not None]
    viewed = viewed[0] if viewed and any(r.alias_info is not None for r in schema.returns) else None
    return Effect(viewed, written) if viewed or written else None


@functools.cache
def counterpart(overload):
    """(overload that gives the new values instead of writing them, position of the first of these among its results, None
    where it gives one value only), or None if there is none."""
    schema, (namespace, _, name) = overload._schema, overload._schema.name.partition("::")
    packets, written = getattr(torch.ops, namespace), effect(overload).written
    out = [a for a in schema.arguments if not (a.kwarg_only and a.name in written)]
    if len(out) < len(schema.arguments) and (found := _taking(packets, name, out)):
        return found, None if len(written) == 1 else 0
    for other in (name.removesuffix("_"), name.removesuffix("_") + "_functional"):
        found = _taking(packets, other, schema.arguments)
        if found is not None:
            extra = len(found._schema.returns) - len(written)
            return found, extra if other.endswith("_functional") and len(found._schema.returns) > 1 else None
    return None


def _taking(packets, name, arguments):
    """The overload of that name that takes these arguments and changes none."""
    wanted = [(a.name, str(a.type)) for a in arguments]
    packet = getattr(packets, name, None)
    for overload in [] if packet is None else [getattr(packet, one) for one in packet.overloads()]:
        if not overload._schema.is_mutable and [(a.name, str(a.type)) for a in overload._schema.arguments] == wanted:
            return overload
    return None


def undone(call, overload, base, value, args, kwargs, part):
    """The fx node of ``base`` after its view, overload(base, *args, **kwargs)[part], got ``value``; None where that cannot be
    said.  call(overload, args, kwargs, like) makes a node."""
    made = _INVERSE[overload](call, base, value, args, kwargs, part) if overload in _INVERSE else None
    return made if made is not None or part is not None else _by_strides(call, overload, base, value, args, kwargs)


def _by_strides(call, overload, base, value, args, kwargs):
    """Of any view of memory without gaps: the elements that it looks at."""
    seen = result_of(overload, (base, *args), kwargs)
    numbers = [*seen.shape, *seen.stride(), seen.storage_offset(), *fake(base).shape]
    if not fake(base).is_contiguous() or fake(base).storage_offset() != 0 or not all(isinstance(n, int) for n in numbers):
        return None
    place = list(seen.shape), list(seen.stride()), seen.storage_offset()
    return call(aten.as_strided_scatter.default, (base, value, *place), {}, fake(base))


def _same(call, base, value, args, kwargs, part):
    return value


def _reshaped(call, base, value, args, kwargs, part):
    shape = [extent if isinstance(extent, int) else call(aten.sym_size.int, (base, axis), {}, extent)
             for axis, extent in enumerate(fake(base).shape)]
    return call(aten.view.default, (value, shape), {}, fake(base))


def _permuted(call, base, value, args, kwargs, part):
    order = [axis % len(args[0]) for axis in args[0]]
    return call(aten.permute.default, (value, [order.index(axis) for axis in range(len(order))]), {}, fake(base))


def _again(overload):
    """Views that undo themselves."""
    return lambda call, base, value, args, kwargs, part: call(overload, (value, *args), kwargs, fake(base))


def _by(overload):
    """Views whose part of the memory an operator of values replaces."""
    return lambda call, base, value, args, kwargs, part: call(overload, (base, value, *args), kwargs, fake(base))


def _inverse_bits(call, base, value, args, kwargs, part):
    return call(aten.view.dtype, (value, fake(base).dtype), {}, fake(base))


def _expanded(call, base, value, args, kwargs, part):
    return value if fake(base).shape == fake(value).shape else None


def _split(call, base, value, args, kwargs, part):
    sizes, axis = args[0], args[1] if len(args) > 1 else kwargs.get("dim", 0)
    begin = part * sizes if not isinstance(sizes, (list, tuple)) else sum(sizes[:part])
    if not isinstance(begin, int) or not isinstance(fake(value).shape[axis], int):
        return None
    return call(aten.slice_scatter.default, (base, value, axis, begin, begin + fake(value).shape[axis]), {}, fake(base))


def _unbound(call, base, value, args, kwargs, part):
    axis = args[0] if args else kwargs.get("dim", 0)
    return call(aten.select_scatter.default, (base, value, axis, part), {}, fake(base))


_INVERSE = {
    aten.alias.default: _same, aten.detach.default: _same, aten.lift_fresh.default: _same,
    aten.view.default: _reshaped, aten._reshape_alias.default: _reshaped, aten.unsqueeze.default: _reshaped,
    aten.squeeze.default: _reshaped, aten.squeeze.dim: _reshaped, aten.squeeze.dims: _reshaped, aten.permute.default: _permuted,
    aten.transpose.int: _again(aten.transpose.int), aten.t.default: _again(aten.t.default),
    aten._conj.default: _again(aten._conj.default), aten._neg_view.default: _again(aten._neg_view.default),
    aten.view_as_real.default: _again(aten.view_as_complex.default), aten.view_as_complex.default: _again(aten.view_as_real.default),
    aten.view.dtype: _inverse_bits, aten.expand.default: _expanded,
    aten.slice.Tensor: _by(aten.slice_scatter.default), aten.select.int: _by(aten.select_scatter.default),
    aten.diagonal.default: _by(aten.diagonal_scatter.default), aten.as_strided.default: _by(aten.as_strided_scatter.default),
    aten.split.Tensor: _split, aten.split_with_sizes.default: _split, aten.unbind.int: _unbound,
}

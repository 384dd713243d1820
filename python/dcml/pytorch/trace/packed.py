"""Packed sequences while a module is captured.

The one idea: what layers compute is computed on padded sequences with their lengths, which each packed tensor carries along;
the packed form is only made where forward looks at it.
Must not know: graphs or operators.
"""
import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import PackedSequence
from torch.utils import _pytree as pytree

from ... import _core


def refuse_arguments(module, args, kwargs):
    """How many sequences a packed argument holds lies in its values, and its elements tell no lengths."""
    leaves = pytree.tree_leaves((args, kwargs), lambda value: isinstance(value, PackedSequence))
    if any(isinstance(leaf, PackedSequence) for leaf in leaves):
        raise _core.UnsupportedOpError(f"an argument of {type(module).__name__} is a PackedSequence: hand over the padded tensor and "
                                       "the lengths, and call pack_padded_sequence in forward")


def pack(x, lengths, batch_first):
    """As torch._pack_padded_sequence: (elements of the sequences step by step, how many sequences each step has)."""
    x = x.transpose(0, 1) if batch_first else x
    torch._assert_async((lengths > 0).all(), "Length of all samples has to be greater than 0, but found an element in "
                                             "'lengths' that is <= 0")
    torch._assert_async((lengths[1:] <= lengths[:-1]).all(), "`lengths` array must be sorted in decreasing order when "
                                                             "`enforce_sorted` is True. You can pass `enforce_sorted=False`")
    torch._assert_async((lengths <= x.shape[0]).all(), "Expected no length to be larger than the number of steps")
    sizes = _there(lengths, x.shape[0]).sum(1)[:lengths[0].item()]
    sizes._dcml_lengths, sizes._dcml_steps = lengths, x.shape[0]
    return _packed(x, sizes), sizes


def is_packed(sizes):
    return isinstance(sizes, torch.Tensor) and hasattr(sizes, "_dcml_lengths")


def _there(lengths, steps):
    """[step, sequence]: does the sequence have the step?"""
    return torch.arange(steps).unsqueeze(1) < lengths


def _packed(x, sizes):
    data = x[_there(sizes._dcml_lengths, sizes._dcml_steps)]
    data._dcml_padded = data._version, x
    return data


def _padded(data, sizes):
    """[step, sequence, ...] of packed elements; what lies behind the ends is arbitrary."""
    version, x = getattr(data, "_dcml_padded", (None, None))
    if version == data._version:
        return x
    there = _there(sizes._dcml_lengths, sizes._dcml_steps)
    counts = there.sum(1)
    place = (counts.cumsum(0) - counts).unsqueeze(1) + torch.arange(there.shape[1])
    return data[torch.where(there, place, 0)]


def pad(data, sizes, batch_first, value, steps):
    """As torch._pad_packed_sequence: (padded sequences, lengths)."""
    x = _padded(data, sizes)
    there = _there(sizes._dcml_lengths, sizes._dcml_steps)
    x = torch.where(there.reshape(*there.shape, *[1] * (x.dim() - 2)), x, value)[:steps]
    return x.transpose(0, 1) if batch_first else x, sizes._dcml_lengths


def recurrent(layer, data, sizes, state, weights, has_bias, layers, dropout, train, bidirectional):
    """As torch.lstm and others of a packed sequence; layer: the operator of one layer."""
    per = (4 if has_bias else 2) * (2 if bidirectional else 1)
    states = [s.chunk(layers) for s in ([state] if isinstance(state, torch.Tensor) else state)]
    y, finals = _padded(data, sizes), []
    for k in range(layers):
        y = F.dropout(y, dropout, train) if dropout and k else y
        y, *last = layer(y, [s[k] for s in states], weights[per * k:per * (k + 1)], has_bias, bidirectional, False,
                         sizes._dcml_lengths)
        finals.append(last)
    return _packed(y, sizes), *[v[0] if layers == 1 else torch.cat(v) for v in zip(*finals)]

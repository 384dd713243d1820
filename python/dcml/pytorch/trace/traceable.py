"""Functions of torch that torch.export cannot trace as they are, or traces to something else, in another form.

The one idea: what they decide by values is either a hint, which may be left out, or an error, which becomes an
assertion inside the graph that each call checks.
Must not know: graphs or operators.
"""
import contextlib
import itertools
import math
import sys
import threading

import torch
import torch.nn.functional as F
from torch.distributions import distribution
from torch.nn.modules import transformer
from torch.overrides import TorchFunctionMode

from ... import _core
from ..aten import matrices
from ..aten.builder import told_by_values
from ..aten.decomposed import on_device_of_first
from ..guard.asked import calling_code
from ..guard.watch import foreign_file
from . import histograms, packed
from .own_gradient import hooked


def _detect_is_causal_mask(mask, is_causal=None, size=None):
    return is_causal is True


def _gaussian_nll_loss(input, target, var, full=False, eps=1e-6, reduction="mean"):
    """As in torch.nn.functional, which raises ValueError at once for a negative variance."""
    if isinstance(var, torch.Tensor):
        torch._assert_async(torch.any(var < 0).logical_not(), "var has negative entry/entries")
        var = _fitted_variance(var, input)
        var = _floored(var, eps)
        loss = 0.5 * (torch.log(var) + (input - target) ** 2 / var) + (0.5 * math.log(2 * math.pi) if full else 0)
        return {"none": lambda v: v, "mean": torch.mean, "sum": torch.sum}[reduction](loss)
    return _GAUSSIAN_NLL_LOSS(input, target, var, full=full, eps=eps, reduction=reduction)


_GAUSSIAN_NLL_LOSS = F.gaussian_nll_loss  # for a variance that is a number


def _floored(var, eps):
    """max(var, eps), where the gradient passes as if the floor were not there."""
    return var + (var.clamp(min=eps) - var).detach()


def _fitted_variance(var, input):
    if var.shape == input.shape:
        return var
    if var.shape == input.shape[:-1]:
        return var.unsqueeze(-1)
    if var.dim() == input.dim() and sum(v for x, v in zip(input.shape, var.shape) if x != v) == 1:  # one axis of 1
        return var
    raise ValueError("var is of incorrect size")


_LINEAR_CROSS_ENTROPY = getattr(F, "linear_cross_entropy", None)  # of torch 2.13 on


def _linear_cross_entropy(*args, options=None, **kwargs):
    """``options`` say how to save memory, by an operator of Python code; the result is the same without."""
    return _LINEAR_CROSS_ENTROPY(*args, **kwargs)


def _multilabel_margin_loss(input, target, size_average=None, reduce=None, reduction="mean"):
    """As in torch.nn.functional; the form that torch.export makes of it counts positions after the first -1."""
    if size_average is not None or reduce is not None:
        reduction = torch.nn._reduction.legacy_get_string(size_average, reduce)
    x, classes = torch.atleast_2d(input), torch.atleast_2d(target)
    named = (classes == -1).cumsum(1) == 0
    classes = torch.where(named, classes, 0)
    is_target = ((classes.unsqueeze(-1) == torch.arange(x.shape[1], device=x.device)) & named.unsqueeze(-1)).any(1)
    gaps = torch.relu(1 - x.gather(1, classes).unsqueeze(-1) + x.unsqueeze(1))  # sample, named class, other class
    counted = named.unsqueeze(-1) & is_target.logical_not().unsqueeze(1)
    each = torch.where(counted, gaps, 0).sum((1, 2)) / x.shape[1]
    each = each if input.dim() > 1 else each[0]
    return {"none": lambda v: v, "mean": torch.mean, "sum": torch.sum}[reduction](each)


def _is_all_true(valid):
    """For torch.distributions, that a parameter or a sample is in its domain is asserted."""
    if calling_code(sys._getframe(1)).co_filename != distribution.__file__:
        return torch._is_all_true(valid)
    torch._assert_async(valid.all(), "a parameter or value of a distribution lies outside its domain")
    return True


def _ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction="mean", zero_infinity=False):
    """As in torch.nn.functional, by an operator that does not look at the lengths; targets in a row are padded."""
    single = log_probs.dim() == 2
    log_probs = log_probs.unsqueeze(1) if single else log_probs
    lengths, sizes = (torch.as_tensor(v, dtype=torch.int64, device=log_probs.device).reshape(-1) for v in (input_lengths, target_lengths))
    if targets.dim() == 1 and single:
        targets = targets.unsqueeze(0)
    elif targets.dim() == 1:
        place = torch.arange(targets.shape[0], device=sizes.device) + (sizes.cumsum(0) - sizes).unsqueeze(1)
        targets = targets[place.clamp(max=targets.shape[0] - 1)]
    loss = torch.ops.dcml.ctc_loss(log_probs, targets, lengths, sizes, blank, zero_infinity)
    loss = torch.where(loss == math.inf, 0, loss) if zero_infinity else loss
    if reduction == "mean":
        return (loss / sizes.clamp(1)).mean()
    return loss.sum() if reduction == "sum" else loss.squeeze(0) if single else loss


def _cov(input, *, correction=1, fweights=None, aweights=None):
    """As torch.cov, which looks at the weights' values."""
    x = torch.atleast_2d(input)
    weights = fweights if aweights is None else aweights if fweights is None else fweights * aweights
    if weights is None:
        total, count, mean = x.shape[1], x.shape[1] - correction, x.mean(1, keepdim=True)
        weights = 1
    else:
        total = weights.sum()
        mean = (x * weights).sum(1, keepdim=True) / total
        count = total - correction * (1 if aweights is None else (weights * aweights).sum() / total)
        count = count.clamp(0)
    x = x - mean
    result = (x * weights) @ x.conj().mT / (count if isinstance(count, torch.Tensor) else max(count, 0))
    return result.squeeze()


def _corrcoef(input):
    c = _cov(input)
    if c.dim() == 0:
        return c / c
    deviation = c.diagonal().sqrt()
    return (c / deviation.unsqueeze(1) / deviation).clamp(-1, 1)


def _places(mask):
    """As mask.nonzero(as_tuple=True), but of one mask always the same tensors: torch then knows their extents to be equal."""
    version, places = getattr(mask, "_dcml_places", (None, None))
    if version != mask._version:
        places = mask.nonzero(as_tuple=True)
        mask._dcml_places = mask._version, places
    return places


def _is_mask(index):
    return isinstance(index, torch.Tensor) and index.dtype == torch.bool and index.dim() > 0


def _unmasked(index):
    """An index with the places of masks in their stead."""
    index = index if isinstance(index, tuple) else (index,)
    return tuple([part for one in index for part in (_places(one) if _is_mask(one) else (one,))])


def _has_mask(index):
    return any(map(_is_mask, index if isinstance(index, tuple) else (index,)))


def _getitem(tensor, index):
    if type(index) is int and index == 0 and packed.is_packed(tensor):
        return tensor._dcml_lengths.shape[0]  # all sequences have a first step
    return tensor[_unmasked(index)] if _has_mask(index) else _GETITEM(tensor, index)


def _is_counted(tensor):
    """Does an extent depend on values?"""
    return isinstance(tensor, torch.Tensor) and told_by_values(tensor)


def _is_place(index):
    return isinstance(index, torch.Tensor) and index.dim() == 0 and index.dtype != torch.bool


def _set_at_places(tensor, index, value):
    """As tensor[index] = value, where torch takes indices of no dimension, which it would read as numbers."""
    view = _GETITEM(tensor, tuple([slice(None) if _is_place(one) else one for one in index]))
    taken = sum(isinstance(one, (int, slice)) or _is_place(one) for one in index)
    axes = [tensor.dim() - taken if one is ... else 0 if type(one) is int else 1 for one in index]  # of the view
    places = [None] * view.dim()
    for k, one in enumerate(index):
        if _is_place(one):
            places[sum(axes[:k])] = one
    value = torch.as_tensor(value, dtype=tensor.dtype, device=tensor.device)
    while value.dim() > view.dim() - sum(map(_is_place, index)) and value.shape[0] == 1:
        value = value[0]
    torch.ops.aten.index_put_(view, places, value)


def _setitem(tensor, index, value):
    parts = index if isinstance(index, tuple) else (index,)
    if any(map(_is_place, parts)) and all(_is_place(one) or one is None or one is ... or type(one) in (int, slice) for one in parts):
        return _set_at_places(tensor, parts, value)
    if _is_counted(value) and _has_mask(index):
        index = _unmasked(index)
        for have, wanted in zip(reversed(value.shape), reversed(_GETITEM(tensor, index).shape)):
            if told_by_values(have) and told_by_values(wanted):
                torch._check(have == wanted)  # masks that were computed twice count alike: each call asserts it
    _SETITEM(tensor, index, value)


def _class_loss(function):
    """Of counted samples, by operators that do not ask whether there is one."""
    def loss(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean", **more):
        legacy = size_average is not None or reduce is not None
        if not _is_counted(input) or legacy or any(more.values()) or target.dim() != 1:
            return function(input, target, weight, size_average, ignore_index, reduce, reduction, **more)
        scores = input.log_softmax(1) if function is F.cross_entropy else input
        kept = target != ignore_index
        named = torch.where(kept, target, 0)
        scale = kept.to(input.dtype) if weight is None else torch.where(kept, weight[named], 0)
        each = -scores.gather(1, named.unsqueeze(1)).squeeze(1) * scale
        return each if reduction == "none" else each.sum() if reduction == "sum" else each.sum() / scale.sum()
    return loss


def _bounded(weight, places, most, kind):
    """Gives rows of a table that are looked up at most this norm, in place, as torch.embedding_renorm_ does."""
    weight = weight.detach()
    norms = torch.linalg.vector_norm(weight, kind, 1, keepdim=True)
    named = torch.zeros(weight.shape[0], dtype=torch.bool, device=weight.device).index_fill(0, places.reshape(-1), True)
    weight.mul_(torch.where(named.unsqueeze(1) & (norms > most), most / (norms + 1e-7), 1))


def _embedding(input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False):
    if max_norm is not None:
        _bounded(weight, input, max_norm, norm_type)
    return F.embedding(input, weight, padding_idx, None, norm_type, scale_grad_by_freq, sparse)


def _embedding_bag(input, weight, offsets=None, max_norm=None, norm_type=2, scale_grad_by_freq=False, mode="mean", sparse=False,
                   per_sample_weights=None, include_last_offset=False, padding_idx=None):
    """Bags of one length are rows that are looked up and reduced; torch's own way counts where each begins."""
    if max_norm is not None:
        _bounded(weight, input, max_norm, norm_type)
    plain = input.dim() == 2 and offsets is None and not scale_grad_by_freq and mode in ("sum", "mean", "max")
    weighted = per_sample_weights is not None
    if not plain or not input.shape[1] or weighted and (mode != "sum" or per_sample_weights.shape != input.shape):
        return F.embedding_bag(input, weight, offsets, None, norm_type, scale_grad_by_freq, mode, sparse, per_sample_weights,
                               include_last_offset, padding_idx)
    rows = F.embedding(input, weight, padding_idx)
    rows = rows * per_sample_weights.unsqueeze(-1) if weighted else rows
    if padding_idx is None:
        return rows.sum(1) if mode == "sum" else rows.mean(1) if mode == "mean" else rows.max(1).values
    counted = (input != padding_idx % weight.shape[0]).unsqueeze(-1)
    if mode == "max":
        return torch.where(counted.any(1), torch.where(counted, rows, -math.inf).max(1).values, 0)
    total = torch.where(counted, rows, 0).sum(1)
    return total if mode == "sum" else total / counted.sum(1).clamp(1)


def _one_hot(tensor, num_classes=-1):
    """As in torch.nn.functional, which looks at the values where the number of classes is not given."""
    if num_classes != -1:
        return F.one_hot(tensor, num_classes)
    torch._assert_async((tensor >= 0).all(), "Class values must be non-negative.")
    return (tensor.unsqueeze(-1) == torch.arange(tensor.max().item() + 1)).to(torch.int64)


_GETITEM, _SETITEM = torch.Tensor.__getitem__, torch.Tensor.__setitem__


def _combinations(input, r=2, with_replacement=False):
    """As torch.combinations, which selects by a mask."""
    chosen = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = list(chosen(range(input.shape[0]), r)) if r else []
    return input[torch.tensor(rows).reshape(-1, r)] if rows else input.new_empty(0, *[r] * (r > 0))


def _recurrent(name):
    """Layers as an operator each, whatever their length; torch's own way unrolls the steps.  Projections are torch's."""
    function = getattr(torch, name)

    def call(*args, **kwargs):
        if not kwargs and len(args) == 9 and packed.is_packed(args[1]) and isinstance(args[3], list):
            if len(args[3]) == (4 if args[4] else 2) * (2 if args[8] else 1) * args[5]:
                return packed.recurrent(getattr(torch.ops.dcml, name), *args)
        if kwargs or len(args) != 9 or not isinstance(args[3], bool):
            return function(*args, **kwargs)
        x, state, weights, has_bias, layers, dropout, train, bidirectional, batch_first = args
        per = (4 if has_bias else 2) * (2 if bidirectional else 1)
        if len(weights) != per * layers or x.dim() != 3:
            return function(*args)
        states = [s.chunk(layers) for s in ([state] if isinstance(state, torch.Tensor) else state)]
        y, finals = x, []
        for layer in range(layers):
            y = F.dropout(y, dropout, train) if dropout and layer else y
            y, *last = getattr(torch.ops.dcml, name)(y, [s[layer] for s in states], weights[per * layer:per * (layer + 1)],
                                                     has_bias, bidirectional, batch_first)
            finals.append(last)
        return y, *[v[0] if layers == 1 else torch.cat(v) for v in zip(*finals)]
    return call


def _refused(function):
    def refuse(*_):
        raise _core.UnsupportedOpError(f"Tensor.{function.__name__} inside forward: a compiled module makes no tensor that it "
                                       "could hang on; an autograd.Function can do the same")
    return refuse


_HOOKS = (torch.Tensor.register_post_accumulate_grad_hook, torch.Tensor.retain_grad)
_FUNCTIONS = {torch._is_all_true: _is_all_true, **{function: _refused(function) for function in _HOOKS},
              F.ctc_loss: _ctc_loss, F.gaussian_nll_loss: _gaussian_nll_loss,
              F.multilabel_margin_loss: _multilabel_margin_loss, _LINEAR_CROSS_ENTROPY: _linear_cross_entropy,
              torch.Tensor.register_hook: hooked, torch.cov: _cov, torch.Tensor.cov: _cov, torch.corrcoef: _corrcoef,
              torch.Tensor.corrcoef: _corrcoef, _GETITEM: _getitem, _SETITEM: _setitem,
              F.cross_entropy: _class_loss(F.cross_entropy), F.nll_loss: _class_loss(F.nll_loss),
              F.one_hot: _one_hot, F.embedding: _embedding, F.embedding_bag: _embedding_bag,
              torch._pack_padded_sequence: packed.pack, torch._pad_packed_sequence: packed.pad,
              torch.combinations: _combinations, torch.geqrf: matrices.geqrf,
              torch.Tensor.geqrf: matrices.geqrf, torch.linalg.lstsq: on_device_of_first(matrices.lstsq),
              **histograms.REPLACED,
              **{getattr(torch, name): _recurrent(name) for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")}}


class _Functions(TorchFunctionMode):
    """Calls the replacements, under whatever name the functions are called."""
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return _FUNCTIONS.get(function, function)(*args, **(kwargs or {}))


@contextlib.contextmanager
def traceable():
    """Puts the replacements in place, for this thread; one thread may do this at a time."""
    thread, detect, text = threading.get_ident(), transformer._detect_is_causal_mask, torch.SymInt.__repr__

    def hint(*args, **kwargs):
        """For faster kernels, by a mask's values, and nothing that a mode sees; the mask itself is applied in any case."""
        return _detect_is_causal_mask(*args, **kwargs) if threading.get_ident() == thread else detect(*args, **kwargs)

    def written(extent):
        """A user's text gets the number, which is then that of all calls of the capture; torch's own texts name the symbol."""
        users = threading.get_ident() == thread and not foreign_file(sys._getframe(1).f_code.co_filename)
        return str(int(extent)) if users else text(extent)
    transformer._detect_is_causal_mask, torch.SymInt.__repr__ = hint, written
    try:
        with _Functions():
            yield
    finally:
        transformer._detect_is_causal_mask, torch.SymInt.__repr__ = detect, text

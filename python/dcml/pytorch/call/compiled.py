"""A capture and the core functions compiled for it.

The one idea: what is differentiated depends on the flags of a call's tensors, so each set of flags has a function of its
own; all share the graph and find the parameters where the module keeps them, at each call.
Must not know: how a capture is made, or how a call's arguments are taken apart.
"""
import functools
import operator
from itertools import chain

import torch
from torch.utils import _pytree as pytree

from ... import _core
from ...library import implementation
from ..guard.lock import LOCK
from .device import core_options, device_of_call, follow_switches, is_apart
from .keys import arrangement
from .results import real_form


_PRODUCTS = {"MatMul", "Gemm", "Einsum"}
_CHANNELS_LAST = {4: (0, 2, 3, 1), 5: (0, 2, 3, 4, 1)}  # by rank, from the outermost axis on


class Outdated(Exception):
    """A capture does not serve the module any more; the reason is the message."""


class Compiled:
    """``owner`` is the DaceModule whose options decide how functions are compiled; leaves: those of the call captured."""

    def __init__(self, owner, capture, leaves):
        self.owner, self.capture = owner, capture
        self.shapes = [tuple(leaf.shape) if isinstance(leaf, torch.Tensor) else () for leaf in leaves]
        self.functions = {}        # (inputs' flags, params' flags) -> function; None -> the one without gradient
        self.last_function = None
        self.skipped = frozenset([*self._positions(owner.inputs_to_skip), *self._off_tape(capture.graph.inputs)])
        self.skipped_params = frozenset(self._off_tape(capture.graph.params))
        self.slots = [slot(owner.model, name, capture.outside) for name, _ in capture.params]
        self.kinds = [_kind(table[key]) for table, key in self.slots]
        self.device = self._find_device(leaves)
        self.moved = frozenset(k for k, i in enumerate(capture.inputs) if i < len(leaves) and isinstance(leaves[i], torch.Tensor)
                               and is_apart(leaves[i], self.device))
        self.turned = self._turned(leaves)  # {position among inputs: the order of its axes in which functions take it}
        self.ties = [(slot(owner.model, a), slot(owner.model, b)) for a, b in capture.ties]
        self.fixed = self._fixed() if owner.frozen else []
        if owner.frozen:
            self.slots, self.kinds = [], []

    def _turned(self, leaves):
        """Images that lie channels-last and stay as they are: then they need no copy.  Calls of one capture agree in how
        arguments lie."""
        capture = self.capture
        if self.device.type != "cpu" or capture.counted:
            return {}
        changed = {leaf for _, leaf, _ in capture.changed_inputs}
        found = {k: _CHANNELS_LAST[leaves[i].dim()] for k, i in enumerate(capture.inputs)
                 if i < len(leaves) and i not in changed and _lies_channels_last(leaves[i])}
        if found:  # products want rows or columns
            factors = {name for _, op, _, _, _, names, *_ in capture.graph.operators() if op in _PRODUCTS for name in names}
            found = {k: order for k, order in found.items() if capture.graph.inputs[k] not in factors}
        return found

    def _find_device(self, leaves):
        """Where calls run: as the capture's leaves and the parameters lie."""
        named = [(f"argument '{name}'", leaves[i]) for name, i in zip(self.capture.graph.inputs, self.capture.inputs)
                 if i < len(leaves) and isinstance(leaves[i], torch.Tensor)]
        named += [(f"parameter '{name}'", table[key]) for (name, _), (table, key) in zip(self.capture.params, self.slots)]
        return device_of_call(named, self.owner.cuda_enabled)

    def _fixed(self):
        """(name, dictionary, key) of parameters and buffers that functions take as constants."""
        owner, capture = self.owner, self.capture
        training = next((name or "the module" for name, m in owner.model.named_modules() if m.training), None)
        if training is not None:
            raise _core.ValueError_(f"{owner.sdfg_name} is frozen, which is for inference, but {training} is in training mode: call eval()")
        changed = [name for _, name in capture.mutated]
        changed += [name for set_in, name in (capture.sets[0] if capture.sets else ()) if any(table is set_in for table, _ in self.slots)]
        if changed or capture.counted:
            what = f"changes {changed[0]!r} in a call" if changed else "has extents that depend on values of tensors"
            raise _core.UnsupportedOpError(f"{owner.sdfg_name} {what}, which frozen=True excludes")
        return [(name, *at) for (name, _), at in zip(capture.params, self.slots)]

    def _positions(self, names):
        inputs = self.capture.graph.inputs
        numbers = {str(k) for k in range(len(inputs))}
        for name in sorted(map(str, names)):
            if name not in inputs and name not in numbers:
                raise _core.ValueError_(f"inputs_to_skip names {name!r}; the inputs are {inputs}")
        return [k for k, name in enumerate(inputs) if names & {name, str(k), k}]

    def _off_tape(self, names):
        """Positions of those of which no result's gradient asks: what they come from has nothing to do with a backward pass."""
        if self.capture.tape is None:
            return []
        reached = set().union(*self.capture.tape)
        return [k for k, name in enumerate(names) if name not in reached]

    def function(self, inputs):
        """The core function for tensors whose requires_grad flags decide what is differentiated, with the parameters as
        they are now."""
        if self.device.type == "cuda":
            follow_switches()
        for name, table, key, k in self.capture.places:
            self.capture.outside[name] = pytree.tree_leaves(table[key])[k]
        params = [table[key] for table, key in self.slots]
        flags = None
        if self.owner.backward and self.owner.frozen:
            raise _core.ValueError_(f"{self.owner.sdfg_name} is frozen: its results have no gradients, so backward=True is not for it")
        if self.owner.backward and torch.is_grad_enabled():
            flags = (tuple([t.requires_grad for t in inputs]), tuple([t.requires_grad for t in params]))
            if self.skipped or self.skipped_params:
                flags = tuple([tuple([f and k not in skipped for k, f in enumerate(some)])
                               for some, skipped in zip(flags, (self.skipped, self.skipped_params))])
            if not any(flags[0]) and not any(flags[1]):
                flags = None
        function = self.functions.get(flags)
        if function is None:
            function = self.functions[flags] = _Function(self, flags)
        self.last_function = function.core
        if function.params is None or not all(map(operator.is_, function.params, params)):
            with LOCK:  # while another thread traces, the module holds stand-ins
                function.params = [table[key] for table, key in self.slots]
                function.core.set_params([real_form(t) for t in function.params])
        return function.core

    def outdated(self):
        """What became of the parameters that this capture no longer serves, or None."""
        for (table, key), (name, _), kind in zip(self.slots, self.capture.params, self.kinds):
            if _kind(table[key]) != kind:
                return f"{name!r} has changed its type, shape or device"
        for (a, i), (b, j) in self.ties:
            if a[i] is not b[j]:
                return f"{i!r} and {j!r} are no longer tied"
        return None


class _Function:
    """A core function and the parameter tensors last given to it."""

    def __init__(self, compiled, flags):
        capture, owner = compiled.capture, compiled.owner
        wrt = None
        if flags is not None:
            names = chain(zip(capture.graph.inputs, flags[0]), zip(capture.graph.params, flags[1]))
            wrt = [name for name, wanted in names if wanted]
        graph, turned = _ordered(capture.graph, compiled.turned, capture.orders)
        wrt = wrt and [turned.get(name, name) for name in wrt]
        tape = capture.tape and [{turned.get(name, name) for name in names} for names in capture.tape]
        if compiled.fixed:
            graph = graph.clone()
        for name, table, key in compiled.fixed:
            graph.fix(name, real_form(table[key].detach()).cpu().contiguous())
        device = compiled.device
        options = {"optimize": owner.auto_optimize, "keep": "least" if owner.memory else "auto", **core_options(device),
                   **implementation(device.type == "cuda", **owner.hooks_of_core())}
        if capture.counted and device.type == "cuda":
            raise _core.UnsupportedOpError(f"{owner.sdfg_name} has extents that depend on values of tensors, on {device}: "
                                           "such modules run on the CPU only")
        if capture.counted:
            from .hosted import Hosted  # with what serves such ONNX models, which few captures need
            self.core = Hosted(graph, wrt, capture.tape, options)
        else:
            self.core = _core.Function(graph, wrt=wrt, torch=True, tape=tape, results_stay=device.type == "cpu", **options)
        self.params = None


def _ordered(graph, turned, orders):
    """(graph, {input: its new name}): the graph whose arguments and results have their axes in the order in which they lie in
    memory; then none is copied.  turned: by position among the inputs; orders: by position among the results."""
    if not turned and not orders:
        return graph, {}
    graph, names = graph.clone(), graph.inputs
    renamed = {names[k]: graph.turn_input(names[k], order) for k, order in turned.items()}
    for index, order in orders.items():
        name = graph.outputs[index]
        graph.exchange_output(name, *graph.add_node("Transpose", [name], [f"{name}_as_it_lies"], {"perm": list(order)}, "", ""))
    return graph, renamed


def _lies_channels_last(leaf):
    plain = isinstance(leaf, torch.Tensor) and not leaf.is_complex() and leaf.dim() in _CHANNELS_LAST
    return plain and arrangement(leaf) == (_CHANNELS_LAST[leaf.dim()], True)


def slot(module, name, outside=()):
    """(dictionary, key) that hold a parameter or buffer, or a tensor of a Capture's ``outside``, so that a replaced one is seen."""
    if name in outside:
        return outside, name
    *path, leaf = name.split(".")
    owner = functools.reduce(getattr, path, module)
    for table in (owner._parameters, owner._buffers):
        if leaf in table:
            return table, leaf
    return owner.__dict__, leaf


def _kind(tensor):
    """What a capture has built in of a parameter."""
    tensor = real_form(tensor)
    return tensor.dtype, tensor.shape, tensor.device

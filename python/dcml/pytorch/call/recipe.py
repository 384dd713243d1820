"""How a call of one kind of arguments runs: which leaves are inputs, what becomes of the results.

The one idea: all that arguments of one kind have in common is worked out once; a call then moves tensors from the leaves
to a core function, and from its results to what the module returns and changes.
Must not know: how a recipe is found, or how a module is captured.
"""
import torch

from ..guard.lock import LOCK
from ..look.profile import mark_range
from . import errors, trees
from .altered import find
from .autograd import apply_in_python
from .compiled import Outdated, slot
from .device import draw_seed
from .keys import refuse_overlap
from .results import real_form

profiling = torch.autograd._profiler_enabled


def as_tensor(number):
    """A float as an input: of no dimension, so that it gives way to the types of other tensors, as numbers do."""
    return torch.tensor(number, dtype=torch.float64)


class Recipe:
    """``compiled`` serves these arguments; floats: positions among their leaves of the numbers that are its inputs.

    repeat: serves the next call if all that this one depended on is the same, see repeat.py; None: Python has to look.
    """

    def __init__(self, owner, compiled, args, kwargs, floats):
        capture = compiled.capture
        self.compiled, self.seed, self.floats = compiled, capture.seed, floats
        self.ran = False
        tensors = not kwargs and all(isinstance(a, torch.Tensor) for a in args)
        self.inputs = None if tensors and capture.inputs == list(range(len(args))) else capture.inputs
        self.mutated = [(index, *slot(owner.model, name, capture.outside)) for index, name in capture.mutated]
        self.own = [slot(owner.model, name, capture.outside) for name in capture.own]
        self.changed, self.checks = capture.changed_inputs, [one for one in capture.checks if one[2] != "Decided"]
        decisions = [one[:2] for one in capture.checks if one[2] == "Decided"]
        self.decided = [(*one, value) for one, value in zip(decisions, capture.decided, strict=True)]
        self.overwritten = _overwritten(capture)
        self.backward_reads = {}  # function -> those of ``overwritten`` that its backward pass reads
        self.outputs, self.spec = capture.outputs, capture.out_spec
        self.returned = [(k, d) for k, d in enumerate(capture.devices) if d is not None and d != compiled.device]
        self.extra = [index for _, index in capture.transients] if owner.debug_transients else []
        leaves = trees.flatten((args, kwargs))[0]
        self.complex = any(isinstance(leaf, torch.Tensor) and leaf.is_complex() for leaf in leaves)
        self.flagged, self.freed, self.named = capture.flagged, _sized(capture, leaves), capture.named
        self.sets = capture.sets
        self.single = (capture.outputs == [0] and capture.out_spec.is_leaf() and not self.mutated and not self.changed
                       and not self.checks and not self.decided and not self.extra and self.named is None and not self.returned
                       and not self.sets and not capture.altered)
        self.altered = capture.altered

    def run(self, args, kwargs, repeated=None, attempt=None):
        """Runs.  repeated(recipe, function, args, kwargs) is told of what ran; given where calls like this one are frequent.
        attempt: the errors.Decided of an attempt at this call by another recipe."""
        leaves = args if self.inputs is None else trees.flatten((args, kwargs))[0]
        for k, flag in self.flagged:
            leaves[k].requires_grad_(flag)
        if self.freed:
            leaves = [*leaves, *[torch.empty(**kind) for kind in self.freed]]
        inputs = leaves if self.inputs is None else [leaves[i] for i in self.inputs]
        if self.floats:
            inputs = [as_tensor(leaf) if isinstance(leaf, float) else leaf for leaf in inputs]
        compiled = self.compiled
        if compiled.ties and (reason := compiled.outdated()):
            raise Outdated(reason)
        function = compiled.function(inputs)
        if self.changed:
            refuse_overlap(leaves, {leaf for _, leaf, _ in self.changed})
        if self.changed and function.wrt_positions:  # what they were is for the backward pass
            changed = {leaf for _, leaf, _ in self.changed}
            inputs = [t.clone() if leaf in changed else t for t, leaf in zip(inputs, compiled.capture.inputs)]
        if compiled.moved:
            inputs = [t.to(compiled.device) if k in compiled.moved else t for k, t in enumerate(inputs)]
        if compiled.turned:
            inputs = tuple([t.permute(compiled.turned[k]) if k in compiled.turned else t for k, t in enumerate(inputs)])
        if self.complex:
            inputs = [real_form(t) for t in inputs]
        seed = attempt and attempt.seed
        if self.seed:
            seed = draw_seed(compiled.device) if seed is None else seed
            inputs = (*inputs, seed)
        if profiling() or function.observer is not None:
            function.observe(mark_range if profiling() else None)
        if copied := self._copied(function):
            results = self._run_on_copies(function, inputs, copied)
        else:
            results = self._call(function, inputs)
            if repeated is not None:  # there was none, or it failed
                repeated(self, function, args, kwargs)
        return self.finish(results, leaves, attempt, seed, (args, kwargs))

    def _call(self, function, inputs):
        in_cpp = self.compiled.owner.compile_torch_extension or self.compiled.capture.counted
        if in_cpp or not torch.is_grad_enabled() or not function.wrt_positions:
            return function(*inputs)
        return apply_in_python(function, tuple(inputs))

    def _copied(self, function):
        """Positions among inputs and parameters of the buffers that this call changes and the backward pass may read."""
        if not self.overwritten or not function.wrt_positions or self.compiled.capture.counted:
            return ()
        return self.backward_reads.get(function, self.overwritten)

    def _run_on_copies(self, function, inputs, copied):
        """Runs on copies of these buffers, so that the backward pass finds what they held.  Only once a function is
        compiled it tells which ones its backward pass reads."""
        first, params = len(inputs), function.params
        copies = [p.clone() if first + k in copied else p for k, p in enumerate(params)]
        with LOCK:
            function.set_params(copies)
            try:
                results = self._call(function, inputs)
            finally:
                function.set_params(params)
        self.backward_reads[function] = copied.intersection(function.backward_reads)
        return results

    def finish(self, results, leaves, attempt=None, seed=None, given=None):
        """The module's result and side effects, from the results of the function.  attempt: as of run; given: the (args, kwargs) whose
        containers change."""
        if self.single:
            return results[0]
        if self.decided:
            self._refuse_other_ways(results, len(attempt.known) if attempt else 0, seed)
        for index, message, error in self.checks:
            if not results[index]:
                raise errors.BY_NAME[error](message)
        if self.mutated or self.changed:
            self._write_back(results, leaves)
        if self.own:
            with LOCK:  # see _write_back
                leaves = [*leaves, *[table[key] for table, key in self.own]]
        values = [results[o] if type(o) is int else o.of(results, leaves) for o in self.outputs]
        for k, device in self.returned:
            values[k] = values[k].to(device)
        if self.sets:
            places, shape, count = self.sets
            values, held = _parted(values, count)
            for (table, name), value in zip(places, shape.unflatten(list(held))):
                table[name] = value
        found = ()
        if self.altered:
            values, made = _parted(values, sum(one.made for one in self.altered))
            found = find(self.altered, given, leaves)
            for one, container, was in found:
                one.put(container, was, made)
        if self.named is not None:
            values = self._name(values, leaves)
        if self.extra:
            return (*values, *[results[i] for i in self.extra])
        result = self.spec.unflatten(values)
        for one, container, _ in found:
            for path, place in one.returned:
                result = trees.replaced(result, path, trees.at(container, place))
        return result

    def _refuse_other_ways(self, results, settled, seed):
        """Raises errors.Decided where Python would decide otherwise; the first ones are settled, by rounding that may differ."""
        for k, (index, line, value) in enumerate(self.decided[settled:], settled):
            if (now := results[index].item()) != value:
                raise errors.Decided((*[value for *_, value in self.decided[:k]], now), line, seed)

    def _name(self, values, leaves):
        """Sets the attributes that forward sets on tensors; the leaves of the result without theirs."""
        arguments, results, form, end = self.named
        tensors = [*[leaves[k] for k in arguments], *[values[k] for k in results]]
        for tensor, held in zip(tensors, form.unflatten(values[end:])):
            for name, value in held.items():
                setattr(tensor, name, value)
        return values[:end]

    def _write_back(self, results, leaves):
        with LOCK, torch.no_grad():  # not into stand-ins, which the module holds while another thread traces
            if self.mutated:
                torch._foreach_copy_([real_form(table[key]) for _, table, key in self.mutated],
                                     [results[i].detach() for i, _, _ in self.mutated])
        for index, leaf, carries in self.changed:
            with torch.set_grad_enabled(torch.is_grad_enabled() and carries is not None):
                real_form(leaves[leaf]).copy_(results[index] if carries else results[index].detach())


def _parted(values, count):
    """All but the last so many, and these."""
    first = len(values) - count
    return values[:first], iter(values[first:])


def _overwritten(capture):
    """Positions among inputs and parameters of the buffers that a call changes."""
    changed = {name for _, name in capture.mutated}
    first = len(capture.inputs) + capture.seed
    return frozenset([first + k for k, (name, _) in enumerate(capture.params) if name in changed])


def _sized(capture, leaves):
    """Types and extents for this call's arguments of the leaves that it adds."""
    extents = {}
    for i, shape in zip(capture.inputs, capture.guard.shapes):
        if i < len(leaves) and isinstance(leaves[i], torch.Tensor):  # a number may be an input, too
            extents.update(zip(shape, leaves[i].shape))
    return [{"size": [extents.get(d, d) for d in shape], "dtype": dtype, "device": device, "requires_grad": True}
            for shape, dtype, device in capture.freed]

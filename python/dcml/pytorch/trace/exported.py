"""From a module to a traced program, by torch.export: of what recorded.py cannot write down.

Must not know: rows of operators, or how a program is lowered.
"""
import contextlib
import importlib
import inspect
import operator
import sys

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from ... import _core
from ..guard.garbage import loading
from ..lower.decompose import noting
from ..lower.functional import functional
from ..lower.program import Kind
from ..lower.quiet import quiet
from ..lower.refusal import unsupported
from .own_gradient import BUILTINS
from .prepare import same_attributes
from .ungraded import keep_gradients

builtins_of = BUILTINS.get  # for frames of a code
lowering = contextlib.nullcontext  # what a program of stand_ins() is lowered in


def stand_ins():
    """The class of what forward is given for tensors.  Loads torch.export, which takes long: a third of that would go into
    looking for garbage among modules."""
    if "torch.export._trace" not in sys.modules:
        with loading():
            importlib.import_module("torch.export._trace")
    return importlib.import_module("torch._subclasses").FakeTensor


def attempts(args, kwargs, dynamic, given):
    """What to ask torch.export for, one after the other: symbolic extents by leaf, and None for none.  Parameters, which
    torch.compile hands over as arguments, keep their extents."""
    leaves, spec = pytree.tree_flatten((tuple(args), kwargs))
    first = {k: {0} for k, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor) and leaf.dim()
             and not isinstance(given[k], torch.nn.Parameter)}
    wanted = [{k: axes | dynamic.get(k, set()) for k, axes in first.items()}] if isinstance(dynamic, dict) else []
    wanted += [first] if dynamic else []
    attempts = []
    for axes in wanted:
        auto = [{a: torch.export.Dim.AUTO for a in sorted(axes.get(k, ())) if leaf.shape[a] > 1} or None
                if isinstance(leaf, torch.Tensor) else None for k, leaf in enumerate(leaves)]
        shapes = pytree.tree_unflatten(auto, spec)
        if any(auto) and shapes not in attempts:
            attempts.append(shapes)
    return [*attempts, None]


class _Deciding(TorchFunctionMode):
    """Tells Python what it decides by values, as far as recorded.py has found out."""

    def __init__(self, result):
        super().__init__()
        self._result = result

    def __torch_function__(self, function, types, args=(), kwargs=None):
        known, decided = self._result.known, self._result.decided
        if function not in _DECIDES or len(decided) >= len(known):
            return function(*args, **(kwargs or {}))
        torch.ops.dcml.decided(_DECIDES[function](*args, **(kwargs or {})), True)
        decided.append(known[len(decided)])
        return decided[-1]


def _refuse_changes_outside(program):
    """torch.export has changed them, once: here, a call would do so again."""
    changed = {spec.target for spec in program.outputs if spec.kind is Kind.BUFFER_MUTATION} & set(program.constants)
    if changed:
        what = f"{len(changed)} tensor{'s' * (len(changed) > 1)}"
        raise _core.UnsupportedOpError(f"forward changes {what} of globals, closures or other objects beside code that only torch.export "
                                       "traces: make them buffers of the module")


_DECIDES = {torch.Tensor.__bool__: lambda tensor: tensor, **dict.fromkeys((torch.equal, torch.Tensor.equal), lambda a, b: (a == b).all()),
            **dict.fromkeys((torch.allclose, torch.Tensor.allclose), lambda *args, **kwargs: torch.isclose(*args, **kwargs).all())}


def trace(module, entry, args, kwargs, shapes, code, asks):
    """(the Program of forward, conditions that it assumes of extents, names of constants that forward makes, names of
    placeholders that are changed without the tape's knowledge)."""
    dynamic = None if shapes is None else _by_parameter(entry, shapes)
    with quiet():
        with code.recording(asks), same_attributes(module), _Deciding(entry.result):
            program = torch.export.export(entry, tuple(args), kwargs, strict=False, dynamic_shapes=dynamic)
        silent = keep_gradients(program, unsupported)
        _mark_no_grad(program)
        literals = _literals(program)
        conditions = list(getattr(program, "_guards_code", None) or [])
        made = noting(program, conditions, lambda program: functional(program, literals))
        _refuse_changes_outside(made)
        return made, conditions, literals, silent


def _literals(program):
    """Constants that forward makes itself, as in torch.tensor([1, 2]): of others, only a reference was met."""
    nodes = {n.name: n for n in program.graph.nodes if n.op == "placeholder"}
    fresh = torch.ops.aten.lift_fresh_copy.default
    return {spec.target for spec in program.graph_signature.input_specs if spec.kind.name == "CONSTANT_TENSOR"
            and all(user.target is fresh for user in nodes[spec.arg.name].users)}


def _by_parameter(entry, shapes):
    """Dynamic shapes by parameter name of forward, arranged as torch.export arranges the arguments."""
    positional, keyword = shapes
    return dict(inspect.signature(entry.forward).bind(*positional, **keyword).arguments)


def _mark_no_grad(program):
    """Results of torch.no_grad() regions are detached, which inlining the regions would otherwise forget."""
    wrap = torch.ops.higher_order.wrap_with_set_grad_enabled
    graph = program.graph_module.graph
    for node in list(graph.nodes):
        if node.target is not wrap or node.args[0]:
            continue
        for get in [u for u in node.users if u.target is operator.getitem]:
            if not isinstance(get.meta.get("val"), torch.Tensor) or not get.meta["val"].dtype.is_floating_point:
                continue
            with graph.inserting_after(get):
                stopped = graph.call_function(torch.ops.aten.detach.default, (get,))
            stopped.meta = dict(get.meta)
            get.replace_all_uses_with(stopped, delete_user_cb=lambda user, s=stopped: user is not s)

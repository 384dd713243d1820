"""From a module to a traced program, by writing down what its forward calls.

The one idea: parameters and arguments are stand-ins while forward runs once below autograd; the calls that they meet are the
program.  It needs none of what torch.export imports, which takes longer than everything else of a first call; what cannot
be written down is Beyond, and then torch.export traces the module.
Must not know: rows of operators, how a program is lowered, or torch.export.
"""
import contextlib
import functools
import importlib
import inspect
import re
import sys
from types import SimpleNamespace

import torch
from torch._functorch import eager_transforms as transforms
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from ..guard.garbage import loading
from ..guard.traced_code import barred
from ..guard.watch import restore
from ..lower.functional import functional
from ..lower.program import Kind, Region
from ..lower.refusal import unsupported
from ..record.decided import Decisions
from ..record.recorder import Recorder, above_autograd, is_transforming
from ..record.stand_in import StandIn
from ..record import undisturbed
from ..record.symbols import LEAST_RANGE, MOST_SYMBOLS, Beyond, Bounded, Fixed, Merge, Worlds
from .own_gradient import BUILTINS
from .prepare import same_attributes
from .ungraded import keep_gradients

lowering = undisturbed.undisturbed  # what a program of stand_ins() is lowered in
_TENSOR = torch._C.TensorBase
_LOOKS_AT_MEMORY = {getattr(torch.Tensor, name) for name in (
    "numpy", "tolist", "data_ptr", "backward", "set_", "storage", "untyped_storage", "__array__", "__dlpack__", "__deepcopy__",
    "__reduce_ex__")}
_OF_AUTOGRAD = {torch.autograd.grad, torch.autograd.backward, _TENSOR.grad_fn.__get__, _TENSOR._version.__get__}
_BARRED = {function.__code__ for function in (
    torch.compile, torch.cond, torch._ops.HigherOrderOperator.__call__, transforms.functionalize, transforms.linearize)}


_ENGINE = "torch._dynamo.compiled_autograd"  # what torch.func loads before it asks autograd for gradients; it takes seconds


class _Unloaded(Beyond):
    """What torch.func needs is to be loaded, which cannot be while calls are written down."""


def _refused(reason):
    return _Unloaded(reason) if reason.startswith(transforms._autograd_grad.__name__) else Beyond(reason)


class _Barred(TorchFunctionMode):
    """Functions that are no operators, and need what a stand-in has not.  numbers: Python may decide by those of tensors."""

    def __init__(self, numbers):
        super().__init__()
        self._numbers = numbers

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function in _OF_AUTOGRAD and not is_transforming() and not _are_wrapped(args):
            raise Beyond(f"{function.__name__} inside forward")
        if function is torch.Tensor.tolist and self._numbers and isinstance(args[0], StandIn):
            return _listed(args[0])
        if function is torch.Tensor.__format__ and self._numbers and isinstance(args[0], StandIn) and _is_whole(args[0]):
            return format(args[0].item(), *args[1:])
        if function is torch.tensor and any(isinstance(leaf, StandIn) for leaf in pytree.tree_leaves(args)):
            return _tensor_of(*args, **(kwargs or {}))
        if function in _LOOKS_AT_MEMORY and any(isinstance(leaf, StandIn) for leaf in args):
            raise Beyond(f"{function.__name__} of a tensor")
        return function(*args, **(kwargs or {}))


def _is_whole(tensor):
    """Is it one number that a text may name something by?"""
    return tensor.dim() == 0 and not tensor.is_floating_point() and not tensor.is_complex()


def _listed(tensor):
    return list(map(_listed, tensor)) if tensor.dim() else tensor.item()


def _tensor_of(data, *, dtype=None, device=None, requires_grad=False, pin_memory=False):
    """As torch.tensor of nested lists with tensors of one element among the numbers, which torch reads from memory."""
    flat, spec = pytree.tree_flatten(data, is_leaf=lambda part: not isinstance(part, (list, tuple)))
    flat = [leaf.detach().reshape(()) if isinstance(leaf, torch.Tensor) else torch.tensor(leaf) for leaf in flat]
    dtype = dtype or functools.reduce(torch.promote_types, [leaf.dtype for leaf in flat])
    device = device or next(leaf.device for leaf in flat if isinstance(leaf, StandIn))
    made = _stacked(pytree.tree_unflatten([leaf.to(device, dtype) for leaf in flat], spec))
    return made.requires_grad_() if requires_grad else made


def _stacked(data):
    return torch.stack(list(map(_stacked, data))) if isinstance(data, (list, tuple)) else data


def _are_wrapped(values):
    """Are there tensors of a transform of torch.func, which has a tape of its own?"""
    return any(isinstance(leaf, torch.Tensor) and torch._C._functorch.is_gradtrackingtensor(leaf) for leaf in pytree.tree_leaves(values))


def stand_ins():
    """The class of what forward is given for tensors."""
    return StandIn


def builtins_of(code):
    """For frames of a code."""
    return BUILTINS.get(code) or undisturbed.builtins_of(code)


def attempts(args, kwargs, dynamic, given):
    """What to record for, one after the other: {(position among the leaves, axis): name of the symbol that is its extent}."""
    leaves, wanted = pytree.tree_leaves((tuple(args), kwargs)), dynamic if isinstance(dynamic, dict) else {}
    some = [(k, axis) for k, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor) and not isinstance(given[k], torch.nn.Parameter)
            for axis in sorted({0} | wanted.get(k, set())) if axis < leaf.dim() and leaf.shape[axis] > 1] if dynamic else []
    of = {(k, axis): (id(given[k]), axis) for k, axis in some}  # of one tensor given twice, one
    if len(set(of.values())) > MOST_SYMBOLS:  # as of caches for each layer: what is equal now is taken to be so in all calls
        of = {(k, axis): leaves[k].shape[axis] for k, axis in some}
    if len(set(of.values())) > MOST_SYMBOLS:
        raise Beyond(f"{len(set(of.values()))} extents that may differ")
    names = {}
    return [*([{place: names.setdefault(of[place], f"s{len(names)}") for place in some}] if some else []), None]


def trace(module, entry, args, kwargs, symbols, code, asks):
    """(the Program of forward, conditions that it assumes of extents, names of constants that forward makes, names of
    placeholders that are changed without the tape's knowledge)."""
    symbols, bounds = symbols or {}, {}
    while True:  # with less symbols each time, with narrower bounds of one, or with what was not loaded
        try:
            return _Recording(module, entry, args, kwargs, symbols, bounds).trace(code, asks)
        except (_Unloaded, Merge, Fixed, Bounded) as found:
            restore(code.changed())
            reason = found
        if isinstance(reason, _Unloaded):
            with loading():
                importlib.import_module(_ENGINE)
        elif isinstance(reason, Merge):
            symbols = {place: min(reason.symbols) if s in reason.symbols else s for place, s in symbols.items()}
        elif isinstance(reason, Bounded):
            bounds.update(reason.bounds)
            fixed = {s for s, (low, high) in bounds.items() if high is not None and high - low < LEAST_RANGE}
            symbols = {place: s for place, s in symbols.items() if s not in fixed}
        else:
            symbols = {place: s for place, s in symbols.items() if s not in reason.symbols}


class _Recording:
    def __init__(self, module, entry, args, kwargs, symbols, bounds):
        self.module, self.entry, self.args, self.kwargs, self.symbols = module, entry, args, kwargs, symbols
        leaves = pytree.tree_leaves((tuple(args), kwargs))
        hints = {s: leaves[k].shape[axis] for (k, axis), s in symbols.items()}
        self.worlds = Worlds(hints, {s: both for s, both in bounds.items() if s in hints})
        paths = {}
        for path, m in module.named_modules():
            paths.setdefault(id(m), path)
        self.recorder = Recorder(self.worlds, paths, entry.forward.__code__, self._real)
        self.tensors = {}  # placeholder -> its tensor
        result = entry.result
        self.recorder.decisions = Decisions(self.recorder.graph, result.known, self.tensors.__getitem__, result.numbers)
        result.decided = self.recorder.decisions.made
        self.inputs, self.user_inputs, self.constants, self.literals = [], [], {}, set()
        self.nodes = {}  # id of a parameter or constant -> its node
        self.kept = []   # tensors whose ids these are
        self.last = None  # of the placeholders of constants

    def trace(self, code, asks):
        with same_attributes(self.module), contextlib.ExitStack() as swapped:
            tensors = self._parameters(swapped)
            args, kwargs = self._arguments()
            held = [dict(table) for table in self._tables()]
            unloaded = set() if _ENGINE in sys.modules else {transforms._autograd_grad.__code__}
            with swapped, _compiling(), barred(code, _BARRED | unloaded, _refused), code.recording(asks), \
                    above_autograd(self.recorder), _Barred(self.entry.result.numbers):
                results = self._forward(args, kwargs)
                if any(now.get(name) is not was for table, now in zip(held, self._tables()) for name, was in table.items()):
                    raise Beyond("forward sets a parameter or a buffer")
        graph = self.recorder.graph
        with above_autograd(self.recorder):
            graph.output(tuple(map(self.recorder.node, results)))
        _mark_no_grad(graph)
        outputs = [SimpleNamespace(kind=Kind.USER_OUTPUT, target=None) for _ in results]
        program = SimpleNamespace(
            graph=graph, graph_module=Region(graph), constants=self.constants, state_dict=tensors,
            range_constraints={s: SimpleNamespace(lower=low, upper=high) for s, (low, high) in self.worlds.bounds.items()},
            graph_signature=SimpleNamespace(input_specs=self.inputs, output_specs=outputs, user_inputs=self.user_inputs))
        fresh = torch.ops.aten.lift_fresh_copy.default
        self.literals.update([name for name, tensor in self.constants.items()
                              if all(user.target is fresh for user in self.nodes[id(tensor)].users)])
        with undisturbed.undisturbed():
            silent = keep_gradients(program, unsupported)
            return functional(program, self.literals, self.worlds), [], self.literals, silent

    def _forward(self, args, kwargs):
        try:
            return self.entry.forward(*args, **kwargs)
        except Exception as error:
            if StandIn.__name__ in str(error):
                raise Beyond("Python finds something by the text of a tensor") from error
            raise

    # -- inputs -------------------------------------------------------------------------------------
    def _tables(self):
        return [table for m in self.module.modules() for table in (m._parameters, m._buffers)]

    def _parameters(self, swapped):
        """Puts stand-ins in the stead of parameters and buffers; gives {name: tensor}."""
        tensors, stand_ins = {}, {}
        named = [(n, t, Kind.PARAMETER) for n, t in self.module.named_parameters()]
        named += [(n, t, Kind.BUFFER) for n, t in self.module.named_buffers()]
        for name, tensor, kind in named:
            _refuse_unusual(tensor)
            tensors[name], stand_ins[id(tensor)] = tensor, StandIn.of(tensor, self.worlds, parameter=kind is Kind.PARAMETER)
            node = self.recorder.placeholder(f"{kind.value[0]}_{_identifier(name)}", stand_ins[id(tensor)])
            self.nodes[id(tensor)], self.last, self.tensors[node] = node, node, tensor
            self.inputs.append(SimpleNamespace(kind=kind, target=name))
        for table in self._tables():
            for key, tensor in table.items():
                if tensor is not None:
                    swapped.callback(table.__setitem__, key, tensor)
        for table in self._tables():
            table.update({key: stand_ins[id(tensor)] for key, tensor in table.items() if tensor is not None})
        return tensors

    def _arguments(self):
        leaves, spec = pytree.tree_flatten((tuple(self.args), self.kwargs))
        values = []
        for k, (leaf, name) in enumerate(zip(leaves, _names(self.entry.forward, self.args, self.kwargs))):
            if isinstance(leaf, torch.Tensor):
                _refuse_unusual(leaf)
                sizes = [self.symbols.get((k, axis), extent) for axis, extent in enumerate(leaf.shape)]
                tensor, leaf = leaf, StandIn.of(leaf, self.worlds, sizes)
                self.tensors[self.recorder.placeholder(name, leaf)] = tensor
                self.inputs.append(SimpleNamespace(kind=Kind.USER_INPUT, target=None, arg=SimpleNamespace(name=name)))
                self.user_inputs.append(name)
            else:
                self.user_inputs.append(None)
            values.append(leaf)
        return pytree.tree_unflatten(values, spec)

    def _real(self, tensor):
        """The node of a tensor that is no stand-in: a parameter that forward reached by another way, or a constant."""
        if id(tensor) in self.nodes:
            return self.nodes[id(tensor)]
        _refuse_unusual(tensor)
        names = (f"{path}.{name}" if path else name for path, m in self.module.named_modules()
                 for name, value in vars(m).items() if value is tensor)
        target = next(names, f"lifted_tensor_{len(self.constants)}")
        graph = self.recorder.graph
        with graph.inserting_after(self.last) if self.last else graph.inserting_before():
            self.last = node = self.recorder.placeholder(f"c_{_identifier(target)}", StandIn.of(tensor, self.worlds))
        place = sum(spec.kind is not Kind.USER_INPUT for spec in self.inputs)
        self.inputs.insert(place, SimpleNamespace(kind=Kind.CONSTANT_TENSOR, target=target))
        self.nodes[id(tensor)], self.constants[target], self.tensors[node] = node, tensor, tensor
        self.kept.append(tensor)
        return node


def _refuse_unusual(tensor):
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer) or tensor.layout is not torch.strided:
        raise Beyond(f"a {type(tensor).__name__} of layout {tensor.layout}")


def _identifier(name):
    return re.sub(r"[^a-zA-Z0-9]", "_", name)


def _names(forward, args, kwargs):
    """What torch.export calls the leaves: the parameter and the way to the leaf inside the argument."""
    try:
        bound = dict(inspect.signature(forward).bind(*args, **kwargs).arguments)
    except (TypeError, ValueError):
        bound = {"args": tuple(args), **kwargs}
    names, taken = {}, set()
    for path, leaf in pytree.tree_flatten_with_path(bound)[0]:
        keys = [next(getattr(key, kind) for kind in ("key", "idx", "name") if hasattr(key, kind)) for key in path]
        name = first = _identifier("_".join(map(str, keys))).lower()
        count = 0
        while name in taken:
            count += 1
            name = f"{first}_{count}"
        taken.add(name)
        names.setdefault(id(leaf), []).append(name)
    return [names[id(leaf)].pop(0) if id(leaf) in names and names[id(leaf)] else f"arg_{k}"
            for k, leaf in enumerate(pytree.tree_leaves((tuple(args), kwargs)))]


@contextlib.contextmanager
def _compiling():
    """What code is told that asks torch.compiler whether it is traced, as by torch.export."""
    flags = torch.compiler._is_compiling_flag, torch.compiler._is_exporting_flag
    torch.compiler._is_compiling_flag = torch.compiler._is_exporting_flag = True
    try:
        yield
    finally:
        torch.compiler._is_compiling_flag, torch.compiler._is_exporting_flag = flags


def _mark_no_grad(graph):
    """What leaves a region without gradients is detached."""
    for node in list(graph.nodes):
        region, value = node.meta.get("region", 0), node.meta.get("val")
        if region >= 0 or not isinstance(value, torch.Tensor) or not value.dtype.is_floating_point:
            continue
        if all(user.meta.get("region") == region for user in node.users):
            continue
        with graph.inserting_after(node):
            stopped = graph.call_function(torch.ops.aten.detach.default, (node,))
        stopped.meta = {**node.meta, "region": 0}
        node.replace_all_uses_with(stopped, delete_user_cb=lambda user, s=stopped, r=region: user is not s and user.meta.get("region") != r)

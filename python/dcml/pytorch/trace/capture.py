"""From an nn.Module to an exported program, and by lower/ to a Graph.

The one idea: the module is traced as it stands; what torch.export rejects is made traceable while that lasts, what it
would forget is refused, and what it read of Python is noted.
Must not know: rows of operators, or how a graph is differentiated, compiled or called.
"""
import contextlib
import functools
import inspect
import linecache
import operator
import os
import random
import threading
import traceback

import numpy as np
import torch
from torch.utils import _pytree as pytree

from ... import _core
from ..aten import extent
from ..call import trees
from ..guard.asked import asked
from ..guard.attributes import Attributes
from ..guard.lock import LOCK
from ..guard.state import GLOBAL_HOOKS, reachable
from ..guard.traced_code import TracedCode
from ..guard.watch import contents, foreign_file, restore
from ..lower.decompose import decomposed, lower
from ..lower.quiet import quiet
from ..lower.tape import rename_output
from ..lower.refusal import WAYS_OUT, unsupported
from ..lower.walk import Lowering
from .entry import Entry
from .own_gradient import BUILTINS, define_border
from .traceable import traceable
from .ungraded import keep_gradients

_FOLDER = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")


def capture(module, args, kwargs=None, name="dace_model", dynamic=True, train=None, debug=False):
    """Captures ``module`` called with ``args`` and ``kwargs`` as a Graph of ONNX operators.

    module: nn.Module; its parameters are referred to by name, not copied.  It is captured in its present
        train/eval state unless ``train`` is given, and left as it was.
    args, kwargs: example arguments: tensors of a supported dtype, numbers, nested tuples, lists and dicts.
    dynamic: True leaves the first extent of every tensor input symbolic where the module allows it; a dictionary
        {position among the leaves of (args, kwargs): axes} leaves those extents symbolic too.
    debug: make the result of every captured operator an output too.
    Returns a Capture.
    Raises UnsupportedOpError for an ATen overload without a row or decomposition, naming the source line;
        DTypeError for complex or quantised tensors; DeviceError for devices that are neither CPU nor GPU;
        ModelError if torch.export cannot trace the module.
    """
    given = module, args, kwargs, name, dynamic, train, debug
    with LOCK:
        try:
            return _capture(*given)
        except _Changed as first:  # what the first call fills or sets does not change again
            try:
                first.redo(module, args, kwargs or {})
                return _capture(*given, again=first)
            except _core.Error:
                first.undo()
                raise


class _Changed(Exception):
    """Forward has changed containers or globals of Python, or set attributes to values that are no tensors."""

    def __init__(self, containers, attributes, found, refusal):
        self._containers, self._attributes, self._found, self._refusal = containers, attributes, found, refusal
        self._tensors = _hold_tensors(containers)

    def redo(self, module, args, kwargs):
        """Lets the change happen.  Tensors must be those of a real call, and carry no gradient into later ones."""
        if not self._tensors:
            for one in self._attributes:
                one.redo()
            return
        restore(self._containers)
        if torch.is_grad_enabled() or not _repeats(module, args, kwargs):
            raise self._refusal

    def undo(self):
        restore(self._containers)
        for one in self._attributes:
            one.undo()

    def computed(self, found):
        """Was the same computed before the change?"""
        return self._tensors or _text(*self._found) == _text(*found) and all(
            torch.equal(a, b) for a, b in zip(*[_constants(program) for program, _ in (self._found, found)]))


def _hold_tensors(containers):
    return any(isinstance(v, torch.Tensor) for v in pytree.tree_leaves([contents(seen) for seen, _ in containers]))


def _repeats(module, args, kwargs):
    """Calls the module twice.  Were the results the same?  Buffers and random numbers are as before."""
    kept, results = [(b, b.clone()) for b in module.buffers()], []
    leaves, shape = trees.flatten((tuple(args), dict(kwargs)))
    with torch.no_grad():
        for _ in range(2):
            with torch.random.fork_rng(devices=[]):
                copies = shape.unflatten([v.clone() if isinstance(v, torch.Tensor) else v for v in leaves])
                results.append(trees.flatten(module.forward(*copies[0], **copies[1])))
            for buffer, was in kept:
                buffer.copy_(was)
    (first, form), (second, other) = results
    return str(form) == str(other) and all(
        torch.equal(a, b) if isinstance(a, torch.Tensor) else a is b or a == b for a, b in zip(first, second))


def _text(program, result):
    parts = [m.code for m in program.graph_module.modules() if isinstance(m, torch.fx.GraphModule)]
    return [*parts, str(program.graph_signature), str(result.shape), repr(result.leaves), *sorted(program.constants)]


def _constants(program):
    return [program.constants[name] for name in sorted(program.constants)]


def _capture(module, args, kwargs, name, dynamic, train, debug, again=None):
    grad = torch.is_grad_enabled()  # which inference_mode(False) changes
    with torch.inference_mode(False), _prepared(module, train) as cumulative, \
            _traced(module, grad) as (attributes, code, asks):
        leaves, shape = trees.flatten((tuple(args), dict(kwargs or {})))
        given, leaves = leaves, list(map(_as_exported, leaves))
        args, kwargs = trees.simple(leaves, shape)
        entry, errors = Entry(module, given, leaves, shape, attributes), []
        entry.result.tape = grad
        attempts = _attempts(args, kwargs, dynamic, given)
        for shapes in attempts:
            try:
                program, *found = _export(module, entry, args, kwargs, shapes, code, asks)
                _refuse_changes(module, attributes, code, (program, entry.result), again)
                if _sized_by_symbols(program):
                    start = functools.partial(Lowering, module, entry, found, name, cumulative)
                    made = lower(program, found[0], start, entry.result).result(debug)
                    made.reads, made.refused_dynamic = attributes.read, shapes is None and len(attempts) > 1
                    made.code, made.asks, made.asks_attributes = code, asks.any, asks.attributes
                    return made
            except (_core.UnsupportedOpError, _core.DTypeError) as error:
                if shapes is None:
                    raise
                errors.append(error)
            except Exception as error:  # export raises many kinds; a static capture may still succeed
                if isinstance(error, (_core.Error, _Changed)):
                    raise
                errors.append(error)
                if shapes is None and _of_forward(error):
                    raise
                if shapes is None:
                    raise _export_error(module, error) from error
        raise _core.ModelError(f"cannot capture {type(module).__name__}: {errors[-1] if errors else 'no static form'}")


@contextlib.contextmanager
def _traced(module, grad):
    """Surroundings of torch.export: a gradient may be wanted later, so regions without one must be seen even if this
    call wants none; values saved while tracing are no business of the caller's hooks.  Yields what is recorded."""
    draws, alone = (random.getstate(), np.random.get_state()), threading.active_count() == 1
    hooked = torch._C._autograd._top_saved_tensors_default_hooks(True) is not None
    unhooked = torch.autograd.graph.saved_tensors_hooks(_same, _same) if hooked else contextlib.nullcontext()
    attributes = Attributes(module)
    define_border()
    with torch.enable_grad(), unhooked, traceable(), _hooks_inside(module), asked(grad) as asks:
        code = TracedCode(reachable(module), attributes, BUILTINS)
        try:
            yield attributes, code, asks
        except BaseException:
            attributes.undo()
            raise
    drawn = random.getstate() != draws[0] or np.random.get_state()[2] != draws[1][2]
    if drawn and (code.may_draw or alone):
        random.setstate(draws[0])
        np.random.set_state(draws[1])
        raise _core.UnsupportedOpError(f"{type(module).__name__} draws random numbers from Python's or numpy's generator "
                                       "while it runs, which a compiled call would not do: draw them with torch")


def _refuse_changes(module, attributes, code, found, again):
    """Containers and attributes that forward changes would stay as they are in a compiled call."""
    containers, written = code.changed(), attributes.changes()
    if not containers and not written:
        if again and not again.computed(found):
            raise _core.UnsupportedOpError(f"{type(module).__name__} computes something else at its first call, which "
                                           "sets what later calls read: call it once before it is wrapped")
        return
    refusal = _refusal(type(module).__name__, containers, written, code)
    if not again and all(one.is_value() for one in written):
        raise _Changed(containers, written, found, refusal)
    restore(containers)
    raise refusal


def _refusal(name, containers, written, code):
    if containers:
        label = containers[0][1]
        cache = ", or fill it in a call under torch.no_grad()" if _hold_tensors(containers) else ""
        return _core.UnsupportedOpError(f"{name} changes {label} while it runs, which a compiled call would not do: return "
                                        f"the value, or make it a buffer{cache}{code.line(label)}")
    first = written[0]
    return _core.UnsupportedOpError(f"{name} sets the attribute {first.name!r} while it runs, which a compiled call would "
                                    "not do: make it a buffer, or call the module once before it is wrapped if only the "
                                    f"first call sets it ({first.file}:{first.line}: "
                                    f"{linecache.getline(first.file, first.line).strip()})")


def _same(value):
    return value


def _as_exported(leaf):
    """A tensor as torch.export takes it; others as they are."""
    if not isinstance(leaf, torch.Tensor):
        return leaf
    if leaf.layout is not torch.strided:
        raise _core.UnsupportedOpError(f"an argument of layout {leaf.layout} cannot be captured")
    if leaf.device.type not in ("cpu", "cuda"):
        raise _core.DeviceError(f"an argument lies on device {str(leaf.device)!r}")
    leaf = leaf.clone() if leaf.is_inference() else leaf
    return leaf.detach() if leaf.requires_grad else leaf


_VALUES = {"DynamicOutputShapeException": "the extents of its result depend on values of tensors",
           "GuardOnDataDependentSymNode": "Python code that branches on values of tensors",
           "DataDependentOutputException": "Python code that branches on values of tensors",
           "UserError": "Python code that branches on values of tensors",
           "PendingUnbackedSymbolNotFound": "the extents of its result depend on values of tensors",
           "UnsupportedOperatorException": "torch.export cannot tell what its result looks like"}


def _export_error(module, error):
    reason = _VALUES.get(type(error).__name__)
    if reason and (type(error).__name__ != "UserError" or "data-dependent" in str(error)):
        what = getattr(error, "func", None) or type(module).__name__
        return _core.UnsupportedOpError(f"{what} cannot be captured: {reason}{WAYS_OUT}{_traced_line(error)}")
    if "fake tensor in the exported program" in str(error):
        return _core.UnsupportedOpError(f"{type(module).__name__} cannot be captured: torch.export loses a tensor on the way, "
                                        "as where torch.autograd.grad is taken inside forward with respect to an input: "
                                        "take it outside, of the compiled module's results")
    text = str(error).strip().split("\n\n")[0]
    text = f"torch.export cannot trace {type(module).__name__}: {type(error).__name__}: {text}{_traced_line(error)}"
    return _error_like(error)(text)


def _of_forward(error):
    """Is it an error of a class of the user's, raised by the user's code?"""
    return type(error).__module__ != "builtins" and not foreign_file(traceback.extract_tb(error.__traceback__)[-1].filename)


def _error_like(error):
    """Makes ModelErrors that may be caught as the error that forward itself raised, where it is one of Python's."""
    kind = type(error)
    if kind.__module__ != "builtins" or issubclass(_core.ModelError, kind):
        return _core.ModelError
    return type("ModelError", (_core.ModelError, kind), {"__module__": _core.ModelError.__module__})


def _traced_line(error):
    """' (file:line: code)' of the user's line that was being traced, or of the innermost of torch.nn."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<")
              and (f.name == "_export" or not f.filename.startswith(_FOLDER))]
    inside = next((k for k, f in enumerate(frames) if f.name == "_export"), -1)
    users = [f for f in frames[inside + 1:] if not foreign_file(f.filename)]
    users = users or [f for f in frames[inside + 1:] if "/torch/nn/modules/" in f.filename.replace("\\", "/")
                  and f.name == "forward"]
    return f" ({users[-1].filename}:{users[-1].lineno}: {(users[-1].line or '').strip()})" if users else ""


# -- torch.export ----------------------------------------------------------------------------------
@contextlib.contextmanager
def _prepared(module, train):
    """The module in the wanted state, with constructs that export rejects made traceable; yields the statistics of
    batch norms with momentum=None, as {running statistic: call counter}."""
    _refuse_uninitialised(module)
    _refuse_backward_hooks(module)
    replaced = _replace_unusual_parameters(module)
    flags = [(m, m.training) for m in module.modules()] if train is not None else []
    cumulative = {}
    try:
        if train is not None:
            module.train(train)
        for path, m in module.named_modules():
            if isinstance(m, torch.nn.modules.batchnorm._BatchNorm) and m.momentum is None and m.training:
                prefix = path + "." if path else ""
                for statistic in ("running_mean", "running_var"):
                    cumulative[prefix + statistic] = prefix + "num_batches_tracked"
                m.momentum = 1.0
        yield cumulative
    finally:
        for table, key, tensor in replaced:
            table[key] = tensor
        for m, flag in flags:
            m.training = flag


def _refuse_uninitialised(module):
    lazy = torch.nn.parameter.UninitializedTensorMixin
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if isinstance(tensor, lazy):
            raise _core.ModelError(f"parameter {name!r} has no shape yet: call the lazy module once before capture")


def _refuse_backward_hooks(module):
    """A compiled module runs no backward pass of its parts."""
    everywhere = torch.nn.modules.module
    if everywhere._global_backward_hooks or everywhere._global_backward_pre_hooks:
        raise _core.UnsupportedOpError("backward hooks of all modules do not run in a compiled module")
    for path, m in module.named_modules():
        if m._backward_hooks or m._backward_pre_hooks:
            what = f"the part {path!r}" if path else "the wrapped module"
            raise _core.UnsupportedOpError(f"backward hooks of {what} ({type(m).__name__}) do not run in a compiled "
                                           "module: register them on the compiled module itself")


def _replace_unusual_parameters(module):
    """torch.export takes nn.Parameters only, none made in inference mode; returns [(table, key, tensor replaced)]."""
    replaced, made = [], {}
    for m in module.modules():
        for key, tensor in m._parameters.items():
            if tensor is None or isinstance(tensor, torch.nn.Parameter) and not tensor.is_inference():
                continue
            if id(tensor) not in made:
                fresh = tensor.clone() if tensor.is_inference() else tensor.detach()
                made[id(tensor)] = torch.nn.Parameter(fresh, requires_grad=fresh.is_floating_point())
            replaced.append((m._parameters, key, tensor))
            m._parameters[key] = made[id(tensor)]
    return replaced


def _attempts(args, kwargs, dynamic, given):
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


def _export(module, entry, args, kwargs, shapes, code, asks):
    dynamic = None if shapes is None else _by_parameter(module, shapes)
    with quiet():
        with code.recording(asks), _same_attributes(module):
            program = torch.export.export(entry, tuple(args), kwargs, strict=False, dynamic_shapes=dynamic)
        silent = keep_gradients(program, unsupported)
        _mark_no_grad(program)
        literals = _literals(program)
        conditions = list(getattr(program, "_guards_code", None) or [])
        return decomposed(program, {}, conditions), conditions, literals, silent


@contextlib.contextmanager
def _same_attributes(module):
    """torch.export leaves copies of lists and dictionaries in a module; they become again what they were."""
    kept = [(vars(m), dict(vars(m))) for m in module.modules()]
    try:
        yield
    finally:
        for table, was in kept:
            table.update({name: value for name, value in was.items() if table.get(name) is not value})


@contextlib.contextmanager
def _hooks_inside(module):
    """torch.export's own modules call hooks of all modules; they are for those inside this one, and for the outermost
    it is the DaceModule that calls them."""
    inside, thread = {id(m) for m in module.modules() if m is not module}, threading.get_ident()

    def narrowed(hook):
        return lambda m, *args: hook(m, *args) if id(m) in inside or threading.get_ident() != thread else None
    kept = [(table, dict(table)) for table in GLOBAL_HOOKS]
    for table, was in kept:
        table.update({key: narrowed(hook) for key, hook in was.items() if callable(hook)})
    try:
        yield
    finally:
        for table, was in kept:
            table.update(was)


def _literals(program):
    """Constants that forward makes itself, as in torch.tensor([1, 2]): of others, only a reference was met."""
    nodes = {n.name: n for n in program.graph.nodes if n.op == "placeholder"}
    fresh = torch.ops.aten.lift_fresh_copy.default
    return {spec.target for spec in program.graph_signature.input_specs if spec.kind.name == "CONSTANT_TENSOR"
            and all(user.target is fresh for user in nodes[spec.arg.name].users)}


def _by_parameter(module, shapes):
    """Dynamic shapes by parameter name of forward, arranged as torch.export arranges the arguments."""
    positional, keyword = shapes
    return dict(inspect.signature(module.forward).bind(*positional, **keyword).arguments)


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
            rename_output(program, get.name, stopped.name)
    program.graph_module.recompile()


def _sized_by_symbols(program):
    """Graph inputs are sized by ints and plain symbols; an expression (2*s) would need a solver at each call."""
    for value in _user_tensors(program).values():
        for size in map(extent, value.shape):
            if not isinstance(size, int) and not size.node.expr.is_Symbol:
                return False
    return True


def _user_tensors(program):
    names = {n for n in program.graph_signature.user_inputs if isinstance(n, str)}
    return {n.name: n.meta["val"] for n in program.graph.nodes
            if n.op == "placeholder" and n.name in names and isinstance(n.meta.get("val"), torch.Tensor)}

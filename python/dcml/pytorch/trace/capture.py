"""From an nn.Module to a traced program, and by lower/ to a Graph.

The one idea: the module is traced as it stands; what torch.export rejects is made traceable while that lasts, what it
would forget is refused, and what it read of Python is noted.
Must not know: rows of operators, or how a graph is differentiated, compiled or called.
"""
import contextlib
import functools
import random
import threading

import numpy as np
import torch

from ... import _core
from ...verbose import say, wanted
from ..aten import extent
from ..call import trees
from ..guard.asked import asked
from ..guard.attributes import Attributes
from ..guard.lock import LOCK
from ..guard.state import reachable
from ..guard.traced_code import TracedCode
from ..guard.watch import restore
from ..lower.decompose import lower
from ..lower.refusal import generated, without_line
from ..lower.walk import Lowering
from ..record.symbols import Beyond
from . import exported, packed, recorded
from .changes import Changed, refuse_changes
from .entry import Entry
from .export_errors import export_error, is_of_forward
from .own_gradient import captured_functions, define_border
from .prepare import hooks_inside, prepared
from .traceable import traceable


def capture(module, args, kwargs=None, name="dace_model", dynamic=True, train=None, debug=False, known=(), few=False):
    """Captures ``module`` called with ``args`` and ``kwargs`` as a Graph of ONNX operators.

    module: nn.Module; its parameters are referred to by name, not copied.  It is captured in its present
        train/eval state unless ``train`` is given, and left as it was.
    args, kwargs: example arguments: tensors of a supported dtype, numbers, nested tuples, lists and dicts.
    dynamic: True leaves the first extent of every tensor input symbolic where the module allows it; a dictionary
        {position among the leaves of (args, kwargs): axes} leaves those extents symbolic too.
    debug: make the result of every captured operator an output too.
    known: what Python first decides by values of tensors in this call, as an earlier attempt has told.
    few: only the first extents are left symbolic rather than that torch.export traces, which takes much longer.
    Returns a Capture.
    Raises UnsupportedOpError for an ATen overload without a row or decomposition, naming the source line;
        DTypeError for complex or quantised tensors; DeviceError for devices that are neither CPU nor GPU;
        ModelError if torch.export cannot trace the module.
    """
    try:
        with LOCK:
            return _capture_as_changed(module, args, kwargs, name, dynamic, known, few, train, debug)
    except _core.UnsupportedOpError as error:
        if wanted("capture"):
            raise
        error.__cause__ = error.__context__ = None  # the message says which line; hundreds of others are the tracers' own
        raise error.with_traceback(None)


def _capture_as_changed(module, args, kwargs, *options):
    try:
        return _capture(module, args, kwargs, *options)
    except Changed as first:  # what the first call fills or sets does not change again
        try:
            first.redo()
            made = _capture(module, args, kwargs, *options, again=first)
            made.redone = True
            return made
        except _core.Error:
            first.undo()
            raise


def _capture(module, args, kwargs, name, dynamic, known, few, *options, again=None):
    """By writing down what forward calls, for any extents or a few; by torch.export, which can do more and takes much longer, where
    that cannot be; and by writing it down for these extents alone, or for these values of what Python decides by, where neither can
    be for others."""
    numbers = any(type(value) is int for value in known)  # as the attempt has found
    for extents in (dynamic, True) if few and isinstance(dynamic, dict) else (dynamic,):
        try:
            return _captured(recorded, module, args, kwargs, name, extents, *options, again, known, numbers)
        except Beyond as reason:
            say("capture", f"{type(module).__name__} cannot be written down{' for other extents' * (extents is not True)}: {reason}")
            found = reason.decided
    try:
        return _captured(exported, module, args, kwargs, name, dynamic, *options, again, found)
    except _core.Error as error:
        for extents in (dynamic, False) if dynamic is True else (False,):
            try:
                made = _captured(recorded, module, args, kwargs, name, extents, *options, again, known, numbers=True)
            except (Beyond, _core.Error) as reason:
                say("capture", f"{type(module).__name__} cannot be traced for its numbers either: {reason}")
                if isinstance(reason, _core.Error) and without_line(reason) == without_line(error):
                    raise reason from None  # which knows the line of a function that forward calls
                continue
            made.refused_dynamic = made.refused_dynamic or bool(dynamic) and not extents
            return made
        raise


def _captured(way, module, args, kwargs, name, dynamic, train, debug, again, known=(), numbers=False):
    """way: recorded or exported; known: as of capture; numbers: Python may decide by numbers of tensors, too."""
    grad = torch.is_grad_enabled()  # which inference_mode(False) changes
    with torch.inference_mode(False), prepared(module, train) as cumulative, \
            _traced(module, grad, way) as (attributes, code, asks):
        packed.refuse_arguments(module, tuple(args), dict(kwargs or {}))
        generated(module)
        leaves, shape = trees.flatten((tuple(args), dict(kwargs or {})))
        given, leaves = leaves, list(map(_as_exported, leaves))
        args, kwargs = trees.simple(leaves, shape)
        entry, errors = Entry(module, given, leaves, shape, attributes, code), []
        entry.result.tape, entry.result.known, entry.result.numbers = grad, known, numbers
        attempts = way.attempts(args, kwargs, dynamic, given)
        for shapes in attempts:
            try:
                program, *found = way.trace(module, entry, args, kwargs, shapes, code, asks)
                refuse_changes(module, attributes, code, (program, entry.result), again)
                if _sized_by_symbols(program):
                    start = functools.partial(Lowering, module, entry, found, name, cumulative)
                    with way.lowering():
                        made = lower(program, found[0], start, entry.result).result(debug)
                    made.reads, made.refused_dynamic = attributes.read, shapes is None and len(attempts) > 1
                    made.decided = tuple(entry.result.decided)
                    made.code, made.asks, made.asks_attributes = code, asks.any, asks.attributes
                    return made
            except Beyond as error:
                error.decided = tuple(entry.result.decided)
                raise
            except (_core.UnsupportedOpError, _core.DTypeError) as error:
                if shapes is None:
                    raise
                errors.append(error)
            except Exception as error:  # tracing raises many kinds; a static capture may still succeed
                if isinstance(error, (_core.Error, Changed, Beyond)):
                    raise
                errors.append(error)
                if shapes is None and is_of_forward(error):
                    raise
                if shapes is None:
                    raise export_error(module, error, given) from error
        raise _core.ModelError(f"cannot capture {type(module).__name__}: {errors[-1] if errors else 'no static form'}")


@contextlib.contextmanager
def _traced(module, grad, way):
    """Surroundings of a trace, recorded or exported: a gradient may be wanted later, so regions without one must be seen
    even if this call wants none; values saved while tracing are no business of the caller's hooks.  Yields what is recorded."""
    draws, alone = (random.getstate(), np.random.get_state()), threading.active_count() == 1
    hooked = torch._C._autograd._top_saved_tensors_default_hooks(True) is not None
    unhooked = torch.autograd.graph.saved_tensors_hooks(_same, _same) if hooked else contextlib.nullcontext()
    attributes = Attributes(module)
    define_border()
    with torch.enable_grad(), unhooked, traceable(), captured_functions(), hooks_inside(module), asked(grad, way.stand_ins()) as asks:
        code = TracedCode(reachable(module), attributes, way.builtins_of)
        try:
            yield attributes, code, asks
        except BaseException as error:
            attributes.undo()
            if not isinstance(error, Changed):  # which puts the attributes back
                attributes.undo_hooks()
            if isinstance(error, Beyond):  # and what forward has changed is as it was, for it runs again
                restore(code.changed())
                random.setstate(draws[0])
                np.random.set_state(draws[1])
            raise
    drawn = random.getstate() != draws[0] or np.random.get_state()[2] != draws[1][2]
    if drawn and (code.may_draw or alone):
        random.setstate(draws[0])
        np.random.set_state(draws[1])
        raise _core.UnsupportedOpError(f"{type(module).__name__} draws random numbers from Python's or numpy's generator "
                                       "while it runs, which a compiled call would not do: draw them with torch, or split the graph "
                                       f'there by torch.compile(model, backend="dcml"){code.draws}')


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
    return leaf.detach()  # torch.export leaves attributes on what it is given


def _sized_by_symbols(program):
    """Graph inputs are sized by ints and plain symbols; an expression (2*s) would need a solver at each call."""
    for value in _user_tensors(program).values():
        for size in map(extent, value.shape):
            if not isinstance(size, int) and not size.node.expr.is_Symbol:
                return False
    return True


def _user_tensors(program):
    names = {n for n in program.user_inputs if isinstance(n, str)}
    return {n.name: n.meta["val"] for n in program.graph.nodes
            if n.op == "placeholder" and n.name in names and isinstance(n.meta.get("val"), torch.Tensor)}

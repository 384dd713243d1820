"""The autograd nodes of a compiled function.

The one idea: the core's Call keeps what the backward pass needs in one block of its own; torch is
shown the tensors that it reads too, so that it notices a second backward and changes in place.
A node for each part of the backward pass: the first hangs on the outputs, each later one on the one
before it, whose last result, a token, carries the pass.  The engine runs what accumulates gradients
first, so that these are in place, and hooks on them have run, before the next part begins.
torch_node/torch_node.cpp does the same faster, for the torch that it is built for; the nodes here
serve until that is there, and node.py chooses.
Must not know: plans, graphs or modules.
"""
import torch

from .batched import is_batched
from .twice import anew, at_once, gradients, of_each, of_some


class _Node(torch.autograd.Function):
    @staticmethod
    def forward(ctx, call, part, results, outside, arguments, kept, later, *completes):
        """results: what hangs on this node, except those of ``outside``; arguments: all of the call's, and its function;
        kept: (position, tensor) of the call's results that it, or, of the first, any part reads; later: the next part's
        token, or None; completes: the tensors whose gradients this part completes."""
        function, tensors = arguments
        ctx.call, ctx.function, ctx.part, ctx.last = call, function, part, later is None
        ctx.device = results[0].device if results else torch.device("cpu")
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*outside)
        ctx.graded = [k for k, result in enumerate(results) if all(result is not other for other in outside)]
        # the first node has what all parts read; the others must stay as they are only for a derivative of higher order
        ctx.reads = sorted({p for _, reads, _ in (call.parts[part:] if part == 0 else call.parts[part:part + 1]) for p in reads})
        ctx.others = [None if p in ctx.reads else (t, t._version) for p, t in enumerate(tensors)] if part == 0 else None
        ctx.n_results = len(results)
        ctx.results = tuple([(k, t.detach(), t._version) for k, t in kept])  # without their history, which is this node
        ctx.save_for_backward(torch.empty(0), *[tensors[p] for p in ctx.reads])  # one at least, so that a second backward is noticed
        return tuple(results)

    @staticmethod
    def backward(ctx, *grads):
        _, *saved = ctx.saved_tensors  # raises if the graph was freed or a tensor changed in place
        completes = ctx.call.parts[ctx.part][0]
        changed = any(t._version != version for _, t, version in ctx.results)
        if ctx.part == 0 and (changed or torch.is_grad_enabled()):
            arguments = _arguments(ctx, dict(zip(ctx.reads, saved)))
            derive = gradients if torch.is_grad_enabled() else anew
            run = derive(ctx.function, ctx.call, arguments, [True] * len(arguments), grads, None if changed else _results(ctx))
        elif ctx.part == 0 and is_batched(grads):
            arguments = _arguments(ctx, dict(zip(ctx.reads, saved)))
            run = of_each(ctx.function, ctx.call, arguments, [True] * len(arguments), grads, _results(ctx))
        elif ctx.part == 0 and ctx.device.type == "cpu" and any(grads[k] is None for k in ctx.graded):
            run, unclear = at_once(ctx.call, len(ctx.others), tuple(grads), not _keeps_graph(), _results(ctx))
            if unclear and not any(_has_changed(ctx, p) for p in range(len(ctx.others))):
                arguments = _arguments(ctx, dict(zip(ctx.reads, saved)))
                run = of_some(ctx.function, ctx.call, arguments, [True] * len(arguments), grads, run)
        else:
            run = _start(ctx.call, grads, _results(ctx)) if ctx.part == 0 else _pass_of(grads[0])
        if changed and not isinstance(run, list):
            raise RuntimeError("one of the variables needed for gradient computation has been modified by an inplace operation: a result "
                               "of a compiled function, while its backward pass ran")
        if isinstance(run, list):  # of gradients by argument, each of which is handed over, so that .grad may be that very tensor
            found, run[:] = [run[p] for p in completes], [None if p in completes else g for p, g in enumerate(run)]
        else:
            with torch.no_grad():
                found = run.next()
        return (None, None, None, None, None, None, None if ctx.last else _token(ctx.device, run), *found)


# does the engine keep the graph that it walks, in this thread?
_keeps_graph = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)


def _start(call, grads, results):
    return (call.start if _keeps_graph() else call.start_last)(grads, results)


def _results(ctx):
    """By output, those that the backward pass reads; None without any."""
    if not ctx.results:
        return None
    found = [None] * ctx.n_results
    for k, t, _ in ctx.results:
        found[k] = t
    return tuple(found)


def _has_changed(ctx, position):
    """Is an argument no longer what a derivative wants?  Statistics that a call only updates may change."""
    other = ctx.others[position]
    return other is not None and other[0]._version != other[1] and bool(ctx.function.influences[position])


def _arguments(ctx, reads):
    """All arguments of the call, as they were."""
    for p, other in enumerate(ctx.others):
        if _has_changed(ctx, p):
            raise RuntimeError("a second derivative needs a tensor that has been modified by an inplace operation since the compiled "
                               f"function was called: it is at version {other[0]._version}; expected version {other[1]} instead")
    return tuple([reads[p] if other is None else other[0] for p, other in enumerate(ctx.others)])


def _token(device, carried=None):
    """A tensor without elements that carries a backward pass, or gradients that it has found; on their device, so that the
    engine runs the next part on that device's stream."""
    token = torch.empty(0, device=device)
    token.backward_pass = carried
    return token


def _pass_of(token):
    carried = getattr(token, "backward_pass", None)
    if carried is None:
        raise RuntimeError("a hook replaced what a compiled function passes between the parts of its backward pass")
    return carried


def apply_in_python(function, inputs):
    """As node.apply, by the nodes above."""
    tensors = (*inputs, *(function.params or ()))
    with torch.no_grad():
        results, call = function._run(inputs)
    tape = function.differentiable or [True] * len(results)
    outside = [r for r, on_tape in zip(results, tape) if not on_tape or not r.dtype.is_floating_point]
    later, device = None, results[0].device if results else torch.device("cpu")
    for part, (completes, _, _) in reversed(list(enumerate(call.parts))):
        hanging = [_token(device)] if part else results
        reads = {k for _, _, reads in (call.parts[part:part + 1] if part else call.parts) for k in reads}
        kept = [(k, results[k]) for k in sorted(reads)]
        made = _Node.apply(call, part, hanging, () if part else outside, (function, tensors), kept, later, *[tensors[p] for p in completes])
        later = made[0] if part else None
    return made

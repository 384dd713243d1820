"""If, Loop, Scan and SequenceMap: operators that run subgraphs.

Must not know: how a body runs.
"""
import numpy as np

from ... import _core
from . import values as v
from .budget import PIECE, STEPS, bytes_of, check_trips


def if_(call, condition):
    """ONNX If: the outputs of the branch that the condition chooses."""
    return call.body("then_branch" if v.scalar(condition) else "else_branch", 0)()


def _number(k, rank, kind):
    """A number as a body declares it: without dimensions, or with one of extent 1."""
    return np.full((1,) * rank, k, kind)


def _no_scans(body, k):
    """What a scan output is after no iteration: extent 0, then the declared extents as far as they are numbers."""
    code, shape = body.output_type(k)
    return np.empty([0, *(d if isinstance(d, int) else 0 for d in shape)], v.dtype_of(code or 1))


def loop(call, trips=None, condition=None, *state):
    """ONNX Loop: carried values, then what each iteration gives, stacked."""
    body, n = call.body("body", 2 + len(state)), len(state)
    if body.n_outputs < 1 + n:
        raise _core.ModelError(f"the loop's body has {body.n_outputs} outputs, expected at least {1 + n}")
    limit = None if trips is None else int(v.scalar(trips))
    going = condition is None or bool(v.scalar(condition))
    scans = [[] for _ in range(body.n_outputs - 1 - n)]
    ranks, k, made = (body.input_rank(0), body.input_rank(1)), 0, 0
    counts = condition is None and limit is not None  # the body's condition is not asked
    if going and (limit is None or limit >= STEPS) and (counts or body.passes_on(0, 1)):
        check_trips(limit)
    while going and (limit is None or k < limit):
        again, *results = body(_number(k, ranks[0], np.int64), _number(going, ranks[1], np.bool_), *state)
        state, k = results[:n], k + 1
        going = counts or bool(v.scalar(again))
        for values, value in zip(scans, results[n:]):
            values.append(value)
        made += bytes_of(results[n:])
        call.budget.check(made + sum(bytes_of(x) for x in state if not isinstance(x, list)))
    return [*state, *(v.stack(s, 0) if s else _no_scans(body, 1 + n + k) for k, s in enumerate(scans))]


def scan(call, *inputs):
    """ONNX Scan: states carried over the slices of the scanned inputs, and what each slice gives, stacked.

    Version 8 has a batch dimension first and optional lengths of the sequences.
    """
    if call.opset < 9:
        return _scan_batches(call, *inputs)
    n_scan = call["num_scan_inputs"]
    n_state = len(inputs) - n_scan
    if n_scan < 1 or n_state < 0:
        raise _core.ModelError(f"num_scan_inputs is {n_scan}, but there are {len(inputs)} inputs")
    body = call.body("body", len(inputs))
    scanned = inputs[n_state:]
    axes = [v.axis_of(a, x.ndim) for a, x in zip(_per_item(call, "scan_input_axes", n_scan), scanned)]
    backward = _per_item(call, "scan_input_directions", n_scan)
    n_out = body.n_outputs - n_state
    out_axes, out_backward = (_per_item(call, f"scan_output_{what}", n_out) for what in ("axes", "directions"))
    states, outs = _sweep(call, body, list(inputs[:n_state]), scanned, axes, backward)
    stacked = []
    for k, (items, axis, back) in enumerate(zip(outs, out_axes, out_backward)):
        if items:
            stacked.append(v.stack(items[::-1] if back else items, v.axis_of(axis, items[0].ndim + 1)))
        else:
            stacked.append(_no_scans(body, n_state + k))
    return [*states, *stacked]


def _per_item(call, attribute, n):
    values = call.get(attribute, [0] * n)
    if len(values) != n:
        raise _core.ModelError(f"attribute {attribute!r} has {len(values)} entries, expected {n}")
    return values


def _sweep(call, body, states, scanned, axes, backward, length=None):
    """Runs the body on each slice; returns the last states and the list of values of each other output."""
    lengths = {x.shape[a] for x, a in zip(scanned, axes)}
    if len(lengths) != 1:
        raise _core.ShapeError(f"the scanned inputs have different lengths: {sorted(lengths)}")
    length = lengths.pop() if length is None else length
    n_state = len(states)
    outs = [[] for _ in range(body.n_outputs - n_state)]
    call.budget.check(PIECE * length)
    made = 0
    for k in range(length):
        slices = [v.piece(x, a, length - 1 - k if back else k) for x, a, back in zip(scanned, axes, backward)]
        results = body(*states, *slices)
        states = results[:n_state]
        for items, value in zip(outs, results[n_state:]):
            items.append(v.as_tensor(value))
        made += bytes_of(results[n_state:])
        call.budget.check(made + bytes_of(states))
    return states, outs


def _scan_batches(call, lengths=None, *inputs):
    n_scan = call["num_scan_inputs"]
    n_state = len(inputs) - n_scan
    if n_scan < 1 or n_state < 0:
        raise _core.ModelError(f"num_scan_inputs is {n_scan}, but there are {len(inputs)} inputs besides the lengths")
    body, backward = call.body("body", len(inputs)), _per_item(call, "directions", n_scan)
    batch, longest = inputs[n_state].shape[:2]
    lengths = [longest] * batch if lengths is None else v.integers(lengths)
    if len(lengths) != batch or not all(0 <= n <= longest for n in lengths):
        raise _core.ShapeError(f"the lengths are {lengths}, expected {batch} of at most {longest}")
    rows = []
    for b, length in enumerate(lengths):
        states, outs = _sweep(call, body, [v.piece(x, 0, b) for x in inputs[:n_state]],
                              [v.piece(x, 0, b) for x in inputs[n_state:]], [0] * n_scan, backward, length)
        rows.append([*states, *(_padded(items, longest, body, n_state + k) for k, items in enumerate(outs))])
    return [v.stack(column, 0) for column in zip(*rows)]


def _padded(items, longest, body, k):
    if not items:
        empty = _no_scans(body, k)
        return np.zeros((longest, *empty.shape[1:]), empty.dtype)
    return v.stack([*items, *[items[0] * 0] * (longest - len(items))], 0)


def sequence_map(call, sequence, *others):
    """ONNX SequenceMap: the body on each element; the other inputs go along element by element if sequences."""
    body = call.body("body", 1 + len(others))
    short = [x for x in others if isinstance(x, list) and len(x) != len(sequence)]
    if short:
        raise _core.ShapeError(f"sequences of {len(sequence)} and {len(short[0])} elements")
    rows = [body(item, *(x[k] if isinstance(x, list) else x for x in others)) for k, item in enumerate(sequence)]
    return [list(column) for column in zip(*rows)] if rows else [[] for _ in range(body.n_outputs)]

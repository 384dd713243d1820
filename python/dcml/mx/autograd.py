"""What is recorded, and gradients of it: MXNet's ``autograd``.

The one idea: scopes set flags of the thread; gradients are asked of the tape and stored in leaves.
Must not know: operators.
"""
import numpy as onp

from .. import _core
from . import tape
from .array import as_array, cast, ndarray
from .tape import state

__all__ = ["backward", "grad", "is_recording", "is_training", "mark_variables", "pause", "predict_mode", "record", "set_recording",
           "set_training", "train_mode"]


class _Scope:
    """Sets flags for a block, as ``with record():``, or for a function, as ``@record()``; may be entered again."""

    def __init__(self, recording, training):
        self._flags, self._before = (recording, training), []

    def __enter__(self):
        self._before.append((state.recording, state.training))
        recording, training = self._flags
        if recording is not None:
            state.recording = recording
        if training is not None:
            state.training = training

    def __exit__(self, *error):
        state.recording, state.training = self._before.pop()

    def __call__(self, function):
        import functools

        @functools.wraps(function)
        def scoped(*args, **kwargs):
            with self:
                return function(*args, **kwargs)
        return scoped


def record(train_mode=True):
    """A scope in which operators are recorded; train_mode: whether they also behave as in training."""
    return _Scope(True, train_mode)


def pause(train_mode=False):
    """A scope in which nothing is recorded."""
    return _Scope(False, train_mode)


def train_mode():
    """A scope in which operators behave as in training; whether they are recorded stays."""
    return _Scope(None, True)


def predict_mode():
    """A scope in which operators behave as in inference; whether they are recorded stays."""
    return _Scope(None, False)


def is_recording():
    """Are operators of this thread recorded?"""
    return state.recording


def is_training():
    """Do operators of this thread behave as in training?"""
    return state.training


def set_recording(is_recording):
    """Sets the flag, returns what it was."""
    before, state.recording = state.recording, bool(is_recording)
    return before


def set_training(train_mode):
    """Sets the flag, returns what it was."""
    before, state.training = state.training, bool(train_mode)
    return before


def mark_variables(variables, gradients, grad_reqs="write"):
    """Makes arrays leaves whose gradients are stored in given arrays; grad_reqs: one for all, or one for each."""
    variables, gradients = _list("variables", variables), _list("gradients", gradients)
    reqs = [grad_reqs] * len(variables) if isinstance(grad_reqs, str) else list(grad_reqs)
    if not len(variables) == len(gradients) == len(reqs):
        raise _core.ValueError_(f"mark_variables: {len(variables)} variables, {len(gradients)} gradients and {len(reqs)} grad_reqs")
    for variable, gradient, req in zip(variables, gradients, reqs):
        variable.attach_grad(req)
        if req != "null":
            variable._grad = gradient


def _list(name, arrays):
    arrays = [arrays] if isinstance(arrays, ndarray) else list(arrays)
    for array in arrays:
        if not isinstance(array, ndarray):
            raise TypeError(f"{name}: expected arrays, got {type(array).__name__}")
    return arrays


def _head_gradients(heads, given):
    """Arrays, of the types and shapes of heads."""
    given = [None] * len(heads) if given is None else [given] if isinstance(given, ndarray) else list(given)
    if len(given) != len(heads):
        raise _core.ValueError_(f"{len(heads)} heads have {len(given)} gradients")
    made = []
    for head, gradient in zip(heads, given):
        if tape.types.of(head.dtype) not in tape._FLOATS:
            raise _core.DTypeError(f"backward: only arrays of floats have gradients, this one is of {head.dtype}")
        if gradient is None:
            made.append(ndarray(onp.ones(head.shape, head.dtype)))
            continue
        array = as_array(gradient)
        if array.shape != head.shape:
            raise _core.ShapeError(f"backward: a head of shape {head.shape} is given a gradient of shape {array.shape}")
        made.append(cast(array, head.dtype))
    return made


def _release(heads, retain_graph):
    for head in [] if retain_graph else heads:
        head._value()
        head._tape = None


def _gradients(heads, head_grads):
    """Those of leaves by their ids, as NumPy's arrays."""
    found = tape.gradients(heads, [g._value() for g in _head_gradients(heads, head_grads)])
    return {key: (leaf, onp.zeros(leaf.shape, leaf.dtype) if g is None else g) for key, (leaf, g) in found.items()}


def backward(heads, head_grads=None, retain_graph=False, train_mode=True):
    """Computes the gradients of heads by every leaf they were computed from, and stores them in the leaves' ``grad``.

    heads: arrays; head_grads: their gradients, None: ones.  Without retain_graph the heads' history is given up.
    Raises ValueError_ for a head without history, ShapeError for a gradient of another shape."""
    heads = _list("heads", heads)
    for leaf, gradient in _gradients(heads, head_grads).values():
        if leaf._grad_req == "add":
            gradient = leaf._grad._value() + gradient
        leaf._grad._adopt(ndarray(gradient))
    _release(heads, retain_graph)


def grad(heads, variables, head_grads=None, retain_graph=None, create_graph=False, train_mode=True):
    """The gradients of heads by variables, as new arrays; the variables' ``grad`` stays.

    variables: an array or a list; arrays with attach_grad().  Returns an array, or a list of them.
    create_graph: the gradients are recorded, so that they may be differentiated in turn, in the leaves and in head_grads;
    the history of heads then stays unless retain_graph is False.
    Raises ValueError_ for variables that are no leaves; UnsupportedOpError for operators whose gradients have none."""
    heads, wanted = _list("heads", heads), _list("variables", variables)
    for k, variable in enumerate(wanted):
        if variable._grad_req is None:
            raise _core.ValueError_(f"grad: variable {k} has no attach_grad()")
    if create_graph:
        with record(state.training):
            found = tape.gradients(heads, _head_gradients(heads, head_grads), True)
    else:
        found = {key: (leaf, ndarray(g)) for key, (leaf, g) in _gradients(heads, head_grads).items()}
    _release(heads, create_graph if retain_graph is None else bool(retain_graph))
    made = [found.get(id(v), (v, None))[1] for v in wanted]
    made = [ndarray(onp.zeros(v.shape, v.dtype)) if g is None else g for v, g in zip(wanted, made)]
    return made[0] if isinstance(variables, ndarray) else made

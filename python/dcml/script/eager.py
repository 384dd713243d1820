"""Scripts and operators as they run: operator by operator, on Tensors.

The one idea: a script's own body runs, so that a debugger shows its variables; each operator in it is one call of the core
(or the host), with numbers in the type of the tensor beside them, as in the model.
Must not know: how a script is translated.
"""
import contextvars
import dis
import sys

import numpy as np

from .. import _core
from ..onnx.eager import eager
from ..onnx.host import control
from ..onnx.host import values as host
from ..onnx.host.table import HOST
from . import constants
from .subscripts import in_order, places
from .tensor import Tensor
from .values import OnnxClosure

_inside = contextvars.ContextVar("a script runs", default=False)
_new = Tensor.__new__
_UNPACK, _CACHE = dis.opmap["UNPACK_SEQUENCE"], dis.opmap.get("CACHE", -1)
_SUBGRAPHS = {"If": control.if_, "Loop": control.loop, "Scan": control.scan, "SequenceMap": control.sequence_map}


# -- values -------------------------------------------------------------------------------------------
def _array(value):
    """What the core takes of a Tensor, an array, a list of these, a number or None; TypeError for others."""
    if type(value) is Tensor:
        return value.value
    if value is None or isinstance(value, np.ndarray) and value.dtype.kind not in "US":
        return value
    if isinstance(value, (list, tuple)) and not (constants.is_numbers(value) and value):
        return [_array(item) for item in value]
    if isinstance(value, dict):
        return value
    if constants.is_constant(value):
        return constants.array_of(value)
    return host.as_value(value) if host.is_torch(value) else _no_value(value)


def _no_value(value):
    instead = "; a function within a script is marked by @graph()" if callable(value) else ""
    raise TypeError(f"expected a Tensor, an array, a number or a list of these, got {type(value).__name__}{instead}")


def _tensor(value):
    """A result of the core, of the host, or of a script's body, as a script sees it."""
    if type(value) is np.ndarray:
        tensor = _new(Tensor)
        tensor._value = value
        return tensor
    if isinstance(value, list):
        return [_tensor(item) for item in value]
    if host.is_torch(value):
        return Tensor(value.detach().numpy())
    return value if value is None or isinstance(value, (Tensor, dict)) else _tensor(np.asarray(_array(value)))


def _plain(value):
    """A Tensor as an array, lists of Tensors as lists of arrays."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(_plain, value))
    return value.value if type(value) is Tensor else value


# -- operators ------------------------------------------------------------------------------------------
def apply(operator, inputs, attributes):
    """The Tensor, or tuple of Tensors, that an operator gives, called from the caller's caller.

    There are as many as that caller unpacks; without unpacking, those that are never left out.
    """
    count = _unpacked(sys._getframe(2)) if operator.counts else operator.required
    if operator.name in _SUBGRAPHS and operator.domain == "":
        return _with_bodies(operator, inputs, attributes, count)
    return compute(operator, inputs, attributes, count or _count(operator, inputs, attributes))


def compute(operator, inputs, attributes, count):
    """The same, of a known number of outputs."""
    attributes = _attributes(operator, attributes) if attributes else None
    if operator.name == "Constant" and operator.domain == "":
        return _constant(attributes)
    results = eager(operator.name, operator.domain, operator.version, _adapted(operator, inputs), attributes, count)
    if count == 1:
        return _tensor(results[0])
    return tuple([_tensor(value) for value in results])


def is_plain(operator):
    """Whether its function asks the core at once where all inputs are arrays or Tensors; see operators.py."""
    fixed = operator.inputs and all([taken.kind == "single" for taken in operator.inputs])
    return fixed and not operator.attributes and operator.most == 1 and (operator.domain, operator.name) not in HOST


def _adapted(operator, inputs):
    """Arrays for the core, numbers in the type of the first tensor of their type variable."""
    taken, models = operator.inputs, {}
    if not taken:
        return [_given(operator, "an input", value) for value in inputs]
    last = len(taken) - 1
    for k, value in enumerate(inputs):
        shared = taken[min(k, last)].type
        if shared and shared not in models and (type(value) is Tensor or isinstance(value, np.ndarray)):
            models[shared] = value.dtype
    arrays = []
    for k, value in enumerate(inputs):
        this = taken[min(k, last)]
        if value is not None and (constants.is_number(value) or constants.is_numbers(value)):
            value = _number(value, this, models.get(this.type))
        else:
            value = _given(operator, f"input {this.name!r}", value)
        arrays.append(value)
    while arrays and arrays[-1] is None:
        arrays.pop()
    return arrays


def _given(operator, what, value):
    try:
        return _array(value)
    except TypeError as error:
        raise TypeError(f"{operator.name}(): {what}: {error}") from None


def _number(value, taken, dtype):
    if taken.sequences and not taken.tensors and isinstance(value, (list, tuple)):
        return [_array(item) for item in value]
    array = constants.array_of(value)
    wanted = dtype if dtype is not None else host.dtype_of(taken.only) if taken.only else None
    return array if wanted is None or array.dtype.kind == "O" else array.astype(wanted)


def _attributes(operator, given):
    kept = {}
    for name, value in given.items():
        kind, default, required = operator.attributes.get(name, (None, None, False))
        if value is None and required:
            raise TypeError(f"{operator.name}(): attribute {name!r} must be given, not None")
        if value is None or value is default:
            continue
        try:
            value = constants.attribute_value(name, kind or constants.kind_of(value), value)
        except TypeError as error:
            raise TypeError(f"{operator.name}(): {error}") from None
        kept[name] = constants.array_of(value) if constants.is_proto(value) else value
    return kept


def _constant(attributes):
    if not attributes or len(attributes) > 1:
        raise _core.ModelError(f"Constant() takes one of its attributes, got {sorted(attributes or ())}")
    (name, value), = attributes.items()
    if name == "sparse_value":
        raise _core.UnsupportedOpError("Constant(): sparse tensors are not supported here; give value=")
    return _tensor(np.asarray(constants.array_of(value, np.float32 if name == "value_floats" else None)))


def _count(operator, inputs, attributes):
    """How many outputs an operator has whose number depends on the call."""
    if operator.most is not None:
        return operator.required
    if attributes.get("num_outputs"):
        return attributes["num_outputs"]
    lengths = inputs[1] if operator.name == "Split" and len(inputs) > 1 else None
    return operator.required if lengths is None else len(_array(lengths))


def _unpacked(frame):
    """How many names the call that a frame is in is assigned to, where that is more than one; else None."""
    code, at = frame.f_code.co_code, frame.f_lasti + 2
    while at < len(code) and code[at] == _CACHE:
        at += 2
    return code[at + 1] if at < len(code) and code[at] == _UNPACK else None


PLAIN = {"_array": np.ndarray, "_Tensor": Tensor, "_new": _new, "_eager": _core.eager, "_compute": compute,
         "_refused": (_core.UnsupportedOpError, _core.DTypeError)}  # what functions of plain operators name


# -- subgraphs --------------------------------------------------------------------------------------------
class _Call:
    """A node with bodies as the host's functions see it."""

    def __init__(self, operator, attributes, bodies):
        self.opset, self.op, self.budget, self._bodies, self._attributes = operator.version, operator.name, self, bodies, attributes

    def get(self, name, default=None):
        return self._attributes.get(name, default)

    def __getitem__(self, name):
        if name not in self._attributes:
            raise _core.ModelError(f"{self.op}(): attribute {name!r} is missing")
        return self._attributes[name]

    def body(self, name, n_given):
        return self._bodies[name]

    def check(self, n_bytes):
        """The memory of a script that runs is its caller's to bound."""


class _Body:
    def __init__(self, closure):
        self._function = closure.function
        self.n_outputs = _results_of(closure.function)

    def __call__(self, *given):
        results = self._function(*[_tensor(value) for value in given])
        return [_array(value) for value in (results if isinstance(results, tuple) else (results,))]

    def passes_on(self, output, value):
        return False

    def input_rank(self, k):
        return 0

    def output_type(self, k):
        return 0, ()


def _results_of(function):
    """How many values a body returns, of its text: a loop that never runs has as many."""
    import ast
    from .source import Source
    last = Source(function).tree.body[-1]
    return len(last.value.elts) if isinstance(last, ast.Return) and isinstance(last.value, ast.Tuple) else 1


def _with_bodies(operator, inputs, attributes, count):
    bodies, rest = {}, {}
    for name, value in attributes.items():
        if operator.attributes[name][0] != "GRAPH":
            rest[name] = value
        elif isinstance(value, OnnxClosure):
            bodies[name] = _Body(value)
        elif constants.is_proto(value, "GraphProto"):
            given = {k: v for k, v in attributes.items() if v is not None}
            return _results(eager(operator.name, "", operator.version, [_array(v) for v in inputs], given, count))
        else:
            came = getattr(value, "__name__", type(value).__name__)
            raise TypeError(f"{operator.name}(): {name!r} is a function under @graph(), got {came}: write @graph() above it")
    try:
        results = _SUBGRAPHS[operator.name](_Call(operator, _attributes(operator, rest), bodies), *_adapted(operator, inputs))
    except _core.Error as error:
        raise type(error)(f"{operator.name}(): {error}") from None
    return _results(results if count is None else results[:count])


def _results(values):
    return _tensor(values[0]) if len(values) == 1 else tuple([_tensor(value) for value in values])


# -- arithmetic and indices --------------------------------------------------------------------------------
_signs = {}  # operator -> the newest opset's function


def _sign(op):
    if op not in _signs:
        from .onnx_opset import default_opset
        _signs[op] = getattr(default_opset, op)
    return _signs[op]


def arithmetic(op, first, second=None, negated=False):
    """What a sign between Tensors, arrays and numbers gives; NotImplemented for what is none of these."""
    given = (first,) if op == "Neg" else (first, second)
    for value in given:
        if type(value) is not Tensor and not constants.is_constant(value):
            return NotImplemented
    if op != "Mod":
        result = _sign(op)(*given)
        return _sign("Not")(result) if negated else result
    floats = any([isinstance(v, float) or getattr(v, "dtype", np.dtype(bool)).kind not in "biu" for v in given])
    return _sign(op)(*given, fmod=int(floats))


def index(tensor, key):
    """A part of a Tensor, with a script's meaning of indices."""
    base = tensor.value
    parts = places(key if isinstance(key, tuple) else (key,), lambda item: item is ...)
    slices, gathers = [slice(None)] * base.ndim, []
    for axis, item in parts:
        if not -base.ndim <= axis < base.ndim:
            raise _core.ShapeError(f"an index of {len(parts)} parts for a Tensor of shape {list(base.shape)}")
        if isinstance(item, slice):
            slices[axis] = item
        elif item is None or isinstance(item, (bool, float, str)):
            raise TypeError(f"{item!r} is no index: an int, a slice or a tensor of ints is; op.Unsqueeze adds a dimension")
        else:
            gathers.append((axis, item))
    base = base[tuple(slices)]
    for axis, item in in_order(gathers):
        at = np.asarray(_array(item))
        if at.dtype.kind not in "iu":
            raise _core.DTypeError(f"an index is of type {at.dtype}, expected ints")
        try:
            base = np.asarray(np.take(base, at, axis), base.dtype)
        except IndexError as error:
            raise _core.ValueError_(f"Tensor of shape {list(tensor.shape)}: {error}") from None
    return _tensor(base)


# -- scripts ------------------------------------------------------------------------------------------------
def run(script, args, kwargs):
    """Runs a script's own body; see OnnxFunction."""
    parameters, order = script._parameters, list(script._parameters)
    arrays = False
    given = []
    for k, value in enumerate(args):
        arrays |= _has_array(value)
        given.append(_argument(parameters[order[k]], value) if k < len(order) else value)
    named = {}
    for name, value in kwargs.items():
        arrays |= _has_array(value)
        named[name] = _argument(parameters[name], value) if name in parameters else value
    for p in parameters.values():
        if p.kind is None and not p.is_required and p.default is not None and p.position >= len(args) and p.name not in named:
            named[p.name] = _argument(p, p.default)
    inside = _inside.get()
    token = _inside.set(True)
    try:
        results = script.function(*given, **named)
    finally:
        _inside.reset(token)
    several = isinstance(results, tuple)
    results = tuple([_tensor(value) for value in (results if several else (results,))])
    if arrays and not inside:
        results = _plain(results)
    return results if several else results[0]


def _has_array(value):
    return isinstance(value, (np.ndarray, np.generic)) or isinstance(value, (list, tuple)) and any([_has_array(item) for item in value])


def _argument(parameter, value):
    if parameter.kind is None:
        return value if type(value) is Tensor or value is None else _tensor(_array(value))
    return value if value is None else constants.attribute_value(parameter.name, parameter.kind, value)

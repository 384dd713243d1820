"""Functions made of rows of the operator table.

The one idea: a row's inputs and attributes, in their order and with their defaults, are the function's parameters.
Must not know: any operator by name.
"""
import functools
import inspect
import re

import numpy as onp

from ... import _core
from ..array import as_array, as_operator, invoke, ndarray
from ..tape import number_of

DOMAIN = "dcml.mx"
_TYPES = frozenset(("dtype", "out_dtype"))   # attributes that name a type: the row gets ONNX's number
# What MXNet 2 calls parameters that the page has another name for.
ALIASES = {"batch_dot": {"a": "lhs", "b": "rhs"}, "fully_connected": {"x": "data"},
           "constraint_check": {"x": "data"}, "nonzero": {"a": "data"},
           "batch_norm": {"x": "data", "running_mean": "moving_mean", "running_var": "moving_var"},
           "sync_batch_norm": {"x": "data", "running_mean": "moving_mean", "running_var": "moving_var"}}
# Where MXNet 2 orders parameters in another way than the page: from which position on, whether the argument there is a text
# if the order is MXNet's, and the names from there on.
_ORDERS = {"pooling": (2, False, ("stride", "pad", "pool_type", "pooling_convention", "global_pool", "cudnn_off")),
           "rnn": (5, True, ("mode", "state_size", "num_layers", "bidirectional", "state_outputs", "p", "use_sequence_length"))}
_IGNORED = frozenset(("name", "attr", "ctx", "device"))


def _kind(name, text):
    """What an attribute is, by its name and its default's text: "type", "int", "float", "text", "list" or "any"."""
    if name in _TYPES:
        return "type"
    if text is None or text == "none":
        return "any"
    if text.startswith('"'):
        return "text"
    if text.startswith(("[", "rep(")):
        return "list"
    return "int" if re.fullmatch(r"-?\d+", text) else "float" if re.fullmatch(r"-?[\d.]+(e-?\d+)?|-?inf", text) else "any"


def _default(kind, text):
    """The default as Python shows it; the parameter is required where there is none."""
    if text is None:
        return inspect.Parameter.empty
    if text == "none":
        return None
    if kind == "list":
        return ()
    return {"int": int, "float": float, "text": lambda t: t.strip('"')}.get(kind, str)(text)


def _number(op, name, value, kind):
    if isinstance(value, (ndarray, onp.generic)) and value.size == 1:
        value = value.item()
    if kind == "int" and type(value) is float and value.is_integer():
        return int(value)
    if kind == "float" and type(value) in (int, bool):
        return float(value)
    if type(value) is bool:
        return int(value)
    if type(value) not in ((int, ) if kind == "int" else (int, float)) or value != value and kind == "int":
        raise TypeError(f"{op}(): {name!r} is {'an integer' if kind == 'int' else 'a number'}, got {value!r}")
    return value


def attribute(op, name, kind, value):
    """An attribute as the core takes it; None: left out.  Raises TypeError for a value of another kind."""
    if value is None or (kind == "type" and value == "None"):
        return None
    if kind == "type":
        return number_of(value)
    if kind in ("text", "any") and isinstance(value, str):
        return value
    if kind == "text":
        raise TypeError(f"{op}(): {name!r} is a text, got {value!r}")
    if isinstance(value, (tuple, list)) or (isinstance(value, onp.ndarray) and value.ndim):
        if kind in ("int", "float"):
            raise TypeError(f"{op}(): {name!r} is a number, got {value!r}")
        return tuple([_number(op, name, v, "any") for v in value])
    value = _number(op, name, value, kind)
    return (value, ) if kind == "list" else value


class Signature:
    """What a row takes: inputs (name, optional, variadic), and attributes {name: (kind, default)}."""

    def __init__(self, row, public):
        self.name, self.op, self.since = public, row["name"], row["since"]
        self.inputs = [(i["name"], i["optional"]) for i in row["inputs"]]
        self.variadic = bool(row["inputs"]) and row["inputs"][-1]["variadic"]
        self.attributes = {name: _kind(name, text) for name, text in row["attributes"].items()}
        self.defaults = {name: _default(self.attributes[name], text) for name, text in row["attributes"].items()}
        self.required = [name for name, optional in self.inputs if not optional]
        self.single = len(row["outputs"]) == 1 and not row["outputs"][0]["variadic"]
        self.row = row

    def bind(self, args, kwargs):
        """What _bind gives, where parameters may have other names that MXNet also uses."""
        aliases = ALIASES.get(self.name)
        if aliases:
            kwargs = {aliases.get(name, name): value for name, value in kwargs.items()}
        return self._bind(args, kwargs)

    def _bind(self, args, kwargs):
        """(inputs, attributes) of a call; an argument by position that is no array skips optional inputs."""
        inputs, attributes, given = [None] * len(self.inputs), {}, set()
        names = [name for name, _ in self.inputs]
        order = [*names, *self.attributes]
        at = 0
        for value in args:
            if at < len(names) and value is not None and not isinstance(value, (ndarray, onp.ndarray)):
                while at < len(names) and self.inputs[at][1]:
                    at += 1
            if at >= len(order):
                raise TypeError(f"{self.name}() takes {len(order)} arguments, {len(args)} were given")
            self._take(order[at], value, inputs, attributes, given, names)
            at += 1
        for name, value in kwargs.items():
            if name not in self.attributes and name not in names:
                if name in _IGNORED:
                    continue
                raise TypeError(f"{self.name}() has no argument {name!r}; it has {', '.join(order)}")
            self._take(name, value, inputs, attributes, given, names)
        for name, value in zip(names, inputs):
            if value is None and name in self.required:
                raise TypeError(f"{self.name}(): input {name!r} must be given")
        for name, default in self.defaults.items():
            if default is inspect.Parameter.empty and attributes.get(name) is None:
                raise TypeError(f"{self.name}(): {name!r} must be given")
        while inputs and inputs[-1] is None:
            inputs.pop()
        return tuple(inputs), attributes

    def _take(self, name, value, inputs, attributes, given, names):
        if name in given:
            raise TypeError(f"{self.name}() got two values for {name!r}")
        given.add(name)
        if name in self.attributes:
            value = attribute(self.name, name, self.attributes[name], value)
            if value is not None:
                attributes[name] = value
        elif value is not None:
            inputs[names.index(name)] = array_input(self.name, name, value)

    def signature(self):
        """For ``help`` and ``inspect``."""
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        found, open_end = [], False
        for name, optional in self.inputs:
            open_end = open_end or optional
            found.append(inspect.Parameter(name, kind, default=None if open_end else inspect.Parameter.empty))
        for name, default in self.defaults.items():
            if default is inspect.Parameter.empty and open_end:
                default = None
            found.append(inspect.Parameter(name, kind, default=default))
            open_end = True if default is not inspect.Parameter.empty else open_end
        rest = [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=None) for n in ("name", "out") if n not in self.defaults]
        return inspect.Signature([*found, *rest])


def array_input(op, name, value):
    """An input that a caller gave: an array, NumPy's array, a number or a list of them."""
    if isinstance(value, ndarray):
        return value
    if isinstance(value, (str, bytes, dict)) or value is None:
        raise TypeError(f"{op}(): input {name!r} is an array, got {type(value).__name__}")
    try:
        return as_array(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{op}(): input {name!r} is an array, got {type(value).__name__}: {error}") from None


def write_out(op, made, out):
    """Results into the arrays that a caller gave as ``out``."""
    if out is None:
        return made
    outs = list(out) if isinstance(out, (tuple, list)) else [out]
    made = made if isinstance(made, list) else [made]
    if len(outs) > len(made) or not all(isinstance(o, ndarray) for o in outs):
        raise TypeError(f"{op}(): out is an array, or a list of at most {len(made)}")
    for o, m in zip(outs, made):
        o._in_place(m)
    return out


def written(function):
    """A function of npx that is written in Python: other names of parameters, and ``name``, ``out`` and ``ctx`` besides its own."""
    op = function.__name__
    aliases = ALIASES.get(op, {})
    others = _IGNORED | set(aliases)
    at, text, names = _ORDERS.get(op, (1 << 30, False, ()))

    @functools.wraps(function)
    def call(*args, out=None, **kwargs):
        if len(args) > at and isinstance(args[at], str) == text:
            named = dict(zip(names, args[at:]))
            if len(named) < len(args) - at or not kwargs.keys().isdisjoint(named):
                raise TypeError(f"{op}() got too many arguments, or two values for one")
            args, kwargs = args[:at], {**named, **kwargs}
        if kwargs and not others.isdisjoint(kwargs):
            kwargs = {aliases.get(name, name): value for name, value in kwargs.items() if name not in _IGNORED}
        try:
            made = function(*args, **kwargs)
        except (ValueError, TypeError, OverflowError) as error:
            if isinstance(error, _core.Error) or str(error).startswith(op):
                raise
            raise (TypeError if isinstance(error, TypeError) else _core.ValueError_)(f"{op}(): {error}") from None
        return made if out is None else write_out(op, made, out)
    return call


def inputs(op, **given):
    """The inputs of a function that is written in Python as arrays; TypeError where one is not given."""
    found = []
    for name, value in given.items():
        if value is None:
            raise TypeError(f"{op}(): input {name!r} must be given")
        found.append(value if type(value) is ndarray else array_input(op, name, value))
    return found


def extents(op, name, value, n, default):
    """A tuple of n integers: of one number as often, of None or nothing the default."""
    if value is None or (not isinstance(value, (int, onp.integer)) and not len(value)):
        return (default, ) * n
    values = (value, ) * n if isinstance(value, (int, onp.integer)) else tuple(value)
    if len(values) != n or not all(isinstance(v, (int, onp.integer)) for v in values):
        raise _core.ShapeError(f"{op}: {name!r} has {n} integers, got {value!r}")
    return tuple(int(v) for v in values)


_made = {}


def signature_of(op, public=None):
    """The signature of a row."""
    found = _made.get((op, public))
    if found is None:
        row = _core.operator(DOMAIN, op, 1)
        found = _made[op, public] = Signature(row, public or op)
    return found


def function_of(op):
    """A function that applies a row to arrays."""
    signature = signature_of(op)
    single, since, bind, kept = signature.single, signature.since, signature.bind, {}
    most = len(signature.inputs)
    least = most + 1 if any(default is inspect.Parameter.empty for default in signature.defaults.values()) else len(signature.required)

    def function(*args, out=None, **kwargs):
        for a in args:
            if type(a) is not ndarray:
                key = None
                break
        else:  # the usual call: arrays by position, attributes by name, as the last time
            key = (len(args), *kwargs.items(), *map(type, kwargs.values())) if kwargs or not least <= len(args) <= most else ()
        try:
            inputs, attributes = args, None if key == () else kept[key]
        except (KeyError, TypeError):  # not kept, or not hashable
            inputs, attributes = bind(args, kwargs)
            if key and len(inputs) == len(args) and not any(isinstance(v, (ndarray, list, onp.ndarray)) for v in kwargs.values()):
                if len(kept) >= 256:
                    kept.clear()
                kept[key] = attributes
        made = invoke(op, DOMAIN, since, inputs, attributes)
        made = made[0] if single else made
        return made if out is None else write_out(op, made, out)

    function.__name__ = function.__qualname__ = op
    function.__signature__ = signature.signature()
    text = "\n".join(f"    {line}" for line in signature.row["text"].splitlines())
    function.__doc__ = f"Operator {op} of domain {DOMAIN}:\n\n::\n\n{text}"
    plain = single and 1 <= least <= most <= 8
    return as_operator(function, op, DOMAIN, since, max(least, 1), most) if plain else function

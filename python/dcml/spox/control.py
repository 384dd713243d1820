"""Subgraphs: what callables given to if_, loop, scan and sequence_map return.

The one idea: a callable is called once, with arguments whose types follow from the operator's inputs; what it returns
are the subgraph's results, which may be values from outside.
Must not know: models.
"""
from . import types
from .var import Argument, Node, Var, make


class Subgraph:
    """Arguments and results of a body."""

    __slots__ = ("arguments", "results")

    def __init__(self, arguments, results):
        self.arguments, self.results = arguments, results


def new_argument(kind):
    """A variable that is given."""
    node = Node(Argument, (), [], {}, ["arg"])
    return make(node, 0, kind, None, fact_of(kind))


def fact_of(kind):
    """What the core takes of a type; None where the core has no such types."""
    if type(kind) is types.Tensor and kind._shape is not None and kind._code not in (types.STRING, *types.COMPLEX):
        return kind._code, kind._shape
    return None


def subgraphs(operator, given, attributes):
    """{name: Subgraph} of the callables of a call."""
    kinds = _ARGUMENTS.get(operator.name, _no_arguments)(operator, given, attributes)
    return {name: _trace(operator, name, attributes[name], kinds) for name in operator.graphs}


def _trace(operator, name, function, kinds):
    where = f"{operator.function}(): {name!r}"
    if not callable(function):
        raise TypeError(f"{where} is a function that takes {len(kinds)} Vars and returns Vars, got {type(function).__name__}")
    arguments = [new_argument(kind) for kind in kinds]
    results = function(*arguments)
    if isinstance(results, Var) or not hasattr(results, "__iter__"):
        raise TypeError(f"{where} returns a sequence of Vars, got {type(results).__name__}")
    results = list(results)
    for item in results:
        if type(item) is not Var:
            raise TypeError(f"{where} returns Vars, got {type(item).__name__}")
    if not results:
        raise TypeError(f"{where} returns no result")
    return Subgraph(arguments, results)


def _no_arguments(operator, given, attributes):
    return []


def _loop(operator, given, attributes):
    """The number and the condition have one element, as Spox declares them; a condition that is given has its own shape."""
    condition = given[1].type if given[1] is not None and given[1].type is not None else types.Tensor(bool, (1,))
    return [types.Tensor(int, (1,)), condition, *(v.unwrap_type() for v in given[2])]


def _scan(operator, given, attributes):
    values, n = given[0], attributes["num_scan_inputs"]
    if not hasattr(n, "__index__") or not 0 < n <= len(values):
        raise TypeError(f"scan(): num_scan_inputs is {n!r} of {len(values)} inputs")
    axes = list(attributes["scan_input_axes"] or [0] * n)
    if len(axes) != n:
        raise TypeError(f"scan(): scan_input_axes has {len(axes)} entries, expected {n}")
    kinds = [v.unwrap_type() for v in values]
    return kinds[:-n] + [_slice(kind, axis) for kind, axis in zip(kinds[-n:], axes)]


def _slice(kind, axis):
    """The type of a part of a tensor along an axis."""
    kind = kind.unwrap_tensor()
    shape = kind.shape
    if shape is not None:
        if not -len(shape) <= axis < len(shape):
            raise TypeError(f"scan(): axis {axis} is out of range for {kind}")
        shape = tuple(d for k, d in enumerate(shape) if k != axis % len(shape))
    return types.tensor(kind._code, shape)


def _sequence_map(operator, given, attributes):
    kinds = [v.unwrap_type() for v in (given[0], *given[1])]
    return [kinds[0].unwrap_sequence().elem_type, *(k.elem_type if isinstance(k, types.Sequence) else k for k in kinds[1:])]


_ARGUMENTS = {"Loop": _loop, "Scan": _scan, "SequenceMap": _sequence_map}

"""A call of a constructor: from arguments to the variables of a new node.

The one idea: all that can be wrong is found here, at the call, and the error names the operator and the argument.
Must not know: schemas, or how types are inferred.
"""
from . import attributes as attrs
from .control import subgraphs
from .infer import infer
from .var import Node, Var


def apply(operator, given, attributes, outputs_count):
    """The variable, or tuple of variables, of the operator applied to what a constructor was given."""
    given = _checked(operator, given)
    kept = [(name, kind, attrs.convert(operator, name, kind, value) if value is not default or kind == "dtype" else value)
            for name, kind, default in operator.attributes if (value := attributes[name]) is not None]
    if len(kept) < len(operator.attributes):
        _check_required(operator, attributes)
    graphs = subgraphs(operator, given, attributes) if operator.graphs else {}
    fields = _fields(operator, kept, graphs, given, outputs_count)
    node = Node(operator, _in_a_row(operator, given), kept, graphs, fields)
    results = infer(node)
    if len(operator.outputs) == 1:
        return results[0] if not operator.outputs[0][1] else results
    if not operator.outputs[-1][1]:
        return results
    n = len(operator.outputs) - 1
    return (*results[:n], results[n:])


def _check_required(operator, attributes):
    for name in operator.required:
        if attributes[name] is None:
            raise TypeError(f"{operator.function}(): attribute {name!r} must be given, got None")


def _checked(operator, given):
    """The inputs as they were given, variadic ones as lists."""
    checked = []
    for (name, kind), value in zip(operator.inputs, given):
        if kind == "variadic":
            checked.append(_row(operator, name, value))
        elif type(value) is Var or (value is None and kind == "optional"):
            checked.append(value)
        else:
            expected = "a Var or None" if kind == "optional" else "a Var"
            raise TypeError(f"{operator.function}(): input {name!r} is {expected}, got {_describe(value)}")
    return checked


def _in_a_row(operator, given):
    """The node's inputs: None where one is left out in the middle."""
    inputs = []
    for (_, kind), value in zip(operator.inputs, given):
        if kind == "variadic":
            inputs += value
        else:
            inputs.append(value)
    while inputs and inputs[-1] is None and len(inputs) > operator.min_input:
        inputs.pop()
    return tuple(inputs)


def _row(operator, name, value):
    if isinstance(value, (str, bytes, dict)) or not hasattr(value, "__iter__"):
        raise TypeError(f"{operator.function}(): input {name!r} is a sequence of Vars, got {_describe(value)}")
    items = list(value)
    for k, item in enumerate(items):
        if type(item) is not Var:
            raise TypeError(f"{operator.function}(): item {k} of input {name!r} is a Var, got {_describe(item)}")
    return items


def _describe(value):
    shape = getattr(value, "shape", None)
    return f"{type(value).__name__}{list(shape)}" if isinstance(shape, tuple) else type(value).__name__


def _fields(operator, kept, graphs, given, outputs_count):
    """A name for each output; variadic ones are numbered."""
    last, variadic = operator.outputs[-1]
    names = [name for name, _ in operator.outputs]
    if not variadic:
        return names
    if outputs_count is not None:
        if isinstance(outputs_count, bool) or not isinstance(outputs_count, int) or not 0 < outputs_count <= 1 << 16:
            raise TypeError(f"{operator.function}(): outputs_count is a positive int, got {outputs_count!r}")
        n = outputs_count
    elif graphs:
        n = _results(operator, kept, graphs, given)
    else:
        n = _parts(operator, dict((name, value) for name, _, value in kept), given)
    return names[:-1] + [f"{last}_{k}" for k in range(n)]


def _results(operator, kept, graphs, given):
    """As many as the bodies give; of a loop, but for its condition."""
    n = min(len(graph.results) for graph in graphs.values())
    least, condition = 1, operator.name == "Loop"
    if condition:
        least += len(given[-1])
    elif operator.name == "Scan":
        least = len(given[0]) - next(value for name, _, value in kept if name == "num_scan_inputs")
    if n < max(least, 1 + condition):
        raise TypeError(f"{operator.function}(): the body returns {n} Vars, expected at least {max(least, 1 + condition)}")
    return n - condition


def _parts(operator, kept, given):
    """The number of outputs where an attribute tells it, or the length of the input of lengths."""
    from .infer import InferenceError
    lengths = given[1] if len(given) > 1 else None
    n = kept.get("num_outputs")
    if (n is None) == (lengths is None):
        raise InferenceError(f"{operator.function}(): give either num_outputs or {operator.inputs[1][0]!r}")
    if n is None:
        shape = getattr(lengths.type, "shape", None)
        n = shape[0] if shape and len(shape) == 1 else None
    if not isinstance(n, int) or n < 1:
        given = None if lengths is None else lengths.type
        raise InferenceError(f"{operator.function}(): the number of outputs is not known: {operator.inputs[1][0]!r} is {given}")
    return n

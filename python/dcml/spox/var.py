"""Variables, and the nodes that make them.

The one idea: a variable is an output of a node, and a node knows its inputs, so the variables that a caller holds are
the graph.  Nothing here changes once it is made.
Must not know: what an operator computes, or how a model is written.
"""
LAZY = object()  # the value of a variable that only depends on constants, and was not asked for yet


class Node:
    """An operator applied to variables.

    op: its Operator, or a class of its own that `build` knows.  inputs: variables, None where absent, variadic ones
    in a row.  attributes: (name, kind, value) in order.  graphs: {name: Subgraph}.  fields: a name for each output.
    """

    __slots__ = ("op", "inputs", "attributes", "graphs", "fields", "types")

    def __init__(self, op, inputs, attributes, graphs, fields):
        self.op, self.inputs, self.attributes, self.graphs, self.fields = op, inputs, attributes, graphs, fields


class Argument:
    """The op of what is given: an input of the model, or of a subgraph."""
    domain, name, since = "", "Argument", 0


class Initializer:
    """The op of a constant that is an initializer of the model."""
    domain, name, since = "", "Initializer", 0


class Var:
    """A value of the model to be: an output of an operator, or an argument.

    ``type`` is its Type, None if it is not known.  A Var is immutable, hashable by identity, and its copy is itself.
    It has no arithmetic (``_future.operator_overloading`` lends it some) and no truth value.
    Operators make it; it is not made by hand.
    """

    __slots__ = ("_type", "_node", "_index", "_value", "_fact", "__weakref__")

    def __new__(cls, *args, **kwargs):
        raise TypeError("a Var is made by an operator or by argument()")

    @property
    def type(self):
        """Its Type, or None."""
        return self._type

    def unwrap_type(self):
        """Its Type; TypeError if that is not known."""
        if self._type is None:
            raise TypeError(f"the type of {self!r} is not known")
        return self._type

    def unwrap_tensor(self):
        """Its Type, if that is a Tensor; else TypeError."""
        return self.unwrap_type().unwrap_tensor()

    def unwrap_sequence(self):
        """Its Type, if that is a Sequence; else TypeError."""
        return self.unwrap_type().unwrap_sequence()

    def unwrap_optional(self):
        """Its Type, if that is an Optional; else TypeError."""
        return self.unwrap_type().unwrap_optional()

    def _get_value(self):
        """What it is in each run: an array (a list for a sequence); ValueError if it depends on an argument."""
        if self._value is LAZY:
            from .infer import evaluate
            evaluate(self)
        if self._value is None:
            raise ValueError(f"{self!r} has no value before the model runs")
        return self._value[0]

    def __setattr__(self, name, value):
        raise AttributeError("a Var cannot be changed")

    def __delattr__(self, name):
        raise AttributeError("a Var cannot be changed")

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        raise ValueError("a Var cannot be copied with all that it depends on")

    def __reduce__(self):
        raise TypeError("a Var cannot be pickled; build() a model of it")

    def __repr__(self):
        field = self._node.fields[self._index]
        value = "" if not isinstance(self._value, tuple) else f" = {self._value[0]}"
        return f"<Var {self._node.op.name}.{field} of {self._type}{value}>"

    def __bool__(self):
        raise TypeError("a Var has no truth value before the model runs; use if_, where or and_")


_slots = {name: getattr(Var, name).__set__ for name in ("_type", "_node", "_index", "_value", "_fact")}
_set_type, _set_node, _set_index, _set_value, _set_fact = _slots.values()
_new = object.__new__


def make(node, index, kind, value=None, fact=None):
    """An output of a node.

    value: None, LAZY, or (what it is in each run,).  fact: what _core.infer takes of it; None: a type alone does not
    say it, or it is not known.
    """
    var = _new(Var)
    _set_type(var, kind)
    _set_node(var, node)
    _set_index(var, index)
    _set_value(var, value)
    _set_fact(var, fact)
    return var


def settle(var, value):
    """Notes the value of a variable that was LAZY: (value,), or None if it cannot be computed."""
    _set_value(var, value)


# -- arithmetic, where someone lends it -----------------------------------------------------------------
_dispatchers = []  # the innermost last


def push_dispatcher(dispatcher):
    _dispatchers.append(dispatcher)


def pop_dispatcher(dispatcher):
    _dispatchers.remove(dispatcher)


def _method(name, swapped):
    def method(self, *other):
        if not _dispatchers:
            return NotImplemented
        return getattr(_dispatchers[-1], name)(*other[::-1], self) if swapped else getattr(_dispatchers[-1], name)(self, *other)
    return method


for _name in ("add", "sub", "mul", "truediv", "floordiv", "and_", "or_", "xor"):
    setattr(Var, f"__{_name.rstrip('_')}__", _method(_name, False))
    setattr(Var, f"__r{_name.rstrip('_')}__", _method(_name, True))


def _unary(name, word):
    def method(self):
        if not _dispatchers:
            raise TypeError(f"bad operand type for unary {word}: 'Var'")
        return getattr(_dispatchers[-1], name)(self)
    return method


Var.__neg__, Var.__invert__ = _unary("neg", "-"), _unary("not_", "~")

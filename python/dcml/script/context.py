"""A graph that is being written: the nodes so far, and what each Python name means at this place.

The one idea: a branch or a body is a context of its own with a copy of the names; names of values are given out by the
function, so that each has its own throughout.
Must not know: Python's syntax.
"""
from . import constants

NOTHING = object()


class Value:
    """A value of the graph ``home``.  castable: it takes the type of what stands beside it; constant: its Python value, or
    NOTHING; code: its element type, where that is known, or None."""

    __slots__ = ("name", "home", "castable", "constant", "code")

    def __init__(self, name, home, castable=False, constant=NOTHING, code=None):
        self.name, self.home, self.castable, self.constant, self.code = name, home, castable, constant, code


class Body:
    """A function within a script.  node: its ast.FunctionDef; captured: {name: binding} of what it reads from around it;
    marked: whether it is under @graph()."""

    def __init__(self, node, captured, marked):
        self.node, self.captured, self.marked = node, captured, marked


class Function:
    """What all graphs of a script share: names of values, versions of opsets, scripts that are called.

    own: the names that the script or a function in it assigns, which Python looks up nowhere else.
    """

    def __init__(self, source, own, default_opset, scanned):
        self.source, self.own = source, own
        self._default, self._scanned = default_opset, scanned
        self._names, self._nodes = set(), 0
        self.versions, self.called, self.value_infos, self.error = {}, {}, {}, None
        self.place = source.tree

    def fail(self, message, node=None, kind=None):
        """An error at a node of the tree, or where the translator is."""
        return self.source.error(node or self.place, message, *([kind] if kind else []))

    def fresh(self, hint):
        """A name that no other value has."""
        name, k = hint, 0
        while name in self._names:
            name, k = f"{hint}_{k}", k + 1
        self._names.add(name)
        return name

    def number(self):
        self._nodes += 1
        return f"n{self._nodes - 1}"

    @property
    def operators(self):
        """The opset of ``+`` and its like."""
        return self._default or self.standard

    @property
    def standard(self):
        """The opset of ai.onnx that constants and control flow are of."""
        found = self._default if self._default is not None and self._default.domain == "" else self._scanned
        if found is None and self._default is not None:  # of another domain: of ai.onnx the newest, as signs are that run
            from .onnx_opset import default_opset
            found = self._scanned = default_opset
        if found is None:
            raise self.fail("it is not said which version of ai.onnx this is: write @script(default_opset=opset18), "
                            "or call an operator of an opset")
        return found

    def uses(self, opset):
        """Notes the version of a domain; an error if the script uses another."""
        before = self.versions.setdefault(opset.domain, opset.version)
        if before != opset.version:
            raise self.fail(f"two versions of {opset.domain or 'ai.onnx'} in one function, {before} and {opset.version}: "
                            "use one opset, or put a part into a script of its own")


class Context:
    """A graph.  outer: the graph around it, or None."""

    def __init__(self, function, outer=None):
        self.function, self.outer = function, outer
        self.env = dict(outer.env) if outer else {}
        self.nodes, self.given = [], set()  # given: names of its outputs so far
        self.inputs = {}  # name -> type or None

    # -- nodes ------------------------------------------------------------------------------------------
    def emit(self, op, inputs, hints=("tmp",), attributes=(), opset=None):
        """Writes a node; returns its outputs.  inputs: Values, None where absent.  attributes: AttributeProtos."""
        import onnx
        opset = opset or self.function.standard
        self.function.uses(opset)
        names = ["" if value is None else value.name for value in inputs]
        while names and not names[-1]:
            names.pop()
        made = [Value(self.function.fresh(hint), self) for hint in hints]
        self.nodes.append(onnx.NodeProto(op_type=op, domain=opset.domain, name=self.function.number(), input=names,
                                         output=[value.name for value in made], attribute=attributes))
        return made

    def constant(self, value, hint="const", dtype=None):
        """A constant of a Python value; dtype: the element type that it is given, None: its own."""
        try:
            array = value if constants.is_proto(value) else constants.array_of(value, dtype)
            if dtype is not None and array.dtype.kind != "O":
                array = array.astype(dtype)
        except (TypeError, ValueError) as error:
            raise self.function.fail(f"{value!r:.60} is no constant: {error}") from None
        made, = self.emit("Constant", [], [hint], [constants.attribute_proto("value", "TENSOR", constants.tensor_proto(array, hint))])
        made.castable = constants.is_number(value) or constants.is_numbers(value)
        made.constant = value
        made.code = {"f": 1, "i": 7, "b": 9}.get(getattr(getattr(array, "dtype", None), "kind", "")) if made.castable else None
        return made

    def cast_like(self, value, other):
        """The value in another's type."""
        standard = self.function.standard
        if standard.version < 15:
            if other.code is None:
                raise self.function.fail(f"CastLike, which gives a number the type of {other.name!r}, needs ai.onnx 15, "
                                         f"this is {standard.version}: use a newer opset, or op.Cast")
            cast, = self.emit("Cast", [value], [value.name + "_cast"], [constants.attribute_proto("to", "INT", other.code)])
        else:
            cast, = self.emit("CastLike", [value, other], [value.name + "_cast"])
        cast.code = other.code
        return cast

    # -- outputs ----------------------------------------------------------------------------------------
    def output(self, value, hint):
        """A value that this graph may give: one of its own nodes that it does not give yet, else a copy."""
        if value.home is not self or value.name in self.given or value.name in self.inputs:
            kind = self.function.value_infos.get(value.name)
            value, = self.emit("Identity", [value], [hint])
            if kind is not None:
                self.function.value_infos[value.name] = kind
        self.given.add(value.name)
        return value

    def take(self, hint, kind=None):
        """A new input; kind: its type, or None."""
        value = Value(self.function.fresh(hint), self, code=None if kind is None else int(kind.dtype))
        self.inputs[value.name] = kind
        return value

    def graph(self, name, outputs):
        """The GraphProto; outputs: Values that ``output`` gave."""
        import onnx
        proto = onnx.GraphProto(name=name, node=self.nodes)
        kinds = self.function.value_infos
        for place, typed in ((proto.input, self.inputs.items()), (proto.output, [(v.name, kinds.get(v.name)) for v in outputs])):
            for label, kind in typed:
                info = place.add(name=label)
                if kind is not None:
                    info.type.CopyFrom(kind.to_type_proto())
        return proto

"""Statements of the text form, as they are collected while a program is read.

The one idea: everything that is written goes through ``store``: a nest of maps around one statement, which first goes
through an array of its own where it would overwrite what it still reads.
Must not know: Python source.
"""
import contextlib
import re

import numpy as np

from .. import _core
from . import ufuncs
from .array import Array, aligned, converted, element, reference, stored, type_name
from .index import Index, NeedsValue, atom, ceil_div, factor, mentions, names

_RESERVED = {"temp", "input", "param", "const", "saved", "symbol", "map", "sequential", "reduce", "scatter", "let"}
_PRIMITIVE = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum"}
_PROBE = "_probe_"
_LIMIT = 1000  # characters of an expression that is not stored before it is used


class Scope:
    """A map whose body is being collected."""

    def __init__(self, kind, ranges):
        self.kind, self.ranges, self.lines = kind, ranges, []

    def text(self):
        if not self.ranges:
            return self.lines
        head = ", ".join(f"{name} in {begin}:{end}" + (f":{step}" if step != 1 else "")
                         for name, begin, end, step in self.ranges)
        return [f"{self.kind} {head} {{", *self.lines, "}"]


class Emitter:
    """Text of a graph in the making: declarations, and the statements of its state."""

    def __init__(self):
        self.symbols, self.declared, self.constants = {}, {}, {}
        self.inputs, self.outputs, self.renamed, self.equal = [], [], {}, []
        self.scopes = [Scope("top", [])]
        self.conditions = []
        self.dtypes = {}
        self.least = 1  # of symbols
        self.reserved = set()  # names of containers that are still to be declared
        self.open = set()  # symbols whose numbers a caller could have given instead; no two of them are equal
        self.combined = {}  # by line: the parts of a statement that combines
        self.calls = []  # (graph, {its containers: names of ours}) of calls in loops, by the operators that stand for them
        self._held = []  # objects whose ids are keys

    # -- names ----------------------------------------------------------------------------------
    def symbol(self, name, least=None):
        self.symbols.setdefault(name, self.least if least is None else least)
        return atom(name)

    def new_name(self, base):
        """A name that no container has, as texts take it without quotes."""
        base = re.sub(r"\W|^(?=\d)", "_", base, flags=re.ASCII) or "t"
        name, k = base, 1
        while name in self.declared or name in self.constants or name in self.reserved:
            k += 1
            name = f"{base}_{k}"
        return name

    def parameter(self, base):
        """A name that no symbol and no map around has."""
        taken = {r[0] for s in self.scopes for r in s.ranges} | set(self.symbols)
        name, k = base, 1
        while name in taken or name in ("true", "false", "inf", "nan", "inff", "nanf", "in", "if", *_RESERVED):
            k += 1
            name = f"{base}_{k}"
        return name

    def parameters(self, n):
        found = []
        for d in range(n):
            name = self.parameter("ijklmnpqrs"[d] if d < 10 else f"i{d}")
            found.append(name if name not in found else f"{name}_{d}")
        return found

    # -- containers -----------------------------------------------------------------------------
    def declare(self, base, dtype, shape, role="temp", view=None):
        name = self.new_name(base)
        self.declared[name] = (role, type_name(dtype), list(shape), view)
        self.dtypes[name] = np.dtype(dtype)
        return name

    def input(self, name, dtype, shape, label=None):
        name = self.declare(name, dtype, shape, "input")
        self.inputs.append(name)
        return stored(name, shape, dtype, label=label or name)

    def temp(self, dtype, shape, base="t"):
        """A new array; in a parallel map each iteration has its own."""
        prefix, extents = [], []
        for scope in self.scopes:
            for name, begin, end, step in scope.ranges if scope.kind in ("map", "scatter") else ():
                first = self.extreme(begin, False)
                extents.append(ceil_div(self.extreme(end, True) - first, 1))
                prefix.append(atom(name) - first)
        rooms = [self.extreme(extent, True) for extent in shape]
        return stored(self.declare(base, dtype, [*extents, *rooms]), shape, dtype, prefix)

    def extreme(self, value, greatest):
        """The least or greatest value that an index has over the maps around."""
        for scope in reversed(self.scopes):
            for name, begin, end, step in reversed(scope.ranges):
                if not mentions(value, name):
                    continue
                rises = (factor(value, name) or 1) > 0
                value = value.subs({name: end - 1 if rises == greatest else begin})
                if mentions(value, name):
                    raise _core.UnsupportedOpError(f"an array whose extent {value} changes with the loop over {name}")
        return value

    def constant(self, data, base="c"):
        """An array whose contents are fixed."""
        if id(data) not in self.constants.values():
            self._held.append(data)
            type_name(data.dtype)
            name = self.new_name(base)
            self.constants[name] = id(data)
        name = next(n for n, i in self.constants.items() if i == id(data))
        return stored(name, data.shape, data.dtype, frozen="it is a constant of the program", label=name)

    def view(self, array, shape):
        """A whole container with another shape."""
        _, _, _, root = self.declared.get(array.whole, (None, None, None, None))
        name = self.declare(array.whole, array.dtype, shape, view=root or array.whole)
        return stored(name, shape, array.dtype, frozen=array.frozen, label=array.label)

    def root(self, name):
        return (self.declared[name][3] if name in self.declared else None) or name

    # -- extents --------------------------------------------------------------------------------
    def same(self, a, b):
        """The extent of two that an operation needs to be equal: a fact that calls check, or ShapeError."""
        if a == b:
            return a
        if not isinstance(a - b, Index) or str(a) in self.open and str(b) in self.open:
            raise _core.ShapeError(f"extents {a} and {b} do not fit")
        if self.is_open(a - b):
            raise NeedsValue(f"whether extents {a} and {b} are equal")
        if any(mentions(v, r[0]) for v in (a, b) for s in self.scopes for r in s.ranges):
            raise _core.ShapeError(f"extents {a} and {b} may differ in an iteration; write slices of the same length")
        if (a, b) not in self.equal:
            self.equal.append((a, b))
        return b if isinstance(a, Index) else a

    def at_least(self, extent, number):
        """Notes that an extent is a number at least: calls check it, where it is a symbol and a number."""
        for name in names(extent) & set(self.symbols) if self.least else ():
            rest = extent - atom(name)
            if isinstance(rest, int):
                self.symbols[name] = max(self.symbols[name], number - rest)

    def is_open(self, index):
        """Could a caller's extents say its number?"""
        return bool(names(index)) and names(index) - {"min", "max"} <= self.open

    # -- statements -----------------------------------------------------------------------------
    @property
    def is_nested(self):
        return len(self.scopes) > 1

    def line(self, text):
        self.scopes[-1].lines.append(text)

    @contextlib.contextmanager
    def nest(self, kind, ranges):
        scope = Scope(kind, ranges)
        self.scopes.append(scope)
        try:
            yield scope
        finally:
            self.scopes.pop()
        self.scopes[-1].lines += scope.text()

    def is_roomy(self, array):
        """Does its container have room for more, as for an extent that a loop around changes?"""
        return array.whole in self.declared and list(array.shape) != self.declared[array.whole][2]

    def call(self, graph, containers, symbols):
        """The contents of a graph come here, with {its containers: names of ours} and {its symbols: values}."""
        if not self.is_nested:
            self.line((graph, containers, symbols))
            return
        for name, value in symbols.items():
            if str(value) != name:
                raise _core.UnsupportedOpError(f"a call of {graph.name!r} inside a loop, with a size {name!r} that is {value} here; "
                                               "give it sizes that are numbers, or write a program instead of an SDFG")
        changed = {n for state in range(graph.n_states) for entry in graph.nodes(state) for n in entry[4]}
        left = [reference(c) for n, c in containers.items() if n in changed]
        right = [reference(c) for n, c in containers.items()]
        self.calls.append((graph, containers))
        self.line(f'{", ".join(left)} = "dcml.program"::Call_{len(self.calls)}@1({", ".join(right)})')

    def statement(self, name, index, value, wcr="", guarded=True):
        guard = f" if {' && '.join(self.conditions)}" if guarded and self.conditions else ""
        line = f"{element(name, index)} {wcr}= {value}{guard}"
        if wcr and not guard:
            self.combined[line] = (name, index, value, wcr)
        self.line(line)

    def joined(self, name, index, part, wcr):
        """Text of an element combined with a part that was computed apart."""
        dtype = part.dtype
        texts = [element(name, index), element(*part.place([]))]
        return ufuncs.combine(_PRIMITIVE[wcr], texts, (dtype, dtype), dtype)

    def loops(self, shape, kind="map"):
        """(context of maps over a shape, index)."""
        params = self.parameters(len(shape))
        ranges = [(n, 0, e, 1) for n, e in zip(params, shape) if e != 1]
        index = [0 if e == 1 else atom(n) for n, e in zip(params, shape)]
        return (self.nest(kind, ranges) if ranges else contextlib.nullcontext()), index

    def clashes(self, target, value):
        """Does writing the target element by element overwrite what later elements of the value read?"""
        index = [0 if e == 1 else probe(d) for d, e in enumerate(target.shape)]
        name, at = target.place(index)
        for other, read in [leaf(aligned(value, index)) for leaf in value.leaves]:
            if self.root(other) != self.root(name) or (other == name and read == at):
                continue
            apart = other == name and read is not None and any(_apart(a, b) for a, b in zip(at, read))
            if not apart:
                return True
        return False

    def store(self, target, value, wcr="", guarded=True):
        """target[...] = value, converted and broadcast as NumPy does.  Raises ShapeError where it does not fit."""
        while value.ndim > target.ndim and value.shape[0] == 1:
            value = _dropped(value)
        if value.ndim > target.ndim:
            raise _core.ShapeError(f"a value with shape {list(value.shape)} does not fit into {list(target.shape)}")
        for have, want in zip(value.shape[::-1], target.shape[::-1]):
            if have != 1:
                self.same(want, have)
        if value.dtype.kind == "c" and target.dtype.kind not in "cb":
            raise _core.DTypeError(f"complex numbers do not fit into {target.dtype.name}; write their part, value.real")
        plain = not wcr and not (guarded and self.conditions)
        if value.write and plain and not self.is_nested and target.whole and target.dtype == value.dtype \
                and target.shape == value.shape and not self.clashes(target, value):
            value.write(target)
            return
        if value.write or self.clashes(target, value):
            value = self.materialize(value)
        kind = "scatter" if target.gathers or wcr else "map"
        loops, index = self.loops(target.shape, kind)
        with loops:
            name, at = target.place(index)
            text = converted(value.text(aligned(value, index)), value.dtype, np.bool_) if target.dtype == bool \
                else value.text(aligned(value, index))
            self.statement(name, at, text, wcr, guarded)

    def materialize(self, value, base="t"):
        """The value in an array of its own."""
        target = self.temp(value.dtype, value.shape, base)
        if value.write:
            value.write(target)
        else:
            loops, index = self.loops(value.shape)
            with loops:
                name, at = target.place(index)
                self.statement(name, at, value.text(index), guarded=False)
        target.weak = value.weak
        return target

    def settle(self, value, base="t"):
        """Arrays are computed now; scalars stay expressions until they grow long."""
        if value.is_stored and not value.gathers:
            return value
        if value.ndim == 0 and not value.write and len(value.text([])) < _LIMIT:
            return value
        return self.materialize(value, base)

    def reduce(self, value, axes, wcr, dtype, base="t"):
        """Elements combined along axes, in an array without these."""
        kept = [e for d, e in enumerate(value.shape) if d not in axes]
        target = self.temp(dtype, kept, base)
        outer, index = self.loops(kept)
        with outer:
            inner, along = self.loops([value.shape[d] for d in axes], "reduce")
            if isinstance(inner, contextlib.nullcontext):
                inner = self.nest("reduce", [(self.parameter("r"), 0, 1, 1)])
            with inner:
                rest, moving = iter(index), iter(along)
                full = [next(moving) if d in axes else next(rest) for d in range(value.ndim)]
                name, at = target.place(index)
                self.statement(name, at, converted(value.text(full), value.dtype, dtype), wcr, guarded=False)
        return target

    # -- the result -----------------------------------------------------------------------------
    def graph(self, name):
        """The graph of all that was emitted."""
        graph = _core.Graph(name)
        held = {id(o): o for o in self._held}
        for constant, key in self.constants.items():
            made = graph.add_const(constant, np.ascontiguousarray(held[key]).reshape(held[key].shape))
            if made != constant:
                raise _core.ModelError(f"the name {constant!r} is taken")
        lines = [f"symbol {s} >= {least}" for s, least in self.symbols.items()]
        order = [*self.inputs, *[n for n in self.declared if n not in self.inputs]]
        for container in order:
            role, kind, shape, view = self.declared[container]
            at = f" view {reference(view)}" if view else ""
            lines.append(f"{role} {reference(container)}: {kind}[{', '.join(map(str, shape))}]{at}")
        lines += [f"equal [{a}, {b}]" for a, b in self.equal]
        for line in [*self.scopes[0].lines, None]:
            if isinstance(line, str):
                lines.append(line)
                continue
            graph.append(0, self.rendered("\n".join(lines)))
            lines = []
            if line is not None:
                inner, containers, symbols = line
                graph.inline(0, inner, {n: (self.renamed.get(c, c), None) for n, c in containers.items()},
                             {name: str(value) for name, value in symbols.items()})
        calls = {f"Call_{k}": call for k, call in enumerate(self.calls, 1)}
        for node, op, domain, *_ in graph.operators(True) if calls else ():
            if domain == "dcml.program":
                inner, containers = calls[op]
                graph.replace(node, inner, {n: self.renamed.get(c, c) for n, c in containers.items()})
        for output in self.outputs:
            graph.mark_output(self.renamed.get(output, output))
        return graph

    def rendered(self, text):
        def name_of(match):
            name = self.renamed.get(match.group(1), match.group(1))
            return f'"{name}"' if name in _RESERVED else name
        return re.sub("\x01(.*?)\x02", name_of, text)

    # -- trying ---------------------------------------------------------------------------------
    def mark(self):
        """A state to come back to."""
        return ([list(s.lines) for s in self.scopes], dict(self.declared), list(self.equal), dict(self.constants),
                list(self.conditions))

    def back(self, mark):
        for scope, lines in zip(self.scopes, mark[0]):
            scope.lines[:] = lines
        self.declared, self.equal, self.constants, self.conditions = dict(mark[1]), list(mark[2]), dict(mark[3]), list(mark[4])


def probe(dimension):
    """An index that stands for any iteration."""
    return atom(f"{_PROBE}{dimension}")


def _apart(a, b):
    """Indices that differ by a number, whatever the iteration, and do not move."""
    if isinstance(a, Index) or isinstance(b, Index):
        moving = any(name.startswith(_PROBE) for v in (a, b) for name in names(v))
        return not moving and not isinstance(a - b, Index) and a != b
    return a != b


def _dropped(value):
    return Array(value.shape[1:], value.dtype, text=lambda index: value.text([0, *index]),
                 leaves=[lambda index, leaf=leaf: leaf([0, *index]) for leaf in value.leaves], write=None, weak=value.weak)

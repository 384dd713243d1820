"""Programs: a graph as stages of segments and host operators.

The one idea: which operators a segment holds is settled by the values that arrive.  An operator that receives a
string or a sequence leaves the segment for the host; where the core says that it must know a value before it can
compute shapes, the segment is cut behind that value.  Cuts are remembered for each kind of arguments.
Must not know: what an operator computes.
"""
import sys
from typing import NamedTuple

import numpy as np

from ... import _core
from . import values as v
from .budget import Budget, bytes_of
from .compiled import Compiled
from .table import FALLBACKS, HOST, VARIANTS

_REMEMBERED = 256  # shapes of a segment


class Operator(NamedTuple):
    """A node of a graph; ``known``: the core has a row for it."""
    id: int
    op: str
    domain: str
    opset: int
    where: str
    inputs: tuple
    outputs: tuple
    known: bool
    variant: str = ""

    @property
    def key(self):
        """The name in the table."""
        return self.domain, self.variant or self.op


def _operators(graph):
    return [_variant(graph, Operator(*fields)) for fields in graph.operators()]


def _variant(graph, node):
    """The node itself, or as the variant that its attributes make it."""
    name, applies = VARIANTS.get(node.key, ("", None))
    return node._replace(variant=name, known=False) if applies and applies(graph.attributes(node.id)) else node


def is_needed(graph):
    """True if the core cannot run the graph alone: it has host operators or values."""
    return bool(graph.host_values) or any(n.key in HOST and not n.known for n in _operators(graph))


class Program:
    """A graph made callable on host values.

    graph: a core Graph of operators.  options: of the core Functions of its segments.
    Inputs are the graph's inputs, then its weights; called with a value for each, it returns the tuple of outputs.
    Raises UnsupportedOpError for an operator that neither the core nor the host has.
    """

    def __init__(self, graph, options=None):
        self.graph = graph
        self.inputs, self.outputs = [*graph.inputs, *graph.params], list(graph.outputs)
        nodes = _operators(graph)
        for node in nodes:
            if not node.known and node.key not in HOST:
                name = ".".join(filter(None, node.key))
                raise _core.UnsupportedOpError(f"{node.where}: operator {name} of version {node.opset} is "
                                               "not supported")
        self._steps = [Whole(graph, options)] if _has_code(graph) else _steps(graph, nodes, options)
        self._constants = {}
        self._dead = [[] for _ in self._steps]  # by step: values that nobody reads any more
        for name, k in {name: k for k, step in enumerate(self._steps) for name in step.reads}.items():
            if name not in self.outputs:
                self._dead[k].append(name)

    def run(self, given, keep_all=False, budget=None):
        """{name: value} of the outputs at least, from (name, value) of the inputs; budget: of the call around."""
        env = _Values(self.graph, self._constants)
        env.update(given)
        env.budget = budget or Budget(self, tuple(env.values()))
        for step, dead in zip(self._steps, self._dead):
            step.run(env)
            for name in () if keep_all else dead:
                env.pop(name, None)
        return env

    def __call__(self, *given, budget=None):
        env = self.run(zip(self.inputs, given), budget=budget)
        return tuple(env[name] for name in self.outputs)

    def constant_bytes(self):
        """Bytes of the constants of the graph and of its bodies."""
        constants = [self.graph.data(name) for name in self.graph.arrays if self.graph.info(name)[2] == "const"]
        bodies = [body for step in self._steps if isinstance(step, HostNode) for body, _ in step.bodies.values()]
        return sum(map(bytes_of, constants)) + sum(body.constant_bytes() for body in bodies)

    def _parts(self):
        """Segments and host operators in order, with those of the bodies of the latter."""
        queue = list(self._steps)
        while queue:
            step = queue.pop(0)
            yield step
            if isinstance(step, Whole):
                continue
            if isinstance(step, Segment):
                queue[:0] = [part for plan in step._plans.values() if isinstance(plan, list) for part in plan]
            else:
                queue[:0] = [part for body, _ in step.bodies.values() for part in body._parts()]

    def functions(self):
        """The core functions of all segments that have run."""
        segments = [part for part in self._parts() if isinstance(part, Segment)]
        plans = [plan for segment in segments for plan in segment._plans.values()]
        return [function for plan in plans if isinstance(plan, Compiled) for function in plan.functions()]

    def host_operators(self):
        """What the operators are called that Python functions compute."""
        return [part.node.where for part in self._parts() if isinstance(part, HostNode)]

    def passes_on(self, output, value):
        """Whether an output is always that input, or always true."""
        makers = {name: n for n in _operators(self.graph) for name in n.outputs if name}
        name = self.outputs[output]
        while name in makers and makers[name].key == ("", "Identity"):
            name = makers[name].inputs[0]
        if name in self.inputs or name in makers:
            return name == self.inputs[value]
        return self.graph.info(name)[2] == "const" and bool(np.all(self.graph.data(name)))


class _Values(dict):
    """Values by name; a constant that leaves the segments is fetched from the graph when it is first read."""

    def __init__(self, graph, constants):
        super().__init__()
        self._graph, self._constants = graph, constants

    def __missing__(self, name):
        if name not in self._constants:
            if self._graph.info(name)[2] != "const":
                raise _core.ModelError(f"value {name!r} is not computed")
            self._constants[name] = self._graph.data(name)
        return self._constants[name]


def _has_code(graph):
    """Does a graph compute by other nodes than operators, as programs do?"""
    return any(node[1] != "library" for k in range(graph.n_states) for node in graph.nodes(k))


class Whole:
    """A graph that is not of operators alone, as one function of the core."""

    def __init__(self, graph, options):
        self._graph, self._options, self._functions = graph, options or {}, {}
        self.reads = [*graph.inputs, *graph.params]

    def run(self, env):
        torch = sys.modules.get("torch")
        learn = torch is not None and torch.is_grad_enabled()
        given = [env[name] for name in self.reads]
        wrt = tuple([name for name, value in zip(self.reads, given) if learn and getattr(value, "requires_grad", False)])
        if wrt not in self._functions:
            self._functions[wrt] = _core.Function(self._graph, wrt=list(wrt) or None, **self._options)
        env.update(zip(self._graph.outputs, self._functions[wrt](*[v.to_torch(value) if wrt else value for value in given])))


def _steps(graph, nodes, options):
    """Alternately all ordinary operators that can run by then, as one segment, and the host operators behind them."""
    stages, made, readers = [], {}, {}  # made: name -> (stage, on the host?); readers: name -> stages, None for others
    host_nodes = {n.id: HostNode(graph, n, *HOST[n.key], options) for n in nodes if n.key in HOST}
    for name in graph.outputs:
        readers.setdefault(name, set()).add(None)
    for node in nodes:
        on_host = node.id in host_nodes
        read = [*node.inputs, *host_nodes[node.id].captured] if on_host else node.inputs
        at = [made[name] for name in read if name in made]
        stage = max((s + (by_host and not on_host) for s, by_host in at), default=0)
        while len(stages) <= stage:
            stages.append(([], []))
        stages[stage][on_host].append(node)
        made.update((name, (stage, on_host)) for name in node.outputs if name)
        for name in read:
            readers.setdefault(name, set()).add(None if on_host else stage)
    steps = []
    for k, (ordinary, on_host) in enumerate(stages):
        outputs = [o for n in ordinary for o in n.outputs if readers.get(o, set()) - {k}]
        steps += [Segment(graph, ordinary, outputs, options)] if outputs else []
        steps += [host_nodes[node.id] for node in on_host]
    return steps


class HostNode:
    """An operator that a Python function computes (see table.py); raises what is wrong with the node's name."""

    def __init__(self, graph, node, takes, function, options):
        self.graph, self.node, self.takes, self.function = graph, node, takes.split(), function
        self._options = options
        self.opset, self.n_outputs, self.op = node.opset, len(node.outputs), node.op
        self.attributes = graph.attributes(node.id)
        self.bodies = {name: (Program(value[0], options), value[1]) for name, value in self.attributes.items()
                       if isinstance(value, tuple)}
        self.memory = {}  # what the function keeps between calls
        self.captured = [name for _, names in self.bodies.values() for name in names]
        self.captured += getattr(function, "captured", lambda node: [])(self)
        self.reads = [*filter(None, node.inputs), *self.captured]
        self.estimate = getattr(function, "estimate", None)  # bytes that it is about to take, where that can be much

    def __getitem__(self, attribute):
        """An attribute that the operator must have."""
        if attribute not in self.attributes:
            raise _core.ModelError(f"attribute {attribute!r} is missing")
        return self.attributes[attribute]

    def get(self, attribute, default=None):
        return self.attributes.get(attribute, default)

    def body(self, attribute, n_given):
        """See _Call, which is there for nodes that have subgraphs."""
        self[attribute]
        raise _core.ModelError(f"attribute {attribute!r} is no graph")

    def part(self, given, output):
        """The operators between given values and an output, as a program of its own, made once.

        Its inputs are the given values and what else the output depends on.
        """
        if output not in self.memory:
            producers = {name: n for n in _operators(self.graph) for name in n.outputs}
            needed, seen, queue = [], set(given), [output]
            for name in queue:  # grows as producers are found
                if name in seen or not name or name not in producers:
                    continue
                seen.update(producers[name].outputs)
                needed.append(producers[name].id)
                queue += producers[name].inputs
            known = {*given, *(name for n in producers.values() if n.id in needed for name in n.outputs)}
            free = [name for name in queue if name and name not in known and self.graph.info(name)[2] != "const"]
            inputs = [(name, self.graph.info(name)[0] or 1, None) for name in dict.fromkeys((*given, *free))]
            self.memory[output] = Program(self.graph.segment(sorted(needed), inputs, [output]), self._options)
        return self.memory[output]

    def _check(self, given):
        """That the values are of the kinds that the table says."""
        rest = self.takes[-1] if self.takes and self.takes[-1].endswith("*") else None
        takes = [t for t in self.takes if t != rest]
        if len(given) > len(takes) and not rest:
            raise _core.ModelError(f"expected at most {len(takes)} inputs, got {len(given)}")
        for k in range(max(len(given), len(takes))):
            kinds, value = takes[k] if k < len(takes) else rest, given[k] if k < len(given) else None
            if value is None and (kinds[-1] == "?" or kinds[0] == "a" and k < len(given)):
                continue
            if not v.is_kind(value, kinds[0]):
                raise _core.DTypeError(f"input {k} is {v.describe(value)}, expected {v.KINDS[kinds[0]]}")

    def run(self, env):
        try:
            given = [env[name] if name else None for name in self.node.inputs]
            self._check(given)
            if self.estimate:
                env.budget.check(self.estimate(self, *given))
            results = self.function(_Call(self, env) if self.captured or self.bodies else self, *given)
        except _core.Error as error:
            raise type(error)(f"{self.node.where}: {error}") from None
        except MemoryError as error:
            raise _core.Error(f"{self.node.where}: out of memory") from error
        except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise _core.ValueError_(f"{self.node.where}: {error}") from error
        if len(results) < self.n_outputs:
            raise _core.ModelError(f"{self.node.where}: it gives {len(results)} results, "
                                   f"but the model expects {self.n_outputs}")
        env.update((name, value) for name, value in zip(self.node.outputs, results) if name)


class _Call:
    """A node that reads more than its inputs, as its function sees it: with the outer values of this call."""

    def __init__(self, node, env):
        self._node, self._env = node, env

    def __getattr__(self, name):
        return getattr(self._node, name)

    def __getitem__(self, attribute):
        return self._node[attribute]

    def outer(self, name):
        return self._env[name]

    def body(self, attribute, n_given):
        """The subgraph of an attribute as a function of n_given values; ModelError if it takes another number."""
        if attribute not in self._node.bodies:
            return self._node.body(attribute, n_given)
        program, names = self._node.bodies[attribute]
        if len(program.inputs) != n_given + len(names):
            raise _core.ModelError(f"the graph of {attribute!r} has {len(program.inputs) - len(names)} inputs, "
                                   f"expected {n_given}")
        return _Body(program, [self._env[name] for name in names], self._env.budget)

    @property
    def budget(self):
        return self._env.budget


class _Body:
    def __init__(self, program, captured, budget):
        self._program, self._captured, self._budget = program, captured, budget
        self.n_outputs = len(program.outputs)

    def __call__(self, *given):
        return self._program(*given, *self._captured, budget=self._budget)

    def passes_on(self, output, value):
        return self._program.passes_on(output, value)

    def input_rank(self, k):
        """The declared number of dimensions of an input."""
        return len(self._program.graph.info(self._program.inputs[k])[1])

    def output_type(self, k):
        """The declared (element type, extents) of an output; extents are integers or symbol names."""
        return self._program.graph.info(self._program.outputs[k])[:2]


# ---- segments ----

class Segment:
    """Operators that the core runs as one function, unless the values that arrive split them."""

    def __init__(self, graph, nodes, outputs, options):
        self.graph, self.nodes, self.outputs, self._options = graph, nodes, outputs, options
        self.made = {name for n in nodes for name in n.outputs if name}
        read = dict.fromkeys(name for n in nodes for name in n.inputs if name and name not in self.made)
        host_values = set(graph.host_values)  # constant strings come in as values too
        self.inputs = [name for name in read if name in host_values or graph.info(name)[2] != "const"]
        self.reads = self.inputs
        self._plans = {}  # kinds of the inputs -> Compiled or list of steps
        self._again = {}  # types and shapes of NumPy arrays -> the core function that has run with such

    def run(self, env):
        given = [env[name] for name in self.inputs]
        arrays = tuple([(x.dtype, x.shape) if type(x) is np.ndarray else None for x in given])
        function = self._again.get(arrays)
        if function is None:
            self._run_anew(env, given, arrays)
            return
        try:
            results = function(*given)
        except _core.Error:
            self._run_anew(env, given, arrays)
            return
        env.update(zip(self.outputs, results))

    def _run_anew(self, env, given, arrays):
        torch = sys.modules.get("torch")
        learn = torch is not None and torch.is_grad_enabled()
        key = tuple(_kind(value, learn) for value in given)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = self._plan(key, env)
        if isinstance(plan, list):
            for step in plan:
                step.run(env)
            return
        try:
            results = plan(*given)
        except _core.Error as error:
            value = getattr(error, "needs_value", None)
            if value not in self.made:
                raise
            plan = self._plans[key] = self._cut(lambda node: value in node.inputs)
            for step in plan:
                step.run(env)
            return
        env.update(zip(self.outputs, results))
        if None not in arrays and len(self._again) < _REMEMBERED:
            self._again[arrays] = plan.function_for(given)

    def _plan(self, key, env):
        on_host = {name for name, kind in zip(self.inputs, key) if not kind[0]}
        if on_host:
            return self._cut(lambda node: not on_host.isdisjoint(node.inputs), on_host)
        inputs = [(name, kind[0]) for name, kind in zip(self.inputs, key)]
        wrt = [name for name, kind in zip(self.inputs, key) if kind[2]]
        return Compiled(self.graph, [n.id for n in self.nodes], inputs, self.outputs, wrt, self._options)

    def _cut(self, is_first, on_host=None):
        """Steps: what depends on no first node, the first nodes on the host (if they read its values), and the rest."""
        late, early, first, rest = set(), [], [], []
        for node in self.nodes:
            if not late.isdisjoint(node.inputs):
                rest.append(node)
            elif is_first(node):
                (first if on_host else rest).append(node)
            else:
                early.append(node)
                continue
            late.update(filter(None, node.outputs))
        moved = self._moved(early, rest, {name for node in first or filter(is_first, rest) for name in node.inputs})
        moved_or_rest = moved.union(node.id for node in rest)
        rest = [node for node in self.nodes if node.id in moved_or_rest]
        early = [node for node in early if node.id not in moved]
        steps = [self._part(early, first + rest), *map(self._on_host, first), self._part(rest, ())]
        return [step for step in steps if step]

    def _moved(self, early, rest, wanted):
        """Nodes that only the rest reads, and that read nothing that it would not get anyway: with their readers, what they make
        may never be in memory."""
        kept = wanted.union(self.outputs)
        handed = kept.union(*(node.inputs for node in rest))
        moved, before = {node.id for node in early}, None
        while len(moved) != before:
            before, stay, there = len(moved), set(kept), set(handed)
            for node in reversed(early):
                if node.id not in moved or not stay.isdisjoint(node.outputs):
                    moved.discard(node.id)
                    stay.update(node.inputs)
            for node in early:
                if node.id in moved and there.issuperset(self.made.intersection(node.inputs)):
                    there.update(node.outputs)
                else:
                    moved.discard(node.id)
        return moved

    def _part(self, nodes, readers):
        wanted = set(self.outputs).union(*(n.inputs for n in readers))
        outputs = [o for n in nodes for o in n.outputs if o in wanted]
        return Segment(self.graph, nodes, outputs, self._options) if outputs else None

    def _on_host(self, node):
        if node.key not in FALLBACKS:
            raise _core.DTypeError(f"{node.where}: {node.op} of strings, sequences, optionals or maps is not defined")
        alone = Segment(self.graph, [node], [o for o in node.outputs if o], self._options)
        return HostNode(self.graph, node, "a? a*", FALLBACKS[node.key](node, alone), self._options)


def _kind(value, learn):
    """(element type or 0, rank, requires a gradient): what a plan is made for."""
    code = v.code_of(value)
    return (code, value.ndim, learn and getattr(value, "requires_grad", False)) if code else (0, type(value), False)

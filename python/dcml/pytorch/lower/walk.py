"""From an exported program to a Graph: one walk over it through the table of rows.

The one idea: the program is functional and has qualified names for all weights, so the walk only asks the table for
each overload.  What has no row is decomposed by torch itself, exactly those overloads and no others, and the walk
starts again.
Must not know: how a program is exported, or how a graph is differentiated, compiled or called.
"""
import contextlib
import importlib
import logging
import math
import operator
import os
import re
import warnings
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from ... import _core
from ..aten import ONNX_DTYPE, OPSET, TABLE, Builder, Decline, decompositions, extent, served
from ..aten.builder import Pair, dims, meta
from ..call.results import Complex, Fixed, Freed, Number, Passed, real_form
from .reach import freed, output_shapes, outputs, placeholders, reached

_FOLDER = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")
_ROUNDS = 16  # decomposition may uncover overloads that need another round


@dataclass
class Capture:
    """A captured module.

    graph: inputs are the tensor leaves of (args, kwargs) in order, then ``seed`` if random numbers are drawn;
        params are parameters and buffers under their qualified names; outputs are user outputs, then new
        buffer values, then new values of inputs that the module changes in place.
    inputs: position among the leaves of (args, kwargs) of each graph input.
    params: (qualified name, is a buffer) of each graph param, tied weights once.
    outputs: one entry per leaf of the result: graph output index, or what has a method ``of``: Fixed, Passed, ...
    mutated: (graph output index, qualified name) of each buffer or parameter that a call changes.
    changed_inputs: (graph output index, position among the leaves, the history it gets: that of the graph output
        (True), none (False), the one it had (None)) of inputs changed in place.
    transients: (value name, graph output index) of intermediate values, if they were asked for.
    checks: (graph output index, message) of conditions that must be true after each call.
    reads: names of attributes of modules that were read; other values of them may mean another graph.
    ties: pairs of qualified names of one parameter, which is one only as long as both name the same tensor.
    refused_dynamic: the module did not allow symbolic extents.
    asks: forward asked which inputs require a gradient, or whether gradients are on, or what known_of tells else.
    asks_attributes: forward asked for attributes that users set on arguments.
    ran: the functions that ran, with what they may have read of Python.
    reach: names of graph inputs and params on whose tape each graph output lies; None: of all.
    flagged: (position among the leaves, flag) of inputs on which forward calls requires_grad_().
    freed: (extents, type, device) of leaves that a call adds to those of (args, kwargs): results on which forward calls
        requires_grad_(), by an input that only their gradients reach.
    counted: extents in the graph depend on values.
    outside: tensors by the names of graph params that no module of the tree has, such as those of globals.
    """
    graph: Any
    out_spec: Any
    inputs: list
    params: list
    outputs: list
    mutated: list
    changed_inputs: list
    seed: bool
    guard: "Guard"
    transients: list = field(default_factory=list)
    checks: list = field(default_factory=list)
    reads: set = field(default_factory=set)
    ties: list = field(default_factory=list)
    refused_dynamic: bool = False
    asks: bool = False
    asks_attributes: bool = False
    ran: Any = None
    reach: list = None
    outside: dict = field(default_factory=dict)
    flagged: list = field(default_factory=list)
    freed: list = field(default_factory=list)
    counted: bool = False


class Guard:
    """Says whether a capture serves other inputs: extents, symbols with their ranges, and torch's own conditions."""

    def __init__(self, program, conditions, shapes):
        """conditions: of torch.export as text, of decompositions as (expression in symbols, value)."""
        self.shapes = shapes  # per graph input: list of int | symbol name
        ranges = {str(k): (int(v.lower), _upper(v)) for k, v in program.range_constraints.items()}
        self._ranges = {s: ranges.get(s, (2, None)) for shape in shapes for s in shape if isinstance(s, str)}
        self._conditions = [(compile(text, "<guard>", "eval"), text) for text in conditions if isinstance(text, str)]
        # by a number that values tell, torch decides only what always holds
        self._decisions = [one for one in conditions if isinstance(one, tuple) and one[0].free_symbols
                           and not free_unbacked_symbols(one[0])]
        unknown = [e for e, _ in self._decisions if not {str(s) for s in e.free_symbols} <= self._ranges.keys()]
        if unknown:
            raise _core.UnsupportedOpError(f"decomposing the program decides by {unknown[0]}, which no extent tells")
        self.symbolic = bool(self._ranges)

    def __str__(self):
        return ", ".join(f"[{', '.join(map(str, shape))}]" for shape in self.shapes)

    def refusal(self, tensors, arguments):
        """None if the capture serves these inputs, else the reason as text.

        tensors: graph inputs in order; arguments(): the call's arguments by parameter name.
        """
        values = {}
        for k, (tensor, shape) in enumerate(zip(tensors, self.shapes)):
            if len(shape) != tensor.dim():
                return f"tensor {k} has {tensor.dim()} dimensions, not {len(shape)}"
            for axis, (have, want) in enumerate(zip(tensor.shape, shape)):
                if (values.setdefault(want, have) if isinstance(want, str) else want) != have:
                    return f"extent {axis} of tensor {k} is {have}, not {values.get(want, want)}"
        for symbol, value in values.items():
            low, high = self._ranges[symbol]
            if value < low or high is not None and value > high:
                return f"extent {symbol} is {value}, outside [{low}, {'' if high is None else high}]"
        for expression, decided in self._decisions:
            if expression.subs({s: values[str(s)] for s in expression.free_symbols}) != decided:
                return f"not {expression} == {decided}"
        if not self._conditions:
            return None
        scope = {"L": arguments(), "torch": torch, "math": math}
        for code, text in self._conditions:
            try:
                met = eval(code, scope)  # noqa: S307  (text made by torch.export)
            except Exception:  # a guard that cannot be evaluated is not met
                met = False
            if not met:
                return f"not {text}"
        return None


def _upper(interval):
    with contextlib.suppress(Exception):
        bound = int(interval.upper)
        return bound if bound < 2**62 else None
    return None


@contextlib.contextmanager
def quiet():
    """torch.export logs what it will also raise."""
    loggers = [logging.getLogger(n) for n in ("torch.fx.experimental.symbolic_shapes", "torch._export",
                                              "torch._subclasses.fake_tensor", "torch._dynamo")]
    levels = [logger.level for logger in loggers]
    trace = importlib.import_module("torch.export._trace")
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            # torch about its own use of its own functions, and about nn.RNN's list of its weights
            warnings.simplefilter("ignore", FutureWarning)
            warnings.filterwarnings("ignore", "The tensor attribute.*assigned during export")
            warnings.filterwarnings("ignore", "A model attribute .* requires gradient")  # see Capture.outside
            trace.print = lambda *args, **kwargs: None  # of what it had traced before an error
            yield
    finally:
        vars(trace).pop("print", None)
        for logger, level in zip(loggers, levels):
            logger.setLevel(level)


def lower(program, conditions, start, result):
    """A finished walk; start(program) makes one; result: an entry's.  Overloads that no row serves are decomposed on the
    way, which may add to the conditions."""
    tried, shapes, freed_now = set(), output_shapes(program), _freed(program, result)
    reach = reached(program, {value: ("freed", k) for value, k in freed_now.items()})
    for _ in range(_ROUNDS):
        unknown = {n.target: n for n in _calls(program.graph_module) if not served(n)}
        reasons = {target: "it has no row" for target in unknown}
        if not unknown:
            walk = start(program)
            walk.output_shapes, walk.output_reach, walk.freed_outputs = shapes, reach, sorted(freed_now.values())
            try:
                walk.run()
                return walk
            except _Declined as declined:
                node = declined.node
                unknown, reasons = {node.target: node}, {node.target: declined.reason}
        table = {}
        for target, node in unknown.items():
            function = None if target in tried else _decomposition(target)
            found = decompositions(node) or ({} if function is None else {target: function})
            if not found:
                raise unsupported(node, reasons[target])
            table.update(found)
        tried.update(unknown)
        with quiet():
            program = decomposed(program, table, conditions)
    raise _core.UnsupportedOpError(f"decomposing {', '.join(map(str, tried))} does not end")


def _freed(program, result):
    """{value: position} of the results that are leaves in eager mode, though forward computes them."""
    given = dict(zip(program.graph_signature.user_inputs, result.requires))

    def is_flagged(spec):
        if not result.tape:
            return False
        if spec.kind.name == "USER_INPUT":
            return given.get(spec.arg.name)
        return spec.kind.name == "PARAMETER" and program.state_dict[spec.target].requires_grad
    return freed(program, result.freed, is_flagged) if result.freed else {}


def decomposed(program, table, conditions):
    """The program with overloads replaced.  After the export torch notes nowhere what it decides by symbolic extents, so
    (expression, value) of each decision goes into ``conditions``; raises UnsupportedOpError where one cannot be seen."""
    scope = _scope(program)
    if scope is None:
        return program.run_decompositions(table)
    met, before = [], scope.counter["ignored_backward_guard"]
    with _told_of_decisions(scope, met):
        result = program.run_decompositions(table)
    if scope.counter["ignored_backward_guard"] - before > len(met):
        raise _core.UnsupportedOpError("decomposing the program decides by symbolic extents")
    conditions += [one for one in met if one not in conditions]
    return result


@contextlib.contextmanager
def _told_of_decisions(scope, met):
    original = getattr(scope, "_check_frozen", None)
    if original is None:
        yield
        return

    def tell(expression, value):
        met.append((expression, value))
        return original(expression, value)
    scope._check_frozen = tell
    try:
        yield
    finally:
        del scope._check_frozen


def _scope(program):
    """torch's record of symbols and conditions, if the program has symbols."""
    for node in program.graph.nodes:
        value = node.meta.get("val")
        for number in value.shape if isinstance(value, torch.Tensor) else (value,):
            if isinstance(number, torch.SymInt):
                return number.node.shape_env
    return None


def _calls(graph_module):
    """The calls of a graph and of the branches inside it."""
    for node in graph_module.graph.nodes:
        if node.op == "call_function":
            yield node
        elif node.op == "get_attr" and isinstance(inner := getattr(graph_module, node.target), torch.fx.GraphModule):
            yield from _calls(inner)


class _Declined(Exception):
    """No row serves a node."""

    def __init__(self, node, reason):
        super().__init__(node, reason)
        self.node, self.reason = node, reason


def _decomposition(target):
    """torch's decomposition of one overload, or None."""
    if not isinstance(target, torch._ops.OpOverload):
        return None
    try:
        return torch.export.default_decompositions()[target]
    except KeyError:
        return torch._decomp.decomposition_table.get(target)


def unsupported(node, reason):
    """The error for a node that cannot be captured."""
    by_values = torch.Tag.dynamic_output_shape in getattr(node.target, "tags", ())
    out = WAYS_OUT if by_values else ""
    return _core.UnsupportedOpError(f"{node.target} cannot be captured: {reason}{out}{_source(node)}")


WAYS_OUT = ': torch.compile(model, backend="dcml") splits the graph there, or move the line out of forward'


def _source(node):
    """' (file:line: code)' of the user's line that made a node."""
    trace = node.meta.get("stack_trace") or ""
    frames = re.findall(r'File "([^"]+)", line (\d+), in \S+\n\s*(.*)', trace)
    frames = [f for f in frames if not f[0].startswith(_FOLDER)]
    own = [f for f in frames if "/torch/" not in f[0].replace("\\", "/")] or frames
    return f" ({own[-1][0]}:{own[-1][1]}: {own[-1][2].strip()})" if own else ""


class Walk:
    """One pass over an exported program, appending to a fresh graph."""

    def __init__(self, module, entry, found, name, cumulative, program):
        self.module, self.program = module, program
        self.conditions, self.literals, self.silent = found
        self.fixed, self.out_spec = entry.result.leaves, entry.result.shape
        self.flagged, self.n_leaves = entry.result.flagged, len(entry.result.requires)
        self.graph = _core.Graph(name, OPSET)
        self.b = Builder(self.graph, self._inline)
        self.inputs, self.params, self.shapes, self.itself = [], [], [], {}
        self.leaf_of = {}    # user input name -> leaf position
        self.freed = {}      # fx node -> (graph input, position among these) of a result that is a leaf
        self.freed_kinds = []
        self.outputs, self.mutated, self.changed = [], [], []
        self.position = {}   # value name -> graph output index
        self.cumulative = cumulative
        self.outside = {}    # graph param -> tensor that no module of the tree has
        self.reach = {}      # graph output index -> names of graph inputs and params

    def run(self):
        """Raises _Declined for a node that no row serves."""
        self._placeholders()
        self._freed_inputs()
        self._nodes(self.program.graph_module)
        self._collect_outputs()

    def _nodes(self, graph_module):
        for node in graph_module.graph.nodes:
            if node.op == "get_attr":
                self.b.env[node] = getattr(graph_module, node.target)
                if not isinstance(self.b.env[node], torch.fx.GraphModule):
                    raise unsupported(node, "a tensor that is no parameter, buffer or constant")
            if node.op != "call_function":
                continue
            if isinstance(made := node.meta.get("val"), torch.Tensor) and made.device.type not in ("cpu", "cuda"):
                raise unsupported(node, f"its result lies on device {str(made.device)!r}")
            self.b.enter(node)
            try:
                self.b.env[node] = TABLE[str(node.target)](self.b, node, *node.args, **node.kwargs)
                if node in self.freed:
                    self.b.env[node] = self._continued(node)
            except Decline as reason:
                raise _Declined(node, str(reason)) from None
            except _core.Error as error:
                error.args = (f"{error.args[0] if error.args else ''}, in {node.target}{_source(node)}",)
                raise

    def _inline(self, graph_module, values):
        """Names of a branch's results; values stand for its placeholders."""
        nodes = list(graph_module.graph.nodes)
        self.b.env.update(zip([node for node in nodes if node.op == "placeholder"], values))
        self._nodes(graph_module)
        results = nodes[-1].args[0]
        return [None if r is None else self.b(r) for r in (results if isinstance(results, (list, tuple)) else [results])]

    # inputs
    def _placeholders(self):
        signature = self.program.graph_signature
        user = list(signature.user_inputs)
        self.leaf_of = {n: i for i, n in enumerate(user) if isinstance(n, str)}
        first_name = {}  # identity of a parameter -> its value, so that tied weights are one
        for node, spec in placeholders(self.program).items():
            kind, target = spec.kind.name, spec.target
            if kind == "USER_INPUT":
                self._user_input(node)
                continue
            if kind not in ("PARAMETER", "BUFFER", "CONSTANT_TENSOR"):
                raise _core.UnsupportedOpError(f"input {node.name!r} of kind {kind} cannot be captured")
            tensor = self._tensor(target)
            if tensor is None:
                self.b.env[node] = self._constant(node, target)
                continue
            self.b.fqn[node] = target
            if id(tensor) not in first_name:
                if not node.users and target not in signature.buffers_to_mutate.values():
                    continue
                name = self.graph.add_param(target, *_form(tensor, target))
                first_name[id(tensor)] = Pair(self.b, whole=name) if tensor.is_complex() else name
                self.params.append((target, kind != "PARAMETER"))
            self.b.env[node] = first_name[id(tensor)]
        by_fqn = {fqn: self.b.env[node] for node, fqn in self.b.fqn.items() if node in self.b.env}
        self.b.cumulative = {k: by_fqn[v] for k, v in self.cumulative.items() if v in by_fqn}

    def _user_input(self, node):
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            if isinstance(value, (torch.SymInt, torch.SymFloat)):
                raise _core.UnsupportedOpError(f"number argument {node.name!r} was made symbolic by torch.export")
            return
        shape = _shape(value)
        name = self.graph.add_input(node.name, *_form(value, node.name))
        self.b.env[node] = Pair(self.b, whole=name) if value.is_complex() else name
        for axis, size in enumerate(shape):
            if isinstance(size, str):
                self.b.symbols.setdefault(size, (name, axis))
        self.inputs.append(self.leaf_of[node.name])
        self.shapes.append(shape)

    def _freed_inputs(self):
        """An input for each value that a result on which requires_grad_() was called has: for its gradient alone."""
        values = [v for spec, v in outputs(self.program) if spec.kind.name == "USER_OUTPUT"]
        for k in self.freed_outputs:
            if values[k] not in self.freed:
                if meta(values[k]).is_complex():
                    raise _core.UnsupportedOpError("requires_grad_() on a complex result")
                dtype, shape = _form(meta(values[k]), values[k].name)
                if {s for s in shape if isinstance(s, str)} - {s for one in self.shapes for s in one}:
                    raise _core.UnsupportedOpError(f"requires_grad_() on a result of extents {shape}, which no input has")
                self.freed[values[k]] = self.graph.add_input(f"{values[k].name}_leaf", dtype, shape), len(self.freed)
                self.freed_kinds.append((shape, meta(values[k]).dtype, meta(values[k]).device))

    def _continued(self, node):
        """The value of a node, whose gradient goes to its own input."""
        value = self.b.stop(self.b(node))
        gradient = self.b.op("Cotangent", value, domain="dcml")
        given = self.b.op("GiveGradient", value, self.freed[node][0], gradient, domain="dcml")
        return self.b.op("TakeGradient", given, gradient, domain="dcml")

    def _tensor(self, target):
        """The tensor of that name, whose values may change between calls; None for a constant."""
        found, lifted = _attribute(self.module, target), self.program.constants.get(target)
        if found and isinstance(found[0], torch.Tensor) and (lifted is None or lifted is found[0]):
            return found[0]
        if lifted is None or target in self.literals:
            return None
        return self.outside.setdefault(target, lifted)

    def _constant(self, node, target):
        tensor = self.program.constants.get(target)
        if tensor is None:
            tensor = self.program.state_dict[target]
        tensor = tensor.detach().cpu()
        if tensor.dtype == torch.bfloat16:
            return self.b.const(tensor.float().numpy(), torch.bfloat16)
        plain = real_form(tensor)
        _onnx_dtype(plain.dtype, target)
        name = self.graph.add_const(target or node.name, np.ascontiguousarray(plain.numpy()).reshape(plain.shape))
        return Pair(self.b, whole=name) if tensor.is_complex() else name

    # outputs
    def _collect_outputs(self):
        mutated, changed, reach_of_changed = dict(self.b.mutated), [], []
        self.itself = {value: self.leaf_of[spec.target] for spec, value in outputs(self.program)
                       if spec.kind.name == "USER_INPUT_MUTATION"}  # after the call, an input holds this value
        for (spec, value), shape, reach in zip(outputs(self.program), self.output_shapes, self.output_reach):
            kind = spec.kind.name
            if kind == "USER_OUTPUT":
                self.outputs.append(self._user_output(value, shape))
                self._note_reach(self.outputs[-1], reach)
            elif kind in ("BUFFER_MUTATION", "PARAMETER_MUTATION"):
                mutated[spec.target] = self.b.real_form(value)
            elif kind == "USER_INPUT_MUTATION":
                changed.append((self.b.real_form(value), self.leaf_of[spec.target], spec.target in self.silent))
                reach_of_changed.append(reach)
            else:
                raise _core.UnsupportedOpError(f"{kind.lower().replace('_', ' ')} of {spec.target!r} inside forward")
        # torch passes no gradient through statistics either
        self.mutated = [(self._output(self.b.stop(name)), fqn) for fqn, name in mutated.items()]
        self.changed = [(self._output(name), leaf, None if silent else name not in self.b.stopped)
                        for name, leaf, silent in changed]
        for (index, _, _), reach in zip(self.changed, reach_of_changed):
            self._note_reach(index, reach)
        self.checks = [(self._output(name), message) for name, message in self.b.checks]

    def _note_reach(self, output, places):
        index = output.index if isinstance(output, Complex) else output
        if type(index) is int:
            held = [self.b.env.get(node) for k, node in enumerate(placeholders(self.program)) if k in places]
            names = [value.whole() if isinstance(value, Pair) else value for value in held]
            values = [v for spec, v in outputs(self.program) if spec.kind.name == "USER_OUTPUT"]
            names += [self.freed[values[k]][0] for k in self.freed_outputs if ("freed", k) in places]
            self.reach.setdefault(index, set()).update([n for n in names if isinstance(n, str)])

    def _user_output(self, value, shape):
        if not isinstance(value, torch.fx.Node):
            return Fixed(self.fixed[len(self.outputs)] if value is None else value)
        if value.op == "placeholder" and value.name in self.leaf_of:
            return Passed(self.leaf_of[value.name])
        if value in self.freed:
            return Freed(self._output(self.b.stop(self.b(value))), self.n_leaves + self.freed[value][1])
        if value in self.itself:
            return Passed(self.itself[value])
        if isinstance(self.b.env[value], Pair):
            return Complex(self._output(self.b.real_form(value)))
        if not isinstance(value.meta["val"], torch.Tensor):
            return Number(self._output(self.b(value)))
        have = shape if shape is None else dims(value)
        if have is not None and len(shape) != len(have):  # some decompositions of torch forget an axis or leave one
            if any(not isinstance(d, int) for d in [*shape, *have]) or math.prod(shape) != math.prod(have):
                raise unsupported(value, f"its decomposition has extents {have} instead of {shape}")
            return self._output(self.b.reshape(self.b(value), shape))
        return self._output(self.b(value))

    def _output(self, name):
        """Index of a graph output; a value that is no node's result, or is already one, is not marked twice."""
        if name in self.position:
            return self.position[name]
        if self.graph.info(name)[2] in ("input", "param", "const"):
            marked = self.b.op("Identity", name)
        else:
            marked = name
        self.graph.mark_output(marked)
        self.position[name] = len(self.position)
        return self.position[name]

    def _transients(self):
        values = [v for held in self.b.env.values() for v in (held if isinstance(held, (list, tuple)) else [held])]
        names = dict.fromkeys(v for v in values if isinstance(v, str) and self.graph.info(v)[2] == "temp")
        return [(name, self._output(name)) for name in names]

    def _reach(self, transients):
        everything = {*self.graph.inputs, *self.graph.params}
        reach = {**dict.fromkeys([index for _, index in transients], everything), **self.reach}
        return [frozenset(reach.get(index, ())) for index in range(len(self.position))]

    def result(self, debug):
        guard = Guard(self.program, self.conditions, self.shapes)
        transients = self._transients() if debug else []
        return Capture(graph=self.graph, out_spec=self.out_spec,
                       inputs=[*self.inputs, *range(self.n_leaves, self.n_leaves + len(self.freed))],
                       params=self.params, outputs=self.outputs, mutated=self.mutated,
                       changed_inputs=self.changed, seed=self.b.seed is not None, guard=guard,
                       transients=transients, checks=self.checks, ties=_ties(self.module, self.params),
                       outside=self.outside, reach=self._reach(transients), flagged=self.flagged,
                       counted=self.b.counted, freed=self.freed_kinds)


def _ties(module, params):
    """[(name of a graph param, another name of the same tensor)]."""
    names = {}
    for name, tensor in chain(module.named_parameters(remove_duplicate=False),
                              module.named_buffers(remove_duplicate=False)):
        names.setdefault(id(tensor), []).append(name)
    groups = {group[0]: group for group in names.values() if len(group) > 1}
    return [(name, other) for name, _ in params for group in groups.values() if name in group
            for other in group if other != name]


def _attribute(module, path):
    """(owner's value,) at a qualified name, or () if the module has none there."""
    try:
        return (operator.attrgetter(path)(module),)
    except AttributeError:
        return ()


def _shape(tensor):
    return [d if isinstance(d, int) else str(d) for d in map(extent, tensor.shape)]


def _form(tensor, name):
    """(ONNX dtype, extents) of a tensor in a graph."""
    real, pair = (tensor.dtype.to_real(), [2]) if tensor.is_complex() else (tensor.dtype, [])
    return _onnx_dtype(real, name), [*_shape(tensor), *pair]


def _onnx_dtype(dtype, name):
    if dtype not in ONNX_DTYPE:
        raise _core.DTypeError(f"tensor {name!r} has type {dtype}, which the compiler does not know")
    return ONNX_DTYPE[dtype]

"""From a functional program to a Graph: one walk over it through the table of rows.

The one idea: the program has qualified names for all weights, so the walk only asks the table for each overload.
Must not know: how a module is traced, or how a graph is differentiated, compiled or called.
"""
import math
import operator
from itertools import chain

import numpy as np
import torch

from ... import _core
from ..aten import ONNX_DTYPE, OPSET, TABLE, Builder, Decline, extent
from ..aten.builder import Pair, dims, meta
from ..call.results import Complex, Fixed, Freed, Number, Ordered, Passed, View, real_form
from ..guard.extents import Guard
from ..record.stand_in import memory_of
from .captured import Capture
from .tape import outputs, placeholders
from .refusal import Declined, located, source, unsupported
from .views import view_of


class Lowering:
    """One pass over a program, appending to a fresh graph."""

    def __init__(self, module, entry, found, name, cumulative, program):
        self.module, self.program = module, program
        self.conditions, self.literals, self.silent = found
        self.fixed, self.out_spec = entry.result.leaves, entry.result.shape
        self.flagged, self.n_leaves = entry.result.flagged, len(entry.result.requires)
        self.named, self.sets, self.altered = entry.result.named, entry.result.sets, entry.result.altered
        self.graph = _core.Graph(name, OPSET)
        self.b = Builder(self.graph, self._inline, source)
        self.inputs, self.params, self.shapes = [], [], []
        self.leaf_of = {}    # user input name -> leaf position
        self.freed = {}      # fx node -> (graph input, position among these) of a result that is a leaf
        self.freed_kinds = []
        self.outputs, self.mutated, self.changed, self.devices = [], [], [], []
        self.position = {}   # value name -> graph output index
        self.orders = {}     # graph output index -> order in which its axes lie
        self.memory = {}     # value name -> storage of the result that it was first
        self.cumulative = cumulative
        self.outside = {}    # graph param -> tensor that no module of the tree has
        self.own = []        # names of parameters and buffers that are results, or that these look at
        self.holder = {}     # value -> placeholder of the tensor that holds it after the call
        self.tape = {}      # graph output index -> names of graph inputs and params

    def run(self):
        """Raises Declined for a node that no row serves."""
        self._placeholders()
        self._freed_inputs()
        self.b.kept = {value: f"{spec.target}.{'new' if _is_graded(value) else 'after'}" for spec, value in outputs(self.program)
                       if spec.kind.name == "BUFFER_MUTATION" and isinstance(value, torch.fx.Node)}
        self._nodes(self.program.region)
        self._collect_outputs()

    def _nodes(self, region):
        for node in region.graph.nodes:
            if node.op == "get_attr":
                self.b.env[node] = region.inner[node.target]
            if node.op != "call_function":
                continue
            if isinstance(made := node.meta.get("val"), torch.Tensor) and made.device.type not in ("cpu", "cuda"):
                raise unsupported(node, f"its result lies on device {str(made.device)!r}")
            self.b.enter(node)
            try:
                self.b.env[node] = TABLE[str(node.target)](self.b, node, *node.args, **node.kwargs)
                if node in self.freed:
                    self.b.env[node] = self._continued(node)
                self.b.learn(node)
            except Decline as reason:
                raise Declined(node, str(reason)) from None
            except _core.Error as error:
                error.args = (f"{error.args[0] if error.args else ''}, in {node.target}{source(node)}",)
                raise
            except Exception as error:  # of torch, which says nothing of lines once a module is traced
                raise located(error, node)

    def _inline(self, region, values):
        """Names of a branch's results; values stand for its placeholders."""
        nodes = list(region.graph.nodes)
        self.b.env.update(zip([node for node in nodes if node.op == "placeholder"], values))
        self._nodes(region)
        results = nodes[-1].args[0]
        return [None if r is None else self.b(r) for r in (results if isinstance(results, (list, tuple)) else [results])]

    # inputs
    def _placeholders(self):
        user = self.program.user_inputs
        changed = {spec.target for spec in self.program.outputs if spec.kind.name == "BUFFER_MUTATION"}
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
                if not node.users and target not in changed:
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
            tensor = self.program.tensors[target]
        tensor = tensor.detach().cpu()
        if tensor.dtype == torch.bfloat16:
            return self.b.const(tensor.float().numpy(), torch.bfloat16)
        real = real_form(tensor)
        _onnx_dtype(real.dtype, target)
        name = self.graph.add_const(target or node.name, np.ascontiguousarray(real.numpy()).reshape(real.shape))
        return Pair(self.b, whole=name) if tensor.is_complex() else name

    # outputs
    def _collect_outputs(self):
        mutated, changed, tapes_of_changed, counts = dict(self.b.mutated), [], [], set()
        self._find_holders(mutated)
        described = zip(outputs(self.program), self.output_shapes, self.output_orders, self.output_tapes)
        for (spec, value), shape, order, tape in described:
            kind = spec.kind.name
            if kind == "USER_OUTPUT":
                self.outputs.append(self._user_output(value, shape, order))
                self._note_tape(self.outputs[-1], tape)
                computed = type(self.outputs[-1]) in (int, Complex, Ordered)
                self.devices.append(value.meta["val"].device if computed else None)
            elif kind in ("BUFFER_MUTATION", "PARAMETER_MUTATION"):
                mutated[spec.target] = self.b.real_form(value)
                counts.update(() if _is_graded(value) else [spec.target])
            elif kind == "USER_INPUT_MUTATION":
                changed.append((self.b.real_form(value), self.leaf_of[spec.target], spec.target in self.silent))
                tapes_of_changed.append(tape)
            else:
                raise _core.UnsupportedOpError(f"{kind.lower().replace('_', ' ')} of {spec.target!r} inside forward")
        for fqn in mutated:
            self._tensor(fqn)  # of which forward may have read nothing
        # torch passes no gradient through statistics either
        self.mutated = [(self._output(name if fqn in counts else self._stopped(name, fqn)), fqn) for fqn, name in mutated.items()]
        self.changed = [(self._output(name), leaf, None if silent else name not in self.b.stopped)
                        for name, leaf, silent in changed]
        for (index, _, _), tape in zip(self.changed, tapes_of_changed):
            self._note_tape(index, tape)
        self.checks = [(self._output(name), *rest) for name, *rest in self.b.checks]

    def _find_holders(self, mutated):
        """Which values are those of an argument, parameter or buffer after the call; mutated: names of these that rows change."""
        places = {(spec.kind.name == "USER_INPUT", spec.target): node for node, spec in placeholders(self.program).items()}
        changed = {places[False, name] for name in mutated}
        for (spec, value), tape in zip(outputs(self.program), self.output_tapes):
            kind = spec.kind.name
            if kind.endswith("_MUTATION"):
                node = places[kind == "USER_INPUT_MUTATION", spec.target]
                changed.add(node)
                if kind == "USER_INPUT_MUTATION" or not self._may_have_gradient(tape):  # of what a buffer holds there is none
                    self.holder[value] = node
        own = {node for node in places.values() if node.name in self.leaf_of or node in self.b.fqn}
        self.holder.update([(node, node) for node in own - changed])

    def _may_have_gradient(self, places):
        """Do arguments or tensors that require a gradient lie on a tape?"""
        given = list(placeholders(self.program).items())
        return any(spec.kind.name == "USER_INPUT" or node in self.b.fqn and self._tensor(spec.target).requires_grad
                   for node, spec in map(given.__getitem__, places))

    def _note_tape(self, output, places):
        index = output.index if isinstance(output, (Complex, Ordered)) else output
        if type(index) is int:
            held = [self.b.env.get(node) for k, node in enumerate(placeholders(self.program)) if k in places]
            names = [value.whole() if isinstance(value, Pair) else value for value in held]
            values = [v for spec, v in outputs(self.program) if spec.kind.name == "USER_OUTPUT"]
            names += [self.freed[values[k]][0] for k in self.freed_outputs if ("freed", k) in places]
            self.tape.setdefault(index, set()).update([n for n in names if isinstance(n, str)])

    def _user_output(self, value, shape, order):
        if not isinstance(value, torch.fx.Node):
            return Fixed(self.fixed[len(self.outputs)] if value is None else value)
        if value.op == "placeholder" and value.name in self.leaf_of:
            return Passed(self._leaf(value))
        if value in self.freed:
            return Freed(self._output(self.b.stop(self.b(value))), self.n_leaves + self.freed[value][1])
        if value in self.holder:
            return Passed(self._leaf(self.holder[value]))
        if found := view_of(value, self.holder):
            return View(tuple([self._leaf(self.holder[node]) for node in found[0]]), found[1])
        if isinstance(self.b.env[value], Pair):
            return Complex(self._output(self.b.real_form(value)))
        if not isinstance(value.meta["val"], torch.Tensor):
            return Number(self._output(self.b(value)))
        have = shape if shape is None else dims(value)
        if have is not None and len(shape) != len(have):  # some decompositions of torch forget an axis or leave one
            if any(not isinstance(d, int) for d in [*shape, *have]) or math.prod(shape) != math.prod(have):
                raise unsupported(value, f"its decomposition has extents {have} instead of {shape}")
            return self._output(self.b.reshape(self.b(value), shape))
        index = self._output(self._apart(value))
        return index if order is None or self.orders.setdefault(index, order) != order else Ordered(index, order)

    def _leaf(self, node):
        """Position among a call's leaves of an argument, or of a parameter or buffer, which it adds to them."""
        if node not in self.b.fqn:
            return self.leaf_of[node.name]
        if (name := self.b.fqn[node]) not in self.own:
            self.own.append(name)
        return self.n_leaves + len(self.freed) + self.own.index(name)

    def _apart(self, value):
        """The name of a result; results that the module gives as tensors apart (a value and its clone) share no memory."""
        name, memory = self.b(value), memory_of(value.meta["val"])
        return name if self.memory.setdefault(name, memory) == memory else self.b.op("Identity", name)

    def _stopped(self, name, fqn):
        self.b.call_after(f"{fqn}.after")
        return self.b.stop(name)

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

    def _tape(self, transients):
        everything = {*self.graph.inputs, *self.graph.params}
        tape = {**dict.fromkeys([index for _, index in transients], everything), **self.tape}
        return [frozenset(tape.get(index, ())) for index in range(len(self.position))]

    def _orders(self, transients):
        """Of the outputs that only results are which lie in that order."""
        plain = {o for o in self.outputs if type(o) is int} | {o.index for o in self.outputs if isinstance(o, (Complex, Number, Freed))}
        plain |= {index for index, *_ in [*self.mutated, *self.changed, *self.checks]} | {index for _, index in transients}
        self.outputs = [o.index if isinstance(o, Ordered) and o.index in plain else o for o in self.outputs]
        return {o.index: o.order for o in self.outputs if isinstance(o, Ordered)}

    def result(self, debug):
        guard = Guard(self.program, self.conditions, self.shapes)
        transients = self._transients() if debug else []
        orders = self._orders(transients)  # which takes some back
        return Capture(graph=self.graph, out_spec=self.out_spec,
                       inputs=[*self.inputs, *range(self.n_leaves, self.n_leaves + len(self.freed))],
                       params=self.params, outputs=self.outputs, mutated=self.mutated,
                       changed_inputs=self.changed, seed=self.b.seed is not None, guard=guard,
                       transients=transients, checks=self.checks, ties=_ties(self.module, self.params),
                       outside=self.outside, tape=self._tape(transients), flagged=self.flagged, named=self.named, sets=self.sets,
                       altered=self.altered, orders=orders, own=self.own, counted=self.b.counted, freed=self.freed_kinds,
                       devices=self.devices)


def _ties(module, params):
    """[(name of a graph param, another name of the same tensor)]."""
    names = {}
    for name, tensor in chain(module.named_parameters(remove_duplicate=False),
                              module.named_buffers(remove_duplicate=False)):
        names.setdefault(id(tensor), []).append(name)
    groups = {group[0]: group for group in names.values() if len(group) > 1}
    return [(name, other) for name, _ in params for group in groups.values() if name in group
            for other in group if other != name]


def _is_graded(node):
    """Is a value of a type that has gradients?"""
    value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    return not isinstance(value, torch.Tensor) or value.is_floating_point() or value.is_complex()


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

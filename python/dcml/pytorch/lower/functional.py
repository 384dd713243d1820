"""From a traced module to a program of values: no operator changes a tensor, none looks at another's memory.

The one idea: the one pass of tracing has noted every call with what it gives, so tensors need not be computed again, not even
as fakes: a walk keeps, for each tensor, whose memory it looks at through which views; a change becomes a new value of that
memory, and who looks at it later looks at the new value.
Must not know: rows of operators, the core, or how a module is traced.
"""
import contextlib
import operator

import torch
from torch.utils import _pytree as pytree

from ..record.stand_in import StandIn
from .expand import autocast_key, casts, expanded, fake, is_composite, is_opaque, result_of, settled, shares_memory
from .in_place import counterpart, effect, undone
from .program import Kind, Program, Region, Spec
from .refusal import located, unsupported

aten = torch.ops.aten
_DROPOUTS = {aten.dropout.default, aten.feature_dropout.default, aten.alpha_dropout.default, aten.feature_alpha_dropout.default}
_GRAD = torch.ops.higher_order.wrap_with_set_grad_enabled
_AUTOCAST = torch.ops.higher_order.wrap_with_autocast
_NEW = {"PARAMETER": Kind.PARAMETER_MUTATION, "BUFFER": Kind.BUFFER_MUTATION, "CONSTANT_TENSOR": Kind.BUFFER_MUTATION,
        "USER_INPUT": Kind.USER_INPUT_MUTATION}


def functional(traced, literals, worlds=None):
    """The Program of what was traced: no node changes a tensor, and regions without gradient or with torch.autocast
    are calls like others.  literals: names of constants that forward makes itself; worlds: a Program's."""
    signature = traced.graph_signature
    inputs = [Spec(spec.kind, spec.arg.name if spec.kind.name == "USER_INPUT" else spec.target) for spec in signature.input_specs]
    rewriter = _Rewriter(dict(traced.constants), literals, {}, worlds)
    region, changed = rewriter.whole(traced.graph_module.graph, _inner_of(traced.graph_module))
    outputs = [Spec(_NEW[inputs[k].kind.name], inputs[k].target) for k in changed]
    outputs += [Spec(spec.kind, spec.target) for spec in signature.output_specs]
    return Program(region, inputs + rewriter.lifted, outputs, list(signature.user_inputs), rewriter.constants, literals,
                   traced.state_dict, traced.range_constraints, worlds)


def decomposed(program, table):
    """The program with calls of overloads in ``table`` as the calls that its functions make."""
    rewriter = _Rewriter(program.constants, program.literals, table, program.worlds)
    region, _ = rewriter.whole(program.graph, program.region.inner.__getitem__)
    return Program(region, program.inputs + rewriter.lifted, program.outputs, program.user_inputs, program.constants,
                   program.literals, program.tensors, program.ranges, program.worlds)


def _inner_of(module):
    """Finds branches and constants of a Region or GraphModule by name."""
    return module.inner.__getitem__ if isinstance(module, Region) else module.get_submodule


def _is_check(node):
    """Is it there for what it does, not for what it gives?"""
    return node.op == "call_function" and (node.is_impure() or node.meta.get("val") is None)


class _Memory:
    """What tensors look at: the fx node of its value, and how often it was changed."""
    __slots__ = ("node", "version")

    def __init__(self, node):
        self.node, self.version = node, 0


class _Tensor:
    """A tensor of the program: views of a memory, one after the other; ``node`` has its value as long as the version is that of
    the memory."""
    __slots__ = ("memory", "steps", "node", "version")

    def __init__(self, memory, steps, node):
        self.memory, self.steps, self.node, self.version = memory, steps, node, memory.version


class _Step:
    """A view: overload(base, *args, **kwargs), which gives ``value``; of several results that at ``part``."""
    __slots__ = ("overload", "args", "kwargs", "value", "part")

    def __init__(self, overload, args, kwargs, value, part=None):
        self.overload, self.args, self.kwargs, self.value, self.part = overload, args, kwargs, value, part


class _Rewriter:
    """Makes a graph of another one.  table: {overload: function that computes it by others}; constants and literals get those
    that these functions make; ``lifted``: Specs of placeholders for them."""

    def __init__(self, constants, literals, table, worlds):
        self.constants, self.literals, self.table, self.worlds = constants, literals, table, worlds
        self.lifted = []
        self.graph, self.inner = torch.fx.Graph(), {}
        self.held = {}      # node of the other graph -> _Tensor, node or number that stands for it, or list of such
        self.first = None   # the last placeholder
        self.made_for = None  # the node of the traced graph that calls are made for

    # -- graphs ---------------------------------------------------------------------------------
    def whole(self, graph, inner_of):
        """(Region, positions of placeholders that are changed); its results are new values of these, then the graph's own."""
        memories = []
        for node in graph.find_nodes(op="placeholder"):
            self.first = new = self.graph.placeholder(node.name)
            new.name, new.meta = node.name, dict(node.meta)  # fx itself gives no names of builtins
            self.held[node] = self._fresh(new)
            memories.append((new, self.held[node]))
        results = self._walk(graph, inner_of)
        held = [(k, new, tensor.memory) for k, (new, tensor) in enumerate(memories) if isinstance(tensor, _Tensor)]
        changed = [(k, memory) for k, new, memory in held if memory.node is not new]
        self.graph.output(tuple([memory.node for _, memory in changed] + [self._value(r) for r in results]))
        self._eliminate_dead()
        return Region(self.graph, self.inner), [k for k, _ in changed]

    def _walk(self, graph, inner_of):
        """Appends the nodes of a graph whose placeholders are held; gives what is held for its results."""
        for node in graph.nodes:
            if node.op == "get_attr":
                self.held[node] = self._attribute(node, inner_of(node.target))
            elif node.op == "call_function":
                self.held[node] = self._node(node, inner_of)
            elif node.op == "output":
                return [self._held(one) for one in node.args[0]]
        raise AssertionError("a graph without results")

    def _attribute(self, node, found):
        """A branch, which is rewritten where it is used; or a constant that a decomposition makes."""
        if isinstance(found, (torch.fx.GraphModule, Region)):
            return found
        if self.made_for is None or not isinstance(found, torch.Tensor):
            raise unsupported(node, "a tensor that is no parameter, buffer or constant")
        name = f"made_{len(self.constants)}"
        while name in self.constants:
            name += "_"
        with self.graph.inserting_after(self.first):
            self.first = new = self.graph.placeholder(name)
        new.meta["val"] = StandIn.of(found, self.worlds) if self.worlds is not None else self._faked(found)
        self.constants[name] = found.detach()
        self.literals.add(name)
        self.lifted.append(Spec(Kind.CONSTANT_TENSOR, name))
        return self._fresh(new)

    def _faked(self, tensor):
        mode = next(one.meta["val"].fake_mode for one in self.graph.nodes if hasattr(one.meta.get("val"), "fake_mode"))
        return mode.from_tensor(tensor, static_shapes=True)

    def _branch(self, found):
        """The name of a branch in the new graph."""
        graph, inner_of = found.graph, _inner_of(found)
        rewriter = _Rewriter(self.constants, self.literals, self.table, self.worlds)
        region, changed = rewriter.whole(graph, inner_of)
        if changed or rewriter.lifted:
            raise unsupported(self.made_for, "a branch that changes a tensor or makes a constant")
        name = f"branch_{len(self.inner)}"
        self.inner[name] = region
        return self.graph.get_attr(name)

    def _eliminate_dead(self):
        for node in reversed(self.graph.nodes):
            if not node.users and node.op not in ("placeholder", "output") and not _is_check(node):
                self.graph.erase_node(node)

    # -- values ---------------------------------------------------------------------------------
    def _fresh(self, node):
        """A tensor that has its memory for itself; what is no tensor stands for itself."""
        return _Tensor(_Memory(node), (), node) if isinstance(node.meta.get("val"), torch.Tensor) else node

    def _held(self, value):
        return self.held[value] if isinstance(value, torch.fx.Node) else value

    def _value(self, held):
        """The node, number or list of such that something held now has."""
        if isinstance(held, (torch.fx.GraphModule, Region)):
            return self._branch(held)
        if isinstance(held, list):
            return [self._value(one) for one in held]
        if not isinstance(held, _Tensor):
            return held
        if held.version != held.memory.version:
            node = held.memory.node
            for step in held.steps:
                node = self._look(step, node)
            held.node, held.version = node, held.memory.version
        return held.node

    def _now(self, arguments):
        """Arguments of a node of the other graph as those of one of the new graph."""
        return torch.fx.map_arg(arguments, lambda node: self._value(self.held[node]))

    def _call(self, overload, args, kwargs, like, name=None):
        """A new node; like: what it gives."""
        new = self.graph.create_node("call_function", overload, tuple(args), dict(kwargs), name=name)
        about = {} if self.made_for is None else self.made_for.meta  # None: results that are looked at last
        new.meta = {key: about[key] for key in ("stack_trace", "nn_module_stack") if key in about}
        new.meta["val"] = like if like is None else pytree.tree_map_only(torch.Tensor, settled, like)
        return new

    def _look(self, step, base):
        node = self._call(step.overload, (base, *step.args), step.kwargs, step.value)
        return node if step.part is None else self._call(operator.getitem, (node, step.part), {}, step.value[step.part])

    # -- nodes ----------------------------------------------------------------------------------
    def _node(self, node, inner_of):
        outermost, self.made_for = self.made_for, self.made_for or node
        try:
            with contextlib.ExitStack() as modes:
                for device, dtype, enabled in node.meta.get("autocast", ()):
                    modes.enter_context(torch.autocast(device, dtype, enabled))
                overload = isinstance(node.target, torch._ops.OpOverload)
                return self._overload(node) if overload else self._other(node, inner_of)
        except Exception as error:
            raise located(error, node)
        finally:
            self.made_for = outermost

    def _other(self, node, inner_of):
        """Regions, control flow, arithmetic of extents, and results of several."""
        if node.target is operator.getitem and isinstance(self._held(node.args[0]), list):
            return self._held(node.args[0])[node.args[1]]
        if node.target is _GRAD:  # what it means for gradients was noted before
            return self._region(self._held(node.args[1]), node.args[2:])
        if node.target is _AUTOCAST:
            device, dtype, enabled, cached, inside, *operands = node.args
            with torch.autocast(device, dtype, enabled, cached):
                return self._region(self._held(inside), operands)
        if node.meta.get("val") is None and not node.users:  # modes that a decomposition enters and leaves
            return None
        return self._copied(node.target, self._now(node.args), self._now(node.kwargs), node.meta.get("val"), node.name)

    def _region(self, module, operands):
        outermost, self.made_for = self.made_for, None
        try:
            return self._inline(module, operands)
        finally:
            self.made_for = outermost

    def _inline(self, module, operands):
        """What is held for the results of a graph on operands of the other graph, or on what is held for such."""
        for place, operand in zip(module.graph.find_nodes(op="placeholder"), operands):
            self.held[place] = self._held(operand)
        return self._walk(module.graph, _inner_of(module))

    def _copied(self, target, args, kwargs, like, name=None):
        new = self._call(target, args, kwargs, like, name)
        if not isinstance(like, (list, tuple)):
            return self._fresh(new)
        return new

    def _overload(self, node):
        overload, key = node.target, self._autocast(node)
        if key is not None and casts(overload, key):
            return self._expanded(node, lambda *args, **kwargs: overload._op_dk(key, *args, **kwargs), torch._C._DisableAutocast())
        if overload in self.table:
            if (made := expanded(self.table[overload], node.args, node.kwargs, self.worlds, settled)) is not None:
                return self._placed(node, *made)
        if overload in _DROPOUTS and not (self._argument(node, "train") and self._argument(node, "p")):
            return self._held(node.args[0])  # the tensor itself, where torch's own code for a trace makes a copy
        if overload is aten.batch_norm.default:
            return self._batch_norm(node)
        if is_opaque(overload) or is_composite(overload) and shares_memory(node):
            return self._expanded(node, overload.decompose)
        if key is not None and is_composite(overload):
            made = expanded(overload.decompose, node.args, node.kwargs, self.worlds)[0]
            if any(isinstance(n.target, torch._ops.OpOverload) and casts(n.target, key) for n in made.graph.nodes):
                return self._expanded(node, overload.decompose)
        seen = effect(overload)
        if seen is not None and seen.written:
            return self._change(node, seen.written)
        if seen is not None and isinstance(self._argument(node, seen.viewed), _Tensor):
            return self._view(node)
        return self._copied(overload, self._now(node.args), self._now(node.kwargs), node.meta.get("val"), node.name)

    def _autocast(self, node):
        value = next((v for v in map(fake, node.all_input_nodes) if isinstance(v, torch.Tensor)), None)
        return None if value is None else autocast_key(value.device.type)

    def _expanded(self, node, function, surroundings=contextlib.nullcontext()):
        """What is held for a call, which becomes those that a function makes of it."""
        made = expanded(function, node.args, node.kwargs, self.worlds)
        with surroundings:
            return self._placed(node, *made)

    def _placed(self, node, made, operands):
        results = self._inline(made, operands)
        return results if isinstance(node.meta.get("val"), (list, tuple)) else results[0]

    def _batch_norm(self, node):
        """Its schema does not say that it changes the statistics."""
        x, weight, bias, mean, variance, train, momentum, eps = map(self._held, node.args[:8])
        given, legit = [self._value(v) for v in (x, weight, bias)], aten._native_batch_norm_legit
        if mean is None:
            made = self._call(legit.no_stats, (*given, train, momentum, eps), {}, None, node.name)
        else:
            statistics = [self._value(v) for v in (mean, variance)]
            if train:
                made = self._call(aten._native_batch_norm_legit_functional.default, (*given, *statistics, True, momentum, eps), {}, None,
                                  node.name)
            else:
                made = self._call(aten._native_batch_norm_legit_no_training.default, (*given, *statistics, momentum, eps), {}, None,
                                  node.name)
        if mean is None:
            made.meta["val"] = result_of(made.target, made.args, made.kwargs)
        else:  # what is saved for the gradient, which nobody reads here, is as long as the statistics
            made.meta["val"] = (node.meta["val"], *map(fake, statistics), *(map(fake, statistics) if train else ()))
        if mean is not None and train:
            self._write(mean, self._part(made, 3))
            self._write(variance, self._part(made, 4))
        return self._fresh(self._part(made, 0))

    def _part(self, node, k):
        return self._call(operator.getitem, (node, k), {}, node.meta["val"][k])

    # -- views and changes ----------------------------------------------------------------------
    def _argument(self, node, name):
        """What is held for the argument of that name."""
        for k, argument in enumerate(node.target._schema.arguments):
            if argument.name == name:
                return self._held(node.args[k] if k < len(node.args) else node.kwargs.get(name))
        return None

    def _view(self, node, overload=None, like=None):
        """A view of the first argument."""
        base, like = self._held(node.args[0]), node.meta["val"] if like is None else like
        value, args, kwargs = self._value(base), self._now(node.args[1:]), self._now(node.kwargs)
        overload = overload or node.target
        made = self._call(overload, (value, *args), kwargs, like, node.name)
        if not isinstance(like, (list, tuple)):
            return _Tensor(base.memory, (*base.steps, _Step(overload, args, kwargs, like)), made)
        steps = [_Step(overload, args, kwargs, like, part) for part in range(len(like))]
        return [_Tensor(base.memory, (*base.steps, step), self._part(made, step.part)) for step in steps]

    def _change(self, node, written):
        """An operator that writes; what is held for its result is what it writes to."""
        targets = [self._argument(node, name) for name in written]
        found = counterpart(node.target)
        if found is None or not all(isinstance(target, _Tensor) for target in targets):
            raise unsupported(node, "it changes its arguments in a way that has no form without changes")
        overload, first = found
        if (seen := effect(overload)) is not None and seen.viewed is not None:  # of extents alone, as unsqueeze_
            return self._rebind(node, overload)
        args, kwargs = self._now(node.args), self._now(_named(node, overload))
        made = self._call(overload, args, kwargs, None, node.name.rstrip("_"))
        made.meta["val"] = result_of(overload, args, kwargs)
        values = [made] if first is None else [self._part(made, first + k) for k in range(len(targets))]
        for target, value in zip(targets, values):
            self._write(target, value)
        if not isinstance(node.meta.get("val"), (list, tuple)):
            if first:  # it gives something else, as rrelu_with_noise does
                return self._fresh(self._part(made, 0))
            returned = [a.name for a in node.target._schema.arguments if a.name in written]
            return targets[0] if node.target._schema.returns and returned else None
        own = [self._fresh(self._part(made, k)) for k in range(len(node.meta["val"]))] if first else targets
        return own

    def _rebind(self, node, overload):
        """The very tensor looks at its memory in another way from here on."""
        tensor, view = self._held(node.args[0]), self._view(node, overload)
        tensor.steps, tensor.node, tensor.version = view.steps, view.node, view.version
        return tensor

    def _lying(self, value, like):
        """A new value of a memory, whose elements lie where they lay."""
        if fake(value).stride() != like.stride():
            value.meta["val"] = like
        return value

    def _write(self, tensor, value):
        """The memory that a tensor looks at changes so that the tensor has this value."""
        old, new = fake(self._value(tensor)), fake(value)
        if new.dtype != old.dtype:
            value = self._call(aten._to_copy.default, (value,), {"dtype": old.dtype}, old)
        if len(new.shape) != len(old.shape):
            raise unsupported(self.made_for, f"it writes {list(new.shape)} to {list(old.shape)}")
        written, bases = self._lying(value, old), [tensor.memory.node]
        for step in tensor.steps[:-1]:
            bases.append(self._look(step, bases[-1]))
        for step, base in zip(reversed(tensor.steps), reversed(bases)):
            value = undone(self._call, step.overload, base, value, step.args, step.kwargs, step.part)
            if value is None:
                raise unsupported(self.made_for, f"it changes what {step.overload} looks at")
        tensor.memory.node, tensor.memory.version = self._lying(value, fake(tensor.memory.node)), tensor.memory.version + 1
        tensor.node, tensor.version = written, tensor.memory.version


def _named(node, overload):
    """The named arguments of a call as another overload takes them, with what it has no default for."""
    own, known = node.target._schema.arguments, {argument.name: argument for argument in overload._schema.arguments}
    left_out = {a.name: a.default_value for a in own[len(node.args):] if a.has_default_value()}
    wanted = {name: value for name, value in left_out.items() if name in known and not known[name].has_default_value()}
    return {**wanted, **{name: value for name, value in node.kwargs.items() if name in known}}

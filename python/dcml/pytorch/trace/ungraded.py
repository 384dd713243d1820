"""Changes in place that torch's tape does not see: inside torch.no_grad(), through detach() or .data.

The one idea: such a change alters values and leaves gradients as if it had not happened, so what is read afterwards is
a value whose gradient goes straight to the tensor as it was; the border operators of own_gradient.py say exactly that.
Must not know: rows of operators or the core.
"""
import operator

import torch
from torch.utils import _pytree as pytree

from .own_gradient import straight_through

_NO_GRAD = torch.ops.higher_order.wrap_with_set_grad_enabled
_DETACH = torch.ops.aten.detach.default


def keep_gradients(program, refuse):
    """Rewrites a traced program, in which operators still change tensors; refuse(node, reason) makes an error.
    Returns the names of placeholders that are changed without the tape's knowledge."""
    changes = _Changes(program, refuse)
    for node in list(program.graph_module.graph.nodes):
        changes.visit(node)
    return changes.placeholders


class _Changes:
    def __init__(self, program, refuse):
        self.program, self.refuse = program, refuse
        places = zip(program.graph.find_nodes(op="placeholder"), program.graph_signature.input_specs)
        self.taped = {n for n, spec in places if _may_be_taped(program, spec) and _is_float(n)}
        self.root = {}   # node -> the node that made its memory
        self.same = {}   # node -> the node that first named this very tensor
        self.stands = {}  # what such reads get -> the memory that they stand for
        self.apart = set()  # detached tensors that look at what stands for another, which has changed since
        self.fixed = {}  # tensor -> what reads of it get, once it was changed behind the tape's back
        self.written = set()       # roots changed with the tape's knowledge
        self.placeholders = set()
        self.order = {node: k for k, node in enumerate(program.graph_module.graph.nodes)}

    def visit(self, node):
        if node.op == "call_function" and node.target is _NO_GRAD and not node.args[0]:
            for outer, inner in self._region(node).items():
                self._lost(node, outer, inner)
        if node in self.root:  # the result of a region
            return
        if node.target is torch.ops.aten.detach_.default:  # what follows uses its result
            if self.root[node.args[0]].op == "placeholder":
                raise self.refuse(node, "an argument would lose its history")
            node.target = _DETACH
        if node.op == "call_function" and node.target is _DETACH:  # which may be changed
            memory = self._memory(node.args[0], node)
            if memory is None:
                self.apart.add(node)
            elif memory is not node.args[0]:
                node.replace_input_with(node.args[0], memory)
        self.root[node] = self.same[node] = node
        inputs = [n for n in node.all_input_nodes if n in self.taped]
        if node.op != "call_function":
            return
        if inputs and _is_float(node) and node.target is not _DETACH:
            self.taped.add(node)
        viewed, written = _aliases(node)
        if viewed in self.root and (node.target is not operator.getitem or self.root[viewed] is not viewed):
            self.root[node] = self.root[viewed]
            if viewed in self.apart:
                self.apart.add(node)
            if viewed in written:
                self.same[node] = self.same.get(viewed, viewed)
        for other in written:
            lost = node not in self.taped and other not in self.taped
            if other in self.apart or not lost and other not in self.taped and self.root[other] in map(self.root.get, self.fixed):
                raise self.refuse(node, "it changes without a gradient what also changes with one")
            if not lost:
                self.written.add(self.root[other])
            else:
                self._lost(node, other, node)

    def _region(self, call):
        """{outer node: the last node that changes it} of a region without gradient; notes what its results are."""
        inside = getattr(self.program.graph_module, call.args[1].target).graph
        inner = dict(zip([n for n in inside.nodes if n.op == "placeholder"], call.args[2:]))
        root, same, changed = dict(zip(inner, inner)), dict(zip(inner, inner)), {}
        for node in inside.nodes:
            viewed, written = _aliases(node)
            if viewed in root:
                root[node] = root[viewed]
                if viewed in written and viewed in same:
                    same[node] = same[viewed]
            changed.update({inner[root[n]]: node for n in written if n in root})
        results = next(n for n in inside.nodes if n.op == "output").args[0]
        for get in call.users:
            self.root[get] = self.same[get] = get
            if isinstance(result := results[get.args[1]], torch.fx.Node) and result in root:
                self.root[get] = self.root.get(inner[root[result]], get)
                if result in same and self.root[get] in self.taped:
                    self.same[get] = self.same.get(inner[same[result]], get)
                    self.taped.add(get)
        return {outer: node for outer, node in changed.items() if outer in self.root}

    def _lost(self, node, other, writer):
        root = self.root[other]
        later = {n: [u for u in n.users if self.order.get(u, 0) > self.order[node]] for n in self.root if self.root[n] is root}
        tensors = {self.same[n] for n, users in later.items() if users and n in self.taped}
        silent = root.op == "placeholder" and root in self.taped
        if silent and root in self.written or tensors and self._written_later(later, tensors, silent):
            raise self.refuse(writer, "it changes without a gradient what also changes with one")
        if silent:
            self.placeholders.add(root.name)
        for tensor in tensors:
            self._replace(node, tensor, later)

    def _memory(self, seen, before):
        """The memory that a tensor looks at, where it looks at what stands for another; None where that has changed since."""
        path, source, changed = [], seen, False
        while source not in self.stands:
            path.append(source)
            source, written = _aliases(source)
            if source is None:
                return seen
            changed = changed or source in written
        if changed:
            return None
        source = self.stands[source]
        with self.program.graph_module.graph.inserting_before(before):
            for view in reversed(path):
                viewed, base = _aliases(view)[0], source
                source = self.program.graph_module.graph.node_copy(view, lambda n, viewed=viewed, base=base: base if n is viewed else n)
                self.root[source], self.same[source] = self.root[base], source
        return source

    def _written_later(self, later, tensors, silent):
        """Is the memory written again with the tape's knowledge, while others look at it?"""
        users = {u for n, users in later.items() if self.same[n] in tensors for u in users}
        written = any(n in _aliases(u)[1] for u in users for n in u.all_input_nodes if n in later)
        others = len(tensors) > 1 or any(users for n, users in later.items() if self.same[n] not in tensors)
        return written and (silent or others or any(u.target is _NO_GRAD for u in users))

    def _replace(self, node, tensor, later):
        """What reads a tensor after ``node`` gets its new value with its old history."""
        memory = self._memory(tensor, node)
        if memory is None:
            raise self.refuse(node, "it changes without a gradient what also changes with one")
        fixed = straight_through(self.program.graph_module.graph, node, memory, self.fixed.get(tensor, tensor))
        for n in [n for n in later if self.same[n] is tensor]:
            for user in later[n]:
                if user.target is not _NO_GRAD:
                    user.replace_input_with(n, fixed)
        self.fixed[tensor], self.stands[fixed] = fixed, memory
        self.root[fixed], self.same[fixed] = self.root[tensor], tensor
        self.taped.add(fixed)


def _aliases(node):
    """(the argument whose memory the result is, arguments that it changes), by the operator's schema."""
    viewed, written = None, []
    if node.target is operator.getitem:
        return node.args[0], written
    if not isinstance(node.target, torch._ops.OpOverload):
        return viewed, written
    schema = node.target._schema
    for k, argument in enumerate(schema.arguments):
        given = node.args[k] if k < len(node.args) else node.kwargs.get(argument.name)
        if argument.alias_info is None or not isinstance(given, torch.fx.Node):
            continue
        if argument.alias_info.is_write:
            written.append(given)
        if any(result.alias_info is not None for result in schema.returns):
            viewed = given
    return viewed, written


def _may_be_taped(program, spec):
    if spec.kind.name == "CONSTANT_TENSOR":
        return getattr(program.constants[spec.target], "requires_grad", True)
    return spec.kind.name != "BUFFER"


def _is_float(node):
    return any(isinstance(v, torch.Tensor) and v.dtype.is_floating_point for v in pytree.tree_leaves(node.meta.get("val")))

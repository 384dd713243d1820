"""What code that is recorded is told where Python decides by the value of a tensor.

The one idea: calls recorded so far are run on the call's own tensors, which gives the value; that it is the same in later calls is
a condition that each of them checks, so what is told here has to be likely, not certain.
Must not know: modules, rows of operators, or what becomes of a call that decides otherwise.
"""
import itertools
import operator

import torch

from .symbols import Beyond

_MOST = 512   # different decisions of one call, each of which later calls check
_DRAWS = 32   # of a value that nothing but random numbers decides
_SEEDED = torch.Tag.nondeterministic_seeded


class Decisions:
    """known: what the first ones are, from an earlier attempt at this call.  made: what they are, in order.
    tensor_of(node): the tensor that a placeholder stands for.  numbers: also of what asks for a number, not only of branches."""

    def __init__(self, graph, known, tensor_of, numbers):
        self._graph, self._known, self._tensor_of, self.numbers = graph, known, tensor_of, numbers
        self._values = {}      # of nodes that ran
        self._parameters = {}             # address -> tensor
        self._alike = _Alike(graph)
        self._settled = {}     # what is asked -> value
        self.made = []

    def of(self, node, kind):
        """The value, as a bool or an int, of a node that is a tensor of one element."""
        asked = self._alike.key(node), kind
        if asked in self._settled:
            return self._settled[asked]
        if len(self.made) == _MOST:
            raise Beyond(f"more than {_MOST} decisions by values")
        if len(self.made) < len(self._known):
            value = self._known[len(self.made)]
        else:
            value = self._value(node, kind)
        self.made.append(value)
        self._settled[asked] = value
        return value

    def _value(self, node, kind):
        generators = [torch.default_generator, *(torch.cuda.default_generators if torch.cuda.is_initialized() else ())]
        drawn = [(generator, generator.get_state()) for generator in generators]
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():  # and below autograd, as the recorder is
            try:
                for one in self._graph.nodes:  # placeholders of constants are put before what has run
                    if one not in self._values:
                        self._values[one] = self._run(one, self._values)
                value = kind(self._values[node].item())
                self._refuse_drawn(node, value, kind)
            except Beyond:
                raise
            except Exception as error:  # of whatever kind
                raise Beyond(f"what Python decides by cannot be computed beforehand: {error}") from error
            finally:
                for generator, state in drawn:
                    generator.set_state(state)
        return value

    def _run(self, node, values):
        if node.op == "placeholder":
            tensor = self._tensor_of(node)
            if isinstance(tensor, torch.nn.Parameter):
                self._parameters[tensor.untyped_storage().data_ptr()] = tensor
                return tensor.detach()
            return tensor.detach().clone()  # which calls may change
        if node.target is torch.ops.dcml.decided.default:
            return None
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
        self._refuse_change(node, args, kwargs)
        return node.target(*args, **kwargs)

    def _refuse_change(self, node, args, kwargs):
        if not isinstance(node.target, torch._ops.OpOverload) or not node.target._schema.is_mutable:
            return
        for k, argument in enumerate(node.target._schema.arguments):
            given = args[k] if k < len(args) else kwargs.get(argument.name)
            if argument.alias_info is not None and argument.alias_info.is_write and isinstance(given, torch.Tensor) \
                    and given.untyped_storage().data_ptr() in self._parameters:
                raise Beyond("forward changes a parameter before Python decides by a value")

    def _refuse_drawn(self, node, value, kind):
        """Of what only random numbers decide each value is likely: one way through forward for each call."""
        before = _ancestors(node)
        if not any(_draws(one) for one in before) or any(one.op == "placeholder" for one in before):
            return
        for _ in range(_DRAWS):
            values = {}
            for one in before:
                values[one] = self._run(one, values)
            if kind(values[node].item()) != value:
                raise Beyond("Python decides by random numbers")


class _Alike:
    """Numbers for nodes, equal where the same is computed of the same."""

    def __init__(self, graph):
        self._graph, self._numbers, self._of, self._changes = graph, {}, {}, 0

    def key(self, node):
        """Differs, too, where a tensor has been changed in place meanwhile, whichever."""
        new = list(itertools.takewhile(lambda one: one not in self._numbers, reversed(self._graph.nodes)))
        for one in reversed(new):
            self._numbers[one] = self._of.setdefault(self._text(one), len(self._of))
            self._changes += isinstance(one.target, torch._ops.OpOverload) and one.target._schema.is_mutable
        return self._number(node), self._changes

    def _number(self, node):
        return self._numbers.get(node, node)  # placeholders that were put before what had its number stand for themselves

    def _text(self, node):
        computed = node.target is operator.getitem or isinstance(node.target, torch._ops.OpOverload) and not _draws(node)
        if node.op != "call_function" or not computed:
            return node
        given = torch.fx.node.map_arg((node.args, node.kwargs), lambda one: ("node", self._number(one)))
        return node.target, repr(given), repr(node.meta.get("autocast"))


def _ancestors(node):
    """Nodes that a node is computed from, and itself, in order."""
    found, left = set(), [node]
    while left:
        one = left.pop()
        if one not in found:
            found.add(one)
            left.extend(one.all_input_nodes)
    return [one for one in node.graph.nodes if one in found]


def _draws(node):
    return node.target is not operator.getitem and _SEEDED in getattr(node.target, "tags", ())

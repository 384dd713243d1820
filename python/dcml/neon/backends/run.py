"""Assignments, run: a tree is compiled once per structure, shapes and types.

The one idea: one walk over the trees gives the tensors, the numbers and a key of all that the graph depends on; what
was compiled for that key takes the tensors' memory.  Trees of small tensors are interpreted until that has taken
longer than compiling does.  Must not know: operators, or how a graph is made (lower.py).
"""
import time
from collections import OrderedDict

import numpy as np

from ... import _core
from .layout import common_argument, stretch
from .lower import Emitter, Number, postorder
from .tensor import Tensor
from .tree import Operand, OpTreeNode

KEPT = 1024  # structures
MUCH = 1 << 14  # elements that are worth compiling for
PATIENCE = 0.02  # seconds that interpreting may take in all

_cache = OrderedDict()


class Draws(Operand):
    """Numbers between 0 and 1, drawn from a backend's generator at each assignment of the tree that holds this."""

    __slots__ = ("backend", "shape")

    def __init__(self, backend, shape):
        self.backend, self.shape = backend, shape

    def draw(self):
        return Tensor(self.backend, dtype=np.float64, ary=self.backend.rng.uniform(size=self.shape))


class _Call:
    """What one assignment of trees is given: filled by one walk."""

    __slots__ = ("key", "tensors", "slots", "numbers", "seen", "has_gradient")

    def __init__(self):
        self.key, self.tensors, self.slots, self.numbers, self.seen, self.has_gradient = [], [], {}, [], {}, False

    def slot(self, x):
        """The place of a tensor among the tensors."""
        k = self.slots.get(id(x))
        if k is None:
            k = self.slots[id(x)] = len(self.tensors)
            self.tensors.append(x if isinstance(x, Tensor) else x.draw())
        return k

    def walk(self, root):
        """Adds a tree, operators before operands.  A node that was met stands for itself as its number, a tensor as -1 - its slot."""
        key, left, seen = self.key, [root], self.seen
        while left:
            x = left.pop()
            kind = type(x)
            if kind is OpTreeNode:
                known = seen.get(id(x))
                if known is not None:
                    key.append(known)
                    continue
                seen[id(x)] = len(seen)
                operator, a, b = x
                op = operator["op"]
                if len(operator) == 2:
                    key.append(op)
                else:
                    key.append(tuple(operator.items()))
                    self.has_gradient |= op == "grad"
                if op == "pow" and (type(b) is float or type(b) is int):
                    key.append((type(b), b))
                else:
                    left.append(b)
                left.append(a)
            elif kind is float or kind is int:
                key.append(kind)
                self.numbers.append(x)
            elif isinstance(x, Operand):
                key.append(-1 - self.slot(x))
            elif x is None:
                key.append(None)
            else:
                raise TypeError(f"an op-tree has {kind.__name__} as an operand")


def assign(pairs):
    """Computes the values of all trees, then writes each into its tensor.

    pairs: (Tensor, OpTreeNode, Tensor or number).  Raises ShapeError where a value does not fit its tensor.
    """
    call = _Call()
    for _, value in pairs:
        call.walk(value)
    key, tensors = call.key, call.tensors
    targets = [call.slot(target) for target, _ in pairs]
    key += targets
    found = [x._argument or x.argument() for x in tensors]
    roots = [found[k][2] for k in targets]
    shared = call.has_gradient
    for k, x in enumerate(found):
        key.append(x[1])
        for root, target in zip(roots, targets):
            shared |= x[2] is root and k != target
    groups = list(_grouped(call, targets)) if shared else ()
    arrays = [x[0] for x in found]
    for slots, array, layouts in groups:
        key.append((tuple(slots), tuple(layouts)))
        arrays[slots[0]] = array
    key = tuple(key)
    entry = _cache.get(key)
    if entry is None:
        entry = _cache[key] = _Entry(pairs, call, targets, found, groups)
        if len(_cache) > KEPT:
            _cache.popitem(last=False)
    else:
        _cache.move_to_end(key)
    entry.run(arrays + call.numbers)


def _grouped(call, targets):
    """Tensors that lie in one memory, where one is written while another is read, or gradients are taken in it:
    (slots, their common stretch of memory, layouts)."""
    homes = {}
    for k, x in enumerate(call.tensors):
        if x.size:
            homes.setdefault((id(x._argument[2]), x.dtype.char), []).append(k)
    for slots in homes.values():
        if len(slots) > 1 and (call.has_gradient or _collide(call, slots, targets)):
            yield slots, *common_argument([call.tensors[k]._tensor for k in slots])


def _collide(call, slots, targets):
    stretches = {k: stretch(call.tensors[k]._tensor) for k in slots}
    written = [(k, stretches[k]) for k in slots if k in targets]
    return any(a != b and low <= end and begin <= high for a, (low, high) in written for b, (begin, end) in stretches.items())


class _Entry:
    """What was compiled for one structure: an interpreted and a compiled function."""

    __slots__ = ("graph", "picks", "functions", "spent", "much")

    def __init__(self, pairs, call, targets, found, groups):
        sources = _Sources(pairs, call, found, groups)
        e = Emitter(sources)
        values = [e.tree(value) for _, value in pairs]
        if len(values) > 1:  # what is read only when it is written may be written before
            values = [e.value("Identity", x.dtype, x) for x in values]
        for slot, x in zip(targets, values):
            e.write(slot, x)
        self.graph = e.graph
        places = {f"a{k}": k for k in range(len(found))} | {f"n{k}": len(found) + k for k in range(len(call.numbers))}
        self.picks = [places[name] for name in e.graph.inputs]
        self.functions = [None, None]
        self.spent = 0.0
        self.much = sum(int(np.prod(shape)) for _, shape in e.arguments.values()) > MUCH

    def run(self, given):
        compiled = self.much or self.spent > PATIENCE
        function = self.functions[compiled]
        if function is None:
            function = self.functions[compiled] = _core.Function(self.graph, backend="auto" if compiled else "interp")
        if compiled:
            function(*[given[k] for k in self.picks])
            return
        begin = time.perf_counter()
        function(*[given[k] for k in self.picks])
        self.spent += time.perf_counter() - begin


class _Sources:
    """What stands behind the tensors and numbers of trees, for the graph that is made of them."""

    def __init__(self, pairs, call, found, groups):
        self.call = call
        self.places = [(f"a{k}", layout) for k, (_, layout, _) in enumerate(found)]
        for slots, _, layouts in groups:
            for k, layout in zip(slots, layouts):
                self.places[k] = f"a{slots[0]}", layout
        self.numbers, self.depths, self.wishes, self.named, seen = {}, {}, {}, 0, set()
        for target, value in pairs:
            self._name_numbers(value, seen)
            self._find_depths(value, target.shape)

    def _name_numbers(self, root, seen):
        """Names numbers in the order in which the walk met them, and notes in what is differentiated."""
        left = [(None, None, root)]
        while left:
            node, side, x = left.pop()
            if isinstance(x, OpTreeNode) and id(x) not in seen:
                seen.add(id(x))
                left += [(x, 2, x[2]), (x, 1, x[1])]
                if x[0]["op"] == "grad":
                    place = self.places[self.tensor_slot(x[2], 2)][0]
                    self.wishes.setdefault((id(x[1]), id(x[2][1])), set()).add(place)
            elif type(x) in (int, float):
                held = side == 2 and node[0]["op"] == "pow"
                self.numbers[id(node), side] = Number(None if held else f"n{self.named}", x)
                self.named += not held

    def _find_depths(self, root, shape):
        """How many classes a onehot has: what the tensors that it is combined with, or the target, say."""
        wanted = {id(root): shape}
        for node in reversed(postorder([root])):
            operator, a, b = node
            if operator["op"] == "onehot":
                self.depths[id(node)] = (wanted.get(id(node)) or (None, None))[operator["axis"]]
                continue
            full = operator.get("shape", ())
            full = wanted.get(id(node)) if None in full else full
            if operator["op"] == "dot":
                sizes = [x.shape if isinstance(x, Operand) else (1, 1) for x in (a, b)]
                wanted[id(a)], wanted[id(b)] = (None, sizes[1][0]), (sizes[0][1], None)
            elif operator["op"] == "transpose":
                wanted[id(a)] = full and tuple(reversed(full))
            else:
                for x in (a, b):
                    wanted[id(x)] = full

    def place(self, slot):
        """(argument, layout) of a tensor."""
        return self.places[slot]

    def shape(self, slot):
        return self.call.tensors[slot].shape

    def argument(self, name):
        """(type, extents) of an argument."""
        layout = next(layout for place, layout in self.places if place == name)
        return np.dtype(layout[0]), layout[1]

    def tensor_slot(self, node, side):
        return self.call.slots[id(node[side])]

    def wanted(self, key):
        """The arguments in which a tree is differentiated with an error."""
        return self.wishes[key]

    def leaf(self, e, node, side):
        x = node if side is None else node[side]
        if type(x) in (int, float):
            return self.numbers[(id(None), None) if side is None else (id(node), side)]
        return e.tensor(self.call.slots[id(x)])

    def dictionary(self, node):
        return {**node[0], "depth": self.depths[id(node)]} if id(node) in self.depths else node[0]

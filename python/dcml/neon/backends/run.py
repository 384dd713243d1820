"""Assignments, run: a tree is compiled once per structure, shapes and types.

The one idea: one walk over the trees gives the tensors, the numbers and a key of all that the graph depends on; what
was compiled for that key takes the tensors' memory.  Trees with little to compute are interpreted, always, so that the same
tensors give the same bits at every call.  Must not know: operators, or how a graph is made (lower.py).
"""
from collections import OrderedDict
from math import prod
from threading import Lock

import numpy as np

from ... import _core
from .layout import common_argument, stretch
from .lower import Emitter, Number, postorder
from .tensor import Tensor
from .tree import Operand, OpTreeNode

KEPT = 1024  # structures
LITTLE = 1 << 12  # steps, about 0.1 ms of interpreting, that are not worth compiling

_KINDS = OpTreeNode, Tensor, Operand
_cache, _lock = OrderedDict(), Lock()  # the lock is held for looking up, not for compiling or running


class Draws(Operand):
    """Numbers between 0 and 1, drawn from a backend's generator at each assignment of the tree that holds this."""

    __slots__ = ("backend", "shape")

    def __init__(self, backend, shape):
        self.backend, self.shape = backend, shape

    def draw(self):
        return Tensor(self.backend, dtype=np.float64, ary=self.backend.rng.uniform(size=self.shape))


class _Call:
    """What one assignment of trees is given, found by one walk over them.

    key: the structure as a list, operators before operands, as short as telling trees apart allows: an operator without
    options by its name, a node that was met by its number, a tensor by -1 - its slot, a number by its type; then the slots
    of the targets.
    """

    __slots__ = ("key", "tensors", "slots", "numbers", "has_gradient")

    def __init__(self, pairs):
        self.key, operands, self.numbers, self.has_gradient = _core.tree_key(pairs, _KINDS)
        self.slots = {id(x): k for k, x in enumerate(operands)}
        self.tensors = [x if isinstance(x, Tensor) else x.draw() for x in operands]


def assign(pairs):
    """Computes the values of all trees, then writes each into its tensor.

    pairs: a tuple of (Tensor, OpTreeNode, Tensor or number).  Raises ShapeError where a value does not fit its tensor.
    """
    if not _core.run_trees(_cache, KEPT // 2, pairs, _KINDS, "_argument"):
        _assign_anew(pairs)


def _assign_anew(pairs):
    """assign(), of trees for which nothing is kept, or in which tensors share memory."""
    call = _Call(pairs)
    key, targets = call.key, call.key[-len(pairs):]
    found = [x._argument or x.argument() for x in call.tensors]
    written = {id(found[k][2]) for k in targets}
    arrays, in_written = [], 0
    for array, layout, root in found:
        arrays.append(array)
        key.append(layout)
        in_written += id(root) in written
    groups = _grouped(call, targets) if in_written > len(written) or call.has_gradient else ()
    for slots, array, layouts in groups:
        key.append((tuple(slots), tuple(layouts)))
        arrays[slots[0]] = array
    for k, array in enumerate(arrays):
        if array is None and not any(k in slots for slots, _, _ in groups):
            arrays[k] = call.tensors[k].array()
    key = tuple(key)
    with _lock:
        entry = _cache.get(key)
        if entry is not None:  # moved as run_trees() does, which leaves the order alone while there is much room
            _cache.move_to_end(key)
    if entry is None:
        entry = _compiled(pairs, call, targets, found, groups)
        with _lock:
            _cache[key] = entry
            while len(_cache) > KEPT:
                _cache.popitem(last=False)
    function, picks = entry
    given = arrays + call.numbers
    function(*[given[k] for k in picks])


def _grouped(call, targets):
    """Tensors that lie in one memory, where one is written while another is read, or gradients are taken in it:
    (slots, their common stretch of memory, layouts)."""
    homes, groups = {}, []
    for k, x in enumerate(call.tensors):
        if x._tensor.size:
            homes.setdefault((id(x._argument[2]), x.dtype.char), []).append(k)
    for slots in homes.values():
        if len(slots) > 1:
            views = [call.tensors[k]._tensor for k in slots]
            stretches = [stretch(ary) for ary in views]
            if call.has_gradient or _collide(slots, stretches, targets):
                groups.append((slots, *common_argument(views, stretches)))
    return groups


def _collide(slots, stretches, targets):
    """Does a target overlap another tensor?"""
    return any(a != b and low <= end and begin <= high for a, (low, high) in zip(slots, stretches) if a in targets
               for b, (begin, end) in zip(slots, stretches))


def _steps(pairs):
    """About how many numbers trees compute: products count their terms, gradients four times what they differentiate."""
    total, left, seen = 0, [(value, 1) for _, value in pairs], set()
    for target, _ in pairs:
        total += target.size
    while left:
        x, times = left.pop()
        if not isinstance(x, OpTreeNode) or id(x) in seen:
            continue
        seen.add(id(x))
        d, a, b = x
        terms = 1
        if d["op"] in ("dot", "batched"):
            terms = a.shape[-1] or 1 if isinstance(a, Operand) else 1
        elif "trs" in d:
            terms = prod(d["nck"]) * prod(d["trs"])
        elif "window" in d:
            terms = prod(d["window"])
        if d["op"] != "of":
            inputs = [n.shape for n in (a, b) if isinstance(n, Operand)]
            total += times * terms * max(prod(n or 1 for n in shape) for shape in [x.shape or (), *inputs])
        left += [(a, 4 * times if d["op"] == "grad" else times), (b, times)]
    return total


def _compiled(pairs, call, targets, found, groups):
    """A function for one structure, and the positions among tensors and then numbers of what it is given."""
    e = Emitter(_Sources(pairs, call, found, groups))
    values = [e.tree(value) for _, value in pairs]
    if len(values) > 1:  # what is read only when it is written may be written before
        values = [e.value("Identity", x.dtype, x) for x in values]
    for slot, x in zip(targets, values):
        e.write(slot, x)
    places = {f"a{k}": k for k in range(len(found))} | {f"n{k}": len(found) + k for k in range(len(call.numbers))}
    function = _core.Function(e.graph, backend="interp" if _steps(pairs) <= LITTLE else "auto")
    return function, tuple(places[name] for name in e.graph.inputs)


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
        wanted, nodes = {id(root): shape}, postorder([root], entering=True)
        if not any(node[0]["op"] == "onehot" for node in nodes):
            return
        for node in reversed(nodes):
            operator, a, b = node
            if operator["op"] == "onehot":
                self.depths[id(node)] = (wanted.get(id(node)) or (None, None))[operator["axis"]]
                continue
            full = operator.get("shape") or ()
            full = wanted.get(id(node)) if None in full else full
            if operator["op"] == "dot":
                sizes = [x.shape if isinstance(x, Operand) else (1, 1) for x in (a, b)]
                wanted[id(a)], wanted[id(b)] = (None, sizes[1][0]), (sizes[0][1], None)
            elif operator["op"] == "grad":
                wanted[id(a)] = wanted[id(b)] = a.shape if isinstance(a, Operand) else (1, 1)
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

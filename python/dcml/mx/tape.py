"""The tape: what is recorded becomes graphs of the core, which are run fused and differentiated there.

The one idea: a recorded operator is not run but noted in a *segment*.  Where a value is asked for, or a gradient, the
segment becomes one function of the core, kept by structure: the second iteration of a training step costs a look-up
for each operator and one call.  Gradients go from segment to segment; within one they are the core's.
Must not know: which operators there are, how arrays look to users.
"""
import heapq
import itertools
import threading
import weakref

import numpy as onp

from .. import _core

_KEPT = 512          # functions by structure, and uses of operators by types
_SMALL = 1 << 10     # elements; a segment of fewer is interpreted: always, so that every run gives the same bits
_CHECKED = 512       # values, after which a segment is looked at again
_MOST_NODES = 4096   # values of one segment: longer ones are run in parts
_FLOATS = frozenset((1, 10, 11, 16))


class State(threading.local):
    """What a thread records: ``recording``, ``training``, and the segment that is open."""
    recording = False
    training = False
    segment = None


state = State()
_serials = itertools.count()


class _Types(dict):
    """ONNX's number of a NumPy type, by the number that NumPy has for it."""

    def of(self, dtype):
        number = self.get(dtype.num)
        if number is None:
            number = self[dtype.num] = number_of(dtype)
        return number


_NAMES = ["", "float32", "uint8", "int8", "uint16", "int16", "int32", "int64", "", "bool", "float16", "float64", "uint32", "uint64", "", "",
          "bfloat16"]
_DTYPES = {}


def number_of(dtype):
    """ONNX's number of a type that NumPy knows, or of its name; DTypeError for others."""
    try:
        name = dtype if dtype == "bfloat16" else onp.dtype(dtype).name
    except TypeError:
        name = ""
    if not name or name not in _NAMES:
        raise _core.DTypeError(f"{dtype!r} is no type of an array; expected one of {', '.join(filter(None, _NAMES))}")
    return _NAMES.index(name)


def dtype_of(number):
    """NumPy's type of an ONNX number."""
    if number not in _DTYPES:
        if _NAMES[number] == "bfloat16":
            import ml_dtypes
            _DTYPES[number] = onp.dtype(ml_dtypes.bfloat16)
        else:
            _DTYPES[number] = onp.dtype(_NAMES[number])
    return _DTYPES[number]


types = _Types()


class Use:
    """An operator with attributes, for types and shapes of inputs; results: (type, shape) of each output."""

    __slots__ = ("op", "domain", "opset", "attributes", "constants", "results", "__weakref__")


_uses = {}


def _use(op, domain, opset, attributes, looks, constants, outputs):
    key = (op, domain, opset, tuple(attributes.items()) if attributes else (), looks, outputs)
    use = _uses.get(key)
    if use is None:
        given = [None if look is None else constants[k] if k in constants else look for k, look in enumerate(looks)]
        found = _core.infer(op, domain, opset, given, attributes, outputs)
        if any(extent is None or isinstance(extent, str) for _, shape, _ in found for extent in shape):
            raise _core.UnsupportedOpError(f"{op}: the shape of its result depends on data, which cannot be recorded")
        use = Use()
        use.op, use.domain, use.opset, use.attributes, use.constants = op, domain, opset, attributes, constants
        use.results = [(kind, shape) for kind, shape, _ in found]
        while len(_uses) >= _KEPT * 8:
            _uses.pop(next(iter(_uses)), None)
        _uses[key] = use
    return use


class Segment:
    """Operators that were recorded, or, when it has run, what their gradient needs.

    leaves: arrays from outside, as they were when they were read; holders: weak references to the arrays of outputs."""

    __slots__ = ("serial", "nodes", "leaves", "buffers", "sources", "places", "holders", "n_values", "call", "outputs", "wrt", "pending",
                 "states", "limit")

    def __init__(self):
        self.serial = next(_serials)
        self.nodes = []       # (use, inputs): a number from 0 on for a value, -1 - k for the k-th leaf, None
        self.leaves = []      # arrays
        self.buffers = []     # their memory
        self.sources = []     # (segment, output) that a leaf came from, or None
        self.places = {}      # id of an array -> its last place among the leaves
        self.holders = []     # (weak reference, value), by value
        self.states = None    # values that are no part of any gradient, as running means: their arrays leave the tape
        self.n_values = 0
        self.call = None
        self.outputs = {}     # value -> position among the results
        self.wrt = ()         # positions of leaves, in the order of the function's gradients
        self.pending = True
        self.limit = _CHECKED

    def place_of(self, array):
        """The number by which a node reads an array."""
        tape = array._tape
        if tape is not None and tape[0] is self:
            return tape[1]
        data = array._data if array._data is not None else array._value()
        k = self.places.get(id(array))
        if k is not None and self.buffers[k] is data:
            return -1 - k
        k = len(self.leaves)
        if array._shared:
            data = data.copy()
        else:
            self.places[id(array)] = k
        self.leaves.append(array)
        self.buffers.append(data)
        self.sources.append(array._tape)
        return -1 - k

    def grow(self):
        """At its limit: what nobody waits for is forgotten, what is very long is run."""
        if not self.pending:
            return
        self.limit += _CHECKED
        if all(ref() is None for ref, _ in self.holders):
            state.segment = None
        elif self.n_values > _MOST_NODES:
            self.run()

    # -- running ------------------------------------------------------------------------------------------
    def run(self):
        """Gives every array that is still held its value."""
        if not self.pending:
            return
        if state.segment is self:
            state.segment = None
        alive = [(array, value) for ref, value in self.holders if (array := ref()) is not None and array._tape is not None
                 and array._tape[0] is self and array._tape[1] == value]
        wanted = tuple(dict.fromkeys(value for _, value in alive))
        wrt = tuple(k for k, leaf in enumerate(self.leaves) if (leaf._grad_req is not None or self.sources[k] is not None)
                    and types.of(self.buffers[k].dtype) in _FLOATS)
        self.wrt = wrt
        try:
            results, self.call = _function(self, wanted, wrt)._run(tuple(self.buffers))
        except BaseException:
            state.segment = None  # what was recorded cannot be run: its arrays stay without values
            raise
        self.pending = False
        self.outputs = {value: k for k, value in enumerate(wanted)}
        for array, value in alive:
            array._data, array._look = results[self.outputs[value]], None
            if self.states and value in self.states:
                array._tape = None
        self.nodes = self.holders = self.places = None
        if self.call is None:  # else it holds them, too
            self.buffers = None

    def backward(self, given):
        """(leaf's position, gradient or None) of gradients by value."""
        if self.call is None:
            return [(k, None) for k in self.wrt]
        return zip(self.wrt, self.call.backward(self._by_output(given)))

    def derive(self, given):
        """The same of arrays, as arrays with a history: outputs of a segment that has run, of this one's leaves and of what is given."""
        if self.call is None:
            return [(k, None) for k in self.wrt]
        grads = self._by_output(given)
        function, kinds, _ = self.call.derivative(tuple([None if g is None else _Seed(g) for g in grads]), (True, ) * len(self.wrt))
        if function is None:
            return [(k, None) for k in self.wrt]
        seeds = [g for g in grads if g is not None]
        made = Segment()
        made.leaves, made.sources = self.leaves + seeds, self.sources + [g._tape for g in seeds]
        made.buffers = self.buffers + [g._value() for g in seeds]
        made.wrt, made.pending, made.nodes = function.wrt_positions, False, None
        results, made.call = function._run(tuple(made.buffers))
        made.outputs = {k: k for k in range(len(results))}
        arrays = iter([_on_tape(type(seeds[0]), data, made, k) for k, data in enumerate(results)])
        return [(k, next(arrays) if kind else None) for k, kind in zip(self.wrt, kinds)]

    def _by_output(self, given):
        grads = [None] * len(self.outputs)
        for value, gradient in given.items():
            grads[self.outputs[value]] = gradient
        return tuple(grads)


class _Seed:
    """What the core asks of a gradient that a derivative is to be given: whether it is differentiated, too."""

    __slots__ = ("requires_grad", )

    def __init__(self, array):
        self.requires_grad = array._tape is not None or array._grad_req is not None


def _on_tape(ndarray, data, segment, value):
    array = ndarray(data)
    array._tape = segment, value
    return array


_functions = {}


def _function(segment, wanted, wrt):
    looks = tuple([(types.of(b.dtype), b.shape) for b in segment.buffers])
    key = (tuple(segment.nodes), looks, wanted, wrt)
    function = _functions.pop(key, None)
    if function is None:
        function = _build(segment, looks, wanted, wrt)
        while len(_functions) >= _KEPT:
            _functions.pop(next(iter(_functions)), None)
    _functions[key] = function  # the one that was used last stands last
    return function


def _build(segment, looks, wanted, wrt):
    graph = _core.Graph("recorded", 21)
    leaves = [graph.add_input(f"x{k}", *look) for k, look in enumerate(looks)]
    values = []
    for use, inputs in segment.nodes:
        given = [None if i is None else values[i] if type(i) is int and i >= 0 else leaves[-1 - i] if type(i) is int else
                 graph.add_const(f"c{len(values)}", use.constants[i[0]]) for i in inputs]
        values += graph.add_node(use.op, given, len(use.results), use.attributes, use.domain, "", use.opset)
    kinds = [kind for use, _ in segment.nodes for kind, _ in use.results]
    for value in wanted:
        graph.mark_output(values[value])
    trains = wrt and any(kinds[value] in _FLOATS for value in wanted)
    small = sum(buffer.size for buffer in segment.buffers) < _SMALL
    return _core.Function(graph, wrt=[leaves[k] for k in wrt] if trains else None, backend="interp" if small else "auto")


def record(ndarray, op, domain, opset, inputs, attributes, outputs):
    """Notes an operator; a list of arrays whose values come later.

    inputs: arrays, None for absent ones, NumPy's arrays for constants, which are part of the structure."""
    segment = state.segment
    if segment is None or not segment.pending or segment.n_values >= segment.limit:
        if segment is not None:
            segment.grow()
        segment = state.segment
        if segment is None or not segment.pending:
            segment = state.segment = Segment()
    looks, constants, places = [], {}, []
    for k, a in enumerate(inputs):
        if type(a) is ndarray:
            tape, look = a._tape, a._look
            if tape is not None and tape[0] is segment:
                places.append(tape[1])
            else:
                places.append(a)
                a._value()
                look = a._look
            looks.append(look or (types.of(a._data.dtype), a._data.shape))
        elif a is None:
            looks.append(None)
            places.append(None)
        else:
            looks.append((types.of(a.dtype), a.shape, a.tobytes()))
            constants[k] = a
            places.append((k, ))
    use = _use(op, domain, opset, attributes, tuple(looks), constants, outputs)
    segment.nodes.append((use, tuple([segment.place_of(a) if type(a) is ndarray else a for a in places])))
    made = []
    for look in use.results:
        value = segment.n_values
        array = ndarray.__new__(ndarray)
        array._look, array._tape = look, (segment, value)
        segment.holders.append((weakref.ref(array), value))
        segment.n_values = value + 1
        made.append(array)
    return made


def leave(array):
    """Takes an array off the tape: it keeps the value that it has, or gets."""
    if array._tape is not None and array._tape[0].pending:
        segment, value = array._tape
        segment.states = {value} if segment.states is None else segment.states | {value}
    else:
        array._tape = None


# -- gradients ----------------------------------------------------------------------------------------------
def gradients(heads, given, create_graph=False):
    """{id of a leaf: (leaf, gradient)} of arrays with gradients of theirs: NumPy's arrays, or, with create_graph, arrays, which have
    a history then; the thread records.

    Raises ValueError_ for a head that no recorded operator made and that is no leaf."""
    todo, by_segment, found = [], {}, {}
    for head, gradient in zip(heads, given):
        if head._tape is None:
            if head._grad_req is None:
                raise _core.ValueError_("backward: the array was not computed by recorded operators of arrays with attach_grad(), "
                                        "or its graph was given up by an earlier backward()")
            _add(found, head, gradient)
        else:
            _give(todo, by_segment, head._tape, gradient)
    while todo:
        _, segment = heapq.heappop(todo)
        asked = by_segment.pop(segment.serial)
        for k, gradient in segment.derive(asked) if create_graph else segment.backward(asked):
            if segment.sources[k] is not None:
                if gradient is not None:
                    _give(todo, by_segment, segment.sources[k], gradient)
            elif segment.leaves[k]._grad_req is not None:
                _add(found, segment.leaves[k], gradient)
    return found


def _add(found, leaf, gradient):
    """Adds to a leaf's gradient; None: nothing, but the leaf was read, so that its gradient is at least zeros."""
    old = found.get(id(leaf))
    if old is None or old[1] is None:
        found[id(leaf)] = (leaf, gradient)
    elif gradient is not None:
        found[id(leaf)] = (leaf, old[1] + gradient)


def _give(todo, by_segment, tape, gradient):
    segment, value = tape
    segment.run()
    grads = by_segment.get(segment.serial)
    if grads is None:
        grads = by_segment[segment.serial] = {}
        heapq.heappush(todo, (-segment.serial, segment))
    old = grads.get(value)
    grads[value] = gradient if old is None else old + gradient

"""One compiled segment for inputs of fixed types and ranks, whatever their extents.

The one idea: the first shapes are compiled as they are; an extent that varies becomes a symbol, one symbol for all
extents that have always been equal, so that a third length compiles nothing.  Whether such symbols may stand where
they stand is the core's to check; where it cannot work with them, every shape is compiled as it is.
Must not know: why these nodes form a segment.
"""
from ... import _core
from .values import gpu_of, to_device, to_torch

_REMEMBERED = 256


class Compiled:
    """graph: a core Graph; nodes: ids; inputs: (name, element type) in call order; wrt: names to differentiate in."""

    def __init__(self, graph, nodes, inputs, outputs, wrt, options):
        self._graph, self._nodes, self._inputs, self._outputs = graph, nodes, inputs, outputs
        self._options = {"wrt": wrt or None, **(options or {})}
        self._exact = self._function([None] * len(inputs))
        self._general = None  # the function whose varying extents are symbols, from the second shape on
        self._symbolic = True  # False once the core could not work with symbols
        self._seen = []       # shapes that differ in what varies
        self._fixed, self._shared = (), ()  # of the general function: places of constant and of equal extents
        self._known = {}      # shapes -> function

    def __call__(self, *given):
        """The outputs; raises what the core raises."""
        if self._options["wrt"]:
            given = [to_torch(x) for x in given]  # torch's tape takes nothing else
        device = gpu_of(given)
        if device is not None:  # host operators leave results of theirs on the host
            given = [to_device(x, device) for x in given]
        shapes = tuple([tuple(x.shape) for x in given])
        function = self._known.get(shapes)
        if function is None:
            return self._first_call(shapes, given)
        return function(*given)

    def function_for(self, given):
        """The function that ran with arrays of these shapes last."""
        return self._known[tuple([tuple(x.shape) for x in given])]

    def functions(self):
        """Those that have run."""
        return list(dict.fromkeys(self._known.values()))

    def _function(self, shapes):
        inputs = [(name, code, shape) for (name, code), shape in zip(self._inputs, shapes)]
        return _core.Function(self._graph.segment(self._nodes, inputs, self._outputs), **self._options)

    def _first_call(self, shapes, given):
        function, results = self._exact, None
        if self._seen and self._symbolic:
            try:
                if self._general is None or not self._fits(shapes):
                    self._widen(shapes)
                results = self._general(*given)
                function = self._general
            except _core.Error:
                results = self._exact(*given)
                self._symbolic = False
        if results is None:
            results = self._exact(*given)
        if not self._seen:
            self._seen.append(shapes)
        if len(self._known) == _REMEMBERED:  # the first shapes keep the function that is theirs alone
            del self._known[list(self._known)[1]]
        self._known[shapes] = function
        return results

    def _fits(self, shapes):
        """Whether the general function's fixed extents and shared symbols are these shapes' too."""
        extents = [d for shape in shapes for d in shape]
        return all(extents[k] == d for k, d in self._fixed) and all(extents[k] == extents[j] for k, j in self._shared)

    def _widen(self, shapes):
        """Makes the general function anew, with symbols for what differs between the shapes seen."""
        self._seen.append(shapes)
        histories = list(zip(*[[d for shape in one for d in shape] for one in self._seen]))
        first, dims = {}, []
        for k, history in enumerate(histories):
            first.setdefault(history, k)
            dims.append(history[0] if len(set(history)) == 1 else f"n{first[history]}")
        self._fixed = [(k, d) for k, d in enumerate(dims) if isinstance(d, int)]
        self._shared = [(k, first[h]) for k, h in enumerate(histories) if first[h] != k]
        left = iter(dims)
        self._general = self._function([[next(left) for _ in shape] for shape in shapes])

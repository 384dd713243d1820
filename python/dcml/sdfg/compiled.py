"""A compiled SDFG: what runs, and the SDFG that it was made of.

The one idea: the core's function takes arguments by name and writes the caller's arrays; here only results that are
passed as arguments are copied, which the graphs of models have.
Must not know: how a graph is compiled.
"""
import numpy as np

from .. import _core


class CompiledSDFG:
    """``compiled(A=a, B=b, N=5)`` runs the program.  ``sdfg``: what it was compiled from."""

    def __init__(self, sdfg, optimize=True):
        graph = sdfg.graph
        self.sdfg, self._optimize, self._function = sdfg, optimize, None
        self._results, self._inputs, self._version = tuple(graph.outputs), tuple(graph.inputs), graph.version
        self._strided = {name for name in self._inputs if graph.layout(name)[0] is not None}
        self._single = {name for name in (*self._inputs, *self._results) if graph.info(name)[1] == ()}
        self._written = {n for k in range(graph.n_states) for node in graph.nodes(k) for n in node[4]} if self._strided else ()

    def prepare(self):
        """Makes the function, for those who do not call.  Returns self."""
        from ..library import defined, implementation, is_on_cuda
        from ..onnx import host
        graph = self.sdfg.graph
        graph, options = defined(graph), {"optimize": self._optimize, **implementation(is_on_cuda(graph))}
        self._function = _Host(graph, options) if host.is_needed(graph) else _core.Function(graph, **options)
        return self

    @property
    def name(self):
        return self.sdfg.name

    def __call__(self, *args, **kwargs):
        """Runs it.

        args: arrays, tensors and numbers in the order of ``sdfg.arglist()``; kwargs: by name, symbols too.
        Arrays that the program writes are changed in place, without copies; one of a single element serves as a scalar.
        Returns the array ``__return``, a tuple of ``__return_0``, ``__return_1``, ..., or None.
        Raises ValueError_ for missing and unknown arguments, DTypeError and ShapeError for wrong ones.
        """
        if self._function is None:
            self.prepare()
        if self._single:
            args = [_element(a) if name in self._single else a for name, a in zip(self._inputs, args)] + list(args[len(self._inputs):])
            kwargs = {name: _element(a) if name in self._single else a for name, a in kwargs.items()}
        if self._strided:
            return self._call_in_rows(args, kwargs)
        return self._call(args, kwargs)

    def _call_in_rows(self, args, kwargs):
        """A call with arrays that need not lie row by row: the core gets copies that do, which are copied back."""
        given = {**dict(zip(self._inputs, args)), **kwargs}
        if len(args) > len(self._inputs) or len(given) < len(args) + len(kwargs):
            return self._call(args, kwargs)  # which says what is wrong
        copies = {name: given[name].copy("C") if isinstance(given[name], np.ndarray) else given[name].contiguous()
                  for name in self._strided & given.keys() if hasattr(given[name], "contiguous") or isinstance(given[name], np.ndarray)}
        values = self._call((), {**given, **copies})
        for name in copies.keys() & self._written:
            if isinstance(copies[name], np.ndarray):
                given[name][...] = copies[name]
            elif copies[name] is not given[name]:
                given[name].copy_(copies[name])
        return values

    def _call(self, args, kwargs):
        if not self._results:
            self._function(*args, **kwargs)
            return None
        given = {name: kwargs.pop(name) for name in self._results if name in kwargs and name not in self._inputs}
        values = self._function(*args, **kwargs)
        if given:
            values = [v for name, v in zip(self._results, values) if not _filled(given, name, v)]
        return None if not values else values[0] if len(values) == 1 else tuple(values)

    def __getattr__(self, name):  # what hooks look at is the SDFG's
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.sdfg, name)

    def __str__(self):
        return str(self.sdfg)

    def __repr__(self):
        return f"CompiledSDFG({self.sdfg.name!r})"


def _element(value):
    """An array of shape (1,), which is how DaCe holds scalars, as a view without dimensions; others as they are."""
    return value.reshape(()) if getattr(value, "shape", None) == (1,) else value


class _Host:
    """As a core function, of a graph with operators that the host runs: bodies, strings, extents that depend on values."""

    def __init__(self, graph, options):
        from ..onnx import host
        if written := [n for k in range(graph.n_states) for node in graph.nodes(k) for n in node[4] if n in graph.inputs]:
            raise _core.UnsupportedOpError(f"the program writes {written[0]!r} in place, beside operators that the host runs")
        self._program = host.Program(graph, options)

    def __call__(self, *args, **kwargs):
        from ..onnx.host.values import as_value
        names = self._program.inputs
        given = {**dict(zip(names, args)), **kwargs}
        if wrong := [name for name in names if name not in given] + [name for name in given if name not in names]:
            raise _core.ValueError_(f"argument {wrong[0]!r} is missing or unknown; the arguments are {names}")
        return self._program(*[as_value(given[name]) for name in names])


def _filled(given, name, value):
    """Copies a result into the argument that was given for it; False: there is none."""
    target = given.get(name)
    if target is None:
        return False
    if tuple(target.shape) != tuple(value.shape):
        raise _core.ShapeError(f"output {name!r} has shape {list(value.shape)}, the array given for it {list(target.shape)}")
    if hasattr(target, "copy_"):
        import torch
        target.copy_(value if isinstance(value, torch.Tensor) else torch.from_numpy(value))
    else:
        target[...] = value
    return True

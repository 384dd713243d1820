"""A compiled SDFG: what runs, and the SDFG that it was made of.

The one idea: the core's function takes arguments by name and writes the caller's arrays; here only results that are
passed as arguments are copied, which the graphs of models have.
Must not know: how a graph is compiled.
"""
from .. import _core


class CompiledSDFG:
    """``compiled(A=a, B=b, N=5)`` runs the program.  ``sdfg``: what it was compiled from."""

    def __init__(self, sdfg, optimize=True):
        graph = sdfg.graph
        self.sdfg, self._optimize, self._function = sdfg, optimize, None
        self._results, self._inputs, self._version = tuple(graph.outputs), tuple(graph.inputs), graph.version

    def prepare(self):
        """Makes the function, for those who do not call.  Returns self."""
        from ..library import implementation
        self._function = _core.Function(self.sdfg.graph, optimize=self._optimize, **implementation())
        return self

    @property
    def name(self):
        return self.sdfg.name

    def __call__(self, *args, **kwargs):
        """Runs it.

        args: arrays, tensors and numbers in the order of ``sdfg.arglist()``; kwargs: by name, symbols too.
        Arrays that the program writes are changed in place, without copies.
        Returns the array ``__return``, a tuple of ``__return_0``, ``__return_1``, ..., or None.
        Raises ValueError_ for missing and unknown arguments, DTypeError and ShapeError for wrong ones.
        """
        if self._function is None:
            self.prepare()
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

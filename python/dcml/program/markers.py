"""Names that mean something inside programs only: map, mapscope, tasklet, define_local, elementwise.

The one idea: where NumPy can do it, they also run outside, so that a program's body is ordinary Python.
Must not know: how programs are translated.
"""
import itertools

from .. import _core


class Marker:
    """A name for the translator; outside of programs it refuses."""

    def __init__(self, name, instead):
        self.__name__, self._instead = name, instead

    def _refuse(self, *_, **__):
        raise _core.ValueError_(f"dcml.{self.__name__} belongs into a function with @dcml.program; {self._instead}")

    __call__ = __enter__ = __exit__ = _refuse

    def __repr__(self):
        return f"dcml.{self.__name__}"


class Map(Marker):
    """``for i, j in dcml.map[0:N, 0:M]:`` and ``@dcml.map(_[0:N])``; outside of programs the loop runs in order."""

    def __getitem__(self, ranges):
        ranges = ranges if isinstance(ranges, tuple) else (ranges,)
        loops = [range(r.start or 0, r.stop, r.step or 1) for r in ranges]
        return iter(loops[0]) if len(loops) == 1 else itertools.product(*loops)


class Callable:
    """A function for the translator that also runs outside, by NumPy."""

    def __init__(self, name, plain):
        self.__name__, self._plain, self.__doc__ = name, plain, plain.__doc__

    def __call__(self, *args, **kwargs):
        return self._plain(*args, **kwargs)

    def __repr__(self):
        return f"dcml.{self.__name__}"


def _numpy_dtype(dtype):
    return getattr(dtype, "dtype", dtype)


def _define_local(dimensions, dtype):
    """A new array inside a program, without contents: like np.ndarray(dimensions, dtype)."""
    import numpy as np
    return np.empty(dimensions, _numpy_dtype(dtype))


def _define_local_scalar(dtype):
    """A new scalar inside a program."""
    import numpy as np
    return np.zeros((), _numpy_dtype(dtype))


def _elementwise(function, array):
    """The array of function(x) for each element x."""
    import numpy as np
    return np.vectorize(function)(array)


def _reduce(function, array, out=None, axis=None, identity=None):
    """Elements of an array combined by ``lambda a, b: a + b`` (or *, min, max) along axes; with ``out``, an array, written
    into it: over its contents where there is an identity, else combined with them."""
    import functools

    import numpy as np
    function = np.vectorize(function, otypes=[array.dtype])  # max(a, b) is for numbers
    axes = range(array.ndim) if axis is None else axis if isinstance(axis, (tuple, list)) else (axis,)
    for a in sorted((a % array.ndim for a in axes), reverse=True):
        array = functools.reduce(function, np.moveaxis(array, a, 0))
    if identity is not None:
        array = function(array, identity)
    if out is None:
        return array
    out[...] = np.reshape(array, out.shape) if identity is not None else function(out, np.reshape(array, out.shape))
    return out


map = Map("map", "it is a loop: for i, j in dcml.map[0:5, 0:3]")
mapscope = Map("mapscope", "it is a scope of statements: @dcml.mapscope(_[0:5, 0:3])")
tasklet = Marker("tasklet", "it is a block: with dcml.tasklet:")
define_local = Callable("define_local", _define_local)
define_local_scalar = Callable("define_local_scalar", _define_local_scalar)
elementwise = Callable("elementwise", _elementwise)
reduce = Callable("reduce", _reduce)

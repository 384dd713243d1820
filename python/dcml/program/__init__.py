"""Programs: functions of NumPy that become graphs.  ``dcml.program`` is this module, and the decorator.

>>> import dcml as dace
>>> import numpy as np
>>> @dace.program
... def shifted(X: dace.float32[5]):
...     return X + 1  # doctest: +SKIP
"""
import sys
import types

from .api import Program, program
from .markers import define_local, define_local_scalar, elementwise, map, mapscope, reduce, tasklet


class _Decorator(types.ModuleType):
    """Importing the package binds ``dcml.program`` to it, so that it is the decorator too."""

    def __call__(self, function=None, **options):
        return program(function, **options)


sys.modules[__name__].__class__ = _Decorator

__all__ = ["Program", "define_local", "define_local_scalar", "elementwise", "map", "mapscope", "program", "reduce", "tasklet"]

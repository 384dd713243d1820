"""Modules without files: an opset module for each version of a domain.

The one idea: a finder on sys.meta_path answers for names like ``dcml.spox.opset.ai.onnx.v17``; the module asks its
Opset for a constructor when someone asks the module, and importing it imports no more than this file.
"""
import functools
import importlib.machinery
import re
import sys
import types

from ...opsets import newest

DOMAINS = {"ai.onnx": "", "ai.onnx.ml": "ai.onnx.ml"}
_FOLDERS = {}  # name of a package -> (domain, first version)


class _Finder:
    """Finds and makes the modules of the packages in _FOLDERS."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        folder, _, last = name.rpartition(".")
        if folder not in _FOLDERS or not re.fullmatch(r"v[1-9][0-9]{0,3}", last):
            return None
        domain, first = _FOLDERS[folder]
        if not first <= int(last[1:]) <= newest(DOMAINS[domain]):
            return None
        return importlib.machinery.ModuleSpec(name, _Finder)

    @staticmethod
    def create_module(spec):
        folder, _, last = spec.name.rpartition(".")
        return _Module(spec.name, _FOLDERS[folder][0], int(last[1:]))

    @staticmethod
    def exec_module(module):
        pass


class _Module(types.ModuleType):
    def __init__(self, name, domain, version):
        super().__init__(name, f"The operators of {domain} {version}, as functions of variables.")
        self._domain, self._version = domain, version
        if domain == "ai.onnx":
            self.const = _const_of(self)

    @functools.cached_property
    def _opset(self):
        from ..operators import Opset
        return Opset(DOMAINS[self._domain], self._version)

    def __getattr__(self, name):
        if name == "__all__":
            value = [*self._opset.names(), *(["const"] if "const" in vars(self) else [])]
        elif name.startswith("__") or (value := self._opset.constructor(name)) is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        else:
            value.__module__ = self.__name__
        setattr(self, name, value)
        return value

    def __dir__(self):
        return sorted({*self.__all__, *(name for name in vars(self) if name.startswith("__"))})


def _const_of(module):
    def const(value: "npt.ArrayLike", dtype: "npt.DTypeLike | None" = None) -> "Var":  # noqa: F821
        """A constant, as an operator Constant.

        value: what numpy.array takes.  dtype: its element type; None: numpy's choice.
        """
        import numpy as np
        return module.constant(value=np.array(value, dtype))
    const.__module__ = module.__name__
    return const


def provide(package, domain, first):
    """From now on, the package has modules for the versions of a domain, from the first on."""
    _FOLDERS[package] = domain, first
    if _Finder not in sys.meta_path:
        sys.meta_path.append(_Finder)

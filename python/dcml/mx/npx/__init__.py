"""MXNet's ``npx``: operators of neural networks.

The one idea: a row of domain ``dcml.mx`` in the operator table is a function of its name, made when it is first asked
for; what needs state (running arrays, draws, the training mode) or is an operator of ONNX by another name is a function
in one of the files here, and is found first.
Must not know: how rows compute.
"""
import importlib

from ... import _core
from .rows import DOMAIN, function_of

_FILES = ("settings", "layers", "recurrent", "shapes", "draws", "quantized")


def _written():
    """{name: file} of the functions that are written in Python."""
    return {name: f"{__name__}.{file}" for file in _FILES for name in importlib.import_module(f"{__name__}.{file}").__all__}


def _rows():
    """Names of rows; those that end with an underscore are only for the functions here."""
    return {name for domain, name, _ in _core.operators() if domain == DOMAIN and not name.endswith("_")}


def __getattr__(name):
    if name == "__all__":
        return sorted(_rows() | set(_written()))
    if name.startswith("__"):
        raise AttributeError(name)
    written = _written()
    if name in written:
        value = getattr(importlib.import_module(written[name]), name)
    elif name in _rows():
        value = function_of(name)
    else:
        raise AttributeError(f"module {__name__!r} has no operator {name!r}")
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *__getattr__("__all__")})

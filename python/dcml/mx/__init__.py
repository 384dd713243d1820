"""dcml.mx: MXNet's NumPy interface on dcml's core.  ``from dcml.mx import np, npx, autograd``.

The one idea: an array holds memory of NumPy's; operators are rows of the operator table, run one by one, or, while
``autograd.record()`` is on, collected into a graph that the core runs fused and differentiates.
Must not know: torch, onnx.
"""
import importlib

_SUBMODULES = frozenset(("autograd", "np", "npx", "random"))
_DEVICES = frozenset(("Device", "cpu", "gpu", "num_gpus", "current_device"))

__all__ = sorted(_SUBMODULES | _DEVICES)


def __getattr__(name):
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _DEVICES:
        return getattr(importlib.import_module(f"{__name__}.device"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted([*globals(), *__all__])

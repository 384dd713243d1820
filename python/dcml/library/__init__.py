"""Which implementation operators get: ``with change_default(dcml.onnx, "pure"): ...``."""
import contextlib
import sys

from .. import _core

_NATIVES = {"native": None, "pure": "none", "onednn": "onednn", "openblas": "openblas", "interpreted": None}


@contextlib.contextmanager
def change_default(library, implementation):
    """Sets ``library.default_implementation`` inside the block; what is compiled there gets it.

    library: the module dcml.onnx.
    implementation: "native" (the first library that serves a node, else its expansion, compiled), "pure" (expansions
        only), "onednn" or "openblas" (that library where it serves), or "interpreted" (as native, but expansions are
        interpreted: slow, but nothing is compiled, as suits a graph that runs once).
    Raises ValueError_ for another name.
    """
    _mask(implementation)
    before = library.default_implementation
    library.default_implementation = implementation
    try:
        yield
    finally:
        library.default_implementation = before


def _mask(implementation):
    if implementation not in _NATIVES:
        raise _core.ValueError_(f"there is no implementation {implementation!r}; there are {', '.join(_NATIVES)}")
    return _NATIVES[implementation]


def implementation(cuda=False):
    """How functions made now are compiled: keywords of _core.Function."""
    onnx = sys.modules.get("dcml.onnx")
    name = onnx.default_implementation if onnx else "native"
    backend = "cuda" if cuda else "interp" if name == "interpreted" else "auto"
    return {"natives": _mask(name), "backend": backend}

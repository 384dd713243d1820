"""Which implementation operators get: ``with change_default(dcml.onnx, "pure"): ...``."""
import contextlib
import sys

from .. import _core

_NATIVES = {"native": None, "pure": "none", "onednn": "onednn", "openblas": "openblas"}


@contextlib.contextmanager
def change_default(library, implementation):
    """Sets ``library.default_implementation`` inside the block; what is compiled there gets it.

    library: the module dcml.onnx.
    implementation: "pure" (the operators' own expansions), "native" (the first library that serves a node, else its
        expansion), or "onednn" or "openblas" (that library where it serves).
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


def natives():
    """The libraries that functions made now may use, as _core.Function takes it."""
    onnx = sys.modules.get("dcml.onnx")
    return _mask(onnx.default_implementation if onnx else "native")

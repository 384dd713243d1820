"""Which implementation operators get: ``with change_default(dcml.onnx, "pure"): ...``."""
import contextlib


@contextlib.contextmanager
def change_default(library, implementation):
    """Sets ``library.default_implementation`` inside the block.

    library: the module dcml.onnx, or an operator class.
    implementation: "pure" (the operator's own expansion) or "native" (libraries where they serve), or the name of
        an implementation that was registered.
    """
    before = library.default_implementation
    library.default_implementation = implementation
    try:
        yield
    finally:
        library.default_implementation = before

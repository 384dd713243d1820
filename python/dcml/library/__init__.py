"""Which implementation operators get: ``with change_default(dcml.onnx, "pure"): ...``.

An implementation is a name.  dcml knows "native" (the first library that serves a node, else its expansion, compiled),
"pure" (the expansion), "onednn", "openblas", "cublas" and "cudnn" (that library where it serves, else the expansion),
"onnxruntime" (the package of that name, where it is installed) and, for a whole library, "interpreted" (as native, but
expansions are interpreted: slow, but nothing is compiled, as suits a graph that runs once).  Others are registered by
``dcml.onnx.op_implementations.op_implementation``.  A node gets the first of these that exists and can be applied:
``node.implementation``, ``ONNX<Op>.default_implementation``, ``dcml.onnx.default_implementation``, "native".
``DCML_VERBOSE=dispatch`` tells what was chosen, and why not another.
"""
import contextlib
import sys

from .. import _core
from .choose import MASKS, Chooser

__all__ = ["change_default", "defined", "implementation", "implement", "is_on_cuda"]


@contextlib.contextmanager
def change_default(library, implementation):
    """Sets ``library.default_implementation`` inside the block; what is compiled there gets it.

    library: the module dcml.onnx, or a class of operators as dcml.onnx.ONNXConv.
    implementation: the name of an implementation, None in a class for that of the module.  One that does not exist, or
        that a node cannot have, is passed over.
    Raises TypeError if it is no name.
    """
    if not (isinstance(implementation, str) or (implementation is None and isinstance(library, type))):
        raise TypeError(f"an implementation is the name of one, not {implementation!r}")
    before = library.default_implementation
    library.default_implementation = implementation
    try:
        yield
    finally:
        library.default_implementation = before


def implementation(cuda=False, post_onnx=None, **options):
    """How functions made now are compiled: keywords of _core.Function.

    cuda: for the GPU.  post_onnx: a hook, after which gradients that users state are taken, and Python implementations
    replace nodes.  options: other keywords,
    which stay as they are.
    """
    onnx = sys.modules.get("dcml.onnx")
    default = onnx.default_implementation if onnx else "native"
    backend = "cuda" if cuda else "interp" if default == "interpreted" else "auto"
    chooser, gradients = _chooser(default), sys.modules.get("dcml.autodiff.generate")
    steps = [post_onnx, gradients and gradients.state_gradients, chooser and chooser.implement]
    steps = [step for step in steps if step is not None]
    if steps:
        def hook(graph):
            for step in steps:
                step(graph)
            if not cuda and is_on_cuda(graph):
                raise _core.DeviceError(f"a hook put arrays of {graph.name!r} on the GPU, but this call is for the CPU: move its module "
                                        "and arguments there, or use cuda=True")
        options["post_onnx"] = hook
    return {**options, "natives": MASKS.get(default), "backend": backend}


def is_on_cuda(graph):
    """Does an array of a core Graph lie on the GPU?  Then the program runs there."""
    return any(graph.device(name) == "cuda" for name in graph.arrays)


def implement(graph):
    """Replaces, in a core Graph, operators whose implementation is in Python, by what it makes of them.

    Types and shapes of the graph must be known.  Raises what implementations raise, ModelError for one whose result does
    not fit.
    """
    onnx = sys.modules.get("dcml.onnx")
    chooser = _chooser(onnx.default_implementation if onnx else "native")
    if chooser is not None:
        chooser.implement(graph)


def defined(graph):
    """The core Graph, or, where functions of the user's are all that defines an operator of it, a copy with what they say."""
    pure = sys.modules.get("dcml.onnx.pure")
    return pure.defined(graph) if pure else graph


def _chooser(default):
    """What chooses for each node; None if the default is all there can be."""
    nodes, registry = sys.modules.get("dcml.onnx.nodes.onnx_op"), sys.modules.get("dcml.onnx.op_implementations")
    if nodes is None and registry is None and default in MASKS:
        return None
    classes = nodes.classes_made() if nodes else {}
    own = {op: cls.default_implementation for op, cls in classes.items() if cls.default_implementation is not None}
    return Chooser(default, own)

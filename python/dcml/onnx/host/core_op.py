"""One operator of the core as a function of values, for host operators that are made of others."""
import functools

from ... import _core
from . import values as v
from .compiled import Compiled

OPSET = 21


@functools.lru_cache(512)
def _compiled(op, attributes, kinds):
    graph = _core.Graph(op, OPSET)
    names = [graph.add_input(f"x{k}", code, []) for k, (code, _, _) in enumerate(kinds)]
    outputs = graph.add_node(op, names, 1, dict(attributes))
    wrt = [name for name, (_, _, learn) in zip(names, kinds) if learn]
    return Compiled(graph, [n[0] for n in graph.operators()], [(n, k[0]) for n, k in zip(names, kinds)], outputs, wrt)


def apply(op, *inputs, **attributes):
    """The first output of an ai.onnx operator; on torch's tape where an input requires a gradient."""
    kinds = tuple((v.code_of(x), x.ndim, bool(getattr(x, "requires_grad", False))) for x in inputs)
    attributes = tuple((name, tuple(a) if isinstance(a, list) else a) for name, a in attributes.items())
    return _compiled(op, attributes, kinds)(*inputs)[0]

"""Weights that become part of the program."""
from .. import _core


def parameter_to_transient(model, name):
    """Makes a parameter part of the program: no argument of the graph any more, but a constant that it holds.

    model: DaceModule, while one of its post_onnx hooks runs, or ONNXModel; its graph is changed.
    name: the parameter's, as in ``named_parameters()``.
    Raises ValueError_ if there is no such parameter, saying which there are.
    """
    graph = model.sdfg.graph
    found = dict(model.weights if hasattr(model, "weights") else model.named_parameters())
    if name not in graph.params or name not in found:
        raise _core.ValueError_(f"there is no parameter {name!r}; there are {', '.join(graph.params) or 'none'}")
    graph.set_data(name, found[name].detach().cpu().contiguous())
    graph.apply("InputToConstant", None, [name])


__all__ = ["parameter_to_transient"]

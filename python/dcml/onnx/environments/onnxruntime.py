"""Single operators run by the package onnxruntime, where it is installed.

The one idea: an operator is a model of one node; a session for it is made once, and called with views of the core's buffers.
The core asks ``refuses`` whether a node can be had, and ``bind`` for what runs it.
Must not know: when the core asks.
"""
import functools
import importlib.util
import sys

import numpy as np

_reasons = {}  # they stay here, since the core keeps pointers to them


class ONNXRuntime:
    """The environment that runs operators by onnxruntime on the processor."""
    provider = "CPUExecutionProvider"

    def __init__(self, *args, **kwargs):
        """Takes what other environments take; there is nothing to set up."""

    @classmethod
    def is_available(cls):
        """Is the package installed, with this provider?"""
        return why_not(cls.provider) is None


class ONNXRuntimeCUDA(ONNXRuntime):
    """The environment that would run operators by onnxruntime on a GPU; dcml has no memory there."""
    provider = "CUDAExecutionProvider"


def why_not(provider=ONNXRuntime.provider):
    """None, or why the package cannot run anything."""
    if "onnxruntime" not in sys.modules and importlib.util.find_spec("onnxruntime") is None:
        return "the package is not installed"
    import onnxruntime
    return None if provider in onnxruntime.get_available_providers() else f"the package has no {provider}"


def refuses(graph, node):
    """None if onnxruntime takes an operator, else the reason.

    graph: a core Graph with types and shapes; node: the operator's id.
    """
    reason = why_not() or _refusal(graph, node)
    return None if reason is None else _reasons.setdefault(reason, reason)


def _refusal(graph, node):
    try:
        _session(_model(graph, node))
    except (KeyError, TypeError, ValueError) as error:
        return f"the operator cannot be written as a model: {error}"
    except Exception as error:  # the package raises classes of its own
        return str(error).replace("\n", " ")
    return None


def bind(graph, node, arguments):
    """A function that runs an operator.

    graph, node: as for refuses.  arguments: two lists of (element type, dims), of inputs and outputs; type 0: absent.
    Returns f(views): a writable memoryview for each of them, None where absent; it fills those of the outputs.
    """
    session = _session(_model(graph, node))
    inputs, outputs = arguments
    names = [(k, f"x{k}") for k, (number, _) in enumerate(inputs) if number]
    wanted = [(k, f"y{k}") for k, (number, _) in enumerate(outputs) if number]
    known = {value.name for value in session.get_inputs()}  # constants are in the model

    def run(views):
        feeds = {name: _array(views[k], inputs[k]) for k, name in names if name in known}
        results = session.run([name for _, name in wanted], feeds)
        for (k, _), result in zip(wanted, results):
            into = _array(views[len(inputs) + k], outputs[k])
            if into.shape != result.shape or into.dtype != result.dtype:
                raise ValueError(f"output {k} is {result.dtype}{list(result.shape)}, expected {into.dtype}{list(into.shape)}")
            into[...] = result
    return run


def _array(view, described):
    number, dims = described
    dtype = _numpy(number)
    return np.frombuffer(view, dtype, int(np.prod(dims, dtype=np.int64))).reshape(dims)


def _numpy(number):
    from onnx import helper
    dtype = helper.tensor_dtype_to_np_dtype(number)
    if dtype.kind not in "biuf" or dtype.num > 24:  # types that numpy has itself
        raise TypeError(f"elements of type {dtype}")
    return dtype


@functools.lru_cache(maxsize=256)
def _session(model):
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # what it says comes as an exception, too
    return onnxruntime.InferenceSession(model, options, providers=[ONNXRuntime.provider])


def _declared(graph, name, as_name):
    from onnx import helper
    number, shape, _ = graph.info(name)
    _numpy(number)
    return helper.make_tensor_value_info(as_name, number, [extent if isinstance(extent, int) else None for extent in shape])


def _model(graph, node):
    """The bytes of a model that holds one operator; constants that it reads are in it."""
    from onnx import helper, numpy_helper
    _, op, domain, opset, _, inputs, outputs, _ = next(item for item in graph.operators() if item[0] == node)
    attributes = {name: value if not hasattr(value, "dtype") else numpy_helper.from_array(value)
                  for name, value in graph.attributes(node).items() if not name.startswith("__")}
    declared, constants = [], []
    for k, name in enumerate(inputs):
        if not name:
            continue
        if graph.info(name)[2] == "const":
            constants.append(numpy_helper.from_array(np.asarray(graph.data(name)), f"x{k}"))
        else:
            declared.append(_declared(graph, name, f"x{k}"))
    results = [_declared(graph, name, f"y{k}") for k, name in enumerate(outputs) if name]
    one = helper.make_node(op, [f"x{k}" if name else "" for k, name in enumerate(inputs)],
                           [f"y{k}" if name else "" for k, name in enumerate(outputs)], domain=domain, **attributes)
    model = helper.make_model(helper.make_graph([one], op, declared, results, constants), ir_version=8,
                              opset_imports=[helper.make_opsetid(domain, opset)])
    return model.SerializeToString()


__all__ = ["ONNXRuntime", "ONNXRuntimeCUDA", "bind", "refuses", "why_not"]

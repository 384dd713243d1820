"""The public face of differentiation; the work is the core's.

Must not know: how a gradient is derived.
"""
from .. import _core, arguments
from ..library import defined, implementation
from .base_abc import BackwardResult, any_registered
from .generate import BackwardPassGenerator, state_gradients

_FLOATS = (1, 10, 11, 16)


class AutoDiffException(_core.UnsupportedOpError):
    """A program, or an operator in it, cannot be differentiated."""


def vjp(model, inputs, output_grads, wrt=None, create_graph=False):
    """Outputs of an ONNX model and the product of a vector with its Jacobian.

    model: onnx.ModelProto, bytes, path or ONNXModel.
    inputs: {name: numpy array} of all inputs.
    output_grads: {name: numpy array} of the gradient at some or all outputs, each of its output's shape and any
        floating type; outputs left out count as zero.
    wrt: names of the inputs or initialisers to differentiate in; by default all floating-point inputs.
    create_graph: give torch tensors whose history leads through the gradients to the inputs and output_grads (torch tensors
        that require a gradient), so that they can be differentiated in turn, to any order.
    Returns ({output name: array}, {name in wrt: gradient of that value's type and shape}).
    Raises ValueError_ for unknown names, DTypeError for a value that is not floating point, UnsupportedOpError for
    an operator without gradient.
    """
    from ..onnx.model import ONNXModel
    import numpy as np
    if not isinstance(model, ONNXModel):
        model = ONNXModel("vjp", model)
    graph = model._graph
    if wrt is None:
        wrt = [name for name in model.inputs if graph.info(name)[0] in _FLOATS]
    weights = {}
    if any(name not in model.inputs for name in wrt):
        graph = defined(_core.import_onnx(model._bytes, model._base_dir, True))
        weights = {name: np.array(graph.data(name)) for name in graph.params}
    unknown = [n for n in wrt if n not in graph.inputs and n not in weights] + [
        n for n in output_grads if n not in graph.outputs]
    if unknown:
        raise _core.ValueError_(f"{unknown[0]!r} is no differentiable input or output of the model; inputs are "
                                f"{graph.inputs}, outputs {graph.outputs}")
    if model._program is not None or create_graph:
        return _vjp_by_tape(model, graph, inputs, weights, output_grads, wrt, create_graph)
    try:
        return _vjp_compiled(model, graph, inputs, weights, output_grads, wrt)
    except _core.UnsupportedOpError as error:
        model._adopt(error)
        if model._program is None:
            raise
    return _vjp_by_tape(model, graph, inputs, weights, output_grads, wrt)


def _vjp_by_tape(model, graph, inputs, weights, output_grads, wrt, create_graph=False):
    """For models with host operators, and for gradients with a history: torch's tape around the compiled segments."""
    from ..onnx.host import Program, tape
    given = {name: model._host_value(name, value) for name, value in zip(model.inputs, model._bind((), inputs))}
    program = model._program
    if weights or program is None:
        kept = vars(model).setdefault("_programs_of_gradients", {})  # by whether weights are differentiated in
        program = kept.setdefault(bool(weights), None) or Program(graph, implementation())
        kept[bool(weights)] = program
    if model._program is None and not weights:
        given.update((name, graph.data(name)) for name in graph.params)
    return tape.vjp(program, {**given, **weights}, output_grads, wrt, create_graph)


def _vjp_compiled(model, graph, inputs, weights, output_grads, wrt):
    from ..onnx.host import values as host_values
    from ..onnx.model import _NUMPY
    import numpy as np
    function = _core.Function(graph, wrt=list(wrt), **implementation())
    if weights:
        function.set_params(list(weights.values()))
    values = model._bind((), inputs)
    grads = [output_grads.get(name) for name in graph.outputs]
    grads = [g if g is None else arguments.read(
        f"gradient of output {n!r}", g, lambda g: np.asarray(host_values.as_numpy(g), _NUMPY.get(graph.info(n)[0])))
        for n, g in zip(graph.outputs, grads)]
    values = {n: model._array(n, v) for n, v in zip(graph.inputs, values)}
    outputs, gradients = function.vjp(list(values.values()), grads)
    values.update(weights)
    gradients = [np.zeros_like(values[n]) if g is None else g for n, g in zip(wrt, gradients)]
    return dict(zip(graph.outputs, outputs)), dict(zip(wrt, gradients))


def jvp(model, inputs, tangents):
    """Outputs of an ONNX model and the product of its Jacobian with a vector: the derivative along a direction.

    model: onnx.ModelProto, bytes, path or ONNXModel.
    inputs: {name: numpy array} of all inputs.
    tangents: {name: array of that input's shape} of floating-point inputs; those left out stand still.
    Returns ({output name: array}, {name of a floating-point output: its derivative}).
    Raises as vjp does.  Two reverse passes (the gradient is linear in what it is given; its own gradient is the product).
    """
    from ..onnx.model import ONNXModel
    import numpy as np
    if not isinstance(model, ONNXModel):
        model = ONNXModel("jvp", model)
    for name in tangents:
        if name not in model.inputs or model._graph.info(name)[0] not in _FLOATS:
            raise _core.ValueError_(f"{name!r} is no floating-point input of the model; inputs are {list(model.inputs)}")
    if model._program is not None:
        raise _core.UnsupportedOpError("a model with operators that the host runs has no derivative along a direction")
    values = {n: model._array(n, v) for n, v in zip(model.inputs, model._bind((), inputs))}
    directions = {n: arguments.read(f"tangent of {n!r}", t, lambda t, n=n: np.broadcast_to(np.asarray(t, values[n].dtype), values[n].shape))
                  for n, t in tangents.items()}
    graph = model._graph.clone()
    graph.run_pass("infer")
    along = _add_direction(graph, directions)
    results = _core.Function(graph, **implementation())(*values.values(), *[np.ascontiguousarray(directions[n]) for n in directions])
    n = len(graph.outputs) - len(along)
    return dict(zip(graph.outputs, results[:n])), dict(zip(along, results[n:]))


def _add_direction(graph, directions):
    """Adds an input for each direction and a result for the derivative of each floating output; the latter's names."""
    outputs = [y for y in graph.outputs if graph.info(y)[0] in _FLOATS]
    ones = [graph.add_node("OnesLike", [y], [f"any_{y}"], {}, "dcml")[0] for y in outputs]
    for y, one in zip(outputs, ones):
        graph.add_node("SeedGradient", [y, one], [f"unread_{y}"], {}, "dcml")
    gradients = [graph.add_node("GradientOf", [x], [f"gradient_{x}"], {}, "dcml")[0] for x in directions]
    for x, gradient in zip(directions, gradients):
        tangent = graph.add_input(f"tangent_{x}", *graph.info(x)[:2])
        graph.add_node("SeedGradient", [gradient, tangent], [f"unread_{x}"], {}, "dcml")
    for y, one in zip(outputs, ones):
        graph.mark_output(graph.add_node("GradientOf", [one], [f"along_{y}"], {}, "dcml")[0])
    return outputs


def add_backward_pass(sdfg, state, outputs, inputs):
    """Adds to a program the computation of gradients of one of its states, as a state after all others.

    sdfg: SDFG, changed in place; state: the state with the forward computation, which is rewritten where it overwrites
        what the gradients depend on, and computes what it did.
    outputs: names of arrays (or access nodes, descriptors) to differentiate, floating point; for each, the caller gives
        its gradient as the array ``gradient_<name>`` of its type and shape.
    inputs: names (or access nodes, descriptors) to differentiate in; for each, the caller gives the array
        ``gradient_<name>``, which is overwritten by the gradient.  Arrays of these names that are there are used.
    Raises AutoDiffException for an operator without gradient, or for updates in place that cannot be differentiated;
    ValueError_ for unknown names, DTypeError for values that are not floating point; the program is then as before.
    """
    graph = sdfg.graph
    names = [_names(values) for values in (outputs, inputs)]
    trial = defined(graph.clone())  # a failure leaves the program as it was
    try:
        if any_registered():
            trial.run_pass("infer")
            BackwardPassGenerator(trial).state_gradients(state.index)
        trial.add_backward(state.index, *names)
    except AutoDiffException:
        raise
    except _core.UnsupportedOpError as error:
        raise AutoDiffException(str(error)) from error
    graph.become(trial)


def make_backward_function(model, apply_strict=False):
    """The forward and the backward pass of a model, as programs.

    model: ONNXModel; apply_strict: simplify it before.
    Returns (forward SDFG, backward SDFG, BackwardResult, {name: descriptor}).  The forward SDFG computes the model's outputs,
    and fills the arrays that the backward SDFG needs of it; its weights that are parameters are arguments.  The backward
    SDFG takes ``gradient_<output>`` for each output and those arrays, which the last item describes, and fills
    ``gradient_<name>`` for each floating-point input and parameter; the BackwardResult says these names.
    Raises AutoDiffException for an operator without gradient, or a model that is not compiled as a whole.
    """
    from ..sdfg import SDFG
    forward = model._graph.clone()
    if apply_strict:
        forward.run_pass("tidy")
    wrt = [name for name in [*forward.inputs, *forward.params] if forward.info(name)[0] in _FLOATS]
    outputs = list(forward.outputs)
    try:
        if model._program is not None:
            raise AutoDiffException(f"model {model.name!r} has operators that the host runs")
        backward = forward.differentiate(wrt, state_gradients)
    except AutoDiffException:
        raise
    except _core.UnsupportedOpError as error:
        raise AutoDiffException(str(error)) from error
    forward, backward = SDFG(forward), SDFG(backward)
    given = {n: f"gradient_{n}" for n in outputs if f"gradient_{n}" in backward.graph.inputs}
    result = BackwardResult({n: f"gradient_{n}" for n in wrt}, given)
    ours = {*result.required_grad_names.values(), *result.given_grad_names.values()}
    return forward, backward, result, {n: backward.arrays[n] for n in backward.graph.inputs if n not in ours}


def _names(values):
    """Of arrays, from strings, access nodes or descriptors; several access nodes of an array name it once."""
    names = []
    for value in values:
        name = value if isinstance(value, str) else getattr(value, "data", None) or value.name
        if isinstance(value, str) or name not in names:
            names.append(name)
    return names

"""Operators as cases: models with inputs, what to run of each, and how results are compared.

The cases are the ONNX package's: every case of the operators that libraries serve, a few of each other operator, and larger ones that
are written here, where blocking matters.  Who runs them is the caller's.
"""
import backend_cases
import numpy as np
from onnx import TensorProto, helper, numpy_helper

import dcml
from dcml import _core

SERVED = {"Conv", "ConvTranspose", "MatMul", "Gemm"}  # by oneDNN and OpenBLAS
OF_EACH_OTHER = 1                    # cases; each compiles a few kernels
RANDOM = {"Dropout", "Bernoulli", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial"}
TOLERANCE = {"float16": 2e-2, "float32": 2e-4, "float64": 1e-10}


def made(op, shapes, opset=13, **attributes):
    """A model of one operator on float32 inputs of these shapes."""
    inputs = [helper.make_tensor_value_info(f"x{k}", TensorProto.FLOAT, shape) for k, shape in enumerate(shapes)]
    node = helper.make_node(op, [v.name for v in inputs], ["y"], **attributes)
    graph = helper.make_graph([node], op, inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


LARGE = {
    "matrices": made("MatMul", [(65, 130), (130, 47)]),
    "a batch of matrices": made("MatMul", [(3, 33, 64), (3, 64, 31)]),
    "a batch times a matrix": made("MatMul", [(2, 3, 17, 64), (64, 33)]),
    "a broadcast batch": made("MatMul", [(4, 1, 9, 16), (5, 16, 8)]),
    "a matrix and a vector": made("MatMul", [(20, 30), (30,)]),
    "Gemm with all its attributes": made("Gemm", [(40, 65), (33, 40), (65, 33)], transA=1, transB=1, alpha=0.5, beta=2.0),
    "Gemm with a row": made("Gemm", [(64, 128), (128, 10), (10,)]),
    "3x3 convolution": made("Conv", [(2, 16, 15, 14), (32, 16, 3, 3), (32,)], pads=[1, 1, 1, 1]),
    "strided convolution, uneven pads": made("Conv", [(2, 3, 17, 18), (8, 3, 5, 4)], strides=[2, 3], pads=[2, 1, 1, 0]),
    "dilated convolution": made("Conv", [(1, 8, 20, 20), (8, 8, 3, 3)], dilations=[2, 3]),
    "convolution in groups": made("Conv", [(2, 12, 9, 9), (8, 3, 3, 3), (8,)], group=4, auto_pad="SAME_UPPER"),
    "depthwise convolution": made("Conv", [(2, 24, 10, 10), (24, 1, 3, 3)], group=24, pads=[1, 1, 1, 1]),
    "1x1 convolution": made("Conv", [(2, 32, 7, 7), (48, 32, 1, 1), (48,)]),
    "convolution along one dimension": made("Conv", [(2, 4, 50), (6, 4, 7)], strides=[2]),
    "convolution along three dimensions": made("Conv", [(1, 3, 6, 7, 8), (4, 3, 2, 3, 2)], pads=[0, 1, 1, 1, 0, 1]),
    "transposed convolution": made("ConvTranspose", [(2, 16, 9, 8), (16, 12, 3, 3), (12,)], pads=[1, 0, 0, 1], strides=[2, 1]),
    "transposed convolution, longer at the end": made("ConvTranspose", [(2, 8, 5, 5), (8, 6, 3, 2), (6,)], pads=[1, 0, 1, 0],
                                                       strides=[2, 3], output_padding=[1, 2]),
    "transposed convolution in groups": made("ConvTranspose", [(2, 8, 6, 6), (8, 3, 3, 3), (12,)], group=4, dilations=[2, 1]),
    "transposed convolution along one dimension": made("ConvTranspose", [(2, 8, 20), (8, 4, 4), (4,)], strides=[2]),
    "transposed convolution along three dimensions": made("ConvTranspose", [(1, 4, 3, 4, 5), (4, 2, 2, 2, 2)], strides=[2, 2, 2]),
    "no channels to transpose": made("ConvTranspose", [(2, 0, 3, 3), (0, 4, 2, 2), (4,)]),
    "an empty batch": made("Conv", [(0, 3, 5, 5), (4, 3, 3, 3)]),
}


def array_of(value):
    if isinstance(value, TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, (np.ndarray, np.generic, int, float)) else None


def _is_small_case(case, arrays, seen):
    nodes = case.model.graph.node
    if not all(v.type.HasField("tensor_type") for v in case.model.graph.input):
        return False
    if len(nodes) != 1 or nodes[0].op_type in RANDOM or any(a is None or a.dtype.kind not in "fiub" for a in arrays):
        return False
    seen[nodes[0].op_type] = seen.get(nodes[0].op_type, 0) + 1
    return nodes[0].op_type in SERVED or seen[nodes[0].op_type] <= OF_EACH_OTHER


def table():
    rng, seen = np.random.default_rng(5), {}
    for name, model in LARGE.items():
        shapes = [[d.dim_value for d in v.type.tensor_type.shape.dim] for v in model.graph.input]
        yield name, model, [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    for case in backend_cases.collect():
        arrays = [array_of(v) for v in case.data_sets[0][0]] if case.data_sets else []
        if _is_small_case(case, arrays, seen):
            yield case.name, case.model, arrays


def _seeds(outputs):
    return [np.sin(np.arange(o.size)).reshape(o.shape).astype(o.dtype) if o.dtype.name in TOLERANCE else None for o in outputs]


def run(graph, arrays, **options):
    """Outputs, then the gradients of the floating inputs if the operator has any; and the function."""
    wrt = [name for name, a in zip(graph.inputs, arrays) if a.dtype.name in TOLERANCE]
    if not wrt:
        function = _core.Function(graph, **options)
        return list(function(*arrays)), function
    try:
        function = _core.Function(graph, wrt=wrt, **options)
        (*outputs,) = _core.Function(graph, **options)(*arrays)
        return outputs + list(function.vjp(arrays, _seeds(outputs))[1]), function
    except (dcml.UnsupportedOpError, dcml.DTypeError):
        function = _core.Function(graph, **options)
        return list(function(*arrays)), function


def run_again(graph, arrays, results, **options):
    """As ``run``, which gave these results elsewhere: outputs are those of the forward pass that gradients need, so that less compiles."""
    n = len(graph.outputs)
    if len(results) == n:
        return list(_core.Function(graph, **options)(*arrays))
    wrt = [name for name, a in zip(graph.inputs, arrays) if a.dtype.name in TOLERANCE]
    outputs, gradients = _core.Function(graph, wrt=wrt, **options).vjp(arrays, _seeds(results[:n]))
    return [*outputs, *gradients]


def check(got, want, what):
    if want is None:  # a gradient that is zero everywhere
        assert got is None, what
        return
    assert got.dtype == want.dtype and got.shape == want.shape, what
    if got.dtype.name not in TOLERANCE:
        np.testing.assert_array_equal(got, want, what)
        return
    tolerance, got, want = TOLERANCE[got.dtype.name], got.astype(np.float64), want.astype(np.float64)
    finite = want[np.isfinite(want)]
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * max(1, np.abs(finite).max(initial=0)), err_msg=what)

"""What a model costs before its first result grows with its nodes, and not faster.

Each shape is imported, compiled and run at several sizes, and a line is fitted through the logarithms of nodes and of
processor time; its slope is 1 for linear time and 2 for quadratic.  Only this process's time counts, not the clock's,
so that a busy machine disturbs little; a slope that is too steep is measured once more before it counts.
"""
import gc
import math
import time

import numpy as np
import pytest
from onnx import TensorProto, helper

from dcml.onnx import ONNXModel

STEEPEST = 1.25  # n log n from 1,000 to 64,000 nodes has 1.12
ELEMENTS = 16
UNARY = ("Relu", "Tanh", "Sigmoid", "Neg", "Softplus", "Abs")


def unary(k, source, target):
    return helper.make_node(UNARY[k % len(UNARY)], [source], [target])


def add(a, b, target):
    return helper.make_node("Add", [a, b], [target])


def chain(n):
    return [unary(k, f"x{k}" if k else "x", f"x{k + 1}") for k in range(n)], [f"x{n}"]


def residual_chain(n):
    nodes, value = [], "x"
    for k in range(n // 2):
        nodes += [unary(1, value, f"f{k}"), add(value, f"f{k}", f"x{k}")]
        value = f"x{k}"
    return nodes, [value]


def tree(n):
    level = [f"leaf{k}" for k in range((n + 1) // 2)]
    nodes = [unary(k, "x", name) for k, name in enumerate(level)]
    while len(level) > 1:
        pairs = [(a, b, f"t{len(nodes) + k}") for k, (a, b) in enumerate(zip(level[::2], level[1::2]))]
        nodes += [add(*pair) for pair in pairs]
        level = [name for _, _, name in pairs] + level[2 * len(pairs):]
    return nodes, level


def one_value_read_by_all(n):
    nodes, total = [unary(1, "x", "value")], "value"
    for k in range(n // 2):
        nodes += [unary(k, "value", f"f{k}"), add(total, f"f{k}", f"s{k}")]
        total = f"s{k}"
    return nodes, [total]


def many_outputs(n):
    return [unary(k, "x", f"y{k}") for k in range(n)], [f"y{k}" for k in range(n)]


def sums_between(n):
    """Reductions, so that neighbours do not merge into one kernel."""
    nodes, value = [], "x"
    for k in range(n // 3):
        nodes += [helper.make_node("ReduceMean", [value], [f"m{k}"], keepdims=1),
                  helper.make_node("Sub", [value, f"m{k}"], [f"d{k}"]), unary(1, f"d{k}", f"x{k}")]
        value = f"x{k}"
    return nodes, [value]


def model_of(shape, n):
    nodes, outputs = shape(n)
    typed = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [ELEMENTS]) for name in ["x", *outputs]]
    graph = helper.make_graph(nodes, "g", typed[:1], typed[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def run(data, with_gradient):
    """The time to the first result and, if asked for, its gradient."""
    x = np.linspace(-1, 1, ELEMENTS, dtype=np.float32)
    if with_gradient:
        import torch
        x = torch.from_numpy(x).requires_grad_()
    gc.collect()
    begin = time.process_time()
    results = ONNXModel("m", data)(x)
    if with_gradient:
        results = results if isinstance(results, tuple) else (results,)
        torch.autograd.backward(results, [torch.ones(ELEMENTS) for _ in results])
        assert x.grad is not None
    return time.process_time() - begin


def slope_of(seconds):
    points = [(math.log(n), math.log(s)) for n, s in seconds.items()]
    middle = [sum(values) / len(points) for values in zip(*points)]
    return sum((x - middle[0]) * (y - middle[1]) for x, y in points) / sum((x - middle[0]) ** 2 for x, _ in points)


def check(shape, sizes, with_gradient):
    run(model_of(shape, 64), with_gradient)  # rows of operators are read on first use
    models = {n: model_of(shape, n) for n in sizes}
    seconds = {n: min(run(data, with_gradient) for _ in range(2 if n < 16000 else 1)) for n, data in models.items()}
    if slope_of(seconds) > STEEPEST:
        seconds = {n: min(seconds[n], run(data, with_gradient)) for n, data in models.items()}
    assert slope_of(seconds) <= STEEPEST, {n: round(s, 3) for n, s in seconds.items()}


SHAPES = (chain, residual_chain, tree, one_value_read_by_all, many_outputs)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_the_first_result_takes_time_linear_in_the_nodes(shape):
    check(shape, (1000, 8000, 64000), with_gradient=False)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_the_first_gradient_takes_time_linear_in_the_nodes(shape):
    check(shape, (1000, 4000, 16000), with_gradient=True)


@pytest.mark.parametrize("with_gradient", (False, True), ids=("forward", "gradient"))
def test_kernels_that_do_not_merge_take_time_linear_in_their_number(with_gradient):
    check(sums_between, (500, 2000, 8000), with_gradient)


def test_a_quadratic_time_would_be_noticed():
    assert slope_of({n: n * n * 1e-8 + n * 1e-5 for n in (1000, 8000, 64000)}) > STEEPEST
    assert slope_of({n: n * math.log(n) for n in (1000, 8000, 64000)}) < STEEPEST

"""Operators given shapes, indices and attributes that do not fit: a result or a dcml.Error, never a read beyond an operand.

Meant to run under the address sanitizer as well.
"""
import random

import numpy as np
import pytest

import dcml
import gradient_cases
from dcml import _core

CODES = {"float64": 11, "float32": 1, "int64": 7, "int32": 6, "bool": 9, "uint8": 2}


def _run(op, arrays, outputs, attrs, opset, domain=""):
    graph = _core.Graph(op, opset)
    names = [None if a is None else graph.add_input(f"x{k}", CODES[a.dtype.name], list(a.shape)) for k, a in enumerate(arrays)]
    for name in graph.add_node(op, names, outputs, attrs, domain):
        graph.mark_output(name)
    given = [a for a in arrays if a is not None]
    results = _core.Function(graph, backend="interp")(*given)
    wrt = [n for n, a in zip(graph.inputs, given) if a.dtype == np.float64]
    seeds = [np.ones(r.shape) if r.dtype == np.float64 else None for r in results]
    _core.Function(graph, wrt=wrt, backend="interp").vjp(given, seeds)


def _resized(array, rng):
    """The same with one extent changed, or one more dimension."""
    if not array.ndim or rng.random() < 0.2:
        return array[None]
    shape, axis = list(array.shape), rng.randrange(array.ndim)
    shape[axis] = max(0, shape[axis] + rng.choice([-2, -1, 1, 3]))
    return np.resize(array, shape) if np.prod(shape) and array.size else np.zeros(shape, array.dtype)


def _mutant(case, rng):
    arrays, attrs = gradient_cases.arrays(case), dict(case.attrs)
    k = rng.randrange(len(arrays) + bool(attrs))
    if k == len(arrays):
        name = rng.choice(list(attrs))
        value, step = attrs[name], rng.choice([-2, -1, 1, 2])
        if isinstance(value, list) and isinstance(value[0], int):
            j = rng.randrange(len(value))
            attrs[name] = [v + step * (i == j) for i, v in enumerate(value)]
        elif isinstance(value, int):
            attrs[name] = value + step
    elif arrays[k] is not None:
        whole = arrays[k].dtype.kind == "i" and rng.random() < 0.3
        arrays[k] = arrays[k] + rng.choice([-3, 1, 7]) if whole else _resized(arrays[k], rng)
    return arrays, attrs


@pytest.mark.parametrize("case", gradient_cases.CASES, ids=str)
def test_mutants_give_a_result_or_an_error(case):
    rng = random.Random(str(case))
    for _ in range(5):
        arrays, attrs = _mutant(case, rng)
        try:
            _run(case.op, arrays, case.outputs, attrs, case.opset, case.domain)
        except dcml.Error:
            continue


def _ones(*shape):
    return np.ones(shape)


@pytest.mark.parametrize("op, arrays, attrs, opset", [
    ("MatMul", (_ones(2, 1), _ones(3, 4)), {}, 13), ("Gemm", (_ones(2, 3), _ones(3, 4), _ones(3)), {}, 13),
    ("Conv", (_ones(1, 1, 4), _ones(2, 6, 2)), {}, 22), ("Conv", (_ones(1, 4, 4), _ones(3, 2, 2)), {"group": 2}, 22),
    ("Conv", (_ones(1, 1, 4), _ones(2, 1, 2)), {"kernel_shape": [3]}, 22), ("ConvTranspose", (_ones(1, 2, 4), _ones(2, 3, 2), _ones(2)), {}, 22),
    ("LayerNormalization", (_ones(2, 4), _ones(3)), {}, 17), ("GroupNormalization", (_ones(2, 5, 3), _ones(5), _ones(5)), {"num_groups": 2}, 21),
    ("GatherElements", (_ones(2, 3), np.zeros((5, 1), np.int64)), {"axis": 1}, 13), ("Split", (_ones(2, 7), np.array([3, 5])), {"axis": 1}, 13),
    ("LSTM", (_ones(3, 2, 4), _ones(1, 12, 4), _ones(1, 12, 5)), {}, 22), ("RotaryEmbedding", (_ones(1, 2, 3, 8), _ones(1, 2, 4), _ones(1, 2, 4)), {}, 23),
    ("QuantizeLinear", (_ones(2, 3).astype(np.float32), _ones(2).astype(np.float32)), {"axis": 1}, 13),
    ("Pad", (np.zeros((2, 0)), np.array([0, 1, 0, 1])), {"mode": "edge"}, 13)], ids=lambda v: v if isinstance(v, str) else "")
def test_extents_that_do_not_agree_are_shape_errors(op, arrays, attrs, opset):
    with pytest.raises(dcml.ShapeError):
        _run(op, arrays, 1 if op != "Split" else 2, attrs, opset)

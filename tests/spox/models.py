"""Models as functions of a Spox and an opset module: one table that the tests of values, of gradients and of Spox's own models share.

A case takes (spox, op) and gives (inputs, outputs) for build(); ``arrays`` makes values for its inputs.
"""
import numpy as np


def arithmetic(spox, op):
    a, b, c = (spox.argument(spox.Tensor(np.float32, ("N",))) for _ in range(3))
    return {"a": a, "b": b, "c": c}, {"r": op.add(op.mul(a, b), c)}


def constants(spox, op):
    x = spox.argument(spox.Tensor(np.float32, ("N", 3)))
    return {"x": x}, {"y": op.mul(x, op.const(2.0, np.float32)), "z": op.concat([x, op.const(np.ones((1, 3), "f"))], axis=0)}


def convolution(spox, op):
    x = spox.argument(spox.Tensor(np.float32, ("N", 3, 8, 8)))
    w = op.const(np.linspace(-1, 1, 4 * 27, dtype="f").reshape(4, 3, 3, 3))
    y = op.relu(op.conv(x, w, pads=[1, 1, 1, 1], strides=(2, 2)))
    return {"x": x}, {"y": op.flatten(op.average_pool(y, kernel_shape=[2, 2]))}


def two_outputs_of_which_one_is_used(spox, op):
    x = spox.argument(spox.Tensor(np.float32, (6,)))
    values, _ = op.top_k(x, op.const([2]))
    return {"x": x}, {"y": values}


def parts(spox, op):
    x = spox.argument(spox.Tensor(np.float32, (6, 2)))
    a, b, c = op.split(x, outputs_count=3, axis=0)
    return {"x": x}, {"y": op.add(op.sub(a, b), c)}


def an_input_left_out_in_the_middle(spox, op):
    x = spox.argument(spox.Tensor(np.float32, (5,)))
    return {"x": x}, {"y": op.clip(x, None, op.const(0.25, np.float32))}


def branches(spox, op):
    c = spox.argument(spox.Tensor(bool, ()))
    x = spox.argument(spox.Tensor(np.float32, (3,)))
    y = op.mul(x, x)
    r, s = op.if_(c, then_branch=lambda: (op.add(y, x), y), else_branch=lambda: (op.exp(x), op.neg(y)))
    return {"c": c, "x": x}, {"r": r, "s": s}


def a_loop(spox, op):
    n = spox.argument(spox.Tensor(np.int64, ()))
    x = spox.argument(spox.Tensor(np.float32, (3,)))
    scale = op.mul(x, op.const(0.5, np.float32))
    last, all_of = op.loop(n, v_initial=[x], body=lambda i, go, v: [op.const(True), op.add(op.tanh(v), scale), op.mul(v, scale)])
    return {"n": n, "x": x}, {"last": last, "all": all_of}


def loops_in_branches(spox, op):
    c = spox.argument(spox.Tensor(bool, ()))
    x = spox.argument(spox.Tensor(np.float32, (2,)))
    y = op.add(x, op.const(1.0, np.float32))

    def looped():
        final, = op.loop(op.const(3), v_initial=[x], body=lambda i, go, v: [go, op.if_(c, then_branch=lambda: [op.mul(v, y)], else_branch=lambda: [v])[0]])
        return [final]
    return {"c": c, "x": x}, {"y": op.if_(c, then_branch=looped, else_branch=lambda: [y])[0]}


def a_scan(spox, op):
    x = spox.argument(spox.Tensor(np.float32, (4, 3)))
    start = op.const(np.zeros(3, "f"))
    final, sums = op.scan([start, x], body=lambda s, v: [t := op.add(s, v), op.exp(t)], num_scan_inputs=1)
    return {"x": x}, {"final": final, "sums": sums}


def a_mapped_sequence(spox, op):
    x = spox.argument(spox.Tensor(np.float32, (4, 3)))
    parts = op.split_to_sequence(x, axis=0, keepdims=1)
    doubled, = op.sequence_map(parts, body=lambda v: [op.add(v, v)])
    return {"x": x}, {"y": op.concat_from_sequence(doubled, axis=0)}


def shapes_from_shapes(spox, op):
    x = spox.argument(spox.Tensor(np.float32, ("N", 3, 4)))
    n = op.slice(op.shape(x), op.const([0]), op.const([1]))
    return {"x": x}, {"y": op.reshape(x, op.concat([n, op.const([12])], axis=0))}


def normalised(spox, op):
    x = spox.argument(spox.Tensor(np.float32, ("B", 8)))
    y, _, _ = op.layer_normalization(x, op.const(np.linspace(0.5, 1.5, 8, dtype="f")), op.const(np.zeros(8, "f")))
    return {"x": x}, {"y": op.softmax(op.matmul(y, op.const(np.linspace(-1, 1, 32, dtype="f").reshape(8, 4))))}


def casts(spox, op):
    x = spox.argument(spox.Tensor(np.int64, (3,)))
    return {"x": x}, {"y": op.cast(op.cast(x, to=np.float32), to=float), "s": op.cast(x, to=str)}


def an_argument_that_is_a_result(spox, op):
    x, y = (spox.argument(spox.Tensor(np.float32, (2,))) for _ in range(2))
    return {"x": x, "y": y}, {"again": x, "sum": op.sum([x, y, x])}


CASES = [arithmetic, constants, convolution, two_outputs_of_which_one_is_used, parts, an_input_left_out_in_the_middle, branches, a_loop, loops_in_branches,
         a_scan, a_mapped_sequence, shapes_from_shapes, normalised, casts, an_argument_that_is_a_result]
_SYMBOLS = {"N": 5, "B": 3}


def arrays(inputs, seed=0):
    """A value for each input."""
    random = np.random.default_rng(seed)
    values = {}
    for name, var in inputs.items():
        kind = var.unwrap_tensor()
        shape = [_SYMBOLS.get(d, d) for d in kind.shape]
        if kind.dtype == np.int64:
            values[name] = np.full(shape, 3, np.int64)
        else:
            values[name] = np.asarray(random.random(shape) > 0.3 if kind.dtype == bool else random.standard_normal(shape), kind.dtype)
    return values

"""FlexAttention: attention whose scores and probabilities pass through subgraphs.

Source: ai.onnx.preview.FlexAttention.
"""
import numpy as np

from ... import _core
from . import values as v
from .core_op import apply


def _checked(body, x):
    """The subgraph's only output, which must be of its input's type and shape."""
    results = body(x)
    if len(results) != 1 or tuple(v.as_tensor(results[0]).shape) != tuple(x.shape) or v.code_of(results[0]) != v.code_of(x):
        raise _core.ShapeError("a subgraph changes the number, type or shape of what it is given")
    return results[0]


def _reshaped(x, *shape):
    return apply("Reshape", x, np.array(shape, np.int64))


def flex_attention(call, queries, keys, values):
    """softmax(q k' scale) v, with score_mod before the softmax and prob_mod behind it.

    queries: [batch, heads, rows, size]; keys, values: [batch, shared, columns, size], shared by groups of heads.
    """
    if not (queries.ndim == keys.ndim == values.ndim == 4 and queries.shape[0] == keys.shape[0]
            and queries.shape[3] == keys.shape[3] and keys.shape[:3] == values.shape[:3]):
        raise _core.ShapeError(f"queries {list(queries.shape)}, keys {list(keys.shape)} and values {list(values.shape)}"
                               " do not go together")
    (batch, heads, rows, size), (shared, columns) = queries.shape, keys.shape[1:3]
    if not shared or heads % shared:
        raise _core.ShapeError(f"{heads} heads of queries are no multiple of {shared}")
    code, group = v.code_of(queries), heads // shared
    precise = call.get("softmax_precision", 11 if code == 11 else 1)
    root = np.asarray(np.sqrt(np.float32(call.get("scale", 1 / np.sqrt(max(size, 1))))), v.dtype_of(code))

    q = _reshaped(apply("Mul", queries, root), batch, shared, group, rows, size)
    k = _reshaped(apply("Mul", keys, root), batch, shared, 1, columns, size)
    scores = apply("MatMul", q, apply("Transpose", k, perm=[0, 1, 2, 4, 3]))
    scores = apply("Cast", _reshaped(scores, batch, heads, rows, columns), to=precise)
    if call.get("score_mod"):
        scores = _checked(call.body("score_mod", 1), scores)
    weights = apply("Softmax", scores, axis=-1)
    if call.get("prob_mod"):
        weights = _checked(call.body("prob_mod", 1), weights)
    values_5d = apply("Cast", _reshaped(values, batch, shared, 1, columns, values.shape[3]), to=precise)
    mixed = apply("MatMul", _reshaped(weights, batch, shared, group, rows, columns), values_5d)
    return [apply("Cast", _reshaped(mixed, batch, heads, rows, values.shape[3]), to=code)]

"""Operators of ai.onnx.ml on strings and maps.

Source: ONNX's ai.onnx.ml operators.
"""
import math
import statistics

import numpy as np

from ... import _core
from . import values as v
from .compiled import Compiled

_KINDS = (("strings", "string", "_Unused", object), ("int64s", "int64", -1, np.int64),
          ("floats", "float", -0.0, np.float32))


def _plain(x):
    """An element as a dictionary key: NaN is one key."""
    x = x.item() if hasattr(x, "item") else x
    return "nan" if isinstance(x, float) and math.isnan(x) else x


def _table(node, side):
    """(values, default, type) of one side of a LabelEncoder."""
    tensor = node.get(f"{side}_tensor")
    if tensor is not None:
        given = node.get("default_tensor")
        default = {"O": "_Unused", "f": -0.0}.get(tensor.dtype.kind, -1) if given is None else given.reshape(-1)[0]
        return list(tensor.ravel()), default, tensor.dtype
    for plural, name, default, dtype in _KINDS:
        values = node.get(f"{side}_{plural}")
        if values is not None:
            return values, node.get(f"default_{name}", default), dtype
    raise _core.ModelError(f"there are no {side}")


def _lookup(x, table, default, dtype):
    found = [table.get(_plain(e), default) for e in v.as_numpy(x).ravel()]
    out = np.empty(len(found), dtype)
    out[:] = found
    return out.reshape(x.shape)


def label_encoder(node, x):
    """LabelEncoder: each element's value in a table of keys; version 1 numbers its class names."""
    if node.opset < 2:
        return category_mapper(node, x, node["classes_strings"], range(len(node["classes_strings"])))
    keys, _, kind = _table(node, "keys")
    values, default, dtype = _table(node, "values")
    if len(keys) != len(values):
        raise _core.ModelError(f"{len(keys)} keys, but {len(values)} values")
    if np.dtype(kind) == np.float32:
        keys = np.asarray(keys, np.float32)
    return [_lookup(x, {_plain(k): value for k, value in zip(keys, values)}, default, dtype)]


def category_mapper(node, x, names=None, numbers=None):
    """CategoryMapper: names to numbers, or numbers to names."""
    names = node["cats_strings"] if names is None else names
    numbers = node["cats_int64s"] if numbers is None else numbers
    if v.is_string(x):
        return [_lookup(x, dict(zip(names, numbers)), node.get("default_int64", -1), np.int64)]
    return [_lookup(x, dict(zip(numbers, names)), node.get("default_string", "_Unused"), object)]


def dict_vectorizer(node, x):
    """DictVectorizer: a map's values in the order of the vocabulary, zeros where it has none."""
    vocabulary = node.get("string_vocabulary") or node["int64_vocabulary"]
    x = {_plain(k): value for k, value in x.items()}
    kinds = [np.asarray(value) for value in x.values()]
    dtype = object if kinds and kinds[0].dtype.kind in "OU" else kinds[0].dtype if kinds else np.float32
    zero = "" if dtype is object else 0
    out = np.empty(len(vocabulary), dtype)
    out[:] = [x.get(word, zero) for word in vocabulary]
    return [out]


def zip_map(node, x):
    """ZipMap: for each row a map from class label to its score."""
    labels = node.get("classlabels_strings") or node.get("classlabels_int64s")
    rows = v.as_numpy(x)
    rows = rows.reshape(1, -1) if rows.ndim == 1 else rows
    if not labels or rows.ndim != 2 or rows.shape[1] != len(labels):
        raise _core.ShapeError(f"{len(labels or ())} labels for scores of shape {list(x.shape)}")
    return [[dict(zip(labels, row)) for row in rows]]


_CASTS = {"TO_FLOAT": (np.float32, float), "TO_STRING": (object, str), "TO_INT64": (np.int64, lambda s: int(float(s)))}


def cast_map(node, x):
    """CastMap: a map's values in the order of its keys, or (SPARSE) at the places that the keys say."""
    target = node.get("cast_to", "TO_FLOAT")
    if target not in _CASTS:
        raise _core.ModelError(f"cast_to {target!r} is none of {', '.join(_CASTS)}")
    dtype, convert = _CASTS[target]
    items = sorted((int(k), convert(value.item() if hasattr(value, "item") else value)) for k, value in x.items())
    if node.get("map_form", "DENSE") == "SPARSE":
        size = node.get("max_map", 1)
        if not 0 < size <= 1 << 24:
            raise _core.ModelError(f"max_map is {size}")
        zero, table = "" if dtype is object else 0, dict(items)
        items = [(k, table.get(k, zero)) for k in range(size)]
    out = np.empty(len(items), dtype)
    out[:] = [value for _, value in items]
    return [out]


def _by_number(node, x, labels, dropped=()):
    """(position of the label, scores) of a classifier, from the core; attributes in ``dropped`` are left out."""
    kind = (v.code_of(x), x.ndim)
    if kind not in node.memory:
        graph = _core.Graph(node.op, 21)
        dropped = {"classlabels_strings", *dropped}
        attributes = {name: value for name, value in node.attributes.items() if name not in dropped}
        attributes["classlabels_int64s" if node.op.startswith("Tree") else "classlabels_ints"] = list(range(len(labels)))
        graph.add_input("x", v.code_of(x), [0] * x.ndim)
        graph.add_node(node.op, ["x"], ["y", "z"], attributes, domain="ai.onnx.ml", opset=node.opset)
        node.memory[kind] = Compiled(graph, [graph.operators()[0][0]], [("x", v.code_of(x))], ["y", "z"], (), None)
    numbers, scores = node.memory[kind](x)
    return v.as_numpy(numbers), scores


def text_classifier(node, x):
    """A classifier whose labels are texts: the core gives their numbers."""
    labels = node["classlabels_strings"]
    numbers, scores = _by_number(node, x, labels)
    return [np.array(labels, object)[numbers], scores]


def needs_svm(attributes):
    """Is an SVMClassifier of these attributes one for svm_classifier?"""
    labels = attributes.get("classlabels_strings") or attributes.get("classlabels_ints") or ()
    return bool(attributes.get("classlabels_strings") or (attributes.get("prob_a") and len(labels) > 2))


def svm_classifier(node, x):
    """SVMClassifier with texts as labels or with probabilities of more than two classes, which are coupled from those of
    pairs (Wu, Lin and Weng, JMLR 5, 2004)."""
    texts = node.get("classlabels_strings")
    if not node.get("prob_a") or len(texts or node["classlabels_ints"]) <= 2:
        return text_classifier(node, x)
    labels = np.array(texts, object) if texts else np.array(node["classlabels_ints"], np.int64)
    numbers, pairs = _by_number(node, x, labels, ("prob_a", "prob_b", "post_transform"))
    slopes, offsets, count = np.array(node["prob_a"]), np.array(node["prob_b"]), len(labels)
    first, second = np.triu_indices(count, 1)
    if not len(slopes) == len(offsets) == len(first):
        raise _core.ModelError(f"{len(slopes)} and {len(offsets)} numbers in prob_a and prob_b for {len(first)} pairs of classes")
    with np.errstate(over="ignore"):
        wins = np.clip(1 / (1 + np.exp(v.as_numpy(pairs).astype(float) * slopes + offsets)), 1e-7, 1 - 1e-7)
    between = np.zeros((len(wins), count, count))
    between[:, first, second], between[:, second, first] = wins, 1 - wins
    return [labels[numbers], _transformed(_coupled(between), node.get("post_transform", "NONE")).astype(np.float32)]


def _coupled(between):
    """Probabilities of classes [N, K] from between[n, i, j], the probability of i if it is i or j."""
    count = between.shape[1]
    products = -np.swapaxes(between, 1, 2) * between
    every = np.arange(count)
    products[:, every, every] = (between ** 2).sum(1)
    p = np.full(between.shape[:2], 1 / count)
    for _ in range(max(100, count)):
        slope = np.einsum("nij,nj->ni", products, p)
        mean = (p * slope).sum(1)
        busy = np.abs(slope - mean[:, None]).max(1, initial=0) >= 0.005 / count
        if not busy.any():
            break
        for k in range(count):
            step = np.where(busy, (mean - slope[:, k]) / products[:, k, k], 0)
            p[:, k] += step
            mean = (mean + step * (step * products[:, k, k] + 2 * slope[:, k])) / (1 + step) ** 2
            slope = (slope + step[:, None] * products[:, k]) / (1 + step)[:, None]
            p /= (1 + step)[:, None]
    return p


def _transformed(scores, kind):
    """The scores of several classes after ``post_transform``."""
    if kind == "NONE":
        return scores
    if kind == "LOGISTIC":
        return 1 / (1 + np.exp(-scores))
    if kind == "SOFTMAX":
        powers = np.exp(scores - scores.max(1, keepdims=True))
        return powers / powers.sum(1, keepdims=True)
    if kind == "SOFTMAX_ZERO":
        powers = np.where(scores == 0, 0, np.exp(scores - scores.max(1, keepdims=True)))
        return powers / powers.sum(1, keepdims=True)
    if kind == "PROBIT":
        return np.vectorize(statistics.NormalDist().inv_cdf)(scores)
    raise _core.ModelError(f"post_transform is {kind!r}")


def one_hot_encoder(node, x):
    """OneHotEncoder: 1 at the place of each element's category; an unknown one is all zeros, or an error."""
    categories = node["cats_strings"] if v.is_string(x) else node["cats_int64s"]
    place = {c: k for k, c in enumerate(categories)}
    out = np.zeros((v.as_numpy(x).size, len(categories)), np.float32)
    for row, e in zip(out, v.as_numpy(x).ravel()):
        k = place.get(e if isinstance(e, str) else int(e))
        if k is not None:
            row[k] = 1
        elif not node.get("zeros", 1):
            raise _core.ValueError_(f"{e!r} is no category")
    return [out.reshape(*x.shape, len(categories))]


def _one_hot_bytes(node, x):
    return 4 * v.as_numpy(x).size * max(len(node.get("cats_int64s", ())), len(node.get("cats_strings", ())))


one_hot_encoder.estimate = _one_hot_bytes

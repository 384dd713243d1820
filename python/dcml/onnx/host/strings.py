"""Operators on strings, which are arrays of Python str objects; those that only move elements, on complex numbers too.

The one idea: for an operator that only moves or compares elements, a string is its number in a sorted table; the core
runs the operator on the numbers.
Sources: ONNX String*, RegexFullMatch, TfIdfVectorizer, Cast.
"""
import re

import numpy as np

from ... import _core
from . import values as v
from .budget import PIECE
from .regex import Pattern


def _objects(items, shape):
    array = np.empty(len(items), object)
    array[:] = items
    return array.reshape(shape)


def _map(function, x):
    return _objects([function(s) for s in x.ravel()], x.shape)


# ---- operators of the core on strings, sequences and optionals: (node, alone) -> function ----

def same(node, alone):
    """Identity of any value."""
    return lambda call, value: [value]


def encode(*arrays):
    """A table of the elements, and the arrays as places in it; '' or 0, which operators fill up with, comes first.

    Strings are sorted and equal ones have one place; complex numbers have a place each.
    """
    if v.is_complex(arrays[0]):
        table = np.concatenate([np.zeros(1, arrays[0].dtype), *(a.ravel() for a in arrays)])
        starts = np.cumsum([1, *(a.size for a in arrays)])
        return table, [np.arange(a.size).reshape(a.shape) + start for a, start in zip(arrays, starts)]
    table = sorted({"", *(s for a in arrays for s in a.ravel())})
    place = {s: k for k, s in enumerate(table)}
    return _objects(table, len(table)), [np.array([place[s] for s in a.ravel()], np.int64).reshape(a.shape) for a in arrays]


def by_codes(node, alone):
    """Runs the operator itself on the strings' places in a table."""
    keeps = node.op not in ("Equal", "Shape", "Size")

    def run(call, *given):
        if any(not v.is_kind(value, "x") for value in given if value is not None):
            raise _core.DTypeError(f"{node.op} of sequences, optionals or maps is not defined")
        env = dict(zip(node.inputs, given))
        names = [name for name, value in env.items() if name and not v.code_of(value)]
        if len({env[name].dtype for name in names}) != 1:
            raise _core.DTypeError(f"{node.op} of strings and complex numbers, or of complex numbers of two types")
        table, codes = encode(*(env[name] for name in names))
        env.update(zip(names, codes))
        alone.run(env)
        results = [env[name] if name else None for name in node.outputs]
        return [np.asarray(table[v.as_numpy(r)], table.dtype) if keeps and r is not None else r for r in results]
    return run


_WORDS = {"nan": "NaN", "inf": "INF", "-inf": "-INF"}
_FLOATS = {"inf": "inf", "+inf": "inf", "-inf": "-inf", "nan": "nan"}


def _as_text(array):
    """Numbers as text: the shortest that reads back as the same number."""
    if array.dtype.kind in "biu":
        return _map(lambda x: str(int(x)), array)
    return _objects([_WORDS.get(str(x), str(x)) for x in array.ravel()], array.shape)


def _parsed(array, code):
    dtype = v.dtype_of(code)
    if code == v.STRING:
        return array
    if dtype.kind in "iu":
        return _map(lambda s: int(float(s)) if not s.strip().lstrip("+-").isdigit() else int(s), array).astype(dtype)
    numbers = _map(lambda s: float(_FLOATS.get(s.strip().lower(), s)), array).astype(np.float64)
    return numbers != 0 if dtype.kind == "b" else numbers.astype(dtype)


def cast(node, alone):
    """Cast of strings to numbers."""
    return lambda call, x: [_parsed(_strings(x), call["to"])]


def _strings(x):
    if not v.is_string(x):
        raise _core.DTypeError(f"{v.describe(x)} where strings were expected")
    return x


def cast_like(node, alone):
    """CastLike from or to strings."""
    def run(call, x, like):
        if v.is_string(like):
            return [x if v.is_string(x) else _as_text(v.as_numpy(x))]
        return [_parsed(_strings(x), v.code_of(like))]
    return run


def cast_to_string(node, x):
    """Cast of numbers to strings."""
    return [x if v.is_string(x) else _as_text(v.as_numpy(x))]


# ---- operators of strings only ----

def string_concat(node, x, y):
    x, y = np.broadcast_arrays(x, y)
    return [_objects([a + b for a, b in zip(x.ravel(), y.ravel())], x.shape)]


def _joined_bytes(node, x, y):
    """Of the strings that string_concat makes; each of x may meet many of y."""
    size = np.prod(np.broadcast_shapes(x.shape, y.shape), dtype=float)
    return int(size * (PIECE + sum(sum(map(len, a.ravel())) / max(a.size, 1) for a in (x, y))))


string_concat.estimate = _joined_bytes


def string_split(node, x):
    """ONNX StringSplit: the parts, padded with '' to the longest, and their numbers."""
    delimiter, most = node.get("delimiter") or None, node.get("maxsplit", -1)
    parts = [s.split(delimiter, most) if s else [] for s in x.ravel()]
    longest = max(map(len, parts), default=0)
    padded = [p for part in parts for p in part + [""] * (longest - len(part))]
    return [_objects(padded, (*x.shape, longest)), np.array([len(p) for p in parts], np.int64).reshape(x.shape)]


def string_normalizer(node, x):
    """ONNX StringNormalizer: without stop words, in one case."""
    change = {"LOWER": str.lower, "UPPER": str.upper, "NONE": str}.get(node.get("case_change_action", "NONE"))
    if change is None:
        raise _core.ModelError("case_change_action is none of LOWER, UPPER and NONE")
    if x.ndim not in (1, 2) or (x.ndim == 2 and x.shape[0] != 1):
        raise _core.ShapeError(f"shape {list(x.shape)}, expected [c] or [1, c]")
    fold = str if node.get("is_case_sensitive", 0) else str.lower
    stop = {fold(word) for word in node.get("stopwords", [])}
    kept = [change(s) for s in x.ravel() if fold(s) not in stop] or [""]
    return [_objects(kept, (1,) * (x.ndim - 1) + (len(kept),))]


def regex_full_match(node, x):
    """ONNX RegexFullMatch: whether the whole string matches."""
    try:
        pattern = node.memory.get("pattern") or Pattern(node["pattern"])
    except re.error as error:
        raise _core.ModelError(f"pattern {node['pattern']!r}: {error}") from None
    node.memory["pattern"] = pattern
    return [np.array([pattern.full_match(s) for s in x.ravel()], bool).reshape(x.shape)]


def _pool(node):
    """{n-gram: place} from the concatenated pools of each length."""
    items = node.get("pool_strings") or node.get("pool_int64s") or []
    starts, places = node["ngram_counts"], node["ngram_indexes"]
    pool, k = {}, 0
    for n, (start, end) in enumerate(zip(starts, [*starts[1:], len(items)]), 1):
        for at in range(start, end - n + 1, n):
            pool[tuple(items[at:at + n])] = places[k]
            k += 1
    return pool


def _count(words, pool, node, size):
    counts = np.zeros(size, np.float32)
    for n in range(max(node["min_gram_length"], 1), min(node["max_gram_length"], len(words)) + 1):
        for step in range(1, min(node["max_skip_count"] + 1, (len(words) - 1) // (n - 1)) + 1 if n > 1 else 2):
            for start in range(len(words) - (n - 1) * step):
                place = pool.get(tuple(words[start:start + (n - 1) * step + 1:step]))
                if place is not None:
                    counts[place] += 1
    return counts


def tfidf(node, x):
    """ONNX TfIdfVectorizer: how often each n-gram of the pool occurs in a row, weighted."""
    if x.ndim not in (1, 2):
        raise _core.ShapeError(f"shape {list(x.shape)}, expected [c] or [n, c]")
    pool, places = _pool(node), node["ngram_indexes"]
    if min(places, default=0) < 0 or max(places, default=0) >= 1 << 24:
        raise _core.ModelError("ngram_indexes are out of range")
    rows = [[s if isinstance(s, str) else int(s) for s in row] for row in v.as_numpy(x).reshape(-1, x.shape[-1])]
    size = max(places, default=-1) + 1
    counts = np.array([_count(row, pool, node, size) for row in rows], np.float32).reshape(len(rows), size)
    weights = np.ones(size, np.float32)  # by output, as the reference evaluator and ONNX Runtime take them
    given = node.get("weights", [])[:size]
    weights[:len(given)] = given
    mode = node["mode"]
    if mode not in ("TF", "IDF", "TFIDF"):
        raise _core.ModelError(f"mode {mode!r} is none of TF, IDF and TFIDF")
    y = counts if mode == "TF" else (counts > 0) * weights if mode == "IDF" else counts * weights
    return [y.astype(np.float32).reshape(*x.shape[:-1], size)]


def _counts_bytes(node, x):
    return 8 * (max(node["ngram_indexes"], default=0) + 1) * (x.shape[0] if x.ndim == 2 else 1)


tfidf.estimate = _counts_bytes

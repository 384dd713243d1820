"""Methods of Neon's backend by numpy: one table for values, types, ``out=`` and gradients.

A case says a method, the operands that it is given, its keywords, and what numpy makes of the same.
"""
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Case:
    method: str
    numpy: object  # function of the operands
    operands: tuple = ("m",)  # what the operands are: see OPERANDS
    keywords: dict = field(default_factory=dict)
    smooth: bool = True  # has a gradient that central differences see

    @property
    def id(self):
        options = "".join(f"-{k}={v}" for k, v in self.keywords.items()).replace(" ", "")
        return f"{self.method}-{'-'.join(map(str, self.operands))}{options}"


def operand(kind, seed):
    """An array, or a number: m a matrix, p one of positive numbers, q another shape for products, row, col, one, cube."""
    if not isinstance(kind, str):
        return kind
    r = np.random.RandomState(seed)
    shape = {"m": (3, 4), "p": (3, 4), "q": (4, 5), "row": (1, 4), "col": (3, 1), "one": (1, 1), "cube": (2, 3, 4)}[kind]
    x = r.permutation(int(np.prod(shape))).reshape(shape) / 3.0 + r.uniform(0.02, 0.2, shape)
    return x / 2 + 0.2 if kind == "p" else x - x.mean() + 0.01


def sig(x):
    return 1 / (1 + np.exp(-x))


def near_power(b):
    return np.sign(b) * np.exp2(np.rint(np.log2(np.abs(b))))


UNARY = {"absolute": np.abs, "fabs": np.abs, "negative": np.negative, "square": np.square, "exp": np.exp, "exp2": np.exp2, "sig": sig,
         "sig2": lambda x: sig(x * np.log(2)), "tanh": np.tanh, "tanh2": lambda x: np.tanh(x * np.log(2))}
POSITIVE = {"sqrt": np.sqrt, "log": np.log, "log2": np.log2, "safelog": np.log, "reciprocal": np.reciprocal}
STEPS = {"sgn": np.sign, "rint": np.rint, "finite": np.isfinite}
BINARY = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide, "true_divide": np.divide,
          "maximum": np.maximum, "minimum": np.minimum}
TESTS = {"equal": np.equal, "not_equal": np.not_equal, "less": np.less, "less_equal": np.less_equal, "greater": np.greater,
         "greater_equal": np.greater_equal}
REDUCTIONS = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min, "var": np.var, "std": np.std}
PAIRS = [("m", "p"), ("m", "row"), ("m", "col"), ("one", "p"), ("row", "col"), ("m", 1.5), (2, "p"), ("cube", "cube")]


def reduced(function, **keywords):
    return lambda x: function(x, keepdims=True, **keywords)


CASES = [
    *(Case(name, f, operands) for name, f in UNARY.items() for operands in [("m",), ("cube",), (0.5,)]),
    *(Case(name, f, ("p",)) for name, f in POSITIVE.items()),
    *(Case(name, f, ("m",), smooth=False) for name, f in STEPS.items()),
    *(Case(name, f, operands) for name, f in BINARY.items() for operands in PAIRS),
    *(Case(name, f, operands, smooth=False) for name, f in TESTS.items() for operands in [("m", "p"), ("m", "m"), ("col", "row"), ("m", 0.5), (0.5, "m")]),
    *(Case("power", np.power, operands) for operands in [("p", "m"), ("p", "row"), ("m", 2), ("m", 3), ("p", 0.5), ("p", -1.5), (2.0, "m")]),
    *(Case(name, reduced(f, axis=axis), (kind,), {"axis": axis}) for name, f in REDUCTIONS.items()
      for kind, axis in [("m", None), ("m", 0), ("m", 1), ("m", -1), ("cube", 0), ("cube", 2), ("cube", (0, 2)), ("cube", None)]),
    *(Case(name, lambda x, f=getattr(np, name), axis=axis: f(x, axis=axis, keepdims=True), (kind,), {"axis": axis}, False)
      for name in ("argmax", "argmin") for kind, axis in [("m", 0), ("m", 1), ("m", None), ("cube", 1), ("cube", -1), ("cube", None)]),
    Case("argmax", lambda x: x.argmax(1)[:, None], smooth=False),
    Case("sum", lambda x: x.sum(0), ("cube",), {"axis": 0, "keepdims": False}),
    Case("mean", lambda x: x.mean(0, keepdims=True), ("m",), {"axis": 0, "keepdims": False}),
    Case("var", lambda x: ((x - x.mean()) * near_power(x - x.mean())).mean().reshape(1, 1), ("m",), {"binary": True}, False),
    Case("clip", lambda x: np.clip(x, -0.5, 0.7), ("m", -0.5, 0.7)),
    Case("clip", np.clip, ("m", "col", "p"), smooth=False),
    Case("shift", lambda a, b: a * near_power(b), ("m", "p"), smooth=False),
    Case("shift", lambda a, b: a * near_power(b), ("p", "m"), smooth=False),
    Case("shift", lambda a, b: a * np.exp2(b), ("m", "m"), {"value": False}),
    Case("shift", lambda a, b: a * np.exp2(b), ("m", 2), {"value": False}),
    Case("binarize", lambda x: np.where(x >= 0, 1, -1), ("m",), {"stochastic": False}, False),
    Case("dot", np.dot, ("m", "q")),
    Case("dot", np.dot, ("col", "row")),
    Case("take", lambda x: x[[2, 0, 2]], ("m", [2, 0, 2]), {"axis": 0}),
    Case("take", lambda x: x[:, [1, -1]], ("m", np.array([1, -1])), {"axis": 1}),
    Case("take", lambda x: x.ravel()[[7, 0]].reshape(2, 1), ("m", [7, 0]), {"axis": None}),
    Case("take", lambda x: x[:, [2, 1]], ("cube", [2, 1]), {"axis": 1}),
]


def central_differences(function, arrays, k, error, step=1e-5):
    """The gradient in the k-th array of the sum of the function's values, weighted by ``error``."""
    arrays = [np.array(x, np.float64) if isinstance(x, np.ndarray) else x for x in arrays]
    out = np.zeros_like(arrays[k])
    for at in np.ndindex(out.shape):
        kept = arrays[k][at]
        arrays[k][at] = kept + step
        more = (function(*arrays) * error).sum()
        arrays[k][at] = kept - step
        out[at] = (more - (function(*arrays) * error).sum()) / (2 * step)
        arrays[k][at] = kept
    return out

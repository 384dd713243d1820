"""The table of ATen rows, and the builder that a row appends ONNX nodes with.

The one idea: a row is a small function (or one line of a dictionary) from an ATen overload to
ONNX operators.  It sees values by their fx node and asks the builder for names; the builder
knows types, constants and symbolic extents, so that a row only says what the operator is.
Must not know: how a module is captured, or what happens to the graph afterwards.
"""
import functools
import operator

import numpy as np
import torch

from ... import _core
from .naming import constant_name, names_of

OPSET = 26  # CumProd is the newest operator that the rows use

ONNX_DTYPE = {torch.float32: 1, torch.uint8: 2, torch.int8: 3, torch.uint16: 4, torch.int16: 5, torch.int32: 6,
              torch.int64: 7, torch.bool: 9, torch.float16: 10, torch.float64: 11, torch.uint32: 12, torch.uint64: 13,
              torch.bfloat16: 16}
_NUMPY = {torch.float32: np.float32, torch.uint8: np.uint8, torch.int8: np.int8, torch.uint16: np.uint16,
          torch.int16: np.int16, torch.int32: np.int32, torch.int64: np.int64, torch.bool: np.bool_,
          torch.float16: np.float16, torch.float64: np.float64, torch.uint32: np.uint32, torch.uint64: np.uint64}
# Operators of expressions between extents, which are not negative, so that Div's truncation is the floor.
_ARITHMETIC = {"Add": "Add", "Mul": "Mul", "FloorDiv": "Div", "CleanDiv": "Div", "Mod": "Mod", "PythonMod": "Mod",
               "Max": "Max", "Min": "Min"}
INT64_MAX = 2**63 - 1

TABLE = {}  # "aten.relu.default" -> row(builder, node, *args, **kwargs) -> value name, list of names, or Symbolic


class Decline(Exception):
    """A row does not serve this use of its overload; the reason is the message."""


def row(*overloads):
    """Registers the decorated function for ``overloads``, e.g. ``row("add.Tensor")``."""
    def register(function):
        for name in overloads:
            TABLE["aten." + name] = function
        return function
    return register


class Symbolic:
    """An integer or float scalar known only at run time; its nodes are made when first asked for."""
    def __init__(self, make):
        self._make, self._name = make, None

    def name(self):
        if self._name is None:
            self._name = self._make()
        return self._name


class Pair:
    """The value of a complex node: the names of its parts, or of a tensor that holds them side by side."""
    def __init__(self, b, parts=None, whole=None):
        self._b, self._parts, self._whole = b, parts, whole

    def is_whole(self):
        return self._parts is None

    def part(self, k):
        if self._parts is None:
            self._parts = [self._b.squeeze(p, -1) for p in self._b.op("Split", self._whole, outs=2, axis=-1, num_outputs=2)]
        return self._parts[k]

    def whole(self):
        if self._whole is None:
            self._whole = self._b.op("Concat", *[self._b.unsqueeze(p, -1) for p in self._parts], axis=-1)
        return self._whole


def meta(node):
    """The fake tensor (or SymInt) that export recorded for an fx node; other values stand for themselves."""
    return node.meta["val"] if isinstance(node, torch.fx.Node) else node


def rank(node):
    return meta(node).dim()


def extent(value):
    """An extent as int if it is known, also where export still wraps the number; else the SymInt."""
    if not isinstance(value, int) and value.node.expr.is_number:
        return int(value.node.expr)
    return value


def told_by_values(value, first=False):
    """Do values of tensors tell an extent, or one of a tensor's?  first: or did they, before forward asserted what it is?"""
    numbers = value.shape if isinstance(value, torch.Tensor) else (value,)
    told = [(first and vars(n.node).get("_expr") or n.node.expr).free_symbols for n in numbers if isinstance(n, torch.SymInt)]
    return any(str(s).startswith(("u", "zuf")) for symbols in told for s in symbols)


def settled(value):
    """What forward asserts a number that values tell to be, an int or an extent of an input, which each call checks; others as they are."""
    made = meta(value)
    return extent(made) if told_by_values(made, first=True) and not told_by_values(made) else value


def dims(node):
    """Extents of a tensor node: int where static, SymInt where not."""
    return [extent(d) for d in meta(node).shape]


def static_dims(node, first=0):
    """Extents from dimension ``first`` on; declines when one of them is symbolic."""
    shape = dims(node)[first:]
    if not all(isinstance(d, int) for d in shape):
        raise Decline(f"extents {shape} must be known when the module is captured")
    return shape


def same_extent(a, b):
    """Two extents that are the same symbolic expression."""
    return isinstance(a, torch.SymInt) and isinstance(b, torch.SymInt) and a.node.expr == b.node.expr


def is_empty(node):
    """Is an extent known to be 0?  Of one that values tell, torch raises an error where it is compared."""
    return any(isinstance(d, int) and d == 0 for d in dims(node))


def computed_in(dtype):
    """The type of floats that eager computes in before it rounds to dtype: float32 of the halves."""
    return torch.promote_types(dtype, torch.float32)


def norm_axis(axis, n):
    return axis + n if axis < 0 else axis


def norm_axes(axes, n):
    """None and [] mean all axes; returns sorted non-negative axes.  A number has none, though torch takes 0 and -1 for it."""
    if isinstance(axes, int):
        axes = [axes]
    return sorted(norm_axis(a, n) for a in axes) if axes and n else list(range(n))


def spread(value, n):
    """A stride-like argument (int, one-element or n-element list) as a list of n."""
    value = [value] if isinstance(value, int) else list(value)
    return value * n if len(value) == 1 else value


def used_outputs(node):
    """Which results of a node with several results are used."""
    return {user.args[1] for user in node.users if user.target is operator.getitem}


def _has_counted_extent(node):
    """Do values decide how many elements a call gives? What follows may have told torch: then its fake tensor does not say so."""
    if node.target is torch.ops.aten.index.Tensor:
        return any(i is not None and meta(i).dtype in (torch.bool, torch.uint8) for i in node.args[1])
    return torch.Tag.dynamic_output_shape in getattr(node.target, "tags", ())


class Builder:
    """Appends nodes to ``graph``, remembering the value name of each fx node."""

    def __init__(self, graph, inline, line):
        self.graph = graph
        self.line = line       # fx node -> the user's line that made it, as text
        self.inline = inline   # (branch of control flow, values of its placeholders) -> names of its results
        self.env = {}          # fx node -> value name | list of names | Symbolic | Pair
        self.mutated = {}      # buffer FQN -> value name, for mutations that export does not report
        self.fqn = {}          # fx placeholder -> FQN of its parameter or buffer
        self.symbols = {}      # text of a symbol -> (value name, axis) that has this extent, or the number itself (Symbolic)
        self.cumulative = {}   # FQN of a running statistic that averages over all calls -> FQN of its call counter
        self.checks = []       # (value name, message, name of the error) of conditions that a call must find true
        self.stopped = set()   # names that carry no gradient
        self.counted = False   # does an extent depend on values?
        self.seed = None       # name of the random seed input, once asked for
        self._streams = 0
        self._consts = {}
        self._hint, self._site, self._result = "t", "", "t"
        self._made = []        # names of what the ops of this node gave
        self._times = {}       # name of a result -> how many wanted it
        self.kept = {}         # fx node whose value a buffer holds after a call -> what the value is called

    def enter(self, node):
        """Results of the following ops are named after ``node``."""
        self._site, self._hint, self._result = names_of(node)
        self._made = []

    def call_after(self, name):
        """Results of the following ops are named ``name``."""
        self._site, self._hint, self._made = name, name, []

    def _name_results(self, node):
        """Results are named after the module; values that led to them keep their names."""
        held = self.env[node]
        if isinstance(held, str):
            self.env[node] = self._renamed(held, self.kept.get(node, self._result))
        elif isinstance(held, list):
            used = {u.args[1]: u for u in node.users if u.target is operator.getitem}
            stays = {k for k, user in used.items() if user in self.kept}
            self.env[node] = [self._renamed(name, self._result) if k in used and k not in stays else name for k, name in enumerate(held)]

    def _renamed(self, name, wanted):
        if wanted == self._hint or name not in self._made or name in self.stopped or name in self.mutated.values():
            return name
        self._times[wanted] = times = self._times.get(wanted, 0) + 1
        new = wanted if times == 1 else f"{wanted}_{times}"
        try:
            self.graph.rename(name, new)
        except _core.ValueError_:  # a parameter is called so
            return name
        self._made.remove(name)
        return new

    # -- values ---------------------------------------------------------------------------------
    def op(self, kind, *inputs, outs=1, domain="", **attrs):
        """Appends one ONNX node; attributes that are None are left out.  One name, or a list if outs > 1."""
        attrs = {k: v for k, v in attrs.items() if v is not None}
        for name, value in attrs.items():
            if _is_computed(value):
                raise Decline(f"{name} must be known when the module is captured")
        names = self.graph.add_node(kind, list(inputs), [self._hint] * outs, attrs, domain, self._site)
        self._made += names
        return names[0] if outs == 1 else names

    def const(self, value, dtype=torch.int64):
        """A constant of a torch dtype from a number, list or numpy array."""
        if _is_computed(value):
            raise Decline(f"{self._hint} needs a number that is only known at run time")
        if dtype == torch.bfloat16:  # numpy has no bfloat16
            return self.op("Cast", self.const(value, torch.float32), to=ONNX_DTYPE[dtype])
        array = np.asarray(value).astype(_dtype_of(dtype))
        key = (array.tobytes(), array.shape, str(array.dtype))
        if key not in self._consts:
            self._consts[key] = self.graph.add_const(constant_name(array), array)
        return self._consts[key]

    def cast(self, name, have, want):
        if have == want:
            return name
        made = self.op("Cast", name, to=ONNX_DTYPE[want])
        if name in self.stopped:
            self.stopped.add(made)
        return made

    def __call__(self, value, dtype=None):
        """The name of a tensor node or scalar, converted to ``dtype`` if given."""
        if value is None:
            return None
        if isinstance(value, torch.fx.Node):
            held, have = self.env[value], meta(value)
            if isinstance(held, Pair):
                raise Decline("a complex value")
            if isinstance(held, Symbolic):
                have = _scalar_dtype(have)
                return self.cast(held.name(), have, dtype or have)
            return self.cast(held, have.dtype, dtype or have.dtype)
        if isinstance(value, torch.SymInt):
            return self.cast(self._expression(value.node.expr), torch.int64, dtype or torch.int64)
        return self.const(value, dtype or _scalar_dtype(value))

    def real_form(self, value):
        """As a call, but of a complex value its parts side by side."""
        held = self.env.get(value)
        return held.whole() if isinstance(held, Pair) else self(value)

    def _expression(self, expr):
        """An expression (of sympy, or a Polynomial) in the extents of inputs as a 0-d int64 tensor."""
        if expr.is_Integer:
            return self.const(int(expr))
        if expr.is_Symbol and str(expr) in self.symbols:
            held = self.symbols[str(expr)]
            return held.name() if isinstance(held, Symbolic) else self.extent(*held)
        kind = _ARITHMETIC.get(getattr(expr, "operation", type(expr).__name__))
        if kind is None:
            raise Decline(f"the extent {expr} is not made of extents of inputs")
        return functools.reduce(lambda a, b: self.op(kind, a, b), map(self._expression, expr.args))

    def ints(self, values):
        """A list of ints and symbolic ints as a 1-d int64 tensor."""
        values = list(map(settled, values))
        if all(isinstance(v, int) for v in values):
            return self.const(np.array(values, np.int64))
        self.counted |= any(told_by_values(meta(v)) for v in values)
        one = self.const([1])
        parts = [self.const([v]) if isinstance(v, int) else self.op("Reshape", self(v), one) for v in values]
        return self.op("Concat", *parts, axis=0)

    # -- shapes ---------------------------------------------------------------------------------
    def size(self, node, axis):
        """Extent of one axis as a 0-d int64 tensor."""
        known = dims(node)[axis]
        if isinstance(known, int):
            return self.const(known)
        return self.extent(self(node), norm_axis(axis, rank(node)))

    def extent(self, name, axis):
        return self.op("Gather", self.op("Shape", name), self.const(axis), axis=0)

    def learn(self, node):
        """Notes where numbers that values tell are found in a node's results: extents, or the number itself."""
        self._name_results(node)
        made, held = node.meta.get("val"), self.env[node]
        self.counted |= _has_counted_extent(node)
        if isinstance(made, (torch.SymInt, torch.SymFloat)) and isinstance(held, Symbolic):
            self.symbols.setdefault(str(made.node.expr), held)
        pairs = zip(made, held) if isinstance(made, (list, tuple)) and isinstance(held, (list, tuple)) else [(made, held)]
        for tensor, name in pairs:
            if isinstance(tensor, torch.Tensor) and isinstance(name, str) and told_by_values(tensor):
                self.counted = True
                for axis, size in enumerate(tensor.shape):
                    self.symbols.setdefault(str(size), (name, axis))

    def shape(self, node):
        """Extents of a tensor node as a 1-d int64 tensor."""
        extents = dims(node)
        if all(isinstance(d, int) for d in extents):
            return self.const(np.array(extents, np.int64))
        return self.op("Shape", self(node))

    def count(self, node, axes, dtype):
        """Number of elements over ``axes`` as a 0-d tensor of ``dtype``."""
        extents = [dims(node)[a] for a in axes]
        if all(isinstance(d, int) for d in extents):
            return self.const(int(np.prod(extents, dtype=np.int64)), dtype)
        total = self.op("ReduceProd", self.op("Gather", self.op("Shape", self(node)), self.const(list(axes)), axis=0),
                        keepdims=0)
        return self.cast(total, torch.int64, dtype)

    def check(self, condition, message, error="ValueError_"):
        """Each call has to find the condition, a value's name, true; else it raises the error, see call.errors."""
        self.checks.append((condition, message, error))

    def reshape(self, name, sizes, have=()):
        """Reshape to ints, -1 and symbolic values; ``have``: extents of ``name``, of which equal ones are copied."""
        if any(isinstance(s, int) and s == 0 for s in sizes):
            return self.op("Reshape", name, self.ints(sizes), allowzero=0 if -1 in sizes else 1)
        want = [0 if i < len(have) and same_extent(meta(s), have[i]) else s for i, s in enumerate(sizes)]
        unknown = [i for i, s in enumerate(want) if not isinstance(s, int)]
        if not unknown or len(unknown) == 1 and -1 not in [s for s in want if isinstance(s, int)]:
            return self.op("Reshape", name, self.const([s if isinstance(s, int) else -1 for s in want]))
        return self.op("Reshape", name, self.ints(sizes))

    def reshape_like(self, name, node):
        """Reshape to the recorded extents of ``node``."""
        return self.reshape(name, dims(node))

    def unsqueeze(self, name, *axes):
        return self.op("Unsqueeze", name, self.const(list(axes)))

    def squeeze(self, name, *axes):
        return self.op("Squeeze", name, self.const(list(axes)))

    def transpose(self, name, perm):
        return name if list(perm) == list(range(len(perm))) else self.op("Transpose", name, perm=list(perm))

    def slice(self, name, start, end, axis, step=1):
        return self.op("Slice", name, self.const([start]), self.const([end]), self.const([axis]),
                       self.const([step]) if step != 1 else None)

    def fill(self, value, sizes, dtype):
        """A tensor of one value; ``sizes`` may hold symbolic values."""
        scalar = self(value, dtype)
        return self.op("Expand", scalar, self.ints(sizes)) if len(sizes) else scalar

    # -- effects --------------------------------------------------------------------------------
    def stop(self, name):
        """Identity that passes no gradient."""
        name = self.op("StopGradient", name, domain="dcml")
        self.stopped.add(name)
        return name

    def uniform(self, shape):
        """float32 uniform numbers in [0, 1) of the shape given as an int64 tensor; a fresh stream each time."""
        if self.seed is None:
            self.seed = self.graph.add_input("seed", ONNX_DTYPE[torch.int64], [])
        self._streams += 1
        return self.op("Rng", self.seed, shape, domain="dcml", stream=self._streams)


def _is_computed(value):
    """Is it a number, or a list with one, that a call computes?"""
    if isinstance(value, (list, tuple)):
        return any(map(_is_computed, value))
    return isinstance(value, (torch.fx.Node, torch.SymInt, torch.SymFloat, torch.SymBool))


def _dtype_of(dtype):
    if dtype not in _NUMPY:
        raise Decline(f"constants of type {dtype}")
    return _NUMPY[dtype]


def _scalar_dtype(value):
    if isinstance(value, (bool, torch.SymBool)):
        return torch.bool
    if isinstance(value, (int, torch.SymInt)):
        return torch.int64
    return torch.float64 if isinstance(value, torch.SymFloat) else torch.get_default_dtype()

"""Operators of libraries, and whole graphs, as parts of a program.

Must not know: which operators there are; the core and ONNX's schemas say.
"""
import numpy as np

from .. import _core
from .array import Array, broadcast, reference, stored
from .expressions import describe, is_array
from .index import Index

_MATMUL = ("float16", "float32", "float64", "int32", "int64", "uint32", "uint64")  # ONNX's MatMul takes these


def whole(t, array):
    """The name of a container that is exactly the array."""
    return (array if array.whole else t.out.materialize(array)).whole


def operator(t, op, inputs, shape, dtype, attributes, version):
    """The result of an operator; it is written where the program wants it."""
    if t.out.is_nested or t.out.conditions:
        raise _core.UnsupportedOpError(f"{op} inside a loop or under a condition on data; use it outside")
    names = [whole(t, a) for a in inputs]
    leaves = [lambda index, n=n: (n, None) for n in names]  # it reads all of them

    def write(target):
        t.out.line(f"{reference(target.whole)} = {op}@{version}({', '.join(map(reference, names))}){attributes_text(t, attributes)}")
    return Array(shape, dtype, text=_no_text, write=write, leaves=leaves)


def _no_text(index):
    raise _core.UnsupportedOpError("the result of an operator inside an expression that is not computed yet")


def matmul(t, a, b):
    """numpy.matmul."""
    if not a.ndim or not b.ndim:
        raise _core.ShapeError(f"a matrix product of {describe(a)} and {describe(b)}")
    left, right = a.shape if a.ndim > 1 else (1, *a.shape), b.shape if b.ndim > 1 else (*b.shape, 1)
    t.out.same(left[-1], right[-2])
    batch = broadcast([left[:-2], right[:-2]], t.out.same)
    shape = (*batch, *left[-2:-1][:a.ndim - 1], *right[-1:][:b.ndim - 1])
    dtype = np.matmul.resolve_dtypes((a.dtype, b.dtype, None))[2]
    from .functions import cast
    a, b = t.out.settle(cast(a, dtype)), t.out.settle(cast(b, dtype))
    if dtype.name in _MATMUL and not t.out.is_nested and not t.out.conditions:
        return operator(t, "MatMul", [a, b], shape, dtype, {}, 13)
    letters = [f"b{d}" for d in range(len(batch))]
    return _contract(t, dtype, [(a, [*letters[len(batch) - max(a.ndim - 2, 0):], *(["i"] if a.ndim > 1 else []), "k"]),
                                (b, [*letters[len(batch) - max(b.ndim - 2, 0):], "k", *(["j"] if b.ndim > 1 else [])])],
                     [*letters, *(["i"] if a.ndim > 1 else []), *(["j"] if b.ndim > 1 else [])])


def _contract(t, dtype, operands, result):
    """Sum of products over the letters that are not in the result."""
    extents = {}
    for array, letters in operands:
        for letter, extent in zip(letters, array.shape):
            before = extents.get(letter, 1)
            extents[letter] = extent if before == 1 else before if extent == 1 else t.out.same(before, extent)
    order = [*result, *[x for x in extents if x not in result]]

    def at(array, letters, index):
        return [0 if e == 1 else index[order.index(x)] for x, e in zip(letters, array.shape)]
    from . import ufuncs
    types, kind, _ = ufuncs.resolve("multiply", [operands[0][0], operands[-1][0]])

    def text(index):
        out = operands[0][0].text(at(*operands[0], index))
        for array, letters in operands[1:]:
            out = ufuncs.combine("multiply", [out, array.text(at(array, letters, index))], types, kind)
        return out
    products = Array([extents[x] for x in order], dtype, text=text)
    axes = tuple(range(len(result), len(order)))
    return t.out.reduce(products, axes, "max" if dtype == bool else "sum", dtype, "product")


def einsum(t, subscripts, operands):
    """numpy.einsum of a text and arrays."""
    if "." in subscripts:
        raise _core.UnsupportedOpError("an ellipsis in einsum; name all dimensions")
    inputs, _, result = subscripts.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if len(terms) != len(operands) or any(len(x) != a.ndim for x, a in zip(terms, operands)):
        raise _core.ShapeError(f"einsum of {subscripts!r} for operands of {[a.ndim for a in operands]} dimensions")
    if "->" not in subscripts:
        result = "".join(sorted(x for x in set("".join(terms)) if "".join(terms).count(x) == 1))
    dtype = np.result_type(*(a.dtype for a in operands))
    from .functions import cast
    return _contract(t, dtype, [(t.out.settle(cast(a, dtype)), list(x)) for a, x in zip(operands, terms)], list(result))


# -- nodes of ONNX ---------------------------------------------------------------------------------
def is_node_class(what):
    return isinstance(what, type) and isinstance(getattr(what, "_op", None), tuple)


def attributes_text(t, attributes):
    """`` {axis = 1, strides = ints [2, 2]}``."""
    items = [f"{name} = {_attribute(t, value)}" for name, value in attributes.items() if value is not None]
    return f" {{{', '.join(items)}}}" if items else ""


def _attribute(t, value):
    if isinstance(value, (bool, int, np.integer)):
        return str(int(value))
    if isinstance(value, (float, np.floating)):
        return _float(value)
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, bytes):
        return _quoted(value.decode("latin-1"))
    if isinstance(value, np.ndarray):
        return f"tensor {reference(t.out.constant(t.held(value)).whole)}"
    if isinstance(value, (list, tuple)):
        if any(isinstance(v, str) for v in value):
            return f"strings [{', '.join(map(_quoted, value))}]"
        real = any(isinstance(v, (float, np.floating)) for v in value)
        return f"floats [{', '.join(map(_float, value))}]" if real else f"ints [{', '.join(str(int(v)) for v in value)}]"
    raise _core.ValueError_(f"an attribute {value!r}")


def _float(value):
    text = repr(float(value))
    return text if any(c in text for c in ".ein") else text + ".0"


def _quoted(text):
    return '"' + "".join(c if 32 <= ord(c) < 127 and c not in '"\\' else f"\\x{ord(c):02x}" for c in text) + '"'


def library_node(t, node, cls, args, kwargs):
    """``donnx.ONNXConv(X=X, W=W, Y=out, strides=[2, 2])``: arrays are connectors, the rest attributes."""
    op, domain, version = cls._op
    attributes = {k: v for k, v in kwargs.items() if not is_array(v)}
    made = cls(args[0] if args else op, **attributes)
    schema = made.schema
    named = {k: v for k, v in kwargs.items() if is_array(v)}
    inputs = _ordered(t, node, [p.name for p in schema.inputs], named, op)
    outputs = _ordered(t, node, [p.name for p in schema.outputs], named, op)
    if named:
        raise t.error(node, f"{op} has no parameter {next(iter(named))!r}; it has "
                            f"{', '.join(p.name for p in (*schema.inputs, *schema.outputs))}")
    if t.out.is_nested or t.out.conditions:
        raise t.error(node, f"{op} inside a loop or under a condition on data; use it outside")
    if not any(outputs):
        raise t.error(node, f"{op} writes no array; give one for {schema.outputs[0].name}=")
    inputs = [a and reference(whole(t, a)) for a in inputs]
    targets = []
    for array in outputs:
        fits = array is None or array.whole
        targets.append(array if fits else t.out.temp(array.dtype, array.shape))
        if array is not None and not array.frozen:
            t.note_write(array)
        elif array is not None:
            raise t.error(node, f"{array.label or 'this array'} cannot be written: {array.frozen}")
    prefix = f"{domain}::" if domain else ""
    names = ", ".join(reference(a.whole) if a is not None else "_" for a in targets)
    t.out.line(f"{names} = {prefix}{op}@{version}({', '.join(i or '_' for i in inputs)}){attributes_text(t, made._attributes())}")
    for array, target in zip(outputs, targets):
        if array is not target:
            t.out.store(array, target)
    return tuple(a for a in outputs if a is not None)


def _ordered(t, node, names, given, op):
    """The arrays of parameters in their order, None for what is absent; a variadic one is data_0__0, data_0__1."""
    out = []
    for name in names:
        if name in given:
            out.append(given.pop(name))
            continue
        several = sorted((k for k in given if k.startswith(name + "__")), key=lambda k: int(k.rpartition("__")[2]))
        out += [given.pop(k) for k in several] or [None]
    while out and out[-1] is None:
        out.pop()
    return out


# -- whole graphs ----------------------------------------------------------------------------------
def as_graph(what):
    """The core graph of an SDFG, of a compiled module or of an ONNX model; None for other values."""
    graph = getattr(what, "graph", None)
    if isinstance(graph, _core.Graph):
        return graph
    sdfg = getattr(what, "sdfg", None) if type(what).__module__.startswith("dcml.") else None
    return getattr(sdfg, "graph", None) if sdfg is not None else None


def inline_graph(t, node, callee, graph, args, kwargs):
    raise t.error(node, f"a call of {describe(callee)}")


__all__ = ["Index", "stored"]

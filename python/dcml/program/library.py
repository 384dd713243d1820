"""Operators of libraries, and whole graphs, as parts of a program.

Must not know: which operators there are; the core and ONNX's schemas say.
"""
import numpy as np

from .. import _core, dtypes
from ..sdfg.symbolic import parse
from .array import Array, broadcast, reference, stored
from .expressions import describe, is_array, part
from .index import NeedsValue, is_index

_MATMUL = ("float16", "float32", "float64", "int32", "int64", "uint32", "uint64")  # ONNX's MatMul takes these


def whole(t, array):
    """The name of a container that is exactly the array."""
    if array.whole and not t.out.is_roomy(array):
        return array.whole
    return _exact(t, t.out.materialize(array))


def _exact(t, array):
    if t.out.is_roomy(array):
        raise _core.UnsupportedOpError("an operator on an array whose extent changes with a loop around it")
    return array.whole


def in_order(t, node, what):
    """Operators hand on whole arrays, which iterations share: maps around one run in order."""
    inside = "under a condition on data" if t.out.conditions else \
        "inside a reduction" if any(scope.kind == "reduce" for scope in t.out.scopes) else None
    if inside:
        text = f"{what} {inside}; use it outside"
        raise t.error(node, text) if node is not None else _core.UnsupportedOpError(text)
    for scope in t.out.scopes[1:]:
        scope.kind = "sequential"


def operator(t, op, inputs, shape, dtype, attributes, version):
    """The result of an operator; it is written where the program wants it."""
    in_order(t, None, op)
    if any(a.dtype.kind == "c" for a in inputs):
        raise TypeError(f"complex numbers, which the operator {op} does not take; write it for their parts, a.real and a.imag")
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
    if dtype.kind == "c" and not t.out.is_nested and not t.out.conditions:
        return _of_parts(t, a, b, shape, dtype)
    letters = [f"b{d}" for d in range(len(batch))]
    return _contract(t, dtype, [(a, [*letters[len(batch) - max(a.ndim - 2, 0):], *(["i"] if a.ndim > 1 else []), "k"]),
                                (b, [*letters[len(batch) - max(b.ndim - 2, 0):], "k", *(["j"] if b.ndim > 1 else [])])],
                     [*letters, *(["i"] if a.ndim > 1 else []), *(["j"] if b.ndim > 1 else [])])


def _of_parts(t, a, b, shape, dtype):
    """A product of complex matrices as four of real ones, which libraries run."""
    (ar, ai), (br, bi) = ([t.out.settle(part(x, name)) for name in ("real", "imag")] for x in (a, b))
    rr, ii, ri, ir = (t.out.settle(matmul(t, x, y)) for x, y in ((ar, br), (ai, bi), (ar, bi), (ai, br)))
    return Array(shape, dtype, leaves=[leaf for x in (rr, ii, ri, ir) for leaf in x.leaves], text=lambda index: (
        f"complex({rr.text(index)} - {ii.text(index)}, {ri.text(index)} + {ir.text(index)})"))


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
    return t.out.reduce(products, axes, "max" if dtype.kind == "b" else "sum", dtype, "product")


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
    return isinstance(what, type) and getattr(what, "_operator", None) is not None


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
    from ..onnx.nodes.onnx_op import connectors_in_order, parameter_of
    arrays = {k: v for k, v in kwargs.items() if is_array(v)}
    made = t.natively(node, cls, *(args or [cls._operator]), **{k: v for k, v in kwargs.items() if not is_array(v)})
    for name in arrays:
        is_input = parameter_of(made.schema.inputs, name) is not None
        if not is_input and parameter_of(made.schema.outputs, name) is None:
            raise t.error(node, f"{cls.__name__} has no parameter {name!r}; it has "
                                f"{', '.join(p.name for p in (*made.schema.inputs, *made.schema.outputs))}")
        if name not in (made.in_connectors if is_input else made.out_connectors):
            (made.add_in_connector if is_input else made.add_out_connector)(name)
    missing = [c for c in (*made.in_connectors, *made.out_connectors) if c not in arrays]
    if missing:
        raise t.error(node, f"{cls.__name__} needs an array for {missing[0]!r}; write {missing[0]}=array")
    in_order(t, node, cls.__name__)
    inputs = [c and whole(t, arrays[c]) for c in connectors_in_order(made.schema.inputs, made.in_connectors)]
    order = connectors_in_order(made.schema.outputs, made.out_connectors)
    targets, copies = written(t, node, [c and arrays[c] for c in order])
    domain = f"{_quoted(made._op[1])}::" if made._op[1] else ""
    label = args[0] if args else f"{cls._operator}_{t.frame.source.line(node)}"
    put_node(t, f"{domain}{made._op[0]}@{made.opset}", inputs, targets, made._attributes(), f" @{_quoted(label)}")
    for array, target in copies:
        t.out.store(array, stored(target, array.shape, array.dtype))


def written(t, node, arrays):
    """(names of containers that a node can write for arrays, [(array, name)] of what is to be copied behind it)."""
    names, copies = [], []
    for array in arrays:
        if array is None:
            names.append(None)
            continue
        if array.frozen or not array.is_stored:
            raise t.error(node, f"{array.label or 'this array'} cannot be written: {array.frozen or 'it is a value'}")
        own = array.whole and not t.out.is_roomy(array)
        names.append(array.whole if own else _exact(t, t.out.temp(array.dtype, array.shape)))
        if not own:
            copies.append((array, names[-1]))
    return names, copies


def put_node(t, head, inputs, outputs, attributes, label=""):
    left, right = (", ".join(reference(n) if n else "_" for n in names) for names in (outputs, inputs))
    t.out.line(f"{left} = {head}({right}){attributes_text(t, attributes)}")


# -- whole graphs ----------------------------------------------------------------------------------
def is_graph(what):
    """Is it an SDFG, a compiled one, a module or a model?"""
    return type(what).__module__.startswith("dcml.") and (hasattr(type(what), "graph") or hasattr(type(what), "sdfg")
                                                         or "sdfg" in getattr(what, "__dict__", ()))


def _graph_of(t, node, callee, args):
    """A copy of the core graph; that of a module for arguments of these shapes."""
    if hasattr(callee, "graph"):
        return callee.graph.clone()
    if hasattr(type(callee), "dace_model"):
        import torch
        examples = [torch.zeros([_known(e) for e in a.shape], dtype=getattr(torch, a.dtype.name)) for a in args if is_array(a)]
        with torch.no_grad():
            callee(*examples)
    return callee.sdfg.graph.clone()


def _weights(t, callee, graph):
    """{name: container} of what the graph's owner gives: constants of the program."""
    owner = callee.dace_model if hasattr(type(callee), "dace_model") else callee
    tensors = getattr(owner, "weights", {})
    data = {n: tensors[n].detach().cpu().numpy() if n in tensors else graph.data(n) for n in graph.params}
    missing = [n for n, array in data.items() if array is None]
    if missing:
        raise _core.ModelError(f"{callee!r}: weight {missing[0]!r} has no value")
    return {n: t.out.constant(t.held(np.array(array)), n).whole for n, array in data.items()}


def inline_graph(t, node, callee, args, kwargs):
    """A call of an SDFG: its graph becomes a part of the program's."""
    from .functions import cast
    in_order(t, node, f"a call of {callee!r}")
    args = [t.array_of(node, a) for a in args]
    graph = _graph_of(t, node, callee, args)
    inputs = list(graph.inputs)
    given = dict(zip(inputs, args))
    given.update((k, v if not is_index(v) else t.array_of(node, v)) for k, v in kwargs.items() if k in inputs)
    symbols = {k: v for k, v in kwargs.items() if k not in inputs}
    missing = [n for n in inputs if n not in given]
    if missing or len(args) > len(inputs) or not symbols.keys() <= graph.symbols.keys():
        raise t.error(node, f"{callee!r} takes {', '.join(inputs)}; missing are {', '.join(missing) or 'none'}")
    for name in inputs:
        given[name] = _fitting(t, node, callee, graph, name, t.array_of(node, given[name]), symbols, cast)
    graph.run_pass("infer")
    values = {name: symbols[name] if name in symbols else t.out.symbol(name) for name in graph.symbols}
    changed = {n for state in range(graph.n_states) for entry in graph.nodes(state) for n in entry[4]}
    results = []
    for name in graph.outputs:
        code, shape, _ = graph.info(name)
        results.append(t.out.temp(dtypes.of(code).dtype, [_extent(e, values) for e in shape], name))
    targets, copies = written(t, node, [given[n] if n in changed else None for n in inputs])
    names = {n: target or whole(t, given[n]) for n, target in zip(inputs, targets)}
    for array, target in copies:  # what the call does not write of it stays
        t.out.store(stored(target, array.shape, array.dtype), array)
    names.update((n, a.whole) for n, a in zip(graph.outputs, results) if n not in inputs)
    t.out.call(graph, {**names, **_weights(t, callee, graph)}, values)
    for array, target in copies:
        t.out.store(array, stored(target, array.shape, array.dtype))
    return None if not results else results[0] if len(results) == 1 else tuple(results)


def _fitting(t, node, callee, graph, name, array, symbols, cast):
    """The argument for an input, its type and shape checked; symbols of the shape get their values."""
    code, shape, _ = graph.info(name)
    dtype = dtypes.of(code).dtype
    if array.weak or not array.ndim and not shape:
        array = cast(array, dtype)
    if array.dtype != dtype:
        raise t.error(node, f"{callee!r}: argument {name!r} is of {array.dtype.name}, expected {dtype.name}", _core.DTypeError)
    if len(shape) != array.ndim:
        raise t.error(node, f"{callee!r}: argument {name!r} has {array.ndim} dimensions, expected {len(shape)}", _core.ShapeError)
    for want, have in zip(shape, array.shape):
        if isinstance(want, int):
            t.out.same(want, have)
        elif want.isidentifier():
            t.out.same(symbols.setdefault(want, have), have)
    return array


def _known(extent):
    if not isinstance(extent, int):
        raise NeedsValue(f"the extent {extent}")
    return extent


def _extent(extent, values):
    extent = parse(extent, True)
    return extent if isinstance(extent, int) else extent.subs(values)

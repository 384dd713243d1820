"""From a program to a Graph: what has no row is decomposed, and the walk starts again.

The one idea: torch itself decomposes exactly those overloads that no row serves, and no others.
Must not know: what a row is, or how a module is traced.
"""
import contextlib
import functools

import torch

from ... import _core
from ..aten import decompositions, served
from .expand import is_composite
from .functional import decomposed
from .quiet import quiet
from .tape import freed, output_orders, output_shapes, tapes_of
from .refusal import Declined, unsupported

_ROUNDS = 16  # decomposition may uncover overloads that need another round


def lower(program, conditions, start, result):
    """A finished walk; start(program) makes one; result: an entry's.  Overloads that no row serves are decomposed on the
    way, which may add to the conditions."""
    tried, shapes, freed_now = set(), output_shapes(program), _freed(program, result)
    orders = output_orders(program)
    tapes = tapes_of(program, {value: ("freed", k) for value, k in freed_now.items()})
    left, stayed = [], None
    for _ in range(_ROUNDS):
        before, left = left, [n.target for n in _calls(program.region) if not served(n)]
        unknown = {n.target: n for n in _calls(program.region) if not served(n)}
        reasons = {target: "it has no row" for target in unknown}
        if left and left == before:  # a decomposition that serves some of its arguments only
            target, node = next(iter(unknown.items()))
            raise unsupported(node, f"nothing computes it of {_said(node)}")
        if not unknown:
            lowering = start(program)
            lowering.output_shapes, lowering.output_orders, lowering.output_tapes = shapes, orders, tapes
            lowering.freed_outputs = sorted(freed_now.values())
            try:
                lowering.run()
                return lowering
            except Declined as declined:
                node = declined.node
                unknown, reasons = {node.target: node}, {node.target: declined.reason}
                calls = [n.target for n in _calls(program.region)]
                if stayed == calls:  # its decomposition serves some of its arguments only
                    raise unsupported(node, declined.reason)
                stayed = calls
        table = {}
        for target, node in unknown.items():
            function = None if target in tried else _decomposition(target)
            found = decompositions(node) or ({} if function is None else {target: function})
            if not found:
                raise unsupported(node, reasons[target])
            table.update(found)
        tried.update(unknown)
        with quiet():
            program = noting(program, conditions, lambda program: decomposed(program, table))
    raise _core.UnsupportedOpError(f"decomposing {', '.join(map(str, tried))} does not end")


def _said(node):
    """'float32[3, 4], pivot=False': the arguments of a node."""
    def one(value):
        value = value.meta.get("val", value) if isinstance(value, torch.fx.Node) else value
        return f"{str(value.dtype)[6:]}{list(value.shape)}" if isinstance(value, torch.Tensor) else str(value)
    return ", ".join([*map(one, node.args), *[f"{name}={one(value)}" for name, value in node.kwargs.items()]])


def _freed(program, result):
    """{value: position} of the results that are leaves in eager mode, though forward computes them."""
    given = dict(zip(program.user_inputs, result.requires))

    def is_flagged(spec):
        if not result.tape:
            return False
        if spec.kind.name == "USER_INPUT":
            return given.get(spec.target)
        return spec.kind.name == "PARAMETER" and program.tensors[spec.target].requires_grad
    return freed(program, result.freed, is_flagged) if result.freed else {}


def noting(program, conditions, rewrite):
    """rewrite(program).  Once a module is traced torch notes nowhere what it decides by symbolic extents, so (expression, value)
    of each decision goes into ``conditions``; raises UnsupportedOpError where one cannot be seen."""
    scope = _scope(program)
    if scope is None:
        return rewrite(program)
    met, before = [], scope.counter["ignored_backward_guard"]
    with _told_of_decisions(scope, met):
        result = rewrite(program)
    if scope.counter["ignored_backward_guard"] - before > len(met):
        raise _core.UnsupportedOpError("decomposing the program decides by symbolic extents")
    conditions += [one for one in met if one not in conditions]
    return result


@contextlib.contextmanager
def _told_of_decisions(scope, met):
    original = getattr(scope, "_check_frozen", None)
    if original is None:
        yield
        return

    def tell(expression, value):
        met.append((expression, value))
        return original(expression, value)
    scope._check_frozen = tell
    try:
        yield
    finally:
        del scope._check_frozen


def _scope(program):
    """torch's record of symbols and conditions, if a program has symbols of torch's."""
    if getattr(program, "worlds", None) is not None:
        return None
    for node in program.graph.nodes:
        value = node.meta.get("val")
        for number in value.shape if isinstance(value, torch.Tensor) else (value,):
            if isinstance(number, torch.SymInt):
                return number.node.shape_env
    return None


def _calls(region):
    """The calls of a graph and of the branches inside it."""
    for node in region.graph.nodes:
        if node.op == "call_function":
            yield node
        elif node.op == "get_attr":
            yield from _calls(region.inner[node.target])


_of_export = functools.cache(torch.export.default_decompositions)  # a table that takes long to make


def _decomposition(target):
    """torch's decomposition of one overload, or None."""
    if not isinstance(target, torch._ops.OpOverload) or target is torch.ops.aten.sym_size.int:  # which torch takes apart into itself
        return None
    try:
        return _of_export()[target]
    except KeyError:
        own = torch._decomp.decomposition_table.get(target) or getattr(target, "impl_aten", None)  # of prims, which are of ATen, too
        later = own is None and target.namespace not in ("aten", "prims") and is_composite(target)  # registered since
        return target.decompose if later else own

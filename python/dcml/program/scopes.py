"""Maps, loops and tasklets of a program.

The one idea: a map is a scope that later statements are emitted into; its parameters are indices, its connectors views.
Must not know: expressions but by their values.
"""
import ast
import contextlib

import numpy as np

from .. import _core
from . import markers, ufuncs
from .array import subscript
from .index import Index, atom, ceil_div, factor, is_index, mentions
from .expressions import Unusable, describe, is_array
from .ufuncs import concrete, type_of
from .whiles import without_continue

_WCR = {ast.Add: "sum", ast.Mult: "prod"}


def assigned_names(statements):
    """Names that statements bind, without those of functions in them."""
    names, plain = set(), set()
    todo = list(statements)
    while todo:
        node = todo.pop()
        if isinstance(node, (ast.FunctionDef, ast.Lambda, ast.ListComp, ast.GeneratorExp)):
            continue
        if isinstance(node, ast.With):  # names of a tasklet end with it
            continue
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            plain.add(node.id)
        todo += [c for c in ast.iter_child_nodes(node)
                 if not (isinstance(node, ast.AugAssign) and c is node.target and isinstance(c, ast.Name))]
    return plain, names


class Scopes:
    """Mixin of the translator."""

    # -- maps -----------------------------------------------------------------------------------
    def ranges(self, node):
        """(begin, end, step) of each dimension of ``[0:N, 0:M]``."""
        out = []
        for item in node.elts if isinstance(node, ast.Tuple) else [node]:
            if not isinstance(item, ast.Slice) or item.upper is None:
                raise self.error(item, "a range of a map; write begin:end or begin:end:step")
            begin = 0 if item.lower is None else self.index(item.lower)
            step = 1 if item.step is None else self.index(item.step)
            if isinstance(step, Index) or step < 1:
                raise self.error(item, "a step that is not a positive number")
            out.append((begin, self.index(item.upper), step))
        return out

    def map_ranges(self, node):
        """[(parameter, begin, end, step)] of a function with @map or @mapscope."""
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Call) and self.is_map(decorator.func):
                if len(decorator.args) != 1 or not isinstance(decorator.args[0], ast.Subscript):
                    raise self.error(decorator, "the ranges of a map; write @dcml.map(_[0:5, 0:3])")
                found = self.ranges(decorator.args[0].slice)
                names = [a.arg for a in node.args.args]
                if len(names) != len(found):
                    raise self.error(node, f"{len(names)} parameters for {len(found)} ranges")
                return [(n, *r) for n, r in zip(names, found)]
            if self.is_map(decorator):
                found = []
                for a in node.args.args:
                    if not isinstance(a.annotation, ast.Subscript):
                        raise self.error(a, f"the range of {a.arg}; write {a.arg}: _[0:N]")
                    found += [(a.arg, *self.ranges(a.annotation.slice)[0])]
                return found
        raise self.error(node, f"the decorator {ast.unparse(node.decorator_list[0])}; functions in programs have "
                               "@dcml.map(_[0:5, 0:3]), @dcml.mapscope(_[0:5]), @dcml.tasklet, or none")

    def is_map(self, node):
        return any(self.is_marker(node, m) for m in (markers.map, markers.mapscope))

    def map_function(self, node):
        """A function with @map is a tasklet in a map; with @mapscope its statements stand in the map."""
        scope = any(self.is_marker(getattr(d, "func", d), markers.mapscope) for d in node.decorator_list)
        with self.parallel(node, self.map_ranges(node)), contextlib.nullcontext() if scope else self.tasklet():
            self.statements(node.body)

    def map_loop(self, node):
        found = self.ranges(node.iter.slice)
        targets = node.target.elts if isinstance(node.target, (ast.Tuple, ast.List)) else [node.target]
        if len(targets) != len(found) or not all(isinstance(t, ast.Name) for t in targets):
            raise self.error(node, f"{len(found)} ranges need as many names")
        with self.parallel(node, [(t.id, *r) for t, r in zip(targets, found)]):
            self.statements(without_continue(node.body))

    def parallel(self, node, ranges):
        return _Parallel(self, node, ranges)

    # -- combining ------------------------------------------------------------------------------
    def is_shared(self, value):
        """Does a name of no dimensions lie outside of the maps around?"""
        return value.whole is not None and any(s.kind in ("map", "scatter") for s in self.out.scopes)

    def apart(self, view):
        """For each parallel map around: do its iterations write different elements of the view?"""
        index = view.place([0] * view.ndim)[1]
        for scope in self.out.scopes:
            if scope.kind not in ("map", "scatter"):
                continue
            yield scope, all(any(alone(i, name) for i in index) for name, *_ in scope.ranges)

    def meets(self, view):
        """May iterations of maps around write the same element?"""
        return view.gathers and self.out.is_nested or not all(apart for _, apart in self.apart(view))

    def combine(self, node, view, value, wcr):
        """Writes that add up, or the like, over the iterations of maps."""
        if view.frozen or not view.is_stored:
            raise self.error(node, f"{view.label or 'this value'} cannot be written")
        for scope, apart in self.apart(view):
            if not apart or view.gathers:
                scope.kind = "scatter"
        if value.ndim == 0 and view.ndim == 0 and not view.gathers:
            value = self.out.settle(value)
        self.out.store(view, value, wcr)

    # -- sequential loops -----------------------------------------------------------------------
    def range_loop(self, node):
        bounds = [self.index(a) for a in node.iter.args]
        if node.iter.keywords or not 1 <= len(bounds) <= 3:
            raise self.error(node.iter, "a range; write range(end), range(begin, end) or range(begin, end, step)")
        begin, end = (0, bounds[0]) if len(bounds) == 1 else bounds[:2]
        step = bounds[2] if len(bounds) == 3 else 1
        if isinstance(step, Index) or step == 0:
            raise self.error(node.iter, "a step that is not a number")
        if not isinstance(node.target, ast.Name):
            raise self.error(node.target, "one name for a number of a range")
        count = None if any(isinstance(v, Index) for v in (begin, end)) else len(range(begin, end, step))
        if count == 0:
            return
        node = ast.copy_location(ast.For(target=node.target, iter=node.iter, body=without_continue(node.body), orelse=[]), node)
        if count == 1:
            self.bind(node.target, begin)
            self.statements(node.body)
            return
        self.sequential(node, begin, end, step)

    def counted(self, node, name, begin, end, step):
        """``while name < end`` with one step in each iteration."""
        if isinstance(begin, Index) or isinstance(end, Index):
            many = ceil_div(end - begin, step) if step > 0 else ceil_div(begin - end, -step)
            after = Unusable("{name!r} after a loop that may have no step; use the bound of the loop instead")
        else:
            many = len(range(begin, end, step))
            after = begin + step * many
        if isinstance(many, Index) or many:
            target = ast.copy_location(ast.Name(id=name, ctx=ast.Store()), node)
            self.sequential(ast.copy_location(ast.For(target=target, iter=node.test, body=node.body, orelse=[]), node), begin, end, step)
        self.frame.names[name] = after

    def sequential(self, node, begin, end, step):
        """The loop as a sequential map: names that it changes live in arrays that iterations hand on."""
        carried = self.carried(node)
        kinds = {name: None for name in carried}
        for _ in range(4):
            mark, names = self.out.mark(), dict(self.frame.names)
            found = self.attempt(node, begin, end, step, carried, kinds)
            if found == kinds or all(kinds[n] == found[n] for n in carried):
                break
            self.out.back(mark)
            self.frame.names, kinds = names, found
        else:
            raise self.error(node, "names that change their type in each iteration")
        last = begin + step * ((end - begin - 1) // step if step > 0 else (begin - end - 1) // -step)
        self.frame.names[node.target.id] = last

    def carried(self, node):
        plain, augmented = assigned_names(node.body)
        plain.discard(node.target.id)
        out = []
        for name in sorted(plain | augmented):
            value = self.frame.names.get(name)
            if is_array(value) and value.ndim and name not in plain:
                continue  # augmented in place
            if is_array(value) or is_index(value) or ufuncs.is_number(value):
                out.append(name)
        return out

    def attempt(self, node, begin, end, step, carried, kinds):
        """Emits the loop; returns the types that the carried names have in the end, as kinds."""
        slots = {}
        for name in carried:
            value = self.array_of(node, self.frame.names[name])
            dtype, weak = kinds[name] or (value.dtype, value.weak)
            slot = self.out.temp(dtype, value.shape, name)
            self.out.store(slot, value, guarded=False)
            slot.weak, slots[name] = weak, slot
        before = dict(self.frame.names)
        parameter = self.out.parameter(node.target.id)
        forward = step > 0
        loop = (parameter, begin, end, step) if forward else (parameter, 0, (begin - end - step - 1) // -step, 1)
        with self.out.nest("sequential", [loop]):
            k = atom(parameter)
            self.frame.names.update(slots)
            for name in slots:
                slots[name].label = name  # a copy is taken where it is bound to another name
            self.frame.names[node.target.id] = k if forward else begin + step * k
            self.statements(node.body)
            found = self.hand_on(node, slots, kinds)
        for name in list(self.frame.names):
            if name in slots:
                self.frame.names[name] = slots[name]
            elif name not in before and not self.outlives(self.frame.names[name], parameter, slots):
                self.frame.names[name] = Unusable("{name!r} has a value inside the loop only; write it into an array")
        for slot in slots.values():
            slot.label = None
        return found

    def outlives(self, value, parameter, slots):
        """Is a name's value after the loop what the last iteration gave it?"""
        if is_array(value):
            return value.whole is not None and value.whole not in {s.whole for s in slots.values()}
        return not mentions(value, parameter)

    def hand_on(self, node, slots, kinds):
        """At the end of an iteration: what the names are now goes into their slots."""
        values, found = {}, {}
        for name, slot in slots.items():
            value = self.frame.names[name]
            if value is slot:
                found[name] = kinds[name] or (slot.dtype, slot.weak)
                continue
            if not (is_array(value) or is_index(value) or ufuncs.is_number(value)):
                raise self.error(node, f"{name!r} becomes {describe(value)} inside the loop")
            value = self.array_of(node, value)
            weak = value.weak if slot.weak else None
            found[name] = (concrete(_wider(slot, value)), weak if slot.weak == value.weak else
                           ufuncs.weakest([slot.weak, value.weak]))
            if list(value.shape) != list(slot.shape):
                raise self.error(node, f"{name!r} changes its shape from {list(slot.shape)} to {list(value.shape)} in the loop",
                                 _core.ShapeError)
            others = [s for s in slots.values() if s is not slot]
            reads = {leaf([0] * value.ndim)[0] for leaf in value.leaves}
            values[name] = self.out.materialize(value, name) if reads & {s.whole for s in others} else value
        for name, value in values.items():
            self.out.store(slots[name], value, guarded=False)
        return found

    # -- tasklets -------------------------------------------------------------------------------
    def connect(self, node):
        """``a << A[i]`` and ``b >> B[i]``."""
        if not isinstance(node.left, ast.Name):
            raise self.error(node, "a connector; write name << A[i], or name >> A[i]")
        name, view, wcr = node.left.id, *self.memlet(node.right)
        if isinstance(node.op, ast.LShift):
            self.frame.names[name] = view
            return
        self.connectors[name] = (node, view, wcr)
        if view.ndim:
            self.frame.names[name] = view
        else:
            self.frame.names.pop(name, None)

    def memlet(self, node):
        """(view, wcr) of ``A[i]``, ``A(1)[i]``, ``A(1, lambda x, y: x + y)[i]`` or ``A``."""
        wcr, index = "", None
        if isinstance(node, ast.Subscript):
            index, node = node.slice, node.value
        if isinstance(node, ast.Call):
            if len(node.args) > 1:
                wcr = self.combination(node.args[1])
            node = node.func
        array = self.expr(node)
        if not is_array(array) or not array.is_stored:
            raise self.error(node, f"{describe(array)} where an array is expected")
        return (array if index is None else subscript(array, self.items(index), self.out)), wcr

    def combination(self, node):
        """The name of ``lambda x, y: x + y``, or of *, min and max."""
        if isinstance(node, ast.Lambda) and len(node.args.args) == 2:
            names = {a.arg for a in node.args.args}
            body = node.body
            if isinstance(body, ast.BinOp) and type(body.op) in _WCR and _both(names, body.left, body.right):
                return _WCR[type(body.op)]
            if isinstance(body, ast.Call) and getattr(body.func, "id", "") in ("min", "max") and _both(names, *body.args):
                return body.func.id
        raise self.error(node, "a combination; write lambda a, b: a + b, or *, min(a, b), max(a, b)")

    def write_connectors(self):
        """At the end of a tasklet: what its outputs are goes into the arrays."""
        outputs = [(name, *c) for name, c in self.connectors.items()]
        values = []
        for name, node, view, wcr in outputs:
            value = self.frame.names.get(name)
            if value is None:
                raise self.error(node, f"the tasklet does not assign {name!r}")
            if is_array(value) and value.place is view.place:
                continue  # written by index
            value = self.array_of(node, value, view.dtype)
            values.append((node, view, wcr, self.out.materialize(value) if len(outputs) > 1 and value.leaves else value))
        for node, view, wcr, value in values:
            if wcr:
                self.combine(node, view, value, wcr)
            else:
                self.store(node, view, value)


class _Parallel:
    """A parallel map around statements; names that they bind end with it."""

    def __init__(self, translator, node, ranges):
        self.t, self.node = translator, node
        self.ranges = [(translator.out.parameter(name), *r) for name, *r in ranges]
        self.names = [name for name, *_ in ranges]

    def __enter__(self):
        t = self.t
        self.nest = t.out.nest("map", self.ranges)
        self.scope = self.nest.__enter__()
        self.before = t.frame.names
        t.frame.names = dict(self.before)
        for name, (parameter, *_) in zip(self.names, self.ranges):
            t.frame.names[name] = atom(parameter)

    def __exit__(self, kind, error, trace):
        t = self.t
        if kind is None:
            as_reduction(t, self.scope)
        self.nest.__exit__(kind, error, trace)
        names, t.frame.names = t.frame.names, self.before
        for name in names if kind is None and not t.in_tasklet else ():
            if name in self.before and name not in self.names and names[name] is not self.before[name]:
                raise t.error(self.node, f"{name!r} is assigned in each iteration of a map, and exists before it; write into "
                                         "an array, or use another name")


def as_reduction(t, scope):
    """A map that does nothing but combine is a reduction, added to what was there."""
    inside = any(s.kind in ("map", "scatter") for s in t.out.scopes[:-1])
    if t.out.conditions or scope.kind != "scatter" or len(scope.lines) != 1 or inside:
        return
    pending = t.out.combined.pop(scope.lines[0], None)
    if pending is None:
        return
    name, index, value, wcr = pending
    kept = [r for r in scope.ranges if any(mentions(i, r[0]) for i in index)]
    along = [r for r in scope.ranges if r not in kept]
    apart = all(any(alone(i, r[0]) for i in index) for r in kept)
    steady = not any(mentions(b, r[0]) for r in along for k in kept for b in k[1:3])
    if not along or not apart or not steady:
        return
    scope.kind, scope.lines[:] = "map", []
    scope.ranges = kept
    part = t.out.temp(t.out.dtypes[name], (), "part")
    with t.out.nest("reduce", along):
        t.out.statement(*part.place([]), value, wcr)
    t.out.statement(name, index, value=t.out.joined(name, index, part, wcr))


def alone(index, name):
    """Is it the name times a number plus a number, so that it differs between iterations?"""
    n = factor(index, name)
    return bool(n) and isinstance(index - n * atom(name), int)


def _both(names, *nodes):
    return {getattr(n, "id", None) for n in nodes} == names and len(nodes) == 2


def _wider(slot, value):
    if slot.weak and value.weak:
        return ufuncs.weakest([slot.weak, value.weak])
    if slot.weak:
        return np.result_type(value.dtype) if not value.weak else type_of(value)
    return slot.dtype if value.weak else np.promote_types(slot.dtype, value.dtype)

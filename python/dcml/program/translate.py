"""From the syntax tree of a function to a graph: statements.

The one idea: names are bound to values, as in Python; only what is written into arrays becomes statements of the graph.
Must not know: how a program is called.
"""
import ast
import contextlib
import math

import numpy as np

from .. import _core
from . import composed, functions, markers, ufuncs  # noqa: F401 composed adds rows to functions
from .array import Array, literal, stored, subscript
from .emit import Emitter
from .expressions import Expressions, Frame, LocalFunction, Method, Output, Unusable, describe, is_array, is_runtime
from .index import Index, NeedsValue, is_index
from .scopes import Scopes
from .source import Source
from .ufuncs import OPERATORS, concrete, type_of
from .whiles import counter, without_continue

_UNROLLED = 1000  # iterations of a loop over a tuple


class _Return(Exception):
    def __init__(self, value):
        self.value = value


class Translator(Scopes, Expressions):
    """One translation of a function.

    source: the function's Source.  After ``run``, ``out.graph(name)`` is the graph.
    """

    def __init__(self, source, function):
        self.out = Emitter()
        self.frame = Frame(source, function)
        self.frame.level = self.level()
        self.function = function
        self.in_tasklet = False
        self.connectors = None  # of the tasklet that is being read
        self.surroundings = []  # (dict or cell, name, value) of what lies around the function and is used
        self._tensors, self._sources = {}, {}

    def error(self, node, message, error=_core.UnsupportedOpError):
        return self.frame.source.error(node, message, error)

    def source_of(self, function):
        if function not in self._sources:
            self._sources[function] = Source(function, "function")
        return self._sources[function]

    def run(self, arguments):
        """Translates the body with values for its parameters; returns what it returns."""
        self.frame.names.update(arguments)
        return self.body(self.frame.source.tree.body)

    # -- statements -----------------------------------------------------------------------------
    def body(self, statements):
        """Runs the statements of a function; its value is what they return."""
        try:
            self.statements(statements)
        except _Return as result:
            return result.value
        return None

    def statements(self, nodes):
        for node in nodes:
            method = getattr(self, "_do_" + type(node).__name__.lower(), None)
            if method is None:
                instead = _INSTEAD.get(type(node), "write expressions of NumPy")
                raise self.error(node, f"{type(node).__name__} statements are not understood; {instead}")
            with self.frame.source.at(node):
                method(node)

    def _do_pass(self, node):
        pass

    def _do_assert(self, node):
        if not self.static(node.test):
            raise self.error(node, "this does not hold" if node.msg is None else str(self.static(node.msg)), _core.ValueError_)

    def _do_expr(self, node):
        if isinstance(node.value, ast.Constant):
            return  # documentation
        if isinstance(node.value, ast.BinOp) and isinstance(node.value.op, (ast.LShift, ast.RShift)) and self.in_tasklet:
            self.connect(node.value)
            return
        if not isinstance(node.value, ast.Call):
            raise self.error(node, "an expression without effect; assign it to a name or an array")
        self.expr(node.value)

    def _do_return(self, node):
        if self.level() != self.frame.level:
            raise self.error(node, "a return inside a loop, or under a condition on data; assign to a name, and return it in the end")
        value = None if node.value is None else \
            tuple(map(self.kept, self._items(node.value))) if isinstance(node.value, ast.Tuple) else self.pending(node.value)
        raise _Return(value)

    def level(self):
        """How many loops and conditions on data lie around the statement at hand."""
        return len(self.out.scopes), len(self.out.conditions)

    def kept(self, node, name="t"):
        """The value for a name: it no longer changes with what it was read from."""
        value = self.pending(node)
        return self.held_value(value, name)

    def held_value(self, value, name="t"):
        if isinstance(value, (tuple, list)):
            return type(value)(self.held_value(v, name) for v in value)
        if not is_array(value):
            return value
        value = self.out.settle(value, name)
        if value.ndim == 0 and value.leaves and not self.in_tasklet and not (value.whole and value.label is None):
            value = self.out.materialize(value, name)
        return value

    def _do_assign(self, node):
        if len(node.targets) > 1 or isinstance(node.targets[0], (ast.Tuple, ast.List)):
            value = self.kept(node.value)
            for target in node.targets:
                self.bind(target, value)
            return
        target = node.targets[0]
        if isinstance(target, ast.Name):
            self.bind(target, self.kept(node.value, target.id))
        else:
            self.bind(target, self.pending(node.value))

    def _do_annassign(self, node):
        if node.value is None:
            dtype = self.static(node.annotation)
            self.bind(node.target, functions.empty(self, getattr(dtype, "shape", ()), dtype, node.target.id))
            return
        value = self.kept(node.value, getattr(node.target, "id", "t"))
        self.bind(node.target, value)

    def bind(self, target, value):
        """Assigns to a name, a tuple of names, or a part of an array."""
        if isinstance(target, ast.Name):
            self.frame.names[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            values = self.unpacked(target, value)
            for part, item in zip(target.elts, values):
                self.bind(part, item)
        elif isinstance(target, ast.Subscript):
            self.write(target, value)
        else:
            raise self.error(target, f"an assignment to {ast.unparse(target)}; write to a name or into an array")

    def unpacked(self, target, value):
        if is_array(value):
            if value.ndim and self.out.is_open(value.shape[0]):
                raise NeedsValue(f"the number of rows, {value.shape[0]},")
            if not value.ndim or isinstance(value.shape[0], Index):
                raise self.error(target, f"{describe(value)} cannot be taken apart")
            value = [self.held_value(subscript(value, [k], self.out)) for k in range(value.shape[0])]
        if not isinstance(value, (tuple, list)) or len(value) != len(target.elts):
            raise self.error(target, f"{len(target.elts)} names for {describe(value)}")
        return value

    # -- writing into arrays ---------------------------------------------------------------------
    def place(self, node):
        """The view that a subscript on the left stands for."""
        array = self.pending(node.value)
        if not is_array(array):
            raise self.error(node, f"an assignment into {describe(array)}")
        if array.frozen and not array.is_stored:
            raise self.error(node, f"this cannot be written: {array.frozen}")
        array = self.out.settle(array)
        mask = None
        if not isinstance(node.slice, (ast.Tuple, ast.Slice, ast.Constant)):
            mask = self.expr(node.slice)
        if is_array(mask) and mask.dtype == bool:
            return array, mask
        return subscript(array, self.items(node.slice), self.out), None

    def write(self, target, value):
        base = target.value
        if isinstance(base, ast.Name) and isinstance(self.frame.names.get(base.id), Output):
            self.first_write(target, base.id, value)
            return
        view, mask = self.place(target)
        _, connected, wcr = (self.connectors or {}).get(getattr(base, "id", None), (None, None, ""))
        wcr = wcr if connected is not None and connected is self.frame.names.get(base.id) else ""
        if not wcr:
            self.store(target, view, value, mask)
        elif mask is None:
            self.combine(target, view, self.array_of(target, value, view.dtype), wcr)
        else:
            raise self.error(target, f"elements of {base.id!r}, which are combined, chosen by an array of bool")

    def first_write(self, target, name, value):
        """``Y[:] = value`` where Y has no shape yet."""
        output, index = self.frame.names[name], target.slice
        whole = isinstance(index, ast.Slice) and not (index.lower or index.upper or index.step)
        if not whole and not (isinstance(index, ast.Constant) and index.value is Ellipsis):
            raise self.error(target, f"{name} has no shape yet; assign all of it first: {name}[:] = ...")
        if self.level() != self.frame.level:
            raise self.error(target, f"{name} has no shape yet; assign all of it before loops and conditions on data")
        value = self.array_of(target, value)
        if output.dtype is not None:
            value = functions.cast(value, output.dtype)
        self.out.reserved.discard(output.container)
        array = self.out.declare(output.container, value.dtype, value.shape)
        self.frame.names[name] = stored(array, value.shape, value.dtype, label=name)
        self.out.store(self.frame.names[name], value)

    def array_of(self, node, value, like=None):
        """A number as an array of no dimensions."""
        if is_array(value):
            return value
        if isinstance(value, (list, tuple)) and not is_runtime(value):
            value = np.asarray(value)
            return self.out.constant(self.held(value))
        if isinstance(value, (list, tuple)):
            return functions.stack(self, [self.array_of(node, v) for v in value])
        if isinstance(value, Index):
            return Array((), np.int64, text=lambda index: f"({value})", weak=int)
        if not (ufuncs.is_number(value) or isinstance(value, int)):
            raise self.error(node, f"{describe(value)} where an array or a number is expected")
        kind = type_of(value)
        fits = like is not None and isinstance(kind, type) and (kind is not complex or np.dtype(like).kind == "c")
        dtype = like if fits else concrete(kind)
        if like is not None and isinstance(value, float) and np.dtype(dtype).kind in "iu":
            if not math.isfinite(value):
                raise self.error(node, f"{value} as {np.dtype(dtype).name}", _core.ValueError_)
            value = int(value)
        elif like is not None and np.dtype(dtype).kind == "b":
            value = bool(value)
        text = literal(value, dtype)
        weak = type(value) if type(value) in (int, float, complex) else None
        return Array((), dtype, text=lambda index: text, weak=weak)

    def store(self, node, view, value, mask=None, wcr=""):
        """Writes a value into a view, where the mask holds."""
        if view.frozen:
            raise self.error(node, f"{view.label or 'this array'} cannot be written: {view.frozen}")
        if not view.is_stored:
            raise self.error(node, "this is a value and no part of an array; assign it to a name first")
        value = self.array_of(node, value, view.dtype)
        if mask is None:
            self.out.store(view, value, wcr)
            return
        if value.ndim:
            raise self.error(node, "an array assigned through an array of bool; write A[:] = np.where(mask, value, A)")
        keep = self.out.settle(view)
        self.out.store(view, self.select(node, mask, value, keep))

    def _do_augassign(self, node):
        name = OPERATORS.get(type(node.op).__name__)
        wcr = {"add": "sum", "multiply": "prod", "subtract": "sum"}.get(name)
        value = self.expr(node.value)
        if isinstance(node.target, ast.Name):
            before = self._name(node.target)
            if is_array(before) and before.ndim:
                self.augment(node, before, name, value, wcr)
            elif is_array(before) and self.is_shared(before) and wcr:
                self.augment(node, before, name, value, wcr)
            else:
                result = self.binary(node, type(node.op).__name__, before, value)
                self.bind(node.target, self.held_value(result, node.target.id))
            return
        if not isinstance(node.target, ast.Subscript):
            raise self.error(node, "an augmented assignment to something that is no name and no part of an array")
        view, mask = self.place(node.target)
        if mask is not None:
            result = self.binary(node, type(node.op).__name__, view, value)
            keep = self.out.settle(view)
            self.store(node, view, self.out.settle(self.select(node, mask, self.out.settle(result), keep)))
            return
        self.augment(node, view, name, value, wcr)

    def augment(self, node, view, name, value, wcr):
        """view op= value: combined where iterations of maps may meet, else read, computed and written."""
        if not (is_array(value) or is_index(value) or ufuncs.is_number(value)):
            raise self.error(node, f"{describe(value)} in an augmented assignment")
        if wcr and self.meets(view):
            if name == "subtract":
                value = self.ufunc(node, "negative", value)
            self.combine(node, view, self.array_of(node, value, view.dtype), wcr)
            return
        operator = type(node.op).__name__
        result = self.binary(node, operator, view, value)
        kinds = view.dtype, result.dtype if is_array(result) else None
        if kinds[1] is not None and not np.can_cast(kinds[1], kinds[0], "same_kind"):
            raise self.error(node, f"{view.dtype.name} {operator}= {kinds[1].name} would lose what the result holds; write "
                                   f"A[:] = A + x to convert", _core.DTypeError)
        self.store(node, view, result)

    # -- conditions -----------------------------------------------------------------------------
    def _do_if(self, node):
        condition = self.expr(node.test)
        if not is_runtime(condition):
            self.statements(node.body if condition else node.orelse)
            return
        if not is_array(condition) or condition.ndim:
            raise self.error(node.test, f"{describe(condition)} as a condition; write np.where, or .any() or .all()")
        condition = functions.cast(condition, np.bool_)
        condition = self.out.settle(condition)
        if condition.leaves and not self.in_tasklet:
            condition = self.out.materialize(condition, "condition")
        before, ends = dict(self.frame.names), []
        text = condition.text([])
        for guard, statements in ((text, node.body), (f"not({text})", node.orelse)):
            self.frame.names = dict(before)
            self.out.conditions.append(guard)
            try:
                self.statements(statements)
            finally:
                self.out.conditions.pop()
            ends.append(self.frame.names)
        self.frame.names = self.merged(node, condition, before, *ends)

    def merged(self, node, condition, before, yes, no):
        """Names after both branches: what differs is selected."""
        names = dict(before)
        for name in {**yes, **no}:
            a, b = yes.get(name, before.get(name)), no.get(name, before.get(name))
            if a is b:
                names[name] = a
                continue
            if name not in yes or name not in no:
                names[name] = Unusable("{name!r} is assigned under a condition on data only; give it a value before")
                continue
            if not all(is_array(v) or is_index(v) or ufuncs.is_number(v) for v in (a, b)):
                raise self.error(node, f"{name!r} is {describe(a)} or {describe(b)}, which depends on data")
            value = self.out.settle(self.select(node, condition, a, b), name)
            names[name] = self.held_value(value, name)
        return names

    # -- loops ----------------------------------------------------------------------------------
    def _do_for(self, node):
        if node.orelse:
            raise self.error(node, "an else after a loop; write it after the loop")
        call = node.iter
        if isinstance(call, ast.Subscript) and self.is_marker(call.value, markers.map):
            self.map_loop(node)
        elif isinstance(call, ast.Call) and self.is_marker(call.func, range):
            self.range_loop(node)
        else:
            body = without_continue(node.body)
            for item in self.static_items(call):
                self.bind(node.target, item)
                self.statements(body)

    def _do_while(self, node):
        count = counter(node)
        begin = self.frame.names.get(count[0]) if count and not node.orelse else None
        if not is_index(begin):
            raise self.error(node, "a while loop whose number of steps depends on data, or is not counted by an integer; write "
                                   "for k in range(n), or while k < n with one k += 1")
        name, step, bound, more = count
        self.counted(node, name, begin, self.index(bound) + more, step)

    def is_marker(self, node, marker):
        try:
            return self.expr(node) is marker
        except _core.Error:
            return False

    def is_tasklet(self, node):
        """Is it dcml.tasklet, or a call of it?  A call may say the language, of which there is one, and a device."""
        called = isinstance(node, ast.Call)
        if not self.is_marker(node.func if called else node, markers.tasklet):
            return False
        for given in [*node.args, *[k.value for k in node.keywords]] if called else []:
            self.expr(given)  # which raises for others
        return True

    def static_items(self, node):
        """The items of a tuple, list, range, zip or enumerate that is known now."""
        value = self.expr(node)
        if is_array(value) and value.ndim and self.out.is_open(value.shape[0]):
            raise NeedsValue(f"the number of rows, {value.shape[0]},")
        if is_array(value) and value.ndim and not isinstance(value.shape[0], Index):
            value = [subscript(value, [k], self.out) for k in range(value.shape[0])]
        if is_runtime(value) and not isinstance(value, (list, tuple)):
            raise self.error(node, f"a loop over {describe(value)}; write for k in range(n), or for i in dcml.map[0:n]")
        try:
            items = list(value)
        except TypeError:
            raise self.error(node, f"a loop over {describe(value)}; write for k in range(n)") from None
        if len(items) > _UNROLLED:
            raise self.error(node, f"a loop over {len(items)} items is repeated for each; write for k in range(n)")
        return items

    def _do_functiondef(self, node):
        if not node.decorator_list:
            self.frame.names[node.name] = LocalFunction(node, self.frame)
        elif self.is_tasklet(node.decorator_list[0]):
            with self.tasklet():
                self.statements(node.body)
        else:
            self.map_function(node)

    def _do_with(self, node):
        for item in node.items:
            if not self.is_tasklet(item.context_expr):
                raise self.error(node, f"with {ast.unparse(item.context_expr)}; blocks are with dcml.tasklet:")
        with self.tasklet():
            self.statements(node.body)

    # -- calls ----------------------------------------------------------------------------------
    def call(self, function, node, args, kwargs):
        """What a function gives for values of the program."""
        if isinstance(function, Method):
            return functions.method(self, node, function, args, kwargs)
        if isinstance(function, LocalFunction):
            return self.inline(node, function, self.held_value(args), {k: self.held_value(v) for k, v in kwargs.items()})
        return functions.call(self, node, function, args, kwargs)

    def check_annotations(self, node, function, frame):
        """Extents of arguments are those that the annotations name; symbols get their values from them."""
        for name, annotation in getattr(function, "__annotations__", {}).items():
            value, shape = frame.names.get(name), getattr(annotation, "shape", None)
            if shape is None or not is_array(value):
                continue
            if len(shape) != value.ndim:
                raise self.error(node, f"argument {name} has {value.ndim} dimensions, expected {len(shape)}", _core.ShapeError)
            for want, have in zip(shape, value.shape):
                if str(want).isidentifier():
                    frame.symbols.setdefault(str(want), have)

    @contextlib.contextmanager
    def tasklet(self):
        """A block of scalar code with connectors."""
        outer = self.in_tasklet, self.connectors, dict(self.frame.names)
        self.in_tasklet, self.connectors = True, {}
        try:
            yield
            self.write_connectors()
        finally:
            self.in_tasklet, self.connectors, self.frame.names = outer


_INSTEAD = {ast.Try: "programs raise nothing", ast.ClassDef: "define it outside",
            ast.Import: "import outside", ast.ImportFrom: "import outside", ast.Raise: "programs raise nothing",
            ast.Break: "write conditions instead", ast.Continue: "write conditions instead"}

"""``@dcml.program``: a function of NumPy as a callable, compiled at its first call.

The one idea: a program is translated once for each combination of argument types; extents that no annotation names are
symbols, of which equal ones are one, so that another size is no other program.
Must not know: how source is translated.
"""
import functools
import inspect
import numbers
import sys

import numpy as np

from .. import _core, dtypes
from .array import stored, type_name
from .expressions import describe
from .index import NeedsValue
from .source import Source
from .translate import Output, Translator


def program(function=None, **options):
    """Makes a program of a function whose body is NumPy, maps and tasklets.

    function: annotations such as ``dcml.float32[N, 4]`` or ``dcml.float64`` give types and shapes; a parameter without
        one takes what it is called with.  What the body assigns into its arrays is seen by the caller.
    options: auto_optimize (True); device: dcml.DeviceType.GPU to run on the GPU, with arrays of numpy too; without it a
        program runs there where it is called with tensors that lie there.
    Returns a Program.  Raises UnsupportedOpError, naming file and line, when what the body says is not understood; this
    is found at ``to_sdfg``, ``compile`` or the first call.
    """
    unknown = set(options) - {"auto_optimize", "device", "recreate_sdfg", "use_cache"}
    if unknown:
        raise TypeError(f"program() got an unexpected keyword argument {sorted(unknown)[0]!r}")
    if function is None:
        return lambda f: program(f, **options)
    return Program(function, **options)


_QUICK = 256


def _is_gpu(name, device):
    """Whether an option names the GPU: a DeviceType of dcml or DaCe, its name, or None."""
    named = str(getattr(device, "name", device)).upper()
    if named not in ("NONE", "CPU", "GPU"):
        raise _core.DeviceError(f"program {name}: device={device!r}; expected DeviceType.CPU or DeviceType.GPU")
    return named == "GPU"


def _kinds(args):
    """Types and shapes of positional arguments; None where they are not all arrays of numpy and numbers of Python."""
    kinds = []
    for value in args:
        kind = type(value)
        if kind is np.ndarray:
            kinds += value.dtype, value.shape
        elif kind is int or kind is float or kind is complex:
            kinds.append(kind)
        else:
            return None
    return tuple(kinds)


class Program:
    """A function that runs compiled.  ``f``: the function; ``name``: its name."""

    def __init__(self, function, auto_optimize=True, device=None, **_):
        functools.update_wrapper(self, function)
        self.f, self.name, self.auto_optimize = function, function.__name__, auto_optimize
        self.on_gpu = _is_gpu(self.name, device)
        self._dcml_program = function
        self._graphs, self._valued = {}, set()
        self._only, self._quick = None, {}  # what serves all calls; what serves arguments of certain types and shapes

    def __repr__(self):
        return f"Program({self.name!r})"

    def __get__(self, instance, owner=None):
        if instance is None:
            return self
        raise _core.UnsupportedOpError(f"program {self.name}: a method; write a function outside of the class")

    @functools.cached_property
    def signature(self):
        """inspect.Signature of the function, annotations evaluated."""
        try:
            signature = inspect.signature(self.f, eval_str=True)
        except Exception as error:
            raise _core.ValueError_(f"program {self.name}: its annotations: {type(error).__name__}: {error}") from error
        for p in signature.parameters.values():
            if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
                raise _core.UnsupportedOpError(f"program {self.name}: parameter *{p.name}; name each parameter")
        return signature

    def to_sdfg(self, *args, simplify=True, **kwargs):
        """The program as an SDFG: of the annotations' types, or of those of the arguments given.

        simplify: drop operators without effect.  Raises ValueError_ for a parameter without a type.
        """
        from ..sdfg import SDFG
        sdfg = SDFG(self._graph(self._arguments(args, kwargs, partial=True)).graph.clone())
        if self.on_gpu:
            sdfg.apply_gpu_transformations(simplify=False)
        if simplify:
            sdfg.simplify()
        return sdfg

    def compile(self, *args, simplify=True, **kwargs):
        """The compiled SDFG."""
        return self.to_sdfg(*args, simplify=simplify, **kwargs).compile()

    def __call__(self, *args, **kwargs):
        """Runs the program.

        args, kwargs: arrays of numpy or torch, numbers, and values of symbols by name.  Arrays that the body writes are
        written in place.
        Returns what the function returns: an array, a tuple of arrays, or None.
        Raises ValueError_ for missing or unknown arguments, DTypeError and ShapeError for wrong ones.
        """
        kinds = None if kwargs else _kinds(args)
        made = self._only or self._quick.get(kinds)
        if made is None or len(args) + len(kwargs) != len(made.parameters) or not made.holds():
            names = self.signature.parameters
            symbols = {k: kwargs.pop(k) for k in list(kwargs) if k not in names}
            arguments = self._arguments(args, kwargs)
            made = self._graph(arguments)
            if self._is_typed and not symbols:
                self._only = made
            elif kinds is not None and len(args) == len(made.parameters):
                if len(self._quick) == _QUICK:
                    self._quick.clear()
                self._quick[kinds] = made
            args, kwargs = [arguments[name].value for name in made.parameters], symbols
        return made(args, kwargs)

    @functools.cached_property
    def _is_typed(self):
        """Do the annotations say all, so that there is one graph and the core can check arguments?"""
        return all(_kind(p.annotation) is not None and p.default is p.empty for p in self.signature.parameters.values())

    # -- arguments ------------------------------------------------------------------------------
    def _arguments(self, args, kwargs, partial=False):
        """{name: Argument} of a call."""
        names = self.signature.parameters
        try:
            bound = (self.signature.bind_partial if partial else self.signature.bind)(*args, **kwargs)
        except TypeError as error:
            raise _core.ValueError_(f"program {self.name}: {error}") from error
        bound.apply_defaults()
        out, seen = {}, {}
        for name, p in names.items():
            given = name in bound.arguments
            out[name] = _argument(self, name, p.annotation, bound.arguments.get(name), given, seen)
        return out

    def _graph(self, arguments):
        key = tuple(a.key for a in arguments.values())
        if key in self._valued:
            key = tuple(a.full_key for a in arguments.values())
        if key not in self._graphs or not self._graphs[key].holds():
            try:
                self._graphs[key] = translated(self, arguments, False)
            except NeedsValue as missing:
                self._valued.add(key)
                key = tuple(a.full_key for a in arguments.values())
                if key not in self._graphs or not self._graphs[key].holds():
                    self._graphs[key] = self._with_values(arguments, missing)
        return self._graphs[key]

    def _with_values(self, arguments, missing):
        try:
            return translated(self, arguments, True)
        except NeedsValue as again:
            raise (again.error or missing.error) from missing


class Argument:
    """A parameter's type in one translation.

    kind: "array", "scalar", "constant"; shape: of ints, Index and whatever annotations hold; sizes: the extents given.
    """
    __slots__ = ("name", "kind", "dtype", "shape", "sizes", "weak", "value", "key", "full_key")

    def __init__(self, name, kind, dtype=None, shape=(), sizes=None, weak=None, value=None):
        self.name, self.kind, self.dtype, self.shape, self.weak, self.value = name, kind, dtype, shape, weak, value
        self.sizes = sizes
        if kind == "constant":
            self.key = self.full_key = (kind, _hashable(value))
        else:
            self.key = (kind, dtype, shape, weak)
            self.full_key = (*self.key, sizes)


def _hashable(value):
    try:
        hash(value)
    except TypeError:
        return id(value), repr(value)
    return type(value), value


def _argument(owner, name, annotation, value, given, seen):
    where = f"program {owner.name}: argument {name!r}"
    kind = _kind(annotation)
    if kind is None:
        if not given:
            raise _core.ValueError_(f"{where} has no type; annotate it, say {name}: dcml.float32[5, 4], or give an example")
        return _of_value(where, name, value, seen)
    dtype, shape = kind
    type_name(dtype)
    if given and shape is not None and value is None:
        return Argument(name, "constant", value=None)
    if shape is None:
        return Argument(name, "scalar", dtype, value=_number(where, value, dtype) if given else None)
    if given:
        value = _array(where, value, dtype, len(shape))
    return Argument(name, "array", dtype, tuple(map(_extent_key, shape)), None, value=value)


def _extent_key(extent):
    return int(extent) if isinstance(extent, numbers.Integral) else extent


def _kind(annotation):
    """(dtype, shape or None for a number) of an annotation; None where it says nothing."""
    if annotation is inspect.Parameter.empty:
        return None
    shape = getattr(annotation, "shape", None)
    if shape is not None and hasattr(annotation, "dtype"):
        return dtypes.of(annotation.dtype).dtype, tuple(shape)
    try:
        return dtypes.of(annotation).dtype, None
    except _core.DTypeError:
        return None


def _is_tensor(value):
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _array(where, value, dtype, rank):
    if not isinstance(value, np.ndarray) and not _is_tensor(value):
        try:
            value = np.asarray(value)
        except Exception as error:
            raise _core.DTypeError(f"{where}: {describe(value)} is no array") from error
    have = _dtype(value)
    if have != dtype:
        raise _core.DTypeError(f"{where} has type {have}, expected {dtype}")
    if value.ndim != rank:
        raise _core.ShapeError(f"{where} has shape {list(value.shape)}, expected {rank} dimensions")
    return value


def _dtype(value):
    return value.dtype if isinstance(value, np.ndarray) else dtypes.of(value.dtype).dtype


def _number(where, value, dtype):
    try:
        number = np.asarray(value.item() if _is_tensor(value) else value).astype(dtype, casting="unsafe")
    except (TypeError, ValueError) as error:
        raise _core.DTypeError(f"{where}: {value!r} is no {dtype}") from error
    if number.size != 1:
        raise _core.ShapeError(f"{where} has shape {list(number.shape)}, expected a number")
    return number.reshape(())


def _of_value(where, name, value, seen):
    """The type of a parameter without annotation, from what it is called with."""
    if isinstance(value, np.ndarray) or _is_tensor(value):
        dtype = _dtype(value)
        type_name(dtype)
        shape = tuple(e if e < 2 else seen.setdefault(e, f"{name}_{d}") for d, e in enumerate(value.shape))
        return Argument(name, "array", dtype, shape, tuple(value.shape), value=value)
    if isinstance(value, bool) or not isinstance(value, (int, float, complex, np.generic)):
        return Argument(name, "constant", value=value)
    weak = type(value) if type(value) in (int, float, complex) else None
    dtype = np.dtype(weak or value.dtype)
    return Argument(name, "scalar", dtype, (), None, weak, np.asarray(value, dtype))


# -- from arguments to a graph ---------------------------------------------------------------------
class Made:
    """A translated program: its graph, callable; is_tuple: what the function returns, None for nothing."""

    def __init__(self, graph, parameters, is_tuple, optimize, surroundings, on_gpu=False):
        self.graph, self.parameters, self.is_tuple, self.optimize = graph, parameters, is_tuple, optimize
        self._functions, self._on_gpu, self._surroundings = {}, on_gpu, surroundings

    def holds(self):
        """Are the names around the function, globals and closures, what they were?"""
        for scope, name, value in self._surroundings:
            if (scope.cell_contents if name is None else scope.get(name)) is not value:
                return False
        return True

    def __call__(self, args, kwargs):
        function = self._functions.get(self._on_gpu) or self._function(self._on_gpu)
        try:
            found = function(*args, **kwargs)
        except _core.DeviceError:
            if self._on_gpu or not any(_is_tensor(value) and value.is_cuda for value in args):
                raise
            found = self._function(True)(*args, **kwargs)
        return found if self.is_tuple else None if self.is_tuple is None else found[0]

    def _function(self, on_gpu):
        """The core function for a device, made at its first call."""
        if on_gpu not in self._functions:
            from ..library import implementation
            self._functions[on_gpu] = _core.Function(self.graph, optimize=self.optimize, **implementation(on_gpu))
        return self._functions[on_gpu]


def translated(owner, arguments, with_values):
    """Made of a program for argument types; with_values: the extents given are numbers, no symbols."""
    source = Source(owner.f, "program", owner.name)
    t = Translator(source, owner.f)
    names, parameters = {}, []
    for a in arguments.values():
        if a.kind == "constant":
            names[a.name] = a.value
            continue
        shape = a.sizes if with_values and a.sizes is not None else [_extent(t, e, a.sizes is not None) for e in a.shape]
        array = t.out.input(a.name, a.dtype, shape, None if a.kind == "scalar" else a.name)
        array.weak = a.weak
        if a.kind == "scalar":
            array.frozen, array.label = "it is a number; return the result", None
        names[a.name] = array
        parameters.append(a.name)
    try:
        result = t.run(names)
        is_tuple = returned(t, source.tree, result)
    except _core.Error:
        raise
    except RecursionError as error:
        raise source.error(source.tree, "it is nested too deeply") from error
    except NotImplementedError as error:
        raise source.error(source.tree, str(error)) from error
    around = list({(id(scope), name): (scope, name, value) for scope, name, value in t.surroundings}.values())
    return Made(t.out.graph(owner.name), parameters, is_tuple, owner.auto_optimize, around, owner.on_gpu)


def instance(source, function, arrays, results, values, name):
    """The graph of a function for given arrays, as the implementation of an operator.

    arrays: {parameter: (container, descriptor), a list of them, or None}; results: {parameter: (container, descriptor or
    None)} of what it assigns; values: {parameter or other name: value of Python}.
    """
    t = Translator(source, function)
    t.out.least = 0  # sizes are the caller's; nothing can be asked of them
    names = dict(values)
    for parameter, given in arrays.items():
        several = [_operand(t, *item) for item in (given if isinstance(given, list) else [given] if given else [])]
        names[parameter] = several if isinstance(given, list) else several[0] if several else None
    for parameter, (container, descriptor) in results.items():
        dtype = descriptor.dtype.dtype if descriptor is not None and descriptor.dtype is not None else None
        names[parameter] = Output(parameter, container, dtype)
        t.out.reserved.add(container)
    try:
        t.run(names)
    except NeedsValue as missing:
        raise missing.error from missing
    for parameter in results:
        if isinstance(t.frame.names[parameter], Output):
            raise source.error(source.tree, f"output {parameter} is not assigned")
    return t.out.graph(name)


def _operand(t, container, descriptor):
    shape = () if not descriptor.shape or type(descriptor).__name__ == "Scalar" else descriptor.shape
    return t.out.input(container, descriptor.dtype.dtype, [t.size(e) for e in shape])


def _extent(t, extent, is_open):
    if isinstance(extent, numbers.Integral):
        return int(extent)
    if not is_open:
        return t.size(extent)
    t.out.open.add(extent)
    return t.out.symbol(extent, 2)


def returned(t, tree, value):
    """Makes outputs of what a program returns: is it a tuple, or None for nothing."""
    if value is None:
        return None
    several = isinstance(value, (tuple, list))
    values = list(value) if several else [value]
    names = [f"__return_{k}" for k in range(len(values))] if several else ["__return"]
    for name, item in zip(names, values):
        item = t.array_of(tree, item)
        temp = item.whole and not item.write and t.out.declared.get(item.whole, ("const",))[0] == "temp"
        if temp and item.whole not in t.out.renamed and not t.out.declared[item.whole][3] and item.is_stored:
            t.out.renamed[item.whole] = name
            t.out.outputs.append(item.whole)
            continue
        target = t.out.declare(name, item.dtype, item.shape)
        t.out.store(stored(target, item.shape, item.dtype), item)
        t.out.outputs.append(target)
    return several

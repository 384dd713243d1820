"""What forward reads besides tensors and the attributes of modules: globals, variables of enclosing functions, defaults,
attributes of classes, and what lies in containers and plain objects.

The one idea: from the names in the code of what ran (traced_code.py), a walk notes each container with the very objects in
it; the core compares these observations by identity at each call, and only where one fails is a description made of the
values.
Must not know: captures, graphs or how a call is run.
"""
import array
import collections
import enum
import functools
import os
import sys
import sysconfig
import types

import numpy as np
import torch
from torch.utils import _pytree as pytree

VALUES = (bool, int, str, bytes, type(None), type(...), range, slice, torch.dtype, torch.device, torch.Size,
          torch.layout, torch.memory_format, enum.Enum)
_TENSORS = (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)
FILLED = (list, dict, collections.OrderedDict, collections.defaultdict, collections.deque)
_DATA_TYPES = {"types", "argparse", "collections", "dataclasses"}  # of the standard library: whose instances are data
_FOREIGN = ("torch", "functorch", "numpy", "sympy", "mpmath", "networkx", "dcml", "typing_extensions", "filelock",
            "fsspec", "jinja2", "triton", "optree")
_STDLIB = tuple(os.path.join(sysconfig.get_paths()[k], "") for k in ("stdlib", "platstdlib"))
_OWN_CODE = tuple(os.path.join(os.path.dirname(m.__file__), "") for m in (torch, np, sys.modules["dcml"]))
_ADDED = object()
MOST = 100000       # values that one walk looks at
_MOST_BYTES = 1 << 16


@functools.lru_cache(maxsize=None)
def foreign_file(path):
    """Code of Python itself, of torch and of what torch is made of, none of which holds a user's settings."""
    if path.startswith(("<frozen", "<eval_with_key", *_OWN_CODE)):
        return True
    packages = path.replace("\\", "/").rpartition("-packages/")
    return packages[2].startswith(tuple(n + end for n in _FOREIGN for end in ("/", ".py"))) if packages[1] else path.startswith(_STDLIB)


@functools.lru_cache(maxsize=4096)
def is_foreign(module):
    """Is a module of this name Python's, torch's or of what torch is made of?"""
    root = (module or "").partition(".")[0]
    return root in _FOREIGN or root in sys.stdlib_module_names and root not in _DATA_TYPES or root == "builtins"


def foreign_module(value):
    return isinstance(value, types.ModuleType) and is_foreign(value.__name__)


def contents(observation):
    """What the container of an observation holds now, as a list."""
    holder, seen = observation[:2]
    if len(observation) == 3:
        return [holder.get(seen)] if isinstance(holder, dict) else []
    if isinstance(holder, types.CellType):
        return list(_contents(holder))
    return list(holder.values()) if isinstance(holder, dict) else list(holder)


def held_tensors(observation):
    """Are there tensors in its container, or were there when it was observed?"""
    return any(isinstance(leaf, _TENSORS) for leaf in pytree.tree_leaves((observation[-1], contents(observation))))


def is_changeable(observation):
    """Is its container, with tensors, one that calls can change?"""
    return type(observation[0]) in ((dict,) if len(observation) == 3 else (*FILLED, types.CellType)) and held_tensors(observation)


def is_filled(observation):
    """Is it of a container, not of a variable?"""
    return len(observation) == 2 and not isinstance(observation[0], types.CellType)


def pairs(table):
    return tuple([v for pair in dict.items(table) for v in pair])


class Variable:
    """A variable of an enclosing function, as something with items."""

    def __init__(self, cell):
        self.cell = cell

    def __getitem__(self, key):
        return self.cell.cell_contents

    def __setitem__(self, key, value):
        self.cell.cell_contents = value


def assigned_to(observation):
    """(what holds a variable, key, value now)."""
    holder = observation[0]
    return (holder, observation[1], holder[observation[1]]) if len(observation) == 3 else (Variable(holder), None, holder.cell_contents)


def restore(observations):
    """Puts back what containers held."""
    for (holder, *seen), _ in observations:
        if len(seen) == 2:
            if isinstance(holder, dict):
                holder[seen[0]] = seen[1]
        elif isinstance(holder, dict):
            holder.clear()
            holder.update(zip(seen[0][::2], seen[0][1::2]))
        elif isinstance(holder, list):
            holder[:] = seen[0]
        elif isinstance(holder, collections.deque):
            holder.clear()
            holder.extend(seen[0])
        elif isinstance(holder, set):
            holder.clear()
            holder.update(seen[0])
        elif isinstance(seen[0], bytes):
            _put_bytes(holder, seen[0])
        elif isinstance(holder, types.CellType) and seen[0]:
            holder.cell_contents = seen[0][0]


def _put_bytes(holder, contents):
    if isinstance(holder, bytearray):
        holder[:] = contents
    elif isinstance(holder, array.array):
        del holder[:]
        holder.frombytes(contents)
    else:
        memoryview(holder).cast("B")[:] = contents


class Observer:
    """Looks at values and what they hold.

    names: attributes of objects to follow; None: all.  codes: by id, of the functions whose variables count.
    changing: by id, containers in which forward changes tensors: others of the same kinds there are no other description.
    added: ids of containers that forward only adds to: what they hold counts for nothing.
    ways: by id of a value, how often it was met.  variables: [(cell, its name)] of functions met.
    observations: {key: ((holder, contents) or (holder, key, value), label)}, see csrc/python/watch.c.
    tensors, modules: those met on the way, by id.  held: objects that descriptions name by identity.
    """

    def __init__(self, names, codes, watched=(), all_functions=False, changing=(), added=()):
        self._names, self._codes, self._all, self._changing = names, codes, all_functions, changing
        self.watched = watched  # ids of modules that are watched anyway
        self.observations, self.tensors, self.modules, self.held = {}, {}, {}, []
        self._met, self._left, self._added = {}, MOST, added
        self.ways, self.variables = {}, []
        self._kinds = {}  # id of a tensor -> its kind and which one it is

    def describe(self, value, label):
        """A hashable stand-in that differs where the values differ; objects stand for themselves."""
        if isinstance(value, VALUES):
            return type(value), repr(value) if isinstance(value, (slice, range)) else value
        if isinstance(value, (float, complex)):
            return type(value), repr(value)  # tells -0.0 from 0.0, and a NaN from no other
        if id(value) in self._kinds:
            return self._kinds[id(value)]
        self.ways[id(value)] = self.ways.get(id(value), 0) + 1
        if id(value) in self._added:
            return _ADDED
        if id(value) in self._met:
            return self._met[id(value)]
        if id(value) in self._changing:
            self.take_by_kind(value)
        self._left -= 1
        self.held.append(value)
        self._met[id(value)] = id(value)  # stands for the value inside itself
        look = next((look for kind, look in _LOOKS if isinstance(value, kind)), Observer._object)
        found = look(self, value, label) if self._left > 0 else object()  # too many to tell: no two are the same
        if type(value) not in (list, tuple, dict, set, frozenset) or id(value) in self._changing:
            found = id(value), found  # of others, another one with the same contents is no other
        self._met[id(value)] = found
        return found

    def take_by_kind(self, value):
        """Tensors in a container, or one, are from now on told apart by their kinds, and from one another."""
        for leaf in pytree.tree_leaves(value, lambda one: id(one) in self._added):
            if isinstance(leaf, torch.Tensor):
                self.tensors[id(leaf)] = leaf
                self._kinds.setdefault(id(leaf), (torch.Tensor, leaf.shape, leaf.dtype, len(self._kinds)))

    def part(self, holder, key, value, label):
        """One item of a dictionary, or an attribute."""
        self.observations[id(holder), key] = (holder, key, value), label
        return self.describe(value, label)

    def note(self, holder, label, contents=None):
        """Observes a container: all keys and values of a dictionary, or its items."""
        if contents is None:
            contents = pairs(holder) if isinstance(holder, dict) else tuple(holder)
        self.observations[id(holder), None] = (holder, contents), label

    def _too_many(self, values):
        self._left -= len(values)
        return self._left <= 0

    def _tensor(self, tensor, label):
        self.tensors[id(tensor)] = tensor

    def _module(self, module, label):
        if id(module) not in self.watched:
            self.modules[id(module)] = module

    def _sequence(self, values, label):
        if not isinstance(values, tuple):
            self.note(values, label)
        if self._too_many(values):
            return object()
        return type(values), tuple([self.describe(v, label) for v in values])

    def _mapping(self, table, label):
        self.note(table, label)
        if self._too_many(table):
            return object()
        items = list(dict.items(table))
        more = self._object(table, label) if type(table) is not dict else None
        return more, tuple([(self.describe(k, label), self.describe(v, f"{label}[{k!r}]")) for k, v in items])

    def _array(self, values, label):
        """Numbers in an array of NumPy's or Python's."""
        seen = np.asarray(values)
        if seen.dtype.hasobject or seen.nbytes > _MOST_BYTES or not seen.flags.c_contiguous:
            return None
        contents = seen.tobytes()
        self.note(values, label, contents)
        return seen.dtype.str, seen.shape, contents

    def _function(self, function, label):
        if not self._all and id(function.__code__) not in self._codes or foreign_file(function.__code__.co_filename):
            return None
        cells, name = [], function.__qualname__
        for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            contents = _contents(cell)
            self.variables.append((cell, variable))
            label = f"the variable {variable!r} of {name}"
            self.note(cell, label, contents)
            if id(cell) in self._changing:
                self.take_by_kind(contents)
            cells.extend([self.describe(c, label) for c in contents])
        given = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        wrapped = getattr(function, "__wrapped__", None)
        return (*cells, *[self.describe(v, f"a default of {name}") for v in given], self.describe(wrapped, label))

    def _holder_of_function(self, value, label):
        """Methods, properties, partial applications: what they are made of."""
        parts = [getattr(value, n, None) for n in ("__func__", "__self__", "func", "args", "keywords", "fget",
                                                    "__wrapped__")]
        return tuple([self.describe(p, label) for p in parts])

    def _python_module(self, module, label):
        if self._names is None or foreign_module(module):
            return None
        table = vars(module)
        return tuple([(n, self.part(table, n, table[n], f"{module.__name__}.{n}"))
                      for n in self._names & table.keys() if not isinstance(table[n], types.ModuleType)])

    def _class(self, kind, label):
        if self._names is None and not self._all or issubclass(kind, enum.Enum):
            return None
        return self.attributes(kind, self._names)

    def attributes(self, kind, names):
        """Attributes that a class and its bases give to their instances."""
        found = {}
        for base in kind.__mro__:
            if is_foreign(base.__module__):
                continue
            table = base.__dict__
            for n in sorted(table.keys() if names is None else names & table.keys()):
                if isinstance(table[n], SLOT) or n.startswith("__") and n.endswith("__"):
                    continue
                if n not in found:  # where a nearer class may get one
                    nearest = next(b.__dict__[n] for b in kind.__mro__ if n in b.__dict__)
                    found[n] = [self.part(kind, n, nearest, f"{kind.__qualname__}.{n}")]
                found[n].append(self.part(base, n, table[n], f"{base.__qualname__}.{n}"))
        return tuple([(n, *values) for n, values in found.items()])

    def _object(self, value, label):
        """An instance of a class of the user's, or a name space."""
        kind = type(value)
        if is_foreign(kind.__module__):
            return None
        if isinstance(table := getattr(value, "__dict__", None), dict):
            self.note(table, label)
            if id(table) in self._changing:
                self.take_by_kind(table)
            held = [(n, v) for n, v in table.items() if self._names is None or n in self._names]
        else:
            held = []
        held = tuple([(n, self.describe(v, f"{label}.{n}")) for n, v in held])
        return held, self.slots(value, self._names, label), self.attributes(kind, self._names)

    def slots(self, value, names, label):
        """What an object has outside its dictionary."""
        found = [n for base in type(value).__mro__ for n, v in vars(base).items() if isinstance(v, SLOT)
                 and not n.startswith("__") and (names is None or n in names) and hasattr(value, n)]
        return tuple([(n, self.part(value, n, getattr(value, n), f"{label}.{n}")) for n in found])


def _contents(cell):
    try:
        return (cell.cell_contents,)
    except ValueError:  # not bound yet
        return ()


SLOT = types.MemberDescriptorType
_LOOKS = ((torch.Tensor, Observer._tensor), (torch.nn.Module, Observer._module), (dict, Observer._mapping),
          ((list, tuple, set, frozenset, collections.deque), Observer._sequence),
          ((np.ndarray, bytearray, array.array), Observer._array),
          (types.FunctionType, Observer._function), (types.ModuleType, Observer._python_module), (type, Observer._class),
          ((types.MethodType, staticmethod, classmethod, property, functools.partial, functools._lru_cache_wrapper),
           Observer._holder_of_function))

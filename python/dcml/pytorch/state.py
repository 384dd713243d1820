"""What a capture has built in besides tensors: the tree of modules, their hooks and the attributes that forward reads.

The one idea: a call compares the attribute dictionaries of all modules with the ones it saw last, by
identity; only when something differs is a key made of the values, so that a change is seen and costs nothing
while there is none.
Must not know: captures, graphs or tensors' values.
"""
import contextlib
import itertools
import operator
import os
import sys
from dataclasses import dataclass, field

import torch

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_TORCH = os.path.dirname(torch.__file__) + os.sep
_PLAIN = (bool, int, str, bytes, type(None), torch.dtype, torch.device)
_OWN = set(vars(torch.nn.Module())) - {"training"} | {"_flat_weights", "_flat_weight_refs"}  # tables of tensors


class ModuleState:
    """Watches ``module`` and all modules inside it."""

    def __init__(self, module):
        self._module = module
        self._reads = set()      # names of attributes that some forward has read
        self._tables = None      # dictionaries to watch
        self._seen = None        # their values when the key was made
        self._key = None
        self._known = {}         # description -> (small number, values that the description names by identity)

    def key(self):
        """A number that is the same exactly while tree, hooks and attributes read are the same."""
        if self._tables is not None and all(map(_same_objects, map(dict.values, self._tables), self._seen)):
            return self._key
        return self._renew()

    def watched(self):
        """[(dictionary, tuple of its values)] as they were when the last key was made."""
        return list(zip(self._tables, map(tuple, self._seen)))

    def _renew(self):
        modules = list(self._module.modules())
        self._tables = [table for m in modules
                        for table in (vars(m), m._modules, *[getattr(m, name) for name in _HOOKS])]
        self._seen = [*map(list, map(dict.values, self._tables))]
        held = []
        description = tuple([(id(m), type(m), *_pairs(m._modules, held), *self._attributes(m, held), *_hooks(m, held))
                             for m in modules])
        held.extend(modules)
        self._key, _ = self._known.setdefault(description, (len(self._known), held))
        return self._key

    def _attributes(self, module, held):
        return [(name, frozen(value, held)) for name, value in vars(module).items() if name in self._reads]

    def learn(self, names):
        """Tells that forward reads attributes of these names."""
        names = names - _OWN
        if not names <= self._reads:
            self._reads |= names
            self._tables = None


def _same_objects(values, seen):
    """By identity: 1, 1.0 and True are equal but not the same program."""
    return len(values) == len(seen) and all(map(operator.is_, values, seen))


def _pairs(table, held):
    held.extend(table.values())
    return [(name, id(value)) for name, value in table.items()]


def _hooks(module, held):
    return list(itertools.chain.from_iterable(_pairs(getattr(module, name), held) for name in _HOOKS))


def frozen(value, held):
    """A hashable stand-in that differs where the values differ; objects stand for themselves and go into ``held``."""
    if isinstance(value, _PLAIN):
        return type(value), value
    if isinstance(value, torch.Tensor):
        return torch.Tensor  # its values are read at each call
    if isinstance(value, (float, complex)):
        return type(value), repr(value)  # tells -0.0 from 0.0, and a NaN from no other
    if type(value) in (list, tuple):
        return type(value), tuple([frozen(v, held) for v in value])
    if type(value) is dict:
        return dict, tuple([(frozen(k, held), frozen(v, held)) for k, v in value.items()])
    held.append(value)
    return id(value)


@dataclass
class Attributes:
    """What happened to attributes of modules: names of those read; (name, file, line) of those set to other values."""
    read: set = field(default_factory=set)
    written: list = field(default_factory=list)


@contextlib.contextmanager
def all_attributes(module):
    """Yields all attributes of ``module`` and those inside it as read, where recording is not possible."""
    seen = Attributes()
    seen.read.update(*[vars(m) for m in module.modules()])
    yield seen


@contextlib.contextmanager
def recorded_attributes(module):
    """Yields the Attributes of ``module`` and those inside it that are used in this context.

    The methods that record are put into torch.nn.Module, so that one thread may do this at a time.
    """
    seen = Attributes()
    watched = {id(m): vars(m) for m in module.modules()}
    set_attribute = torch.nn.Module.__setattr__

    def read(self, name):
        seen.read.add(name)
        return object.__getattribute__(self, name)

    def write(self, name, value):
        table = watched.get(id(self))
        caller = sys._getframe(1)
        foreign = not caller.f_code.co_filename.startswith(_TORCH)
        if table is not None and foreign and name not in _OWN and table.get(name, write) is not value:
            seen.written.append((name, caller.f_code.co_filename, caller.f_lineno))
        set_attribute(self, name, value)
    torch.nn.Module.__getattribute__, torch.nn.Module.__setattr__ = read, write
    try:
        yield seen
    finally:
        del torch.nn.Module.__getattribute__
        torch.nn.Module.__setattr__ = set_attribute

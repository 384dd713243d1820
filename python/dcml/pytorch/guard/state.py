"""What a capture has built in besides tensors: the tree of modules, their hooks and what forward reads of Python.

The one idea: a call compares the attribute dictionaries of all modules, and the other containers that forward reads,
with what it saw in them last, by identity; only when something differs is a key made of the values, so that a change
is seen and costs nothing while there is none.
Must not know: captures, graphs or tensors' values.
"""
import itertools

import numpy as np
import torch
from torch.nn.modules import module as torch_module
from torch.utils import _pytree as pytree

from ... import _core
from .filled import Filled
from .watch import VALUES, Observer, is_foreign

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
GLOBAL_HOOKS = [value for name, value in vars(torch_module).items()
                 if name.startswith("_global_") and isinstance(value, dict)]
_MAX_KNOWN = 256
TABLES = set(vars(torch.nn.Module())) - {"training"} | {"_flat_weights", "_flat_weight_refs"}  # tables of tensors


class ModuleState:
    """Watches ``module``, all modules inside it, and what else its forward was seen to read."""

    def __init__(self, module):
        self._module = module
        self._reads = set()      # names of attributes that some forward has read
        self._filled = Filled()  # containers in which some forward sets or changes tensors
        self._names = set()      # names and texts in the code of functions that ran
        self._globals = {}       # (id of a dictionary, name) -> (dictionary, name)
        self.codes = {}          # id -> code of the functions that ran
        self._seen = None        # observations (watch.py) of when the key was made
        self._labels = []        # what they are about
        self._was = []           # [(observation, label)] of when the key was another
        self._key = None
        self._known = {}         # description -> (number, values that the description names by identity)
        self._numbers = itertools.count()
        self._observer = None

    def key(self):
        """A number that is the same exactly while tree, hooks, and all that forward reads of Python are the same."""
        if self._seen is not None and _core.first_change(self._seen) < 0:
            return self._key
        return self._renew()

    def watched(self):
        """The observations of when the last key was made."""
        return self._seen

    def changes(self):
        """What differs from when the key was another, as text."""
        return ", ".join(dict.fromkeys([_changed_part(one, label) for one, label in self._was
                                        if _core.first_change((one,)) == 0]))

    def tensors(self):
        """Tensors that forward may read and that no module of the tree has: of globals, lists and the like."""
        found = list(self._observer.tensors.values())
        for module in self._observer.modules.values():
            found += [*module.parameters(), *module.buffers(), *vars(module).values()]
        return [t for t in found if isinstance(t, torch.Tensor)]

    def _renew(self):
        modules = list(self._module.modules())
        self._observer = observer = Observer(self._names, self.codes, {id(m) for m in modules}, changing=self._filled.changing(),
                                             added=self._filled.added())
        description = [self._module_part(m, observer) for m in modules]
        description += [self._global_part(*place, observer) for place in self._globals.values()]
        description += [_pairs(table, observer, "a hook of all modules") for table in GLOBAL_HOOKS]
        done = set()  # the walk may lead to modules outside the tree, and from there to others
        while rest := [m for m in observer.modules.values() if id(m) not in done]:
            done.update(map(id, rest))
            description += [(self._module_part(m, observer), _pairs(m._parameters, observer, _name(m)),
                             _pairs(m._buffers, observer, _name(m))) for m in rest]
            for m in rest:
                observer.modules.update({id(child): child for child in m.children() if id(child) not in observer.watched})
        return self._renew() if self._filled.found_otherwise(observer.ways) else self._settle(tuple(description), observer)

    def _settle(self, description, observer):
        if description not in self._known and len(self._known) >= _MAX_KNOWN:
            self._known.clear()
        key, _ = self._known.setdefault(description, (next(self._numbers), observer.held))
        if key != self._key:
            self._was = list(zip(self._seen or (), self._labels))
        self._key = key
        self._seen, self._labels = zip(*observer.observations.values())
        return key

    def _module_part(self, module, observer):
        name = _name(module)
        observer.held.append(module)
        observer.note(vars(module), name)
        attributes = [(n, _attribute(observer, value, f"{name}.{n}", self._filled.by_kind(vars(module), n)))
                      for n, value in vars(module).items() if n in self._reads]
        hooks = [_pairs(getattr(module, table), observer, f"a hook of {name}") for table in HOOKS]
        there = [_there(table, observer, name) for table in (module._parameters, module._buffers)
                 if table or not is_foreign(type(module).__module__)]  # torch's own modules get none later
        return (id(module), type(module), _pairs(module._modules, observer, f"a child of {name}"), *there, tuple(attributes),
                observer.slots(module, self._reads, name), observer.attributes(type(module), self._reads), *hooks)

    def _global_part(self, table, name, observer):
        if self._filled.by_kind(table, name):
            observer.take_by_kind(table.get(name))
        return observer.part(table, name, table.get(name), f"the global {name!r}")

    def place(self, tensor):
        """See Filled.place."""
        return self._filled.place(tensor)

    def learn(self, names, code, sets=(), altered=()):
        """Tells that forward reads attributes of these names, and which functions ran.
        sets: (dictionary of a module, name) of attributes that it sets to tensors or containers of them.
        altered: (holder, key, names) of containers in which it changes tensors, see Filled."""
        known = len(self._reads), len(self._names), len(self._globals), len(self.codes)
        self._reads |= names - TABLES
        self._names |= code.names
        self._globals.update(code.globals)
        self.codes.update(code.codes)
        set_anew = [(table, name, ()) for table, name in sets]
        filled = self._filled.learn([*set_anew, *altered], code.computed, self.codes.values())
        if filled or known != (len(self._reads), len(self._names), len(self._globals), len(self.codes)):
            self._seen = None


def _name(module):
    return type(module).__name__


def _changed_part(observation, label):
    """The label, with the keys of a dictionary whose values differ."""
    holder, seen = observation[:2]
    if len(observation) == 3 or not isinstance(holder, dict) or isinstance(seen, bytes):
        return label
    was = dict(zip(seen[::2], seen[1::2]))
    keys = [k for k in [*was, *holder] if was.get(k, was) is not holder.get(k, was)]
    return label + "".join([f".{k}" for k in dict.fromkeys(keys)][:3])


def _pairs(table, observer, label):
    observer.note(table, label)
    return tuple([(name, observer.describe(value, f"{label} {name!r}"), id(value)) for name, value in table.items()])


def _attribute(observer, value, label, by_kind):
    """by_kind: tensors in a container are read where they are."""
    if by_kind or isinstance(value, torch.Tensor):
        observer.take_by_kind(value)
    found = observer.describe(value, label)  # which watches the container, too
    if not by_kind:
        return found
    leaves, shape = pytree.tree_flatten(value)
    return str(shape), tuple([observer.describe(leaf, label) for leaf in leaves])


def _there(table, observer, label):
    """Names of the tensors that a module has: others are None, which forward may ask for."""
    observer.note(table, label, bytes([value is not None for value in table.values()]))
    return tuple([name for name, value in table.items() if value is not None])


def reachable(module):
    """(value, label) of what functions of a module and those inside it can reach and change."""
    for table in GLOBAL_HOOKS:
        for hook in table.values():
            yield hook, "a hook of all modules"
    for m in module.modules():
        yield from held_by(m)


def held_by(module):
    """The same of one module."""
    yield type(module), _name(module)
    for name, value in vars(module).items():
        if name not in TABLES:
            yield value, f"{_name(module)}.{name}"
    for table in HOOKS:
        for hook in getattr(module, table).values():
            yield hook, f"a hook of {_name(module)}"


def frozen(value, held):
    """A hashable stand-in that differs where the values differ; objects stand for themselves and go into ``held``."""
    if isinstance(value, VALUES):
        return type(value), repr(value) if isinstance(value, slice) else value  # which is not hashable
    if isinstance(value, np.generic):
        return type(value), value.tobytes()
    if isinstance(value, (set, frozenset)):
        return type(value), frozenset([frozen(v, held) for v in value])
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

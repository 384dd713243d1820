"""Which attributes of modules forward reads and sets.

The one idea: names in the code that runs are what it may read and set; names that it computes pass through builtins, which
traced code finds in a dictionary of ours; and what was set is what differs after forward.  So no class is patched.
Must not know: captures or how a module is traced.
"""
import contextlib
import dis
import functools
import os
import sys
from dataclasses import dataclass

import torch
from torch.utils import _pytree as pytree

from .state import TABLES
from .watch import VALUES

_MODULES_OF_TORCH = tuple(os.path.join(os.path.dirname(torch.__file__), *part, "") for part in (["nn"], ["ao", "nn"]))
_TENSORS = ("_parameters", "_buffers", "_modules")
READS_ALL = {"__dict__", "__getattribute__", "attrgetter"}
_HELD = (torch.Tensor, *VALUES, float, torch.SymInt, torch.SymFloat, torch.SymBool)
_NOTHING = object()


@dataclass
class Written:
    """An attribute that was set to another value: the dictionary that holds it, the first value and the last, and the
    file and line that set it first."""
    table: dict
    name: str
    old: object
    new: object
    file: str
    line: int

    def changed(self):
        if isinstance(self.old, (*VALUES, float)) and type(self.old) is type(self.new):
            return self.old != self.new
        return not _same(self.old, self.new)

    def is_value(self):
        return isinstance(self.new, (*VALUES, float))

    def is_flag(self):
        """Does it tell that something is there from now on?"""
        return self.is_value() and (self.old is _NOTHING or isinstance(self.old, (bool, type(None))))

    def undo(self):
        _put(self.table, self.name, self.old)

    def redo(self):
        _put(self.table, self.name, self.new)


class Attributes:
    """What happens to attributes of ``module`` and those inside it while they are traced.

    read: names of those that forward may have read.
    computed: those of them that code computes.
    tensors: (dictionary of a module, name, value) of those that are set to tensors, by forward or by hooks of torch's, as of old weight
        normalisation and of pruning, or by forward to containers of tensors; and of buffers that forward registers or
        sets.
    parameters: (module, name) of parameters that forward registers, and which are gone.
    """

    def __init__(self, module):
        self.read, self.tensors, self.parameters = set(), [], []
        self.computed, self._codes = set(), []  # by getattr and the like; and code that ran
        self._modules, self._hooks = [], []
        self._set = {}      # name -> [(name of the function, file, line)] of code that sets it
        self._written = {}  # (id of a dictionary, name) -> Written
        self.watch(module.modules())

    def watch(self, modules):
        """More modules, to be told before forward runs."""
        modules = list(modules)
        self._modules += modules
        self._hooks += [(table, dict(table)) for m in modules for name, table in vars(m).items()
                        if "hooks" in name and isinstance(table, dict)]

    # -- what code says --
    def note(self, code, frame):
        """Of a user's function that is about to run, in this frame or inside it."""
        self.read.update(code.co_names)
        self._codes.append(code)
        if not READS_ALL.isdisjoint(code.co_names) and any(isinstance(v, torch.nn.Module) for v in frame.f_locals.values()):
            self._read_all()

    def note_set(self, name, code, line):
        """Of a line of a user's function that sets or deletes an attribute of this name, of whatever object."""
        self._set.setdefault(name, []).append((code.co_name, code.co_filename, line))

    def _place(self, module, name):
        """(file, line) of what sets an attribute of a module: rather a method of its class than others."""
        methods = {(n, code.co_filename) for base in type(module).__mro__ for n, value in vars(base).items()
                   if (code := getattr(value, "__code__", None))}
        places = self._set[name]
        return next((place for place in places if place[:2] in methods), places[0])[1:]

    def note_of_torch(self, code):
        """Of another function: methods of torch's modules read attributes too."""
        if code.co_filename.startswith(_MODULES_OF_TORCH) and code.co_varnames[:1] in (("self",), ("module",)):
            self.read.update(_names_of_attributes(code))
            self._codes.append(code)

    def _read_all(self):
        self.read.update(*[vars(m) for m in self._modules])
        self.computed = self.read

    # -- what it computes --
    def builtins(self):
        """{name: function} for code that is traced."""
        def reading(function):
            def read(value, name, *default):
                self._note_read(value, name)
                return function(value, name, *default)
            return read

        def setting(function):
            def write(value, name, *given):
                self._note_read(value, name)
                caller = sys._getframe(1)
                self.note_set(name, caller.f_code, caller.f_lineno)
                return function(value, name, *given)
            return write

        def all_of(value=_NOTHING):
            if value is _NOTHING:
                return sys._getframe(1).f_locals
            if isinstance(value, torch.nn.Module):
                self._read_all()
            return vars(value)
        return {"getattr": reading(getattr), "hasattr": reading(hasattr), "setattr": setting(setattr),
                "delattr": setting(delattr), "vars": all_of}

    def _note_read(self, value, name):
        if isinstance(value, torch.nn.Module) and isinstance(name, str):
            self.read.add(name)
            self.computed.add(name)

    # -- what differs --
    @contextlib.contextmanager
    def watched(self):
        """Forward runs in this context."""
        before = [(m, dict(vars(m)), _held(vars(m))) for m in self._modules]
        registered = [(m, dict(m._buffers), set(m._parameters)) for m in self._modules]
        try:
            yield
        finally:
            for module, was, held in before:
                self._compare(module, was, held, _held(vars(module)))
            self.tensors = []
            for module, was, _ in before:
                found = [(vars(module), name, value) for name, value in vars(module).items() if not _same(was.get(name), value)
                         and (isinstance(value, torch.Tensor) or name in self._set and holds_tensors(value))]
                self.tensors += found
                for table, name, _ in found:  # hooks of torch's delete the attribute themselves
                    if name in self._set:
                        if name not in self.computed and not any(name in _names_of_attributes(code) for code in self._codes):
                            self.read.discard(name)  # whose extents decide nothing
                        _put(table, name, was.get(name, _NOTHING))
            for module, buffers, _ in registered:
                self._take_buffers(module._buffers, buffers)
            self.parameters = [(m, name) for m, _, known in registered for name in m._parameters if name not in known]
            for module, name in self.parameters:
                del module._parameters[name]

    def _take_buffers(self, table, was):
        """Those that are other tensors than they were, which they are again then."""
        found = [(table, name, value) for name, value in table.items() if isinstance(value, torch.Tensor) and value is not was.get(name)]
        self.tensors += found
        for _, name, _ in found:
            _put(table, name, was.get(name, _NOTHING))

    def _compare(self, module, was, held, now):
        table = vars(module)
        for name in [name for name in {**held, **now} if name in self._set]:  # by a user's code
            old, new, written = held.get(name, _NOTHING), now.get(name, _NOTHING), (id(table), name)
            if (isinstance(new, torch.Tensor) or holds_tensors(new)) and (new is table.get(name) or new is module._buffers.get(name)):
                continue  # each call sets it
            if old is not new and written not in self._written:
                self._written[written] = Written(table, name, was.get(name, _NOTHING), new, *self._place(module, name))
            elif written in self._written:
                self._written[written].new = new

    def changes(self):
        """Those that end with another value than they began with."""
        return [one for one in self._written.values() if one.changed()]

    def take_flags(self):
        """[(dictionary of a module, name, value)] of those that end with another value, which they have no more."""
        taken = self.changes()
        for one in taken:
            one.undo()
            del self._written[id(one.table), one.name]
        return [(one.table, one.name, one.new) for one in taken]

    def undo(self):
        for one in self._written.values():
            one.undo()

    def tables(self):
        """The dictionaries of all modules."""
        return [vars(m) for m in self._modules]

    def undo_hooks(self):
        """Forward registers its hooks once more where it runs again and the attribute is undone by which it knows of them."""
        for table, was in self._hooks:
            if table != was:
                table.clear()
                table.update(was)


def _put(table, name, value):
    if value is _NOTHING:
        table.pop(name, None)
    else:
        table[name] = value


def holds_tensors(value):
    """Is it a list, tuple or dictionary of tensors, with numbers, texts and None among them?"""
    leaves = pytree.tree_leaves(value) if isinstance(value, (list, tuple, dict)) else ()
    return any(isinstance(leaf, torch.Tensor) for leaf in leaves) and all(isinstance(leaf, _HELD) for leaf in leaves)


def _same(old, new):
    """The same, or containers of the same kind of the very same tensors?"""
    if old is new or type(old) is not type(new) or not holds_tensors(old) or not holds_tensors(new):
        return old is new
    (before, shape), (now, form) = pytree.tree_flatten(old), pytree.tree_flatten(new)
    return shape == form and all(a is b or not isinstance(a, torch.Tensor) and type(a) is type(b) and a == b for a, b in zip(before, now))


@functools.lru_cache(maxsize=None)
def _names_of_attributes(code):
    return frozenset([found.argval for found in dis.get_instructions(code)
                      if found.opname.endswith(("_ATTR", "_METHOD")) and found.opname != "STORE_ATTR"])


def _held(table):
    """{name: value} of a module's attributes, tensors and children included."""
    held = {name: value for name, value in table.items() if name not in TABLES}
    for tensors in _TENSORS:
        held.update(table.get(tensors, ()))
    return held

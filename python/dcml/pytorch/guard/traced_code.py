"""Which code runs while a module is traced, and the builtins that it sees.

The one idea: the interpreter tells of each function before it first runs in this thread.  Its names say what it may read;
and its frames, no others, are given builtins of ours, which tell what passes through them.
Must not know: captures, graphs or how a call is run.
"""
import builtins
import contextlib
import dis
import functools
import inspect
import random
import re
import sys
import types

import numpy as np
import torch

from ... import _core
from .copies import holds_likes
from .filled import only_added_to
from .garbage import uncollected
from .kinds import NUMBERS, asks_for_tensors, numbers_called, traced_type
from .place import WAYS_OUT, place
from .state import held_by
from .watch import Observer, contents, foreign_file, foreign_module, is_foreign, restore

# Frames point to these without holding them, so that they live as long as the process; between recordings they are plain.
_STAND_INS = {"type": traced_type, **NUMBERS}
_BUILTINS = {}  # which of these a function gets -> its builtins


def _give_builtins(found):
    """Theirs are those of everybody, which torch.export changes, and those found by name."""
    for names, table in _BUILTINS.items():
        table.update({**vars(builtins), **found, **({name: _STAND_INS[name] for name in names} if found else {})})
        for name in table.keys() - vars(builtins).keys():
            del table[name]


def _builtins_of(code):
    names = (*(("type",) if asks_for_tensors(code) else ()), *numbers_called(code))
    return _BUILTINS.setdefault(names, {})


def _may_draw(value):
    if isinstance(value, (types.BuiltinMethodType, types.MethodType)):
        return isinstance(value.__self__, (random.Random, np.random.RandomState))
    return isinstance(value, types.ModuleType) and value in (random, np, np.random)


def _with_nested(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _with_nested(constant)


class TracedCode:
    """The functions that ran while a module was traced, and the values that they could see before they did.

    roots: (value, label) of what they can reach.  attributes: an Attributes, told of them.
    found(code of torch): the dictionary in which its frames find builtins, or None.
    """

    def __init__(self, roots, attributes, found):
        self._attributes, self._found = attributes, found
        self._builtins = {**attributes.builtins(), "next": self._next}
        self.codes = {}     # id -> code of the user's functions
        self.names = set()  # of attributes, and texts that may be names or keys
        self.globals = {}   # (id of a dictionary, name) -> (dictionary, name)
        self.stored = set()  # keys of globals that they assign
        self.may_draw = False  # from Python's or numpy's own generator of random numbers?
        self.draws = ""        # ' (file:line: code)' where it probably does
        self.barred = frozenset()  # code that raises ``refusal`` where it is about to run
        self.refusal = None
        self._before = Observer(None, self.codes, all_functions=True)
        self._meet(roots)

    def _meet(self, roots):
        """Values, and what modules have that these lead to."""
        for value, label in roots:
            self._before.describe(value, label)
        known = set(map(id, self._attributes.tables()))
        outside = [m for m in self._before.modules.values() if id(vars(m)) not in known]
        self._attributes.watch(outside)
        if outside:
            self._meet([root for m in outside for root in held_by(m)])

    def tell(self, code, table):
        """Notes a function that is about to run for the first time; returns builtins for its frames, or None."""
        if code in self.barred:
            raise self.refusal(f"{code.co_qualname if hasattr(code, 'co_qualname') else code.co_name} inside forward")
        if self._is_made(code, table.get("__name__")) or code.co_name == "<module>" or foreign_file(code.co_filename):
            self._attributes.note_of_torch(code)
            return self._found(code)
        for part in _with_nested(code):
            self.codes[id(part)] = part
            self._attributes.note(part, sys._getframe(1))
            self.names.update(part.co_names, [c for c in part.co_consts if isinstance(c, str)])
            for found, line in _by_line(part):
                self._tell_of(found, part, line, table)
        if table.get("__builtins__") not in (builtins, vars(builtins)):  # of an interpreter within
            return None
        table = _builtins_of(code)
        _give_builtins(self._builtins)
        return table

    def _is_made(self, code, module):
        """Is it of a text that the standard library makes, for named tuples and data classes, or torch, among names of no module?  What
        others make like that is there before forward runs, or made by such functions."""
        if code.co_filename != "<string>":
            return False
        if module is None:
            met = (value.__code__ for value in self._before.held if isinstance(value, types.FunctionType))
            return id(code) not in self.codes and all(one is not code for one in met)
        return module.startswith("namedtuple_") or is_foreign(module)

    def _next(self, iterator, *default):
        """What is left of an iterator that was there before tells what the next call computes."""
        if id(iterator) in self._before.ways and is_foreign(type(iterator).__module__):  # others keep their place in attributes
            caller = sys._getframe(1)
            raise _core.UnsupportedOpError(f"forward takes the next of a {type(iterator).__name__} that it does not make itself, which a "
                                           f"compiled call would not do{WAYS_OUT}{place(caller.f_code.co_filename, caller.f_lineno)}")
        return next(iterator, *default)

    def _tell_of(self, instruction, code, line, table):
        kind, name = instruction.opname, instruction.argval
        if kind in ("STORE_ATTR", "DELETE_ATTR"):
            self._attributes.note_set(name, code, line)
        elif kind == "STORE_GLOBAL":
            self.stored.add((id(table), name))
        elif kind == "IMPORT_NAME":
            self.may_draw |= name.split(".")[0] in ("random", "numpy")
        elif kind in ("LOAD_ATTR", "LOAD_METHOD") and name == "random":  # of numpy
            self.draws = self.draws or place(code.co_filename, line)
        elif kind in ("LOAD_GLOBAL", "LOAD_NAME") and name in table:
            if _may_draw(table[name]):
                self.may_draw = True
                self.draws = self.draws or ("" if table[name] is np else place(code.co_filename, line))
            if not foreign_module(table[name]) and (id(table), name) not in self.globals:
                self.globals[id(table), name] = table, name
                self._before.part(table, name, table[name], f"the global {name!r}")

    def forget_results(self):
        """Empties caches of functions that ran: what they keep now are stand-ins for tensors."""
        for value in self._before.held:
            if isinstance(value, functools._lru_cache_wrapper) and id(_code(value)) in self.codes:
                value.cache_clear()

    def changed(self):
        """[(observation, label)] of what the functions changed while they ran.  What they replaced by copies is put back."""
        found = [(seen, label) for seen, label in self._before.observations.values() if _core.first_change((seen,)) == 0
                 and (len(seen) == 2 or not isinstance(seen[0], dict) or (id(seen[0]), seen[1]) in self.stored)]
        copied = {k for k, (seen, _) in enumerate(found) if holds_likes(seen)}
        restore([found[k] for k in copied])
        return [one for k, one in enumerate(found) if k not in copied]

    def place(self, container):
        """What leads to a container: (what holds it, key, names).

        The holder is a dictionary of attributes or globals where nothing else leads there, else a list of it alone.  names: those by which
        code reaches it; () where there are other ways, too, or where code that ran does anything but add to it."""
        tables = [table for table in self._attributes.tables() if table is not container]
        attributes = [(table, name) for table in tables for name, value in table.items() if value is container]
        parts = [one[:2] for one, _ in self._before.observations.values() if len(one) == 3 and one[2] is container]
        held = [(None, name) for one, _ in self._before.observations.values() if len(one) == 2 and isinstance(one[0], dict)
                and one[0] is not container for name, value in one[0].items() if value is container]
        cells = [(None, name) for cell, name in self._before.variables if any(value is container for value in contents((cell, ())))]
        places, ways = [*attributes, *parts, *held, *cells], self._before.ways.get(id(container))
        names = [name for _, name in places if isinstance(name, str)]
        if ways != len(names) or self.computed.intersection(names) or not only_added_to(names, self.codes.values()):
            names = ()
        alone = len(places) == ways == 1 and isinstance(places[0][0], dict)
        return (*(places[0] if alone else ([container], 0)), tuple(names))

    @property
    def computed(self):
        """Names of attributes that code computes."""
        return self._attributes.computed

    def line(self, label):
        """' (file:line: code)' of a place that names what a label is about, or ''."""
        for word in re.findall(r"'(\w+)'", label) or reversed(re.findall(r"\w+", label)):
            for code in list(self.codes.values()):
                for found, line in _by_line(code):
                    if found.argval == word:
                        return place(code.co_filename, line)
        return ""

    @contextlib.contextmanager
    def recording(self, asked):
        """Tells of what runs in this context and thread; asked: an Asked, told of what has no names."""
        with uncollected():
            before = sys.getprofile()
            sys.setprofile(None)
            _core.tell_of_code(self.tell, torch.is_grad_enabled, asked.around_is_grad_enabled, asked.INFERENCE_MODE,
                               asked.leave_inference_mode)
            try:
                yield
            finally:
                _core.tell_of_code()
                _give_builtins({})
                self.forget_results()
                if hasattr(before, "enable"):  # a profiler in C
                    before.enable()
                else:
                    sys.setprofile(before)


@contextlib.contextmanager
def barred(code, codes, refusal):
    """``code``, a TracedCode, raises a refusal where one of these codes is about to run."""
    code.barred, code.refusal = frozenset(codes), refusal
    try:
        yield
    finally:
        code.barred = frozenset()


def _code(function):
    return getattr(inspect.unwrap(function), "__code__", None)


def _by_line(code):
    """(instruction, line) of a code."""
    line = code.co_firstlineno
    for found in dis.get_instructions(code):
        positions = getattr(found, "positions", None)  # from Python 3.11 on
        line = (positions.lineno if positions else found.starts_line) or line
        yield found, line

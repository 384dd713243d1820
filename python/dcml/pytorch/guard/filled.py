"""Containers in which forward changes tensors: what a capture depends on of what they hold.

The one idea: by kind it depends on tensors there, which each call reads where they are; and on nothing at all where
forward only adds to a container: where all that leads to it are names, and code that ran has each of these names before
``.append`` or ``[key] =``.
Must not know: captures, or how a module is traced.
"""
import dis
import functools

from torch.utils import _pytree as pytree

from .watch import Variable

_LOCAL = {"LOAD_FAST", "LOAD_FAST_BORROW", "STORE_FAST", "LOAD_CLOSURE"}  # names of something else, or no use of it
_KEYS = {"LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_DEREF", "LOAD_CONST", "LOAD_GLOBAL"}


class Filled:
    """Places of containers: holder[key], where the holder is a dictionary of attributes or globals, a Variable, or a list of the container
    alone."""

    def __init__(self):
        self._by_kind = {}  # what tells a place from others -> (holder, key)
        self._added = {}    # the same -> (holder, key, names), of those that all forwards only add to
        self._computed = set()

    def learn(self, places, computed, codes):
        """places: (holder, key, names) of containers; names: see TracedCode.place.  computed: names of attributes that code computes;
        codes: all that have run.  Is anything new?"""
        known = len(self._by_kind), len(self._added)
        self._computed |= computed
        held = [*self._added.values(), *places]
        read = {_which(*one[:2]) for one in held if not one[2] or self._computed.intersection(one[2]) or not only_added_to(one[2], codes)}
        self._by_kind.update({_which(*one[:2]): one[:2] for one in held if _which(*one[:2]) in read})
        self._added = {_which(*one[:2]): one for one in held if _which(*one[:2]) not in self._by_kind}
        return known != (len(self._by_kind), len(self._added))

    def by_kind(self, table, name):
        return (id(table), name) in self._by_kind

    def changing(self):
        """Ids of containers that no attribute or global alone leads to."""
        return {_which(holder, key)[0] for holder, key in self._by_kind.values() if not isinstance(holder, dict)}

    def added(self):
        """Ids of those that forward only adds to."""
        return {id(holder[key]) for holder, key, _ in self._added.values() if _is_there(holder, key)}

    def found_otherwise(self, ways):
        """Has a walk met one of these more often than there are names?  Then they are like the others.  ways: see Observer."""
        found = [one for one in self._added.values() if ways.get(id(one[0][one[1]]), 0) > len(one[2])]
        return bool(found) and self.learn([(*one[:2], ()) for one in found], set(), ())

    def place(self, tensor):
        """(holder, key, which leaf) of a tensor; None for those of no container."""
        for holder, key in self._by_kind.values():
            for k, leaf in enumerate(pytree.tree_leaves(holder[key]) if _is_there(holder, key) else ()):
                if leaf is tensor:
                    return holder, key, k
        return None


def _which(holder, key):
    if isinstance(holder, Variable):
        return id(holder.cell), None
    return (id(holder[0]), None) if isinstance(holder, list) else (id(holder), key)


def _is_there(holder, key):
    return not isinstance(holder, dict) or key in holder


def only_added_to(names, codes):
    """Do these codes nothing else to what has these names?"""
    return all(_only_added_to(name, code) for code in codes for name in names)


def _is_text(constant):
    return isinstance(constant, str)


@functools.lru_cache(maxsize=4096)
def _only_added_to(name, code):
    if name not in (*code.co_names, *code.co_freevars, *code.co_cellvars) and name not in filter(_is_text, code.co_consts):
        return True
    steps = [step for step in dis.get_instructions(code) if step.opname not in ("CACHE", "EXTENDED_ARG")]
    for step, after, next_but_one in zip(steps, steps[1:], [*steps[2:], None]):
        if step.argval != name or step.opname in _LOCAL:
            continue
        appends = after.argval == "append" and after.opname in ("LOAD_ATTR", "LOAD_METHOD")
        sets = after.opname in _KEYS and next_but_one is not None and next_but_one.opname == "STORE_SUBSCR"
        if step.opname == "LOAD_CONST" or not appends and not sets:
            return False
    return True

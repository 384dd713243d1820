"""Containers and plain objects that took the place of others which they equal in everything.

The one idea: where both have equal parts, all the way down, code that does not ask which object it has sees no change.
Must not know: captures, or how a module is traced.
"""
import collections
import functools

from .watch import FILLED, MOST, SLOT, VALUES, is_foreign, pairs


def holds_likes(observation):
    """Does its container hold what it held, or copies of that?  observation: see watch.py."""
    holder, *_, seen = observation
    if not isinstance(holder, FILLED):
        return False
    now = holder.get(observation[1]) if len(observation) == 3 else pairs(holder) if isinstance(holder, dict) else tuple(holder)
    left, met = [(seen, now)], set()
    while left:
        one, other = left.pop()
        if one is other or (id(one), id(other)) in met:  # whose parts are looked at already
            continue
        met.add((id(one), id(other)))
        parts = _parts(one), _parts(other)
        if type(one) is not type(other) or len(parts[0]) != len(parts[1]) or len(met) > MOST:
            return False
        if not parts[0] and not _same_value(one, other):
            return False
        left += zip(*parts)
    return True


def _parts(value):
    """What a copy holds copies of."""
    kind = type(value)
    if kind in (list, tuple, collections.deque):
        return tuple(value)
    if kind is dict:
        return pairs(value)
    return pairs(vars(value)) if _is_plain(kind) and isinstance(getattr(value, "__dict__", None), dict) else ()


def _same_value(one, other):
    """Of one type and without parts."""
    if isinstance(one, (float, complex)):
        return repr(one) == repr(other)
    if isinstance(one, VALUES) or type(one) in (set, frozenset):
        return one == other
    return type(one) in (list, tuple, dict, collections.deque)


@functools.lru_cache(maxsize=4096)
def _is_plain(kind):
    """Is all that instances of a class have in their dictionaries?"""
    return all(base is object or not is_foreign(base.__module__) and not any(isinstance(v, SLOT) for v in vars(base).values())
               for base in kind.__mro__)

"""Containers that forward changes in place, and what a call does to them.

The one idea: what forward adds is told from what it met, so that a call adds its own results to whatever is there, or
puts them among what is there where forward may have looked at it.
Must not know: how a module is traced.
"""
from dataclasses import dataclass
from typing import Any

from . import trees


@dataclass(frozen=True)
class Altered:
    """holder, key: holder[key] is the container; without a holder it is (args, kwargs) of the call.
    shape: of the container after forward, or of what forward adds.
    places: by leaf of the shape, its place among the leaves before forward; None for those that forward makes.
    returned: [(keys that lead to it in the result, keys that lead to it here)] of the container, or those inside, that forward returns.
    names: where forward only adds to it, those by which code reaches it."""
    holder: Any
    key: Any
    shape: Any
    places: list
    returned: list
    names: tuple = ()

    @property
    def made(self):
        """How many leaves forward makes."""
        return self.places.count(None)

    def put(self, container, leaves, made):
        """Takes what forward makes from an iterator."""
        new = self.shape.unflatten([next(made) if place is None else leaves[place] for place in self.places])
        if not self.names:
            trees.refill(container, new)
        elif isinstance(container, dict):
            container.update(new)
        else:
            container.extend(new)


def find(altered, given, leaves):
    """[(Altered, container, its leaves)] of a call with ``given`` as (args, kwargs), before any of them changes."""
    containers = [given if one.holder is None else one.holder[one.key] for one in altered]
    apart = set(map(id, containers))
    return [(one, container, leaves if one.holder is None else () if one.names else flatten(container, apart)[0])
            for one, container in zip(altered, containers)]


def flatten(container, apart):
    """As trees.flatten, but containers with these ids inside it are leaves: they are altered by themselves."""
    return trees.flatten(container, closed=apart - {id(container)})


def returned(container, result):
    """See Altered; of those inside one another only the outermost."""
    held = {id(one): path for path, one in trees.containers(container)}
    own = [(path, held[id(one)]) for path, one in trees.containers(result) if id(one) in held]
    return [one for one in own if all(path == one[0] or one[0][:len(path)] != path for path, _ in own)]


def added(old, new):
    """What a list or dictionary holds more than it did; None where other things have changed, too."""
    if isinstance(old, dict):
        kept = old.keys() <= new.keys()
        return {k: v for k, v in new.items() if k not in old or old[k] is not v} if kept else None
    kept = type(old) is list and len(old) <= len(new) and all(a is b for a, b in zip(old, new))
    return new[len(old):] if kept else None

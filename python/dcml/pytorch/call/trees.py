"""Arguments and results taken apart into leaves, and put together again.

The one idea: torch's pytree opens tuples, lists and dictionaries; what it takes for a leaf though it holds more (data
classes, own kinds of dictionaries, objects of the user's classes, distributions) is opened here, and shown to
torch.export as a dictionary of what it holds.
Must not know: captures or how a call is run.
"""
import collections
import copy
import dataclasses
import operator
import types

import torch
from torch.utils import _pytree as pytree

from ... import _core
from ..guard.watch import VALUES, is_foreign

_CLOSED = (torch.Tensor, *[kind for kind in VALUES if kind is not torch.Size], float, complex, torch.nn.Module,
           torch.Generator, type, types.FunctionType, types.MethodType)
_TAKEN = {tuple, list, dict, collections.OrderedDict, collections.namedtuple}  # nodes that torch.export takes and names
_DEEPEST = 32


def flatten(tree, depth=0, closed=()):
    """(leaves, shape) of any value; ``str(shape)`` tells kinds and names, ``shape.unflatten(leaves)`` undoes it.
    closed: ids of containers that are leaves."""
    leaves, spec = pytree.tree_flatten(tree, (lambda value: _is_size(value) or id(value) in closed) if closed else _is_size)
    for leaf in leaves:
        if type(leaf) is not torch.Tensor and _opens(leaf) and id(leaf) not in closed:
            return _flatten_all(leaves, spec, depth, closed)
    return leaves, spec


def _is_size(value):
    """torch's trees make tuples of Sizes."""
    return type(value) is torch.Size


def _flatten_all(leaves, spec, depth, closed):
    if depth > _DEEPEST:
        raise _core.ValueError_(f"an argument or result holds others {_DEEPEST} deep, or itself")
    parts = [Opened(leaf, depth, closed) if _opens(leaf) and id(leaf) not in closed else leaf for leaf in leaves]
    flat = [v for part in parts for v in (part.leaves if isinstance(part, Opened) else [part])]
    return flat, Shape(spec, [part.close() if isinstance(part, Opened) else None for part in parts])


def simple(leaves, shape):
    """The tree of tensors alone in containers that torch.export takes, in the same order; None stands for others."""
    values = [leaf if isinstance(leaf, torch.Tensor) else None for leaf in leaves]
    if isinstance(shape, Shape):
        values = [v if part is None else dict(zip(part.names, simple(v, part.inner))) for v, part in shape.share(values)]
        shape = shape.outer
    return _simple(iter(values), shape)


def _simple(values, spec):
    if spec.is_leaf():
        return next(values)
    held = [_simple(values, child) for child in spec.children()]
    return pytree.tree_unflatten(held, _one_deep(spec)) if spec.type in _TAKEN else tuple(held)


def _one_deep(spec):
    return pytree.TreeSpec(spec.type, spec.context, [pytree.treespec_leaf() for _ in spec.children()])


def _opens(value):
    """Does a leaf of torch's trees hold others?"""
    if isinstance(value, _CLOSED):
        return False
    kind = type(value)
    if dataclasses.is_dataclass(kind) or isinstance(value, (dict, torch.Size)):
        return True
    ours = not is_foreign(kind.__module__) or kind.__module__.startswith("torch.distributions")
    return ours and isinstance(getattr(value, "__dict__", None), dict) and not callable(value)


def _held(value):
    """{name: value} of what an object holds."""
    if isinstance(value, dict):
        return dict(value.items())
    if isinstance(value, torch.Size):
        return {str(k): extent for k, extent in enumerate(value)}
    table = getattr(value, "__dict__", None)
    if isinstance(table, dict):
        return dict(table)
    return {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if hasattr(value, f.name)}


def _refilled(template, names, values):
    """A copy of an object that holds these values."""
    if isinstance(template, torch.Size):
        return torch.Size(values)
    try:
        made = copy.copy(template)
    except Exception as error:
        raise _core.ValueError_(f"an argument or result of type {type(template).__name__} cannot be copied: {error}") from error
    for name, value in zip(names, values):
        if isinstance(made, dict):
            (collections.OrderedDict if isinstance(made, collections.OrderedDict) else dict).__setitem__(made, name, value)
        else:
            _set(made, name, value)
    return made


def _set(holder, name, value):
    """Past what the object's class makes of it, which may be frozen."""
    table = getattr(holder, "__dict__", None)
    if isinstance(table, dict):
        table[name] = value
    else:
        object.__setattr__(holder, name, value)


def refill(old, new):
    """What a container holds becomes what another of its kind holds; it and those inside it that stay are the same objects.  Gives what
    stands for ``new`` then."""
    if old is new or type(old) is not type(new):
        return new
    if type(old) in (list, collections.deque):
        items = [*map(refill, old, new), *list(new)[len(old):]]
        if len(items) != len(old) or any(a is not b for a, b in zip(items, old)):
            old.clear()
            old.extend(items)
        return old
    if isinstance(old, tuple):
        items = list(map(refill, old, new))
        return old if len(old) == len(new) and all(a is b for a, b in zip(items, old)) else new
    if isinstance(old, dict) or _opens(old):
        _refill_names(old, _held(old), _held(new))
        return old
    return new


def _refill_names(holder, old, new):
    put, drop = (operator.setitem, operator.delitem) if isinstance(holder, dict) else (_set, object.__delattr__)
    for name, value in new.items():
        value = refill(old[name], value) if name in old else value
        if name not in old or old[name] is not value:
            put(holder, name, value)
    for name in [name for name in old if name not in new]:
        drop(holder, name)


def containers(tree, path=(), above=()):
    """(keys that lead to it, itself) of each list, dictionary and object in a tree, the outer ones first; above: ids of those around."""
    if isinstance(tree, tuple):
        held = enumerate(tree)
    else:
        held = enumerate(tree) if type(tree) is list else _held(tree).items() if isinstance(tree, dict) or _opens(tree) else None
        if held is None:
            return
        yield path, tree
    for key, value in held:
        if len(path) < _DEEPEST and id(value) not in above:
            yield from containers(value, (*path, key), (*above, id(tree)))


def at(tree, path):
    """What stands there in a tree, as containers() says it."""
    for key in path:
        tree = tree[key] if isinstance(tree, (tuple, list, dict)) else _held(tree)[key]
    return tree


def replaced(tree, path, value):
    """The tree, changed so that it has a value at that place; tuples on the way are made anew."""
    if not path:
        return value
    key, rest = path[0], path[1:]
    value = replaced(at(tree, (key,)), rest, value)
    if isinstance(tree, tuple):
        items = [*tree[:key], value, *tree[key + 1:]]
        return tree._make(items) if hasattr(tree, "_make") else type(tree)(items)
    (operator.setitem if isinstance(tree, (list, dict)) else _set)(tree, key, value)
    return tree


class Opened:
    """An object that pytree takes for a leaf."""

    def __init__(self, value, depth, closed=()):
        held = _held(value)
        self.value, self.names = value, tuple(held)
        self.leaves, self.inner = flatten(list(held.values()), depth + 1, closed)

    def close(self):
        self.count = len(self.leaves)
        del self.leaves
        return self

    def unflatten(self, leaves):
        return _refilled(self.value, self.names, self.inner.unflatten(leaves))

    def forget_values(self):
        """Keeps a template that holds nothing, where what it held are stand-ins."""
        self.value = _refilled(self.value, self.names, [0] * len(self.names))
        forget_values(self.inner)

    def __str__(self):
        kind = type(self.value)
        return f"{kind.__module__}.{kind.__qualname__}@{id(kind)}{self.names}{self.inner}"


class Shape:
    """A TreeSpec of torch's and what became of each of its leaves: None, or the Opened one."""

    def __init__(self, outer, parts):
        self.outer, self.parts = outer, parts

    def share(self, leaves):
        """[(leaf, None) or (its leaves, Opened)]."""
        leaves = iter(leaves)
        return [(next(leaves), None) if part is None else ([next(leaves) for _ in range(part.count)], part)
                for part in self.parts]

    def unflatten(self, leaves):
        return self.outer.unflatten([v if part is None else part.unflatten(v) for v, part in self.share(leaves)])

    def is_leaf(self):
        return False

    def __str__(self):
        return f"{self.outer}{[str(part) for part in self.parts if part]}"


def forget_values(shape):
    """See Opened.forget_values."""
    for part in shape.parts if isinstance(shape, Shape) else ():
        if part is not None:
            part.forget_values()


def first_places(leaves):
    """By leaf, the first place where the same tensor stands."""
    places = {}
    return [places.setdefault(id(leaf), k) if isinstance(leaf, torch.Tensor) else k for k, leaf in enumerate(leaves)]

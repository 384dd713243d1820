"""The module as torch.export sees it: tensors in, tensors out.

The one idea: a stand-in of the same attributes has a forward that puts the other arguments back in place before it calls
the module, and keeps what is no tensor of the result; so arguments and results may be of any kind.
Must not know: how a program is exported or lowered.
"""
import copy
import inspect

import torch

from ... import _core
from ..call import trees
from ..call.altered import Altered, added, flatten, returned
from ..guard.asked import known_of, mark, set_on
from ..guard.state import frozen
from ..guard.watch import VALUES, assigned_to, is_changeable, is_filled, restore

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


class Result:
    """shape: of what the module returned; leaves: None where the program gives them; freed: positions of those on which
    forward called requires_grad_(); flagged: [(position among the arguments' leaves, flag that forward sets)];
    requires: which of these require a gradient; tape: does the call run with gradients on?
    named: where forward sets attributes on tensors, their positions among the arguments' leaves and among the result's,
    the shape of a list of {name: value} for each, and how many leaves of the result stand before those of this list.
    sets: [(dictionary of a module, name)] of attributes that are set to tensors or containers of them, the shape of a list of these values,
    whose leaves are the last of the result, and how many they are.
    altered: an Altered for each container that forward changes in place; what it makes of them are the leaves before these.
    known: what Python first decides by values, from an earlier attempt at this call; decided: what it decides in the trace;
    numbers: may it decide by numbers, too?"""
    shape = leaves = None
    known, decided, numbers = (), (), False
    freed, flagged, requires, tape, named, sets, altered = (), (), (), True, None, (), ()


class Entry(torch.nn.Module):
    """Stands for ``module`` called with arguments of these leaves, ``given`` as they are and then as they are traced.

    attributes, code: an Attributes and a TracedCode, which watch the call.  ``result`` is filled by a call.
    """

    def __init__(self, module, given, leaves, shape, attributes, code):
        super().__init__()
        hooks = {name: table for name, table in vars(self).items() if "hooks" in name}
        vars(self).update(vars(module))
        vars(self).update(hooks, forward=self._forward_of(module, given, leaves, shape, attributes, code))
        self.__dict__["result"] = Result()  # apart from the attributes, which torch.export puts back
        self.result.decided = []

    def _forward_of(self, module, given, leaves, shape, attributes, code):
        known, first = list(map(known_of, given)), trees.first_places(given)

        def forward(*args, **kwargs):
            traced = trees.flatten((args, kwargs))[0]
            values = [traced[place] if isinstance(leaf, torch.Tensor) else leaf for leaf, place in zip(leaves, first)]
            for value, leaf, about in zip(values, given, known):
                if isinstance(value, torch.Tensor):
                    mark(value, leaf, about)
            args, kwargs = shape.unflatten(values)
            before = trees.flatten((args, kwargs))
            self.result.decided.clear()
            with attributes.watched():
                result = module(*args, **kwargs)
            for owner, name in attributes.parameters:
                raise _core.UnsupportedOpError(f"{type(owner).__name__} registers the parameter {name!r} while it runs, which a compiled "
                                               "call would not do: make it before, or call the module once before it is wrapped")
            self.result.altered = []
            after = trees.flatten((args, kwargs))
            made = [] if _alike(before, after) else self._altered(None, None, before, after, returned((args, kwargs), result))
            filled, assigned = self._filled(code, attributes, result)
            now = [dict(getattr(value, "_dcml_known", ())).get("requires_grad") for value in values]
            flags = [dict(about).get("requires_grad") for about in known]
            self.result.requires = flags
            self.result.flagged = [(k, flag) for k, flag in enumerate(now) if flag != flags[k] and first[k] == k]
            arguments = [k for k, value in enumerate(values) if first[k] == k and _is_named(value)]
            return self._take_apart(module, result, arguments, values, [*made, *filled, *self._set_to([*attributes.tensors, *assigned])])
        try:
            forward.__signature__ = _signature(module.forward, trees.simple(leaves, shape)[1])
        except (TypeError, ValueError):  # of what is no function of Python
            pass
        return forward

    def _filled(self, code, attributes, result):
        """What forward puts into containers that it has met and that stay, and [(holder, key, value)] of what it assigns to variables and
        of flags that it sets besides; all is as before then."""
        found = code.changed()
        changed = [seen for seen, _ in found]
        if not changed or not all(map(is_changeable, changed)) or not all(one.is_flag() for one in attributes.changes()):
            return [], []  # which is refused
        containers = [seen[0] for seen in changed if is_filled(seen)]
        assigned = [assigned_to(seen) for seen in changed if not is_filled(seen)]
        places, now, apart = list(map(code.place, containers)), list(map(copy.copy, containers)), set(map(id, containers))
        after = [(flatten(container, apart), returned(container, result)) for container in containers]
        restore(found)
        before = [flatten(container, apart) for container in containers]
        if any(_other_values(was[0], leaves) for was, ((leaves, _), _) in zip(before, after)):
            for container, ((leaves, shape), _) in zip(containers, after):
                trees.refill(container, shape.unflatten(leaves))
            return [], []
        made = []
        for container, (*at, names), new, was, (flat, back) in zip(containers, places, now, before, after):
            more = added(container, new) if names else None
            if more is not None:
                made += self._altered(*at, ((), None), trees.flatten(more), back, names)
            elif not _alike(was, flat):
                made += self._altered(*at, was, flat, back)
        return made, [*assigned, *attributes.take_flags()]

    def _altered(self, holder, key, before, after, back, names=()):
        """What forward puts into a container, and notes where."""
        (old, _), (new, shape) = before, after
        first = {}
        for k, leaf in enumerate(old):
            first.setdefault(id(leaf), k)
        places = [k if k < len(old) and leaf is old[k] else first.get(id(leaf)) for k, leaf in enumerate(new)]
        self.result.altered.append(Altered(holder, key, shape, places, back, names))
        trees.forget_values(shape)
        return [leaf for leaf, place in zip(new, places) if place is None]

    def _set_to(self, attributes):
        """The leaves of what attributes are set to, and notes which."""
        leaves, shape = trees.flatten([value for *_, value in attributes])
        self.result.sets = ([(table, name) for table, name, _ in attributes], shape, len(leaves)) if attributes else ()
        return leaves

    def _take_apart(self, module, result, arguments, values, behind_all):
        leaves, shape = trees.flatten(result)
        returned = len(leaves)
        results = [k for k, leaf in enumerate(leaves) if _is_named(leaf) and all(leaf is not values[j] for j in arguments)]
        if arguments or results:
            held = [set_on(tensor) for tensor in [*[values[k] for k in arguments], *[leaves[k] for k in results]]]
            behind, form = trees.flatten(held)
            self.result.named = arguments, results, form, returned
            leaves = [*leaves, *behind]
            trees.forget_values(form)
        leaves = [*leaves, *behind_all]
        given = [isinstance(leaf, (torch.Tensor, _SYMBOLIC)) for leaf in leaves]
        for k, (leaf, symbolic) in enumerate(zip(leaves, given)):
            held = []
            if not symbolic and (frozen(leaf, held), held)[1]:
                does = "returns" if k < returned else "keeps"
                raise _core.UnsupportedOpError(f"{type(module).__name__} {does} a {type(leaf).__name__}, which is "
                                               "neither a tensor nor a number or text, nor a container or plain object of them")
        self.result.freed = [k for k, leaf in enumerate(leaves) if getattr(leaf, "_dcml_freed", False)]
        trees.forget_values(shape)
        self.result.shape, self.result.leaves = shape, [None if there else v for v, there in zip(leaves, given)]
        return tuple([leaf if there else None for leaf, there in zip(leaves, given)])


def _alike(before, after):
    """The same leaves in the same places?"""
    (old, form), (new, shape) = before, after
    return str(form) == str(shape) and all(a is b for a, b in zip(old, new))


def _other_values(old, new):
    """Does a number or text, as of a counter, give way to another?"""
    (gone, come) = [{id(leaf): leaf for leaf in leaves if isinstance(leaf, (*VALUES, float))} for leaves in (old, new)]
    return bool(gone.keys() - come.keys() and come.keys() - gone.keys())


def _is_named(value):
    return isinstance(value, torch.Tensor) and bool(set_on(value))


def _signature(function, keywords):
    """That of a function, with a parameter for each keyword that ``**kwargs`` takes: torch.export puts these in two places."""
    signature = inspect.signature(function)
    named = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    if len(named) == len(signature.parameters):
        return signature
    more = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in keywords if name not in {p.name for p in named}]
    return signature.replace(parameters=[*named, *more])

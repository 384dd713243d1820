"""The captures of a module and the recipes made of them, found by what a call depends on.

The one idea: a quick key, extents included, finds the recipe of a call like an earlier one; where there is none, the
captures made for arguments of that kind are asked whether one serves these extents, and if not another one is made.
Must not know: how a call runs, or how a module is traced.
"""
import contextlib
import importlib
import sys
import time
import warnings

import torch

from .. import _core
from ..verbose import say
from .call import trees
from .call.compiled import Compiled
from .call.errors import Decided
from .call.keys import bind_arguments, kind_of, quick_key, same_leaves, surroundings
from .call.recipe import Recipe, as_tensor
from .guard.asked import known_of
from .guard.garbage import loading
from .guard.lock import LOCK
from .guard.place import WAYS_OUT
from .guard.state import ModuleState
from .kept.store import Kept
from .trace.lazy import initialise

PRECISIONS = {"bf16": torch.bfloat16}
_MAX_RECIPES = 256   # shapes remembered for the quick look-up; captures themselves are shared between shapes
_MAX_CAPTURES = 64
_FEW_SIZES = 3  # of pictures and the like, that get captures of their own before torch.export traces one for all
_FEW = 2    # values of a float that get captures of their own, before it becomes an input
_MOST_WAYS = 16  # through forward, of one kind of call, by what Python decides by values
_MANY = 16  # captures for reasons other than extents before a warning


class Captures:
    """Those of ``owner.model``, with the owner's options.  len() counts captures, iteration gives them."""

    def __init__(self, owner):
        self._owner = owner
        self._recipes = {}     # quick key -> Recipe
        self._captures = {}    # slow key -> [Compiled]
        self._values = {}      # slow key without numbers -> {kind with numbers: types of its results}
        self._refused = set()  # sets of positions of floats that cannot be tensors
        self._times = {}       # slow key -> number of captures because something else changed
        self.state = ModuleState(owner.model)
        self.asks = False      # of autograd, see guard/asked.py
        self.last = None       # the Compiled used last

    def __len__(self):
        return sum(map(len, self._captures.values()))

    def __iter__(self):
        return (one for group in self._captures.values() for one in group)

    def find(self, args, kwargs, attempt=None):
        """The recipe for these arguments.  attempt: the Decided that an attempt at this call has raised."""
        key = (quick_key(args, kwargs), self.state.key(), surroundings(), self._flags(args, kwargs))
        recipe = self._recipes.get(key) if attempt is None else None
        if recipe is None:
            with LOCK:
                recipe = attempt is None and self._recipes.get(key) or self._new_recipe(key, args, kwargs, attempt)
        self.last = recipe.compiled
        return recipe

    def _new_recipe(self, key, args, kwargs, attempt):
        if len(self._recipes) >= _MAX_RECIPES:
            del self._recipes[next(iter(self._recipes))]
        compiled, floats = self._compiled(args, kwargs, key[2], attempt)
        key = key[0], self.state.key(), key[2], self._flags(args, kwargs)
        self._recipes[key] = recipe = Recipe(self._owner, compiled, args, kwargs, floats)  # which later calls try first
        return recipe

    def _flags(self, args, kwargs):
        """What forward may ask of autograd, if some forward has asked."""
        if not self.asks:
            return None
        are_tensors = not kwargs and all(type(value) is torch.Tensor for value in args)  # which is quick to tell
        leaves = args if are_tensors else trees.flatten((tuple(args), dict(kwargs)))[0]
        return torch.is_grad_enabled(), tuple(map(known_of, leaves))

    def _compiled(self, args, kwargs, modes, attempt):
        """(a capture that serves these arguments, made if there is none; positions of floats that are its inputs)."""
        leaves, spec = trees.flatten((tuple(args), dict(kwargs)))
        kind = ((str(spec), same_leaves(leaves)), modes, tuple(map(kind_of, leaves)))
        keys = kind[2]
        shared = tuple(key[0] if key[0] in (int, float) else key for key in keys)
        seen = self._values.setdefault((*kind[:2], shared), {})
        varying = frozenset(k for other in seen for k, key in enumerate(other[2])
                            if keys[k][0] is float and key != keys[k]) if len(seen) >= _FEW and kind not in seen else ()
        if varying and varying not in self._refused:
            loose = *kind[:2], tuple(float if k in varying else key for k, key in enumerate(keys))
            try:
                compiled = self._serving(*_with_tensors(args, kwargs, varying), loose, attempt)
                if _result_types(compiled.capture) in seen.values():
                    return compiled, varying
                self._refused.add(varying)
            except _core.Error:  # forward decides by the value, or hands it to what takes numbers only
                self._refused.add(varying)
        compiled = self._serving(args, kwargs, kind, attempt)
        seen[kind] = _result_types(compiled.capture)
        if len(seen) == _MANY:
            warnings.warn(f"{self._owner.sdfg_name} is captured anew for each value of its number arguments, {_MANY} so far: "
                          "give what often changes as a tensor", stacklevel=2)
        return compiled, ()

    def _serving(self, args, kwargs, kind, attempt):
        owner, leaves = self._owner, trees.flatten((tuple(args), dict(kwargs)))[0]
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        known = self._captures.get((self.state.key(), kind, self._flags(args, kwargs)), [])
        for one in known:
            if attempt and any(now != then for now, then in zip(attempt.known, one.capture.decided)):
                continue
            reason = one.capture.guard.refusal(tensors, lambda: bind_arguments(owner.model, args, kwargs))
            if reason is None:
                return one
            say("capture", f"{owner.sdfg_name}: {reason}")
        if not known:
            self._tell_of_changes(kind)
        if attempt:
            self._tell_of_ways(known, attempt)
        if len(self) > _MAX_CAPTURES:
            self._captures.clear()
        dynamic = sum(one.capture.refused_dynamic for one in known) < 2 and _varying(leaves, known)
        made = self._capture(args, kwargs, dynamic, attempt.known if attempt else (), len(known) < _FEW_SIZES)
        known = self._captures.setdefault((self.state.key(), kind, self._flags(args, kwargs)), [])
        known.append(Compiled(owner, made, leaves))
        owner.transients = [name for name, _ in made.transients]
        return known[-1]

    def _capture(self, args, kwargs, dynamic, decided, few=False):
        owner, begin = self._owner, time.perf_counter()
        initialise(owner.model, args, kwargs)
        with _precision(owner, args, kwargs):
            kept = Kept(owner, args, kwargs, dynamic)
            made = None if decided else kept.find()
            if made is None:
                made = _tracer()(owner.model, args, kwargs, owner.sdfg_name, dynamic=dynamic, debug=owner.debug_transients,
                                 known=decided, few=few)
                kept.keep(made)
        seconds, operators = time.perf_counter() - begin, len(made.graph.nodes(0))
        say("capture", f"{owner.sdfg_name}: {type(owner.model).__name__} captured in {seconds:.2f} s: "
                       f"{operators} operators, inputs {made.guard}")
        self.state.learn(made.reads, made.code, made.sets[0] if made.sets else (),
                         [(one.holder, one.key, one.names) for one in made.altered if one.holder is not None])
        made.code = None  # which holds what it met
        self._find_outside(made)
        self.asks = self.asks or made.asks
        return made

    def _tell_of_ways(self, known, attempt):
        name, line = self._owner.sdfg_name, attempt.line
        if sum(bool(one.capture.decided) for one in known) >= _MOST_WAYS:
            raise _core.UnsupportedOpError(f"{name} takes more than {_MOST_WAYS} ways through Python code that branches on values of "
                                           f"tensors{WAYS_OUT}{line}")
        say("capture", f"{name}: Python decides by a value otherwise than in earlier calls: captured anew{line}")

    def other_way(self, recipe, args, kwargs):
        """The Decided of a call that a recipe cannot finish, None where Python decides as it has decided there."""
        decided = self._capture(args, kwargs, True, ()).decided
        return None if decided == recipe.compiled.capture.decided else Decided(decided, recipe.decided[-1][1])

    def _tell_of_changes(self, kind):
        name, changes = self._owner.sdfg_name, self.state.changes()
        self._times[kind] = times = self._times.get(kind, 0) + 1
        if changes:
            say("capture", f"{name}: changed: {changes}")
        if changes and times == _MANY:
            warnings.warn(f"{name} is captured anew each time that these change: {changes}; {_MANY} times so "
                          "far: make what often changes a buffer or an argument", stacklevel=2)

    def _find_outside(self, made):
        """torch.export may give an alias of a parameter; gradients are those of the parameter itself."""
        self.state.key()
        for name, alias in made.outside.items():
            same = [t for t in self.state.tensors() if t is alias or t.data_ptr() == alias.data_ptr() and alias.numel()
                    and (t.shape, t.stride(), t.dtype) == (alias.shape, alias.stride(), alias.dtype)]
            made.outside[name] = next((t for t in same if t is alias), (same or [alias])[0])
        places = [(name, self.state.place(tensor)) for name, tensor in made.outside.items()]
        made.places = [(name, *place) for name, place in places if place]


def _tracer():
    """What captures; a process whose captures are all kept does not load it.  A search for garbage among torch's modules,
    which loading it brings about, takes longer than loading it."""
    if f"{__package__}.trace.capture" not in sys.modules:
        with loading():
            importlib.import_module(".trace.capture", __package__)
    from .trace.capture import capture
    return capture


def _precision(owner, args, kwargs):
    """Surroundings in which the module is traced: what autocast makes of it is what is compiled."""
    if owner.precision is None:
        return contextlib.nullcontext()
    tensors = [*owner.model.parameters(), *[t for t in trees.flatten((args, kwargs))[0] if isinstance(t, torch.Tensor)]]
    on_gpu = owner.cuda_enabled or any(t.is_cuda for t in tensors)
    return torch.autocast("cuda" if on_gpu else "cpu", PRECISIONS[owner.precision])


def _varying(leaves, known):
    """{leaf: axes} whose extents differ from those of captures made before; True if there are none."""
    axes = {}
    for one in known:
        for k, (leaf, shape) in enumerate(zip(leaves, one.shapes)):
            if isinstance(leaf, torch.Tensor) and len(shape) == leaf.dim():
                axes.setdefault(k, set()).update(a for a, e in enumerate(shape) if e != leaf.shape[a])
    return {k: found for k, found in axes.items() if found} or True


def _with_tensors(args, kwargs, positions):
    """(args, kwargs) with tensors for the floats at these positions among the leaves."""
    leaves, spec = trees.flatten((tuple(args), dict(kwargs)))
    return spec.unflatten([as_tensor(v) if k in positions else v for k, v in enumerate(leaves)])


def _result_types(made):
    return [made.graph.info(made.graph.outputs[o])[0] if type(o) is int else type(o) for o in made.outputs]

"""What forward reads of Python besides tensors: a change of it is seen, or refused, and never gives the old value."""
import cProfile
import copy
import dataclasses
import functools
import math
import pickle
import random
import types
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from small import TiedLayers
from torch import nn
from torch.utils import _pytree as pytree

import dcml
from dcml.pytorch import DaceModule, dace_module

FACTOR = 2.0
TABLE = torch.ones(3)


class Calls(nn.Module):
    """Calls a function of itself and its arguments."""

    def __init__(self, function, **attributes):
        super().__init__()
        self.function = function
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, *args):
        return self.function(self, *args)


@dataclasses.dataclass
class Config:
    scale: float = 2.0
    inner: object = None


class Slotted:
    __slots__ = ("scale",)

    def __init__(self):
        self.scale = 2.0


class Settings:
    scale = 2.0


class OfClass(nn.Module):
    scale = 2.0

    def factor(self):
        return self.scale

    def forward(self, x, given=[1.0]):  # noqa: B006
        return x * self.factor() * given[0]


def set_global(value):
    global FACTOR
    FACTOR = value


def cell():
    factor = 2.0

    def forward(self, x):
        return x * factor

    def change():
        nonlocal factor
        factor = 5.0
    return Calls(forward), change


def of_class(change):
    module = type("Derived", (OfClass,), {"forward": types.FunctionType(
        OfClass.forward.__code__, globals(), "forward", ([1.0],))})()
    return module, lambda: change(type(module))


def attribute(read, change, **held):
    module = Calls(read, **held)
    return module, lambda: change(module)


WATCHED = {
    "a global": lambda: (Calls(lambda self, x: x * FACTOR), lambda: set_global(5.0)),
    "a variable of an enclosing function": cell,
    "an attribute of a class": lambda: of_class(lambda kind: setattr(kind, "scale", 5.0)),
    "a method of a class": lambda: of_class(lambda kind: setattr(kind, "factor", lambda self: 5.0)),
    "forward itself": lambda: of_class(lambda kind: setattr(kind, "forward", lambda self, x: x * 5.0)),
    "a default that is a list": lambda: of_class(lambda kind: kind.forward.__defaults__[0].__setitem__(0, 2.5)),
    "a list": lambda: attribute(lambda self, x: x * self.a[0], lambda m: m.a.__setitem__(0, 5.0), a=[2.0]),
    "a dictionary": lambda: attribute(lambda self, x: x * self.a["k"], lambda m: m.a.update(k=5.0), a={"k": 2.0}),
    "a set": lambda: attribute(lambda self, x: x * max(self.a), lambda m: m.a.add(5.0), a={2.0}),
    "a name space": lambda: attribute(lambda self, x: x * self.a.scale, lambda m: setattr(m.a, "scale", 5.0),
                                      a=types.SimpleNamespace(scale=2.0)),
    "a nested data class": lambda: attribute(lambda self, x: x * self.a.inner.inner[0],
                                             lambda m: m.a.inner.inner.__setitem__(0, 5.0),
                                             a=Config(1, Config(1, [2.0]))),
    "an object with slots": lambda: attribute(lambda self, x: x * self.a.scale, lambda m: setattr(m.a, "scale", 5.0),
                                              a=Slotted()),
    "a class of settings": lambda: attribute(lambda self, x: x * Settings.scale,
                                             lambda m: setattr(Settings, "scale", 5.0)),
    "an array": lambda: attribute(lambda self, x: x * float(self.a[0]), lambda m: m.a.fill(5.0), a=np.full(1, 2.0)),
    "a tensor in a list": lambda: attribute(lambda self, x: x * self.a[0], lambda m: m.a[0].fill_(5.0),
                                            a=[torch.full((3,), 2.0)]),
    "a tensor put into a list": lambda: attribute(lambda self, x: x * self.a[0],
                                                  lambda m: m.a.__setitem__(0, torch.full((3,), 5.0)),
                                                  a=[torch.full((3,), 2.0)]),
    "a global tensor": lambda: (Calls(lambda self, x: x * TABLE * 2), lambda: TABLE.fill_(2.5)),
}


@pytest.mark.parametrize("what", WATCHED)
def test_a_change_is_seen(what):
    module, change = WATCHED[what]()
    compiled, x = DaceModule(module), torch.ones(3)
    try:
        for _ in range(3):
            torch.testing.assert_close(compiled(x), module(x))
        change()
        for _ in range(3):
            want = module(x)
            torch.testing.assert_close(compiled(x), want)
            assert (want >= 5).all()
    finally:
        set_global(2.0)
        Settings.scale = 2.0
        TABLE.fill_(1.0)


def test_hooks_of_all_modules_run_as_often_as_in_eager_mode():
    plain, x = nn.Sequential(nn.Identity(), nn.Identity()), torch.ones(2)
    compiled = DaceModule(plain)
    compiled(x)
    handle = nn.modules.module.register_module_forward_hook(lambda module, args, out: out * 2)
    try:
        for _ in range(3):
            torch.testing.assert_close(compiled(x), plain(x))
    finally:
        handle.remove()
    torch.testing.assert_close(compiled(x), x)


def test_the_reason_of_a_new_capture_is_told(capfd, monkeypatch):
    monkeypatch.setenv("DCML_VERBOSE", "1")
    module = DaceModule(Calls(lambda self, x: x * self.config["scale"], config={"scale": 2.0}), sdfg_name="net")
    module(torch.ones(2))
    module.model.config["scale"] = 3.0
    capfd.readouterr()
    assert module(torch.ones(2))[0] == 3
    assert "net: changed: Calls.config.scale" in capfd.readouterr().err


def test_objects_that_forward_does_not_read_compile_nothing():
    holder = types.SimpleNamespace(scale=2.0, step=0)
    module = DaceModule(Calls(lambda self, x: x * self.holder.scale, holder=holder))
    for step in range(4):
        holder.step = step
        module(torch.ones(2))
    assert len(module._captures) == 1


def test_tensors_outside_the_module_are_changed_once_by_each_call():
    def states(wrap):
        torch.manual_seed(0)
        count, layer, given = torch.zeros(3), nn.BatchNorm1d(3), torch.rand(4, 3)

        def forward(self, x):
            count.add_(1)
            return layer(x) + count
        module = wrap(Calls(forward))
        for _ in range(3):
            y = module(given)
            y.sum().backward()
            yield y.detach()
            yield from (t.detach().clone() for t in (count, layer.weight.grad, layer.running_mean, layer.num_batches_tracked))
    for got, want in zip(states(functools.partial(DaceModule, backward=True)), states(lambda module: module), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def test_a_change_of_a_tensor_outside_the_module_is_refused_where_torch_export_traces():
    factor = nn.Parameter(torch.ones(3))

    def forward(self, x):
        with torch.no_grad():
            factor.mul_(0.5)
        return x * factor
    with pytest.raises(dcml.UnsupportedOpError, match="changes 1 tensor of globals, closures .* make them buffers"):
        DaceModule(Calls(forward), backward=True)(torch.ones(3))


def test_parameters_outside_the_module_receive_gradients():
    outside, weight = nn.Linear(3, 3), torch.ones(3, requires_grad=True)
    module = DaceModule(Calls(lambda self, x: outside(x) * weight * self.more[0], more=[nn.Parameter(torch.ones(3))]),
                        backward=True)
    plain, x = module.model, torch.randn(2, 3)
    wanted = [*outside.parameters(), weight, plain.more[0]]
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = torch.autograd.grad(module(x).square().sum(), wanted)
        for a, b in zip(found, torch.autograd.grad(plain(x).square().sum(), wanted)):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
        with torch.no_grad():
            for p in wanted:
                p.mul_(2)


def counts(self, x):
    self.log["n"] = self.log.get("n", 0) + 1
    return x * self.log["n"]


def draws(self, x):
    return x * random.random()


CHANGED = {"a dictionary": (counts, {"log": {}}, "changes Calls.log .*test_python_state.py"),
           "numbers of Python": (draws, {}, "draws random numbers from Python's .*test_python_state.py.*random.random")}


@pytest.mark.parametrize("what", CHANGED)
def test_changes_by_forward_are_refused_and_undone(what):
    function, held, message = CHANGED[what]
    module = DaceModule(Calls(function, **held))
    for _ in range(2):
        with pytest.raises(dcml.UnsupportedOpError, match=message):
            module(torch.ones(2))
    assert not module.model.__dict__.get("log")


def test_a_cache_that_the_first_call_fills_is_none_of_them():
    def cached(self, x):
        if "scale" not in self.cache:
            self.cache["scale"] = 3.0
        return x * self.cache["scale"]
    module = DaceModule(Calls(cached, cache={}))
    assert module(torch.ones(2))[0] == 3 and module.model.cache == {"scale": 3.0}


class Kept:
    """State of a registry whose lookups put a copy in its place, as einx's do."""

    def __init__(self, factors):
        self.factors = factors


def looks_up(self, x):
    REGISTRY.state = Kept([*REGISTRY.state.factors])
    REGISTRY.state.nothing, REGISTRY.state.itself = [], REGISTRY.state
    return x * REGISTRY.state.factors[-1]


REGISTRY = Kept([2.0])
REGISTRY.state = Kept([2.0])
REGISTRY.state.nothing, REGISTRY.state.itself = [], REGISTRY.state


def test_copies_that_take_the_place_of_state_are_no_changes():
    first, second = DaceModule(Calls(looks_up)), DaceModule(Calls(looks_up))
    x, state = torch.ones(2), REGISTRY.state
    assert first(x)[0] == second(x)[0] == 2 and REGISTRY.state is state  # or each would see a change of the other's
    REGISTRY.state.factors.append(5.0)
    assert first(x)[0] == second(x)[0] == 5


def test_state_that_differs_is_no_copy():
    def appends(self, x):
        self.kept.state = Kept([*self.kept.state.factors, 1.0])
        return x * len(self.kept.state.factors)
    kept = Kept([])
    kept.state = Kept([])
    kept.state.itself = kept
    with pytest.raises(dcml.UnsupportedOpError, match="changes Calls.kept"):
        DaceModule(Calls(appends, kept=kept))(torch.ones(2))
    assert kept.state.factors == []


def first_sets(self, x):
    self.size = getattr(self, "size", None) or x.shape[-1]
    return x * self.size


def sets_anew(self, x):
    self.scale = 1
    self.scale *= x.shape[-1]
    return x * self.scale


def sets_and_clears(self, x):
    self.held = x * 2
    y, self.held = self.held + 1, None
    return y


@pytest.mark.parametrize("function, left", [(first_sets, {"size": 3}), (sets_anew, {"scale": 3}),
                                            (sets_and_clears, {"held": None})])
def test_attributes_that_a_second_call_leaves_as_they_are_may_be_set(function, left):
    module = DaceModule(Calls(function, **{"held": None} if "held" in left else {}))
    for rows in (2, 5, 2, 4):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(module(x), function(types.SimpleNamespace(), x))
        assert {name: vars(module.model)[name] for name in left} == left
    assert captures(module) == 1


def test_attributes_that_a_call_leaves_by_its_extents_are_those_of_the_last_call():
    def notes(self, x):
        self.rows = x.shape[0]
        return x * 2
    module = DaceModule(Calls(notes))
    for rows in (2, 3, 2):
        module(torch.ones(rows, 3))
        assert module.model.rows == rows and type(module.model.rows) is int


def differs_at_first(self, x):
    if not getattr(self, "ready", False):
        self.ready = True
        return x * 5
    return x


def keeps(self, x):
    self.last = types.SimpleNamespace(y=x * 2)
    return self.last.y


@pytest.mark.parametrize("function, message", [(differs_at_first, "computes something else at its first call"),
                                               (keeps, "sets the attribute 'last' .*test_python_state.py")])
def test_other_attributes_are_refused_and_nothing_is_left_of_the_attempt(function, message):
    module = DaceModule(Calls(function))
    known = set(vars(module.model))
    for _ in range(2):
        with pytest.raises(dcml.UnsupportedOpError, match=message):
            module(torch.ones(2, 3))
        assert set(vars(module.model)) == known


def keeps_what_it_computes(self, x):
    self.hidden = x.tanh() * self.weight
    return self.hidden.sum(1)


def only_sets(self, x):
    self.seen, self.part, self.places = x, x[0], torch.arange(3)
    return x * self.weight


def carries(self, x):
    if self.hidden is None or self.hidden.shape[0] != x.shape[0]:
        self.hidden = torch.zeros(x.shape[0], 3)
    self.hidden = (x * self.weight + self.hidden.detach() / 2).tanh()
    return self.hidden * 2


def carries_history(self, x):
    self.hidden = x * self.weight if self.hidden is None else (x + self.hidden[:1]) * self.weight
    return self.hidden


def averages(self, x):
    with torch.no_grad():
        self.hidden = x.mean(0) if self.hidden is None else self.hidden * 0.9 + 0.1 * x.mean(0)
    return x * self.weight - self.hidden


def fills(self, x):
    if self.hidden is None:
        self.hidden = torch.ones(3, 3).tril()
    return x @ (self.weight * self.hidden)


def lists(self, x):
    self.seen, self.part = [x, (x * self.weight, None, "text")], {"rows": x.shape[0], "x": x + 1}
    return x * self.weight


def carries_lists(self, x):
    if self.hidden is None or self.hidden[1]["k"].shape[0] != x.shape[0]:
        self.hidden = [torch.zeros(3), {"k": torch.zeros(x.shape[0], 3)}]
    total, past = self.hidden
    self.hidden = [total.detach() + x.sum(0), {"k": (x * self.weight + past["k"].detach() / 2).tanh()}]
    return self.hidden[1]["k"] * 2 + total.detach()


def moves(self, x):
    self.hidden = [t.to(x.dtype) for t in (self.hidden or [torch.ones(3, dtype=x.dtype)])]  # as anchors of detectors
    return x * self.weight * self.hidden[0]


@pytest.mark.parametrize("function", [keeps_what_it_computes, only_sets, carries, carries_history, averages, fills, lists,
                                      carries_lists, moves])
def test_attributes_that_forward_sets_to_tensors_are_set_and_read_as_in_eager_mode(function):
    module = Calls(function, weight=nn.Parameter(torch.rand(3)), hidden=None)
    compiled = DaceModule(copy.deepcopy(module), backward=True)
    for rows in (2, 2, 2, 4, 4, 2):
        x, both = torch.randn(rows, 3), []
        for called, inner in ((module, module), (compiled, compiled.model)):
            given = x.clone().requires_grad_()
            y = called(given)
            set_to = {name: value for name, value in vars(inner).items() if isinstance(value, (torch.Tensor, list))}
            wanted = [given, inner.weight]
            gradients = torch.autograd.grad(y.sum(), wanted, retain_graph=function is carries_history)
            if function is keeps_what_it_computes:
                gradients += torch.autograd.grad(called(given).sum() + inner.hidden.square().sum(), wanted)
            both.append((y, gradients, *pytree.tree_flatten(set_to), [getattr(v, "requires_grad", v) for v in pytree.tree_leaves(set_to)]))
        (*tensors, shape, flags), (*others, form, marks) = [
            [y, gradients, [v for v in held if isinstance(v, torch.Tensor)], *more] for y, gradients, held, *more in both]
        torch.testing.assert_close(tensors, others)
        assert shape == form and flags == marks
    assert captures(compiled) <= {only_sets: 1, averages: 2, fills: 2, lists: 1, moves: 2}.get(function, 5)
    if function is only_sets:
        assert compiled.model.seen is given and compiled.model.part._base is given


def test_what_forward_only_reads_detached_has_nothing_to_do_with_its_backward_pass():
    module = DaceModule(Calls(lambda self, x, y: (x.detach() + y).sin()), backward=True)
    weight = torch.ones(3, requires_grad=True)
    for _ in range(2):
        x = torch.rand(3) * weight
        x.sum().backward()  # frees what is behind x
        module(x, weight * 2).sum().backward()


def test_lists_of_the_module_stay_the_same_objects():
    sizes = [torch.ones(2), 3]
    module = DaceModule(Calls(lambda self, x: x + self.sizes[1], sizes=sizes))
    module(torch.ones(2))
    assert module.model.sizes is sizes


class Own(Exception):
    def __init__(self, number, text):
        super().__init__(number, text)


def raises(error):
    raise error


def test_errors_of_forward_may_be_caught_as_in_eager_mode():
    error = Own(1, "text")
    with pytest.raises(Own) as caught:
        DaceModule(Calls(lambda self, x: raises(error)))(torch.ones(3))
    assert caught.value is error
    for function, kind in ((lambda self, x: raises(KeyError("oops")), KeyError), (lambda self, x: x.sum(9), IndexError),
                           (lambda self, x: x @ torch.ones(7), RuntimeError)):
        with pytest.raises(dcml.ModelError, match="test_python_state.py") as caught:
            DaceModule(Calls(function))(torch.ones(3))
        assert isinstance(caught.value, kind)


def captures(module):
    return len(module._captures)


def test_a_float_of_many_values_becomes_an_input():
    module = DaceModule(Calls(lambda self, x, k, y=None: F.relu(x * k) + k))
    for k in (0.5, -1.5, 2.5, 0.1, float("inf"), 3.0, 1e-3):
        for x in (torch.ones(3), torch.ones(3, dtype=torch.float64), torch.ones(3, dtype=torch.float16)):
            torch.testing.assert_close(module(x, k), module.model(x, k), equal_nan=True)
    assert captures(module) == 9


def test_floats_that_decide_become_an_input_and_two_ways():
    module = DaceModule(Calls(lambda self, x, k: x * 2 if k > 0 else x + 0))
    for k in range(16):
        assert module(torch.ones(3), k - 8.0)[0] == (2 if k > 8 else 1)
    assert len(module._captures) == 4


def test_floats_that_decide_by_functions_of_python_are_captured_each_and_many_are_warned_about():
    module = DaceModule(Calls(lambda self, x, k: x * 2 if math.frexp(k)[0] > 0 else x))
    with pytest.warns(UserWarning, match="16 so far"):
        for k in range(16):
            assert module(torch.ones(3), k - 8.0)[0] == (2 if k > 8 else 1)


def test_calls_with_tied_weights_are_checked_in_the_core():
    module, x = DaceModule(TiedLayers()), torch.ones(2, 3)
    for _ in range(3):
        module(x)
    assert module._repeats
    module.b.weight = nn.Parameter(torch.ones(3, 3))
    torch.testing.assert_close(module(x), module.model(x), rtol=1e-4, atol=1e-5)


class OwnParts(nn.Module):
    __slots__ = ("slotted",)
    factor = 2.0

    def __init__(self):
        super().__init__()
        self.fc, self.slotted, self._gain = nn.Linear(3, 3), 1.0, 1.0

    @property
    def gain(self):
        return self._gain

    @gain.setter
    def gain(self, value):
        self._gain = value

    @classmethod
    def make(cls):
        return cls()

    def forward(self, x):
        return self.fc(x) * self.factor * self.slotted * self.gain * getattr(self, "more", 1.0)


Decorated = dace_module(backward=True)(type("Decorated", (OwnParts,), {"__module__": __name__}))


def test_attributes_of_all_kinds_are_those_of_the_wrapped_module():
    compiled, x = Decorated.make(), torch.ones(2, 3)
    plain = compiled.model
    assert isinstance(compiled, DaceModule) and Decorated.factor == 2.0
    for change in (lambda: None, lambda: setattr(compiled, "slotted", 3.0), lambda: setattr(compiled, "gain", 4.0),
                   lambda: setattr(compiled, "more", 5.0), lambda: delattr(compiled, "more"),
                   lambda: setattr(Decorated, "factor", 7.0)):
        change()
        torch.testing.assert_close(compiled(x), plain(x), rtol=1e-4, atol=1e-4)
    assert (plain.slotted, plain._gain, type(plain).factor) == (3.0, 4.0, 7.0) and not hasattr(compiled, "more")


def test_instances_of_decorated_classes_are_pickled_and_copied():
    compiled, x = Decorated(), torch.ones(2, 3)
    compiled.model.slotted = 1.0
    for other in (pickle.loads(pickle.dumps(compiled)), copy.deepcopy(compiled)):
        other.slotted = 1.0  # as in PyTorch, slots are not copied
        assert type(other) is Decorated and other.model.fc is other.fc is not compiled.fc
        torch.testing.assert_close(other(x), compiled(x))


def test_containers_stay_containers():
    compiled = DaceModule(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    assert len(compiled) == 2 and compiled[1] is list(compiled)[1] and compiled[0] in compiled and compiled
    assert DaceModule(nn.Linear(2, 2))


@functools.lru_cache
def triangle(n):
    return torch.ones(n, n).triu()


def test_functions_that_cache_tensors_keep_none_of_the_trace():
    module, x = DaceModule(Calls(lambda self, x: x @ triangle(x.shape[1]))), torch.randn(2, 3)
    for _ in range(2):
        torch.testing.assert_close(module(x), module.model(x))
        assert type(triangle(3)) is torch.Tensor
        module.reset_sdfg()


def test_a_profiler_goes_on():
    profiler = cProfile.Profile()
    profiler.enable()
    try:
        DaceModule(nn.ReLU())(torch.ones(2))
        triangle.cache_clear()
    finally:
        profiler.disable()
    assert any("cache_clear" in str(entry.code) for entry in profiler.getstats())


@pytest.mark.parametrize("function", [lambda y: y.sin(), lambda y: y[y > 0.5], lambda y: y.split(y[0].long().abs().tolist())[0]])
def test_hooks_that_the_first_call_registers_are_there_once_however_often_it_is_traced(function):
    class Collects(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.hooked, self.seen = nn.Linear(3, 3), False, []

        def forward(self, x):
            if not self.hooked:
                self.fc.register_forward_hook(lambda module, args, output: self.seen.append(output * 2))
                self.hooked = True
            function(self.fc(x))
            results, self.seen[:] = list(self.seen), []
            return results
    module = Collects()
    nn.init.eye_(module.fc.weight)
    nn.init.zeros_(module.fc.bias)
    compiled, x = DaceModule(module), torch.full((3, 3), 1.0)
    for _ in range(2):
        assert len(compiled(x)) == 1
    assert len(module.fc._forward_hooks) == 1

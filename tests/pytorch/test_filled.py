"""Containers that forward or its hooks change in place: each call does to them what eager mode does."""
import array
import collections
import functools
import itertools

import pytest
import torch
from torch import nn

import dcml
from dcml.pytorch import DaceModule

SEEN = []


class Net(nn.Module):
    def __init__(self, function=None, **held):
        super().__init__()
        self.function, self.first, self.second = function, nn.Linear(4, 4), nn.Linear(4, 2)
        for name, value in held.items():
            setattr(self, name, value)

    def hidden(self, x):
        return torch.tanh(self.first(x))

    def forward(self, x):
        return self.second(self.hidden(x)) if self.function is None else self.function(self, x)


class Recorder:
    """A hook with a list of its own, and an attribute."""

    def __init__(self):
        self.outputs, self.latest = [], None

    def __call__(self, module, args, output):
        self.outputs.append(output.detach())
        self.latest = output * 1


class Extractor(nn.Module):
    """Hooks into a module that is called without it."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.features, self.latest = inner, {}, None
        inner.first.register_forward_hook(self.keep)

    def keep(self, module, args, output):
        self.features["first"], self.latest = output, output.detach()


def appends(self, x):
    h = self.hidden(x)
    self.seen.append(h)
    return self.second(h)


def appends_globally(self, x):
    SEEN.append(self.hidden(x).detach())
    return self.second(x)


def logs(self, x):
    y = self.second(x)
    self.losses.append(y.square().mean().item())
    return y


def remembers(self, x):
    self.memory.append(self.first(x).detach())
    return self.second(x) + sum(t.sum() for t in self.memory)


def fills(self, x):
    if not self.built:
        self.cache["weight"], self.built = self.first.weight * 2, True
    return x @ self.cache["weight"]


def registers(self, x):
    if not hasattr(self, "mean"):
        self.register_buffer("mean", x.detach().mean(0))
    return self.second(x - self.mean)


def averages(self, x):
    self.running = 0.9 * self.running + 0.1 * x.detach().mean(0)
    if self.first_seen is None:
        self.first_seen = x.detach() * 2
    return self.second(x - self.running + self.first_seen)


def nests(self, x):
    self.state["all"].append(x * 2)
    self.state["last"] = self.first(x), [x * 1]
    return self.second(x)


def assigns(self, x):
    global SEEN
    y = x * 1 if not SEEN else x + SEEN[0]
    SEEN = [x * 2]
    return self.second(y)


def takes(self, x):
    first = self.memory.pop(0)
    self.memory.append(self.first(x).detach())
    return self.second(x) + first.sum()


def compares(self, x):
    before = self.cache.get("x", x)
    self.cache["x"] = x
    return x - before


def by_attribute(name, function, make, **others):
    def start():
        net = Net(function, **{name: make()}, **others)
        return net, lambda: getattr(net, name)
    return start


def by_hook(container, hook):
    def start():
        net, held = Net(), container()
        net.first.register_forward_hook(hook(held))
        return net, lambda: held
    return start


def by_object():
    net, recorder = Net(), Recorder()
    net.first.register_forward_hook(recorder)
    return net, lambda: [recorder.outputs, recorder.latest]


def by_module_outside():
    extractor = Extractor(Net())
    return extractor.inner, lambda: [extractor.features, extractor.latest]


def by_global():
    SEEN.clear()
    return Net(appends_globally), lambda: SEEN


def by_assigned_global():
    SEEN.clear()
    return Net(assigns), lambda: SEEN


def by_variable():
    latest = None

    def hook(module, args, output):
        nonlocal latest
        latest = output if latest is None else output + latest.detach()
    net = Net()
    net.first.register_forward_hook(hook)
    return net, lambda: latest


def by_set_buffers():
    net = Net(averages)
    net.register_buffer("running", torch.zeros(4))
    net.register_buffer("first_seen", None)
    return net, lambda: dict(net._buffers)


def put(name):
    def hooks(held):
        def hook(module, args, output):
            held[name] = output
        return hook
    return hooks


def counted_and_kept(held):
    def hook(module, args, output):
        held.append(output.detach() * len(held))
    return hook


# what changes -> (a module and what its calls change, how many captures four calls take)
CHANGES = {
    "a list of results": (by_attribute("seen", appends, list), 1),
    "a list of numbers": (by_attribute("losses", logs, list), 1),
    "a global list": (by_global, 1),
    "a dictionary of a hook's": (by_hook(dict, put("first")), 1),
    "a list of a hook's": (by_hook(list, lambda held: lambda module, args, output: held.append(output)), 1),
    "a list that a hook reads": (by_hook(list, counted_and_kept), 4),
    "a list bound to a hook": (by_hook(list, lambda held: functools.partial(lambda held, m, a, output: held.append(output), held)), 4),
    "what an object holds": (by_object, 2),
    "what a module outside holds": (by_module_outside, 1),
    "a list that forward reads": (by_attribute("memory", remembers, list), 4),
    "a queue": (by_attribute("memory", remembers, lambda: collections.deque(maxlen=2)), 3),
    "a queue that forward takes from": (by_attribute("memory", takes, lambda: [torch.ones(3), torch.ones(3, 4)]), 2),
    "a cache with a flag": (by_attribute("cache", fills, dict, built=False), 2),
    "buffers that are registered": (lambda: (net := Net(registers), lambda: dict(net._buffers)), 2),
    "buffers that are set": (by_set_buffers, 2),
    "lists in a dictionary": (by_attribute("state", nests, lambda: {"all": [], "last": None}), 4),
    "a global": (by_assigned_global, 2),
    "a variable of an enclosing function": (by_variable, 2),
    "an argument": (by_attribute("cache", compares, dict), 2),
}


def equal(one, other):
    if isinstance(one, torch.Tensor):
        torch.testing.assert_close(one, other)
        return one.requires_grad == other.requires_grad
    if isinstance(one, dict):
        return list(one) == list(other) and all(equal(value, other[key]) for key, value in one.items())
    if isinstance(one, (list, tuple, collections.deque)):
        return len(one) == len(other) and all(map(equal, one, other))
    return one == pytest.approx(other) if isinstance(one, float) else one == other


def steps(start, wrap, calls=4):
    """[(result, gradients, what is held)] of calls of a module."""
    torch.manual_seed(0)
    net, held = start()
    module, made = wrap(net), []
    for _ in range(calls):
        x = torch.randn(3, 4, requires_grad=True)
        result = module(x)
        gradients = torch.autograd.grad(result.square().sum(), [x, *net.parameters()], allow_unused=True, retain_graph=True)
        made.append((result.detach(), gradients, copied(held())))
    return made, module


def copied(held):
    if isinstance(held, dict):
        return {key: copied(value) for key, value in held.items()}
    return [copied(value) for value in held] if isinstance(held, (list, tuple, collections.deque)) else held


@pytest.mark.parametrize("what", CHANGES)
def test_each_call_changes_what_eager_mode_changes(what):
    start, captures = CHANGES[what]
    expected, _ = steps(start, lambda net: net)
    found, module = steps(start, lambda net: DaceModule(net, backward=True))
    assert equal(expected, found) and len(module._captures) == captures


def test_a_container_that_is_returned_is_the_one_that_is_filled():
    def returns(self, x):
        self.seen.append(x * 2)
        return x, {"all": self.seen}
    net = Net(returns, seen=[])
    module = DaceModule(net)
    for length in (1, 2):
        result = module(torch.ones(3, 4))
        assert result[1]["all"] is net.seen and len(net.seen) == length and (net.seen[-1] == 2).all()


def test_a_list_that_is_emptied_between_calls_takes_one_capture():
    module = DaceModule(Net(remembers, memory=[]))
    for _ in range(3):
        module(torch.ones(3, 4))
        module.model.memory.clear()
    assert len(module._captures) == 1


def test_a_list_that_is_made_anew_between_calls_is_the_one_that_is_filled():
    net = Net(appends, seen=[])
    module = DaceModule(net)
    for _ in range(3):
        net.seen = []
        module(torch.ones(3, 4))
        assert len(net.seen) == 1
    assert len(module._captures) == 1


def test_other_code_that_reads_a_list_makes_its_length_count():
    def looks(self, x):
        return appends(self, x) if self.training else x * len(self.seen)
    net = Net(looks, seen=[])
    module = DaceModule(net)
    for expected in (1, 2):
        module.train()(torch.ones(3, 4))
        assert (module.eval()(torch.ones(3, 4)) == expected).all()


def test_a_set_of_tensors_is_refused_even_where_only_the_first_call_fills_it():
    def fills_once(self, x):
        if not self.seen:
            self.seen.add(x * 2)
        return x
    net = Net(fills_once, seen=set())
    with pytest.raises(dcml.UnsupportedOpError, match="changes Net.seen"):
        DaceModule(net)(torch.ones(3, 4))
    assert not net.seen


def test_a_new_way_to_a_list_makes_its_length_count():
    def looks(self, x):
        return appends(self, x) if self.other is None else x * len(self.other.outputs)
    net = Net(looks, seen=[], other=None)
    module = DaceModule(net)
    module(torch.ones(3, 4))
    net.other = Recorder()
    net.other.outputs = net.seen
    for expected in (1, 2):
        assert (module(torch.ones(3, 4)) == expected).all()
        net.seen.append(None)


def test_a_frozen_module_sets_no_buffers():
    net = Net(averages).eval()
    net.register_buffer("running", torch.zeros(4))
    net.register_buffer("first_seen", torch.zeros(4))
    with pytest.raises(dcml.UnsupportedOpError, match="changes 'running'.*frozen"):
        DaceModule(net, frozen=True)(torch.ones(3, 4))


def test_a_parameter_that_forward_registers_is_refused():
    def registers_one(self, x):
        self.third = nn.Parameter(x.detach())
        return x
    net = Net(registers_one)
    with pytest.raises(dcml.UnsupportedOpError, match="registers the parameter 'third'"):
        DaceModule(net)(torch.ones(3, 4))
    assert [name for name, _ in net.named_parameters()] == ["first.weight", "first.bias", "second.weight", "second.bias"]


def test_which_tensors_are_one_is_seen_in_attributes():
    def sums(self, x):
        return x + 2 * self.one + 3 * self.other
    t = torch.ones(3)
    module = DaceModule(Net(sums, one=t, other=t))
    assert (module(torch.zeros(3)) == 5).all()
    module.model.other = torch.ones(3) * 10
    assert (module(torch.zeros(3)) == 32).all()


def counts(self, x):
    self.held["calls"] = self.held.get("calls", 1) + 1
    self.held["x"] = x
    return x


def increments(self, x):
    self.held[0] += 1
    return x * self.held[0]


def takes_next(self, x):
    return x * next(self.held)


REFUSED = {"a counter beside tensors": (counts, {"calls": 0}, "changes Net.held"),
           "bytes": (increments, bytearray(2), "changes Net.held"),
           "an array": (increments, array.array("i", [1, 2]), "changes Net.held"),
           "an iterator": (takes_next, itertools.count(1), "next of a count"),
           "a generator": (takes_next, (k for k in range(9)), "next of a generator")}


@pytest.mark.parametrize("what", REFUSED)
def test_what_would_be_another_program_at_each_call_is_refused(what):
    function, held, message = REFUSED[what]
    net = Net(function, held=held)
    for _ in range(2):
        with pytest.raises(dcml.UnsupportedOpError, match=f"{message}.*test_filled.py"):
            DaceModule(net)(torch.ones(3, 4))
    assert not isinstance(held, (dict, bytearray)) or not any(held.values() if isinstance(held, dict) else held)

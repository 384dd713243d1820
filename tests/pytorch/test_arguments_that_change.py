"""Containers among the arguments that forward changes, as caches of keys and values: the caller's are what they are in eager mode."""
import copy
import dataclasses

import pytest
import torch
from torch import nn

from dcml.pytorch import DaceModule


class Calls(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function, self.weight = function, nn.Parameter(torch.rand(3))

    def forward(self, x, held):
        return self.function(x * self.weight, held)


class Layer:
    def __init__(self):
        self.keys, self.length = None, 0

    def update(self, x):
        self.keys = x if self.keys is None else torch.cat([self.keys, x])
        self.length += x.shape[0]
        return self.keys


class Cache:
    """As decoders take: layers are made at first use."""

    def __init__(self):
        self.layers, self.calls = [], {"count": 0}


@dataclasses.dataclass
class Held:
    last: torch.Tensor = None
    inner: object = None


def attends(x, cache):
    for k in range(2):
        if len(cache.layers) <= k:
            cache.layers.append(Layer())
        x = x + cache.layers[k].update(x * (k + 1)).mean(0)
    cache.calls["count"] += 1
    return x


def appends(x, held):
    held.append(x.sum())
    return sum(held)


def puts(x, held):
    held["x"] = held.pop("before") + x[:1]
    held["same"] = held["given"]
    held["argument"] = x.shape[0]
    return x * 2


def data_class(x, held):
    held.last = x.tanh() if held.last is None else held.last[:1] + x
    held.inner = [held.last * 2]
    return held.last


def swaps(x, held):
    held[0], held[1] = held[1], held[0]
    held[2].clear()
    return x


CASES = {attends: Cache, appends: list, puts: lambda: {"before": torch.ones(3), "given": torch.zeros(2)}, data_class: Held,
         swaps: lambda: [torch.zeros(2), torch.ones(2), {"a": torch.ones(1)}]}


def parts(value):
    """What a container holds, as tuples of types and values."""
    if isinstance(value, dict):
        return [(key, parts(held)) for key, held in value.items()]
    if isinstance(value, (list, tuple)):
        return [type(value), *map(parts, value)]
    return [type(value), parts(vars(value))] if hasattr(value, "__dict__") and not isinstance(value, torch.Tensor) else value


def same(got, want):
    if isinstance(got, (list, tuple)):
        assert type(got) is type(want) and len(got) == len(want)
        for a, b in zip(got, want):
            same(a, b)
    elif isinstance(got, torch.Tensor):
        torch.testing.assert_close(got, want)
        assert got.requires_grad == want.requires_grad
    else:
        assert got == want and type(got) is type(want)


@pytest.mark.parametrize("function", CASES)
def test_containers_among_the_arguments_change_as_in_eager_mode(function):
    torch.manual_seed(0)
    module = Calls(function)
    compiled = DaceModule(copy.deepcopy(module), backward=True)
    for rows in (1, 3):  # each time with a container of its own, by the same captures where they are alike
        both = CASES[function](), CASES[function]()
        names = [(held, list(held) if isinstance(held, list) else held) for held in both]
        for _ in range(3 if function is not puts else 1):
            x = torch.randn(rows, 3)
            results = [called(x, held) for called, held in zip((module, compiled), both)]
            torch.testing.assert_close(*results)
            same(*[parts(held) for held in reversed(both)])
        gradients = [torch.autograd.grad(y.sum(), inner.weight) for y, inner in zip(results, (module, compiled.model))]
        torch.testing.assert_close(*gradients)
        assert all(held is was for held, (was, _) in zip(both, names))


def test_a_container_inside_an_argument_stays_the_same_object():
    cache, compiled = Cache(), DaceModule(Calls(attends))
    layers, calls = cache.layers, cache.calls
    compiled(torch.ones(2, 3), cache)
    first = layers[0]
    compiled(torch.ones(2, 3), cache)
    assert cache.layers is layers and cache.calls is calls and layers[0] is first and len(layers) == 2 and first.length == 4


RETURNED = {
    "a list": (lambda x, held: (held.append(x), held)[1], lambda: [torch.ones(3)], lambda result: result),
    "a list beside a tensor": (lambda x, held: (held.append(x), (x, held))[1], lambda: [torch.ones(3)], lambda result: result[1]),
    "an object in a dictionary": (lambda x, held: (setattr(held, "last", x), {"held": held})[1], Held, lambda result: result["held"]),
    "a dictionary": (lambda x, held: (held.update(c=x + held.pop("b")), held)[1], lambda: {"b": torch.ones(3)}, lambda result: result),
}


@pytest.mark.parametrize("what", RETURNED)
def test_a_container_that_forward_changes_and_returns_is_the_caller_s(what):
    function, make, which = RETURNED[what]
    compiled = DaceModule(Calls(function))
    for _ in range(3):
        held, want, x = make(), make(), torch.rand(3)
        with torch.no_grad():
            assert which(compiled(x, held)) is held
            compiled.model(x, want)
        assert str(held) == str(want)


def test_a_call_that_fails_leaves_containers_as_they_were():
    compiled, held = DaceModule(Calls(lambda x, held: appends(x, held) + x @ torch.ones(3))), [torch.ones([])]
    compiled(torch.ones(2, 3), held)
    assert len(held) == 2
    with pytest.raises(Exception):
        compiled(torch.ones(2, 4), held)
    assert len(held) == 2


def test_values_that_decide_alter_containers_once():
    def decides(x, held):
        held.append(x)
        return x * 2 if x.sum() > 0 else x
    compiled = DaceModule(Calls(decides))
    for sign in (1, -1, 1, -1):
        held = []
        compiled(sign * torch.ones(2, 3), held)
        assert len(held) == 1 and torch.equal(held[0].sign(), sign * torch.ones(2, 3))


def test_keywords_that_forward_takes_by_two_stars_may_have_any_extents():
    class Takes(nn.Module):
        def forward(self, x, **more):
            return torch.cat([x, more["keys"]], 1).sum(1), more["scale"]
    compiled = DaceModule(Takes())
    for length in (3, 4, 5, 6):
        x, keys = torch.rand(2, 1, 3), torch.rand(2, length, 3)
        torch.testing.assert_close(compiled(x, scale=2, keys=keys), (x.sum(1) + keys.sum(1), 2))
    assert len(compiled._captures) == 2

"""Calls like an earlier one are compared by the core: whatever differs is seen, and nothing else is looked at."""
import pytest
import torch
from torch import nn

from dcml.pytorch import DaceModule


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.full((3,), 2.0))

    def forward(self, x, others=(), *, scale=1, named=None):
        y = x * self.weight * scale
        for other in others:
            y = y + other
        return y if named is None else y - named["b"]


class Looks:
    """Counts the calls that Python looks at."""

    def __init__(self, module):
        self.module, self.n, self.find = module, 0, module._captures.find
        module._captures.find = self

    def __call__(self, *args):
        self.n += 1
        return self.find(*args)


def settled(*calls):
    module = DaceModule(Scaled(), backward=True)
    for _ in range(3):
        for args, kwargs in calls:
            module(*args, **kwargs)
    return module, Looks(module)


X, Y = torch.arange(6.0).reshape(2, 3), torch.ones(2, 3)
LIKE = {
    "tensors in a list": ((X, [Y, Y.clone()]), {}),
    "arguments by name": ((X,), {"scale": 3, "others": (Y,)}),
    "a dictionary": ((X,), {"named": {"a": Y, "b": X.clone()}}),
    "an expanded one": ((torch.ones(1, 3).expand(4, 3),), {}),
    "a transposed one": ((torch.ones(3, 4).t(),), {}),
}


@pytest.mark.parametrize("args, kwargs", LIKE.values(), ids=LIKE)
def test_the_core_serves_such_a_call_again(args, kwargs):
    module, looks = settled((args, kwargs))
    got = module(*args, **kwargs)
    assert looks.n == 0
    torch.testing.assert_close(got, module.model(*args, **kwargs))


OTHER = {
    "another length": ((X, [Y]), {}),
    "another container": ((X, (Y, Y)), {}),
    "another number": ((X, [Y, Y.clone()]), {"scale": 4}),
    "one tensor twice": ((X, [Y, Y]), {}),
    "another type": ((X.double(), [Y, Y.clone()]), {}),
    "other extents": ((X[:1], [Y, Y.clone()]), {}),
    "other strides": ((torch.ones(3, 2).t(), [Y, Y.clone()]), {}),
    "no list": ((X,), {}),
}


@pytest.mark.parametrize("args, kwargs", OTHER.values(), ids=OTHER)
def test_python_looks_at_a_call_that_differs_by(args, kwargs):
    module, looks = settled(((X, [Y, Y.clone()]), {}))
    got = module(*args, **kwargs)
    assert looks.n == 1
    torch.testing.assert_close(got, module.model(*args, **kwargs))


def test_true_is_not_the_number_one():
    module, looks = settled(((X,), {"scale": 1}))
    module(X, scale=True)
    assert looks.n == 1


def test_calls_in_turns_are_all_served():
    module, looks = settled(((X,), {}), ((Y, [X]), {}), ((X.clone().requires_grad_(),), {}))
    for args in ((X,), (Y, [X]), (X.clone().requires_grad_(),), (X,)):
        torch.testing.assert_close(module(*args), module.model(*args))
    assert looks.n == 0


def test_the_graph_shown_is_that_of_the_last_call():
    module, _ = settled(((X,), {}), ((Y, [X]), {}))
    module(X)
    assert module.dace_model.inputs == ["x"]
    module(Y, [X])
    assert len(module.dace_model.inputs) == 2


def test_a_parameter_that_was_replaced_and_put_back_is_seen_both_times():
    module, _ = settled(((X,), {}))
    first, second = module.model.weight, nn.Parameter(torch.full((3,), 5.0))
    for weight in (second, first, second, second, first):
        module.model.weight = weight
        torch.testing.assert_close(module(X), X * weight)


def test_results_beside_arguments_are_those_of_the_call():
    module = DaceModule(nn.Identity())
    both = DaceModule(Both())
    for k in range(4):
        x, y = torch.full((2,), float(k)), torch.full((2,), 10.0 + k)
        assert module(x) is x or torch.equal(module(x), x)
        out, same = both({"x": x, "y": y})
        assert torch.equal(out, x + y) and torch.equal(same, y)


class Both(nn.Module):
    def forward(self, held):
        return held["x"] + held["y"], held["y"]

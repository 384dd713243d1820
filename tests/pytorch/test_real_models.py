"""What models as people write them were found to need, in its smallest form, beside eager PyTorch."""
import copy

import pytest
import torch
from torch import distributions as dist
from torch import nn
from torch.nn import functional as F

from dcml.pytorch import DaceModule


class Head(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function, self.linear = function, nn.Linear(3, 4)

    def forward(self, x, *values):
        return self.function(self.linear(x), *values)


def check(function, *values):
    torch.manual_seed(0)
    module, x = Head(function), torch.randn(5, 3)
    eager, compiled = copy.deepcopy(module), DaceModule(module, backward=True)
    for _ in range(4):  # interpreted first, then compiled
        results = []
        for one in (compiled, eager):
            one.zero_grad()
            y = one(x, *values)
            y.sum().backward()
            results.append([y, *[p.grad for p in one.parameters()]])
        torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)


DISTRIBUTIONS = {
    "log_prob": (lambda y, v: dist.Normal(y, F.softplus(y)).log_prob(v), torch.randn(5, 4)),
    "divergence": (lambda y: dist.kl_divergence(dist.Normal(y, y.exp()), dist.Normal(0 * y, 1 + 0 * y)),),
    "entropy": (lambda y: dist.Categorical(logits=y).entropy(),),
    "integers": (lambda y, v: dist.Categorical(probs=y.softmax(-1)).log_prob(v), torch.tensor([0, 3, 2, 1, 1])),
    "transformed": (lambda y, v: dist.TransformedDistribution(dist.Normal(y, y.exp()), [dist.TanhTransform()]).log_prob(v),
                    torch.linspace(-0.9, 0.9, 20).reshape(5, 4)),
    "mixture": (lambda y, v: dist.MixtureSameFamily(dist.Categorical(logits=y), dist.Normal(y, y.exp())).log_prob(v),
                torch.randn(5)),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_distributions_check_their_arguments_inside_the_graph(name, validated):
    check(*DISTRIBUTIONS[name])


@pytest.fixture
def validated(monkeypatch):  # torch.compile switches validation off for the whole process at its first use
    monkeypatch.setattr(dist.Distribution, "_validate_args", True)


def test_a_distribution_outside_its_domain_is_an_error_at_each_call(validated):
    module = DaceModule(Head(lambda y: dist.Normal(y, -y.abs()).log_prob(y)))
    for _ in range(3):
        with pytest.raises(ValueError, match="outside its domain"):
            module(torch.randn(5, 3))


def test_a_distribution_is_not_validated_where_torch_does_not(validated, monkeypatch):
    monkeypatch.setattr(dist.Distribution, "_validate_args", False)
    module, x = DaceModule(Head(lambda y: dist.Normal(y, -y.abs()).log_prob(y))), torch.randn(5, 3)
    for _ in range(3):
        torch.testing.assert_close(module(x), module.model(x), equal_nan=True)


class Lazy(nn.Module):
    step = None

    def forward(self, x):
        if self.step is None:
            self.step = 2
        return x * self.step


def test_an_attribute_set_by_the_first_call_alone_is_set():
    module, x = Lazy(), torch.randn(3)
    torch.testing.assert_close(DaceModule(module)(x), 2 * x)
    assert module.step == 2


def test_a_maximum_of_what_a_kink_leaves_passes_nan_on():
    x = torch.randn(6, 20)
    x[1, 3], x[2] = float("nan"), -1.0
    module = DaceModule(Head(lambda y: y))
    module.model.linear = nn.Identity()
    module.model.function = lambda y: (torch.relu(y).amax(1), F.relu6(y).amin(1), y.clamp(max=0).amax(1))
    for _ in range(4):
        torch.testing.assert_close(module(x), module.model(x), equal_nan=True)


def test_the_length_of_zeros_has_the_gradient_zero():
    for function in (lambda y: y.norm(dim=1), lambda y: F.normalize(y, dim=1), lambda y: torch.linalg.vector_norm(y)):
        x = torch.tensor([[3.0, 4.0, 0.0], [0.0, 0.0, 0.0]])
        pairs = [x.clone().requires_grad_() for _ in range(2)]
        module = DaceModule(Head(function), backward=True)
        module.model.linear = nn.Identity()
        for one, given in zip((module, module.model), pairs):
            one(given).sum().backward()
        torch.testing.assert_close(pairs[0].grad, pairs[1].grad)

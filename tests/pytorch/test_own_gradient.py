"""torch.autograd.Function inside a module: its own backward is used, as in eager."""
import copy

import pytest
import torch
from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from dcml import UnsupportedOpError
from dcml.pytorch import DaceModule


class Round(Function):
    """Straight through: the gradient of the identity."""

    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, g):
        return g


class Reverse(Function):
    """Gradient reversal, with a number that is no tensor and a result that is the input."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return -ctx.scale * g, None


class Clipped(Function):
    """backward is not linear in the gradient that it is given, and changes a copy of it in place."""

    @staticmethod
    def forward(x):
        return x.clamp(min=0)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        g = g.clone()
        g[x < 0] = 0
        return g.clamp(-0.5, 0.5) + 0.1 * y


class Pair(Function):
    """Two inputs, three results: one has no gradient, one holds indices; gradients need each other."""

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        largest, where = (a * b).max(-1)
        total = (a + b).sum(-1)
        ctx.mark_non_differentiable(total, where)
        return a * b, total, where

    @staticmethod
    def backward(ctx, g, g_total, g_where):
        a, b = ctx.saved_tensors
        assert g_total is not None
        assert ctx.needs_input_grad == (True, True)
        return g * b + 3 * a, (g * a).sum(0, keepdim=True)


class Swish(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        s = torch.sigmoid(x)
        return Round.apply(g) + g * s * (1 + x * (1 - s))


def _pair(net, x):
    product, total, where = Pair.apply(net.linear(x), net.scale[None])
    return product * net.scale + total[:, None] + where[:, None]


def _inner_gradient(net, x):
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        g, = torch.autograd.grad((x * net.scale).pow(2).sum(), x, create_graph=True)
    return g.sum(0)


def _pair_unused(net, x):
    return Pair.apply(net.linear(x), net.scale[None])[0].sum()


round_by_name = Round.apply

CASES = {
    "by a name of its own": lambda net, x: round_by_name(x * net.scale) * net.scale,
    "straight through": lambda net, x: Round.apply(x * net.scale) * net.scale,
    "reversal": lambda net, x: Reverse.apply(net.linear(x), 0.3).tanh() + net.scale,
    "not linear": lambda net, x: Clipped.apply(net.linear(x)).square(),
    "several results": _pair,
    "results that nobody uses": _pair_unused,
    "twice, and of one value": lambda net, x: Swish.apply(Swish.apply(net.linear(x))) + Swish.apply(net.scale),
    "of an input alone": lambda net, x: Swish.apply(x),
    "nothing but a buffer": lambda net, x: Round.apply(net.fixed) * net.scale + x,
    "reentrant checkpoint": lambda net, x: checkpoint(lambda t: net.linear(t).tanh(), x, use_reentrant=True),
    "checkpoint": lambda net, x: checkpoint(lambda t: Swish.apply(net.linear(t)), x, use_reentrant=False),
    "a gradient inside": _inner_gradient,
    "under no_grad": lambda net, x: torch.no_grad()(lambda: Swish.apply(net.linear(x)))() * net.scale,
}


class Net(nn.Module):
    def __init__(self, compute):
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.scale, self.compute = nn.Linear(3, 3), nn.Parameter(torch.tensor([1.5, -0.7, 0.3])), compute
        self.register_buffer("fixed", torch.tensor([0.6, 1.4, -2.5]))

    def forward(self, x):
        return self.compute(self, x)


def differentiated(call, net, x):
    x = x.clone().requires_grad_()
    y = call(x)
    y.square().sum().backward()
    return y.detach(), [x.grad] + [p.grad for p in net.parameters()]


@pytest.mark.parametrize("name", CASES)
def test_value_and_gradients_are_those_of_eager(name):
    net = Net(CASES[name])
    other = copy.deepcopy(net)
    module = DaceModule(other, backward=True)
    for batch in (4, 7):
        x = torch.randn(batch, 3, generator=torch.Generator().manual_seed(batch))
        want, wanted = differentiated(net, net, x)
        have, found = differentiated(module, other, x)
        torch.testing.assert_close(have, want)
        for a, b in zip(found, wanted):
            assert (a is None) == (b is None)
            if a is not None:
                torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(module(x), net(x))


def test_half_precision_and_gradients_of_another_type():
    class Twice(Function):
        @staticmethod
        def forward(ctx, x):
            return (2 * x.float()).to(torch.bfloat16)

        @staticmethod
        def backward(ctx, g):
            return 5 * g.float()

    net = Net(lambda net, x: Twice.apply(x).float())
    x = torch.ones(2, 3, dtype=torch.bfloat16)
    want, wanted = differentiated(net, net, x)
    have, found = differentiated(DaceModule(net, backward=True), net, x)
    torch.testing.assert_close(have, want)
    torch.testing.assert_close(found[0], wanted[0])


class Hooked(nn.Module):
    def __init__(self, hooked):
        super().__init__()
        self.linear, self.hooked = nn.Linear(2, 2), hooked

    def forward(self, x):
        return self.hooked(self.linear, x)


def scaled(linear, x):
    y = linear(x)
    y.register_hook(lambda g: 2 * g)
    return y.sin() * y


def by_its_value(linear, x):
    y = x * x
    if y.requires_grad:
        y.register_hook(lambda g: g.clamp(-1, 1) * y.detach())
    return linear(y)


def twice(linear, x):
    y = linear(x)
    y.register_hook(lambda g: g * 3)
    z = y.exp()
    z.register_hook(lambda g: None)
    z.register_hook(lambda g: g + 1)
    return z + y


@pytest.mark.parametrize("function", (scaled, by_its_value, twice))
def test_hooks_on_tensors_inside_forward_are_in_the_gradient(function):
    torch.manual_seed(0)
    net = Hooked(function)
    compiled = DaceModule(net, backward=True)
    for flag in (True, False, True):
        x = torch.randn(3, 2, requires_grad=flag)
        leaves = [*net.parameters(), *([x] if flag else [])]
        found = [torch.autograd.grad(m(x).square().sum(), leaves) for m in (net, compiled)]
        torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("flag", (True, False))
def test_what_forward_computes_tells_whether_it_requires_a_gradient(flag):
    def function(linear, x):
        y = x * 2
        z = y.detach() + 1
        with torch.no_grad():
            w = y + 1
        y[0] = 3
        return x * (1 + y.requires_grad + 2 * z.requires_grad + 4 * w.requires_grad + 8 * linear(x).requires_grad)
    net = Hooked(function)
    compiled = DaceModule(net, backward=True)
    x = torch.ones(2, 2, requires_grad=flag)
    assert torch.equal(compiled(x), net(x))
    with torch.no_grad():
        assert torch.equal(compiled(x), net(x))


def used_before(linear, x):
    y = linear(x)
    z = y.sin()
    y.register_hook(lambda g: 2 * g)
    return y + z


def of_an_argument(linear, x):
    x.register_hook(lambda g: 2 * g)
    return linear(x)


class Dirty(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, g):
        return 2 * g


def test_what_cannot_be_kept_is_refused():
    x = torch.ones(1, 2)
    for function in (used_before, of_an_argument, lambda linear, x: linear(x).retain_grad()):
        with pytest.raises(UnsupportedOpError, match="register_hook|retain_grad"):
            DaceModule(Hooked(function), backward=True)(x)
    with pytest.raises(UnsupportedOpError, match="in place"):
        DaceModule(Net(lambda net, x: Dirty.apply(net.linear(x))), backward=True)(torch.ones(1, 3))
    net = nn.Sequential(nn.Linear(2, 2))
    net[0].register_full_backward_hook(lambda *_: None)
    with pytest.raises(UnsupportedOpError, match="backward hooks of the part '0'"):
        DaceModule(net, backward=True)(x)


def test_torch_is_left_as_it_was():
    kept = torch.autograd.Function.apply, torch.Tensor.register_hook, torch.Tensor.retain_grad
    DaceModule(Net(CASES["reversal"]), backward=True)(torch.ones(2, 3))
    assert torch.autograd.Function.apply == kept[0]
    assert (torch.Tensor.register_hook, torch.Tensor.retain_grad) == kept[1:]
    assert "__getattribute__" not in vars(type(torch.autograd.Function))
    x = torch.ones(2, requires_grad=True)
    Round.apply(x).sum().backward()
    assert torch.equal(x.grad, torch.ones(2))

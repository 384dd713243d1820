"""Where a gradient is zero: a tensor of zeros if autograd's tape leads there, None if not, as in eager mode."""
import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dcml.pytorch import DaceModule


class Net(nn.Module):
    def __init__(self, compute):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = nn.Parameter(torch.randn(3)), nn.Parameter(torch.randn(3))
        self.compute = compute

    def forward(self, x):
        return self.compute(self, x)


def without_grad(net, x):
    with torch.no_grad():
        y = net.a * x
    return y + net.b


CASES = {
    "unused": lambda n, x: x * n.a,
    "floor": lambda n, x: x * n.a + n.b.floor(),
    "round, trunc, ceil": lambda n, x: x.round() + n.a.trunc() * n.b.ceil(),
    "sign": lambda n, x: x.sign() * n.a.sign(),
    "times zero": lambda n, x: x + n.a * 0,
    "to the power zero": lambda n, x: x + n.a ** 0,
    "clamp between equal bounds": lambda n, x: x + n.a.clamp(0, 0),
    "minus itself": lambda n, x: x * n.b + (n.a - n.a),
    "detached": lambda n, x: x * n.a.detach() + n.b,
    "detached on one of two paths": lambda n, x: x * n.a.detach() + n.a.floor(),
    "through integers": lambda n, x: x + n.a.long().float() + (n.b > 0).float(),
    "shape and type alone": lambda n, x: x + torch.zeros_like(n.a) + n.b.new_ones(3),
    "no_grad": without_grad,
    "a mask": lambda n, x: torch.where(n.a > 0, x, n.b),
    "filled over": lambda n, x: x + torch.fill(n.a, 2.0) + n.b.masked_fill(torch.ones(3, dtype=torch.bool), 1.0),
    "an empty slice": lambda n, x: x + n.a[3:].sum() + n.b,
    "statistics": lambda n, x: F.batch_norm(x.expand(4, 3), None, None, n.a, n.b, training=True),
    "two results": lambda n, x: (x * n.a, x.detach() + n.b),
    "a result without history": lambda n, x: (x * n.a, n.b.detach() * 2, n.a > 0),
    "results that share": lambda n, x: (x * n.a, (x * n.a).detach(), x + n.a.floor()),
    "no history at all": lambda n, x: (x * n.a).detach(),
}


def gradients(module, of, roots):
    """(does each result require a gradient, gradients of the results named by ``roots``)."""
    x = torch.tensor([[0.3, -1.2, 2.7]], requires_grad=True)
    results = module(x)
    results = results if isinstance(results, tuple) else (results,)
    wanted = [results[k] for k in roots if k < len(results) and results[k].requires_grad]
    for p in (of.a, of.b):
        p.grad = None
    if wanted:
        torch.autograd.backward([r.sum() for r in wanted])
    return [r.requires_grad for r in results], [x.grad, of.a.grad, of.b.grad]


@pytest.mark.parametrize("node", ["as chosen", "python"])
@pytest.mark.parametrize("what", CASES)
def test_zeros_or_none_as_in_eager(what, node):
    plain = Net(CASES[what])
    module = DaceModule(copy.deepcopy(plain), backward=True, compile_torch_extension=node == "as chosen")
    for roots in ((0, 1, 2), (0,), (1,), (2,)):
        flags, found = gradients(module, module, roots)
        want_flags, want = gradients(plain, plain, roots)
        assert flags == want_flags
        for a, b in zip(found, want):
            assert (a is None) == (b is None)
            if a is not None:
                torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


class Several(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(3))
        self.large = nn.Parameter(torch.ones(700, 700))  # its gradient ends a part of the backward pass

    def forward(self, x):
        y = x * self.weight
        return y * 2 + (x.sum() * self.large).mean(), y.sqrt(), y.log()


@pytest.mark.parametrize("given", ([0], [1], [2], [0, 1]), ids=str)
def test_a_result_that_gives_no_gradient_adds_no_infinity_times_zero(given):
    plain = Several()
    module, x = DaceModule(plain, backward=True), torch.ones(2, 3, requires_grad=True)
    for _ in range(2):
        found = []
        for m in (plain, module):
            results = m(x)
            tensors = [x, plain.weight, plain.large]
            found.append(torch.autograd.grad(sum(results[k].sum() for k in given), tensors, allow_unused=True))
            for t in tensors:
                t.grad = None
            m(x)[given[0]].sum().backward()
            found[-1] += tuple(t.grad for t in tensors)
        zeros = [[torch.zeros(()) if t is None else t for t in one] for one in found]
        for want, got in zip(*zeros):
            torch.testing.assert_close(got.expand_as(want), want, equal_nan=True)
    assert any(bool(t.isnan().any()) for t in zeros[1]) == (given != [0])


@pytest.mark.parametrize("order", (0.5, -1, -2, 1.5, 3))
def test_a_norm_has_no_slope_where_an_element_is_zero(order):
    class Norm(nn.Module):
        def forward(self, x):
            return torch.linalg.norm(x, order, dim=-1)
    x = torch.tensor([[0.0, 4, 1], [2, -3, 0.5], [0, 0, 0]], requires_grad=True)
    want, got = (m(x) for m in (Norm(), DaceModule(Norm(), backward=True)))
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(*(torch.autograd.grad(norm.sum(), x)[0] for norm in (got, want)))

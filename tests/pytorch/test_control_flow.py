"""torch.cond inside a module: both branches, gradients included, against eager PyTorch."""
import pytest
import torch

import dcml
from dcml.pytorch import DaceModule


class Branches(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = torch.nn.Linear(3, 3), torch.nn.LayerNorm(3)

    def forward(self, x):
        y = torch.cond(x.sum() > 0, lambda x: self.linear(x).sin(), lambda x: self.norm(x) * 2, (x,))
        return y + x


@pytest.mark.parametrize("sign", [1, -1])
def test_the_branch_that_is_taken_gives_value_and_gradients(sign):
    torch.manual_seed(0)
    module = Branches()
    compiled = DaceModule(module, backward=True)
    for extent in (4, 6):
        x = sign * torch.rand(extent, 3)
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        taken = module.linear(a).sin() if sign > 0 else module.norm(a) * 2
        (taken + a).square().sum().backward()
        wanted = [None if p.grad is None else p.grad.clone() for p in module.parameters()]
        module.zero_grad()
        result = compiled(b)
        torch.testing.assert_close(result, taken + a)
        result.square().sum().backward()
        torch.testing.assert_close(b.grad, a.grad, rtol=1e-4, atol=1e-4)
        for p, want in zip(module.parameters(), wanted):
            torch.testing.assert_close(p.grad, torch.zeros_like(p) if want is None else want, rtol=1e-4, atol=1e-4)
        module.zero_grad()


def test_an_infinite_gradient_of_the_other_branch_stays_there():
    class Root(torch.nn.Module):
        def forward(self, x):
            return torch.cond(x.sum() > 0, torch.sqrt, lambda x: 3 * x, (x,))
    x = torch.zeros(4, requires_grad=True)
    DaceModule(Root(), backward=True)(x).sum().backward()
    torch.testing.assert_close(x.grad, torch.full((4,), 3.0))


def test_branches_may_hold_branches_and_give_several_results():
    class Nested(torch.nn.Module):
        def forward(self, x):
            def inner(x):
                return torch.cond(x.mean() > 1, lambda x: (x + 1, x - 1), lambda x: (x * 2, x / 2), (x,))
            return torch.cond(x.sum() > 0, inner, lambda x: (-x, x.abs()), (x,))
    compiled = DaceModule(Nested())
    for value in (2.0, 0.5, -1.0):
        x = torch.full((3,), value)
        wanted = ((x + 1, x - 1) if value > 1 else (x * 2, x / 2)) if value > 0 else (-x, x.abs())
        torch.testing.assert_close(compiled(x), wanted)


def test_an_operator_that_is_missing_in_a_branch_is_named():
    class Missing(torch.nn.Module):
        def forward(self, x):
            return torch.cond(x.sum() > 0, lambda x: x + torch.special.bessel_j0(x), torch.neg, (x,))
    with pytest.raises(dcml.UnsupportedOpError, match="bessel_j0"):
        DaceModule(Missing())(torch.rand(3, 3))

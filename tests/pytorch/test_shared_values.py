"""Derivatives of higher order take over what the call before has saved."""
import gc

import pytest
import torch
from torch import nn

from dcml.pytorch import DaceModule


def _net(*before):
    torch.manual_seed(0)
    return nn.Sequential(*before, nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1)).double()


def _derivative(net, x):
    """(the gradient of the call in x, as a function; the values that it shares with the call)."""
    module = DaceModule(net, backward=True)
    module(x)
    function = module._function()
    _, call = function._run((x,))
    wanted = tuple([k == 0 for k in range(len(function.wrt_positions))])
    derivative, _, shared = call.derivative((torch.ones(len(x), 1).double(),), wanted)
    return derivative, shared


def test_the_gradient_takes_what_the_call_has_saved():
    x = torch.randn(3, 4).double().requires_grad_()
    derivative, shared = _derivative(_net(), x)
    given = [name for name in derivative.arguments if name.startswith("given_")]
    assert {"given_1.out", "given_3.out"} <= set(given) and len(shared) == len(given)
    derivative.set_params(tuple(p.detach() for p in _net().parameters()))
    found, = derivative(x.detach(), torch.ones(3, 1).double(), *shared)
    assert torch.allclose(found, torch.autograd.grad(_net()(x).sum(), x)[0])


def test_shared_values_outlive_the_call():
    x = torch.randn(3, 4).double().requires_grad_()
    _, shared = _derivative(_net(), x)
    before = [t.clone() for t in shared]
    gc.collect()
    others = [torch.randn(64).double() for _ in range(100)]
    assert others and all(torch.equal(a, b) for a, b in zip(before, shared))


def test_a_last_pass_does_not_work_where_shared_values_lie():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 1))
    x, found = torch.randn(2048, 256), []
    for m in (net, DaceModule(net, backward=True)):
        for _ in range(2):
            net.zero_grad()
            t = x.clone().requires_grad_()
            y = m(t)
            g, = torch.autograd.grad(y.sum(), t, create_graph=True)
            (g.square().sum() + y.square().sum()).backward()
        found.append([t.grad, *[p.grad for p in net.parameters()]])
    for eager, ours in zip(*found):
        assert torch.allclose(eager, ours, rtol=1e-3, atol=1e-4 * float(eager.abs().max()))


@pytest.mark.parametrize("extents", [(3,), (3, 5, 7)], ids=["one batch", "three batches"])
def test_third_derivatives_are_those_of_eager_mode(extents):
    net = _net()
    module = DaceModule(net, backward=True)
    for n in extents:
        x, found = torch.randn(n, 4).double(), []
        for m in (net, module):
            t = x.clone().requires_grad_()
            y = m(t).sum()
            for _ in range(3):
                y, = torch.autograd.grad(y.sum(), t, create_graph=True)
            found.append((y, *torch.autograd.grad(y.square().sum(), [t, net[0].weight])))
        assert all(torch.allclose(a, b) for a, b in zip(*found))


def test_a_penalty_goes_through_batch_norm_in_each_step():
    net = _net(nn.Linear(4, 4), nn.BatchNorm1d(4)).train()
    module, x = DaceModule(net, backward=True), torch.randn(5, 4).double()
    start = {k: v.clone() for k, v in net.state_dict().items()}
    found = []
    for m in (net, module):
        net.load_state_dict(start)
        for _ in range(3):
            net.zero_grad()
            t = x.clone().requires_grad_()
            g, = torch.autograd.grad(m(t).sum(), t, create_graph=True)
            (g.norm(2, 1) - 1).square().mean().backward()
        found.append([t.grad, net[0].weight.grad.clone(), net[2].weight.grad.clone(), net[1].running_var.clone()])
    assert all(torch.allclose(a, b) for a, b in zip(*found))

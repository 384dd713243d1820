"""Flags that forward sets with requires_grad_(), what it asks of arguments besides, and second derivatives."""
import os
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import dcml
from dcml.pytorch import DaceModule


class Coordinates(nn.Module):
    """Calls a function of a layer and its argument."""

    def __init__(self, function):
        super().__init__()
        self.function, self.fc = function, nn.Linear(2, 3)

    def forward(self, *args):
        return self.function(self.fc, *args)


def fresh(fc, x):
    x = x.clone().detach().requires_grad_(True)
    return fc(x).sin().sum(-1), x


def argument(fc, x):
    x.requires_grad_()
    return fc(x).sin().sum(-1), x


def assigned(fc, x):
    x.requires_grad = True
    return fc(x).sin().sum(-1)


def computed(fc, x):
    y = (x * 2).detach()
    y.requires_grad_()
    return {"out": fc(y).sin().sum(-1) + x.sum(), "in": [y, y * 2]}


def several(fc, x):
    y = x.detach().requires_grad_()
    z = (y * 3).detach().requires_grad_()
    return fc(y * z).sum(), y, z, y


def outcome(module, x, grad, again):
    """Values, flags and gradients of all results in all leaves."""
    x = x.detach().clone().requires_grad_(x.requires_grad)
    x = x * 1 if again and x.requires_grad else x
    with torch.set_grad_enabled(grad):
        results = pytree.tree_leaves(module(x))
    wanted = [t for t in (*results, x, *module.parameters()) if t.requires_grad and (t.is_leaf or t is x)]
    root = sum((t.cos() * t).sum() for t in results)
    grads = torch.autograd.grad(root, wanted, allow_unused=True) if root.requires_grad else ()
    flags = [(t.requires_grad, t.is_leaf, t is x) for t in (*results, x)]
    return flags, [t.detach() for t in results], [g is None for g in grads], [g for g in grads if g is not None]


@pytest.mark.parametrize("grad", (True, False))
@pytest.mark.parametrize("required", (True, False))
@pytest.mark.parametrize("function", (fresh, argument, computed, several))
def test_a_tensor_on_which_forward_calls_requires_grad_is_that_of_eager_mode(function, required, grad):
    torch.manual_seed(0)
    plain = Coordinates(function)
    compiled = DaceModule(plain, backward=True)
    for k in range(4):
        x = torch.randn(5 + (k > 2), 2).requires_grad_(required)
        want, got = (outcome(m, x, grad, k % 2) for m in (plain, compiled))
        assert got[0] == want[0] and got[2] == want[2]
        torch.testing.assert_close(got[1] + got[3], want[1] + want[3], rtol=1e-4, atol=1e-5)


def test_a_flag_that_forward_assigns_is_the_arguments():
    plain = Coordinates(assigned)
    compiled, x = DaceModule(plain, backward=True), torch.randn(5, 2)
    for _ in range(3):
        given = x.clone()
        got = torch.autograd.grad(compiled(given).sum(), given)[0]
        torch.testing.assert_close(got, torch.autograd.grad(plain(given).sum(), given)[0])


def test_a_flag_set_after_an_argument_was_read_is_refused():
    def late(fc, x):
        y = x * 2
        x.requires_grad_()
        return fc(x + y)
    with pytest.raises(dcml.UnsupportedOpError, match="computed with before"):
        DaceModule(Coordinates(late), backward=True)(torch.randn(3, 2))


def test_a_gradient_goes_past_a_value_that_depends_on_nothing():
    def overwritten(fc, x, w):
        y = x * 2
        with torch.no_grad():
            y.copy_(torch.full((2,), 3.0))
        return y * w
    compiled = DaceModule(Coordinates(overwritten), backward=True)
    x, w = torch.ones(3, 2).requires_grad_(), torch.ones(3, 2)
    torch.testing.assert_close(torch.autograd.grad(compiled(x, w).sum(), x)[0], torch.full((3, 2), 2.0))


# -- what forward asks of its arguments ------------------------------------------------------------
def tagged(x, **attributes):
    vars(x).update(attributes)
    return x


@pytest.mark.parametrize("kind", (torch.float32, torch.float64, torch.bfloat16), ids=str)
def test_bits_seen_as_floats_require_no_gradient(kind):
    class Module(torch.nn.Module):
        def forward(self, x):
            return (x.view(kind) + 1).sum(), x + x.view(kind).sum().float()
    x, y = (torch.ones(2, 4, requires_grad=True) for _ in range(2))
    want, got = Module()(x), DaceModule(Module(), backward=True)(y)
    assert not want[0].requires_grad and not got[0].requires_grad
    want[1].sum().backward()
    got[1].sum().backward()
    assert torch.equal(x.grad, y.grad)


def test_attributes_that_users_set_on_arguments_are_read_at_each_call():
    compiled = DaceModule(Coordinates(lambda fc, x: x * getattr(x, "scale", 1)), backward=True)
    x = torch.randn(3, 2)
    for scale in (None, None, None, 2, 3, None, 2, 2.5):
        given = x.clone() if scale is None else tagged(x.clone(), scale=scale)
        torch.testing.assert_close(compiled(given), x * (scale or 1))
    with pytest.raises(dcml.UnsupportedOpError, match="'scale' of an argument, which holds a tensor"):
        compiled(tagged(x.clone(), scale=torch.ones(2)))


def naming(fc, x, z):
    h = torch.relu(fc(x))
    x.hidden, x.kind, x.both = h, "seen", [z, h * 2]
    y = h + z if x.kind == "seen" else h
    y.note = {"total": h.sum()}
    return y, z


def test_attributes_that_forward_sets_on_arguments_and_results_are_set_at_each_call():
    compiled = DaceModule(Coordinates(naming), backward=True)
    for rows in (3, 4, 3, 3):
        x, z = torch.randn(rows, 2).requires_grad_(), torch.randn(rows, 3)
        y, passed = compiled(x, z)
        assert passed is z and x.both[0] is z and x.kind == "seen"
        torch.testing.assert_close(y.note["total"], x.hidden.sum())
        got = torch.autograd.grad(x.hidden.sum() + x.both[1].sum(), x)[0]
        want = torch.autograd.grad(3 * torch.relu(compiled.model.fc(x)).sum(), x)[0]
        torch.testing.assert_close(got, want)
    assert len(compiled._captures) == 1


def test_an_attribute_without_a_tensor_is_set_too():
    compiled = DaceModule(Coordinates(lambda fc, x: (setattr(x, "seen", []), x * 2)[1]), backward=True)
    for _ in range(3):
        x = torch.randn(3)
        compiled(x)
        assert x.seen == []


def test_strides_of_arguments_with_gaps_are_those_of_the_call():
    compiled = DaceModule(Coordinates(lambda fc, x: x * x.stride(0) + x.stride()[1] + x.stride(dim=-1)), backward=True)
    base = torch.randn(6, 4)
    for x in (base[::2], base[::3], torch.randn(6, 8)[::2, ::2], torch.randn(3, 4), torch.randn(4, 3).t(), base):
        torch.testing.assert_close(compiled(x), x * x.stride(0) + 2 * x.stride(1))


# -- derivatives of higher order -------------------------------------------------------------------
def networks(width):
    module = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)).double()
    return module, DaceModule(module, backward=True)


def second(module, wrt_first, wrt_second):
    """Gradients of gradients; None where there are none."""
    x = torch.linspace(-1, 1, 12, dtype=torch.float64).view(3, 4).requires_grad_()
    seed = torch.ones(3, 1, dtype=torch.float64).requires_grad_()
    known = {"x": [x], "seed": [seed], "parameters": list(module.parameters())}
    made = torch.autograd.grad(module(x), known[wrt_first], seed, create_graph=True)
    return torch.autograd.grad(sum(g.square().sum() for g in made), known[wrt_second], allow_unused=True)


@pytest.mark.parametrize("width", (5, 400))  # one part, and several
def test_second_derivatives_are_those_of_eager_whatever_is_asked_for(width):
    module, compiled = networks(width)
    for wrt in ("x", "parameters"):
        for then in ("x", "seed", "parameters"):
            for got, want in zip(second(compiled, wrt, then), second(module, wrt, then), strict=True):
                assert (got is None) == (want is None)
                torch.testing.assert_close(got, want)


def test_third_derivatives_and_hessians_are_those_of_eager():
    module, compiled = networks(5)
    x = torch.linspace(-1, 1, 12, dtype=torch.float64).view(3, 4)

    def third(f):
        y = x.clone().requires_grad_()
        g, = torch.autograd.grad(f(y).sum(), y, create_graph=True)
        h, = torch.autograd.grad(g.square().sum(), y, create_graph=True)
        return torch.autograd.grad(h.square().sum(), [y, *module.parameters()], allow_unused=True)
    for got, want in zip(third(compiled), third(module), strict=True):
        torch.testing.assert_close(got, want)
    for derivative in (torch.autograd.functional.hessian, lambda f, v: torch.autograd.functional.hvp(f, v, v)[1],
                       lambda f, v: torch.autograd.functional.vhp(f, v, v)[1]):
        torch.testing.assert_close(*(derivative(lambda v, f=f: f(v).exp().sum(), x) for f in (compiled, module)))
    torch.testing.assert_close(*(torch.autograd.functional.jvp(f, x, x.sin())[1] for f in (compiled, module)))


def test_gradients_of_a_convolutional_critic_are_penalised_as_in_eager():
    module = nn.Sequential(nn.Conv2d(2, 4, 3, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(4, 8, 3, 2, 1), nn.Softplus(), nn.Flatten(), nn.Linear(32, 1))
    compiled = DaceModule(module, backward=True)

    def penalty(f):
        x = torch.linspace(-1, 1, 3 * 2 * 8 * 8).view(3, 2, 8, 8).requires_grad_()
        g, = torch.autograd.grad(f(x).sum(), x, create_graph=True)
        return torch.autograd.grad((g.flatten(1).norm(dim=1) - 1).square().mean(), list(module.parameters()), allow_unused=True)
    for got, want in zip(penalty(compiled), penalty(module), strict=True):
        assert (got is None) == (want is None)
        if want is not None:
            torch.testing.assert_close(got, want)


def test_a_second_derivative_needs_arguments_as_they_were():
    class Cosine(nn.Module):
        def forward(self, x, y):
            return x + y.cos()
    compiled = DaceModule(Cosine(), backward=True)
    leaf, y = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    x = leaf * 1
    result = compiled(x, y).sum()
    with torch.no_grad():
        x.add_(1)  # no first derivative reads it
    torch.autograd.grad(result, y, retain_graph=True)
    with pytest.raises(RuntimeError, match="inplace operation"):
        torch.autograd.grad(result, y, create_graph=True)


def test_a_gradient_made_with_a_graph_has_its_value():
    module = nn.Sequential(nn.Linear(4, 5), nn.Tanh())
    x = torch.randn(3, 4).requires_grad_()
    modules = DaceModule(module, backward=True), module
    got, want = (torch.autograd.grad(m(x).sum(), x, create_graph=True)[0] for m in modules)
    torch.testing.assert_close(got.detach(), want.detach())


def test_the_python_node_has_derivatives_of_higher_order_too():
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-x", __file__, "-k", "second or third or critic"], capture_output=True,
                          text=True, timeout=600, env={**os.environ, "DCML_AUTOGRAD": "python", "PYTHONPATH": os.pathsep.join(sys.path)})
    assert done.returncode == 0, done.stdout[-3000:]


def test_attention_has_second_derivatives_which_eager_has_only_spelled_out():
    module = nn.MultiheadAttention(8, 2, batch_first=True).double()

    class Attends(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = module

        def forward(self, x):
            return self.attention(x, x, x, need_weights=False)[0]

    def second_of(f):
        x = torch.linspace(-1, 1, 2 * 5 * 8, dtype=torch.float64).sin().view(2, 5, 8).requires_grad_()
        g, = torch.autograd.grad(f(x).square().sum(), x, create_graph=True)
        return torch.autograd.grad(g.square().sum(), [x, *module.parameters()])
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        want = second_of(Attends())
    for got, one in zip(second_of(DaceModule(Attends(), backward=True)), want, strict=True):
        torch.testing.assert_close(got, one)


def test_a_forward_that_does_not_ask_has_one_capture_with_and_without_gradients():
    compiled = DaceModule(Coordinates(lambda fc, x: (x * 2).sin().sum()), backward=True)
    compiled(torch.ones(3, requires_grad=True)).backward()
    with torch.no_grad():
        compiled(torch.ones(3))
    assert len(compiled._captures) == 1

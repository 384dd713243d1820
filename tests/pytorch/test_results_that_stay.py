"""What the backward pass reads of results is the results: no copy is made for it.  DCML_AUTOGRAD chooses the node under test."""
import copy
import gc
import weakref

import pytest
import torch
from torch import nn

import dcml
from dcml.pytorch import DaceModule


class Wide(nn.Module):
    """Gradients in several parts, of which the first and the last read results."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(600, 600) for _ in range(3))

    def forward(self, x):
        h = torch.tanh(self.a(x))
        return h, torch.softmax(self.c(torch.sigmoid(self.b(h))), -1)


class Shares(nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1)


class Fan(nn.Module):
    """An infinite derivative, and a result that may be without a gradient."""

    def forward(self, x):
        return torch.sqrt(x), torch.exp(x)


def twins(make):
    torch.manual_seed(0)
    plain = make()
    return DaceModule(copy.deepcopy(plain), backward=True), plain


def gradients(module, x, change=lambda results: None):
    """Of the input and the parameters, of a sum of the results' squares."""
    x = x.clone().requires_grad_()
    results = module(x)
    results = list(results) if isinstance(results, tuple) else [results]
    total = sum((r * r).sum() for r in [r.clone() for r in results])
    change(results)
    return torch.autograd.grad(total, [x, *module.parameters()])


def close(found, wanted):
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


MAKERS = {"softmax": Shares, "log softmax": lambda: nn.LogSoftmax(-1), "tanh": nn.Tanh, "exp": Fan, "relu": lambda: nn.Sequential(nn.Linear(600, 600), nn.ReLU()),
          "parts": Wide}


@pytest.mark.parametrize("name", MAKERS)
def test_gradients_are_those_of_eager_mode(name):
    module, plain = twins(MAKERS[name])
    x = torch.rand(8, 600) + 0.1
    close(gradients(module, x), gradients(plain, x))


@pytest.mark.parametrize("name", ["softmax", "log softmax"])
def test_results_are_not_copied(name):
    module, _ = twins(MAKERS[name])
    module(torch.rand(8, 600, requires_grad=True))
    forward, _ = module._function().report()
    assert forward["saved_bytes"] == 0


@pytest.mark.parametrize("name", ["softmax", "tanh", "relu", "parts"])
def test_a_result_that_was_changed_in_place_leaves_gradients_right(name):
    module, plain = twins(MAKERS[name])
    x = torch.rand(8, 600)
    wanted = gradients(plain, x)

    def change(results):
        with torch.no_grad():
            results[0].mul_(3)
    close(gradients(module, x, change), wanted)


def test_a_changed_result_and_a_changed_argument_raise():
    module, _ = twins(Shares)
    x = torch.rand(4, 5, requires_grad=True)
    y = module(x)
    with torch.no_grad():
        y.add_(1)
        x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace|modified by an +inplace"):
        y.sum().backward()


def test_gradients_have_gradients_also_of_a_changed_result():
    module, plain = twins(Shares)
    x = torch.rand(4, 5)

    def second(of, change):
        a = x.clone().requires_grad_()
        y = of(a)
        loss = (y.clone() ** 2).sum()
        if change:
            with torch.no_grad():
                y.mul_(2)
        first, = torch.autograd.grad(loss, a, create_graph=True)
        return torch.autograd.grad(first.square().sum(), a)
    close(second(module, False), second(plain, False))
    close(second(module, True), second(plain, False))


def test_two_backward_passes_and_then_an_error():
    module, plain = twins(Wide)
    x = torch.rand(4, 600)
    a, b = (sum(r.sum() for r in m(x)) for m in (module, plain))
    wanted = torch.autograd.grad(b, list(plain.parameters()))
    for keep in (True, True, False):
        close(torch.autograd.grad(a, list(module.parameters()), retain_graph=keep), wanted)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(a, list(module.parameters()))


def test_a_result_without_a_gradient_of_its_own():
    module, plain = twins(Fan)
    x = torch.tensor([0.0, 1.0, 2.0])

    def of_second(m):
        a = x.clone().requires_grad_()
        return torch.autograd.grad(m(a)[1].sum(), a)
    close(of_second(module), of_second(plain))


def test_results_go_when_nobody_holds_them():
    module, _ = twins(Shares)
    y = module(torch.rand(4, 5, requires_grad=True))
    gone = weakref.ref(y)
    del y
    gc.collect()
    assert gone() is None


def test_results_go_with_the_history_that_read_them():
    module, _ = twins(Shares)
    x = torch.rand(64, 1 << 14, requires_grad=True)
    y = module(x)
    place = y.data_ptr()
    loss = y.sum()
    del y
    loss.backward()
    del loss
    later = [module(x) for _ in range(3)]
    assert place in [y.data_ptr() for y in later]  # the pool has it again


def test_the_core_refuses_a_pass_without_the_results_that_it_reads():
    module, _ = twins(Shares)
    x = torch.rand(3, 4, requires_grad=True)
    module(x)
    results, call = module._function()._run((x.detach(),))
    assert call.parts[0][2] == (0,)
    seed = (torch.ones(3, 4),)
    for bad in ((), (None,), ((None,),), ((torch.ones(4, 3),),), ((torch.ones(3, 4, dtype=torch.float64),),), (3,), ((3,),)):
        with pytest.raises(dcml.Error, match="output"):
            call.start(seed, *bad)
    for bad in ((), (seed, results, 1)):
        with pytest.raises(TypeError):
            call.start(*bad)
    found, = call.backward(seed, tuple(results))
    torch.testing.assert_close(found, torch.zeros(3, 4), atol=1e-6, rtol=0)

"""While one thread captures a module, other threads that run other modules see no difference."""
import builtins
import logging
import random
import threading
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import grad_mode

from dcml.pytorch import DaceModule


class Halved(torch.autograd.Function):
    """Whose gradient is not the derivative."""

    @staticmethod
    def forward(ctx, x):
        return x / 2

    @staticmethod
    def backward(ctx, g):
        return g * 5


def is_plain(x):
    return type(x) is torch.Tensor


class Traced(nn.Module):
    """meet() is called while forward is traced."""

    def __init__(self, meet):
        super().__init__()
        self.meet, self.factor = meet, 2

    def forward(self, x):
        y = Halved.apply(x) * getattr(self, "fac" + "tor")
        with torch.inference_mode():
            z = x + 1
        self.meet()
        return y + z if is_plain(x) and torch.is_grad_enabled() else y - z


def while_traced(check, wrapped=Traced):
    """The compiled module, and what check() returns in another thread while it is captured."""
    inside, done, found = threading.Event(), threading.Event(), []

    def meet():
        inside.set()
        assert done.wait(60)

    def look():
        try:
            assert inside.wait(60)
            found.append(check())
        except BaseException as error:  # noqa: B902  (raised below)
            found.append(error)
        finally:
            done.set()
    module, thread = DaceModule(wrapped(meet), backward=True), threading.Thread(target=look)
    thread.start()
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = module(x)
    thread.join(60)
    y.sum().backward()
    torch.testing.assert_close((y.detach(), x.grad), (torch.tensor([3.0, 5.0]), torch.tensor([10.0, 10.0])))
    if isinstance(found[0], BaseException):
        raise found[0]
    return module, found[0]


OWNERS = (nn.Module, Traced, torch.Tensor, torch.nn.Parameter, torch.autograd.Function, grad_mode.inference_mode,
          torch.autograd.function, torch.distributions.distribution, F, builtins)


def contents():
    return [{**vars(owner), "code": {n: v.__code__ for n, v in vars(owner).items() if hasattr(v, "__code__")}} for owner in OWNERS]


def test_nothing_of_torch_or_of_the_user_is_patched():
    was, globals_were = contents(), dict(globals())
    apply, enabled = torch.autograd.Function.apply.__func__.__code__, torch.is_grad_enabled
    _, (now, globals_are, applies, asks) = while_traced(lambda: (
        contents(), dict(globals()), torch.autograd.Function.apply.__func__.__code__, torch.is_grad_enabled))
    assert applies is apply and asks is enabled and globals_are == globals_were
    for owner, before, after in zip(OWNERS, was, now):
        patched = {name for name in {**before, **after} if before.get(name) is not after.get(name) and name != "code"}
        code = {name for name, value in before["code"].items() if after["code"].get(name) is not value}
        by_export = {nn.Module: {"__call__", "__getattr__"}, builtins: {"max", "min"}}.get(owner, set())
        assert patched | code <= by_export, f"{owner}: {patched | code}"


class Doubled(nn.Module):
    def forward(self, x):
        return x * 2


def own_gradient():
    x = torch.ones(2, requires_grad=True)
    y = Halved.apply(x)
    seen = []
    y.register_hook(seen.append)
    y.sum().backward()
    return y.grad_fn is not None and x.grad.tolist() == [5, 5] and len(seen) == 1


def modes():
    with torch.inference_mode():
        inference = torch.ones(2).is_inference() and not torch.is_grad_enabled()
    with torch.no_grad():
        return inference and not torch.is_grad_enabled() and is_plain(torch.ones(2))


def missing_attribute():
    with pytest.raises(AttributeError, match="'Tensor' object has no attribute 'colour'"):
        torch.ones(2).colour  # noqa: B018
    return getattr(torch.ones(2), "colour", None) is None


def losses():
    x, y = torch.tensor([[0.1, 0.2, 0.4, 0.8]]), torch.tensor([[3, 0, -1, 1]])
    with pytest.raises(ValueError, match="negative entry"):
        F.gaussian_nll_loss(x, x, -x)
    with pytest.raises(ValueError, match="Expected parameter scale"):
        torch.distributions.Normal(torch.zeros(1), -torch.ones(1), validate_args=True)
    return F.multilabel_margin_loss(x, y).item() == pytest.approx(0.85)


def warned():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        warnings.warn("of this thread", FutureWarning)
    records = []
    handler = logging.Handler()
    handler.emit = records.append
    logger = logging.getLogger("torch._export")
    logger.addHandler(handler)
    logger.error("of this thread")
    logger.removeHandler(handler)
    return len(seen) == len(records) == 1


def attributes():
    module = Doubled()
    module.factor = 7
    return module.factor == 7 and module(torch.ones(1)).item() == 2


def generators():
    return random.random() + np.random.rand() >= 0


@pytest.mark.parametrize("check", [own_gradient, modes, missing_attribute, losses, warned, attributes, generators],
                         ids=lambda check: check.__name__)
def test_another_thread_does_as_always(check):
    assert check()
    module, result = while_traced(check)
    assert result and len(module._captures) == 1
    assert module.model.factor == 2


def test_hooks_of_all_modules_run_in_another_thread():
    seen = []
    handle = nn.modules.module.register_module_forward_hook(lambda module, *_: seen.append(type(module)))
    try:
        _, outputs = while_traced(lambda: (seen.clear(), Doubled()(torch.ones(1)), list(seen))[-1])
    finally:
        handle.remove()
    assert outputs == [Doubled]


def test_attributes_read_by_another_thread_compile_nothing():
    other = Doubled()
    other.unread = 1
    module, _ = while_traced(lambda: other.unread + len(vars(other)))
    module.model.unread = 1
    module(torch.tensor([1.0, 2.0], requires_grad=True))
    module.model.unread = 2
    module(torch.tensor([1.0, 2.0], requires_grad=True))
    assert len(module._captures) == 1

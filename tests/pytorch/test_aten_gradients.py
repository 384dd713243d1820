"""The gradient of every captured function and module against torch's."""
import copy

import pytest
import torch
from captured import Call
from test_aten_rows import CASES, MODULES
from torch.utils import _pytree as pytree

from dcml.pytorch import DaceModule

pytestmark = pytest.mark.usefixtures("interpreted")


def gradients(module, args):
    """Gradients of a fixed weighted sum of the results, in all floating-point inputs and parameters; None if the
    results depend on none of them."""
    leaves, spec = pytree.tree_flatten(args)
    leaves = [t.detach().clone().requires_grad_() if isinstance(t, torch.Tensor) and t.is_floating_point() else t
              for t in leaves]
    result = module(*pytree.tree_unflatten(leaves, spec))
    total = None
    for k, value in enumerate(pytree.tree_leaves(result)):
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.requires_grad:
            weight = torch.randn(value.shape, generator=torch.Generator().manual_seed(k), dtype=value.dtype)
            total = (value * weight).sum() + (0 if total is None else total)
    if total is None:
        return None
    total.backward()
    wanted = [t for t in leaves if isinstance(t, torch.Tensor) and t.requires_grad] + list(module.parameters())
    return [torch.zeros_like(t) if t.grad is None else t.grad for t in wanted]


def compare(module, args):
    try:
        want = gradients(copy.deepcopy(module), args)
    except RuntimeError as error:
        pytest.skip(f"torch: {error}")
    if want is None:
        pytest.skip("nothing to differentiate")
    got = gradients(DaceModule(copy.deepcopy(module), backward=True, training=module.training), args)
    for g, w in zip(got, want):
        torch.testing.assert_close(g, w, rtol=2e-3, atol=2e-4, equal_nan=True)


@pytest.mark.parametrize("function, args", [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_gradient_of_function(function, args):
    compare(Call(function), args)


@pytest.mark.parametrize("name", MODULES)
def test_gradient_of_module(name):
    compare(*MODULES[name])

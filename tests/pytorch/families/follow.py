"""A wrapped module trained beside eager PyTorch in float64: results, gradients, parameters and buffers of each step.

The measure is eager PyTorch's own error in the module's type: ours may be some times that, or a few roundings.
"""
import copy

import torch
from torch.utils import _pytree as pytree

from dcml.pytorch import DaceModule

SIZES = (3, 3, 4)  # of the batches of three steps
WORSE, ROUNDINGS = 10, 1e-5


def floats(tree):
    return {str(k): t.detach().clone() for k, t in enumerate(pytree.tree_leaves(tree)) if isinstance(t, torch.Tensor) and t.is_floating_point()}


def as_type(tree, dtype):
    return pytree.tree_map(lambda t: t.to(dtype) if isinstance(t, torch.Tensor) and t.is_floating_point() else t, tree)


def loss(result):
    """A sum over all results, each weighted by fixed noise."""
    noise = torch.Generator().manual_seed(5)
    return sum((t * torch.randn(t.shape, generator=noise, dtype=torch.float64).to(t.dtype)).sum() / max(t.numel(), 1) ** 0.5
               for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad)


def trained(module, batches, wrap):
    """Of each step {results, gradients, state}; after the last one results in eval mode."""
    called = wrap(module)
    optimizer = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=1e-2, momentum=0.9)
    for args in batches:
        optimizer.zero_grad()
        result = called(*args)
        loss(result).backward()
        gradients = {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        yield {"result": floats(result), "gradient": gradients, "state": {k: t.clone() for k, t in module.state_dict().items()}}
    called.eval()
    for args in batches[1:]:
        with torch.no_grad():  # not around the yield, behind which others run
            result = called(*args)
        yield {"result in eval mode": floats(result)}


def error(got, exact, scale):
    """The largest difference, as a part of what there is."""
    if not exact.is_floating_point():
        return 0.0 if torch.equal(got, exact) else float("inf")
    got, exact = got.double(), exact.double()
    assert torch.equal(got.isfinite(), exact.isfinite())
    far = (got - exact).nan_to_num(0, 0, 0).abs().amax().item() if got.numel() else 0.0
    return far / scale


def compare(got, eager, exact, step):
    """Raises AssertionError where a step of ours is further from the exact one than roundings explain."""
    for what, want in exact.items():
        assert list(got[what]) == list(want), f"step {step}: {what}s {sorted(set(got[what]) ^ set(want))} on one side only"
        largest = max((t.abs().max().item() for t in want.values() if t.is_floating_point() and t.numel() and t.isfinite().all()), default=1)
        for name, t in want.items():
            ours, theirs = got[what][name], eager[what][name]
            where = f"step {step}, {what} {name}"
            assert ours.dtype == theirs.dtype and ours.shape == t.shape, f"{where}: {ours.dtype} {ours.shape}, of eager {theirs.dtype} {t.shape}"
            own = t.nan_to_num(0, 0, 0).abs().max().item() if t.is_floating_point() and t.numel() else 0
            part = 1e-1 if own < 1e-9 * largest else 1e-2  # a bias in front of a BatchNorm has a gradient of roundings alone
            scale = own + part * largest + 1e-6
            far, fair = error(ours, t, scale), error(theirs, t, scale)
            assert far <= max(WORSE * fair, ROUNDINGS * (step + 1)), f"{where}: error {far:.1e}, of eager {fair:.1e}"


def check(family, seed=0):
    """Trains a family for three steps, with another batch size in the last, and loads what came of it elsewhere."""
    torch.manual_seed(seed)
    module = family.make()
    batches = [family.batch(n, torch.Generator().manual_seed(k)) for k, n in enumerate(SIZES)]
    wide = as_type(batches, torch.float64)
    exact = trained(copy.deepcopy(module).double(), wide, lambda m: m)
    eager = trained(copy.deepcopy(module), batches, lambda m: m)
    ours = DaceModule(copy.deepcopy(module), backward=True)
    for step, (got, theirs, want) in enumerate(zip(trained(ours.model, batches, lambda _: ours), eager, exact, strict=True)):
        compare(got, theirs, want, step)
    assert list(ours.state_dict()) == list(module.state_dict())
    module.load_state_dict(ours.state_dict())
    other = DaceModule(family.make().eval())
    other.load_state_dict(ours.state_dict())
    with torch.no_grad():
        args = batches[0]
        compare({"loaded": floats(other(*args))}, {"loaded": floats(module.eval()(*args))},
                {"loaded": floats(module.double()(*as_type(args, torch.float64)))}, 0)

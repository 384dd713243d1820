"""Helper of the capture tests: runs a captured graph through the core and compares it with the module itself."""
import copy

import torch
from torch.utils import _pytree as pytree

from dcml import _core
from dcml.pytorch.trace.capture import capture
from dcml.pytorch.call.results import Fixed, Ordered, real_form


def tensors_of(module, made):
    """The tensors that the graph's params stand for."""
    held = dict([*module.named_parameters(remove_duplicate=False), *module.named_buffers()], **made.outside)
    return [held[name] for name, _ in made.params]


def run_capture(made, module, args, kwargs=None, seed=1):
    """(result, {buffer: new value}) of a capture."""
    leaves = pytree.tree_leaves((tuple(args), kwargs or {}))
    function = _core.Function(made.graph)
    function.set_params([real_form(t) for t in tensors_of(module, made)])
    inputs = [real_form(leaves[i]) for i in made.inputs] + ([torch.tensor(seed)] if made.seed else [])
    results = function(*inputs)
    plain = [o.index if isinstance(o, Ordered) else o for o in made.outputs]  # the graph as captured orders no axes
    values = [results[o] if isinstance(o, int) else o.of(results, leaves) for o in plain]
    return pytree.tree_unflatten(values, made.out_spec), {fqn: results[i] for i, fqn in made.mutated}


def assert_same(got, want, tolerance):
    got, want = pytree.tree_leaves(got), pytree.tree_leaves(want)
    assert len(got) == len(want)
    for g, w in zip(got, want):
        if isinstance(w, torch.Tensor):
            torch.testing.assert_close(g, w, rtol=tolerance, atol=tolerance, equal_nan=True)
        else:
            assert g == w


def check(module, args, kwargs=None, dynamic=True, tolerance=1e-4):
    """Captures, runs and compares; also buffers after the call.  Returns the capture."""
    made = capture(module, args, kwargs, dynamic=dynamic)
    assert not any(isinstance(o, Fixed) and isinstance(o.value, torch.Tensor) for o in made.outputs)
    with torch.no_grad():
        got, changed = run_capture(made, module, args, kwargs)
        eager = copy.deepcopy(module)
        want = eager(*args, **(kwargs or {}))
    assert_same(got, want, tolerance)
    before = dict(module.named_buffers())
    for name, value in eager.named_buffers():
        if name in changed:
            torch.testing.assert_close(changed[name], value, rtol=tolerance, atol=tolerance, equal_nan=True)
        else:
            torch.testing.assert_close(before[name], value, rtol=0, atol=0)
    return made


class Call(torch.nn.Module):
    """A function as a module."""
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)

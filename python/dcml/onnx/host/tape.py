"""Gradients of host programs: torch's tape, on which the segments are nodes.

Must not know: how a segment derives its own gradient.
"""
import numpy as np
import torch

from ... import arguments
from . import values as v


def vjp(program, given, output_grads, wrt, create_graph=False):
    """Outputs of a program and the product of a vector with its Jacobian.

    given: {name: value} of all inputs and weights; output_grads: {name of an output: array, or list of arrays for a
    sequence}; wrt: names among the given.
    create_graph: give torch tensors that can be differentiated, in the tensors given and in each other.
    Returns ({output: value}, {name in wrt: gradient}), numpy arrays; zeros where an input has no influence.
    """
    tensors = {name: _source(v.to_torch(value), create_graph) if name in wrt else value for name, value in given.items()}
    with torch.enable_grad():
        results = dict(zip(program.outputs, program(*(tensors[name] for name in program.inputs))))
    ends, seeds = [], []
    for name, grad in output_grads.items():
        for end, seed in zip(*(x if isinstance(x, list) else [x] for x in (results[name], grad))):
            if seed is not None and v.is_torch(end) and end.requires_grad:
                ends.append(end)
                seeds.append(arguments.read(f"gradient of output {name!r}", seed, _tensor).to(end.dtype).expand(end.shape))
    sources = [tensors[name] for name in wrt]
    none = [None] * len(sources)
    grads = torch.autograd.grad(ends, sources, seeds, allow_unused=True, create_graph=create_graph) if ends else none
    if create_graph:
        return results, {name: torch.zeros_like(x) if g is None else g for name, x, g in zip(wrt, sources, grads)}
    gradients = {name: np.zeros(x.shape, v.as_numpy(x).dtype) if g is None else v.as_numpy(g)
                 for name, x, g in zip(wrt, sources, grads)}
    return {name: _plain(value) for name, value in results.items()}, gradients


def _source(tensor, keep_history):
    return tensor if keep_history and tensor.requires_grad else tensor.detach().requires_grad_()


def _tensor(seed):
    return seed if v.is_torch(seed) else torch.as_tensor(v.as_numpy(seed))


def _plain(value):
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return v.as_numpy(value) if v.is_torch(value) else value

"""torch.compile(model, backend="dcml"): dynamo's graphs go the way of any module.

Must not know: ATen rows or the core.
"""
import torch

from .module import DaceModule


def backend(graph_module, example_inputs, **_):
    """The backend for torch.compile, registered as the entry point ``torch_dynamo_backends: dcml``.

    graph_module: dynamo's module, whose arguments are example_inputs (tensors, and numbers for symbolic extents).
    Returns a callable of the same arguments; its results are differentiable.

    >>> compiled = torch.compile(torch.nn.Linear(2, 3), backend=backend)
    >>> compiled(torch.ones(4, 2)).shape
    torch.Size([4, 3])
    """
    module = DaceModule(graph_module, backward=True, sdfg_name="dynamo")
    return torch.compiler.disable(module.forward)

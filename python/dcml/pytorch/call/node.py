"""Which autograd node a compiled function gets: the one in C++ that was built for the torch that runs, or the one in Python.

DCML_AUTOGRAD=python or c++ asks for one of them.
Must not know: plans, graphs or modules.
"""
import os

import torch

from .autograd import apply_in_python


def forward_level():
    """Depth of torch.autograd.forward_ad levels in this thread, -1 for none."""
    return torch.autograd.forward_ad._current_level


MODES = (torch.is_grad_enabled, torch._C._is_any_autocast_enabled, torch.is_inference_mode_enabled,
         torch.autograd._profiler_enabled, torch.get_default_dtype, torch._C._functorch.peek_interpreter_stack,
         forward_level)


def _choose():
    """(apply, modes).  apply(function, inputs) runs a core function made with ``wrt`` on a tuple of tensors; the
    results carry an autograd node.  modes: callables that return the same objects as long as torch's modes are the same.

    The node's backward raises RuntimeError when it is run a second time without retain_graph, or when an input or
    parameter that it reads was changed in place since; gradients made with create_graph=True raise UnsupportedOpError
    when they are differentiated.
    """
    wanted = os.environ.get("DCML_AUTOGRAD", "")
    if wanted not in ("", "python", "c++"):
        raise ValueError(f"DCML_AUTOGRAD={wanted!r}: expected 'python' or 'c++'")
    if wanted == "python":
        return apply_in_python, MODES
    try:
        from ... import _torch_node
    except ImportError:  # not built, or against another torch
        _torch_node = None
    if _torch_node is not None and torch.__version__.split("+")[0] == _torch_node.torch_version:
        return _torch_node.apply, (_torch_node.modes,)
    if wanted:
        raise ImportError(f"DCML_AUTOGRAD=c++: the node was not built for torch {torch.__version__}")
    return apply_in_python, MODES


apply, modes = _choose()

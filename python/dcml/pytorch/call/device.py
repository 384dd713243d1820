"""Where a call runs, and what is moved there and back.

The one idea: a compiled function runs on the one GPU that holds an argument or a parameter, else on the CPU.  What lies
elsewhere, and torch's tracer let pass, goes there before the call and comes back after it, by copies that torch records.
Must not know: graphs, captures or the core's memory.
"""
import torch

from ... import _core

CPU = torch.device("cpu")


def device_of_call(named, cuda=None):
    """The device for tensors that are given as (description, tensor).  cuda: True or False if a user said so.

    Raises DeviceError for tensors on two GPUs, and for a tensor on a GPU where cuda is False.
    """
    found = {}
    for name, tensor in named:
        if tensor.device.type == "cuda":
            found.setdefault(tensor.device, name)
    if len(found) > 1:
        (a, first), (b, second) = list(found.items())[:2]
        raise _core.DeviceError(f"{first} is on {a}, and {second} on {b}: expected all on one device")
    if found and cuda is False:
        device, name = next(iter(found.items()))
        raise _core.DeviceError(f"{name} is on {device}, which cuda=False excludes")
    if found:
        return next(iter(found))
    return torch.device("cuda", torch.cuda.current_device()) if cuda else CPU


def is_apart(tensor, device):
    """Has it to be moved for a call there?  Of a tensor without dimensions the core takes the value, as torch does."""
    return tensor.device != device and (tensor.dim() > 0 or tensor.device.type != "cpu")


def core_options(device):
    """As keywords of _core.Function, with those of implementation(cuda=...)."""
    return {"ordinal": device.index or 0} if device.type == "cuda" else {}


def draw_seed(device=CPU):
    """A seed from torch's own generator of the device, so that torch.manual_seed decides."""
    return torch.empty((), dtype=torch.int64, device=device).random_()


def follow_switches():
    """Libraries round operands of float32 as torch's switches allow it now: those of torch.backends, which
    torch.set_float32_matmul_precision sets too.  A switch that changes between calls counts from the next call on."""
    _core.allow_tf32(torch.backends.cuda.matmul.fp32_precision == "tf32", torch.backends.cudnn.conv.fp32_precision == "tf32")

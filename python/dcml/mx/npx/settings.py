"""What npx sets and waits for.

The one idea: the interface of NumPy is always on, and values are there when they are asked for.
Must not know: operators.
"""
import numpy as onp

from .. import array, random
from ..device import cpu, current_device, gpu, num_gpus
from ..tape import state

__all__ = ["set_np", "reset_np", "is_np_array", "is_np_shape", "is_np_default_dtype", "use_np", "waitall", "random", "cpu", "gpu",
           "num_gpus", "current_device", "seed"]


def set_np(shape=True, array_=True, dtype=False, **kwargs):
    """Accepted for MXNet's programs; dtype=True: what nothing says the type of is in float64 instead of float32."""
    array._DEFAULT[0] = onp.dtype("float64" if dtype else "float32")


def reset_np():
    """The default type is float32 again."""
    set_np()


def is_np_array():
    """True: there are no other arrays."""
    return True


is_np_shape = is_np_array


def is_np_default_dtype():
    """Is float64 the default type?"""
    return array.default_dtype() == onp.float64


def use_np(function):
    """The function or class itself."""
    return function


def waitall():
    """Runs what this thread has recorded so far."""
    if state.segment is not None:
        state.segment.run()


def seed(seed):
    """``random.seed``."""
    random.seed(seed)

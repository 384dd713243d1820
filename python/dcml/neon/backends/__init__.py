"""Backends of Neon: gen_backend() makes one and gives it to NervanaObject."""
import numpy as np

from .. import NervanaObject
from . import nervanacpu
from .autodiff import Autodiff
from .backend import Backend, Block, OpTreeNode, Tensor

__all__ = ["Autodiff", "Backend", "Block", "NervanaObject", "OpTreeNode", "Tensor", "cleanup_backend", "gen_backend", "nervanacpu"]


def gen_backend(backend="cpu", rng_seed=None, datatype=np.float32, batch_size=0, stochastic_round=False, device_id=0, max_devices=0,
                compat_mode=None, deterministic_update=None, deterministic=None):
    """Makes a backend, and gives it to all NervanaObjects as ``be``; the last one is released.

    backend: one of Backend.backend_choices().  rng_seed: of the generator; None: another at each start.
    datatype: of tensors for which none is named, float32, float64 or float16.
    batch_size: the last extent of buffers (iobuf), also ``be.bsz``.
    compat_mode: None, or 'caffe' for Caffe's extents of pooling.
    The others concern devices that dcml does not have, and change nothing.
    Raises ValueError for an unknown backend, type or mode.
    """
    cleanup_backend()
    be = Backend.allocate_backend(backend, rng_seed=rng_seed, default_dtype=datatype, compat_mode=compat_mode,
                                  stochastic_round=stochastic_round, device_id=device_id, num_devices=max_devices)
    be.bsz = batch_size
    NervanaObject.be = be
    return be


def cleanup_backend():
    """Releases NervanaObject.be, if there is one."""
    if NervanaObject.be is not None:
        NervanaObject.be.cleanup_backend()
        NervanaObject.be = None

"""The backend that runs on processors, under the names that Neon has for it."""
import numpy as np

from .backend import Backend
from .tensor import Tensor as CPUTensor

__all__ = ["CPUTensor", "NervanaCPU"]


class NervanaCPU(Backend):
    """The backend 'cpu'.  What devices that dcml does not have are told (num_devices, device_id, stochastic_round) changes nothing."""

    backend_name = "cpu"

    def __init__(self, rng_seed=None, default_dtype=np.float32, hist_bins=64, hist_offset=-48, compat_mode=None, num_devices=None,
                 stochastic_round=None, device_id=None, deterministic=None):
        super().__init__(rng_seed, default_dtype, compat_mode, deterministic)


Backend.backends = {"cpu": NervanaCPU}

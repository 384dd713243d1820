"""Backends: where tensors are made, and whose methods compute with them.

The one idea: the classes of Neon's page under its names; what methods compute is in elementwise.py and network.py.
"""
import logging
import math

import numpy as np

from ... import _core, memory
from .elementwise import Elementwise
from .network import Network
from .run import assign
from .tensor import Tensor, extents_from
from .tree import Operand, OpTreeNode

__all__ = ["Backend", "Block", "OpTreeNode", "Tensor"]
_FLOATS = (np.dtype("f2"), np.dtype("f4"), np.dtype("f8"))


def shape_like(method, x):
    """The extents of a tensor, a tree or an array."""
    if not isinstance(x, (Operand, np.ndarray)):
        raise TypeError(f"{method}() takes a Tensor, not {type(x).__name__}")
    return x.shape


class Block:
    """What begin() and end() name: parts of training."""

    epoch, minibatch, fprop, bprop, update = range(5)


class Backend(Elementwise, Network):
    """Tensors of one type, a generator of random numbers, and what is computed with them.

    rng_seed: of the generator, or None.  default_dtype: float32, float64 or float16.
    compat_mode: None or 'caffe'.  deterministic: without effect: all is.
    Raises ValueError for another type or mode.
    """

    backends = {}  # name -> class
    tensor_cls = Tensor

    def __init__(self, rng_seed=None, default_dtype=np.float32, compat_mode=None, deterministic=None):
        try:
            known = np.dtype(default_dtype) in _FLOATS
        except TypeError:
            known = False
        if not known:
            raise ValueError(f"default_dtype is {default_dtype!r}, expected float16, float32 or float64")
        if compat_mode not in (None, "caffe"):
            raise ValueError(f"compat_mode is {compat_mode!r}, expected None or 'caffe'")
        if deterministic is not None:
            logging.getLogger(__name__).info("deterministic has no effect: the same inputs give the same bits")
        self.default_dtype = default_dtype
        self.rng_seed, self.deterministic = rng_seed, rng_seed is not None
        self.compat_mode = compat_mode
        self.bsz = None
        self.gen_rng(rng_seed)

    @staticmethod
    def backend_choices():
        """The sorted names of the backends."""
        return sorted(Backend.backends)

    @staticmethod
    def allocate_backend(name, **kargs):
        """A backend by its name, made with keywords of its class; raises ValueError for an unknown name."""
        if name not in Backend.backends:
            raise ValueError(f"backend is {name!r}, expected one of {', '.join(map(repr, Backend.backend_choices()))}")
        return Backend.backends[name](**kargs)

    def cleanup_backend(self):
        """Releases what the backend holds: nothing."""

    def execute(self, node):
        """Runs a tree with 'assign' at its top, and nowhere else; returns the target.

        Raises ValueError_ for another tree, ShapeError for a value that does not fit the target.
        """
        if not isinstance(node, OpTreeNode) or node[0]["op"] != "assign" or not isinstance(node[1], Tensor):
            raise _core.ValueError_("execute() takes an op-tree with 'assign' to a Tensor at its top")
        self._assign(node[1], node[2])
        return node[1]

    @staticmethod
    def _assign(target, value):
        """Computes an op-tree, a Tensor or a number, and writes it into a Tensor, as numpy broadcasts."""
        assign(((target, value),))

    # -- tensors -----------------------------------------------------------------------------------
    def _made(self, ary, dtype, name, persist_values):
        dtype = self.default_dtype if dtype is None else dtype
        return self.tensor_cls(self, dtype=dtype, ary=ary, name=name, persist_values=persist_values)

    def array(self, ary, dtype=None, name=None, persist_values=True, parallel=False, distributed=False):
        """A new Tensor with the elements of an array, a (nested) list or a number.

        dtype: by default the backend's.  Fewer than two dimensions are filled up with 1 at the end.  name: for printing.
        The others concern devices that dcml does not have.
        """
        ary = ary._tensor if isinstance(ary, Tensor) else ary
        return self._made(memory.copy(ary, self.default_dtype if dtype is None else dtype), dtype, name, persist_values)

    def empty(self, shape, dtype=None, name=None, persist_values=True, parallel=False, distributed=False):
        """A new Tensor; its elements are 0, which nobody may rely on.  Keywords as of array()."""
        return self.zeros(shape, dtype, name, persist_values)

    def zeros(self, shape, dtype=None, name=None, persist_values=True, parallel=False, distributed=False):
        """A new Tensor of zeros.  shape: extents, or one.  Keywords as of array().  Raises ShapeError for what is no shape."""
        return self._made(memory.full(extents_from(shape), 0, self.default_dtype if dtype is None else dtype), dtype, name, persist_values)

    def ones(self, shape, dtype=None, name=None, persist_values=True, parallel=False, distributed=False):
        """A new Tensor of ones, as zeros()."""
        return self._made(memory.full(extents_from(shape), 1, self.default_dtype if dtype is None else dtype), dtype, name, persist_values)

    def empty_like(self, other_ary, name=None, persist_values=True, *, dtype=None):
        """A new Tensor of another one's shape, and of the backend's type if none is given."""
        return self.empty(shape_like("empty_like", other_ary), dtype, name, persist_values)

    def zeros_like(self, other_ary, name=None, persist_values=True, *, dtype=None):
        """A new Tensor of zeros of another one's shape, and of the backend's type if none is given."""
        return self.zeros(shape_like("zeros_like", other_ary), dtype, name, persist_values)

    def iobuf(self, dim0, x=None, dtype=None, name=None, persist_values=True, shared=None, parallelism=None):
        """A buffer for a layer: a Tensor of zeros (features, batch size).

        dim0: the number of features, or a tuple of extents; of two, the second one is multiplied by the batch size.
        x: if not None, it is returned.  shared: a Tensor whose memory is taken.  Raises ValueError_ where there is no batch size.
        """
        if x is not None:
            return x
        if not isinstance(self.bsz, int):
            raise _core.ValueError_(f"iobuf(): the batch size is {self.bsz!r}; gen_backend(batch_size=...) sets it")
        extents = extents_from(dim0)
        if isinstance(dim0, (tuple, list)) and len(extents) == 2:
            shape = extents[0], extents[1] * self.bsz
        else:
            shape = math.prod(extents), self.bsz
        if shared is None:
            return self.zeros(shape, dtype, name, persist_values)
        return (shared if shared.shape == shape else shared.share(shape)).fill(0)

    def shared_iobuf_size(self, shape, parallelism):
        """The number of elements of a buffer that layers share."""
        return math.prod(extents_from(shape))

    # -- where tensors are, which is here ------------------------------------------------------------
    def distribute_data(self, tensor, layer_parallelism):
        """None: nothing is distributed."""

    def revert_tensor(self, tensor):
        """Nothing: nothing was distributed."""

    def begin(self, block, identifier):
        """Nothing: the start of a block of repeated computation (Block)."""

    def end(self, block, identifier):
        """Nothing: the end of a block of repeated computation (Block)."""

    # -- random numbers ----------------------------------------------------------------------------
    def gen_rng(self, seed=None):
        """Makes the generator, a RandomState of numpy's, which is returned and stays as ``rng``."""
        self.rng = np.random.RandomState(seed)
        self.init_rng_state = self.rng_get_state()
        return self.rng

    def rng_get_state(self, state=None):
        """The state of the generator: the tuple that numpy's get_state() gives.  ``state`` is not used."""
        return self.rng.get_state()

    def rng_set_state(self, state):
        """Puts the generator into a state that rng_get_state() gave."""
        self.rng.set_state(state)

    def rng_reset(self):
        """Puts the generator into the state that it was made in."""
        self.rng_set_state(self.init_rng_state)

    # -- extents of layers -------------------------------------------------------------------------
    def set_caffe_compat(self):
        """Pooling has Caffe's extents from now on."""
        self.compat_mode = "caffe"

    def check_caffe_compat(self):
        """Whether pooling has Caffe's extents."""
        return self.compat_mode == "caffe"

    def output_dim(self, X, S, padding, strides, pooling=False, dilation=1):
        """How many windows of S elements, ``dilation`` apart, there are in X elements with padding at both ends.

        pooling: with 'caffe', a last window that is partly outside counts too.  Raises ValueError for pooling whose padding is
        as large as its windows.
        """
        S = dilation * (S - 1) + 1
        if pooling and padding >= S:
            raise ValueError(f"output_dim(): padding {padding} and windows of {S}: a window would be outside")
        if not (pooling and self.check_caffe_compat()):
            return (X - S + 2 * padding) // strides + 1
        size = -((S - X - 2 * padding) // strides) + 1
        return size - 1 if padding > 0 and (size - 1) * strides >= X + padding else size

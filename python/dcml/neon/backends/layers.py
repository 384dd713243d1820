"""What the methods of convolution and pooling are told: sizes of a layer, worked out once.

Extents are those of Neon: feature maps C or K, depth, height, width (D H W in, M P Q out, T R S of filters), images N.
Must not know: how anything is computed.
"""
from math import prod

from ... import _core
from .tree import OpTreeNode


def _sizes(method, **given):
    for name, value in given.items():
        values = value if isinstance(value, tuple) else (value,)
        for x in values:
            if isinstance(x, bool) or not hasattr(x, "__index__") or x < (0 if name == "padding" else 1):
                least = 0 if name == "padding" else 1
                raise _core.ValueError_(f"{method}(): {name} is {value}, expected whole numbers of at least {least}")


class ConvLayer:
    """Sizes of a convolution: ``dimI`` (C, D, H, W, N), ``dimF`` (C, T, R, S, K), ``dimO`` (K, M, P, Q, N)."""

    method = "conv_layer"

    def __init__(self, lib, dtype, N, C, K, DHW, TRS, padding, strides, dilation, relu=False, bsum=False):
        _sizes(self.method, N=N, C=C, K=K, TRS=TRS, padding=padding, strides=strides, dilation=dilation)
        self.DHW, self.MPQ = self._extents(lib, DHW, TRS, padding, strides, dilation)
        if min(*self.DHW, *self.MPQ) < 1:
            raise _core.ShapeError(f"{self.method}(): filters of {TRS} do not fit images of {self.DHW} with padding {padding}")
        self.lib, self.dtype, self.relu, self.bsum = lib, dtype, relu, bsum
        self.N, self.C, self.K = N, C, K
        (self.D, self.H, self.W), (self.T, self.R, self.S), (self.M, self.P, self.Q) = self.DHW, TRS, self.MPQ
        self.NCK, self.TRS = (N, C, K), TRS
        self.padding, self.strides, self.dilation = padding, strides, dilation
        self.dimI, self.dimF, self.dimO = (C, *self.DHW, N), (C, *TRS, K), (K, *self.MPQ, N)
        self.dimS = (K, 1)
        self.dimI2, self.dimF2, self.dimO2 = (prod(self.dimI[:4]), N), (prod(self.dimF[:4]), K), (prod(self.dimO[:4]), N)
        self.sizeI, self.sizeF, self.sizeO = prod(self.dimI), prod(self.dimF), prod(self.dimO)
        self.nOut = self._outputs()
        self.dot = TRS == strides == dilation == (1, 1, 1) and padding == (0, 0, 0)

    def _extents(self, lib, DHW, TRS, padding, strides, dilation):
        _sizes(self.method, DHW=DHW)
        return DHW, tuple(lib.output_dim(x, s, p, q, dilation=d) for x, s, p, q, d in zip(DHW, TRS, padding, strides, dilation))

    def _outputs(self):
        return prod(self.dimO[:4])

    def tree(self, op, a, b, shape):
        """One of the products of images, filters and errors, as an op-tree."""
        return OpTreeNode({"op": op, "shape": shape, "nck": self.NCK, "dhw": self.DHW, "trs": self.TRS, "mpq": self.MPQ,
                           "pads": self.padding, "strides": self.strides, "dilation": self.dilation}, a, b)


class DeconvLayer(ConvLayer):
    """Sizes of the convolution that a deconvolution reverses: its input has ``dimO``, its output ``dimI``."""

    method = "deconv_layer"

    def _extents(self, lib, MPQ, TRS, padding, strides, dilation):
        _sizes(self.method, MPQ=MPQ)
        return tuple((m - 1) * q - 2 * p + d * (t - 1) + 1 for m, t, p, q, d in zip(MPQ, TRS, padding, strides, dilation)), MPQ

    def _outputs(self):
        return prod(self.dimI[:4])


class PoolLayer:
    """Sizes of pooling by 'max', 'avg' or 'l2' over feature maps (J) and space (T, R, S): ``dimI``, ``dimO``."""

    def __init__(self, lib, dtype, op, N, C, DHW, JTRS, padding, strides):
        if op not in ("max", "avg", "l2"):
            raise _core.ValueError_(f"pool_layer(): op is {op!r}, expected 'max', 'avg' or 'l2'")
        strides = tuple(k if s is None else s for s, k in zip(strides, JTRS))
        _sizes("pool_layer", N=N, C=C, DHW=DHW, JTRS=JTRS, padding=padding, strides=strides)
        self.lib, self.dtype, self.op = lib, dtype, op
        self.K, self.M, self.P, self.Q = (lib.output_dim(x, s, p, q, pooling=True)
                                          for x, s, p, q in zip((C, *DHW), JTRS, padding, strides))
        if min(self.K, self.M, self.P, self.Q) < 1:
            raise _core.ShapeError(f"pool_layer(): windows of {JTRS} do not fit images of {(C, *DHW)} with padding {padding}")
        self.N, self.C, (self.D, self.H, self.W) = N, C, DHW
        self.JTRS, self.DHW, self.MPQ = JTRS, DHW, (self.M, self.P, self.Q)
        self.J, self.T, self.R, self.S = JTRS
        self.padding, self.strides = padding, strides
        self.dimI, self.dimO, self.dimF2 = (C, *DHW, N), (self.K, *self.MPQ, N), None
        self.dimI2, self.dimO2 = (prod(self.dimI[:4]), N), (prod(self.dimO[:4]), N)
        self.sizeI, self.sizeO = prod(self.dimI), prod(self.dimO)
        self.nOut = prod(self.dimO[:4])
        self.overlap = float(prod(-(-k // s) for k, s in zip(JTRS, strides))) if any(s < k for s, k in zip(strides, JTRS)) else 0.0

    def tree(self, op, a, b=None):
        """Pooling, the places of maxima, or errors brought to them, as an op-tree."""
        shape = self.dimI if op == "from_place" else self.dimO
        return OpTreeNode({"op": op, "shape": shape, "kind": self.op, "input": self.dimI[:4], "output": self.dimO[:4], "images": self.N,
                           "window": self.JTRS, "pads": self.padding, "strides": self.strides}, a, b)

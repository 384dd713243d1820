"""Operators with attributes for the gradient tests: a line a case.

An input is a shape (standard normal numbers), an array, or None where it is absent; `positive` and `unit` make shapes with
numbers in (0.5, 2) and (-0.9, 0.9), `index` makes integers.
"""
from typing import NamedTuple

import numpy as np


class Case(NamedTuple):
    op: str
    inputs: tuple
    attrs: dict
    opset: int
    outputs: int
    domain: str

    def __str__(self):
        shown = "-".join(f"{k}={v}" for k, v in self.attrs.items()) or "default"
        return f"{self.op}-{self.opset}-{shown}-{len(self.inputs)}".replace(" ", "")


class Positive(tuple):
    """A shape of numbers in (0.5, 2)."""


class Unit(tuple):
    """A shape of numbers in (-0.9, 0.9)."""


def positive(*shape):
    return Positive(shape)


def unit(*shape):
    return Unit(shape)


def index(*values, dtype=np.int64):
    return np.array(values[0] if len(values) == 1 else values, dtype)


def case(op, *inputs, opset=22, outputs=1, domain="", **attrs):
    return Case(op, inputs, attrs, opset, outputs, domain)


def arrays(item, seed=0):
    """The inputs of a case as arrays (None where absent)."""
    rng = np.random.default_rng(seed)
    made = []
    for given in item.inputs:
        if given is None or isinstance(given, np.ndarray):
            made.append(given)
        elif isinstance(given, Positive):
            made.append(rng.uniform(0.5, 2, given))
        elif isinstance(given, Unit):
            made.append(rng.uniform(-0.9, 0.9, given))
        else:
            made.append(np.asarray(rng.standard_normal(given)))
    return made


M = (3, 4)
IMAGE = (2, 4, 7, 6)
ELEMENTWISE = [case(op, M) for op in (
    "Abs", "Neg", "Exp", "Sin", "Cos", "Sinh", "Cosh", "Asinh", "Tanh", "Sigmoid", "Softplus", "Softsign", "Erf", "HardSwish", "Mish",
    "Relu", "Identity", "Atan", "Floor", "Ceil", "Round", "Sign")] + [
    case(op, positive(*M)) for op in ("Log", "Sqrt", "Reciprocal")] + [case(op, unit(*M)) for op in ("Asin", "Acos", "Atanh", "Tan")] + [
    case("Acosh", 1.5 + np.arange(6.0).reshape(2, 3)), case("LeakyRelu", M, alpha=0.3), case("LeakyRelu", M, opset=1, alpha=0.2),
    case("ThresholdedRelu", M, alpha=0.2), case("Elu", M, alpha=0.7), case("Celu", M, alpha=0.6), case("Selu", M, alpha=1.3, gamma=0.8),
    case("Selu", M, opset=1), case("HardSigmoid", M, alpha=0.4, beta=0.3), case("Gelu", M), case("Gelu", M, approximate="tanh"),
    case("Swish", M, opset=24, alpha=1.5), case("Shrink", M, bias=0.1, lambd=0.3), case("Clip", M, np.array(-0.5), np.array(0.7)),
    case("Clip", M, None, np.array(0.7)), case("Clip", M, opset=6, min=-0.4, max=0.5), case("Cast", M, to=11), case("CastLike", M, (1,)),
    case("Dropout", M, outputs=2), case("Dropout", M, np.array(0.3, np.float32), np.array(True), seed=5),
    case("Dropout", M, opset=6, ratio=0.4), case("SwiGLU", M, M, opset=28, alpha=0.9), case("Trilu", M, upper=0), case("Trilu", (2, 4, 4), index(1)), case("PRelu", IMAGE, (4, 1, 1)),
    case("PRelu", (2, 3, 4), (3,), opset=6)]
BINARY = [case(op, (2, 1, 4), (3, 1)) for op in ("Add", "Sub", "Mul", "Max", "Min")] + [
    case("Div", M, positive(4)), case("Pow", positive(*M), (4,)), case("Pow", positive(*M), index(2)), case("Mod", M, positive(4), fmod=1),
    case("Add", (2, 3, 4, 5), (3, 4), opset=6, axis=1, broadcast=1), case("Mul", (2, 3, 4), (3,), opset=1, axis=1, broadcast=1),
    case("Pow", positive(2, 3), (3,), opset=1, broadcast=1), case("Sum", M, (4,), (3, 1)), case("Mean", M, (4,), (3, 1)),
    case("Max", M, (4,), (3, 1)), case("Min", M, M, M), case("Where", np.array([[True], [False]]), (2, 3), (1, 3))]
SPECIAL = [case(op, M, opset=1, domain="dcml") for op in (
    "Erfc", "Erfcx", "Exp2", "HardTanh", "Sinc", "LogNdtr", "BesselJ", "SphericalBesselJ", "AiryAi", "Greatest", "Least")] + [
    *(case(name, positive(*M), opset=1, domain="dcml") for name in ("Log2", "Log10")), case("Root", positive(*M), opset=1, domain="dcml"),
    case("Logit", np.linspace(0.1, 0.9, 6).reshape(2, 3), opset=1, domain="dcml"), case("Greatest", (2, 3, 4), opset=1, domain="dcml", axis=-2, keepdims=0),
    *(case(op, M, positive(*M), opset=1, domain="dcml") for op in ("XLogY", "XLog1pY", "AtLeast", "AtMost")),
    case("BinaryCrossEntropy", np.linspace(0.1, 0.9, 6).reshape(2, 3), positive(2, 3), opset=1, domain="dcml"),
    case("BesselJ", M, opset=1, domain="dcml", n=1), case("Frexp", M, opset=1, domain="dcml", outputs=2),
    *(case(op, positive(*M), opset=1, domain="dcml", n=n) for op in ("BesselY", "BesselK") for n in (0, 1)),
    case("BesselK", positive(*M), opset=1, domain="dcml", n=1, scaled=1),
    *(case("Orthogonal", (2, 4), np.array([[0.5, 3.5, 5.5, 1.5], [2.5, 2.5, -1.5, 4.5]]), opset=1, domain="dcml", family=f, shifted=k % 2)
      for k, f in enumerate(("legendre", "w", "hermite", "hermite_e", "laguerre", "t"))),
    case("OrthogonalOf", M, opset=1, domain="dcml", family="hermite", degree=5)]
SHAPES = [
    case("Reshape", M, index(2, -1)), case("Flatten", (2, 3, 4), axis=-1), case("Squeeze", (1, 3, 1, 2), index([-2])), case("Squeeze", (1, 3, 1), opset=11),
    case("Unsqueeze", M, index(0, -1)), case("Transpose", (2, 3, 4), perm=[2, 0, 1]), case("Expand", (3, 1), index(2, 3, 4)),
    case("Tile", (2, 3), index(3, 2)), case("Concat", (2, 3), (2, 1), (2, 4), axis=-1), case("Split", (2, 7), index(3, 4), outputs=2, axis=1),
    case("Split", (7, 2), outputs=3, num_outputs=3), case("Slice", (5, 6), index(4, 1), index(-6, 6), index(0, 1), index(-2, 2)),
    case("Slice", (5, 6), opset=1, starts=[1], ends=[-1], axes=[1]), case("Pad", M, index(1, 0, 2, 3), np.array(0.5)),
    *(case("Pad", M, index(1, 2, 2, 1), mode=mode) for mode in ("reflect", "edge", "wrap")), case("Pad", M, index(1, -1), None, index([1])),
    case("Pad", M, opset=2, pads=[0, 1, 1, -1]), case("DepthToSpace", (1, 8, 2, 3), blocksize=2), case("DepthToSpace", (1, 8, 2, 3), blocksize=2, mode="CRD"),
    case("SpaceToDepth", (1, 2, 4, 6), blocksize=2), case("ReverseSequence", (4, 3, 2), index(1, 3, 4), batch_axis=1, time_axis=0),
    case("CenterCropPad", (5, 4), index(3, 7)), case("TensorScatter", (2, 5, 3), (2, 2, 3), index(1, 4), opset=24, axis=1, mode="circular"),
    case("OneHot", index(0, 2, -1), np.array(3), (2,)), *(case("DiagonalOf", (2, 3), opset=1, domain="dcml", offset=k) for k in (0, 1, -2))]
INDICES = [
    case("Gather", (4, 3), index([0, -1], [2, 0]), axis=0), case("Gather", (2, 4, 3), index(1, 3, 3), axis=1), case("GatherElements", (3, 4), index([[0, -1, 2, 0]]), axis=0),
    case("GatherND", (2, 3, 4), index([[0, 1], [1, -1]])), case("GatherND", (2, 3, 4), index([[2], [0]]), batch_dims=1),
    *(case("ScatterElements", (4, 3), index([[0, 1, 0], [2, 1, 3], [0, -1, 3]]), (3, 3), opset=18, axis=0, reduction=r) for r in ("add", "mul", "max", "min")),
    case("ScatterElements", (2, 5), index([[0, 3], [-1, 1]]), (2, 2), axis=1), *(case("ScatterND", (5, 2), index([[0], [3], [0]]), (3, 2), opset=18, reduction=r)
                                                                                for r in ("add", "mul", "max", "min")),
    case("ScatterND", (3, 4), index([[0, 1], [2, -1]]), (2,)), case("Scatter", (3, 3), index([[0, 2]]), (1, 2), opset=9, axis=1)]
CONTRACTIONS = [
    case("MatMul", (2, 1, 3, 4), (5, 4, 2)), case("MatMul", (4,), (4, 3)), case("MatMul", (2, 4), (4,)), case("Gemm", (4, 3), (5, 4), (5,), alpha=0.5, beta=2.0, transA=1, transB=1),
    case("Gemm", (3, 4), (4, 2)), case("Gemm", (3, 4), (4, 2), (3, 1), opset=6, broadcast=1), case("Einsum", (2, 3, 4), (4, 5, 2), equation="bij,jkb->bik"),
    case("Einsum", (3, 3), equation="ii->i"), case("Einsum", (2, 3), (3,), (3,), equation="...j,j,j->..."),
    case("Conv", IMAGE, (6, 2, 3, 2), (6,), strides=[2, 1], pads=[1, 0, 2, 1], dilations=[1, 2], group=2), case("Conv", (2, 3, 9), (4, 3, 3), auto_pad="SAME_UPPER", strides=[2]),
    case("Conv", (1, 2, 4, 3, 5), (3, 2, 2, 2, 2)), case("Conv", (2, 4, 5, 5), (4, 1, 3, 3), group=4, pads=[1, 1, 1, 1]),
    case("ConvTranspose", (1, 4, 3, 4), (4, 2, 3, 2), (4,), strides=[2, 3], pads=[1, 0, 1, 1], output_padding=[1, 0], group=2),
    case("ConvTranspose", (1, 2, 4), (2, 3, 3), output_shape=[9], strides=[2]), case("ConvTranspose", (1, 2, 4), (2, 3, 3), dilations=[2], auto_pad="SAME_LOWER"),
    case("DeformConv", (1, 2, 5, 5), (2, 2, 2, 2), unit(1, 8, 4, 4), (2,), unit(1, 4, 4, 4)), case("DeformConv", (1, 4, 5, 4), (4, 2, 2, 2), unit(1, 16, 2, 3), group=2, offset_group=2, strides=[2, 1]),
    case("Col2Im", (1, 8, 6), index(4, 3), index(2, 2)), case("Col2Im", (1, 4, 9), index(5, 5), index(2, 2), strides=[2, 2], dilations=[1, 2], pads=[0, 1, 1, 1]),
    case("Col2Im", (1, 4, 4), index(7, 8), index(2, 2), strides=[4, 4], pads=[1, 1, 0, 0]),
    *(case("Im2Col", (2, 2, 7, 6), opset=1, domain="dcml", kernel_shape=[3, 2], strides=s, dilations=[1, 2], pads=[1, 0, 2, 1]) for s in ([1, 1], [2, 3], [4, 3]))]
POOLS = [
    case("MaxPool", IMAGE, kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1]), case("MaxPool", IMAGE, kernel_shape=[3, 3], dilations=[2, 1], ceil_mode=1, strides=[2, 2]),
    case("MaxPool", IMAGE, kernel_shape=[5, 5], pads=[2, 2, 2, 2]), case("MaxPool", IMAGE, kernel_shape=[4, 5], dilations=[1, 2], pads=[3, 4, 2, 1]),
    case("AveragePool", IMAGE, kernel_shape=[5, 5], pads=[2, 2, 2, 2], count_include_pad=1),
    case("AveragePool", IMAGE, kernel_shape=[4, 5], dilations=[1, 2], opset=19, pads=[3, 4, 2, 1]), case("MaxPool", (1, 2, 4, 5, 4), kernel_shape=[3, 3, 3], pads=[1] * 6), case("MaxPool", IMAGE, opset=1, kernel_shape=[5, 5], pads=[2, 2, 2, 2]),
    case("MaxPool", (1, 2, 9), kernel_shape=[3], auto_pad="SAME_LOWER", strides=[2]), case("MaxPool", IMAGE, opset=1, kernel_shape=[2, 2]),
    case("AveragePool", IMAGE, kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1]), case("AveragePool", IMAGE, kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1, ceil_mode=1, strides=[2, 2]),
    case("AveragePool", IMAGE, kernel_shape=[2, 2], dilations=[2, 2]), case("LpPool", IMAGE, kernel_shape=[2, 3], p=3, strides=[2, 1]), case("LpPool", IMAGE, kernel_shape=[2, 2], opset=2),
    case("GlobalAveragePool", IMAGE), case("GlobalMaxPool", IMAGE), case("GlobalLpPool", IMAGE, p=3), case("GlobalLpPool", IMAGE, opset=1, p=2.0),
    case("MaxUnpool", (1, 1, 2, 2), index([[[[5, 7], [13, 15]]]]), kernel_shape=[2, 2], strides=[2, 2]),
    case("RoiAlign", (2, 2, 6, 7), np.array([[0.3, 0.4, 4.2, 3.7], [1.15, 0.7, 5.9, 5.1]]), index(0, 1), output_height=2, output_width=3, sampling_ratio=2),
    case("RoiAlign", (1, 2, 6, 7), np.array([[0.3, 0.4, 4.2, 3.7]]), index([0]), output_height=2, output_width=2, spatial_scale=0.8, coordinate_transformation_mode="output_half_pixel"),
    case("RoiAlign", (1, 2, 6, 7), np.array([[0.3, 0.4, 4.2, 3.7]]), index([0]), output_height=2, output_width=2, mode="max", sampling_ratio=2),
    case("MaxRoiPool", (1, 2, 6, 7), np.array([[0, 0.2, 0.3, 4.2, 5.3]]), pooled_shape=[2, 3])]
AXES = index([-2])
REDUCTIONS = [case(op, (2, 3, 4), AXES) for op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp")] + [
    case(op, (2, 3, 4), opset=11, axes=[0, 2], keepdims=0) for op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceProd", "ReduceL2", "ReduceLogSumExp")] + [
    case("ReduceSum", (2, 3)), case("ReduceSum", (2, 3), index([]), noop_with_empty_axes=1), case("ReduceLogSum", positive(2, 3), index([1])),
    case("ReduceProd", np.array([[0.0, 2.0, 3.0], [1.5, 0.5, -2.0]])), case("CumSum", M, np.array(1), exclusive=1), case("CumSum", M, np.array(0), reverse=1),
    case("CumProd", M, np.array(1), opset=26), case("CumProd", M, np.array(0), opset=26, exclusive=1, reverse=1), case("TopK", (3, 5), index([2]), axis=-1), case("TopK", (5, 3), index([3]), axis=0, largest=0)]
NORMS = [case(op, (2, 3, 4), axis=axis) for op in ("Softmax", "LogSoftmax") for axis in (-1, 1)] + [
    case("Softmax", (2, 3, 4), opset=11), case("LogSoftmax", (2, 3, 4), opset=11, axis=2), case("Hardmax", M), case("LpNormalization", M, p=1, axis=0), case("LpNormalization", M),
    case("LayerNormalization", (2, 3, 4), (4,), (4,)), case("LayerNormalization", (2, 3, 4), (3, 4), axis=1, epsilon=0.1), case("LayerNormalization", (2, 3, 4), (1, 4), (3, 1), axis=-2),
    case("RMSNormalization", (2, 3, 4), (4,), opset=23), case("RMSNormalization", (2, 3, 4), (3, 4), opset=23, axis=1),
    case("BatchNormalization", (3, 2, 4), (2,), (2,), (2,), positive(2)), case("BatchNormalization", (3, 2, 4), (2,), (2,), (2,), positive(2), training_mode=1, epsilon=0.1),
    case("BatchNormalization", (4,), (1,), (1,), (1,), positive(1)), case("BatchNormalization", (4,), (1,), (1,), (1,), positive(1), training_mode=1, epsilon=0.1),
    case("BatchNormalization", (4,), (1,), (1,), (1,), positive(1), opset=9),
    case("BatchNormalization", (4, 2, 3), (2,), (2,), (2,), positive(2), opset=6, is_test=1), case("BatchNormalization", (4, 2, 3), (2, 3), (2, 3), (2, 3), positive(2, 3), opset=7, spatial=0),
    case("InstanceNormalization", (2, 3, 5), (3,), (3,)), case("GroupNormalization", (2, 4, 3), (4,), (4,), num_groups=2), case("GroupNormalization", (2, 4, 3), (2,), (2,), opset=18, num_groups=2),
    case("LRN", (2, 5, 3), size=3, alpha=0.3), case("MeanVarianceNormalization", (2, 3, 4, 2)), case("MeanVarianceNormalization", (2, 3, 4), axes=[1])]
LABELS = index([[0, 2, 1], [1, 1, 0]])
LOSSES = [case(op, (2, 3, 3), LABELS, *weights, reduction=r) for op in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss") for r in ("mean", "sum", "none") for weights in ((), (positive(3),))] + [
    case("SoftmaxCrossEntropyLoss", (2, 3, 3), LABELS, positive(3), ignore_index=1, outputs=2), case("NegativeLogLikelihoodLoss", (4, 3), index(0, 2, 1, 2), ignore_index=2)]
RECURRENT = [
    case("RNN", (3, 2, 4), (1, 5, 4), (1, 5, 5), (1, 10), None, (1, 2, 5), outputs=2), case("RNN", (3, 2, 4), (2, 5, 4), (2, 5, 5), outputs=2, direction="bidirectional", activations=["Softsign", "Affine"],
                                                                                                activation_alpha=[0.7], activation_beta=[0.1]),
    case("RNN", (2, 3, 4), (1, 5, 4), (1, 5, 5), outputs=2, layout=1, clip=0.8), case("GRU", (3, 2, 4), (1, 15, 4), (1, 15, 5), (1, 30), outputs=2),
    case("GRU", (3, 2, 4), (1, 15, 4), (1, 15, 5), (1, 30), index(3, 2, dtype=np.int32), (1, 2, 5), outputs=2, linear_before_reset=1, direction="reverse"),
    case("GRU", (3, 2, 4), (1, 15, 4), (1, 15, 5), opset=3, outputs=2), case("LSTM", (3, 2, 4), (1, 20, 4), (1, 20, 5), (1, 40), outputs=3),
    case("LSTM", (3, 2, 4), (2, 20, 4), (2, 20, 5), (2, 40), index(2, 3, dtype=np.int32), (2, 2, 5), (2, 2, 5), (2, 15), outputs=3, direction="bidirectional"),
    case("LSTM", (3, 2, 4), (1, 20, 4), (1, 20, 5), outputs=3, input_forget=1, activations=["HardSigmoid", "ScaledTanh", "Elu"], activation_alpha=[0.3, 1.2, 0.9], activation_beta=[0.4, 0.8])]
RESIZE = [case("Resize", (1, 1, 4, 5), None, None, index(1, 1, 6, 3), mode=mode, opset=19, **more) for mode in ("nearest", "linear", "cubic") for more in (
    {}, {"coordinate_transformation_mode": "align_corners"}, {"coordinate_transformation_mode": "asymmetric"})] + [
    case("Resize", (1, 2, 4, 4), None, np.float32([1, 1, 2, 2]), mode="nearest", opset=13), case("Resize", (1, 1, 8, 7), None, None, index(4, 4), mode="linear", opset=19, antialias=1, axes=[2, 3]),
    case("Resize", (1, 1, 8, 7), None, None, index(5, 4), mode="cubic", opset=19, antialias=1, axes=[2, 3]), case("Resize", (1, 1, 4, 5), None, np.float32([1, 1, 1.7, 0.6]), mode="cubic", exclude_outside=1, opset=13),
    case("Resize", (1, 1, 4, 5), None, None, index(1, 1, 6, 9), mode="linear", opset=19, coordinate_transformation_mode="half_pixel_symmetric"),
    case("Resize", (1, 2, 3, 4), None, np.float32([1, 1, 2, 3]), mode="linear", opset=13),
    case("Resize", (1, 2, 7, 8), None, np.float32([1, 1, 0.5, 0.25]), mode="linear", opset=13),
    case("Resize", (1, 1, 9, 6), None, None, index(3, 18), mode="linear", opset=19, axes=[2, 3]),
    case("Resize", (1, 1, 5, 10), None, None, index(3, 5), mode="linear", opset=19, axes=[2, 3], keep_aspect_ratio_policy="not_larger"),
    case("Resize", (1, 1, 4, 5), np.array([0, 0, 0.2, 0.1, 1, 1, 0.8, 0.85]), None, index(1, 1, 3, 3), mode="linear", opset=19, coordinate_transformation_mode="tf_crop_and_resize"),
    case("Upsample", (1, 1, 3, 4), np.float32([1, 1, 2, 1.5]), mode="linear", opset=9), case("Upsample", (1, 1, 3, 4), opset=7, scales=[1.0, 1.0, 2.0, 3.0])]
SAMPLING = [case("GridSample", (1, 2, 4, 5), unit(1, 3, 2, 2), mode=mode, padding_mode=pad, align_corners=corners) for mode in ("linear", "cubic", "nearest")
            for pad in ("zeros", "border", "reflection") for corners in (0, 1)] + [case("GridSample", (1, 1, 3, 4, 3), unit(1, 2, 2, 2, 3)), case("GridSample", (1, 1, 4, 4), unit(1, 2, 2, 2), opset=16, mode="bicubic"),
            case("AffineGrid", (2, 2, 3), index(2, 1, 3, 4)), case("AffineGrid", (1, 3, 4), index(1, 1, 2, 3, 4), align_corners=1)]
ATTENTION = [
    case("Attention", (2, 4, 3, 5), (2, 2, 6, 5), (2, 2, 6, 4), opset=23), case("Attention", (2, 4, 3, 5), (2, 4, 6, 5), (2, 4, 6, 4), (3, 6), opset=23, is_causal=1, softcap=2.0, scale=0.3),
    case("Attention", (2, 3, 8), (2, 5, 8), (2, 5, 8), opset=23, q_num_heads=4, kv_num_heads=4), case("Attention", (1, 2, 2, 4), (1, 2, 3, 4), (1, 2, 3, 4), None, (1, 2, 2, 4), (1, 2, 2, 4), opset=23, outputs=3),
    case("Attention", (1, 2, 4, 4), (1, 2, 4, 4), (1, 2, 4, 4), opset=25, left_window_size=1, right_window_size=1), case("RotaryEmbedding", (2, 3, 4, 8), (2, 4, 4), (2, 4, 4), opset=23),
    case("RotaryEmbedding", (2, 4, 12), (6, 2), (6, 2), index([[0, 1, 2, 3], [2, 3, 4, 5]]), opset=23, num_heads=3, interleaved=1), *(case(
        "LinearAttention", (2, 3, 8), (2, 3, 4), (2, 3, 6), (2, 2, 2, 3), *more, opset=27, outputs=2, q_num_heads=4, kv_num_heads=2, update_rule=rule) for rule, more in (
            ("linear", ()), ("gated", ((2, 3, 4),)), ("delta", (None, (2, 3, 2))), ("gated_delta", ((2, 3, 2), (2, 3, 1))))),
    case("CausalConvWithState", (2, 3, 5), (3, 1, 3), (3,), (2, 3, 2), opset=27, outputs=2, activation="silu"), case("CausalConvWithState", (2, 3, 2), (3, 1, 4), opset=27, outputs=2)]
TRANSFORMS = [case("DFT", (2, 6, 1), opset=20), case("DFT", (2, 5, 2), opset=17, axis=1, inverse=1), case("DFT", (3, 6, 1), np.array(8), opset=20, onesided=1), case("DFT", (2, 4, 2), None, np.array(0), opset=20),
              case("DFT", (2, 4, 2), opset=20, inverse=1, onesided=1), case("DFT", (2, 20, 1), np.array(24), opset=20),
              case("DFT", (2, 10, 2), np.array(18), opset=20, inverse=1, onesided=1), case("DFT", (34, 2, 2), opset=17, axis=0, inverse=1), case("STFT", (1, 12, 1), np.array(3), (5,), opset=17), case("STFT", (1, 12, 2), np.array(4), None, np.array(6), opset=17, onesided=0),
              case("Det", (2, 3, 3)), case("Det", (4, 4))]
TRAINING = [case("Adam", np.array(0.1), np.array(3), M, M, M, positive(*M), opset=1, outputs=3, domain="ai.onnx.preview.training", norm_coefficient=0.1),
            case("Momentum", np.array(0.1), np.array(3), M, M, M, opset=1, outputs=2, domain="ai.onnx.preview.training", alpha=0.9, beta=0.8, mode="nesterov", norm_coefficient=0.1)]
BOXES = np.random.default_rng(5).uniform(0, 1, (2, 5, 7)) + np.array([0, 0, 0, 0, 1, 1, 0])
MXNET = [case(*given, opset=1, domain="dcml.mx", **attrs) for given, attrs in (
    (("box_nms", BOXES), {"overlap_thresh": 0.3, "topk": 4}), (("interleaved_matmul_selfatt_qk", (3, 2, 12)), {"heads": 2}),
    (("interleaved_matmul_selfatt_valatt", (3, 2, 12), (4, 3, 3)), {"heads": 2}),
    (("sldwin_atten_score", (1, 5, 2, 3), (1, 5, 2, 3), index(1, 2)), {"w": 2, "symmetric": 1}),
    (("sldwin_atten_context", (1, 5, 2, 3), (1, 5, 2, 3), index(1, 2)), {"w": 2, "symmetric": 0}),
    (("deformable_convolution", (1, 4, 4, 5), (1, 16, 3, 4), (4, 2, 2, 2), (4,)), {"kernel": [2, 2], "num_filter": 4, "num_group": 2, "num_deformable_group": 2}),
    (("modulated_deformable_convolution", (1, 2, 5, 4), (1, 8, 3, 2), (1, 4, 3, 2), (3, 2, 2, 2)),
     {"kernel": [2, 2], "num_filter": 3, "stride": [2, 2], "pad": [1, 0], "no_bias": 1}),
    (("ctc_loss", (4, 2, 4), index([[1, 2], [3, 0]])), {"blank_label": "first"}),
    (("ctc_loss", (4, 2, 4), index([[1, 1], [2, -1]]), index(4, 3), index(2, 1)), {"use_data_lengths": 1, "use_label_lengths": 1, "blank_label": "last"}),
    (("roi_pooling", (2, 2, 5, 6), index([0, 0, 0, 4, 4], [1, 2, 3, 9, 9])), {"pooled_size": [2, 2], "spatial_scale": 0.7}))]
MICROSOFT = [case(*given, opset=1, domain="com.microsoft", **attrs) for given, attrs in (
    (("Gelu", M), {}), (("QuickGelu", M), {}), (("FastGelu", M, (4,)), {}), (("BiasGelu", M, (4,)), {}), (("BiasSplitGelu", (2, 4), (4,)), {}),
    (("SkipLayerNormalization", (2, 3, 4), (3, 4), (4,), (4,), (4,)), {"epsilon": 0.1}), (("SkipSimplifiedLayerNormalization", (2, 4), (2, 4), (4,)), {}),
    (("EmbedLayerNormalization", index([[0, 2, 1]], dtype=np.int32), None, (3, 4), (3, 4), None, (4,), (4,)), {}),
    (("GroupNorm", (2, 3, 4), (4,), (4,)), {"activation": 1, "groups": 2}), (("CDist", (3, 2), (4, 2)), {"metric": "euclidean"}),
    (("FusedMatMul", (2, 3, 4), (5, 4)), {"transB": 1, "alpha": 0.5}), (("FusedGemm", (3, 4), (4, 2), (2,)), {"activation": "Tanh", "beta": 0.5}),
    (("FusedConv", (1, 2, 4, 5), (3, 2, 2, 2), (3,), (1, 3, 3, 4)), {"activation": "Sigmoid"}),
    (("Attention", (1, 3, 4), (4, 12), (12,), index([2], dtype=np.int32)), {"num_heads": 2}),
    (("MultiHeadAttention", (1, 3, 4), (1, 2, 4), (1, 2, 4), (12,)), {"num_heads": 2}), (("MultiHeadAttention", (1, 3, 2, 3, 2)), {"num_heads": 2, "unidirectional": 1}),
    (("GroupQueryAttention", (1, 2, 8), (1, 2, 4), (1, 2, 4), (1, 1, 3, 4), (1, 1, 3, 4), index([4], dtype=np.int32), np.array(5, np.int32), (6, 2), (6, 2)),
     {"num_heads": 2, "kv_num_heads": 1, "do_rotary": 1, "smooth_softmax": 1}),
    (("RotaryEmbedding", (1, 2, 3, 4), index([[2, 0, 1]]), (3, 2), (3, 2)), {}),
    (("MatMulNBits", (2, 16), np.random.default_rng(3).integers(0, 256, (3, 1, 8)).astype(np.uint8), (3,)), {"K": 16, "N": 3, "block_size": 16}))]
CASES = [*MICROSOFT, *MXNET, *ELEMENTWISE, *BINARY, *SPECIAL, *SHAPES, *INDICES, *CONTRACTIONS, *POOLS, *REDUCTIONS, *NORMS, *LOSSES, *RECURRENT, *RESIZE, *SAMPLING, *ATTENTION, *TRANSFORMS, *TRAINING]

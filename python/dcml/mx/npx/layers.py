"""Layers of networks that are ONNX's by another name, or have states: running statistics, the training mode, draws.

The one idea: parameters are the page's, in its order; the mathematics is a row's.
Must not know: how arrays are recorded.
"""
from ... import _core
from .. import functions as np
from ..array import as_array, as_operator, binary, invoke
from ..random import draw_seed
from ..tape import leave, state
from .rows import DOMAIN, extents, inputs, written

__all__ = ["activation", "batch_norm", "convolution", "deconvolution", "dropout", "embedding", "fully_connected", "gelu", "group_norm",
           "instance_norm", "layer_norm", "leaky_relu", "log_sigmoid", "pooling", "relu", "sigmoid", "softsign", "sync_batch_norm"]


def _run(op, given, attributes=None, outputs=1):
    made = invoke(op, DOMAIN, 1, given, attributes, outputs)
    return made[0] if outputs == 1 else made


def _onnx(op, given, attributes=None):
    return invoke(op, "", 21, given, attributes)[0]


def _is(op, domain="", opset=21, least=1, most=1, attributes=None):
    """Of a function that is an operator where it is given nothing but arrays."""
    return lambda function: as_operator(function, op, domain, opset, least, most, attributes=attributes)


# -- products -----------------------------------------------------------------------------------------------------
@written
def fully_connected(data=None, weight=None, bias=None, num_hidden=None, no_bias=False, flatten=True):
    """data weight' + bias.

    data: [batch, ...], as one row for each of the batch, or, with flatten=False, [..., input]; weight: [num_hidden, input];
    bias: [num_hidden], left out with no_bias or None.  Returns [batch, num_hidden] or [..., num_hidden]."""
    x, weight = inputs("fully_connected", data=data, weight=weight)
    bias = None if no_bias or bias is None else inputs("fully_connected", bias=bias)[0]
    if weight.ndim != 2 or not x.ndim or num_hidden not in (None, weight.shape[0]):
        raise _core.ShapeError(f"fully_connected: data of shape {x.shape} and weight of shape {weight.shape} for num_hidden {num_hidden}; "
                               "expected weight as (num_hidden, input)")
    shape = (x.shape[0], weight.shape[0]) if flatten else (*x.shape[:-1], weight.shape[0])
    if x.ndim != 2:
        rows = x.shape[0] if flatten else x.size // max(x.shape[-1], 1)
        x = np.reshape(x, (rows, x.size // max(rows, 1)))
    made = _onnx("Gemm", (x, weight) if bias is None else (x, weight, bias), {"transB": 1})
    return made if len(shape) == 2 else np.reshape(made, shape)


def _channels_first(op, layout, arrays):
    """Arrays in the order batch, channel, places; and the order that takes the result back, or None."""
    rank = arrays[0].ndim
    first = "NC" + "DHW"[5 - rank:] if 3 <= rank <= 5 else None
    if first is None:
        raise _core.ShapeError(f"{op}: data has 3, 4 or 5 dimensions, got shape {arrays[0].shape}")
    if layout in (None, "", "None", first):
        return arrays, None
    if layout != "N" + first[2:] + "C":
        raise _core.ValueError_(f"{op}: layout {layout!r} does not go with data of {rank} dimensions")
    forth = (0, rank - 1, *range(1, rank - 1))
    return [np.transpose(a, forth) for a in arrays], (0, *range(2, rank), 1)


def _kernel(op, kernel, weight):
    shape = weight.shape[2:]
    if extents(op, "kernel", kernel, len(shape), 0) not in (shape, (0, ) * len(shape)):
        raise _core.ShapeError(f"{op}: kernel {kernel} and weight of shape {weight.shape}")
    return shape


@written
def convolution(data=None, weight=None, bias=None, kernel=None, stride=None, dilate=None, pad=None, num_filter=None, num_group=1,
                workspace=1024, no_bias=False, cudnn_tune=None, cudnn_off=False, layout=None):
    """Convolution in one, two or three dimensions.

    data: [batch, channel, ...]; weight: [num_filter, channel / num_group, *kernel]; bias: [num_filter], left out with no_bias
    or None.  Layouts NWC, NHWC, NDHWC: of data, weight and result.  workspace, cudnn_tune, cudnn_off say nothing."""
    given = inputs("convolution", data=data, weight=weight)
    if given[0].ndim != given[1].ndim:
        raise _core.ShapeError(f"convolution: data of shape {given[0].shape} and weight of shape {given[1].shape}")
    (x, weight), back = _channels_first("convolution", layout, given)
    shape = _kernel("convolution", kernel, weight)
    if num_filter not in (None, weight.shape[0]):
        raise _core.ShapeError(f"convolution: num_filter {num_filter} and weight of shape {given[1].shape}")
    n = len(shape)
    pads = extents("convolution", "pad", pad, n, 0)
    attributes = {"kernel_shape": shape, "strides": extents("convolution", "stride", stride, n, 1),
                  "dilations": extents("convolution", "dilate", dilate, n, 1), "pads": pads + pads, "group": int(num_group)}
    rest = () if no_bias or bias is None else tuple(inputs("convolution", bias=bias))
    made = _onnx("Conv", (x, weight, *rest), attributes)
    return made if back is None else np.transpose(made, back)


@written
def deconvolution(data=None, weight=None, bias=None, kernel=None, stride=None, dilate=None, pad=None, adj=None, target_shape=None,
                  num_filter=None, num_group=1, workspace=512, no_bias=None, cudnn_tune=None, cudnn_off=False, layout=None):
    """Transposed convolution: the gradient of a convolution by its data.

    data: [batch, channel, ...]; weight: [channel, num_filter / num_group, *kernel]; bias: [num_filter]; given ones count
    unless no_bias.  target_shape decides pad and adj."""
    given = inputs("deconvolution", data=data, weight=weight)
    if given[0].ndim != given[1].ndim:
        raise _core.ShapeError(f"deconvolution: data of shape {given[0].shape} and weight of shape {given[1].shape}")
    (x, weight), back = _channels_first("deconvolution", layout, given)
    shape = _kernel("deconvolution", kernel, weight)
    n = len(shape)
    if num_filter not in (None, weight.shape[1] * num_group):
        raise _core.ShapeError(f"deconvolution: num_filter {num_filter} in {num_group} groups and weight of shape {given[1].shape}")
    stride, dilate = extents("deconvolution", "stride", stride, n, 1), extents("deconvolution", "dilate", dilate, n, 1)
    pads, more = extents("deconvolution", "pad", pad, n, 0), extents("deconvolution", "adj", adj, n, 0)
    target = extents("deconvolution", "target_shape", target_shape, n, 0)
    if any(target):
        over = [s * (e - 1) + d * (k - 1) + 1 - t for s, e, d, k, t in zip(stride, x.shape[2:], dilate, shape, target)]
        if min(over) < 0:
            raise _core.ShapeError(f"deconvolution: target_shape {target} is larger than the result can be")
        pads, more = tuple((v + 1) // 2 for v in over), tuple(v % 2 for v in over)
    if any(a >= s for a, s in zip(more, stride)) and any(a > 0 for a in more) and not any(target):
        raise _core.ValueError_(f"deconvolution: adj {more} must be smaller than stride {stride}")
    attributes = {"kernel_shape": shape, "strides": stride, "dilations": dilate, "pads": pads + pads, "output_padding": more,
                  "group": int(num_group)}
    rest = () if no_bias or bias is None else tuple(inputs("deconvolution", bias=bias))
    made = _onnx("ConvTranspose", (x, weight, *rest), attributes)
    return made if back is None else np.transpose(made, back)


# -- pooling --------------------------------------------------------------------------------------------------------
@written
def pooling(data=None, kernel=None, pool_type="max", global_pool=False, cudnn_off=False, pooling_convention="valid", stride=None, pad=None,
            p_value=None, count_include_pad=None, layout=None):
    """The greatest element, the mean, the sum or the p-norm of windows.

    data: [batch, channel, ...].  Extents: floor((x + 2 p - k) / s) + 1 ("valid"), rounded up ("full"), or the quotient of
    x + 2 p and s, rounded up ("same").  count_include_pad (True): a mean counts what was padded; no window reaches further."""
    (x, ), back = _channels_first("pooling", layout, inputs("pooling", data=data))
    n = x.ndim - 2
    attributes = {"pool_type": str(pool_type), "pooling_convention": "valid" if global_pool else str(pooling_convention)}
    if not global_pool:
        if kernel is None or (hasattr(kernel, "__len__") and not len(kernel)):
            raise TypeError("pooling(): 'kernel' must be given without global_pool")
        attributes["kernel"] = extents("pooling", "kernel", kernel, n, 1)
        attributes["stride"] = extents("pooling", "stride", stride, n, 1)
        attributes["pad"] = extents("pooling", "pad", pad, n, 0)
        if min(attributes["kernel"]) < 1 or min(attributes["stride"]) < 1 or min(attributes["pad"]) < 0:
            raise _core.ValueError_(f"pooling: kernel {kernel}, stride {stride} and pad {pad} make no windows")
        if pooling_convention == "valid" and any(k > e + 2 * p for k, e, p in zip(attributes["kernel"], x.shape[2:], attributes["pad"])):
            raise _core.ShapeError(f"pooling: a kernel of {kernel} is larger than data of shape {x.shape} with pad {pad}")
    if pool_type == "lp":
        if p_value is None:
            raise TypeError("pooling(): 'p_value' must be given for pool_type 'lp'")
        attributes["p_value"] = int(p_value)
    attributes["count_include_pad"] = int(count_include_pad is None or bool(count_include_pad))
    made = _run("pooling_", (x, ), attributes)
    return made if back is None else np.transpose(made, back)


# -- norms ------------------------------------------------------------------------------------------------------------
def _batch_norm(op, arrays, eps, momentum, fix_gamma, use_global_stats, output_mean_var, axis, inverse):
    x, gamma, beta, mean, var = arrays
    training = state.training and not use_global_stats
    attributes = {"eps": float(eps), "momentum": float(momentum), "fix_gamma": int(bool(fix_gamma)), "training": int(training),
                  "axis": int(axis)}
    if not training and not output_mean_var:
        return _run("batch_norm_", (x, gamma, beta, mean, var), attributes)
    made, now, spread, new_mean, new_var = _run("batch_norm_", (x, gamma, beta, mean, var), attributes, 5)
    if training:
        for array, new in ((mean, new_mean), (var, new_var)):
            array._adopt(new)
            leave(array)
    if not output_mean_var:
        return made
    return [made, now, np.reciprocal(np.sqrt(binary("Add", spread, float(eps)))) if inverse else spread]


@written
def batch_norm(data=None, gamma=None, beta=None, moving_mean=None, moving_var=None, eps=0.0010000000474974513, momentum=0.899999976,
               fix_gamma=True, use_global_stats=False, output_mean_var=False, axis=1, cudnn_off=False, min_calib_range=None,
               max_calib_range=None):
    """Normalises each channel by the batch in training, by the running arrays otherwise.

    data: [..., channels, ...], channels at axis; the others: [channels].  In training moving_mean and moving_var become
    momentum * old + (1 - momentum) * the batch's.  fix_gamma: gamma counts as ones, its gradient is zero.  With output_mean_var
    a list of the result, the mean and 1 / sqrt(var + eps), which have no gradient."""
    arrays = inputs("batch_norm", data=data, gamma=gamma, beta=beta, moving_mean=moving_mean, moving_var=moving_var)
    return _batch_norm("batch_norm", arrays, eps, momentum, fix_gamma, use_global_stats, output_mean_var, axis, True)


@written
def sync_batch_norm(data=None, gamma=None, beta=None, moving_mean=None, moving_var=None, eps=0.00100000005, momentum=0.899999976,
                    fix_gamma=True, use_global_stats=False, output_mean_var=False, ndev=1, key=""):
    """batch_norm along axis 1; there is one device.  With output_mean_var a list of the result, the mean and the variance."""
    arrays = inputs("sync_batch_norm", data=data, gamma=gamma, beta=beta, moving_mean=moving_mean, moving_var=moving_var)
    return _batch_norm("sync_batch_norm", arrays, eps, momentum, fix_gamma, use_global_stats, output_mean_var, 1, False)


@_is("layer_norm_", DOMAIN, 1, 3, 3, attributes={"axis": -1, "eps": 9.99999975e-06})
@written
def layer_norm(data=None, gamma=None, beta=None, axis=-1, eps=9.99999975e-06, output_mean_var=False):
    """Normalises along an axis; gamma and beta: [its extent].  With output_mean_var a list of the result, the mean and the
    standard deviation, which keep the axis with extent 1 and have no gradient."""
    given = inputs("layer_norm", data=data, gamma=gamma, beta=beta)
    attributes = {"axis": -1 if axis is None else int(axis), "eps": 9.99999975e-06 if eps is None else float(eps)}
    return _run("layer_norm_", given, attributes, 3 if output_mean_var else 1)


@written
def group_norm(data=None, gamma=None, beta=None, num_groups=1, eps=0.001, output_mean_var=False):
    """Normalises each group of channels of each example; gamma and beta: [channels] or [num_groups].  With output_mean_var a list
    of the result, the mean and the standard deviation, [batch, num_groups], which have no gradient."""
    given = inputs("group_norm", data=data, gamma=gamma, beta=beta)
    return _run("group_norm_", given, {"num_groups": int(num_groups), "eps": float(eps)}, 3 if output_mean_var else 1)


@written
def instance_norm(data=None, gamma=None, beta=None, eps=0.00100000005):
    """Normalises each channel of each example; gamma and beta: [channels]."""
    return _onnx("InstanceNormalization", tuple(inputs("instance_norm", data=data, gamma=gamma, beta=beta)), {"epsilon": float(eps)})


# -- element by element ---------------------------------------------------------------------------------------------
_ACTIVATIONS = {"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "softrelu": "Softplus", "softsign": "Softsign", "mish": "Mish"}


@written
def activation(data=None, act_type="relu"):
    """relu, sigmoid, tanh, softrelu, softsign, mish or log_sigmoid, element by element."""
    (x, ) = inputs("activation", data=data)
    if act_type == "log_sigmoid":
        return -_onnx("Softplus", (-x, ))
    if act_type not in _ACTIVATIONS:
        raise _core.ValueError_(f"activation: act_type is one of {', '.join(_ACTIVATIONS)}, log_sigmoid, got {act_type!r}")
    return _onnx(_ACTIVATIONS[act_type], (x, ))


@_is("Relu")
@written
def relu(data=None):
    """max(x, 0)."""
    return _onnx("Relu", tuple(inputs("relu", data=data)))


@_is("Sigmoid")
@written
def sigmoid(data=None):
    """1 / (1 + exp(-x))."""
    return _onnx("Sigmoid", tuple(inputs("sigmoid", data=data)))


@written
def log_sigmoid(data=None):
    """log(sigmoid(x))."""
    return activation(data, "log_sigmoid")


@_is("Softsign")
@written
def softsign(data=None):
    """x / (1 + abs(x))."""
    return activation(data, "softsign")


@written
def gelu(data=None, approximation="erf"):
    """x times the normal distribution's function of x; approximation "tanh": nearly so."""
    return leaky_relu(data, act_type="gelu_tanh" if approximation == "tanh" else "gelu_erf")


def _slopes(gamma, shape):
    """prelu's slopes in a shape that broadcasts: they stand for axis 1, or axis 0 if they only fit there."""
    extents_, left = [], list(gamma.shape)
    for axis in reversed(range(len(shape))):
        fits = left and axis <= 1 and left[-1] in (1, shape[axis])
        extents_.insert(0, left.pop() if fits else 1)
    return gamma if left else np.reshape(gamma, extents_)


@written
def leaky_relu(data=None, gamma=None, act_type="leaky", slope=0.25, lower_bound=0.125, upper_bound=0.333999991):
    """x where it is positive; else by act_type: slope * x (leaky, prelu with learnt slopes gamma: [channels], rrelu with slopes
    drawn from lower_bound to upper_bound in training), slope * (exp(x) - 1) (elu); selu, gelu, gelu_erf, gelu_tanh as named."""
    (x, ) = inputs("leaky_relu", data=data)
    slope = 0.25 if slope is None else float(slope)
    low, high = 0.125 if lower_bound is None else float(lower_bound), 0.333999991 if upper_bound is None else float(upper_bound)
    if act_type == "rrelu" and state.training:
        return _run("rrelu_", (x, draw_seed()), {"lower_bound": low, "upper_bound": high})
    if act_type == "prelu":
        (gamma, ) = inputs("leaky_relu", gamma=gamma)
        return _run("leaky_relu_", (x, _slopes(gamma, x.shape)), {"act_type": act_type})
    attributes = {"act_type": str(act_type)}
    if act_type in ("leaky", "elu"):
        attributes["slope"] = slope
    elif act_type == "rrelu":
        attributes["lower_bound"], attributes["upper_bound"] = low, high
    return _run("leaky_relu_", (x, ), attributes)


@written
def dropout(data=None, p=0.5, mode="training", axes=(), cudnn_off=False):
    """Zeros with probability p, the others divided by 1 - p; in training, or always with mode="always".  Along axes all
    elements share a draw."""
    (x, ) = inputs("dropout", data=data)
    if not 0 <= p <= 1 or mode not in ("training", "always"):
        raise _core.ValueError_(f"dropout: p lies between 0 and 1 and mode is 'training' or 'always', got {p!r} and {mode!r}")
    if not p or (mode == "training" and not state.training):
        return _onnx("Identity", (x, ))
    axes = () if axes is None else (axes, ) if isinstance(axes, int) else tuple(int(a) for a in axes)
    return _run("dropout_", (x, draw_seed()), {"p": float(p), "axes": axes} if axes else {"p": float(p)})


@written
def embedding(data=None, weight=None, input_dim=None, output_dim=None, dtype="float32", sparse_grad=False):
    """Rows of weight, [input_dim, output_dim], at indices; those that are too large take the last row, negative ones the first.
    sparse_grad: these are errors, ValueError_."""
    indices, weight = inputs("embedding", data=data, weight=weight)
    if sparse_grad and indices.size:
        low, high = (as_array(f(indices)).item() for f in (np.min, np.max))
        if low < 0 or high >= weight.shape[0]:
            raise _core.ValueError_(f"embedding: an index lies outside of 0 to {weight.shape[0] - 1}")
    attributes = {name: int(value) for name, value in (("input_dim", input_dim), ("output_dim", output_dim)) if value is not None}
    return _run("embedding_", (indices, weight), attributes)

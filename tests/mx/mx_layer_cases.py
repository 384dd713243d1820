"""Cases of npx: layers, norms, activations, sequences, indices and shapes."""
import math

import numpy as onp
from mx_harness import Case
from mx_torch import convolved, deconvolved, pooled, recurrent, vector_length

_rng = onp.random.default_rng(1)


def normal(*shape):
    return _rng.standard_normal(shape)


def integers(low, high, *shape):
    return _rng.integers(low, high, shape)


# -- norms ------------------------------------------------------------------------------------------------------------
def normed(x, axes, eps):
    mean, var = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    return (x - mean) / onp.sqrt(var + eps), mean, var


def along(v, x, axis):
    return v.reshape([-1 if k == axis % x.ndim else 1 for k in range(x.ndim)])


def batch_normed(x, gamma, beta, mean, var, eps=1e-3, momentum=0.9, fix_gamma=True, use_global_stats=False, output_mean_var=False, axis=1,
                 train=True, inverse=True, **_):
    if train and not use_global_stats:
        axes = tuple(k for k in range(x.ndim) if k != axis % x.ndim)
        mean, var = x.mean(axes), x.var(axes)
    gamma = onp.ones_like(gamma) if fix_gamma else gamma
    out = (x - along(mean, x, axis)) / onp.sqrt(along(var, x, axis) + eps) * along(gamma, x, axis) + along(beta, x, axis)
    return [out, mean, 1 / onp.sqrt(var + eps) if inverse else var] if output_mean_var else out


def batch_norm_case(train=True, op="batch_norm", shape=(4, 3, 2), axis=1, gradients=(0, 1, 2), **attributes):
    c = shape[axis]
    inverse = op == "batch_norm"
    if op == "batch_norm":
        attributes["axis"] = axis
    return Case(op, [normal(*shape), normal(c), normal(c), normal(c), normal(c)**2 + 0.5], attributes,
                lambda *v, **a: batch_normed(*v, **a, train=train, inverse=inverse), False if attributes.get("output_mean_var") else gradients,
                train=train, name=f"train={train},{attributes}")


def layer_normed(x, gamma, beta, axis=-1, eps=1e-5, output_mean_var=False):
    out, mean, var = normed(x, axis, eps)
    out = out * along(gamma, x, axis) + along(beta, x, axis)
    return [out, mean, onp.sqrt(var + eps)] if output_mean_var else out


def group_normed(x, gamma, beta, num_groups=1, eps=1e-3, output_mean_var=False):
    grouped = x.reshape(x.shape[0], num_groups, -1)
    out, mean, var = normed(grouped, 2, eps)
    gamma, beta = (onp.repeat(v, x.shape[1] // len(v)) for v in (gamma, beta))
    out = out.reshape(x.shape) * along(gamma, x, 1) + along(beta, x, 1)
    return [out, mean[..., 0], onp.sqrt(var[..., 0] + eps)] if output_mean_var else out


def instance_normed(x, gamma, beta, eps=1e-3):
    return normed(x, tuple(range(2, x.ndim)), eps)[0] * along(gamma, x, 1) + along(beta, x, 1)


_X = normal(2, 6, 3)
NORMS = [
    *(batch_norm_case(**a) for a in ({}, {"fix_gamma": False}, {"fix_gamma": False, "axis": -1, "eps": 1e-5}, {"use_global_stats": True},
                                     {"train": False, "fix_gamma": False}, {"fix_gamma": False, "output_mean_var": True},
                                     {"train": False, "output_mean_var": True}, {"shape": (4, 3)}, {"shape": (2, 3, 2, 2), "fix_gamma": False})),
    *(batch_norm_case(op="sync_batch_norm", key="k", **a) for a in ({}, {"fix_gamma": False, "ndev": 1}, {"output_mean_var": True})),
    Case("layer_norm", [_X, normal(3), normal(3)], want=layer_normed),
    Case("layer_norm", [_X, normal(6), normal(6)], {"axis": 1, "eps": 1e-3}, layer_normed),
    Case("layer_norm", [_X, normal(3), normal(3)], {"output_mean_var": True}, layer_normed, False),
    Case("group_norm", [_X, normal(6), normal(6)], {"num_groups": 2}, group_normed),
    Case("group_norm", [_X, normal(3), normal(3)], {"num_groups": 3, "eps": 1e-3}, group_normed),
    Case("group_norm", [_X, normal(6), normal(6)], {"num_groups": 2, "output_mean_var": True}, group_normed, False),
    Case("instance_norm", [normal(2, 3, 4), normal(3), normal(3)], want=instance_normed),
    Case("instance_norm", [normal(2, 3, 2, 2), normal(3), normal(3)], {"eps": 1e-5}, instance_normed),
]

# -- activations --------------------------------------------------------------------------------------------------------
_erf = onp.vectorize(math.erf)


def leaky(x, gamma=None, act_type="leaky", slope=0.25, lower_bound=0.125, upper_bound=0.333999991):
    if act_type == "prelu":
        slope = gamma if gamma.ndim != 1 else along(gamma, x, 1 if x.ndim > 1 else 0)
    if act_type == "rrelu":
        slope = (lower_bound + upper_bound) / 2
    if act_type in ("gelu", "gelu_erf"):
        return 0.5 * x * (1 + _erf(x / onp.sqrt(2)))
    if act_type == "gelu_tanh":
        return 0.5 * x * (1 + onp.tanh(onp.sqrt(2 / onp.pi) * (x + 0.044715 * x**3)))
    if act_type == "selu":
        return 1.0507009873554805 * onp.where(x > 0, x, 1.6732632423543772 * onp.expm1(onp.minimum(x, 0)))
    return onp.where(x > 0, x, slope * (onp.expm1(onp.minimum(x, 0)) if act_type == "elu" else x))


def activated(x, act_type="relu"):
    return {"relu": lambda: onp.maximum(x, 0), "sigmoid": lambda: 1 / (1 + onp.exp(-x)), "tanh": lambda: onp.tanh(x),
            "softrelu": lambda: onp.log1p(onp.exp(x)), "softsign": lambda: x / (1 + abs(x)), "mish": lambda: x * onp.tanh(onp.log1p(onp.exp(x))),
            "log_sigmoid": lambda: -onp.log1p(onp.exp(-x))}[act_type]()


_A = normal(2, 3, 4)
ACTIVATIONS = [
    *(Case("leaky_relu", [_A], {"act_type": kind, **more}, leaky, train=False)
      for kind, more in (("leaky", {}), ("leaky", {"slope": 0.1}), ("elu", {}), ("elu", {"slope": 1.0}), ("selu", {}), ("gelu", {}), ("gelu_erf", {}),
                         ("gelu_tanh", {}), ("rrelu", {}), ("rrelu", {"lower_bound": 0.2, "upper_bound": 0.4}))),
    Case("leaky_relu", [_A, normal(3)], {"act_type": "prelu"}, leaky),
    Case("leaky_relu", [_A, normal(1)], {"act_type": "prelu"}, leaky, name="prelu,one"),
    Case("leaky_relu", {"data": normal(4), "gamma": normal(4)}, {"act_type": "prelu"}, leaky, name="prelu,vector"),
    *(Case("activation", [_A], {"act_type": kind}, activated) for kind in ("relu", "sigmoid", "tanh", "softrelu", "softsign", "mish", "log_sigmoid")),
    *(Case(kind, [_A], want=lambda x, kind=kind: activated(x, kind)) for kind in ("relu", "sigmoid", "softsign", "log_sigmoid")),
    Case("gelu", [_A], want=lambda x: leaky(x, act_type="gelu")),
]


# -- softmax ------------------------------------------------------------------------------------------------------------
def softmaxed(x, length=None, axis=-1, temperature=None, dtype=None, use_length=False, log=False):
    x = onp.moveaxis(x / (temperature or 1), axis, -1)
    keep = onp.arange(x.shape[-1]) < length[..., None] if use_length else onp.ones(x.shape, bool)
    e = onp.where(keep, onp.exp(x - x.max(-1, keepdims=True)), 0)
    out = e / onp.where(e.sum(-1, keepdims=True) == 0, 1, e.sum(-1, keepdims=True))
    if log:
        out = onp.where(keep, onp.log(onp.where(out > 0, out, 1)), 0)
    return onp.moveaxis(out, -1, axis)


def log_softmaxed(*args, **attributes):
    return softmaxed(*args, **attributes, log=True)


SOFTMAX = [Case(op, given, attributes, want, (0, ), name=f"{attributes}{len(given)}") for op, want in (("softmax", softmaxed), ("log_softmax", log_softmaxed))
           for given, attributes in (([_A], {}), ([_A], {"axis": 1}), ([_A], {"temperature": 2.5, "axis": 0}), ([_A], {"dtype": "float64"}),
                                     ([_A, onp.array([[1, 4, 2], [3, 1, 0]])], {"use_length": True}),
                                     ([_A, onp.array([[1., 2, 2, 3], [2, 1, 3, 1]])], {"use_length": True, "axis": 1, "temperature": 0.5}))]


# -- products -----------------------------------------------------------------------------------------------------------
def connected(x, w, b=None, num_hidden=None, no_bias=False, flatten=True):
    out = (x.reshape(x.shape[0], -1) if flatten else x) @ w.T
    return out if no_bias or b is None else out + b


def batch_dotted(a, b, transpose_a=False, transpose_b=False, **_):
    return (a.swapaxes(-1, -2) if transpose_a else a) @ (b.swapaxes(-1, -2) if transpose_b else b)


PRODUCTS = [
    Case("fully_connected", [normal(2, 3, 4), normal(5, 12), normal(5)], {"num_hidden": 5}, connected),
    Case("fully_connected", [normal(2, 3, 4), normal(5, 4), normal(5)], {"num_hidden": 5, "flatten": False}, connected),
    Case("fully_connected", [normal(3, 4), normal(5, 4)], {"num_hidden": 5, "no_bias": True}, connected),
    Case("fully_connected", {"x": normal(4, 2), "weight": normal(3, 2), "bias": normal(3)}, {"num_hidden": 3, "no_bias": False},
         lambda x, w, b, **a: connected(x, w, b), name="x"),
    *(Case("batch_dot", [normal(2, *((4, 3) if ta else (3, 4))), normal(2, *((5, 4) if tb else (4, 5)))], {"transpose_a": ta, "transpose_b": tb},
           batch_dotted) for ta in (False, True) for tb in (False, True)),
    Case("batch_dot", [normal(2, 2, 3, 4), normal(2, 2, 4, 1)], want=batch_dotted, name="four"),
    *(Case("convolution", [normal(*x), normal(*w), normal(w[0])], {"kernel": w[2:], "num_filter": w[0], **more}, convolved)
      for x, w, more in (((2, 3, 7), (4, 3, 3), {}), ((2, 4, 5, 6), (6, 2, 3, 2), {"num_group": 2, "stride": (2, 1), "pad": (1, 1)}),
                         ((1, 2, 6, 6), (3, 2, 2, 2), {"dilate": (2, 2), "pad": (1, 0)}), ((1, 2, 3, 4, 3), (2, 2, 2, 2, 2), {"pad": (1, 0, 1)}))),
    Case("convolution", [normal(1, 2, 4, 4), normal(3, 2, 3, 3)], {"kernel": (3, 3), "num_filter": 3, "no_bias": True}, convolved),
    Case("convolution", [normal(1, 4, 5, 2), normal(3, 3, 3, 2), normal(3)], {"kernel": (3, 3), "num_filter": 3, "layout": "NHWC"}, convolved),
    *(Case("deconvolution", [normal(*x), normal(*w), *([] if more.get("no_bias", True) else [normal(w[1] * more.get("num_group", 1))])],
           {"kernel": w[2:], "num_filter": w[1] * more.get("num_group", 1), **more}, deconvolved)
      for x, w, more in (((2, 3, 5), (3, 2, 3), {}), ((1, 4, 3, 4), (4, 3, 3, 2), {"num_group": 2, "stride": (2, 2), "pad": (1, 0), "adj": (1, 0)}),
                         ((1, 2, 3, 3), (2, 2, 2, 2), {"dilate": (2, 1), "no_bias": False}),
                         ((1, 2, 4, 4), (2, 1, 3, 3), {"stride": (2, 2), "target_shape": (8, 8)}))),
    *(Case("pooling", [normal(*shape)], attributes, pooled)
      for shape, attributes in (((2, 2, 7), {"kernel": (3, ), "stride": (2, )}), ((1, 2, 5, 6), {"kernel": (3, 2), "pool_type": "avg", "pad": (1, 1)}),
                                ((1, 2, 6, 6), {"kernel": (3, 3), "stride": (2, 2), "pooling_convention": "full"}),
                                ((1, 2, 6, 6), {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1), "pooling_convention": "full", "pool_type": "avg"}),
                                ((1, 2, 6, 5), {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1), "pool_type": "avg", "count_include_pad": False}),
                                ((1, 2, 5, 5), {"kernel": (2, 2), "stride": (2, 2), "pool_type": "sum", "pooling_convention": "full"}),
                                ((1, 2, 5, 5), {"kernel": (2, 2), "pool_type": "lp", "p_value": 2}),
                                ((1, 2, 5, 5), {"kernel": (2, 2), "pool_type": "lp", "p_value": 1, "stride": (2, 2)}),
                                ((1, 2, 5, 5), {"kernel": (2, 2), "pool_type": "lp", "p_value": 3, "stride": (2, 2)}),
                                ((2, 3, 4, 5), {"global_pool": True, "pool_type": "avg"}), ((2, 3, 4, 5), {"global_pool": True, "kernel": (2, 2)}),
                                ((1, 2, 7), {"kernel": (3, ), "stride": (2, ), "pooling_convention": "same", "pool_type": "sum"}),
                                ((1, 2, 3, 4, 4), {"kernel": (2, 2, 2), "pool_type": "max"}),
                                ((1, 4, 5, 2), {"kernel": (2, 2), "layout": "NHWC"}))),
]


# -- recurrent ----------------------------------------------------------------------------------------------------------
def rnn_case(mode, layers=1, bidirectional=False, lengths=None, **more):
    length, batch, width, size = 4, 3, 2, 3
    d = 2 if bidirectional else 1
    given = {"data": normal(length, batch, width), "parameters": 0.5 * normal(vector_length(mode, layers, d, width, size, more.get("projection_size"))),
             "state": normal(layers * d, batch, more.get("projection_size") or size)}
    if mode == "lstm":
        given["state_cell"] = normal(layers * d, batch, size)
    if lengths is not None:
        given["sequence_length"] = onp.array(lengths)
        more["use_sequence_length"] = True
    attributes = {"state_size": size, "num_layers": layers, "mode": mode, "bidirectional": bidirectional, **more}
    floats = (0, 1, 2, 3) if mode == "lstm" else (0, 1, 2)
    return Case("rnn", given, attributes, lambda *v, **a: recurrent(dict(zip(given, v)), **a), floats, name=f"{mode},{layers},{d},{lengths},{more}")


RECURRENT = [*(rnn_case(mode, state_outputs=True) for mode in ("lstm", "gru", "rnn_tanh", "rnn_relu")),
             rnn_case("lstm", 2, True, state_outputs=True), rnn_case("gru", 2, True), rnn_case("rnn_tanh", 1, True, state_outputs=True),
             rnn_case("lstm", 2, True, [4, 2, 1], state_outputs=True), rnn_case("gru", 1, True, [3., 4., 1.], state_outputs=True),
             rnn_case("rnn_relu", 1, False, [1, 2, 4]), rnn_case("lstm", projection_size=2, state_outputs=True),
             rnn_case("lstm", 2, True, projection_size=2),
             rnn_case("lstm", lstm_state_clip_min=-0.3, lstm_state_clip_max=0.4, state_outputs=True)]


# -- indices --------------------------------------------------------------------------------------------------------------
def picked(x, index, axis=-1, keepdims=False, mode="clip"):
    index = index.astype(int)
    if axis is None:
        return onp.take(x.ravel(), index, mode=mode)
    index = index if index.ndim == x.ndim else onp.expand_dims(index, axis)
    n = x.shape[axis]
    out = onp.take_along_axis(x, onp.clip(index, 0, n - 1) if mode == "clip" else index % n, axis)
    return out if keepdims else out.squeeze(axis)


def added(a, ind, val):
    out = a.copy()
    onp.add.at(out, tuple(ind) if ind.ndim == 2 else (ind, ), val)
    return out


def updated(a, ind, val):
    out = a.copy()
    out[tuple(ind) if ind.ndim == 2 else (ind, )] = val
    return out


def top(x, axis=-1, k=1, ret_typ="indices", is_ascend=False, dtype="float32"):
    shape = x.shape
    if axis is None:
        x, axis = x.ravel(), 0
    order = onp.argsort(x if is_ascend else -x, axis, kind="stable")
    order = onp.take(order, onp.arange(k if k >= 1 else x.shape[axis]), axis)
    if ret_typ == "mask":
        mask = onp.zeros_like(x)
        onp.put_along_axis(mask, order, 1, axis)
        return mask.reshape(shape)
    values = onp.take_along_axis(x, order, axis)
    return values if ret_typ == "value" else order if ret_typ == "indices" else [values, order]


def embedded(index, weight, **_):
    return weight[onp.clip(index.astype(int), 0, len(weight) - 1)]


INDICES = [
    Case("embedding", [integers(0, 4, 2, 3), normal(4, 3)], {"input_dim": 4, "output_dim": 3}, embedded),
    Case("embedding", [onp.array([1., 9, -3, 1]), normal(4, 2)], {}, embedded, gradients=(1, ), name="outside"),
    Case("gather_nd", [normal(3, 4, 2), onp.array([[0, 2, 1], [1, 3, -1]])], want=lambda x, i: x[tuple(i)]),
    Case("gather_nd", [normal(3, 4), onp.array([[[0., 2]], [[1, 3]]])], want=lambda x, i: x[tuple(i.astype(int))], gradients=(0, ), name="floats"),
    Case("gather_nd", [normal(3, 4), onp.array([[0, 2, 2]])], want=lambda x, i: x[tuple(i)], name="rows"),
    *(Case(op, [normal(2, 3, 4), onp.array(ind), val], want=want, name=f"{onp.shape(ind)},{onp.shape(val)}") for op, want in
      (("index_add", added), ("index_update", updated))
      for ind, val in (([[0, 1], [2, -1], [3, 0]], normal(2)), ([[0, 1], [2, -1]], normal(2, 4)), ([[0, 1], [2, 0]], normal(4)),
                       ([1, 0], normal(3, 4)), ([[1]], normal(1, 1, 4)), (1, normal(3, 1)))),
    Case("index_add", [normal(3), onp.array([[1, 1, 0]]), normal(3)], want=added, name="repeated"),
    *(Case("pick", [_A, index], {"mode": mode, "axis": axis, "keepdims": keep}, picked, gradients=(0, ), name=f"{mode},{axis},{keep},{index.dtype}")
      for mode in ("clip", "wrap") for index, axis, keep in ((integers(-3, 7, 2, 3), -1, False), (integers(-3, 7, 2, 4).astype(float), 1, True),
                                                             (integers(0, 2, 1, 3, 4), 0, False))),
    Case("pick", [_A, onp.array([3, 70, 5])], {"axis": None}, picked, name="flat"),
    *(Case("topk", [_A], {"ret_typ": kind, **more}, top, gradients=False if kind in ("mask", "indices") else True)
      for kind in ("value", "indices", "mask") for more in ({}, {"k": 2}, {"k": 2, "is_ascend": True, "axis": 1}, {"k": 0}, {"k": 3, "axis": None})),
    Case("topk", [_A], {"ret_typ": "both", "k": 2, "dtype": "int32"}, top, gradients=False),
    Case("one_hot", [onp.array([[0, 2], [5, -1]])], {"depth": 3, "on_value": 2.0, "off_value": -1.0},
         lambda i, depth, on_value, off_value: onp.where(i[..., None] == onp.arange(depth), on_value, off_value),
         gradients=False),
    Case("nonzero", [onp.array([[1., 0], [0, 2]])], want=onp.argwhere, gradients=False),
    Case("constraint_check", [onp.array([True, True])], {"msg": "no"}, lambda x, msg: onp.array(True)),
]


# -- shapes -----------------------------------------------------------------------------------------------------------------
def ranged(x, start=0.0, step=1.0, repeat=1, ctx="", axis=None):
    n = x.size if axis is None else x.shape[axis]
    out = start + step * (onp.arange(n) // repeat)
    return out.reshape(x.shape) if axis is None else out


def wide(x, like, lhs_axes=None, rhs_axes=None):
    shape = list(like.shape)
    if lhs_axes is not None:
        shape = list(x.shape)
        for a, b in zip(*([v] if isinstance(v, int) else v for v in (lhs_axes, rhs_axes))):
            shape[a] = like.shape[b]
    return onp.broadcast_to(x, shape)


def padded(x, mode, pad_width, constant_value=0.0):
    widths = list(zip(pad_width[::2], pad_width[1::2]))
    return onp.pad(x, widths, mode, **({"constant_values": constant_value} if mode == "constant" else {}))


def cut_like(x, like, axes=()):
    shape = list(x.shape)
    for a in axes or range(x.ndim):
        shape[a] = like.shape[a]
    return x[tuple(slice(n) for n in shape)]


def normed_as(x, ord=2, axis=None, keepdims=False, out_dtype=None):
    axis = None if axis == () else axis
    out = onp.abs(x).sum(axis, keepdims=keepdims) if ord == 1 else onp.sqrt((x * x).sum(axis, keepdims=keepdims))
    return onp.reshape(out, 1) if axis is None and not keepdims else out


def cut(x, begin, end, step=()):
    pairs = zip(*[(v, ) if isinstance(v, int) else v for v in (begin, end)], step or [None] * 9)
    return x[tuple(slice(*p) for p in pairs)]


def channels(x, num_outputs, axis=1, squeeze_axis=False):
    return [part.squeeze(axis) if squeeze_axis else part for part in onp.split(x, num_outputs, axis)]


def reshaped_to(shape):
    return lambda x, *_, **__: x.reshape(shape)


_W, _P = normal(2, 3, 4, 5), normal(2, 1, 3, 3)
SHAPES = [
    Case("batch_flatten", [_W], want=lambda x: x.reshape(2, -1)),
    Case("arange_like", [_A], want=ranged), Case("arange_like", [_A], {"start": 1.0, "step": 0.5, "repeat": 2, "axis": -1}, ranged),
    Case("broadcast_like", [normal(1, 3), normal(4, 3)], want=wide),
    Case("broadcast_like", [normal(2, 1, 3), normal(5, 7)], {"lhs_axes": (1, ), "rhs_axes": (-1, )}, wide),
    Case("broadcast_like", [normal(1, 2, 1), normal(5, 7)], {"lhs_axes": (0, 2), "rhs_axes": (1, 0)}, wide),
    *(Case("pad", [_P], {"mode": mode, "pad_width": width, **more}, padded)
      for mode, width, more in (("constant", (0, 0, 0, 0, 1, 2, 0, 1), {"constant_value": 3.5}), ("edge", (0, 0, 0, 0, 2, 1, 1, 1), {}),
                                ("reflect", (0, 0, 0, 0, 1, 1, 2, 0), {}), ("constant", (1, 0, 0, 1, 0, 0, 0, 0), {}))),
    Case("slice_like", [_A, normal(1, 2, 3)], want=cut_like), Case("slice_like", [_A, normal(2, 2, 9)], {"axes": (0, 1)}, cut_like),
    Case("slice_like", [_A, normal(9, 2, 3)], {"axes": (-1, )}, cut_like),
    *(Case("norm", [_A], attributes, normed_as) for attributes in ({}, {"ord": 1}, {"axis": 1}, {"axis": (0, 2), "ord": 1}, {"axis": (1, 2), "keepdims": True},
                                                                   {"keepdims": True}, {"ord": 1, "axis": -1}, {"axis": ()}, {"out_dtype": "float64"})),
    *(Case("slice", [_A], dict(zip(("begin", "end", "step"), v)), cut)
      for v in (((0, 1), (1, 3)), ((None, 2, 1), (None, 0, 4), (1, -1, 2)), ((1, ), (2, )), ((None, -1), (None, None), (-1, -1)), (1, 2))),
    Case("slice_channel", [_A], {"num_outputs": 3}, channels), Case("slice_channel", [_A], {"num_outputs": 3, "squeeze_axis": True}, channels),
    Case("slice_channel", [_A], {"num_outputs": 2, "axis": -1}, channels), Case("slice_channel", [_A], {"num_outputs": 1}, channels),
    *(Case("reshape", [normal(2, 1, 6, 4)], {"newshape": codes, **more}, reshaped_to(shape), name=str((codes, more)))
      for codes, more, shape in (((-1, ), {}, 48), ((-2, -2, -1), {}, (2, 1, 24)), ((-2, -3, -4), {}, (2, 6, 4)), ((-5, -4), {}, (2, 6, 4)),
                                 ((-2, -2, -6, 2, -1, -2), {}, (2, 1, 2, 3, 4)), ((-2, -2, -6, -1, 2, -4), {}, (2, 1, 3, 2, 4)), ((8, -1), {}, (8, 6)),
                                 (48, {}, 48), ((-1, -2), {"reverse": True}, (12, 4)), ((-5, -2), {"reverse": True, }, None), ((-4, -5), {}, None),
                                 ((-4, -6, 2, -1), {"reverse": True}, (2, 1, 6, 2, 2)), ((-4, 3, 8), {"reverse": True}, (2, 1, 3, 8))) if shape),
    Case("reshape_like", [normal(2, 6), normal(3, 4)], want=lambda x, y: x.reshape(y.shape)),
    Case("reshape_like", [normal(30, 7), normal(15, 2, 4)], {"lhs_begin": 0, "lhs_end": 1, "rhs_begin": 0, "rhs_end": 2}, reshaped_to((15, 2, 7))),
    Case("reshape_like", [normal(5, 6), normal(9, 2, 3)], {"lhs_begin": -1, "rhs_begin": 1}, reshaped_to((5, 2, 3))),
]

# -- straight through, sequences --------------------------------------------------------------------------------------------
_STE = onp.array([[-2.5, -1.4, -0.0], [0.5, 1.5, 2.4]])
_S = normal(4, 3, 2)


def lengths_of(x, length, use, axis):
    return length.astype(int) if use and length is not None else onp.full(x.shape[1 - axis], x.shape[axis])


def masked(x, length=None, use_sequence_length=False, value=0.0, axis=0):
    out = x.copy().swapaxes(0, axis)
    for k, n in enumerate(lengths_of(x, length, use_sequence_length, axis)):
        out[n:, k] = value
    return out.swapaxes(0, axis)


def last(x, length=None, use_sequence_length=False, axis=0):
    return onp.stack([x.swapaxes(0, axis)[n - 1, k] for k, n in enumerate(lengths_of(x, length, use_sequence_length, axis))])


def turned(x, length=None, use_sequence_length=False, axis=0):
    out = x.copy().swapaxes(0, axis)
    for k, n in enumerate(lengths_of(x, length, use_sequence_length, axis)):
        out[:n, k] = out[:n, k][::-1]
    return out.swapaxes(0, axis)


SEQUENCES = [
    Case("round_ste", [_STE], want=lambda x: onp.sign(x) * onp.floor(onp.abs(x) + 0.5), exact={0: onp.ones((2, 3))}),
    Case("sign_ste", [_STE], want=onp.sign, exact={0: onp.ones((2, 3))}),
    Case("stop_gradient", [_STE], want=lambda x: x, exact={0: onp.zeros((2, 3))}),
    *(Case(op, given, attributes, want, gradients=(0, ), name=f"{attributes}{len(given)}") for op, want in
      (("sequence_mask", masked), ("sequence_last", last), ("sequence_reverse", turned))
      for given, attributes in (([_S], {}), ([_S, onp.array([1, 4, 2])], {"use_sequence_length": True}), ([_S, onp.array([1., 2, 2])], {}),
                                ([_S, onp.array([1., 3, 2, 2])], {"use_sequence_length": True, "axis": 1}))),
    Case("sequence_mask", [_S, onp.array([0, 4, 2])], {"use_sequence_length": True, "value": -1.5}, masked, gradients=(0, )),
    Case("dropout", [_A], {"p": 0.5}, lambda x, p: x, train=False), Case("dropout", [_A], {"p": 0.0, "mode": "always"}, lambda x, **_: x),
]

CASES = [*NORMS, *ACTIVATIONS, *SOFTMAX, *PRODUCTS, *RECURRENT, *INDICES, *SHAPES, *SEQUENCES]

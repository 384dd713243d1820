"""Layers: convolution, pooling, products that accumulate, recurrent steps and lookup tables, by loops of numpy."""
import itertools

import numpy as np
import pytest

import dcml
from dcml.neon.backends import gen_backend

TOLERANCE = {np.float64: 1e-11, np.float32: 2e-4, np.float16: 6e-2}
TYPES = pytest.mark.parametrize("dtype", TOLERANCE, ids=lambda t: t.__name__)


def random(shape, seed=0):
    return np.random.RandomState(seed).uniform(-1, 1, shape)


def close(tensor, want):
    tolerance = TOLERANCE[tensor.dtype.type]
    np.testing.assert_allclose(tensor.get().reshape(want.shape), want, rtol=tolerance, atol=tolerance * max(1, np.abs(want).max()))


# -- convolution -----------------------------------------------------------------------------------
CONVS = {
    "plain": dict(N=3, C=2, K=4, H=6, W=7, R=3, S=2),
    "points": dict(N=2, C=3, K=5, H=2, W=3),
    "deep": dict(N=2, C=3, K=2, D=4, H=6, W=7, T=2, R=3, S=2, pad_d=1, pad_h=1, pad_w=1, str_d=2, str_h=2, str_w=3),
    "dilated": dict(N=2, C=2, K=3, H=9, W=9, R=3, S=3, dil_h=2, dil_w=3, pad_h=1, str_w=2),
}


def convolved(layer, I, F, E):
    """What a convolution gives, and its gradients."""
    O, GI, GF = np.zeros(layer.dimO), np.zeros(layer.dimI), np.zeros(layer.dimF)
    for to in itertools.product(*map(range, layer.MPQ)):
        for tap in itertools.product(*map(range, layer.TRS)):
            at = [o * s - p + t * d for o, s, p, t, d in zip(to, layer.strides, layer.padding, tap, layer.dilation)]
            if all(0 <= x < n for x, n in zip(at, layer.DHW)):
                i, f, o = (slice(None), *at), (slice(None), *tap), (slice(None), *to)
                O[o] += F[f].T @ I[i]
                GI[i] += F[f] @ E[o]
                GF[f] += I[i] @ E[o].T
    return O, GI, GF


@TYPES
@pytest.mark.parametrize("name", CONVS)
def test_a_convolution_and_its_gradients(name, dtype):
    be = gen_backend(datatype=dtype)
    layer = be.conv_layer(dtype, **CONVS[name])
    I, F, E = random(layer.dimI, 1).astype(dtype), random(layer.dimF, 2).astype(dtype), random(layer.dimO, 3).astype(dtype)
    O, GI, GF = convolved(layer, *(x.astype(np.float64) for x in (I, F, E)))
    i, f, e = be.array(I), be.array(F), be.array(E)
    o, gi, gf = be.empty(layer.dimO), be.empty(layer.dimI), be.empty(layer.dimF)
    be.fprop_conv(layer, i, f, o)
    be.bprop_conv(layer, f, e, gi)
    be.update_conv(layer, i, e, gf)
    close(o, O), close(gi, GI), close(gf, GF)


def test_a_convolutions_options_and_flat_tensors():
    be = gen_backend(datatype=np.float64)
    layer = be.conv_layer(np.float64, **CONVS["plain"])
    I, F, E, X, B = random(layer.dimI, 1), random(layer.dimF, 2), random(layer.dimO, 3), random(layer.dimO, 4), random((4, 1), 5)
    O, GI, GF = convolved(layer, I, F, E)
    i, f, e = be.array(I.reshape(layer.dimI2)), be.array(F.reshape(layer.dimF2)), be.array(E.reshape(layer.dimO2))
    o, gi, gf, sums = be.array(X.reshape(layer.dimO2)), be.empty(layer.dimI2), be.empty(layer.dimF2), be.empty((4, 1))
    be.fprop_conv(layer, i, f, o, alpha=2.0, beta=0.5)
    close(o, 2 * O + X / 2)
    be.fprop_conv(layer, i, f, o, 2.0, True)
    close(o, np.maximum(2 * O, 0))
    be.fprop_conv(layer, i, f, o, bias=be.array(B), bsum=sums, relu=True, slope=0.1, repeat=2)
    biased = O + B.reshape(4, 1, 1, 1, 1)
    close(o, np.where(biased > 0, biased, biased / 10))
    close(sums, np.where(biased > 0, biased, biased / 10).reshape(4, -1).sum(1, keepdims=True))
    be.fprop_conv(layer, i, f, o, X=be.array(X), brelu=True)
    close(o, O * (X > 0))
    be.bprop_conv(layer, f, e, gi, alpha=0.5, relu=True)
    close(gi, np.maximum(GI / 2, 0))
    be.update_conv(layer, i, e, gf, alpha=3.0)
    close(gf, 3 * GF)
    be.update_conv(layer, i, e, gf, beta=1.0, grad_bias=sums)
    close(gf, 4 * GF), close(sums, E.reshape(4, -1).sum(1, keepdims=True))
    rectified = be.conv_layer(np.float64, relu=True, **CONVS["plain"])
    be.fprop_conv(rectified, i, f, o)
    close(o, np.maximum(O, 0))


def test_a_convolutional_layer_says_its_sizes():
    be = gen_backend()
    layer = be.conv_layer(np.float32, 16, 3, 8, 1, 28, 30, 1, 5, 3, 0, 2, 1, 1, 2, 1)
    assert (layer.dimI, layer.dimF, layer.dimO) == ((3, 1, 28, 30, 16), (3, 1, 5, 3, 8), (8, 1, 14, 30, 16))
    assert (layer.dimI2, layer.dimF2, layer.dimO2) == ((2520, 16), (45, 8), (3360, 16))
    assert (layer.sizeI, layer.sizeF, layer.sizeO, layer.nOut) == (40320, 360, 53760, 3360)
    assert (layer.NCK, layer.TRS, layer.DHW, layer.MPQ, layer.padding, layer.strides) == ((16, 3, 8), (1, 5, 3), (1, 28, 30), (1, 14, 30), (0, 2, 1), (1, 2, 1))
    assert (layer.N, layer.C, layer.K, layer.M, layer.P, layer.Q, layer.dimS, layer.dtype) == (16, 3, 8, 1, 14, 30, (8, 1), np.float32)


def test_a_deconvolution_reverses_a_convolution():
    be = gen_backend(datatype=np.float64)
    layer = be.deconv_layer(np.float64, 2, 3, 4, 5, 6, 3, 2, pad_h=1, str_h=2, str_w=3)
    assert layer.dimO == (4, 1, 5, 6, 2) and layer.dimI == (3, 1, 9, 17, 2) and layer.dimF == (3, 1, 3, 2, 4) and (layer.H, layer.W) == (9, 17)
    assert layer.nOut == 3 * 9 * 17 and layer.DHW == (1, 9, 17) and layer.MPQ == (1, 5, 6)
    I, F, E = random(layer.dimI, 1), random(layer.dimF, 2), random(layer.dimO, 3)
    O, GI, GF = convolved(layer, I, F, E)
    out, error, update = be.empty(layer.dimI), be.empty(layer.dimO), be.empty(layer.dimF)
    be.bprop_conv(layer, be.array(F), be.array(E), out)
    be.fprop_conv(layer, be.array(I), be.array(F), error)
    be.update_conv(layer, be.array(I), be.array(E), update)
    close(out, GI), close(error, O), close(update, GF)
    assert be.deconv_layer(np.float64, 1, 1, 1, 2, 2, M=3, T=2, str_d=2).dimI == (1, 6, 2, 2, 1)


# -- pooling ---------------------------------------------------------------------------------------
POOLS = {
    "space": dict(N=2, C=4, H=5, W=6, R=2, S=3),
    "all-dimensions": dict(N=2, C=5, D=3, H=5, W=5, J=2, T=2, R=3, S=3, pad_j=1, pad_h=1, pad_w=1, str_j=1, str_d=1, str_h=2, str_w=2),
    "as-large-as-its-input": dict(N=3, C=2, H=4, W=4, R=3, S=3, pad_h=1, pad_w=1, str_h=1, str_w=1),
    "feature-maps": dict(N=4, C=6, J=2),
}


def pooled(layer, I, E):
    """What pooling gives, the places of maxima, and the gradient."""
    O, A, G = np.zeros(layer.dimO), np.zeros(layer.dimO, int), np.zeros(layer.dimI)
    for at in itertools.product(*map(range, layer.dimO[:4])):
        begin = [o * s - p for o, s, p in zip(at, layer.strides, layer.padding)]
        window = tuple(slice(max(b, 0), min(b + k, n)) for b, k, n in zip(begin, layer.JTRS, layer.dimI))
        shape, x, e = I[window].shape, I[window].reshape(-1, layer.N), E[at]
        if layer.op == "max":
            A[at], O[at] = x.argmax(0), x.max(0)
            g = np.zeros_like(x)
            g[A[at], range(layer.N)] = e
        elif layer.op == "avg":
            O[at], g = x.mean(0), np.ones_like(x) * e / len(x)
        else:
            O[at] = np.sqrt((x**2).sum(0))
            g = x * e / O[at]
        G[window] += g.reshape(shape)
    return O, A, G


@pytest.mark.parametrize("caffe", [False, True])
@pytest.mark.parametrize("op", ["max", "avg", "l2"])
@pytest.mark.parametrize("name", POOLS)
def test_pooling_and_its_gradient_in_all_forms(name, op, caffe):
    be = gen_backend(datatype=np.float64, compat_mode="caffe" if caffe else None)
    layer = be.pool_layer(np.float64, op, **POOLS[name])
    I, E = random(layer.dimI, 1), random(layer.dimO, 2)
    O, A, G = pooled(layer, I, E)
    i, e = be.array(I.reshape(layer.dimI2)), be.array(E)
    o, places, delta = be.empty(layer.dimO2), be.empty(layer.dimO, dtype=np.int8), be.empty(layer.dimI)
    be.fprop_pool(layer, i, o)
    close(o, O)
    be.bprop_pool(layer, i, e, delta)
    close(delta, G)
    be.bprop_pool(layer, I=i, E=e, grad_I=delta)
    close(delta, G)
    be.fprop_pool(layer, i, o, places, beta=1.0)
    close(o, 2 * O)
    if op == "l2":
        with pytest.raises(dcml.UnsupportedOpError, match="l2"):
            be.bprop_pool(layer, e, delta)
        return
    if op == "max":
        assert np.array_equal(places.get(), A)
    be.bprop_pool(layer, e, delta, places, alpha=2.0, beta=1.0)
    close(delta, 3 * G)
    be.bprop_pool(layer, E=e, delta=delta, argmax=places)
    close(delta, G)
    if op == "avg":
        be.bprop_pool(layer, e, delta)
        close(delta, G)


@TYPES
def test_pooling_in_all_types(dtype):
    be = gen_backend(datatype=dtype)
    for op in ("max", "avg", "l2"):
        layer = be.pool_layer(dtype, op, **POOLS["space"])
        I, E = random(layer.dimI, 1).astype(dtype), random(layer.dimO, 2).astype(dtype)
        o, delta = be.empty(layer.dimO), be.empty(layer.dimI)
        be.fprop_pool(layer, be.array(I), o)
        be.bprop_pool(layer, be.array(I), be.array(E), delta)
        O, _, G = pooled(layer, I.astype(np.float64), E.astype(np.float64))
        close(o, O), close(delta, G)


def test_places_of_maxima_outside_of_their_windows_are_nowhere():
    be = gen_backend()
    layer = be.pool_layer(np.float32, "max", N=1, C=1, H=4, W=4, R=2, S=2)
    delta = be.ones(layer.dimI)
    be.bprop_pool(layer, be.ones(layer.dimO), delta, be.array(np.array([99, -7, 4, 3]).reshape(layer.dimO), dtype=np.int32))
    assert delta.get().sum() == 1 and delta.get()[0, 0, 3, 3, 0] == 1


def test_a_window_of_zeros_has_no_l2_gradient():
    be = gen_backend()
    layer = be.pool_layer(np.float32, "l2", N=1, C=1, H=2, W=2, R=2, S=2)
    delta = be.ones(layer.dimI)
    be.bprop_pool(layer, be.zeros(layer.dimI), be.ones(layer.dimO), delta)
    assert not delta.get().any()


def test_a_pooling_layer_says_its_sizes():
    be = gen_backend()
    layer = be.pool_layer(np.float32, "max", 8, 4, 1, 6, 6, 2, 1, 2, 2)
    assert (layer.dimI, layer.dimO, layer.dimI2, layer.dimO2) == ((4, 1, 6, 6, 8), (2, 1, 3, 3, 8), (144, 8), (18, 8))
    assert (layer.op, layer.JTRS, layer.DHW, layer.MPQ, layer.padding, layer.strides) == ("max", (2, 1, 2, 2), (1, 6, 6), (1, 3, 3), (0,) * 4, (2, 1, 2, 2))
    assert (layer.C, layer.K, layer.M, layer.P, layer.Q, layer.N, layer.nOut, layer.sizeI, layer.sizeO) == (4, 2, 1, 3, 3, 8, 18, 1152, 144)
    assert layer.overlap == 0.0 and be.pool_layer(np.float32, "avg", 1, 1, H=4, W=4, R=3, S=3, str_h=1, str_w=2).overlap == 6.0
    assert be.pool_layer(np.float32, "max", 1, 4, J=2, str_c=1).dimO == (3, 1, 1, 1, 1)


@pytest.mark.parametrize("make, error, says", [
    (lambda be, c, p, t: be.fprop_conv(c, t, t, t), dcml.ShapeError, "fprop_conv.*I has shape"),
    (lambda be, c, p, t: be.bprop_conv(c, np.ones(3), t, t), TypeError, "bprop_conv.*F is a Tensor"),
    (lambda be, c, p, t: be.fprop_pool(p, t, t), dcml.ShapeError, "fprop_pool.*I has shape"),
    (lambda be, c, p, t: be.bprop_pool(p, t, t, t), dcml.ShapeError, "bprop_pool.*E has shape"),
    (lambda be, c, p, t: be.bprop_pool(p, t), TypeError, "bprop_pool.*not given"),
    (lambda be, c, p, t: be.bprop_pool(p, t, t, t, gamma=1), TypeError, "gamma"),
    (lambda be, c, p, t: be.bprop_pool(p, t, t, t, 1, 2, 3, 4), TypeError, "at most"),
    (lambda be, c, p, t: be.bprop_pool(p, be.ones(p.dimO), be.ones(p.dimI)), TypeError, "argmax"),
    (lambda be, c, p, t: be.conv_layer(np.float32, 0, 1, 1), dcml.ValueError_, "conv_layer.*N is 0"),
    (lambda be, c, p, t: be.conv_layer(np.float32, 1, 1, 1, H=2, R=5), dcml.ShapeError, "conv_layer.*do not fit"),
    (lambda be, c, p, t: be.deconv_layer(np.float32, 1, 1, 1, 1, 1, pad_h=3), dcml.ShapeError, "deconv_layer"),
    (lambda be, c, p, t: be.pool_layer(np.float32, "min", 1, 1), dcml.ValueError_, "'min'"),
    (lambda be, c, p, t: be.pool_layer(np.float32, "max", 1, 1, H=2, R=2, pad_h=2), ValueError, "padding"),
    (lambda be, c, p, t: be.pool_layer(np.float32, "max", 1, 1, str_h=0), dcml.ValueError_, "strides"),
    (lambda be, c, p, t: be.compound_dot(t, t, t), dcml.ShapeError, "dot"),
    (lambda be, c, p, t: be.compound_dot(t, t.T, 1), TypeError, "C is a Tensor"),
    (lambda be, c, p, t: be.batched_dot(t, t, t), dcml.ShapeError, "batched_dot"),
    (lambda be, c, p, t: be.compound_bprop_lut(4, t, t, None, t, None), dcml.ShapeError, "compound_bprop_lut"),
])
def test_errors_of_layers_say_the_method_and_the_argument(make, error, says):
    be = gen_backend()
    conv, pool = be.conv_layer(np.float32, **CONVS["plain"]), be.pool_layer(np.float32, "max", **POOLS["space"])
    with pytest.raises(error, match=says):
        make(be, conv, pool, be.ones((2, 3)))


# -- products --------------------------------------------------------------------------------------

@TYPES
def test_products_accumulate(dtype):
    be = gen_backend(datatype=dtype)
    A, B, C = (random(s, k).astype(dtype) for k, s in enumerate([(3, 4), (4, 5), (3, 5)]))
    product = A.astype(np.float64) @ B
    for options, want in [({}, product), ({"alpha": 2.0}, 2 * product), ({"alpha": 2.0, "beta": 0.5}, 2 * product + C / 2),
                          ({"relu": True, "beta": 1.0}, np.maximum(product, 0) + C), ({"relu": True}, np.maximum(product, 0))]:
        c, sums = be.array(C), be.empty((3, 1))
        assert be.compound_dot(be.array(A), be.array(B), c, bsum=sums, **options) is c
        close(c, want), close(sums, want.sum(1, keepdims=True))
        turned = be.array(C.T).T
        be.compound_dot(be.array(A.T).T, be.array(B.T).T, turned, **options)
        close(turned, want)


def test_products_of_signs():
    be = gen_backend()
    A, B, C = np.sign(random((3, 4))), np.sign(random((4, 5), 1)), random((3, 5), 2)
    c = be.array(C)
    assert be.xnor_compound_dot(be.array(A), be.array(B), c) is c
    close(c, A @ B)
    be.xnor_compound_dot(be.array(A), be.array(B), c, beta=1.0)
    close(c, 2 * A @ B)


def test_batched_products_in_all_forms():
    be = gen_backend(datatype=np.float64)
    W, I, E = random((3, 2), 1), random((5, 2, 4), 2), random((5, 3, 4), 3)
    w, i, e = be.array(W), be.array(I), be.array(E)
    out = be.ones((5, 3, 4))
    assert be.batched_dot(w, i, out) is out
    close(out, W @ I)
    be.batched_dot(w, i, out, alpha=2.0, beta=0.5, relu=True)
    close(out, np.maximum(2 * W @ I, 0) + W @ I / 2)
    back, update = be.empty((5, 2, 4)), be.ones((3, 2))
    be.batched_dot(w.T, e, back)
    close(back, W.T @ E)
    be.batched_dot(e, i.T, update)
    close(update, sum(x @ y.T for x, y in zip(E, I)))
    each = be.empty((5, 3, 2))
    be.batched_dot(e, i.T, each)
    close(each, E @ I.swapaxes(1, 2))


def test_biases_are_added_in_place_and_summed():
    be = gen_backend()
    inputs, bias = be.ones((2, 3)), be.array([[1.0], [2.0]])
    assert be.add_fc_bias(inputs, bias) is inputs and inputs.get().tolist() == [[2, 2, 2], [3, 3, 3]]
    assert be.update_fc_bias(inputs, bias) is bias and bias.get().tolist() == [[6], [9]]


# -- recurrent layers and lookup tables ------------------------------------------------------------

class Tanh:
    def __init__(self, be):
        self.be = be

    def __call__(self, x):
        return self.be.tanh(x)

    def bprop(self, x):
        return 1.0 - self.be.square(x)


def steps(tensor, n):
    width = tensor.shape[1] // n
    return [tensor[:, k * width:(k + 1) * width] for k in range(n)]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("used", [None, 3])
@pytest.mark.parametrize("same", [False, True])
def test_recurrent_steps(reverse, used, same):
    be = gen_backend(datatype=np.float64)
    nout, n, width = 3, 5, 2
    W, FF, B = random((nout, nout), 1), random((nout, n * width), 2), random((nout, 1), 3)
    w, b, ff = be.array(W), be.array(B), be.array(FF)
    padded = be.zeros((nout, (n + 2) * width))
    h_all = padded[:, width:(n + 1) * width]
    h_prev = steps(padded[:, 2 * width:] if reverse else padded[:, :n * width], n)
    h = steps(h_all, n)
    if same:
        h_all[:] = ff
    be.compound_rnn_unroll_fprop(w, h_prev, h if same else steps(ff, n), h, b, nout, n, used, Tanh(be), reverse)
    order = list(range(n if used is None else used))
    H = FF.copy() if same else np.zeros_like(FF)
    for t in reversed(order) if reverse else order:
        before = t + 1 if reverse else t - 1
        last = H[:, before * width:(before + 1) * width] if 0 <= before < n else 0
        H[:, t * width:(t + 1) * width] = np.tanh(W @ (last + np.zeros((nout, width))) + FF[:, t * width:(t + 1) * width] + B)
    close(h_all, H)


def test_recurrent_errors():
    be = gen_backend(datatype=np.float64)
    W, D, H = random((3, 3), 1), random((3, 10), 2), np.tanh(random((3, 8), 3))
    delta = be.array(D)
    be.compound_rnn_unroll_bprop(be.array(W), steps(delta[:, 0:8], 4), steps(delta[:, 2:10], 4), steps(be.array(H), 4), 3, 4, None, Tanh(be))
    for t in reversed(range(4)):
        at = slice(2 * t + 2, 2 * t + 4)
        D[:, at] *= 1 - H[:, 2 * t:2 * t + 2] ** 2
        D[:, 2 * t:2 * t + 2] += W @ D[:, at]
    close(delta, D)


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_a_lookup_table_gets_the_errors_of_its_words(dtype):
    be = gen_backend()
    words, E = np.array([3, 0, 3, 1, 5, 0]), random((4, 6), 1)
    want = np.zeros((7, 4))
    for k, word in enumerate(words):
        if word != 1:
            want[word] += E[:, k]
    dW, transposed = be.zeros((7, 4)), be.empty((6, 4))
    given = be.array(words.reshape(1, 6), dtype=dtype), be.array(E)
    be.compound_bprop_lut(6, *given, transposed, dW, 1)
    close(dW, want), close(transposed, E.T)
    be.compound_bprop_lut(6, *given, None, dW, pad_idx=1, alpha=2.0, beta=1)
    close(dW, 3 * want)
    be.compound_bprop_lut(6, *given, None, dW, pad_idx=None)
    want[1] += E[:, 3]
    close(dW, want)
    with pytest.raises(dcml.ValueError_, match="out of range"):
        be.compound_bprop_lut(6, be.array([[9] * 6], dtype=dtype), be.array(E), None, dW, None)

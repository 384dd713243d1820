"""What npx does by state: running statistics, draws, the training mode; parameters and their errors."""
import inspect

import numpy as onp
import pytest

import dcml
from dcml import mx
from dcml.mx import autograd, np, npx

PAGE = """batch_flatten arange_like batch_dot batch_norm sync_batch_norm bipartite_matching box_nms broadcast_like constraint_check convolution
deconvolution deformable_convolution modulated_deformable_convolution ctc_loss dropout embedding fully_connected gather_nd group_norm
instance_norm layer_norm index_add index_update interleaved_matmul_selfatt_qk interleaved_matmul_selfatt_valatt intgemm_maxabsolute
intgemm_prepare_data intgemm_prepare_weight intgemm_fully_connected leaky_relu softmax log_softmax nonzero norm pad pick pooling quantize_v2
requantize quantized_act quantized_conv quantized_fully_connected quantized_elemwise_add quantized_npi_add quantized_elemwise_mul
quantized_embedding quantized_reshape quantized_pooling quantized_rnn reshape reshape_like slice_like rnn roi_pooling round_ste sign_ste
scalar_poisson tensor_poisson sequence_last sequence_mask sequence_reverse sldwin_atten_score sldwin_atten_mask_like sldwin_atten_context
slice slice_channel stop_gradient topk""".split()
X = onp.random.default_rng(0).standard_normal((6, 3, 4))


def test_the_page_has_68_operators_and_each_is_here():
    assert len(PAGE) == 68
    assert not [name for name in PAGE if not callable(getattr(npx, name)) or name not in npx.__all__]
    assert not [name for name in PAGE if not getattr(npx, name).__doc__ or "Parameter" in repr(inspect.signature(getattr(npx, name)))]
    with pytest.raises(AttributeError, match="frobnicate"):
        npx.frobnicate


@pytest.mark.parametrize("op, more", [("batch_norm", {}), ("sync_batch_norm", {"key": "a"})])
def test_running_arrays_follow_the_batch_in_training_only(op, more):
    x, mean, var = np.array(X), np.array(onp.full(3, 2.0)), np.array(onp.full(3, 3.0))
    gamma, beta = np.ones(3, "float64"), np.zeros(3, "float64")
    for p in (gamma, beta, x):
        p.attach_grad()

    def call(**given):
        return getattr(npx, op)(x, gamma, beta, mean, var, momentum=0.75, **given, **more)
    call()
    with autograd.record(train_mode=False):
        call()
    with autograd.record():
        call(use_global_stats=True)
    assert mean.tolist() == [2] * 3 and var.tolist() == [3] * 3
    m, v = onp.full(3, 2.0), onp.full(3, 3.0)
    for _ in range(3):
        with autograd.record():
            y = call(fix_gamma=True)
            call()
        y.sum().backward if False else y.backward()
        for _ in range(2):
            m, v = 0.75 * m + 0.25 * X.mean((0, 2)), 0.75 * v + 0.25 * X.var((0, 2))
    onp.testing.assert_allclose(mean.asnumpy(), m)
    onp.testing.assert_allclose(var.asnumpy(), v)
    assert gamma.grad.tolist() == [0] * 3 and beta.grad.tolist() == [24] * 3
    with autograd.train_mode():
        call()
    assert mean.asnumpy()[0] != m[0]


def test_rrelu_draws_slopes_in_training():
    x = np.array(-onp.ones(1000))
    x.attach_grad()
    with autograd.record():
        y = npx.leaky_relu(x, act_type="rrelu", lower_bound=0.25, upper_bound=0.5)
    y.backward()
    slopes = -y.asnumpy()
    assert 0.25 <= slopes.min() < 0.27 and 0.48 < slopes.max() < 0.5 and abs(slopes.mean() - 0.375) < 0.02
    onp.testing.assert_array_equal(x.grad.asnumpy(), slopes)
    assert set(npx.leaky_relu(x, act_type="rrelu", lower_bound=0.25, upper_bound=0.5).tolist()) == {-0.375}


def test_dropout_draws_in_training_and_always_if_told():
    x = np.array(onp.ones((40, 50)))
    x.attach_grad()
    mx.random.seed(3)
    with autograd.record():
        y = npx.dropout(x, p=0.25)
        z = npx.dropout(x, p=0.25)
    y.backward()
    kept = y.asnumpy()
    assert set(onp.unique(kept)) == {0, 1 / 0.75} and 0.7 < (kept > 0).mean() < 0.8 and (z.asnumpy() != kept).any()
    onp.testing.assert_array_equal(x.grad.asnumpy(), kept)
    mx.random.seed(3)
    with autograd.train_mode():
        onp.testing.assert_array_equal(npx.dropout(x, p=0.25).asnumpy(), kept)
    assert (npx.dropout(x, 0.5).asnumpy() == 1).all() and (npx.dropout(x, 0.5, mode="always").asnumpy() == 0).any()
    rows = npx.dropout(x, 0.5, mode="always", axes=(1, )).asnumpy()
    assert (rows == rows[:, :1]).all() and len(set(rows[:, 0])) == 2
    assert not npx.dropout(x, 1.0, mode="always").asnumpy().any()


def test_poisson_draws():
    mx.random.seed(5)
    a = npx.scalar_poisson(lam=4.0, shape=(100, 100))
    assert a.shape == (100, 100) and a.dtype == np.float32 and abs(a.asnumpy().mean() - 4) < 0.1 and abs(a.asnumpy().var() - 4) < 0.2
    assert npx.scalar_poisson().shape == (1, ) and npx.scalar_poisson(2.0, (2, 3), dtype="float64").dtype == np.float64
    rates = np.array([[1.0, 20], [5, 0]])
    b = npx.tensor_poisson(rates, shape=(500, ))
    assert b.shape == (2, 2, 500) and npx.tensor_poisson(rates).shape == (2, 2)
    onp.testing.assert_allclose(b.asnumpy().mean(-1), rates.asnumpy(), atol=0.8)
    mx.random.seed(5)
    onp.testing.assert_array_equal(npx.scalar_poisson(lam=4.0, shape=(100, 100)).asnumpy(), a.asnumpy())


def test_rnn_drops_between_layers_in_training():
    from mx_torch import vector_length
    rng = onp.random.default_rng(0)
    vector = np.array(rng.standard_normal(vector_length("gru", 2, 1, 3, 5)))
    x, h = np.array(rng.standard_normal((4, 2, 3))), np.array(onp.zeros((2, 2, 5)))

    def call():
        return npx.rnn(x, vector, h, mode="gru", state_size=5, num_layers=2, p=0.5).asnumpy()
    onp.testing.assert_array_equal(call(), call())
    with autograd.train_mode():
        assert (call() != call()).any()


def test_parameters_come_by_position_or_name_as_on_the_page():
    x = np.array(X)
    wanted = npx.softmax(x, axis=1).asnumpy()
    length = np.array(onp.full((6, 4), 3))
    for made in (npx.softmax(x, 1), npx.softmax(data=x, axis=1), npx.softmax(x, None, 1), npx.softmax(x, length, 1, use_length=True),
                 npx.softmax(x, axis=onp.int64(1)), npx.softmax(x, axis=1, name="s")):
        onp.testing.assert_allclose(made.asnumpy(), wanted)
    out = np.zeros(X.shape, "float64")
    assert npx.softmax(x, axis=1, out=out) is out
    onp.testing.assert_allclose(out.asnumpy(), wanted)
    onp.testing.assert_allclose(npx.pick(x, np.zeros((6, 3)), -1, True, "wrap").shape, (6, 3, 1))
    onp.testing.assert_allclose(npx.pick(x, np.zeros((6, 3)), -1, "wrap", True).shape, (6, 3, 1))
    assert npx.softmax(X).dtype == np.float64 and npx.softmax(x, dtype="float32").dtype == np.float32
    assert list(inspect.signature(npx.softmax).parameters)[:6] == ["data", "length", "axis", "temperature", "dtype", "use_length"]


def test_the_order_of_mxnet_2_is_taken_too():
    x = np.array(X)
    wanted = npx.pooling(x, (2, ), "avg", False, False, "full", (2, ), (1, )).asnumpy()
    assert (npx.pooling(x, (2, ), (2, ), (1, ), "avg", "full").asnumpy() == wanted).all()
    assert (npx.pooling(x, (2, ), (2, ), pad=(1, ), pool_type="avg", pooling_convention="full").asnumpy() == wanted).all()
    with pytest.raises(TypeError, match="pooling"):
        npx.pooling(x, (2, ), (2, ), stride=(1, ))
    vector, h = np.array(onp.ones(2 * 4 + 2 * 2 + 4)), np.array(onp.zeros((1, 3, 2)))
    wanted = npx.rnn(x, vector, h, None, None, 2, 1, False, "rnn_tanh").asnumpy()
    assert (npx.rnn(x, vector, h, None, None, "rnn_tanh", 2, 1).asnumpy() == wanted).all()


def test_lengths_of_floats_have_gradients_of_zeros():
    for op, more in (("softmax", {"use_length": True}), ("log_softmax", {"use_length": True}), ("sequence_mask", {"use_sequence_length": True}),
                     ("sequence_last", {"use_sequence_length": True}), ("sequence_reverse", {"use_sequence_length": True})):
        x, n = np.array(X[..., 0]), np.array(onp.array([2.0, 3, 1] if "use_sequence_length" in more else [2.0, 3, 1, 1, 2, 3]))
        x.attach_grad()
        n.attach_grad()
        with autograd.record():
            y = getattr(npx, op)(x, n, **more)
        y.backward()
        assert not n.grad.asnumpy().any() and y.shape


def test_what_is_constrained_is_checked():
    assert npx.constraint_check(np.array([1.0]) > 0, "positive").item() is True
    with pytest.raises(ValueError, match="positive"):
        npx.constraint_check(np.array([1.0, -1]) > 0, "positive")


def test_sparse_embedding_refuses_what_is_outside():
    w = np.ones((3, 2))
    assert npx.embedding(np.array([0, 2]), w, 3, 2, sparse_grad=True).shape == (2, 2)
    with pytest.raises(dcml.ValueError_, match="embedding"):
        npx.embedding(np.array([0, 3]), w, 3, 2, sparse_grad=True)


x, ints = np.array(X), np.array(onp.array([[0], [9]]))


@pytest.mark.parametrize("call, error, told", [
    (lambda: npx.softmax(x, axes=1), TypeError, "softmax.*axes"), (lambda: npx.softmax(), TypeError, "softmax.*data"), (lambda: npx.softmax(x, axis="a"), TypeError, "axis"),
    (lambda: npx.softmax("x"), TypeError, "softmax.*data"), (lambda: npx.softmax(x, axis=7), dcml.Error, "softmax"), (lambda: npx.softmax(x, dtype="qq"), dcml.DTypeError, "q"),
    (lambda: npx.fully_connected(x, np.ones((2, 5)), num_hidden=2), dcml.Error, "Gemm|fully_connected"), (lambda: npx.fully_connected(x), TypeError, "weight"),
    (lambda: npx.fully_connected(x, np.ones((2, 12), "float64"), num_hidden=3), dcml.ShapeError, "num_hidden 3"),
    (lambda: npx.convolution(x, np.ones((2, 3, 3, 3)), kernel=(3, 3), num_filter=2), dcml.ShapeError, "convolution"),
    (lambda: npx.convolution(x, np.ones((2, 3, 3), "float64"), kernel=(2, ), num_filter=2), dcml.ShapeError, "kernel"),
    (lambda: npx.convolution(x, np.ones((2, 3, 3), "float64"), kernel=(3, ), num_filter=2, layout="NHWC"), dcml.ValueError_, "layout"),
    (lambda: npx.pooling(x), TypeError, "kernel"), (lambda: npx.pooling(x, (2, 2)), dcml.ShapeError, "kernel"), (lambda: npx.pooling(x, (9, )), dcml.ShapeError, "pooling"),
    (lambda: npx.pooling(x, (2, ), "median"), dcml.Error, "pool_type"), (lambda: npx.pooling(x, (2, ), "lp"), TypeError, "p_value"), (lambda: npx.pooling(x, (0, )), dcml.ValueError_, "pooling"),
    (lambda: npx.reshape(x, (5, -1)), dcml.ShapeError, "reshape"), (lambda: npx.reshape(x, (-6, 4, 5)), dcml.ShapeError, "reshape"), (lambda: npx.reshape(x, (-3, -4)), dcml.ShapeError, "reshape"),
    (lambda: npx.reshape(x, (-5, -5)), dcml.ShapeError, "reshape"), (lambda: npx.reshape(x, (-9, )), dcml.ShapeError, "reshape"), (lambda: npx.reshape(x), TypeError, "newshape"),
    (lambda: npx.gather_nd(x, ints), dcml.Error, "gather_nd"), (lambda: npx.index_add(x, ints, x), dcml.Error, "index_add"), (lambda: npx.index_add(x, np.ones(1), x), dcml.DTypeError, "ind"),
    (lambda: npx.topk(x, k=9), dcml.ValueError_, "topk"), (lambda: npx.topk(x, ret_typ="all"), dcml.ValueError_, "ret_typ"), (lambda: npx.slice(x, (0, ), (1, 2)), dcml.ShapeError, "slice"),
    (lambda: npx.topk(np.zeros(300), dtype="uint8"), dcml.DTypeError, "uint8"), (lambda: npx.slice_channel(x, 4), dcml.ShapeError, "slice_channel"),
    (lambda: npx.pad(x, mode="edge", pad_width=(0, 1)), dcml.Error, "pad"), (lambda: npx.pad(x, pad_width=(0, ) * 6), TypeError, "mode"), (lambda: npx.leaky_relu(x, act_type="r"), dcml.Error, "act_type"),
    (lambda: npx.leaky_relu(x, act_type="prelu"), TypeError, "gamma"), (lambda: npx.batch_norm(x), TypeError, "gamma"), (lambda: npx.dropout(x, 2), dcml.ValueError_, "dropout"),
    (lambda: npx.rnn(x, x, x, mode="elman", state_size=1, num_layers=1), dcml.ValueError_, "mode"), (lambda: npx.rnn(x, x, x, mode="gru", num_layers=1), TypeError, "state_size"),
    (lambda: npx.rnn(x, np.ones(5), np.ones((1, 3, 2)), mode="gru", state_size=2, num_layers=1), dcml.ShapeError, "parameters"),
    (lambda: npx.rnn(x, np.ones(5), np.ones((1, 3, 2)), mode="lstm", state_size=2, num_layers=1), TypeError, "state_cell"),
    (lambda: npx.sequence_last(x, use_sequence_length=True), dcml.Error, "sequence_last"), (lambda: npx.slice_like(x, np.ones((9, 9, 9))), dcml.Error, "slice_like"),
    (lambda: npx.tensor_poisson(np.array([-1.0])), dcml.ValueError_, "lam"), (lambda: npx.batch_dot(x, x), dcml.Error, "batch_dot"), (lambda: npx.norm(x, ord=3), dcml.Error, "ord"),
    (lambda: npx.broadcast_like(x, np.ones((2, 2))), dcml.Error, "broadcast_like"), (lambda: npx.group_norm(x, x, x), dcml.Error, "group_norm"),
    (lambda: npx.embedding(ints, np.ones((3, 2)), 4, 2), dcml.Error, "embedding"), (lambda: npx.activation(x, "r"), dcml.ValueError_, "act_type")])
def test_errors_name_operator_and_argument(call, error, told):
    for recorded in (False, True):
        x.attach_grad("write" if recorded else "null")
        with autograd.record() if recorded else autograd.pause(), pytest.raises(error, match=told):
            made = call()
            made.asnumpy()

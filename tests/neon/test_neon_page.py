"""The page that describes Neon's backend: names, signatures, paths, and the methods around tensors."""
import inspect

import numpy as np
import pytest

import dcml
from dcml.neon import NervanaObject
from dcml.neon.backends import gen_backend
from dcml.neon.backends.backend import Backend, Block, OpTreeNode, Tensor

PAGE = """
absolute(a, out=None)
add(a, b, out=None)
add_fc_bias(inputs, bias)
allocate_backend(name, **kargs)
argmax(a, axis=1, out=None, keepdims=True)
argmin(a, axis=1, out=None, keepdims=True)
array(ary, dtype=None, name=None, persist_values=True, parallel=False, distributed=False)
backend_choices()
batched_dot(A, B, C, alpha=1.0, beta=0.0, relu=False)
begin(block, identifier)
binarize(a, stochastic=True, out=None)
bprop_conv(layer, F, E, grad_I, alpha=1.0, repeat=1)
bprop_pool(layer, I, E, grad_I)
check_caffe_compat()
cleanup_backend()
clip(a, a_min, a_max, out=None)
compound_bprop_lut(nin, inputs, error, error_t, dW, pad_idx, alpha=1.0, beta=0)
compound_dot(A, B, C, alpha=1.0, beta=0.0, relu=False)
compound_rnn_unroll_bprop(W_recur, delta_prev_s, delta_s, h_s, nout, num_steps, num_used_steps, activation, reverse=True)
compound_rnn_unroll_fprop(W_recur, h_prev_s, h_ff_s, h_s, bias, nout, num_steps, num_used_steps, activation, reverse=False)
conv_layer(dtype, N, C, K, D=1, H=1, W=1, T=1, R=1, S=1, pad_d=0, pad_h=0, pad_w=0, str_d=1, str_h=1, str_w=1, relu=False, bsum=False)
deconv_layer(dtype, N, C, K, P, Q, R=1, S=1, pad_d=0, pad_h=0, pad_w=0, str_d=1, str_h=1, str_w=1)
distribute_data(tensor, layer_parallelism)
divide(a, b, out=None)
dot(a, b, out=None)
empty(shape, dtype=None, name=None, persist_values=True, parallel=False, distributed=False)
empty_like(other_ary, name=None, persist_values=True)
end(block, identifier)
equal(a, b, out=None)
execute(node)
exp(a, out=None)
exp2(a, out=None)
fabs(a, out=None)
finite(a, out=None)
fprop_conv(layer, I, F, O, alpha=1.0, relu=False, repeat=1)
fprop_pool(layer, I, O)
gen_rng(seed=None)
greater(a, b, out=None)
greater_equal(a, b, out=None)
iobuf(dim0, x=None, dtype=None, name=None, persist_values=True, shared=None, parallelism=None)
less(a, b, out=None)
less_equal(a, b, out=None)
log(a, out=None)
log2(a, out=None)
make_binary_mask(out, keepthresh=0.5)
max(a, axis=None, out=None, keepdims=True)
maximum(a, b, out=None)
mean(a, axis=None, partial=None, out=None, keepdims=True)
min(a, axis=None, out=None, keepdims=True)
minimum(a, b, out=None)
multiply(a, b, out=None)
negative(a, out=None)
not_equal(a, b, out=None)
onehot(indices, axis, out=None)
ones(shape, dtype=None, name=None, persist_values=True, parallel=False, distributed=False)
output_dim(X, S, padding, strides, pooling=False, dilation=1)
pool_layer(dtype, op, N, C, D=1, H=1, W=1, J=1, T=1, R=1, S=1, pad_j=0, pad_d=0, pad_h=0, pad_w=0, str_j=None, str_d=None, str_h=None, str_w=None)
power(a, b, out=None)
reciprocal(a, out=None)
revert_tensor(tensor)
rint(a, out=None)
rng_get_state(state)
rng_reset()
rng_set_state(state)
safelog(a, out=None)
set_caffe_compat()
sgn(a, out=None)
shared_iobuf_size(shape, parallelism)
shift(a, b, value=True, out=None)
sig(a, out=None)
sig2(a, out=None)
sqrt(a, out=None)
square(a, out=None)
std(a, axis=None, partial=None, out=None, keepdims=True)
subtract(a, b, out=None)
sum(a, axis=None, out=None, keepdims=True)
take(a, indices, axis, out=None)
tanh(a, out=None)
tanh2(a, out=None)
true_divide(a, b, out=None)
update_conv(layer, I, E, grad_F, alpha=1.0, repeat=1)
update_fc_bias(err, out)
var(a, axis=None, partial=None, out=None, keepdims=True, binary=False)
xnor_compound_dot(A, B, C, beta=0.0)
zeros(shape, dtype=None, name=None, persist_values=True, parallel=False, distributed=False)
zeros_like(other_ary, name=None, persist_values=True)
"""
SIGNATURES = dict(line.partition("(")[::2] for line in PAGE.split("\n") if line)
LATER_FORMS = {"bprop_pool"}  # takes two forms, tested with the layers


def test_the_page_has_86_methods():
    assert len(SIGNATURES) == 86


def test_the_signatures_are_written_within_the_line():
    assert all(text.endswith(")") for text in SIGNATURES.values())


@pytest.mark.parametrize("name", SIGNATURES)
def test_a_method_takes_what_the_page_says_in_its_order(name):
    method = getattr(Backend, name)
    assert method.__doc__ and method.__name__ == name and method.__qualname__.endswith("." + name)
    if name in LATER_FORMS:
        return
    wanted = inspect.signature(eval(f"lambda {SIGNATURES[name][:-1]}: None")).parameters.values()
    found = [p for p in inspect.signature(method).parameters.values() if p.name != "self"]
    for want, have in zip(wanted, found, strict=False):
        assert have.name == want.name and have.kind == want.kind
        if want.default is not want.empty:
            assert have.default == want.default
    assert len(found) >= len(wanted)
    assert all(p.default is not p.empty for p in found[len(wanted):]), "what is beyond the page is optional"


def test_paths_are_neons():
    import dcml.neon.backends.autodiff
    import dcml.neon.backends.nervanacpu
    from dcml.neon.backends import Autodiff, backend
    assert Autodiff is dcml.neon.backends.autodiff.Autodiff and backend.Tensor is dcml.neon.backends.nervanacpu.CPUTensor
    assert Backend.backends == {"cpu": dcml.neon.backends.nervanacpu.NervanaCPU} and dcml.neon is dcml.neon
    assert (Block.epoch, Block.minibatch, Block.fprop, Block.bprop, Block.update) == (0, 1, 2, 3, 4)
    with pytest.raises(AttributeError):
        dcml.neon.layers


def test_gen_backend_gives_its_backend_to_all_objects():
    be = gen_backend(backend="cpu", rng_seed=3, datatype=np.float16, batch_size=32, compat_mode="caffe", stochastic_round=True, device_id=1)
    assert NervanaObject.be is be and be.bsz == 32 and be.default_dtype == np.float16 and be.check_caffe_compat() and isinstance(be, Backend)
    assert be.backend_choices() == ["cpu"] and NervanaObject().be is be and be.rng_seed == 3
    other = gen_backend()
    assert NervanaObject.be is other and other.default_dtype == np.float32 and not other.check_caffe_compat() and other.zeros((1, 2)).dtype == np.float32
    assert type(Backend.allocate_backend("cpu", rng_seed=1)) is type(other)


@pytest.mark.parametrize("wrong", [{"backend": "gpu"}, {"datatype": np.int32}, {"datatype": "what"}, {"compat_mode": "torch"}])
def test_what_gen_backend_does_not_know_is_an_error(wrong):
    with pytest.raises(ValueError, match=str(next(iter(wrong.values()))).split(".")[-1].rstrip("'>")):
        gen_backend(**wrong)


def test_objects_have_names_of_their_class():
    class Layer(NervanaObject):
        pass
    assert [Layer().name, Layer().name, Layer("mine").name] == ["Layer_0", "Layer_1", "mine"] and Layer().classnm == "Layer"
    assert Layer().modulenm.endswith(".Layer")


def test_the_state_of_the_generator_is_a_tuple_that_can_be_put_back():
    be = gen_backend(rng_seed=5)
    state = be.rng_get_state()
    assert isinstance(state, tuple) and isinstance(be.rng_get_state(state), tuple)
    out = be.empty((3, 3))

    def mask():
        be.make_binary_mask(out)
        return out.get().tolist()
    first, second = mask(), mask()
    be.rng_set_state(state)
    assert mask() == first != second == mask()
    be.rng_reset()
    assert mask() == first
    assert isinstance(be.gen_rng(5), np.random.RandomState) and mask() == first


def test_buffers_have_the_batch_size():
    be = gen_backend(batch_size=4)
    assert be.iobuf(3).shape == (3, 4) and be.iobuf((2, 3)).shape == (2, 12) and be.iobuf((2, 3, 5)).shape == (30, 4)
    x = be.ones((2, 2))
    assert be.iobuf(3, x=x) is x and be.iobuf(3, dtype=np.float64, name="b").dtype == np.float64
    shared = be.ones((6, 4))
    buffer = be.iobuf((3,), shared=shared)
    assert buffer.shape == (3, 4) and shared.get().sum() == 12
    assert be.shared_iobuf_size((3, 4), "Data") == 12 and be.distribute_data(x, "Model") is None and be.revert_tensor(x) is None
    assert be.begin(Block.fprop, 1) is None and be.end(Block.fprop, 1) is None and be.cleanup_backend() is None
    be.bsz = None
    with pytest.raises(dcml.ValueError_, match="batch size"):
        be.iobuf(3)


@pytest.mark.parametrize("given, neons, caffes", [((5, 3, 0, 2), 2, 2), ((6, 3, 0, 2), 2, 3), ((5, 2, 1, 2), 3, 3), ((4, 2, 1, 3), 2, 2), ((28, 5, 2, 1), 28, 28)])
def test_output_extents_are_neons_or_caffes(given, neons, caffes):
    be = gen_backend()
    assert be.output_dim(*given) == be.output_dim(*given, pooling=True) == neons
    be.set_caffe_compat()
    assert be.output_dim(*given) == neons and be.output_dim(*given, pooling=True) == caffes
    assert be.output_dim(9, 3, 0, 1, dilation=2) == 5
    with pytest.raises(ValueError, match="padding"):
        be.output_dim(9, 2, 2, 1, pooling=True)


@pytest.mark.parametrize("make, error", [
    (lambda be: be.zeros((-1, 2)), dcml.ShapeError), (lambda be: be.array([[1, 2], [3]]), ValueError), (lambda be: be.ones((1, 1), dtype="c8"), dcml.DTypeError),
    (lambda be: be.zeros("ab"), dcml.ShapeError), (lambda be: Tensor(be, dtype="nothing"), dcml.DTypeError), (lambda be: Tensor(be), dcml.ShapeError)])
def test_tensors_that_cannot_be_are_errors(make, error):
    with pytest.raises(error):
        make(gen_backend())


def test_neither_torch_nor_onnx_is_loaded():
    import subprocess
    import sys
    code = "from dcml.neon.backends import gen_backend; b = gen_backend(); b.ones((2, 2))[:] = b.exp(b.ones((2, 2))); import sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "onnx", "onnxruntime", "neon"} & set(loaded) and "numpy" in loaded


def test_a_node_is_what_methods_give():
    be = gen_backend()
    x = be.ones((2, 2))
    lazy = [name for name, text in SIGNATURES.items() if "out=None" in text and name not in ("onehot", "take", "dot", "clip", "shift")]
    assert len(lazy) == 41
    for name in lazy:
        operands = [x] * (1 + ("b" in SIGNATURES[name].split(", ")[1:2]))
        assert isinstance(getattr(be, name)(*operands), OpTreeNode), name
        out = be.empty((2, 2))
        assert getattr(be, name)(*operands, out=out) is out, name

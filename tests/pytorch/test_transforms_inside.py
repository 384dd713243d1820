"""Transforms of torch.func inside forward: what they compute is in the graph, gradients of it too, as in eager mode."""
import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

from dcml.pytorch import DaceModule


class Net(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function, self.layer, self.scale = function, nn.Linear(4, 4), nn.Parameter(torch.rand(4))
        self.double()

    def forward(self, x):
        return self.function(self, x)


def energy(net):
    return lambda v: (net.layer(v).tanh() ** 2).sum()


def loss(net, x):
    return lambda p: functional_call(net.layer, p, (x,)).pow(2).sum()


def a_step(net, x):
    parameters = dict(net.layer.named_parameters())
    for _ in range(2):
        slopes = grad(loss(net, x))(parameters)
        parameters = {name: value - 0.1 * slopes[name] for name, value in parameters.items()}
    return functional_call(net.layer, parameters, (x,))


def not_graded_inside(net, x):
    def product(v):
        with torch.no_grad():
            k = v * 2
        return (v * k * net.scale).sum()
    return grad(product)(x)


def not_graded_outside(net, x):
    with torch.no_grad():
        slope = grad(energy(net))(x)
    return slope * net.scale


def changed_inside(net, x):
    def changed(v):
        y = v.clone()
        y[:, 0] = 0
        y.mul_(2).unsqueeze_(1)
        return (y ** 2 * net.scale).sum()
    return grad(changed)(x)


CASES = {
    "grad": lambda net, x: grad(energy(net))(x),
    "second grad": lambda net, x: grad(lambda v: grad(energy(net))(v).pow(2).sum())(x),
    "vjp": lambda net, x: vjp(lambda v: net.layer(v).tanh(), x)[1](x)[0],
    "jvp": lambda net, x: jvp(lambda v: net.layer(v).tanh(), (x,), (x,))[1],
    "jacrev": lambda net, x: jacrev(lambda v: net.layer(v).tanh())(x),
    "jacfwd": lambda net, x: jacfwd(lambda v: net.layer(v).tanh())(x),
    "hessian of rows": lambda net, x: vmap(hessian(energy(net)))(x),
    "vmap": lambda net, x: vmap(lambda row: net.layer(row).softmax(0))(x),
    "gradients of rows": lambda net, x: vmap(grad(energy(net)))(x),
    "gradients by parameters": lambda net, x: vmap(grad(lambda p, row: loss(net, row)(p)), (None, 0))(
        dict(net.layer.named_parameters()), x)["weight"],
    "two networks": lambda net, x: vmap(lambda p: functional_call(net.layer, p, (x,)))(
        {name: torch.stack([p, 2 * p]) for name, p in net.layer.named_parameters()}),
    "chunks": lambda net, x: vmap(lambda row: row * net.scale, chunk_size=1)(x),
    "a step of training": a_step, "not graded inside": not_graded_inside, "not graded outside": not_graded_outside,
    "changed inside": changed_inside,
}


@pytest.mark.parametrize("name", CASES)
def test_a_transform_inside_forward_is_captured_with_its_gradient(name):
    torch.manual_seed(0)
    plain = Net(CASES[name])
    mine = copy.deepcopy(plain)
    compiled = DaceModule(mine, backward=True)
    for extent in (2, 3):
        x = torch.randn(extent, 4, dtype=torch.float64)
        got, want = compiled(x), plain(x)
        torch.testing.assert_close(got, want, atol=1e-10, rtol=1e-10)
        for result in (got, want):
            result.pow(2).sum().backward()
        for ours, theirs in zip(mine.parameters(), plain.parameters()):
            zero = torch.zeros_like(ours)
            torch.testing.assert_close(zero if ours.grad is None else ours.grad, zero if theirs.grad is None else theirs.grad,
                                       atol=1e-9, rtol=1e-9)


def test_extents_that_change_in_place_leave_what_was_read_before():
    def function(net, x):
        y = x * 2
        z = y + 1
        y.unsqueeze_(0).transpose_(1, 2)
        return z, y, y.sum(1) + z.sum()

    net, x = Net(function), torch.randn(2, 4, dtype=torch.float64)
    torch.testing.assert_close(DaceModule(net)(x), net(x))


# -- backward overloads, which have no other way into a trace ----------------------------------------
def weights(*shape):
    return torch.linspace(-1, 1, torch.Size(shape).numel(), dtype=torch.float64).view(shape)


IMAGE, LINE, SOLID = (2, 4, 8, 7), (2, 4, 9), (2, 4, 4, 5, 4)
BACKWARD = {
    "conv2d of groups": (IMAGE, lambda x: F.conv2d(x, weights(4, 2, 3, 3), weights(4), 2, 1, groups=2)),
    "dilated conv2d": (IMAGE, lambda x: F.conv2d(x, weights(3, 4, 3, 2), None, 1, 2, 2)),
    "conv1d, each channel": (LINE, lambda x: F.conv1d(x, weights(8, 1, 2), None, 3, groups=4)),
    "conv3d": (SOLID, lambda x: F.conv3d(x, weights(2, 4, 2, 2, 2), None, (1, 2, 1))),
    "conv_transpose2d": (IMAGE, lambda x: F.conv_transpose2d(x, weights(4, 2, 3, 3), None, 2, 1, 1, groups=2)),
    "avg_pool2d": (IMAGE, lambda x: F.avg_pool2d(x, 3, 2, 1, True, False)),
    "avg_pool2d by a divisor": (IMAGE, lambda x: F.avg_pool2d(x, (3, 2), 2, 1, divisor_override=5)),
    "avg_pool3d": (SOLID, lambda x: F.avg_pool3d(x, 2, padding=1)),
    "adaptive_avg_pool2d": (IMAGE, lambda x: F.adaptive_avg_pool2d(x, 3)),
    "adaptive_avg_pool3d": (SOLID, lambda x: F.adaptive_avg_pool3d(x, 3)),
    "max_pool3d": (SOLID, lambda x: F.max_pool3d(x, 2)),
    "adaptive_max_pool2d": (IMAGE, lambda x: F.adaptive_max_pool2d(x, 3)),
    "logsigmoid": (LINE, F.logsigmoid),
    "nearest": (IMAGE, lambda x: F.interpolate(x, scale_factor=(2, 1.5))),
    "nearest of a solid": (SOLID, lambda x: F.interpolate(x, size=6)),
    "linear": (LINE, lambda x: F.interpolate(x, scale_factor=2, mode="linear")),
    "bilinear": (IMAGE, lambda x: F.interpolate(x, size=(5, 12), mode="bilinear", align_corners=True)),
    "bicubic": (IMAGE, lambda x: F.interpolate(x, scale_factor=1.5, mode="bicubic")),
    "antialiased": (IMAGE, lambda x: F.interpolate(x, size=5, mode="bilinear", antialias=True)),
    "trilinear": (SOLID, lambda x: F.interpolate(x, scale_factor=2, mode="trilinear")),
    "replicate": (IMAGE, lambda x: F.pad(x, (1, 2, 0, 3), mode="replicate")),
    "softshrink and hardshrink": (LINE, lambda x: F.softshrink(x) * F.hardshrink(x)),
    "attention": (IMAGE, lambda x: F.scaled_dot_product_attention(x, x * 2, x.sin(), is_causal=True)),
    "layer_norm": (IMAGE, lambda x: F.layer_norm(x, (7,))),
    "batch_norm": (IMAGE, lambda x: F.batch_norm(x, None, None, training=True)),
}


@pytest.mark.parametrize("name", BACKWARD)
def test_a_gradient_inside_forward_of(name):
    shape, function = BACKWARD[name]

    def slope(net, x):
        return grad(lambda v: (function(v) ** 2).sum())(x)
    torch.manual_seed(0)
    x, net = torch.randn(shape, dtype=torch.float64), Net(slope)
    torch.testing.assert_close(DaceModule(net)(x), net(x), atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("groups, stride, padding, dilation", [(1, 1, 0, 1), (2, 2, 1, 1), (2, 1, 2, 2)])
@pytest.mark.parametrize("transposed", [False, True])
def test_the_gradients_of_a_convolution_by_its_own_overload(groups, stride, padding, dilation, transposed):
    def parts(net, x):
        w = (x.sum() * 0 + 1) * (weights(4, 3, 2, 3) if transposed else weights(6, 4 // groups, 2, 3))
        given = x, w, [stride] * 2, [padding] * 2, [dilation] * 2, transposed, [0, 0], groups
        y = torch.ops.aten.convolution(x, w, None, *given[2:])
        return torch.ops.aten.convolution_backward(y.sin(), x, w, [y.shape[1]], *given[2:], [True] * 3)
    torch.manual_seed(0)
    x, net = torch.randn(2, 4, 7, 6, dtype=torch.float64), Net(parts)
    torch.testing.assert_close(DaceModule(net)(x), net(x))


# -- bits, and what writes to one argument and gives something else -------------------------------------
@pytest.mark.parametrize("to", [torch.uint8, torch.int16, torch.float16, torch.int32, torch.float32, torch.int64])
@pytest.mark.parametrize("of", [torch.bool, torch.int8, torch.bfloat16, torch.int32, torch.float64])
def test_a_tensor_is_read_as_bits_of_another_type(of, to):
    x = (torch.arange(48).view(3, 16) % 7 - 3).to(of)
    net = Net(lambda net, x: x.view(to) if to.is_floating_point else x.view(to) + 1)
    torch.testing.assert_close(DaceModule(net)(x), net(x), atol=0, rtol=0, equal_nan=True)


@pytest.mark.parametrize("function", [F.rrelu, nn.RReLU().eval()])
def test_rrelu_gives_its_result_not_its_slopes(function):
    x = torch.tensor([-2., -0.5, 0.5, 2.])
    torch.testing.assert_close(DaceModule(Net(lambda net, x: function(x)))(x), function(x))
    drawn = DaceModule(Net(lambda net, x: F.rrelu(x, training=True)))(x) / x
    assert (drawn[2:] == 1).all() and (drawn[:2] >= 1 / 8 - 1e-6).all() and (drawn[:2] <= 1 / 3 + 1e-6).all()

"""Results lie in memory as eager mode's do, and views of arguments are views."""
import pytest
import torch
from torch import nn

from dcml.pytorch import DaceModule


class Calls(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function, self.conv = function, nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, *args):
        return self.function(self.conv, *args)


def image(n, last):
    x = torch.randn(n, 3, 5, 6)
    return (x.to(memory_format=torch.channels_last) if last else x).requires_grad_()


ORDERS = {
    "relu": lambda conv, x: x.relu(),
    "convolution": lambda conv, x: conv(x),
    "two": lambda conv, x: (conv(x), conv(x).sum(1)),
    "asked for": lambda conv, x: (x + 1).to(memory_format=torch.channels_last),
    "contiguous": lambda conv, x: (x + 1).contiguous(),
    "transposed": lambda conv, x: x.sin().transpose(1, 2),
    "pixels": lambda conv, x: nn.functional.pixel_shuffle(torch.cat([conv(x), conv(x)], 1), 2),
    "groups of channels": lambda conv, x: nn.functional.channel_shuffle(conv(x), 2),
    "both ways": lambda conv, x: [y := x.sin(), y.transpose(2, 3)],
}


@pytest.mark.parametrize("last", (False, True), ids=("rows", "channels last"))
@pytest.mark.parametrize("what", ORDERS)
def test_results_lie_as_in_eager_mode(what, last):
    torch.manual_seed(0)
    plain = Calls(ORDERS[what])
    compiled = DaceModule(plain, backward=True)
    for n in (2, 3, 3):
        x = image(n, last)
        want, got = (m(x) for m in (plain, compiled))
        torch.testing.assert_close(got, want, check_stride=what != "both ways", rtol=1e-4, atol=1e-5)
        first = [y if isinstance(y, torch.Tensor) else y[0] for y in (want, got)]
        grads = [torch.autograd.grad(y.square().sum(), [x, *plain.conv.parameters()], allow_unused=True) for y in first]
        torch.testing.assert_close(grads[1], grads[0], rtol=1e-3, atol=1e-4, check_stride=False)
    assert len(compiled._captures) <= 2
    second = [torch.autograd.grad(torch.autograd.grad(m(x)[0].sin().sum(), x, create_graph=True)[0].square().sum(), x)[0]
              for m in (plain, compiled)]
    torch.testing.assert_close(second[1], second[0], rtol=1e-3, atol=1e-4, check_stride=False)


@pytest.mark.parametrize("heads", (False, True), ids=("by rows", "by heads"))
def test_attention_lies_as_its_query(heads):
    compiled = DaceModule(Calls(lambda conv, q, k: nn.functional.scaled_dot_product_attention(q + 1, k, k)), backward=True)
    for n in (2, 3):
        q, k = (torch.randn(n, 4, 6, 8) for _ in range(2))
        q = q.transpose(1, 2) if heads else q
        k = k.transpose(1, 2) if heads else k
        torch.testing.assert_close(compiled(q, k), compiled.model(q, k), check_stride=True)


def test_the_graph_has_results_as_the_module_counts_their_axes():
    compiled = DaceModule(Calls(ORDERS["relu"]))
    compiled(image(2, True))
    assert "Transpose" not in compiled._graph().text()
    assert compiled.dace_model(torch.ones(2, 3, 5, 6)).shape == (2, 3, 5, 6)


VIEWS = {
    "view": lambda conv, x: x.view(x.shape[0], -1),
    "flatten": lambda conv, x: x.flatten(1),
    "transpose": lambda conv, x: x.transpose(1, 2),
    "slice": lambda conv, x: x[1:, :, ::2],
    "parts": lambda conv, x: x.split(1, dim=1),
    "half": lambda conv, x: x[: x.shape[0] // 2, 1],
    "detached": lambda conv, x: x.detach()[0],
    "unsqueezed": lambda conv, x: (x[None], x.sin()),
}


@pytest.mark.parametrize("what", VIEWS)
def test_views_of_arguments_are_views(what):
    plain = Calls(VIEWS[what])
    compiled = DaceModule(plain, backward=True)
    for n in (4, 6, 6):
        x = torch.randn(n, 3, 5, 6).requires_grad_()
        want, got = (m(x) for m in (plain, compiled))
        torch.testing.assert_close(got, want)
        want, got = (y if isinstance(y, torch.Tensor) else y[0] for y in (want, got))
        assert got.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() and got.stride() == want.stride()
        assert got.requires_grad == want.requires_grad and got._is_view() == want._is_view()
        if want.requires_grad:
            grads = [torch.autograd.grad(y.square().sum(), x)[0] for y in (want, got)]
            assert torch.equal(*grads)
        with torch.no_grad():
            got.zero_()
        assert (want == 0).all()
    assert len(compiled._captures) == 1


def test_a_view_of_an_argument_that_forward_changes_shows_the_change():
    def function(conv, x):
        x.add_(1)
        return x.view(-1), x * 2
    for module in (Calls(function), DaceModule(Calls(function))):
        x = torch.zeros(2, 3)
        flat, double = module(x)
        assert flat.tolist() == [1] * 6 and double.tolist() == [[2] * 3] * 2 and x.tolist() == [[1] * 3] * 2


APART = {
    "a clone": lambda y: (y, y.clone(), y.clone()),
    "a copy": lambda y: (y, y.to(y.dtype, copy=True), y.detach().clone()),
    "the same": lambda y: (y, y.contiguous(), y.to(y.dtype)),
    "no dropout": lambda y: (y, torch.nn.functional.dropout(y, 0.5, False), torch.nn.functional.alpha_dropout(y, 0.0, True)),
}


@pytest.mark.parametrize("what", APART)
def test_results_that_eager_mode_gives_apart_share_no_memory(what):
    plain = Calls(lambda conv, x: APART[what](x * 2))
    x = torch.randn(3, 4)
    for m in (plain, DaceModule(plain)):
        results = m(x)
        results[0].add_(1)
        assert [torch.equal(r, x * 2 + 1) for r in results] == [what in ("the same", "no dropout") or k == 0 for k in range(3)]


@pytest.mark.parametrize("name", ("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout"))
def test_what_a_dropout_outside_of_training_gives_is_changed_with_its_argument(name):
    def forward(conv, x):
        y = x.sin()
        z = getattr(torch, name)(y, 0.5, False)
        z.mul_(y + 1)
        return y, z.cos()
    x = torch.randn(3, 4, 5)
    torch.testing.assert_close(DaceModule(Calls(forward))(x), forward(None, x))

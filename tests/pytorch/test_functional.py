"""Changes in place, views and torch.autocast in a module that is traced once: values and gradients are eager's."""
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dcml.pytorch import DaceModule


def rows(x):
    y = x * 1
    y[1:3].mul_(2)
    y[:, 0] = y[:, 1]
    return y


def chain(x):
    y = x * 1
    y.view(2, 2, 6).transpose(1, 2)[0].add_(1)
    return y


def looked_at_before(x):
    y = x * 1
    z, w = y.t(), y.flatten()
    w[5:9] = 0
    return z, w * 2, y


def pieces(x):
    y = x.detach() * 1
    a, b = y.chunk(2, 1)
    first, *_ = y.unbind(0)
    a.sin_()
    first.zero_()
    return a, b, y * x


def windows(x):
    y = x * 1
    y.unfold(1, 2, 3).mul_(2)
    return y


def diagonal(x):
    y = x[:, :4] * 1
    y.diagonal().fill_(3.0)
    return y @ x


def of_another_type(x):
    y = (x * 4).int()
    y.add_(1)
    z = x.half()
    z.mul_(torch.ones(6))
    return y, z.float()


def unsqueezed(x):
    y = x * 1
    y.unsqueeze_(0).add_(1)
    y.transpose_(0, 1)
    return y


def out(x):
    y = torch.empty(4, 6)
    torch.add(x.detach(), 1, out=y)
    return y * x


def out_without_elements(x):
    y, values, places = torch.empty(0), torch.empty(0), torch.empty(0, dtype=torch.int64)
    torch.add(x.detach(), 1, out=y)
    made = torch.sort(y, dim=1, out=(values, places))
    assert made[0] is values
    return y * x, values, places, torch.cat([x.detach(), y], out=torch.empty(0))


def masked(x):
    y = x * 1
    y.masked_fill_(x > 0, 0.5).clamp_(max=0.25)
    y.index_put_((torch.tensor([0, 2]),), torch.ones(2, 6), accumulate=True)
    return y


def through_detach(x):
    y = x * 1
    y.detach().mul_(2)
    return y * 3


def broadcast(x):
    y = x.detach() * 1
    loss = F.mse_loss(y, x.detach().cos())  # which hands out its very arguments
    y.mul_(2)
    return loss, y * x


def summed_over_nothing(x):
    y = x * 1
    torch.einsum("ij->ji", y)[0] = 5
    return y


def at_least(x):
    y = x * 1
    torch.atleast_2d(y, y[0])[1].add_(1)
    return y


def before_and_after(x):
    y = x.detach() * 1
    z = y * 1
    y[:1] = 3.0
    return torch.logaddexp(y, z), torch.dist(y, z) * x, torch.where(y > z, y, z)


def with_strides_of_before(x):
    y = (x * 1).reshape(1, 2, 3, 4).clone(memory_format=torch.channels_last)
    y.copy_(x.reshape(1, 2, 3, 4).cos())
    return y.as_strided((6,), (2,), 1)


def conjugated(x):
    z = torch.complex(x, x.sin())
    return (z.mH @ z).abs(), z.conj().resolve_conj().mul_(2).real, z.real


@pytest.mark.parametrize("function", (broadcast, summed_over_nothing, at_least, before_and_after, with_strides_of_before, conjugated, rows,
                                      chain, looked_at_before, pieces, windows, diagonal, of_another_type, unsqueezed, out, out_without_elements,
                                      masked, through_detach))
def test_changes_of_parts_are_seen_by_all_who_look(function):
    class Module(nn.Module):
        def forward(self, x):
            return function(x)
    torch.manual_seed(0)
    x = torch.randn(4, 6, requires_grad=True)
    results = []
    for module in (Module(), DaceModule(Module(), backward=True)):
        got = module(x)
        got = got if isinstance(got, tuple) else (got,)
        root = sum((y * y).sum() for y in got if y.requires_grad)
        results.append([*[y.detach() for y in got], torch.autograd.grad(root, x)[0]])
    torch.testing.assert_close(results[1], results[0])


class Changing(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(2, 3))

    def forward(self, x):
        self.seen[0] += x.sum(0)
        self.seen.t()[1].mul_(2)
        x.add_(self.seen[0])
        return x.view(-1), self.seen * 1


def test_buffers_and_arguments_change_as_in_eager_mode():
    plain, compiled = Changing(), DaceModule(Changing())
    for _ in range(3):
        x = torch.arange(6.0).reshape(2, 3)
        y = x.clone()
        torch.testing.assert_close(compiled(y), plain(x))
        torch.testing.assert_close((y, compiled.seen), (x, plain.seen))


class Cast(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 8)

    def forward(self, x):
        y = self.a(x).tanh()
        with torch.autocast("cpu", torch.bfloat16):
            y = self.a(y)
            z = torch.einsum("ij,kj->ik", y, y)
            with torch.autocast("cpu", enabled=False):
                w = x @ x.T
        return y, z, w, F.softmax(z, -1)


@pytest.mark.parametrize("around", (False, True))
def test_types_are_those_that_autocast_gives(around):
    torch.manual_seed(0)
    module, x = Cast(), torch.randn(4, 8)
    with torch.autocast("cpu", torch.bfloat16, enabled=around), torch.no_grad():
        want, got = module(x), DaceModule(module)(x)
    assert [t.dtype for t in got] == [t.dtype for t in want]
    torch.testing.assert_close(got, want, rtol=0.05, atol=0.05)


def test_a_result_and_its_copy_in_another_format_are_both_right():
    class Both(nn.Module):
        def forward(self, x):
            y = x * 1
            return y, y.contiguous(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 4, 5)
    for result in DaceModule(Both())(x):
        assert torch.equal(result, x)


def test_a_result_and_a_view_of_a_view_of_it_are_both_right():
    class Views(nn.Module):
        def forward(self, x):
            y = (x * 2).flatten() * 2
            return y.view(2, 4, 1, 4, 4).view(2, 4, 4, 4), y
    x = torch.randn(2, 4, 4, 4)
    for result in DaceModule(Views())(x):
        assert torch.equal(result.flatten(), x.flatten() * 4)

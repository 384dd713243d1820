"""Other extents: what is captured anew, what is compiled anew, and what serves any extent."""
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dcml.pytorch import DaceModule


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.fc = nn.Conv1d(3, 4, 3, padding=1), nn.LayerNorm(4), nn.Linear(4, 2)

    def forward(self, x):
        y = self.conv(x).transpose(1, 2)
        return self.fc(torch.relu(self.norm(y)))


def counts(module):
    """(captures, plans compiled) so far."""
    captured = list(module._captures)
    return len(captured), sum(f.core.n_plans for one in captured for f in one.functions.values())


def check(module, x):
    module.zero_grad()
    x = x.clone().requires_grad_()
    y = module(x)
    y.square().sum().backward()
    found = [x.grad, *[p.grad.clone() for p in module.parameters()]]
    module.zero_grad()
    z = x.detach().clone().requires_grad_()
    want = module.model(z)
    want.square().sum().backward()
    torch.testing.assert_close(y, want, rtol=1e-4, atol=1e-4)
    for a, b in zip(found, [z.grad, *[p.grad for p in module.parameters()]]):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)


def test_any_batch_size_and_a_third_compiles_nothing():
    torch.manual_seed(0)
    other = DaceModule(Net(), backward=True)
    for batch in (5, 1):  # what torch.export loads at its first use runs pytest's hook of imports, which would count as code of forward
        check(other, torch.randn(batch, 3, 8))
    module = DaceModule(Net(), backward=True)
    for batch in (5, 2):
        check(module, torch.randn(batch, 3, 8))
    before = counts(module)
    for batch in (3, 9, 17, 64, 2):
        check(module, torch.randn(batch, 3, 8))
    assert counts(module) == before and before[0] == 1
    for batch in (1, 0):
        check(module, torch.randn(batch, 3, 8))
    after = counts(module)
    for batch in (0, 1, 7):
        check(module, torch.randn(batch, 3, 8))
    assert counts(module) == after and after[0] <= 3


def test_sequence_lengths_become_symbolic_after_the_second():
    torch.manual_seed(0)
    module = DaceModule(Net(), backward=True)
    for length in (8, 11):
        check(module, torch.randn(4, 3, length))
    before = counts(module)
    assert before[0] == 2
    for length in (5, 16, 31, 8):
        check(module, torch.randn(3, 3, length))
    assert counts(module) == before


def test_starting_from_a_batch_of_one():
    module = DaceModule(Net(), backward=True)
    for batch in (1, 4, 6, 2):
        check(module, torch.randn(batch, 3, 8))
    assert counts(module)[0] == 2


def test_a_failed_guard_is_told_and_captures_anew(capfd, monkeypatch):
    monkeypatch.setenv("DCML_VERBOSE", "1")
    module = DaceModule(nn.Linear(3, 2), sdfg_name="net")
    module(torch.randn(4, 3))
    assert "dcml: capture: net: Linear captured in" in capfd.readouterr().err
    module(torch.randn(6, 3))
    assert capfd.readouterr().err == ""
    module(torch.randn(1, 3))
    told = capfd.readouterr().err
    assert "dcml: capture: net: extent s" in told and "is 1, outside [2, ]" in told and "captured in" in told
    module(torch.randn(2, 2, 3))
    assert "tensor 0 has 3 dimensions, not 2" in capfd.readouterr().err


def test_compilation_and_the_cache_are_told(capfd, monkeypatch, tmp_path):
    monkeypatch.setenv("DCML_VERBOSE", "1")
    module = DaceModule(nn.Sequential(nn.Linear(30, 20), nn.Tanh()))
    for _ in range(6):
        module(torch.randn(500, 30))
    assert "dcml: compile: " in capfd.readouterr().err


@pytest.mark.parametrize("batches", [(4, 4), (4, 7)])
def test_equal_and_different_extents_of_two_inputs(batches):
    class Outer(nn.Module):
        def forward(self, a, b):
            return a[:, None, :] + b[None]
    module = DaceModule(Outer())
    for shift in (0, 1, 5):
        a, b = torch.randn(batches[0] + shift, 3), torch.randn(batches[1] + 2 * shift, 3)
        torch.testing.assert_close(module(a, b), Outer()(a, b))


class Masked(nn.Module):
    """Indices that are spread over symbolic extents, as attention masks are made; arguments of any name."""
    def forward(self, x, mask=None, **options):
        rows, columns = torch.arange(x.shape[0])[:, None, None], torch.arange(x.shape[1])[None, :, None]
        kept = mask[rows, columns].expand(-1, -1, x.shape[2])
        return x.masked_fill(~kept, 0.0) + torch.full((x.shape[0] * 2, 1), 0.5)[1::2, :, None]


def test_extents_made_by_export_alone_stay_symbolic():
    module = DaceModule(Masked())
    for batch in (4, 2, 7):
        x, mask = torch.randn(batch, 5, 3), torch.rand(batch, 5) < 0.5
        torch.testing.assert_close(module(x, mask=mask), Masked()(x, mask=mask))
    assert counts(module) == (1, 1)


class Said(nn.Module):
    """A function as a module, with whatever modules it needs."""

    def __init__(self, function, **parts):
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        return self.function(self, x)


def resized(**how):
    return Said(lambda m, x: F.interpolate(x, **how))


IMAGES = [(2, 3, 8, 8), (3, 3, 9, 7), (2, 3, 16, 12), (4, 3, 5, 5), (2, 3, 33, 17)]
TEXTS = [(2, 5, 4), (3, 7, 4), (4, 12, 4), (5, 2, 4)]
EXTENTS = {
    "adaptive average": (nn.AdaptiveAvgPool2d((2, 3)), IMAGES),
    "adaptive maximum": (Said(lambda m, x: torch.stack(F.adaptive_max_pool2d(x, (3, 2), return_indices=True))), IMAGES),
    "bilinear": (resized(scale_factor=2, mode="bilinear"), IMAGES),
    "nearest to twice and more": (Said(lambda m, x: F.interpolate(x, size=(2 * x.shape[2], x.shape[3] + 3))), IMAGES),
    "bicubic to a size": (resized(size=(7, 9), mode="bicubic"), IMAGES),
    "lstm": (Said(lambda m, x: torch.cat([m.r(x)[0], m.r(x)[1][1].mean() + x], 2), r=nn.LSTM(4, 3, 2, bidirectional=True)), TEXTS),
    "gru": (Said(lambda m, x: m.r(x)[0].mean(1), r=nn.GRU(4, 3, 2, batch_first=True, bias=False)), TEXTS),
    "rnn": (Said(lambda m, x: m.r(x)[1], r=nn.RNN(4, 3, nonlinearity="relu")), TEXTS),
}


OF_THREE_SIZES = ("bilinear", "nearest to twice and more")  # which torch.export traces for all others


@pytest.mark.parametrize("name", EXTENTS)
def test_one_capture_serves_every_extent_after_the_first_ones(name):
    torch.manual_seed(0)
    module, shapes = DaceModule(EXTENTS[name][0], backward=True), EXTENTS[name][1]
    for shape in shapes:
        check(module, torch.randn(shape))
    assert counts(module)[0] <= (4 if name in OF_THREE_SIZES else 2)


def test_a_decomposition_that_fits_some_extents_is_not_taken_for_all():
    module = DaceModule(resized(scale_factor=1.7, mode="bilinear"), backward=True)
    for shape in IMAGES:  # torch's own form of it decides by the extents
        check(module, torch.randn(shape))


def test_dropout_between_recurrent_layers_of_any_length():
    torch.manual_seed(0)
    module = DaceModule(Said(lambda m, x: m.r(x)[0], r=nn.LSTM(4, 3, 2, dropout=0.5)), backward=True)
    for length in (5, 7, 9):
        x = torch.randn(length, 2, 4)
        assert not torch.equal(module(x), module(x))
    module.eval()
    check(module, torch.randn(6, 2, 4))
    assert counts(module)[0] <= 3


class Attending(nn.Module):
    """Decoder steps that look at a memory of any length: each gives its logits and where it looked."""

    def __init__(self, v=11, e=4, h=6, steps=4):
        super().__init__()
        self.steps = steps
        self.src, self.tgt = nn.Embedding(v, e), nn.Embedding(v, e)
        self.encoder, self.bridge = nn.GRU(e, h, batch_first=True), nn.Linear(h, h)
        self.query, self.key, self.energy = nn.Linear(h, h, bias=False), nn.Linear(h, h), nn.Linear(h, 1, bias=False)
        self.cell, self.out = nn.GRUCell(e + h, h), nn.Linear(2 * h + e, v)

    def forward(self, src, tgt):
        memory, last = self.encoder(self.src(src))
        h, keys, logits, maps = torch.tanh(self.bridge(last[0])), self.key(memory), [], []
        for t in range(self.steps):
            y = self.tgt(tgt[:, t])
            a = F.softmax(self.energy(torch.tanh(self.query(h).unsqueeze(1) + keys)).squeeze(-1), -1)
            context = torch.bmm(a.unsqueeze(1), memory).squeeze(1)
            h = self.cell(torch.cat([y, context], -1), h)
            logits.append(self.out(torch.cat([h, context, y], -1)))
            maps.append(a)
        return torch.stack(logits, 1), torch.stack(maps, 1)


def test_an_unrolled_decoder_has_right_gradients_at_every_length():
    torch.manual_seed(0)
    module = DaceModule(Attending().double(), backward=True)
    for length in (8, 6, 11):
        src, tgt = torch.randint(11, (3, length)), torch.randint(11, (3, 4))
        found = module(src, tgt)
        cotangents = [torch.randn_like(y) for y in found]
        got = torch.autograd.grad(found, list(module.parameters()), cotangents)
        wanted = torch.autograd.grad(module.model(src, tgt), list(module.model.parameters()), cotangents)
        for (name, _), a, b in zip(module.model.named_parameters(), got, wanted):
            torch.testing.assert_close(a, b, msg=lambda text: f"{name} at length {length}: {text}")

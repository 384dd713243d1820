"""Packed sequences: recurrent layers over sequences of several lengths."""
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import dcml
from dcml.pytorch import DaceModule


class Packed(nn.Module):
    def __init__(self, kind, batch_first, is_sorted, **options):
        super().__init__()
        self.rnn = kind(3, 4, batch_first=batch_first, **options)
        self.batch_first, self.is_sorted = batch_first, is_sorted

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths, batch_first=self.batch_first, enforce_sorted=self.is_sorted)
        y, state = self.rnn(packed)
        y, n = pad_packed_sequence(y, batch_first=self.batch_first, padding_value=0.5)
        return y, n, state


KINDS = {
    "lstm": (nn.LSTM, True, True, {}), "bidirectional": (nn.LSTM, True, False, {"bidirectional": True}),
    "two layers": (nn.GRU, False, False, {"num_layers": 2}), "rnn": (nn.RNN, True, False, {"nonlinearity": "relu", "bias": False}),
}


@pytest.mark.parametrize("what", KINDS)
def test_recurrent_layers_of_packed_sequences(what):
    torch.manual_seed(0)
    kind, batch_first, is_sorted, options = KINDS[what]
    plain = Packed(kind, batch_first, is_sorted, **options)
    compiled = DaceModule(plain, backward=True)
    for lengths in ([5, 3, 2], [4, 4, 1], [6, 1, 1]):
        lengths = torch.tensor(lengths if is_sorted else lengths[1:] + lengths[:1])
        x = torch.randn(3, 6, 3) if batch_first else torch.randn(6, 3, 3)
        x.requires_grad_()
        want, got = (m(x, lengths) for m in (plain, compiled))
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        grads = [torch.autograd.grad(y[0].sin().sum(), [x, *plain.parameters()]) for y in (want, got)]
        torch.testing.assert_close(grads[1], grads[0], rtol=1e-3, atol=1e-5)
    assert len(compiled._captures) == 1


class OfElements(nn.Module):
    """Computes with the packed elements themselves."""

    def __init__(self):
        super().__init__()
        self.emb, self.rnn = nn.Embedding(10, 3), nn.LSTM(3, 4)

    def forward(self, tokens, lengths):
        packed = pack_padded_sequence(tokens, lengths, enforce_sorted=False)
        y, (h, c) = self.rnn(PackedSequence(self.emb(packed.data), packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices))
        return y.data.tanh(), y.batch_sizes, h


def test_what_is_computed_of_packed_elements():
    torch.manual_seed(0)
    plain = OfElements()
    compiled = DaceModule(plain, backward=True)
    for lengths in ([2, 4, 4], [5, 1, 3]):
        args = torch.randint(0, 10, (5, 3)), torch.tensor(lengths)
        want, got = (m(*args) for m in (plain, compiled))
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        grads = [torch.autograd.grad(y[0].sum(), list(plain.parameters())) for y in (want, got)]
        torch.testing.assert_close(grads[1], grads[0], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("lengths", ([2, 3, 1], [3, 2, 0], [7, 2, 1]), ids=str)
def test_lengths_that_torch_refuses_are_refused(lengths):
    compiled = DaceModule(Packed(*KINDS["lstm"][:3]))
    compiled(torch.rand(3, 6, 3), torch.tensor([5, 3, 2]))
    with pytest.raises(ValueError, match="(?i)length"):
        compiled(torch.rand(3, 6, 3), torch.tensor(lengths))


def test_packed_arguments_are_refused_with_the_way_out():
    with pytest.raises(dcml.Error, match="PackedSequence.*pack_padded_sequence in forward"):
        DaceModule(nn.GRU(3, 4))(pack_padded_sequence(torch.rand(4, 2, 3), [4, 2]))

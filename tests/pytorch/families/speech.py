"""Networks that hear and speak."""
import torch
import torch.nn.functional as F
from family import both, family, normal, tokens
from torch import nn


@family(normal(120))
class Wav2Vec(nn.Module):
    """Convolutions over the waveform, a convolution for places, a transformer, the contrastive loss."""
    def __init__(self, width=12):
        super().__init__()
        self.features = nn.Sequential(nn.Conv1d(1, 8, 10, 5, bias=False), nn.GroupNorm(8, 8), nn.GELU(), nn.Conv1d(8, 8, 3, 2, bias=False), nn.GELU())
        self.norm, self.project = nn.LayerNorm(8), nn.Linear(8, width)
        self.places = nn.utils.parametrizations.weight_norm(nn.Conv1d(width, width, 4, padding=2, groups=2), dim=2)
        layer = nn.TransformerEncoderLayer(width, 2, 24, 0.0, "gelu", batch_first=True)
        self.encoder, self.masked = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Parameter(torch.rand(width))

    def forward(self, wave):
        target = self.project(self.norm(self.features(wave.unsqueeze(1)).mT))
        x = target.clone()
        x[:, 1::3] = self.masked
        x = self.encoder(x + F.gelu(self.places(x.mT)[..., :-1]).mT)
        like = F.cosine_similarity(x[:, 1::3].unsqueeze(2), target[:, 1::3].unsqueeze(1), dim=-1) / 0.1
        wanted = torch.arange(like.shape[1]).repeat(like.shape[0])
        return F.cross_entropy(like.flatten(0, 1), wanted), x


class ConformerBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.last = (nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width)) for _ in range(2))
        self.norm, self.attention = nn.LayerNorm(width), nn.MultiheadAttention(width, 2, batch_first=True)
        self.before, self.up = nn.LayerNorm(width), nn.Conv1d(width, 2 * width, 1)
        self.depthwise, self.batch = nn.Conv1d(width, width, 5, padding=2, groups=width), nn.BatchNorm1d(width)
        self.down, self.after = nn.Conv1d(width, width, 1), nn.LayerNorm(width)

    def forward(self, x, padding):
        x = x + 0.5 * self.first(x)
        y = self.norm(x)
        x = x + self.attention(y, y, y, key_padding_mask=padding, need_weights=False)[0]
        y = F.glu(self.up(self.before(x).mT), dim=1).masked_fill(padding.unsqueeze(1), 0.0)
        x = x + self.down(F.silu(self.batch(self.depthwise(y)))).mT
        return self.after(x + 0.5 * self.last(x))


@family(both(normal(16, 8), lambda n, g: (torch.randint(9, 17, (n,), generator=g), torch.randint(1, 6, (n, 3), generator=g))))
class Conformer(nn.Module):
    """With the CTC loss over utterances of several lengths."""
    def __init__(self, width=8):
        super().__init__()
        self.sub, self.project = nn.Conv2d(1, 4, 3, (2, 2), 1), nn.Linear(16, width)
        self.blocks, self.head = nn.ModuleList([ConformerBlock(width) for _ in range(2)]), nn.Linear(width, 6)

    def forward(self, x, lengths, labels):
        x = self.project(F.relu(self.sub(x.unsqueeze(1))).transpose(1, 2).flatten(2))
        lengths = (lengths + 1) // 2
        padding = torch.arange(x.shape[1]) >= lengths.unsqueeze(1)
        for block in self.blocks:
            x = block(x, padding)
        scores = self.head(x).log_softmax(-1)
        sizes = torch.full((x.shape[0],), labels.shape[1], dtype=torch.long)
        return scores, F.ctc_loss(scores.transpose(0, 1), labels, lengths, sizes, blank=0)


@family(both(tokens(7), normal(5, 6)))
class Tacotron(nn.Module):
    """A decoder of cells that looks at the text by where it has looked before."""
    def __init__(self, width=8, mels=6):
        super().__init__()
        self.embed, self.conv = nn.Embedding(32, width), nn.Sequential(nn.Conv1d(width, width, 5, padding=2), nn.BatchNorm1d(width), nn.ReLU())
        self.encoder = nn.LSTM(width, width // 2, batch_first=True, bidirectional=True)
        self.prenet, self.cell = nn.Sequential(nn.Linear(mels, width), nn.ReLU()), nn.LSTMCell(2 * width, width)
        self.query, self.key, self.energy = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False), nn.Linear(width, 1)
        self.location, self.mel, self.stop = nn.Conv1d(2, width, 3, padding=1), nn.Linear(2 * width, mels), nn.Linear(2 * width, 1)
        self.post = nn.Conv1d(mels, mels, 5, padding=2)

    def forward(self, text, mels):
        memory, _ = self.encoder(self.conv(self.embed(text).mT).mT)
        keys, n = self.key(memory), memory.shape[0]
        h = c = context = memory.new_zeros(n, memory.shape[2])
        weights = total = memory.new_zeros(n, memory.shape[1])
        frames = torch.cat([mels.new_zeros(n, 1, mels.shape[2]), mels[:, :-1]], 1)
        found, stops, alignments = [], [], []
        for frame in self.prenet(frames).unbind(1):
            h, c = self.cell(torch.cat([frame, context], -1), (h, c))
            where = self.location(torch.stack([weights, total], 1)).mT
            weights = self.energy(torch.tanh(self.query(h).unsqueeze(1) + keys + where)).squeeze(-1).softmax(-1)
            total = total + weights
            context = torch.bmm(weights.unsqueeze(1), memory).squeeze(1)
            found.append(self.mel(torch.cat([h, context], -1)))
            stops.append(self.stop(torch.cat([h, context], -1)))
            alignments.append(weights)
        y = torch.stack(found, 1)
        return y, y + self.post(y.mT).mT, torch.cat(stops, 1), torch.stack(alignments, 1)


class TemporalBlock(nn.Module):
    def __init__(self, inside, outside, dilation):
        super().__init__()
        self.pad = 2 * dilation
        self.convs = nn.ModuleList([nn.utils.parametrizations.weight_norm(nn.Conv1d(c, outside, 3, padding=self.pad, dilation=dilation))
                                    for c in (inside, outside)])
        self.short = nn.Conv1d(inside, outside, 1) if inside != outside else None

    def forward(self, x):
        y = x
        for conv in self.convs:
            y = F.relu(conv(y)[..., :-self.pad])
        return F.relu(y + (x if self.short is None else self.short(x)))


@family(normal(4, 20))
class TCN(nn.Sequential):
    def __init__(self):
        super().__init__(TemporalBlock(4, 8, 1), TemporalBlock(8, 8, 2), TemporalBlock(8, 8, 4), nn.Conv1d(8, 3, 1))


@family(normal(30))
class WaveNet(nn.Module):
    """Dilated causal convolutions with gates; all layers add to the result."""
    def __init__(self, width=6):
        super().__init__()
        self.start, self.dilations = nn.Conv1d(1, width, 1), (1, 2, 4)
        self.gates, self.outs = (nn.ModuleList([nn.Conv1d(width, 2 * width, k, dilation=d if k > 1 else 1) for d in self.dilations]) for k in (2, 1))
        self.end = nn.Sequential(nn.ReLU(), nn.Conv1d(width, width, 1), nn.ReLU(), nn.Conv1d(width, 16, 1))

    def forward(self, wave):
        x, total = self.start(wave.unsqueeze(1)), 0
        for dilation, gate, out in zip(self.dilations, self.gates, self.outs):
            a, b = gate(F.pad(x, (dilation, 0))).chunk(2, 1)
            kept, added = out(a.tanh() * b.sigmoid()).chunk(2, 1)
            x, total = x + kept, total + added
        levels = torch.bucketize(wave.clamp(-1, 1), torch.linspace(-1, 1, 15, dtype=wave.dtype))
        return F.cross_entropy(self.end(total)[..., :-1], levels[:, 1:])

"""Networks that read and write text."""
import math

import torch
import torch.nn.functional as F
from family import both, family, tokens
from torch import nn


def attend(q, k, v, heads, bias=None, causal=False):
    """Attention of [batch, place, width] in parts, as written before there was a function for it."""
    q, k, v = (t.unflatten(-1, (heads, -1)).transpose(1, 2) for t in (q, k, v))
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    scores = scores if bias is None else scores + bias
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


class GPT2Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.ln_1, self.ln_2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width))

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.attn(self.ln_1(x)).split(x.shape[-1], 2))
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.mlp(self.ln_2(x))


@family(both(tokens(9), tokens(9)))
class GPT2(nn.Module):
    """The embedding is also the last layer's weight."""
    def __init__(self, words=32, width=16):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(words, width), nn.Embedding(12, width)
        self.blocks, self.ln_f = nn.ModuleList([GPT2Block(width, 2) for _ in range(2)]), nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, ids, targets):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.ln_f(x))
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=0)


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def rotated(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


class LlamaBlock(nn.Module):
    def __init__(self, width, heads, groups):
        super().__init__()
        self.heads, self.groups, size = heads, groups, width // heads
        self.norm1, self.norm2 = RMSNorm(width), RMSNorm(width)
        self.q, self.k, self.v = (nn.Linear(width, n * size, bias=False) for n in (heads, groups, groups))
        self.o = nn.Linear(width, width, bias=False)
        self.gate, self.up, self.down = (nn.Linear(*s, bias=False) for s in ((width, 24), (width, 24), (24, width)))

    def forward(self, x, cos, sin):
        y = self.norm1(x)
        q, k, v = (layer(y).unflatten(-1, (n, -1)).transpose(1, 2)
                   for layer, n in ((self.q, self.heads), (self.k, self.groups), (self.v, self.groups)))
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        k, v = (t[:, :, None].expand(-1, -1, self.heads // self.groups, -1, -1).flatten(1, 2) for t in (k, v))
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


@family(tokens(9))
class Llama(nn.Module):
    """Rotary places, RMSNorm, grouped queries, SwiGLU."""
    def __init__(self, words=32, width=16, heads=4, groups=2):
        super().__init__()
        self.embed, self.norm, self.head = nn.Embedding(words, width), RMSNorm(width), nn.Linear(width, words, bias=False)
        self.blocks = nn.ModuleList([LlamaBlock(width, heads, groups) for _ in range(2)])
        size = width // heads
        self.register_buffer("frequencies", 10000.0 ** -(torch.arange(0, size, 2) / size), persistent=False)

    def forward(self, ids):
        angles = torch.outer(torch.arange(ids.shape[1]).to(self.frequencies.dtype), self.frequencies)
        angles = torch.cat((angles, angles), -1)
        x, cos, sin = self.embed(ids), angles.cos(), angles.sin()
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.head(self.norm(x))


class BertLayer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.dense = (nn.Linear(width, width) for _ in range(4))
        self.norm1, self.norm2, self.up, self.down = nn.LayerNorm(width), nn.LayerNorm(width), nn.Linear(width, 32), nn.Linear(32, width)

    def forward(self, x, bias):
        x = self.norm1(x + self.dense(attend(self.query(x), self.key(x), self.value(x), self.heads, bias)))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


def padding(n, g, length=8):
    """A mask of places that are no padding."""
    return ((torch.arange(length) < torch.randint(3, length + 1, (n, 1), generator=g)).long(),)


@family(both(tokens(8), padding, lambda n, g: (torch.where(torch.rand(n, 8, generator=g) < 0.3, 5, -100),)))
class BERT(nn.Module):
    """Words to guess, and whether the second sentence follows the first."""
    def __init__(self, words=32, width=16):
        super().__init__()
        self.words, self.places, self.kinds = nn.Embedding(words, width, padding_idx=0), nn.Embedding(8, width), nn.Embedding(2, width)
        self.norm, self.layers = nn.LayerNorm(width, eps=1e-12), nn.ModuleList([BertLayer(width, 2) for _ in range(2)])
        self.pooler, self.follows = nn.Linear(width, width), nn.Linear(width, 2)
        self.transform, self.bias = nn.Linear(width, width), nn.Parameter(torch.zeros(words))
        self.register_buffer("ids", torch.arange(8).expand(1, -1))

    def forward(self, words, mask, wanted):
        kinds = torch.zeros_like(words)
        kinds[:, 4:] = 1
        x = self.norm(self.words(words) + self.places(self.ids[:, :words.shape[1]]) + self.kinds(kinds))
        bias = (1.0 - mask[:, None, None, :].to(x.dtype)) * torch.finfo(torch.float32).min
        for layer in self.layers:
            x = layer(x, bias)
        logits = F.linear(F.gelu(self.transform(x)), self.words.weight, self.bias)
        return F.cross_entropy(logits.transpose(1, 2), wanted), self.follows(torch.tanh(self.pooler(x[:, 0])))


@family(tokens(8))
class ALBERT(nn.Module):
    """One layer, four times."""
    def __init__(self, words=32, width=16):
        super().__init__()
        self.words, self.project, self.layer, self.head = nn.Embedding(words, 6), nn.Linear(6, width), BertLayer(width, 2), nn.Linear(width, 3)

    def forward(self, words):
        x = self.project(self.words(words))
        for _ in range(4):
            x = self.layer(x, None)
        return self.head(x[:, 0])


class T5Attention(nn.Module):
    def __init__(self, width, heads, relative=None):
        super().__init__()
        self.heads, self.two_sided = heads, relative == "both"
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.table = nn.Embedding(8, heads) if relative else None

    def buckets(self, apart, count=8, furthest=16):
        found = torch.zeros_like(apart)
        if self.two_sided:
            count //= 2
            found = found + (apart > 0).to(torch.long) * count
            apart = apart.abs()
        else:
            apart = -torch.min(apart, torch.zeros_like(apart))
        exact = count // 2
        far = exact + (torch.log(apart.float() / exact) / math.log(furthest / exact) * (count - exact)).to(torch.long)
        return found + torch.where(apart < exact, apart, torch.min(far, torch.full_like(far, count - 1)))

    def forward(self, x, memory=None, bias=None, causal=False):
        if bias is None and self.table is not None:
            place = torch.arange(x.shape[1])
            bias = self.table(self.buckets(place[None, :] - place[:, None])).permute(2, 0, 1).unsqueeze(0)
        memory = x if memory is None else memory
        q = self.q(x) * (x.shape[-1] // self.heads) ** 0.5  # T5 does not scale
        return self.o(attend(q, self.k(memory), self.v(memory), self.heads, bias, causal)), bias


class T5Layer(nn.Module):
    def __init__(self, width, relative, decodes):
        super().__init__()
        self.attention, self.across = T5Attention(width, 2, relative), T5Attention(width, 2) if decodes else None
        self.norms = nn.ModuleList([RMSNorm(width) for _ in range(3 if decodes else 2)])
        self.wi, self.wo = nn.Linear(width, 24, bias=False), nn.Linear(24, width, bias=False)

    def forward(self, x, memory=None, bias=None):
        y, bias = self.attention(self.norms[0](x), bias=bias, causal=self.across is not None)
        x = x + y
        x = x if self.across is None else x + self.across(self.norms[1](x), memory)[0]
        return x + self.wo(F.relu(self.wi(self.norms[-1](x)))), bias


@family(both(tokens(8), tokens(6)))
class T5(nn.Module):
    """Places as biases of attention, which the first layer learns for all."""
    def __init__(self, words=32, width=16):
        super().__init__()
        self.shared = nn.Embedding(words, width)
        self.encoder = nn.ModuleList([T5Layer(width, "both" if k == 0 else None, False) for k in range(2)])
        self.decoder = nn.ModuleList([T5Layer(width, "before" if k == 0 else None, True) for k in range(2)])
        self.norm1, self.norm2 = RMSNorm(width), RMSNorm(width)

    def forward(self, source, labels):
        x, bias = self.shared(source), None
        for layer in self.encoder:
            x, bias = layer(x, bias=bias)
        memory, bias = self.norm1(x), None
        moved = labels.new_zeros(labels.shape)
        moved[:, 1:] = labels[:, :-1].clone()
        x = self.shared(moved)
        for layer in self.decoder:
            x, bias = layer(x, memory, bias)
        logits = F.linear(self.norm2(x) * x.shape[-1] ** -0.5, self.shared.weight)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten()), logits


@family(both(tokens(7), tokens(6)))
class Transformer(nn.Module):
    """torch.nn's, with padding and a causal mask; the places are sines."""
    def __init__(self, words=32, width=16):
        super().__init__()
        self.source, self.target, self.width = nn.Embedding(words, width, padding_idx=0), nn.Embedding(words, width), width
        self.transformer, self.head = nn.Transformer(width, 2, 2, 1, 24, 0.0, batch_first=True), nn.Linear(width, words)
        place, rate = torch.arange(10.0).unsqueeze(1), torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
        table = torch.zeros(10, width)
        table[:, 0::2], table[:, 1::2] = torch.sin(place * rate), torch.cos(place * rate)
        self.register_buffer("table", table)

    def forward(self, source, target):
        x, y = (embed(ids) * math.sqrt(self.width) + self.table[:ids.shape[1]]
                for embed, ids in ((self.source, source), (self.target, target)))
        later = torch.triu(torch.ones(target.shape[1], target.shape[1], dtype=torch.bool), 1)
        none = source == 0
        return self.head(self.transformer(x, y, tgt_mask=later, src_key_padding_mask=none, memory_key_padding_mask=none))


class RecurrentModel(nn.Module):
    def __init__(self, kind, words=32, width=12):
        super().__init__()
        self.embed, self.rnn, self.head = nn.Embedding(words, width), kind(width, width, 2, batch_first=True), nn.Linear(width, words)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        y, state = self.rnn(self.embed(ids[:, :-1]))
        logits = self.head(y)
        return F.nll_loss(F.log_softmax(logits, -1).flatten(0, 1), ids[:, 1:].flatten()), state


@family(tokens(8))
class LSTMLanguageModel(RecurrentModel):
    def __init__(self):
        super().__init__(nn.LSTM)


@family(tokens(8))
class GRULanguageModel(RecurrentModel):
    def __init__(self):
        super().__init__(nn.GRU)


@family(both(tokens(7), lambda n, g: (torch.randint(2, 8, (n,), generator=g),)))
class PackedTagger(nn.Module):
    """Sequences of several lengths through an LSTM in both directions."""
    def __init__(self, words=32):
        super().__init__()
        self.embed, self.rnn, self.head = nn.Embedding(words, 8), nn.LSTM(8, 6, bidirectional=True, batch_first=True), nn.Linear(12, 4)

    def forward(self, ids, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(self.embed(ids), lengths, batch_first=True, enforce_sorted=False)
        y, _ = nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True, total_length=ids.shape[1])
        return self.head(y)


class MambaBlock(nn.Module):
    """A state that the input steers, step by step."""
    def __init__(self, width, states=4):
        super().__init__()
        inner = 2 * width
        self.norm, self.states = RMSNorm(width), states
        self.into, self.out = nn.Linear(width, 2 * inner, bias=False), nn.Linear(inner, width, bias=False)
        self.conv, self.steer = nn.Conv1d(inner, inner, 4, groups=inner, padding=3), nn.Linear(inner, 1 + 2 * states, bias=False)
        self.dt = nn.Linear(1, inner)
        self.A_log, self.D = nn.Parameter(torch.log(torch.arange(1.0, states + 1).repeat(inner, 1))), nn.Parameter(torch.ones(inner))

    def forward(self, x):
        u, z = self.into(self.norm(x)).chunk(2, -1)
        u = F.silu(self.conv(u.mT)[..., :x.shape[1]]).mT
        dt, B, C = self.steer(u).split([1, self.states, self.states], -1)
        dt = F.softplus(self.dt(dt))
        decay, given = torch.exp(dt.unsqueeze(-1) * -torch.exp(self.A_log)), (dt * u).unsqueeze(-1) * B.unsqueeze(2)
        state, ys = torch.zeros_like(given[:, 0]), []
        for t in range(x.shape[1]):
            state = decay[:, t] * state + given[:, t]
            ys.append((state * C[:, t].unsqueeze(1)).sum(-1))
        return x + self.out((torch.stack(ys, 1) + u * self.D) * F.silu(z))


@family(tokens(6))
class Mamba(nn.Module):
    def __init__(self, words=32, width=8):
        super().__init__()
        self.embed, self.blocks = nn.Embedding(words, width), nn.Sequential(MambaBlock(width), MambaBlock(width))
        self.norm = RMSNorm(width)

    def forward(self, ids):
        return self.norm(self.blocks(self.embed(ids))) @ self.embed.weight.T


@family(tokens(6))
class SwitchTransformer(nn.Module):
    """Each word goes to the two best of four experts, which take the rows that are theirs."""
    def __init__(self, words=32, width=8, experts=4):
        super().__init__()
        self.embed, self.router, self.head = nn.Embedding(words, width), nn.Linear(width, experts, bias=False), nn.Linear(width, words)
        self.experts = nn.ModuleList([nn.Sequential(nn.Linear(width, 12), nn.ReLU(), nn.Linear(12, width)) for _ in range(experts)])

    def forward(self, ids):
        x = self.embed(ids).flatten(0, 1)
        weights, chosen = self.router(x).softmax(-1).topk(2, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        y = torch.zeros_like(x)
        for k, expert in enumerate(self.experts):
            row, which = torch.where(chosen == k)
            y.index_add_(0, row, expert(x[row]) * weights[row, which].unsqueeze(-1))
        return self.head(x + y).unflatten(0, ids.shape)

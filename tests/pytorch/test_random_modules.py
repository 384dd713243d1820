"""Random modules against eager PyTorch in float64: results and gradients at three shapes, so that extents become symbols.

DCML_RANDOM_MODULES is how many of them (seeds from DCML_RANDOM_SEED on); a failure names its seed, and the plan of a
seed is printed with it.
"""
import os
import random

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dcml.pytorch import DaceModule

COUNT, FIRST = int(os.environ.get("DCML_RANDOM_MODULES", 12)), int(os.environ.get("DCML_RANDOM_SEED", 0))
WIDTH = 4
SHAPES = (3, 5), (2, 7), (4, 3)  # extents of N and L
UNARY = {"tanh": torch.tanh, "sigmoid": torch.sigmoid, "sin": torch.sin, "relu": torch.relu, "gelu": F.gelu, "softplus": F.softplus,
         "silu": F.silu, "square": torch.square, "clamp": lambda x: x.clamp(-0.8, 0.9), "double": lambda x: x + x}
BINARY = {"add": torch.add, "mul": torch.mul, "sub": torch.sub, "max": torch.maximum, "ratio": lambda x, y: x / (1 + y * y),
          "where": lambda x, y: torch.where(x > y, x, 2 * y)}
REDUCE = {"sum": torch.sum, "mean": torch.mean, "max": torch.amax, "logsumexp": torch.logsumexp, "norm": lambda x, dim: (x * x).sum(dim).add(1).sqrt()}


def _widened(x, have, want):
    """x of dimensions `have`, a subsequence of `want`, with extents of 1 where it has none."""
    for d, name in enumerate(want):
        if d >= len(have) or have[d] != name:
            x, have = x.unsqueeze(d), (*have[:d], name, *have[d:])
    return x


def _is_within(have, want):
    rest = iter(want)
    return all(name in rest for name in have)


class RandomModule(nn.Module):
    """A plan of steps on values; each is (method, positions of what it reads, details)."""

    def __init__(self, seed):
        super().__init__()
        self.random = random.Random(seed)
        torch.manual_seed(seed)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.gru, self.cell, self.norm = nn.GRU(WIDTH, WIDTH, batch_first=True), nn.GRUCell(WIDTH, WIDTH), nn.LayerNorm(WIDTH)
        self.energy = nn.Linear(WIDTH, 1, bias=False)
        self.dims, self.plan = [("N", "L", "H"), ("N", "H")], []
        makers = [self._unary, self._binary, self._binary, self._reduce, self._softmax, self._layer, self._norm, self._product, self._part, self._join,
                  self._row, self._update, self._sweep, self._decode, self._decode, self._sum_so_far, self._turn]
        for _ in range(self.random.randint(3, 9)):
            self.random.choice(makers)()
        last = range(max(0, len(self.dims) - 4), len(self.dims))
        self.results = sorted({len(self.dims) - 1, *self.random.choices(last, k=self.random.randint(0, 2))})
        del self.random

    # ---- planning: which step, of which values, and the dimensions of what it gives ----

    def _pick(self, fits=lambda dims: True):
        found = [k for k, dims in enumerate(self.dims) if fits(dims)]
        return self.random.choice(found[-5:]) if found and self.random.random() < 0.6 else self.random.choice(found) if found else None

    def _add(self, step, reads, dims, *details):
        if None not in reads and len(dims) <= 4:
            self.plan.append((step, reads, details))
            self.dims.append(dims)

    def _memory(self):
        return self._pick(lambda dims: len(dims) == 3 and dims[0] == "N" and dims[2] == "H")

    def _unary(self):
        k = self._pick()
        self._add("unary", (k,), self.dims[k], self.random.choice(list(UNARY)))

    def _binary(self):
        k = self._pick()
        j = self._pick(lambda dims: _is_within(dims, self.dims[k]) and len(set(self.dims[k])) == len(self.dims[k]))
        if j is not None:
            self._add("binary", (k, j), self.dims[k], self.random.choice(list(BINARY)), self.dims[j], self.dims[k])

    def _reduce(self):
        k = self._pick(len)
        d = self.random.randrange(len(self.dims[k]))
        self._add("reduce", (k,), self.dims[k][:d] + self.dims[k][d + 1:], self.random.choice(list(REDUCE)), d)

    def _softmax(self):
        k = self._pick(len)
        self._add("softmax", (k,), self.dims[k], self.random.randrange(len(self.dims[k])))

    def _layer(self):
        k = self._pick(lambda dims: dims and dims[-1] == "H")
        self._add("layer", (k,), self.dims[k], self.random.randrange(3))

    def _norm(self):
        k = self._pick(lambda dims: dims and dims[-1] == "H")
        self._add("normalise", (k,), self.dims[k])

    def _product(self):
        k = self._memory()
        j = self._pick(lambda dims: dims == ("N", "H"))
        if j is not None:
            self._add("attend", (k, j), ("N", "H"))

    def _part(self):
        k = self._pick(lambda dims: "L" in dims)
        if k is not None:
            d, start, step = self.dims[k].index("L"), self.random.choice([0, 1]), self.random.choice([1, 1, 2])
            name = "L" if (start, step) == (0, 1) else f"L[{start}::{step}]"
            self._add("part", (k,), (*self.dims[k][:d], name, *self.dims[k][d + 1:]), d, start, step)

    def _join(self):
        k = self._pick(len)
        d, fresh = self.random.randrange(len(self.dims[k])), self.random.random() < 0.5
        j = self._pick(lambda dims: dims == self.dims[k])
        dims = (*self.dims[k][:d], "2", *self.dims[k][d:]) if fresh else (*self.dims[k][:d], f"2{self.dims[k][d]}", *self.dims[k][d + 1:])
        self._add("join", (k, j), dims, d, fresh)

    def _row(self):
        k = self._pick(lambda dims: len(dims) > 1 and "L" in dims)
        if k is not None:
            d = self.dims[k].index("L")
            self._add("row", (k,), self.dims[k][:d] + self.dims[k][d + 1:], d, self.random.choice([0, 1, -1]))

    def _update(self):
        k = self._memory()
        j = self._pick(lambda dims: dims == ("N", "H"))
        self._add("update", (k, j), self.dims[k], self.random.choice([0, 1, -1]), self.random.choice([True, False]))

    def _sweep(self):
        k = self._memory()
        self._add("sweep", (k,), self.dims[k])

    def _decode(self):
        k = self._memory()
        j = self._pick(lambda dims: dims == ("N", "H"))
        steps = self.random.randint(2, 5)
        self._add("decode", (k, j), ("N", str(steps), "H"), steps, self.random.choice(["both", "maps"]))

    def _sum_so_far(self):
        k = self._pick(len)
        self._add("sum_so_far", (k,), self.dims[k], self.random.randrange(len(self.dims[k])))

    def _turn(self):
        k = self._pick(lambda dims: len(dims) > 1)
        self._add("turn", (k,), (*self.dims[k][:-2], self.dims[k][-1], self.dims[k][-2]))

    # ---- the steps ----

    def unary(self, x, name):
        return UNARY[name](x)

    def binary(self, x, y, name, have, want):
        return BINARY[name](x, _widened(y, have, want))

    def reduce(self, x, name, dim):
        return REDUCE[name](x, dim)

    def softmax(self, x, dim):
        return F.softmax(x, dim)

    def layer(self, x, k):
        return self.layers[k](x)

    def normalise(self, x):
        return self.norm(x)

    def attend(self, memory, h):
        weights = torch.softmax(self.energy(torch.tanh(self.layers[0](h).unsqueeze(1) + memory)).squeeze(-1), -1)
        return torch.bmm(weights.unsqueeze(1), memory).squeeze(1)

    def part(self, x, dim, start, step):
        return x[(slice(None),) * dim + (slice(start, None, step),)]

    def join(self, x, y, dim, fresh):
        return torch.stack([x, y], dim) if fresh else torch.cat([x, y], dim)

    def row(self, x, dim, k):
        return x.select(dim, k)

    def update(self, x, y, k, adds):
        x = x.clone()
        if adds:
            x[:, k] += y
        else:
            x[:, k] = y
        return x.mul_(1.5)

    def sweep(self, x):
        return self.gru(x)[0]

    def decode(self, memory, h, steps, kind):
        states = []
        for _ in range(steps):
            context = self.attend(memory, h)
            h = self.cell(context, h)
            states.append(h if kind == "both" else h * context)
        return torch.stack(states, 1)

    def sum_so_far(self, x, dim):
        return torch.cumsum(x, dim)

    def turn(self, x):
        return x.transpose(-1, -2)

    def forward(self, x, h):
        values = [x, h]
        for step, reads, details in self.plan:
            values.append(getattr(self, step)(*(values[k] for k in reads), *details))
        return tuple(values[k] for k in self.results)


def _results(module, parameters, arguments, cotangents):
    found = module(*arguments)
    wanted = [y for y in found if y.requires_grad]
    gradients = torch.autograd.grad(wanted, [*arguments, *parameters], cotangents[:len(wanted)] if cotangents else [torch.ones_like(y) for y in wanted],
                                    allow_unused=True)
    return [*found, *gradients]


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_random_modules_do_as_eager_does(seed):
    eager = RandomModule(seed).double()
    module = DaceModule(eager, backward=True)
    parameters = list(eager.parameters())
    for n, length in SHAPES:
        arguments = [torch.randn(n, length, WIDTH, dtype=torch.float64, requires_grad=True), torch.randn(n, WIDTH, dtype=torch.float64, requires_grad=True)]
        with torch.no_grad():
            cotangents = [torch.randn_like(y) for y in eager(*arguments)]
        wanted = _results(eager, parameters, arguments, cotangents)
        found = _results(module, parameters, arguments, cotangents)
        for k, (got, want) in enumerate(zip(found, wanted, strict=True)):
            got, want = (torch.zeros(()) if v is None else v.detach() for v in (got, want))
            size = max(1.0, float(want.abs().max()) if want.numel() else 0.0)
            got = got.expand_as(want) if not got.ndim else got
            want = want.expand_as(got) if not want.ndim else want
            torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9 * size, equal_nan=True, check_dtype=False,
                                       msg=lambda text: f"seed {seed}, N {n}, L {length}, value {k}: {text}\n{eager.plan}")

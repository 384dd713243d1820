"""Attention in whatever spelling is one step that stores no matrix of scores, and gives what eager gives."""
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from dcml import _core
from dcml.pytorch import DaceModule


class Plain(torch.nn.Module):
    def forward(self, q, k, v, mask=None):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


class Causal(torch.nn.Module):
    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3)


class Spelled(torch.nn.Module):
    """As in BERT: a division, and a mask of padding that is added."""

    def forward(self, q, k, v, padding):
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        added = torch.where(padding, 0.0, -1e4)[:, None, None, :]
        return torch.softmax(scores + added, -1) @ v


class Windows(torch.nn.Module):
    """As in Swin: a bias that all windows share is learned, and a mask of each is added where the batch is split."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(5)
        self.bias = torch.nn.Parameter(torch.randn(1, 3, 9, 9, generator=generator))
        self.register_buffer("hidden", torch.where(torch.rand(4, 9, 9, generator=generator) < 0.3, -100.0, 0.0))

    def forward(self, q, k, v):
        q, k, v = q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1)
        scores = (q * 0.5) @ k.transpose(-2, -1) + self.bias
        scores = scores.view(-1, 4, 3, 9, 9) + self.hidden[None, :, None]
        return scores.view(-1, 3, 9, 9).softmax(-1) @ v


def operands(queries, keys, width, values, dtype=torch.float32):
    generator = torch.Generator().manual_seed(queries)
    return tuple(torch.randn(2, 3, n, d, dtype=dtype, generator=generator).requires_grad_()
                 for n, d in ((queries, width), (keys, width), (keys, values)))


def seen_by_some(queries, keys):
    """A mask under which the second query sees no key."""
    mask = torch.rand(queries, keys, generator=torch.Generator().manual_seed(3)) < 0.6
    mask[1] = False
    return mask


CASES = {
    "full_blocks": (Plain(), operands(128, 256, 64, 64)),
    "odd_sizes": (Plain(), operands(67, 301, 13, 5)),
    "f64": (Causal(), operands(70, 70, 16, 16, torch.float64)),
    "causal": (Causal(), operands(200, 200, 24, 24)),
    "causal_with_fewer_keys": (Causal(), operands(90, 40, 8, 8)),
    "mask_of_booleans": (Plain(), (*operands(20, 30, 8, 8), seen_by_some(20, 30))),
    "mask_by_key": (Plain(), (*operands(20, 30, 8, 8), torch.arange(30).lt(torch.tensor([[21], [30]]))[:, None, None])),
    "spelled": (Spelled(), (*operands(20, 20, 8, 8), torch.arange(20).lt(torch.tensor([[17], [20]])))),
}


@pytest.mark.parametrize("name", CASES)
def test_value_and_gradients_are_those_of_eager(name):
    module, arguments = CASES[name]
    compiled, wanted = DaceModule(module, backward=True), module(*arguments)
    cotangent = torch.randn(wanted.shape, dtype=wanted.dtype, generator=torch.Generator().manual_seed(1))
    leaves = arguments[:3]
    results = []
    for call in (module, compiled, compiled):
        value = call(*arguments)
        results.append((value, *torch.autograd.grad(value, leaves, cotangent)))
    for want, got, again in zip(*results):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        assert torch.equal(got, again)
    text = compiled.explain()
    assert "AttentionGradient" in text and "Softmax" not in text


def test_no_matrix_of_scores_is_kept_or_made():
    q, k, v = operands(256, 320, 8, 8)
    module = DaceModule(Causal(), backward=True)
    module(q, k, v).sum().backward()
    for report in module._function().report():
        assert all(value["bytes"] < 256 * 320 for value in report["values"] if value["place"] in ("arena", "saved", "lent"))


def test_windows_of_an_image_have_a_bias_that_is_learned_and_masks():
    generator = torch.Generator().manual_seed(2)
    arguments = [torch.randn(2, 4, 3, 9, 8, generator=generator).requires_grad_() for _ in range(3)]
    module, compiled = Windows(), DaceModule(Windows(), backward=True)
    results = []
    for call in (module, compiled, compiled):
        value = call(*arguments)
        parameters = list(call.parameters())
        results.append((value, *torch.autograd.grad(value, (*arguments, *parameters), torch.ones_like(value))))
    for want, got, again in zip(*results):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        assert torch.equal(got, again)
    assert "AttentionGradient" in compiled.explain() and "Softmax" not in compiled.explain()


@pytest.mark.parametrize("shape", [(6, 19), (3, 1, 19), (2, 1, 6, 19), (2, 3, 6, 19), (1, 3, 6, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_added_to_scores_has_a_gradient(shape, dtype):
    q, k, v = operands(6, 19, 4, 4, dtype)
    mask, compiled = torch.randn(shape, dtype=dtype, requires_grad=True), DaceModule(Plain(), backward=True)
    wanted, got = Plain()(q, k, v, mask), compiled(q, k, v, mask)
    leaves, cotangent = (q, k, v, mask), torch.randn_like(wanted)
    for g, w in zip(torch.autograd.grad(got, leaves, cotangent), torch.autograd.grad(wanted, leaves, cotangent)):
        torch.testing.assert_close(g, w, rtol=1e-4, atol=1e-5)
    assert "AttentionGradient" in compiled.explain() and "Softmax" not in compiled.explain()


def test_a_mask_of_numbers_is_added_where_nothing_is_differentiated():
    q, k, v = (x.detach() for x in operands(6, 7, 4, 4))
    mask, module = torch.randn(3, 6, 7), DaceModule(Plain())
    with torch.no_grad():
        torch.testing.assert_close(module(q, k, v, mask), Plain()(q, k, v, mask), rtol=1e-4, atol=1e-5)
    assert "Attention" in module.explain()


def test_all_queries_masked_give_zero():
    q, k, v = operands(5, 6, 4, 4)
    hidden, module = torch.zeros(5, 6, dtype=torch.bool), DaceModule(Plain(), backward=True)
    value = module(q, k, v, hidden)
    assert not value.any()
    assert not any(g.any() for g in torch.autograd.grad(value.sum(), (q, k, v)))


def test_a_row_of_hidden_scores_is_not_a_number_where_softmax_says_so():
    class Hidden(torch.nn.Module):
        def forward(self, q, k, v, seen):
            return torch.softmax(torch.where(seen, q @ k.transpose(-2, -1), float("-inf")), -1) @ v

    q, k, v = operands(20, 30, 8, 8)
    seen, module = seen_by_some(20, 30), DaceModule(Hidden())
    with torch.no_grad():
        value = module(q, k, v, seen)
        torch.testing.assert_close(value, Hidden()(q, k, v, seen), equal_nan=True, rtol=1e-4, atol=1e-5)
    assert value[:, :, 1].isnan().all() and "Attention" in module.explain()


ROWS = """graph rows opset 23 {
  input q: f32[2, 9, 8]
  input k: f32[2, 6, 8]
  input v: f32[2, 6, 4]
  input mask: %s
  input g: f32[2, 9, 4]
  temp y: f32[2, 9, 4]
  temp l: f32[2, 9]
  temp a: f32[2, 9, 8]
  temp b: f32[2, 6, 8]
  temp c: f32[2, 6, 4]
  temp d: f32[2, 9, 6]
  outputs y, l, a, b, c, d
  state main {
    y, l = dcml::Attention@1(q, k, v, mask) {is_causal = %d, safe = 1, scale = 0.5}
    a, b, c, d = dcml::AttentionGradient@1(q, k, v, mask, y, l, g) {is_causal = %d, safe = 1, scale = 0.5}
  }
}"""


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("mask", ["bool[9, 6]", "f32[6]", "f32[2, 1, 6]"])
def test_rows_say_what_the_routines_compute(mask, causal):
    generator = np.random.default_rng(0)
    shapes = [(2, 9, 8), (2, 6, 8), (2, 6, 4), tuple(map(int, mask[mask.index("[") + 1:-1].split(","))), (2, 9, 4)]
    arguments = [generator.standard_normal(shape).astype(np.float32) for shape in shapes]
    if mask.startswith("bool"):
        arguments[3] = arguments[3] > -0.3
        arguments[3][2] = False
    text = ROWS % (mask, causal, causal)
    routines, rows = (_core.Function(_core.parse(text), **options) for options in ({}, {"natives": "none"}))
    for got, want in zip(routines(*arguments), rows(*arguments)):
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-4, atol=1e-5)
    assert [step["by"] for step in routines.report()[0]["steps"]].count("dcml") == 2
    assert all(step["by"] != "dcml" for step in rows.report()[0]["steps"])

"""Sums down the columns of rows on the CUDA target: a team goes through some rows, and keeps what they add up to in registers."""
import pytest
import torch

from dcml import _core

TYPES = {"f32": (torch.float32, 2e-6), "f64": (torch.float64, 1e-12), "f16": (torch.float16, 4e-3), "bf16": (torch.bfloat16, 3e-2)}
NORMS = {"layer": ("LayerNormalization@17", "X, W, B"), "rms": ("RMSNormalization@23", "X, W")}
# norm, type, rows, columns, are there bands?  Teams take rows in turn: 264, 528 where there are 2048 columns.
CASES = [
    ("layer", "f32", 300, 4096, True),
    ("layer", "f32", 5, 2052, True),
    ("layer", "f32", 0, 2048, True),
    ("layer", "f16", 530, 2048, True),
    ("layer", "bf16", 270, 4000, True),
    ("rms", "f64", 270, 2400, True),
    ("rms", "f32", 270, 5120, True),
    ("rms", "f16", (2, 264), 3000, True),
    ("rms", "f64", 3, 4096, False),
    ("layer", "f32", 30, 2044, False),
    ("layer", "f32", 9, 4100, False),
]


def _graph(norm, kind, rest):
    operator, inputs = NORMS[norm]
    columns = rest.split(", ")[-1]
    bias = f"  input B: {kind}[{columns}]\n" if norm == "layer" else ""
    return _core.parse(f"""graph g opset 23 {{
  symbol N >= 0
  input X: {kind}[N, {rest}]
  input W: {kind}[{columns}]
{bias}  temp Y: {kind}[N, {rest}]
  outputs Y
  state main {{
    Y = {operator}({inputs})
  }}
}}
""")


def _results(norm, kind, rows, columns, backend):
    draw = torch.Generator().manual_seed(7)
    shape = (*rows, columns) if isinstance(rows, tuple) else (rows, columns)
    x, seed = (torch.randn(shape, generator=draw).to(TYPES[kind][0]) for _ in range(2))
    names = NORMS[norm][1].split(", ")
    factors = [torch.randn(columns, generator=draw).to(x.dtype) for _ in names[1:]]
    graph = _graph(norm, kind, ", ".join(map(str, shape[1:])))
    outputs, gradients = _core.Function(graph, wrt=names, backend=backend, natives="none").vjp([x, *factors], [seed])
    return [*outputs, *gradients]


@pytest.mark.parametrize("norm, kind, rows, columns, in_bands", CASES)
def test_gradients_are_those_of_the_interpreter_and_have_the_same_bits_in_any_order_of_threads(
        fake, norm, kind, rows, columns, in_bands, monkeypatch, tmp_path):
    wanted = _results(norm, kind, rows, columns, "interp")
    monkeypatch.setenv("DCML_DUMP", str(tmp_path))
    fake.set(SEED=1)
    results = _results(norm, kind, rows, columns, "cuda")
    assert any("register part" in path.read_text() for path in tmp_path.glob("*rows.kernel")) == in_bands
    fake.set(SEED=2)
    for got, again, want in zip(results, _results(norm, kind, rows, columns, "cuda"), wanted):
        assert torch.equal(got, again) and got.dtype == want.dtype and got.shape == want.shape
        scale = max(1, want.double().abs().amax().item()) if want.numel() else 1
        torch.testing.assert_close(got.double(), want.double(), rtol=0, atol=TYPES[kind][1] * scale)
    assert not fake.fault()

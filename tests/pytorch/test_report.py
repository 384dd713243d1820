"""explain(), profile() and the ranges of torch.profiler."""
import re

import pytest
import torch
from torch import nn
from torch.profiler import profile

import dcml
from dcml.pytorch import DaceModule


def module_and_input():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10))
    return DaceModule(module, backward=True, sdfg_name="net"), torch.randn(4, 3, 8, 8)


def test_explain_lists_kernels_shapes_work_and_memory():
    module, x = module_and_input()
    with pytest.raises(dcml.Error, match="call the module once"):
        module.explain()
    module(x).sum().backward()
    text = module.explain()
    assert re.search(r"^net, forward: \d+ kernels, [\d.]+ Mflop$", text, re.M)
    assert re.search(r"^net, backward: \d+ kernels", text, re.M)
    line = re.search(r"^ +\d+ +Conv +\S+ +\[4, 8, 6, 6\] +(\S+) +(\S+) +(\S+)$", text, re.M)
    assert line.group(1) in ("onednn", "compiled", "interpreted")
    multiply_adds = 4 * 8 * 36 * 27
    assert 2 * multiply_adds <= float(line.group(2)) * 1e6 <= 2.2 * multiply_adds
    assert float(line.group(3)) * 1e3 >= 4 * (x.numel() + 8 * 27 + 4 * 8 * 36)
    assert "arena" in text and "saved for the backward pass" in text
    assert len(re.findall(r"^  passes [\d.]+ ms: .*\bexpand [\d.]+", text, re.M)) == 2


@pytest.mark.parametrize("stride, padding, groups", [(1, 1, 1), (2, 1, 1), (2, 3, 4), (1, 0, 8)])
def test_a_convolution_is_two_operations_for_each_weight_and_output(stride, padding, groups):
    conv = nn.Conv2d(8, 16, 7 if padding == 3 else 3, stride, padding, groups=groups, bias=False)
    module, x = DaceModule(conv, backward=True), torch.randn(2, 8, 20, 20, requires_grad=True)
    y = module(x)
    y.sum().backward()
    flops = [float(f) * 1e6 for f in re.findall(r"^ +\d+ +Conv +.*\] +\S+ +(\S+) +\S+$", module.explain(), re.M)]
    exact = 2 * y.numel() * conv.weight[0].numel()
    assert len(flops) == 3 and flops[0] == pytest.approx(exact, rel=1e-3)
    assert all(0.6 * exact < f < 1.3 * exact for f in flops[1:])  # what lies in the padding may count or not


def test_explain_speaks_of_the_extents_used_last():
    module, x = module_and_input()
    module(x)
    module(torch.randn(7, 3, 8, 8))
    assert "[7, 8, 6, 6]" in module.explain() and "[4, 8, 6, 6]" not in module.explain()


def test_profile_writes_a_page_with_times(tmp_path):
    module, x = module_and_input()
    path = module.profile(x.requires_grad_(), calls=3, path=tmp_path / "page.html")
    text = path.read_text()
    assert text.startswith("<!DOCTYPE html>") and "forward:" in text and "backward:" in text
    assert len(re.findall(r"class=bar", text)) >= 4
    assert all(p.grad is None for p in module.parameters()) and x.grad is None
    assert "us in" in text and not re.search(r"forward: 0\.0 us", text)


def test_torch_profiler_shows_kernels_by_name():
    module, x = module_and_input()
    for _ in range(3):
        module(x).sum().backward()
    with profile() as seen:
        module(x).sum().backward()
    names = {event.key for event in seen.key_averages()}
    assert {"dcml::Conv", "dcml::Gemm"} <= names
    module(x)
    with profile() as again:
        torch.ones(2).sum()
    assert not any(event.key.startswith("dcml") for event in again.key_averages())


def test_explain_says_why_another_library_runs_a_step():
    module = DaceModule(nn.Linear(16, 8).double(), training=True)
    module(torch.randn(4, 16, dtype=torch.float64))
    text = module.explain()
    if " openblas " not in text:
        pytest.skip("OpenBLAS is not installed")
    assert "is run by openblas (onednn: a type other than f32 and bf16)" in text


def test_an_outer_product_is_compiled():
    module = DaceModule(nn.Linear(1, 24))
    module(torch.ones(8, 1))
    assert not {"onednn", "openblas"} & {step["by"] for step in module._function().report()[0]["steps"]}

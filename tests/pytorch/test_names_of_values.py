"""Values of a captured graph are named after the modules that they come from."""
import re

import torch
from torch import nn

from dcml.pytorch import DaceModule


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(2, 2, 3, padding=1, bias=False), nn.BatchNorm2d(2)
        self.conv2, self.bn2 = nn.Conv2d(2, 2, 3, padding=1, bias=False), nn.BatchNorm2d(2)

    def forward(self, x):
        return torch.relu(self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x))))) + x)


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = nn.Sequential(Block(), Block())
        self.head = nn.Linear(2, 3)

    def forward(self, x):
        return self.head(self.layer1(x).mean((2, 3)))


def names(module, *args):
    compiled = DaceModule(module, backward=True)
    compiled(*args).sum().backward()
    return compiled, list(compiled.sdfg.arrays)


def test_what_leaves_a_module_is_its_out_and_the_rest_says_what_it_is():
    _, found = names(Network(), torch.randn(2, 2, 4, 4))
    inside = [f"layer1.{k}.{name}" for k in range(2) for name in ("conv1.out", "bn1.out", "relu", "conv2.out", "bn2.out", "add", "out")]
    assert set(inside) <= set(found) and "head.out" in found
    assert sum(name.endswith(".out") for name in found) == 11


def test_statistics_are_named_after_their_buffers():
    _, found = names(Network(), torch.randn(2, 2, 4, 4))
    assert {f"layer1.1.bn2.{name}.after" for name in ("running_mean", "running_var", "num_batches_tracked")} <= set(found)


def test_what_only_a_row_knows_is_named_after_the_module_too():
    compiled, _ = names(Network(), torch.randn(2, 2, 4, 4))
    assert {f"layer1.{k}.bn{n}.{name}" for k in range(2) for n in (1, 2) for name in "UV"} <= set(compiled.forward_sdfg.arrays)


def test_gradients_are_named_after_what_they_belong_to():
    compiled, _ = names(Network(), torch.randn(2, 2, 4, 4))
    found = list(compiled.backward_sdfg.arrays)
    assert any(name.startswith("d_layer1.0.bn1.out") for name in found)
    assert "layer1.0.conv1.weight" in found


def test_names_are_unique_and_the_same_in_each_capture():
    both = [names(Network(), torch.randn(2, 2, 4, 4))[1] for _ in range(2)]
    assert both[0] == both[1] and len(set(both[0])) == len(both[0])


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.out = nn.Parameter(torch.ones(3))  # called as a result might be

    def forward(self, x):
        return self.layer(torch.tanh(self.layer(x))) * self.out


def test_calls_of_one_module_are_counted():
    compiled, found = names(Twice(), torch.randn(2, 3))
    assert {"layer.out", "layer.out_2", "out"} <= set(found)
    torch.testing.assert_close(compiled(torch.ones(2, 3)), compiled.model(torch.ones(2, 3)), rtol=1e-4, atol=1e-5)


def test_no_name_has_torch_numbers_where_there_is_a_module():
    _, found = names(Network(), torch.randn(2, 2, 4, 4))
    assert not any(re.search(r"_native_batch_norm|getitem", name) for name in found)


def test_short_constants_are_named_by_what_is_in_them():
    class Pooled(nn.Module):
        def forward(self, x):
            return (x * 0.5).mean((2, 3)) + torch.arange(7.0)
    compiled, found = names(Pooled(), torch.randn(2, 7, 4, 4, requires_grad=True))
    assert {"0.5", "[2, 3]"} <= set(found) and not any(name.startswith("c_") for name in found)


def test_a_message_names_the_layer():
    compiled, _ = names(Network(), torch.randn(2, 2, 4, 4))
    assert "layer1.0.conv1.out" in compiled.explain()

"""The rows of the CUDA table: what is measured, and what share of the peers' time or of the machine's limit is allowed.

Must not know: how anything is measured.
"""
import importlib.util
import os
import sys
from dataclasses import dataclass, field
from typing import Callable

import torch
from torch import nn
from torch.nn import functional as F


def _modules():
    """bench/workloads.py, whose folder must not be on the path of modules."""
    path = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "workloads.py")
    spec = importlib.util.spec_from_file_location("workloads", path)
    found = sys.modules["workloads"] = importlib.util.module_from_spec(spec)  # which its dataclasses ask for
    spec.loader.exec_module(found)
    return found


workloads = _modules()


@dataclass(frozen=True)
class Row:
    """name: for --only.  make: (small) -> (module, arguments), on torch's default device; small: for a try without a GPU.
    bars: {peer: dcml's share of its time at most}; peer "limit" is the time to move `moved` bytes at the speed of a copy.
    autocast: products and convolutions in bfloat16, weights in float32.  last: images and filters lie channels-last."""
    name: str
    title: str
    make: Callable
    bars: dict = field(default_factory=dict)
    moved: Callable = lambda arguments: 0
    autocast: bool = False
    last: bool = False


class CrossEntropy(nn.Module):
    def forward(self, logits, classes):
        return F.cross_entropy(logits, classes)


class Sines(nn.Module):
    """n operators, each of which needs the one before."""

    def __init__(self, n):
        super().__init__()
        self.n = n

    def forward(self, x):
        for _ in range(self.n):
            x = torch.sin(x)
        return x


class AddOne(nn.Module):
    def forward(self, x):
        return x + 1


def _mish(small):
    return nn.Mish(), (torch.randn(2, 4, 8, 8) if small else torch.randn(8, 32, 224, 224),)


def _softmax(small):
    return nn.Softmax(-1), (torch.randn(8, 64) if small else torch.randn(8192, 4096),)


def _layer_norm(small):
    return (nn.LayerNorm(64), (torch.randn(8, 64),)) if small else (nn.LayerNorm(4096), (torch.randn(8192, 4096),))


def _rms_norm(small):
    return (nn.RMSNorm(64), (torch.randn(8, 64),)) if small else (nn.RMSNorm(4096), (torch.randn(8192, 4096),))


def _norm_add_relu(small):
    shape = (2, 4, 8, 8) if small else (64, 128, 56, 56)
    return workloads.NormAddRelu(shape[1]), (torch.randn(shape), torch.randn(shape))


def _cross_entropy(small):
    rows, classes = (8, 50) if small else (8192, 32768)
    return CrossEntropy(), (torch.randn(rows, classes), torch.randint(0, classes, (rows,)))


def _resnet50(small):
    return workloads.resnet50(2, 64) if small else workloads.resnet50(64)


def _bert(small):
    return workloads.bert(8, 1) if small else workloads.bert(512, 8)


def _decoders(small):
    return workloads.decoders(8, 1) if small else workloads.decoders(1024, 8)


def _passes(n):
    """Bytes of n times the first argument: what must be read and written where nothing is kept on the chip between the two
    directions, and one direction reads what it needs once."""
    return lambda arguments: n * arguments[0].numel() * arguments[0].element_size()


_RATIOS = {"eager": 0.7, "compile": 0.9}

ROWS = [
    Row("mish", "Mish 8×32×224², training step", _mish, {"eager": 0.35, "compile": 0.8, "limit": 1.2}, _passes(5)),
    Row("softmax", "softmax [8192, 4096], training", _softmax, _RATIOS, _passes(5)),
    Row("layernorm", "LayerNorm [8192, 4096], training", _layer_norm, _RATIOS, _passes(5)),
    Row("rmsnorm", "RMSNorm [8192, 4096], training", _rms_norm, _RATIOS, _passes(5)),
    Row("batchnorm", "BatchNorm + add + ReLU 64×128×56², training", _norm_add_relu, _RATIOS, _passes(12)),
    Row("crossentropy", "cross entropy [8192, 32768], training", _cross_entropy, _RATIOS, _passes(3)),
    Row("resnet50", "ResNet-50 224², N=64, training", _resnet50, {"compile": 0.95}),
    Row("resnet50-bf16", "ResNet-50 224², N=64, bf16 channels-last, training", _resnet50, {"compile": 0.95}, autocast=True, last=True),
    Row("bert", "BERT-base layer, 512 tokens × 8, training", _bert, {"compile": 0.95}),
    Row("bert-bf16", "BERT-base layer, 512 tokens × 8, bf16, training", _bert, {"compile": 0.95}, autocast=True),
    Row("gpt", "two GPT blocks (768, causal, 1024 tokens × 8), training", _decoders, {"compile": 0.95}),
    Row("gpt-bf16", "two GPT blocks (768, causal, 1024 tokens × 8), bf16, training", _decoders, {"compile": 0.95}, autocast=True),
    Row("mbconv", "MBConv with swish and SE, N=64, training", lambda small: workloads.mbconv(1 if small else 64),
        {"eager": 0.36, "compile": 0.8}),
]
OTHERS = {"calls": "x + 1 of 16 floats, per call", "launches": "a kernel of a program of 100, of 1,024 floats",
          "steps": "1,000 training steps: memory, and values as on the processor"}

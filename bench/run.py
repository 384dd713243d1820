"""Measures dcml against PyTorch and prints ratios.

Each contender runs in a process of its own (thread pools that spin poison each other); the processes take turns, and
the median of a contender's samples counts.  What takes microseconds and no threads is measured call by call in turns
in one process: from process to process the same code may differ by half.  Usage: run.py [rounds]
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile

_COMMON = """
import time, sys, json, torch, torch.nn.functional as F
from torch import nn
def timed(run, n):
    for _ in range(3): run()
    out = []
    for _ in range(n):
        t = time.perf_counter(); run(); out.append(time.perf_counter() - t)
    print(json.dumps(sorted(out)[len(out) // 2]))
def in_turns(runs, n):
    out = [[] for _ in runs]
    for k in range(n):
        for run, times in zip(runs, out):
            t = time.perf_counter(); run(); times.append(time.perf_counter() - t)
    print(json.dumps([sorted(times[50:])[(n - 50) // 2] for times in out]))
"""
_STEP = """
def training(m):
    def run():
        x.grad = None
        m(x).backward(dy)
    return run
"""
_MISH = _COMMON + """
class Mish(nn.Module):
    def forward(self, x): return x * torch.tanh(F.softplus(x))
x = torch.rand(8, 32, 224, 224, requires_grad=True); dy = torch.rand(8, 32, 224, 224)
""" + _STEP
_DIGITS = _COMMON + """
sys.path.insert(0, {examples!r})
import digits
torch.manual_seed(0)
x, y, _, _ = digits.load(); x, y = x[:64], y[:64]
def training(m):
    opt = torch.optim.Adam(m.parameters(), lr=1e-3)
    return lambda: digits.step(m, opt, x, y)
"""
_CALL = _COMMON + """
class Small(nn.Module):
    def forward(self, x): return x + 1
x = torch.rand(16, requires_grad=True); dy = torch.rand(16)
""" + _STEP
_LSTM = _COMMON + """
class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(64, 128, batch_first=True)
    def forward(self, x): return self.lstm(x)[0]
torch.manual_seed(0)
x = torch.randn(32, 50, 64)
def training(m):
    def run():
        m.zero_grad()
        m(x).square().mean().backward()
    return run
"""
_WRAP = "from dcml.pytorch import DaceModule\n"
# The first call compiles; making the optimizer, which imports half of torch, is not part of it.
_FIRST = _DIGITS + ("step = training(digits.CompiledDigits()); t = time.perf_counter(); step(); "
                    "print(json.dumps(time.perf_counter() - t))")

# name, unit, bar, {contender: program}; the ratio is the first contender over each of the others.  A program of several
# contenders, separated by commas, gives a time for each.
ROWS = [
    ("Mish 8x32x224x224, forward + backward", "ms", {"eager": 0.25, "torch.compile": 0.4}, {
        "dcml": _MISH + _WRAP + "timed(training(DaceModule(Mish(), backward=True)), 9)",
        "eager": _MISH + "timed(training(Mish()), 9)",
        "torch.compile": _MISH + "timed(training(torch.compile(Mish())), 9)"}),
    ("digits CNN, one training step, batch 64", "ms", {"eager": 0.8}, {
        "dcml": _DIGITS + "timed(training(digits.CompiledDigits()), 60)",
        "eager": _DIGITS + "timed(training(digits.Digits()), 60)"}),
    ("LSTM 64 -> 128, batch 32, 50 steps, fwd + bwd", "ms", {"eager": 1.0}, {
        "dcml": _LSTM + _WRAP + "timed(training(DaceModule(Tagger(), backward=True)), 30)",
        "eager": _LSTM + "timed(training(Tagger()), 30)"}),
    ("forward of a 16-float module, per call", "us", {}, {
        "dcml,eager": _CALL + _WRAP + "ms = DaceModule(Small()), Small()\n"
                      "with torch.no_grad(): in_turns([lambda m=m: m(dy) for m in ms], 4000)"}),
    ("forward + backward of it, per call", "us", {"eager": 1.0}, {
        "dcml,eager": _CALL + _WRAP + "in_turns([training(DaceModule(Small(), backward=True)), training(Small())], 4000)"}),
    ("digits, first training step with a warm cache", "s", {}, {"dcml": _FIRST}),
    ("import dcml beyond import torch", "s", {}, {
        "dcml": "import time, json, torch; t = time.perf_counter(); import dcml; print(json.dumps(time.perf_counter() - t))"}),
]
_SCALE = {"ms": 1e3, "us": 1e6, "s": 1}


def measure(program):
    """Seconds that one run reports, a list of one for each contender; empty if it failed."""
    here = os.path.dirname(os.path.abspath(__file__))
    examples = os.path.join(os.path.dirname(here), "examples")
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(program.replace("{examples!r}", repr(examples)))
        file.flush()
        done = subprocess.run([sys.executable, file.name], capture_output=True, text=True)
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        print(f"  failed: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return []
    found = json.loads(lines[-1])
    return found if isinstance(found, list) else [found]


def main(rounds=3):
    print(f"{'what':<48} {'contender':<14} {'median':>10}    ratio (bar)")
    for title, unit, bars, contenders in ROWS:
        samples = {name: [] for names in contenders for name in names.split(",")}
        for _ in range(rounds):
            for names, program in contenders.items():
                for name, seconds in zip(names.split(","), measure(program)):
                    samples[name].append(seconds)
        medians = {name: statistics.median(s) for name, s in samples.items() if s}
        for name, value in medians.items():
            ratio = ""
            if name != "dcml" and "dcml" in medians:
                bar = f" (<= {bars[name]})" if name in bars else ""
                ratio = f"dcml / {name} = {medians['dcml'] / value:.2f}{bar}"
            print(f"{title:<48} {name:<14} {value * _SCALE[unit]:>8.2f} {unit}  {ratio}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))

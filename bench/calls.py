"""What takes microseconds, or happens once: calls of a module of 16 floats, its first call, the import.

Calls are measured in turns in one process: from process to process the same code may differ by half.
"""
import statistics

from turns import answer_of

_CALLS = """
import json, time, torch
from dcml.pytorch import DaceModule
class Small(torch.nn.Module):
    def forward(self, x): return x + 1
x, dy, y = torch.rand(16, requires_grad=True), torch.rand(16), torch.rand(16)
def medians(runs, n=4000):
    out = [[] for _ in runs]
    for k in range(n):
        for run, times in zip(runs, out):
            begin = time.perf_counter(); run(); times.append(time.perf_counter() - begin)
    return [sorted(times[50:])[(n - 50) // 2] for times in out]
def training(m):
    def run():
        x.grad = None
        m(x).backward(dy)
    return run
with torch.no_grad(): forward = medians([lambda m=m: m(y) for m in (DaceModule(Small()), Small())])
print(json.dumps([forward, medians([training(DaceModule(Small(), backward=True)), training(Small())])]))
"""
_IMPORT = "import json, time, torch; begin = time.perf_counter(); import dcml; print(json.dumps(time.perf_counter() - begin))"


def lines():
    forward, both = answer_of(_CALLS)
    loaded = statistics.median(answer_of(_IMPORT) for _ in range(3))
    return [f"{title:<56} {ours / theirs:.2f} of eager: {1e6 * ours:.2f} against {1e6 * theirs:.2f} µs"
            for title, (ours, theirs) in (("a call of 16 floats, forward", forward), ("a call of 16 floats, forward and backward", both))] \
        + [f"{'import of dcml beyond torch':<56} {loaded * 1e3:.2f} ms"]

"""Operators at about a million elements, forward and gradient, against eager PyTorch; the worst come last.

One process runs both in turns: dcml's kernels and torch's share a pool of threads.  A time is the least of many, since
neighbours on the machine only add; with OMP_NUM_THREADS=1 it is the processor's, which they hardly touch.  Values and
gradients are compared before.
"""
import argparse
import os
import sys
import time

if __name__ == "__main__" and "MALLOC_TOP_PAD_" not in os.environ:  # as contenders.py has it, which glibc reads at its start
    from contenders import RETAINED
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **RETAINED})

import torch
from op_table import GROUPS


class _Module(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def _least(runs, seconds):
    """For each, its fastest call, taken in turns."""
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    best, begin, rounds = [float("inf")] * len(runs), clock(), 0
    while rounds < 3 or clock() - begin < seconds:
        rounds += 1
        for k, run in enumerate(runs):
            start = clock()
            run()
            best[k] = min(best[k], clock() - start)
    return best


def measure(function, shapes, seconds):
    """((dcml, eager) of the forward, the same of forward and gradient or None)."""
    from dcml.pytorch import DaceModule
    generator = torch.Generator().manual_seed(1)
    inputs = [torch.randn(s, generator=generator) for s in shapes]
    with torch.no_grad():
        ours, theirs = DaceModule(_Module(function)), function
        torch.testing.assert_close(ours(*inputs), theirs(*inputs), rtol=1e-2, atol=1e-2)
        forward = _least([lambda: ours(*inputs), lambda: theirs(*inputs)], seconds)
    inputs = [x.requires_grad_() for x in inputs]
    result = theirs(*inputs)
    if not result.requires_grad:
        return forward, None
    trained, cotangent = DaceModule(_Module(function), backward=True), torch.randn(result.shape, generator=generator)

    def step(run):
        for x in inputs:
            x.grad = None
        run(*inputs).backward(cotangent)
        return [x.grad for x in inputs]

    for a, b in zip(step(trained), step(theirs)):
        assert b is None or float((a - b).norm()) <= 1e-2 * float(b.norm()) + 1e-6, "gradients differ"
    return forward, _least([lambda: step(trained), lambda: step(theirs)], seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="operators whose name holds this text")
    parser.add_argument("--group", choices=[group.__name__[1:] for group in GROUPS], help="one part of the table")
    parser.add_argument("--seconds", type=float, default=0.2, help="for each measurement (0.2)")
    parser.add_argument("--worst", type=int, default=20, help="how many to show at the end (20)")
    arguments = parser.parse_args()
    rows = []
    groups = [group for group in GROUPS if arguments.group in (None, group.__name__[1:])]
    for name, function, shapes in (row for group in groups for row in group()):
        if arguments.only not in name:
            continue
        try:
            found = measure(function, shapes, arguments.seconds)
        except Exception as error:  # noqa: BLE001  (one operator that fails is a row of the table)
            print(f"{name:<32} {type(error).__name__}: {str(error).splitlines()[0][:90]}", flush=True)
            continue
        for what, times in zip(("forward", "training"), found):
            if times:
                ours, eager = times[0], times[1]
                title = f"{name}, {what}"
                rows.append((ours / eager, f"{title:<40} {ours / eager:6.2f} of eager: {1e3 * ours:.3f} against {1e3 * eager:.3f} ms"))
                print(rows[-1][1], flush=True)
    rows.sort()
    above = sum(ratio > 1.05 for ratio, _ in rows)
    print(f"\n{above} of {len(rows)} above 1.05; the worst:", *(text for _, text in rows[-arguments.worst:]), sep="\n")


if __name__ == "__main__":
    main()

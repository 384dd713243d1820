"""Measures dcml against its opponents, and prints a table of ratios.

Contenders run in processes of their own (pools of threads that spin would poison each other) and take turns in rounds: a
ratio is that of two medians of one round, and the median over the rounds counts.  Outputs and gradients are compared with
eager's before anything is timed.  Each workload starts with empty caches.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import calls
import distributed
import loading
import npx
import optrees
import report
import scripts
import steps
from contenders import CONTENDERS
from workloads import WORKLOADS

_HERE = os.path.dirname(os.path.abspath(__file__))
_ROUND_SECONDS = 0.4  # what a contender runs for in a round
_NOTHING = 1e-4  # of the largest norm: what is smaller may be zero in exact arithmetic (a bias before a normalisation)


class Worker:
    """A contender's process.  ``why`` says why it is out."""

    def __init__(self, name, workload, folder):
        self.name, self.why, self.times = name, None, []
        environment = {**os.environ, **CONTENDERS[name].environment, "DCML_CACHE": os.path.join(folder, "dcml"),
                       "TORCHINDUCTOR_CACHE_DIR": os.path.join(folder, "inductor"), "PYTHONWARNINGS": "ignore"}
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([sys.executable, os.path.join(_HERE, "worker.py"), name, workload.title, folder], env=environment,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True)

    def ask(self, *words):
        """The answer, or None where the process is out."""
        if self.why:
            return None
        try:
            self.process.stdin.write(" ".join(map(str, words)) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if line:
            return json.loads(line)
        self.log.seek(0)
        self.why = (self.log.read().strip().splitlines() or ["it ended"])[-1]
        return None

    def stop(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        self.log.close()


def measure(workload, names, rounds):
    """{contender: {"times": by round, "first", "memory", "work", "why", "difference"}} of one workload."""
    folder = tempfile.mkdtemp(prefix="dcml-bench-")
    workers, found = [], {}
    try:
        for name in names:
            worker = Worker(name, workload, folder)
            made = worker.ask("prepare")
            found[name] = {"why": worker.why, "first": made and made["first"], "times": []}
            if made:
                workers.append(worker)
                found[name]["difference"] = _difference(os.path.join(folder, "eager.pt"), made["results"])
            else:
                worker.stop()
        counts = {w.name: max(1, min(500, int(_ROUND_SECONDS / max(min(w.ask("run", 2) or [1]), 1e-6)))) for w in workers}
        for k in range(rounds):
            for worker in workers[k % len(workers):] + workers[:k % len(workers)]:
                found[worker.name]["times"].append(worker.ask("run", counts[worker.name]))
        for worker in workers:
            found[worker.name].update(memory=worker.ask("memory"), work=worker.ask("work"), why=worker.why)
            worker.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return found


def _difference(wanted, got):
    """The largest difference among results and gradients, as a share of the norm of each."""
    import torch
    if wanted == got:
        return 0.0
    pairs = list(zip(torch.load(wanted), torch.load(got), strict=True))
    least = max(float(a.norm()) for a, b in pairs) * _NOTHING or 1e-30
    return max(float((a - b).norm() / a.norm().clamp_min(least)) for a, b in pairs)


def limits():
    """Multiply-adds and bytes copied in a second, at most; zeros without a C compiler."""
    compiler = shutil.which(os.environ.get("CC", "cc").split()[0])
    if not compiler:
        return 0.0, 0.0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "limits")
        subprocess.run([compiler, "-O3", "-march=native", "-fopenmp", os.path.join(_HERE, "limits.c"), "-o", path], check=True)
        return tuple(map(float, subprocess.run([path], check=True, capture_output=True, text=True).stdout.split()))


def summary(workload, found, most):
    """A row of the table: times in milliseconds, ratios to the strongest opponent, shares of what the machine can do."""
    lasted = {name: f for name, f in found.items() if f["times"] and not f["why"]}
    wrong = [name for name, f in lasted.items() if f["difference"] > workload.tolerance]
    medians = {name: statistics.median(map(statistics.median, f["times"])) for name, f in lasted.items()}
    row = {"title": workload.title, "goal": workload.goal, "goal_of_memory": workload.goal_of_memory,
           "ms": {n: 1e3 * t for n, t in medians.items()}, "wrong": wrong,
           "out": {name: f["why"] for name, f in found.items() if f["why"]}}
    opponents = [name for name in medians if name != "dcml" and name not in wrong]
    if "dcml" not in medians or not opponents:
        return row
    best = min(opponents, key=medians.get)
    ours, theirs = lasted["dcml"]["times"], lasted[best]["times"]
    row["best"] = best
    row["ratio"] = statistics.median(statistics.median(a) / statistics.median(b) for a, b in zip(ours, theirs))
    row["minima"] = min(map(min, ours)) / min(map(min, theirs))
    row["memory"] = lasted["dcml"]["memory"] / max(lasted["eager"]["memory"], 1) if "eager" in lasted else None
    row["first"] = lasted["dcml"]["first"] / lasted["compile"]["first"] if "compile" in lasted else None
    operations, moved = lasted["dcml"]["work"]
    row["share"] = max(operations / most[0], moved / most[1]) / medians["dcml"] if all(most) else None
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="turns of each contender (5)")
    parser.add_argument("--only", default="", help="workloads whose title holds this text")
    parser.add_argument("--contenders", default=",".join(CONTENDERS), help=f"of {', '.join(CONTENDERS)}; dcml and eager always run")
    parser.add_argument("--write", metavar="FOLDER", help="write performance.md and performance.svg there")
    arguments = parser.parse_args()
    asked = {"dcml", "eager", *arguments.contenders.split(",")}
    rows, begin, most = [], time.time(), limits()
    print(f"at most {most[0] / 1e9:.0f} Gflop/s and {most[1] / 1e9:.1f} GB/s on {os.cpu_count()} processors")
    for workload in WORKLOADS:
        if arguments.only.lower() not in workload.title.lower():
            continue
        order = sorted((n for n in CONTENDERS if n in asked and CONTENDERS[n].is_here() and CONTENDERS[n].serves(workload)),
                       key=lambda name: name != "eager")  # the others are compared with it
        rows.append(summary(workload, measure(workload, order, arguments.rounds), most))
        print(report.line(rows[-1]), flush=True)
    if not arguments.only:
        print("\n".join([*calls.lines(), *loading.lines(), *steps.lines(), *scripts.lines(), *npx.lines(), *optrees.lines(),
                         *distributed.lines()]))
    print(f"{time.time() - begin:.0f} s")
    if arguments.write:
        report.write(arguments.write, rows, most)


if __name__ == "__main__":
    main()

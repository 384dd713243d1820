"""Measures dcml on a GPU against eager PyTorch, torch.compile and the speed of a copy; writes one table in Markdown.

    python bench/cuda.py                    # everything, in at most 10 minutes; the table is in cuda.md
    python bench/cuda.py --only mish --profile
    python bench/cuda.py --quick            # a minute, without torch.compile
    python bench/cuda.py --device cpu       # a try without a GPU: the same rows, made small

First everything is compiled, several rows at once.  Then each row has the device to itself, in a process of its own:
values and gradients are compared with those of eager, contenders take turns, and a ratio is the median over the rounds.
A row that fails says why, and the rest goes on.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import cuda_rows

_HERE = os.path.dirname(os.path.abspath(__file__))
AT_ONCE = 5            # rows that are compiled at the same time
WARM_SHARE = 0.45      # of all time, which compiling may take
LONGEST = 90           # seconds for a row, after which it is ended
GRAPHS = "DCML_CUDA_GRAPHS"  # "0": programs are not replayed as graphs


class Child:
    """The process of a row, which imports what it needs and then waits for start()."""

    def __init__(self, name, options, folder, **environment):
        handle, self.path = tempfile.mkstemp(suffix=".json", dir=folder)
        os.close(handle)
        os.remove(self.path)
        self.name, self.log, self.begin, self.why = name, open(self.path + ".log", "w+b"), None, None
        self.process = subprocess.Popen(
            [sys.executable, os.path.join(_HERE, "cuda_worker.py"), name, json.dumps(options), self.path], stdin=subprocess.PIPE,
            stdout=self.log, stderr=self.log, env={**os.environ, **environment, "PYTHONWARNINGS": "ignore"})

    def start(self):
        self.begin = time.monotonic()
        try:
            self.process.stdin.write(b"go\n")
            self.process.stdin.close()
        except BrokenPipeError:
            pass  # it has ended; its log says why

    def done(self, limit):
        """Whether the process has ended, if need be because it was ended."""
        if self.process.poll() is None and time.monotonic() - self.begin > limit:
            self.process.kill()
            self.process.wait()
            self.why = f"ended after {limit:.0f} s"
        return self.process.poll() is not None

    def found(self, limit):
        """What the row found, and under "out" why it found no more."""
        while not self.done(limit):
            time.sleep(0.05)
        found = {}
        if os.path.exists(self.path):
            with open(self.path, encoding="utf-8") as file:
                found = json.load(file)
        if not found.get("done"):
            found.setdefault("out", {}).setdefault("row", self.why or self._last_words())
        return found

    def _last_words(self):
        code, lines = self.process.returncode, self.text().strip().splitlines()
        return f"ended with {code}" + (f": {lines[-1][:200]}" if lines else "")

    def text(self):
        self.log.flush()
        self.log.seek(0)
        return self.log.read().decode("utf-8", "replace")

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.log.close()


def warm(names, options, folder, seconds):
    """Compiles the rows, several at once, so that what is measured afterwards comes from caches."""
    options, end = {**options, "warm": True}, time.monotonic() + seconds
    waiting, running = list(names), []
    while (waiting or running) and time.monotonic() < end:
        while waiting and len(running) < min(AT_ONCE, os.cpu_count()):
            running.append(Child(waiting.pop(0), options, folder))
            running[-1].start()
        for child in [c for c in running if c.done(end - c.begin)]:
            running.remove(child)
            print(f"  {child.name}: compiled in {time.monotonic() - child.begin:.0f} s", file=sys.stderr, flush=True)
            child.stop()
        time.sleep(0.05)
    for child in running:
        print(f"  {child.name}: not compiled in time", file=sys.stderr)
        child.stop()


# -- the table -------------------------------------------------------------------------------------
def _time(seconds):
    return f"{1e3 * seconds:.3g} ms" if seconds >= 1e-3 else f"{1e6 * seconds:.3g} µs"


def ratio(found, peer, copy):
    """(median of the rounds, of the minima) of dcml's time over a peer's; None where one is missing."""
    times = found.get("times", {})
    if "dcml" not in times or (peer != "limit" and peer not in times):
        return None
    ours = times["dcml"]
    if peer == "limit":
        limit = found.get("moved", 0) / copy if copy else 0
        return (statistics.median(ours) / limit, min(ours) / limit) if limit else None
    return statistics.median(a / b for a, b in zip(ours, times[peer])), min(ours) / min(times[peer])


def cells(row, found, copy):
    """The cells of a row of training steps."""
    times, out = found.get("times", {}), []
    for name in ("dcml", "eager", "compile"):
        out.append(_time(statistics.median(times[name])) if name in times else "")
    for peer in ("eager", "compile", "limit"):
        both, bar = ratio(found, peer, copy), row.bars.get(peer)
        text = f"{both[0]:.2f} ({both[1]:.2f})" if both else ""
        if bar is not None:
            text += f" ≤ {bar}" + ("" if not both else " ✓" if both[0] <= bar else " ✗")
        out.append(text.strip())
    peak = found.get("peak", {})
    out.append(f"{peak['dcml'] / peak['eager']:.2f}" if peak.get("eager") and "dcml" in peak else "")
    return out + [notes(found)]


def notes(found):
    """What went wrong, and who computed something else."""
    said = [f"{name}: {why}" for name, why in {**found.get("out", {}), **found.get("wrong", {})}.items() if why]
    said += [] if said or not found.get("wrong") else ["values as eager's"]
    return "; ".join(said).replace("|", "\\|").replace("\n", " ")


def lines_of_steps(results, copy):
    lines = ["| workload | dcml | eager | compile | of eager (minima) | of compile | of the limit | memory of eager's | |",
             "|---|---|---|---|---|---|---|---|---|"]
    for row in cuda_rows.ROWS:
        if row.name in results:
            lines.append(f"| {row.title} | " + " | ".join(cells(row, results[row.name], copy)) + " |")
    return lines if len(lines) > 2 else []


def lines_of_calls(found):
    out = []
    for kind, title in (("forward", "forward"), ("both", "with backward")):
        times = found.get(kind)
        if times:
            both = statistics.median(a / b for a, b in zip(times["dcml"], times["eager"]))
            out.append(f"- x + 1 of 16 floats, {title}: {1e6 * statistics.median(times['dcml']):.2f} µs a call, eager "
                       f"{1e6 * statistics.median(times['eager']):.2f} µs: **{both:.2f}** ≤ 1.0 {'✓' if both <= 1 else '✗'}; "
                       f"minima {min(times['dcml']) / min(times['eager']):.2f}")
    return out + _failed("x + 1 of 16 floats", found)


def lines_of_launches(found, replays):
    bar, how = (1.0, "with graph replay") if replays else (3.0, "without graph replay")
    times = {name: statistics.median(t) for name, t in found.get("times", {}).items()}
    if not times:
        return _failed(f"100 kernels, {how}", found)

    def each(name):
        return 1e6 * (times[f"{name} 100"] - times[f"{name} 1"]) / 99

    others = {"eager": "eager", "replayed": "torch's graph of eager"}
    rest = [f"{label} {each(name):.2f}" for name, label in others.items() if f"{name} 100" in times]
    return [f"- 100 kernels of 1,024 floats ({found.get('kernels')} in the program), {how}: **{each('dcml'):.2f} µs** a kernel ≤ {bar} "
            f"{'✓' if each('dcml') <= bar else '✗'}; {', '.join(rest)}; "
            f"a call of one kernel {1e6 * times['dcml 1']:.1f} µs"] + _failed("launches", found)


def lines_of_memory(found):
    if "memory" not in found:
        return _failed("1,000 steps", found)
    allocated, reserved, device, resident = (m / 1e6 for m in found["memory"])
    text = (f"- {found.get('steps', '?')} training steps; from the 100th to the last: torch's allocator "
            f"{allocated:+.2f} MB in use, {reserved:+.2f} MB "
            f"held; the device {device:+.2f} MB; the process {resident:+.1f} MB")
    if "losses" in found:
        first, wanted, got = found["losses"]
        text += (f". Loss {first:.4f} → {got:.6f}, on the processor (eager) {wanted:.6f}; "
                 f"largest difference in the first 50 steps {found['early']:.1e}")
    return [text] + _failed("1,000 steps", found)


def _failed(title, found):
    return [f"- {title}: {name}: {why}" for name, why in found.get("out", {}).items()]


def page(results, options, seconds):
    """The whole page in Markdown."""
    machine = results.get("machine", {})
    copy = machine.get("copy", 0)
    lines = ["# dcml on CUDA", "",
             f"{machine.get('gpu', options['device'])}, torch {machine.get('torch')}, "
             f"CUDA {machine.get('cuda')}, cuDNN {machine.get('cudnn')}; "
             f"a copy moves {copy / 1e12:.3f} TB/s; TF32 for products, convolutions: {machine.get('tf32')}. {seconds:.0f} s in all. "
             "Medians of rounds in turns, minima in brackets; less than 1 is faster."
             + (" **Small sizes: a try of the script, no measurement.**" if options["small"] else ""), ""]
    lines += [f"- {line}" for line in machine.get("doctor", [])] + _failed("the machine", machine) + [""]
    lines += lines_of_steps(results, copy) + [""]
    lines += lines_of_calls(results["calls"]) if "calls" in results else []
    for name, replays in (("launches", False), ("replays", True)):
        lines += lines_of_launches(results[name], replays) if name in results else []
    lines += lines_of_memory(results["steps"]) if "steps" in results else []
    first = {row.name: results[row.name]["first"] for row in cuda_rows.ROWS if results.get(row.name, {}).get("first")}
    if first:
        lines += ["", "First step, from caches, in seconds (dcml / compile): "
                  + ", ".join(f"{n} {f.get('dcml', float('nan')):.1f} / {f.get('compile', float('nan')):.1f}" for n, f in first.items())]
    for name, found in results.items():
        for contender, said in found.get("profile", {}).items():
            lines += ["", f"## {name}, {contender}: kernels of a step by time", "", "```", *said, "```"]
    return "\n".join(lines) + "\n"


# -- running ---------------------------------------------------------------------------------------
def _asked(only):
    names = [*(row.name for row in cuda_rows.ROWS), "calls", "launches", "replays", "steps"]
    words = [word for word in only.split(",") if word]
    unknown = [w for w in words if not any(n == w or n.startswith(w) for n in names)]
    if unknown:
        sys.exit(f"no row is named {unknown[0]!r}; there are {', '.join(names)}")
    return [n for n in names if not words or n in words or any(n.startswith(w) and w not in names for w in words)]


def _child(name, options, folder):
    """replays: the launches again, with what the other goes without."""
    if name in ("launches", "replays"):
        return Child("launches", {**options, "graphs": name == "replays"}, folder, **({GRAPHS: "0"} if name == "launches" else {}))
    return Child(name, options, folder)


def run(names, options, folder, path, end):
    """Measures the rows one after the other, and writes the page after each.  The next one imports meanwhile."""
    begin, results = time.monotonic(), {}
    order = ["machine", *names]
    waiting = _child(order[0], options, folder)
    for k, name in enumerate(order):
        child, waiting = waiting, None
        left = end - time.monotonic()
        if left < 5:
            child.stop()
            results.update({n: {"out": {"row": "no time was left"}} for n in order[k:]})
            break
        child.start()
        if k + 1 < len(order):
            waiting = _child(order[k + 1], options, folder)
        results[name] = child.found(min(LONGEST, left))
        if results[name].get("out"):
            with open(path + ".log", "a", encoding="utf-8") as log:
                log.write(f"==== {name}\n{child.text()}\n")
        print(f"  {name}: {time.monotonic() - child.begin:.0f} s {notes(results[name])}", file=sys.stderr, flush=True)
        child.stop()
        _write(path, page(results, options, time.monotonic() - begin + options["before"]))
    _write(path, page(results, options, time.monotonic() - begin + options["before"]))
    return results


def _write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="rows, by name or its beginning: " + ", ".join(_asked("")))
    parser.add_argument("--quick", action="store_true", help="a minute: short turns, without torch.compile")
    parser.add_argument("--no-compile", action="store_true", help="without torch.compile")
    parser.add_argument("--no-eager", action="store_true", help="without eager, with which values are compared")
    parser.add_argument("--profile", action="store_true", help="also the kernels of a step by time")
    parser.add_argument("--seconds", type=float, default=560, help="for everything (560); rows that find no time say so")
    parser.add_argument("--row-seconds", type=float, help="for the turns of a row (6; 1 with --quick)")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"), help="cpu: a try of this script with small sizes")
    parser.add_argument("--output", default=os.path.join(os.environ.get("OUT") or ".", "cuda.md"), help="the page ($OUT/cuda.md)")
    given = parser.parse_args()
    begin, names = time.monotonic(), _asked(given.only)
    contenders = [n for n, out in (("eager", given.no_eager), ("dcml", False), ("compile", given.no_compile or given.quick)) if not out]
    options = {"device": given.device, "small": given.device == "cpu", "contenders": contenders, "warm": False, "profile": given.profile,
               "row_seconds": given.row_seconds or (1 if given.quick else 6), "graphs": True, "before": 0}
    with tempfile.TemporaryDirectory(prefix="dcml-cuda-") as folder:
        os.environ.update(TORCHINDUCTOR_CACHE_DIR=os.path.join(folder, "inductor"), TRITON_CACHE_DIR=os.path.join(folder, "triton"))
        os.environ.setdefault("DCML_CACHE", os.path.join(folder, "dcml"))
        steps = [row.name for row in cuda_rows.ROWS if row.name in names]
        slow = ("resnet50", "mbconv", "bert", "gpt")
        warm(sorted(steps, key=lambda n: not n.startswith(slow)), options, folder, WARM_SHARE * given.seconds)
        options["before"] = time.monotonic() - begin
        results = run(names, options, folder, given.output, begin + given.seconds)
    with open(given.output, encoding="utf-8") as file:
        print(file.read())
    sys.exit(not all(found.get("done") for found in results.values()))


if __name__ == "__main__":
    main()

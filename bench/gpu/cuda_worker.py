"""One row of the CUDA table, in a process of its own: a crash or a hang of one row leaves the others alone.

Usage: cuda_worker.py ROW OPTIONS(JSON) FILE.  It imports what it needs, waits for a line on its standard input, and
writes what it found to FILE, as JSON, each time that it knows more.
"""
import contextlib
import copy
import gc
import json
import os
import statistics
import sys
import time
import traceback

import torch

SECONDS_OF_A_BLOCK = 0.02  # what a contender runs for before the next one's turn
LEAST_ROUNDS, MOST_ROUNDS = 5, 40
COARSE, FINE = 2.0, 4.0  # how much further from the exact result than eager dcml may be, in bfloat16 and in float32
NOTHING = 1e-6  # of the largest norm of a row's tensors: differences that may be rounding


class Device:
    """What is measured on: a clock, and whether all work is done."""

    def __init__(self, name):
        self.name, self.on_gpu = name, name == "cuda"

    def wait(self):
        if self.on_gpu:
            torch.cuda.synchronize()

    def seconds(self, run, n):
        """Of one of n runs in a row; by events of the device, which end when its work does."""
        self.wait()
        if not self.on_gpu:
            begin = time.perf_counter()
            for _ in range(n):
                run()
            return (time.perf_counter() - begin) / n
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(n):
            run()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3 / n

    def wall_seconds(self, run, n):
        """Of one of n runs in a row, by the host's clock."""
        self.wait()
        begin = time.perf_counter()
        for _ in range(n):
            run()
        self.wait()
        return (time.perf_counter() - begin) / n

    def peak(self, run):
        """Bytes that a run takes from torch's allocator beyond what is held before it."""
        if not self.on_gpu:
            return 0
        self.wait()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run()
        self.wait()
        return torch.cuda.max_memory_allocated() - before


def interleaved(measure, runs, options):
    """{name: seconds by round} of runs that take turns.  measure(run, n): seconds of one of n."""
    counts = {name: max(1, min(300, int(SECONDS_OF_A_BLOCK / max(measure(run, 3), 1e-7)))) for name, run in runs.items()}
    times, order = {name: [] for name in runs}, list(runs)
    end = time.monotonic() + options["row_seconds"]
    while len(times[order[0]]) < LEAST_ROUNDS or (time.monotonic() < end and len(times[order[0]]) < MOST_ROUNDS):
        for name in order:
            times[name].append(measure(runs[name], counts[name]))
        order.append(order.pop(0))
    return times


# -- training steps --------------------------------------------------------------------------------
class Contender:
    """A module, its arguments, and a training step with them."""

    def __init__(self, row, device, module, arguments, run):
        self.row, self.device, self.module, self.arguments, self.run = row, device, module, arguments, run
        self.leaves = [t for t in (*arguments, *module.parameters()) if t.requires_grad]
        self.cotangent = None

    def step(self):
        for leaf in self.leaves:
            leaf.grad = None
        low = torch.autocast(self.device.name, torch.bfloat16) if self.row.autocast else contextlib.nullcontext()
        with low:
            result = self.run(*self.arguments)
        if self.cotangent is None:
            generator = torch.Generator().manual_seed(1)
            self.cotangent = torch.randn(result.shape, generator=generator).to(result.device, result.dtype)
        result.backward(self.cotangent)
        return result

    def results(self):
        """The result of a step and its gradients."""
        return [self.step().detach(), *(leaf.grad for leaf in self.leaves)]


def _copied(row, module, arguments, last):
    module = copy.deepcopy(module)
    if last and row.last:
        module.to(memory_format=torch.channels_last)
    lying = []
    for a in arguments:
        a = a.detach()
        a = a.contiguous(memory_format=torch.channels_last) if row.last and a.dim() == 4 else a
        lying.append(a.requires_grad_() if a.is_floating_point() else a)
    return module, tuple(lying)


def contender(row, device, options, name):
    """The contender of that name."""
    torch.manual_seed(0)
    with torch.device(device.name):
        module, arguments = row.make(options["small"])
    module, arguments = _copied(row, module.train(), arguments, name != "dcml")
    if name == "dcml":
        from dcml.pytorch import DaceModule
        return Contender(row, device, module, arguments, DaceModule(module, backward=True, cuda=device.on_gpu or None))
    return Contender(row, device, module, arguments, torch.compile(module) if name == "compile" else module)


@contextlib.contextmanager
def _exactly():
    """Float32 as float32."""
    matmul, convolution = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = matmul, convolution


def exact_results(row, device, options):
    """What a step computes in float64; in float32 for rows in bfloat16."""
    from dataclasses import replace
    base = contender(replace(row, autocast=False), device, options, "eager")
    if not row.autocast:
        base = Contender(base.row, device, base.module.double(),
                         tuple(a.detach().double().requires_grad_() if a.is_floating_point() else a for a in base.arguments), base.module)
    with _exactly():
        return base.results()


def _differences(results, exact):
    """Of each tensor, as a share of its norm."""
    most = max(float(e.norm()) for e in exact)
    return [float((r.to(e.dtype) - e).norm()) / max(float(e.norm()), NOTHING * most, 1e-30) if r is not None else float("inf")
            for r, e in zip(results, exact, strict=True)]


def differs(row, device, options, eager, other):
    """What a contender computes otherwise than eager, as a text; "" where both are as near to the exact result."""
    exact = exact_results(row, device, options)
    wanted, got = _differences(eager.results(), exact), _differences(other.results(), exact)
    allowed, least = (COARSE, 2e-3) if row.autocast else (FINE, 2e-5)
    names = ["the result", *(f"the gradient of {n}" for n in _leaf_names(other))]
    wrong = [(g, w, n) for g, w, n in zip(got, wanted, names) if not g <= allowed * max(w, least)]
    if not wrong:
        return ""
    g, w, n = max(wrong, key=lambda item: item[0] / max(item[1], least))
    return f"other values: {n} is {g:.1e} from the exact one, eager {w:.1e} ({len(wrong)} of {len(got)} tensors)"


def _leaf_names(contender):
    names = [f"argument {k}" for k, a in enumerate(contender.arguments) if a.requires_grad]
    return names + [n for n, p in contender.module.named_parameters() if p.requires_grad]


def measure_row(row, device, options, found, write):
    """Fills found with times, memory and reasons of a row of training steps."""
    ready, outs = {}, found.setdefault("out", {})
    for name in options["contenders"]:
        try:
            made, begin = contender(row, device, options, name), time.perf_counter()
            made.step()
            device.wait()
            found.setdefault("first", {})[name] = time.perf_counter() - begin
            for _ in range(0 if options["warm"] else 3):
                made.step()
            device.wait()
            ready[name] = made
        except Exception as error:
            _note(outs, name, error)
            if device.on_gpu:
                device.wait()  # an error of the device that stays ends this process, with the text above
        write()
    if options["warm"]:
        return
    if "eager" in ready:
        for name in [n for n in ready if n != "eager"]:
            try:
                found.setdefault("wrong", {})[name] = differs(row, device, options, ready["eager"], ready[name])
            except Exception as error:
                _note(outs, name, error)
            gc.collect()
        write()
    if device.on_gpu:
        torch.cuda.empty_cache()
    runs = {name: c.step for name, c in ready.items()}
    if runs:
        found["times"] = interleaved(device.seconds, runs, options)
        found["peak"] = {name: device.peak(run) for name, run in runs.items()}
        found["moved"] = row.moved(ready[next(iter(ready))].arguments)
        write()
    if options["profile"]:
        found["profile"] = {name: profiled(name, c, device) for name, c in ready.items() if name != "eager"}
        write()


# -- where the time goes ---------------------------------------------------------------------------
def profiled(name, contender, device, calls=5):
    """Lines about the kernels of a step, the longest first; for dcml, its own steps after them."""
    lines = []
    try:
        lines += _kernels(contender, device, calls)
    except Exception as error:
        lines.append(f"torch.profiler: {type(error).__name__}: {error}")
    if name == "dcml":
        try:
            lines += _steps(contender, calls)
        except Exception as error:
            lines.append(f"dcml's steps: {type(error).__name__}: {error}")
    return lines


def _kernels(contender, device, calls):
    from torch.profiler import ProfilerActivity, profile
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * device.on_gpu
    with profile(activities=activities, acc_events=True) as record:
        for _ in range(calls):
            contender.step()
        device.wait()
    field = "self_device_time_total" if device.on_gpu else "self_cpu_time_total"
    rows = [(getattr(e, field) / calls, e.count / calls, e.key) for e in record.key_averages()
            if not device.on_gpu or "CUDA" in str(e.device_type)]
    rows = sorted((r for r in rows if r[0] > 0), reverse=True)
    lines = [f"{sum(r[0] for r in rows):9.1f} µs in {sum(r[1] for r in rows):.0f} kernels"]
    return lines + [f"{us:9.1f} µs {n:6.1f}×  {key[:110]}" for us, n, key in rows[:30]]


def _steps(contender, calls):
    from dcml.report.table import programs, steps
    function, lines = contender.run._function(), []
    function.time(True)
    for _ in range(calls):
        contender.step()
    function.time(False)
    for title, graph, report in programs(function):
        rows = steps(graph, report)
        lines.append(f"{title}: {sum(r['us'] or 0 for r in rows):.1f} µs in {len(rows)} steps")
        for r in sorted(rows, key=lambda r: -(r["us"] or 0))[:25]:
            rate = f"{r['kB'] / r['us'] / 1e3:5.2f} TB/s {r['Mflop'] / r['us']:6.1f} Tflop/s" if r["us"] else ""
            lines.append(f"{r['us'] or 0:9.1f} µs {rate}  {r['by']:<10} {r['kernel'][:60]} -> {r['result'][:24]} {r['shape']}")
    return lines


# -- calls, launches, a thousand steps -------------------------------------------------------------
def _module(kind, device, **options):
    from dcml.pytorch import DaceModule
    return DaceModule(kind, cuda=device.on_gpu or None, **options)


def measure_calls(device, options, found, write):
    """x + 1 of 16 floats, forward and with backward, by the host's clock: what a call costs where nothing is waited for."""
    import cuda_rows
    x, y, dy = (torch.rand(16, device=device.name) for _ in range(3))
    x.requires_grad_()
    ours, theirs = _module(cuda_rows.AddOne(), device), cuda_rows.AddOne()
    trained = _module(cuda_rows.AddOne(), device, backward=True)

    def training(module):
        def run():
            x.grad = None
            module(x).backward(dy)
        return run

    with torch.no_grad():
        if not torch.equal(ours(y), theirs(y)):
            raise ValueError("other values than eager")
        found["forward"] = interleaved(device.wall_seconds, {"dcml": lambda: ours(y), "eager": lambda: theirs(y)}, options)
    write()
    training(trained)()
    if not torch.equal(x.grad, dy):
        raise ValueError("another gradient than eager's")
    found["both"] = interleaved(device.wall_seconds, {"dcml": training(trained), "eager": training(theirs)}, options)


def measure_launches(device, options, found, write):
    """Programs of 100 kernels and of one, as dcml runs them and without replayed graphs; torch, eager and replayed."""
    import cuda_rows
    x, runs = torch.rand(1024, device=device.name), {}
    with torch.no_grad():
        wanted = {n: cuda_rows.Sines(n)(x) for n in (1, 100)}
        for n in wanted:
            module = _module(cuda_rows.Sines(n), device, auto_optimize=False)
            if not torch.allclose(module(x), wanted[n], rtol=1e-5, atol=1e-6):
                raise ValueError("other values than eager")
            if n == 100:
                found["kernels"] = len(module._function().report()[0]["steps"])
            runs[f"dcml {n}"] = lambda module=module: module(x)
            eager = cuda_rows.Sines(n)
            runs[f"eager {n}"] = lambda eager=eager: eager(x)
            if device.on_gpu:
                runs[f"replayed {n}"] = _replayed(eager, x)
        for run in runs.values():
            for _ in range(20):
                run()
        found["times"] = interleaved(device.wall_seconds, runs, options)
    found["graphs"] = options["graphs"]


def _replayed(module, x):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        module(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        module(x)
    return graph.replay


def _network(device):
    from torch import nn
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 128), nn.SiLU(), nn.Linear(128, 10)).to(device)


def _trained(module, run, device, n, watch=None):
    """Losses of n steps on batches of a seed."""
    from torch.nn import functional as F
    optimizer = torch.optim.SGD(module.parameters(), lr=0.02, momentum=0.9)
    generator, losses = torch.Generator().manual_seed(2), []
    batches = [(torch.randn(32, 64, generator=generator).to(device), torch.randint(0, 10, (32,), generator=generator).to(device))
               for _ in range(16)]
    for k in range(n):
        inputs, classes = batches[k % 16]
        optimizer.zero_grad()
        loss = F.cross_entropy(run(inputs), classes)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        if watch:
            watch(k)
    return torch.stack(losses).cpu()


def _resident():
    with open("/proc/self/status", encoding="ascii") as file:
        return int(file.read().split("VmRSS:")[1].split()[0]) * 1024


def measure_steps(device, options, found, write):
    """Memory of the device and of the host after 100 steps and after all, and losses against the processor's."""
    n = 120 if options["small"] else 1000
    torch.backends.cuda.matmul.allow_tf32 = False
    module = _network(device.name)
    memory = []

    def watch(k):
        if k in (100, n - 1):
            gc.collect()
            device.wait()
            used = [0, 0, 0]
            if device.on_gpu:
                used = [torch.cuda.memory_allocated(), torch.cuda.memory_reserved(), -torch.cuda.mem_get_info()[0]]
            memory.append([*used, _resident()])

    got = _trained(module, _module(module, device, backward=True), device.name, n, watch)
    found["memory"] = [b - a for a, b in zip(*memory)]
    write()
    host = _network("cpu")
    wanted = _trained(host, host, "cpu", n)
    found["losses"] = [float(wanted[0]), float(wanted[-1]), float(got[-1])]
    found["early"] = float((got[:50] - wanted[:50]).abs().max())
    found["steps"] = n


# -- the process -----------------------------------------------------------------------------------
def measure_machine(device, options, found, write):
    """What the machine is, and how fast it copies."""
    import platform
    found["torch"], found["python"] = torch.__version__, platform.python_version()
    n = (1 << 20) if options["small"] else (1 << 28)
    a, b = torch.rand(n, device=device.name), torch.empty(n, device=device.name)
    if device.on_gpu:
        found["gpu"], found["cudnn"] = torch.cuda.get_device_name(), torch.backends.cudnn.version()
        found["cuda"] = torch.version.cuda
        found["tf32"] = [torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32]
    b.copy_(a)
    seconds = [device.seconds(lambda: b.copy_(a), 10) for _ in range(10)]
    found["copy"] = 2 * 4 * n / statistics.median(seconds)
    found["doctor"] = _doctor(options)


def _doctor(options):
    """What dcml says of this machine."""
    import subprocess
    done = subprocess.run([sys.executable, "-m", "dcml", "doctor", "--no-torch"], capture_output=True, text=True, timeout=60)
    words = ("GPU", "CUDA", "cuDNN", "cuBLAS", "NVRTC")
    return [line for line in (done.stdout + done.stderr).splitlines() if any(word in line for word in words)]


def _note(outs, name, error):
    outs[name] = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"[:300]
    traceback.print_exc()


SPECIAL = {"machine": measure_machine, "calls": measure_calls, "launches": measure_launches, "steps": measure_steps}


def main():
    name, options, path = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
    import cuda_rows
    import dcml.pytorch  # noqa: F401
    if "compile" in options["contenders"]:
        import torch._inductor.config as settings
        settings.autotune_local_cache = False  # choices that were made while others used the device are made again
        torch._dynamo.config.cache_size_limit = 64
    device, found = Device(options["device"]), {"row": name}

    def write():
        with open(path + ".part", "w", encoding="utf-8") as file:
            json.dump(found, file)
        os.replace(path + ".part", path)

    if not sys.stdin.readline():
        return
    try:
        if name in SPECIAL:
            SPECIAL[name](device, options, found, write)
        else:
            measure_row(next(row for row in cuda_rows.ROWS if row.name == name), device, options, found, write)
        found["done"] = True
    except Exception as error:
        found.setdefault("out", {})
        _note(found["out"], "row", error)
    write()


if __name__ == "__main__":
    main()

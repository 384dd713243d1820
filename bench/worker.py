"""One contender running one workload, in a process of its own, as told line by line.

    prepare   makes everything and runs the first step; answers {"first": seconds, "results": file, ...}
    run n     n steps; answers a list of seconds
    work      operations and bytes of a step as dcml counts them; [0, 0] for others
    memory    peak of the resident set since `prepare`, over what the process held before, in bytes
Usage: worker.py CONTENDER WORKLOAD FOLDER
"""
import ctypes
import json
import os
import sys
import time


def _resident(field):
    with open("/proc/self/status", encoding="ascii") as file:
        return int(file.read().split(field + ":")[1].split()[0]) * 1024


class Session:
    """A workload under a contender; ``step`` runs it once."""

    def __init__(self, contender, workload, folder):
        import torch
        import contenders
        import workloads
        torch.manual_seed(0)
        self.torch, self.folder, self.name = torch, folder, contender
        self.workload = next(w for w in workloads.WORKLOADS if w.title == workload)
        module, arguments = self.workload.make()
        self.module = module.train(self.workload.training)
        learns = self.workload.training and not self.workload.through
        self.arguments = tuple(a.requires_grad_() if learns and a.is_floating_point() else a for a in arguments)
        self.before = _resident("VmRSS")
        self.run, self.arguments = contenders.CONTENDERS[contender].start(self.module, self.arguments, self.workload, folder)
        self.leaves = [a for a in self.arguments if getattr(a, "requires_grad", False)]
        self.leaves += list(self.module.parameters()) if self.workload.training else []
        self.cotangent = None

    def step(self):
        if not self.workload.training:
            with self.torch.no_grad():
                return self.workload.call(self.run, self.arguments)
        for leaf in self.leaves:
            leaf.grad = None
        result = self.workload.call(self.run, self.arguments)
        if self.cotangent is None:
            generator = self.torch.Generator().manual_seed(1)
            self.cotangent = self.torch.randn(result.shape, generator=generator).to(result.dtype)
        result.backward(self.cotangent)
        return result

    def prepare(self):
        begin = time.perf_counter()
        result = self.step()
        first = time.perf_counter() - begin
        path = os.path.join(self.folder, f"{self.name}.pt")
        found = [self.torch.as_tensor(result).detach(), *[self.torch.zeros_like(x) if x.grad is None else x.grad for x in self.leaves]]
        self.torch.save([t.float().clone() for t in found], path)
        del result, found  # gradients of the first step, and their copies, are ours, not the contender's
        ctypes.CDLL(None).malloc_trim(0)
        for _ in range(3):
            self.step()
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")  # the peak counts from here
        self.step()
        return {"first": first, "results": path}

    def work(self):
        if self.name != "dcml":
            return [0, 0]
        steps = [step for report in self.run._function().report() if report for step in report["steps"]]
        return [sum(s["operations"] for s in steps), sum(s["bytes"] for s in steps)]

    def memory(self):
        return max(_resident("VmHWM") - self.before, 0)

    def times(self, n):
        out = []
        for _ in range(n):
            begin = time.perf_counter()
            self.step()
            out.append(time.perf_counter() - begin)
        return out


def main():
    answer = os.fdopen(os.dup(1), "w")  # what libraries print goes elsewhere
    os.dup2(2, 1)
    session = Session(*sys.argv[1:])
    for line in sys.stdin:
        word, *count = line.split()
        out = session.times(int(count[0])) if word == "run" else getattr(session, word)()
        answer.write(json.dumps(out) + "\n")
        answer.flush()


if __name__ == "__main__":
    main()

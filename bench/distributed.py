"""A step of compiled modules under torch's own engines, in two processes that talk by gloo, against the same run in eager mode.

Both run in the same two processes, of one thread each, and take turns; their gradients are compared before anything is timed.
Usage: distributed.py
"""
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

ROUNDS, WIDTH, TOKENS, BATCH, LAYERS, PARTS = 10, 192, 64, 4, 2, 3
_last = []  # exchange of this process, held to its end: gloo's threads drop it only with Python's lock, late ones abort


class Checkpointed(nn.Module):
    """What is inside runs again in the backward pass."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=False)


def network(wrap):
    torch.manual_seed(0)
    return nn.Sequential(*[wrap(nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, 0.0, "gelu", batch_first=True)) for _ in range(LAYERS)])


def compiled(layer):
    from dcml.pytorch import DaceModule
    return DaceModule(layer, backward=True)


def batches(rank):
    generator = torch.Generator().manual_seed(rank)
    return [torch.randn(BATCH, TOKENS, WIDTH, generator=generator) for _ in range(PARTS)]


def distance(y, target):
    return (y - target).square().mean()


def learn(model, x):
    distance(model(x), x.flip(1)).backward()


# Each engine: (rank, wrap) -> (a step, its parameters)
def ddp(rank, wrap):
    model, data = DistributedDataParallel(network(wrap)), batches(rank)
    return lambda: learn(model, data[0]), model


def accumulated(rank, wrap):
    model, data = DistributedDataParallel(network(wrap)), batches(rank)

    def step():
        for k, x in enumerate(data):
            with contextlib.nullcontext() if k == PARTS - 1 else model.no_sync():
                learn(model, x)
    return step, model


def sharded(rank, wrap):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh, model, data = init_device_mesh("cpu", (2,)), network(wrap), batches(rank)
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return lambda: learn(model, data[0]), model


def checkpointed(rank, wrap):
    return ddp(rank, lambda layer: Checkpointed(wrap(layer)))


def pipelined(rank, wrap):
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
    whole, x = network(wrap), torch.cat(batches(0)[:2])
    half = nn.Sequential(*list(whole)[LAYERS // 2 * rank:LAYERS // 2 * (rank + 1)])
    schedule = ScheduleGPipe(PipelineStage(half, rank, 2, torch.device("cpu")), 4, loss_fn=distance)
    target = x.flip(1)
    return (lambda: schedule.step(x) if rank == 0 else schedule.step(target=target)), half


ENGINES = {"DistributedDataParallel": ddp, "with `no_sync`, three batches a step": accumulated,
           "FSDP2, `fully_shard` of each layer": sharded, "DDP, each layer checkpointed": checkpointed,
           "pipeline of two stages, four micro-batches": pipelined}


def gradients(model):
    found = [p.grad for p in model.parameters()]
    return [g.full_tensor() if hasattr(g, "full_tensor") else g.clone() for g in found]


def seconds_of(step, model):
    model.zero_grad()
    dist.barrier()
    begin = time.perf_counter()
    step()
    dist.barrier()  # a step ends where both end
    return time.perf_counter() - begin


def difference(a, b):
    """The largest, as a share of the norm of a gradient, or of what is nothing beside the others (a bias before a softmax)."""
    least = max(float(x.norm()) for x in a) * 1e-4
    return max(float((x - y).norm() / x.norm().clamp_min(least)) for x, y in zip(a, b, strict=True))


def work(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    found = {}
    for title, engine in ENGINES.items():
        runs = [engine(rank, wrap) for wrap in (lambda layer: layer, compiled)]
        for step, model in runs * 3:
            seconds_of(step, model)
        apart = difference(*[gradients(model) for _, model in runs])
        times = [[seconds_of(*run) for run in runs] for _ in range(ROUNDS)]
        found[title] = apart, *zip(*times)
    if rank == 0:
        with open(os.path.join(folder, "found.json"), "w", encoding="utf-8") as file:
            json.dump(found, file)
    _last.append(dist.barrier(async_op=True))
    _last[0].wait()
    dist.destroy_process_group()


def measured():
    """{engine: (largest difference of a gradient, eager's seconds by round, ours)}"""
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, (folder,), nprocs=2)
        with open(os.path.join(folder, "found.json"), encoding="utf-8") as file:
            return json.load(file)


def lines():
    out = []
    for title, (apart, theirs, ours) in measured().items():
        one, other = 1e3 * statistics.median(ours), 1e3 * statistics.median(theirs)
        out.append(f"{title:<56} {one / other:.2f} of eager: {one:.1f} against {other:.1f} ms; minima {min(ours) / min(theirs):.2f}; "
                   f"gradients {apart:.0e} apart")
    return out


if __name__ == "__main__":
    print("\n".join(lines()))

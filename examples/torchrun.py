"""Trains one compiled network in processes that torchrun starts, with gradients that accumulate over several batches.

    torchrun --nproc-per-node 2 torchrun.py [steps]

Started by itself it does that.

DistributedDataParallel is torch's own, around a DaceModule; ``no_sync`` keeps the gradients of all but the last batch of a
step in each process.  With fully_shard (FSDP2) around the same module, each process holds a part of each weight.
"""
import contextlib
import os
import subprocess
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dcml.pytorch import DaceModule

FEATURES, CLASSES, PARTS = 20, 4, 3


def batches(step, rank, generator):
    """[(inputs, labels)] of one step of a process: the label is the quarter in which the first two features point."""
    generator.manual_seed(1000 * step + rank)
    xs = [torch.randn(16, FEATURES, generator=generator) for _ in range(PARTS)]
    return [(x, 2 * (x[:, 0] > 0).long() + (x[:, 1] > 0).long()) for x in xs]


def train(steps):
    rank, generator = dist.get_rank(), torch.Generator()
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(FEATURES, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, CLASSES))
    model = DistributedDataParallel(DaceModule(network, backward=True))
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=0.01), []
    for step in range(steps):
        optimizer.zero_grad()
        for part, (x, y) in enumerate(batches(step, rank, generator)):
            with contextlib.nullcontext() if part == PARTS - 1 else model.no_sync():
                loss = F.cross_entropy(model(x), y) / PARTS
                loss.backward()
        optimizer.step()
        losses.append(loss.item() * PARTS)
    weights = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    all_weights = [torch.empty_like(weights) for _ in range(dist.get_world_size())]
    dist.all_gather(all_weights, weights)
    gap = max((other - weights).abs().max().item() for other in all_weights)
    if rank == 0:
        print(f"{dist.get_world_size()} processes: loss {losses[0]:.4f} at first, {losses[-1]:.4f} after {steps} steps; "
              f"weights differ by {gap:.1e}", flush=True)


def main(steps=40):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")  # where the others are, torchrun has put into the environment
    train(steps)
    last = dist.barrier(async_op=True)  # nobody leaves while another still talks to it
    last.wait()
    dist.destroy_process_group()
    return last  # held to the end: gloo's threads need Python to drop an exchange, and abort a process that ends meanwhile


if __name__ == "__main__":
    if "RANK" in os.environ:
        last = main(*map(int, sys.argv[1:]))
    else:
        sys.exit(subprocess.call([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *sys.argv]))

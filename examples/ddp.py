"""Trains one compiled network in several processes: torch's DistributedDataParallel around a DaceModule.

Every process takes its share of each batch; gradients are averaged by gloo, which needs no network between processes
of one machine.  At the end the weights are compared with those of one process that saw the whole batches.
Usage: ddp.py [processes] [steps]
"""
import copy
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dcml.pytorch import DaceModule

BATCH, FEATURES, CLASSES = 48, 20, 4
_last = []  # exchange of this process, held to its end


def network():
    """The same weights in every process."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, CLASSES))


def batches(steps):
    """[(inputs, labels)]: the label is the quarter of the circle in which the first two features point."""
    noise = torch.Generator().manual_seed(1)
    made = []
    for _ in range(steps):
        x = torch.randn(BATCH, FEATURES, generator=noise)
        made.append((x, 2 * (x[:, 0] > 0).long() + (x[:, 1] > 0).long()))
    return made


def train(model, parts):
    """Adam over [(inputs, labels)]; returns the losses."""
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=0.01), []
    for x, y in parts:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def work(rank, processes, steps, folder):
    """One process: its share of each batch, gradients averaged over all."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=processes)
    model = DistributedDataParallel(DaceModule(network(), backward=True))
    losses = train(model, [(x[rank::processes], y[rank::processes]) for x, y in batches(steps)])
    if rank == 0:
        print(f"process 0 of {processes}: loss {losses[0]:.4f} at first, {losses[-1]:.4f} after {steps} steps")
        torch.save(model.module.state_dict(), os.path.join(folder, "weights.pt"))
    leave()


def leave():
    """Ends the group.

    gloo's threads need Python to drop what an exchange held; one that is late aborts a process that ends meanwhile.
    So the last exchange is held, and those before it have the time of a round trip.
    """
    _last.append(dist.barrier(async_op=True))
    _last[0].wait()
    dist.destroy_process_group()


def main(processes=2, steps=40):
    alone = copy.deepcopy(network())
    losses = train(alone, batches(steps))
    print(f"one process, eager: loss {losses[0]:.4f} at first, {losses[-1]:.4f} after {steps} steps")
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, (processes, steps, folder), nprocs=processes)
        weights = torch.load(os.path.join(folder, "weights.pt"))
    gap = max((weights[name] - value).abs().max().item() for name, value in alone.state_dict().items())
    print(f"weights differ by {gap:.2e} at most")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

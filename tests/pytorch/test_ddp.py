"""DistributedDataParallel around a wrapped module: two processes give the gradients of one with the joint batch."""
import copy
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dcml.pytorch import DaceModule


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv1d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(24, 3))


def inputs():
    return torch.randn(6, 2, 8, generator=torch.Generator().manual_seed(1))


def work(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    net = network()
    if rank:  # the first process's weights are given to all
        with torch.no_grad():
            net[0].weight.zero_()
    model = DistributedDataParallel(DaceModule(net, backward=True), bucket_cap_mb=0.0001)
    for _ in range(2):
        model.zero_grad()
        model(inputs()[rank * 3:rank * 3 + 3]).square().mean().backward()
    torch.save([p.grad for p in model.parameters()], os.path.join(folder, f"gradients{rank}.pt"))
    with model.no_sync():
        model(inputs()[:1]).sum().backward()
    dist.destroy_process_group()


def test_two_processes_give_the_gradients_of_one(tmp_path):
    path = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    try:
        mp.spawn(work, (str(tmp_path),), nprocs=2)
    finally:
        os.environ["PYTHONPATH"] = path
    one = copy.deepcopy(network())
    one(inputs()).square().mean().backward()
    for rank in range(2):
        for found, p in zip(torch.load(tmp_path / f"gradients{rank}.pt"), one.parameters()):
            torch.testing.assert_close(found, p.grad, rtol=1e-4, atol=1e-5)

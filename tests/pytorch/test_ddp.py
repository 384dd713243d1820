"""DistributedDataParallel around a wrapped module: two processes give the gradients of one with the joint batch."""
import copy
import os

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dcml.pytorch import DaceModule
from processes import in_two_processes, meeting


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv1d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(24, 3))


def inputs():
    return torch.randn(6, 2, 8, generator=torch.Generator().manual_seed(1))


def work(rank, folder):
    with meeting(rank, folder):
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


def test_two_processes_give_the_gradients_of_one(tmp_path):
    in_two_processes(work, tmp_path)
    one = copy.deepcopy(network())
    one(inputs()).square().mean().backward()
    for rank in range(2):
        for found, p in zip(torch.load(tmp_path / f"gradients{rank}.pt"), one.parameters()):
            torch.testing.assert_close(found, p.grad, rtol=1e-4, atol=1e-5)

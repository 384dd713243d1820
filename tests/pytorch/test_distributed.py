"""Torch's own engines around compiled modules, in two processes: the gradients are those of the same run in eager mode."""
import contextlib
import copy
import os

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from dcml.pytorch import DaceModule
from processes import in_two_processes, meeting


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(self.norm(x))))


class Checkpointed(nn.Module):
    """What is inside runs again in the backward pass."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=False)


def network(wrap, blocks=2):
    torch.manual_seed(0)
    return nn.Sequential(*[wrap(Block(6)) for _ in range(blocks)], nn.Linear(6, 3))


def compiled(block):
    return DaceModule(block, backward=True)


def inputs(rank, part):
    return torch.randn(4, 6, generator=torch.Generator().manual_seed(10 * rank + part))


def accumulated(model, rank):
    """Gradients of three batches, of which only the last one speaks to the other process."""
    for part in range(3):
        with contextlib.nullcontext() if part == 2 else model.no_sync():
            model(inputs(rank, part)).square().mean().backward()
    return [p.grad for p in model.parameters()]


def with_ddp(rank, wrap):
    return accumulated(DistributedDataParallel(network(wrap), bucket_cap_mb=0.001), rank)


def sharded(rank, wrap, inside=lambda block: block):
    """FSDP2: each process holds half of each parameter; two steps, so that changed weights are met."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh, model = init_device_mesh("cpu", (2,)), network(lambda block: inside(wrap(block)))
    for block in model[:-1]:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for part in range(2):
        optimizer.zero_grad()
        model(inputs(rank, part)).square().mean().backward()
        if part == 0:
            optimizer.step()
    return [p.grad.full_tensor() for p in model.parameters()]


def sharded_and_checkpointed(rank, wrap):
    return sharded(rank, wrap, Checkpointed)


def in_a_pipeline(rank, wrap):
    """Two stages, one in each process, and four micro-batches."""
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
    whole = network(wrap)
    stage = nn.Sequential(*(whole[:1] if rank == 0 else whole[1:]))
    schedule = ScheduleGPipe(PipelineStage(stage, rank, 2, torch.device("cpu")), 4,
                             loss_fn=lambda y, target: (y - target).square().mean())
    x = torch.cat([inputs(0, part) for part in range(2)])
    for _ in range(2):
        stage.zero_grad()
        schedule.step(x) if rank == 0 else schedule.step(target=torch.ones(8, 3))
    return [p.grad for p in stage.parameters()]


ENGINES = {f.__name__: f for f in (with_ddp, sharded, sharded_and_checkpointed, in_a_pipeline)}


def work(rank, folder):
    found = {}
    with meeting(rank, folder):
        for name, engine in ENGINES.items():
            for kind, wrap in (("eager", lambda block: block), ("compiled", compiled)):
                try:
                    found[name, kind] = [g.clone() for g in engine(rank, wrap)]
                except Exception as error:  # the other engines are asked all the same
                    found[name, kind] = f"{type(error).__name__}: {error}"
        torch.save(found, os.path.join(folder, f"found{rank}.pt"))


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("meeting")
    in_two_processes(work, folder)
    return [torch.load(folder / f"found{rank}.pt") for rank in range(2)]


@pytest.mark.parametrize("name", ENGINES)
def test_two_processes_find_the_gradients_of_eager_mode(found, name):
    for rank in range(2):
        torch.testing.assert_close(found[rank][name, "compiled"], found[rank][name, "eager"], rtol=1e-4, atol=1e-6)


def test_gradients_that_accumulate_are_those_of_all_batches(found):
    one, total = copy.deepcopy(network(lambda block: block)), 0
    for rank in range(2):
        total = total + sum(one(inputs(rank, part)).square().mean() for part in range(3)) / 2
    total.backward()
    torch.testing.assert_close(found[0]["with_ddp", "compiled"], [p.grad for p in one.parameters()], rtol=1e-4, atol=1e-6)

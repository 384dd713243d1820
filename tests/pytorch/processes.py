"""Two processes that talk by gloo, for tests of torch's engines.

    with meeting(rank, folder): ...   in each of the processes that in_two_processes(work, folder) starts as work(rank, folder)
"""
import contextlib
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

_last = []  # exchange of this process, held to its end


@contextlib.contextmanager
def meeting(rank, folder):
    """The group of two.

    gloo's threads need Python to drop what an exchange held; one that is late aborts a process that ends meanwhile.
    So the last exchange is held, and those before it have the time of a round trip.
    """
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    yield
    _last.append(dist.barrier(async_op=True))
    _last[0].wait()
    dist.destroy_process_group()


def in_two_processes(work, folder):
    path = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    try:
        mp.spawn(work, (str(folder),), nprocs=2)
    finally:
        os.environ["PYTHONPATH"] = path

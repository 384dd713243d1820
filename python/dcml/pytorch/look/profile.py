"""Where the time of a compiled module goes: an HTML page, and ranges for torch.profiler.

Must not know: how a program is made or run.
"""
import threading

import torch

from ...report.page import page as timed_page
from ...report.table import programs


def page(name, function, calls):
    """The HTML page of DaceModule.profile."""
    return timed_page(name, "", programs(function), calls)


# -- torch.profiler --------------------------------------------------------------------------------
_open = threading.local()


def mark_range(label, begins):
    """An observer of steps that makes each a range of torch.profiler, named dcml::<kernel>."""
    ranges = _open.__dict__.setdefault("ranges", [])
    if begins:
        ranges.append(torch.ops.profiler._record_function_enter_new(f"dcml::{label}", None))
    else:
        torch.ops.profiler._record_function_exit._RecordFunction(ranges.pop())

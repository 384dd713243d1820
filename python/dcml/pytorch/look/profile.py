"""Where the time of a compiled module goes: an HTML page, and ranges for torch.profiler.

Must not know: how a program is made or run.
"""
import html
import threading

import torch

from .report import COLUMNS, cells, memory, programs, steps

_STYLE = ("body{font:14px sans-serif;margin:2em}table{border-collapse:collapse}td,th{padding:2px 10px;text-align:left;"
          "border-bottom:1px solid #ddd}.bar{background:#48c;height:12px}")


def page(name, function, calls):
    """The HTML page of DaceModule.profile."""
    body = [f"<!DOCTYPE html><meta charset=utf-8><title>{html.escape(name)}</title><style>{_STYLE}</style>",
            f"<h1>{html.escape(name)}</h1><p>Mean of {calls} calls.</p>"]
    for title, graph, report in programs(function):
        rows = steps(graph, report)
        longest = max((row["us"] or 0 for row in rows), default=0) or 1
        body += [f"<h2>{title}: {sum(row['us'] or 0 for row in rows):.1f} us in {len(rows)} kernels</h2><table><tr>",
                 *[f"<th>{column}" for column in COLUMNS], "<th>"]
        for row in rows:
            bar = f"<div class=bar style='width:{(row['us'] or 0) / longest * 300:.0f}px'></div>"
            body.append("<tr>" + "".join(f"<td>{html.escape(cell)}" for cell in cells(row)) + f"<td>{bar}")
        body += ["</table><h3>memory</h3><pre>", html.escape("\n".join(memory(report))), "</pre>"]
    return "\n".join(body)


# -- torch.profiler --------------------------------------------------------------------------------
_open = threading.local()


def mark_range(label, begins):
    """An observer of steps that makes each a range of torch.profiler, named dcml::<kernel>."""
    ranges = _open.__dict__.setdefault("ranges", [])
    if begins:
        ranges.append(torch.ops.profiler._record_function_enter_new(f"dcml::{label}", None))
    else:
        torch.ops.profiler._record_function_exit._RecordFunction(ranges.pop())

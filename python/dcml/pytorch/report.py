"""What a compiled module does: a text for explain(), an HTML page for profile(), ranges for torch.profiler.

The one idea: the core lists the steps of a program with what they compute and move; this file puts names to
them and lays them out.
Must not know: how a program is made or run.
"""
import html
import math
import threading

import torch

_COLUMNS = ("step", "kernel", "result", "shape", "by", "Mflop", "kB", "us")


def _named(size):
    for unit, limit in (("B", 1e3), ("kB", 1e6), ("MB", 1e9)):
        if size < limit:
            return f"{size / limit * 1e3:.4g} {unit}"
    return f"{size / 1e9:.4g} GB"


def steps(graph, report):
    """[{step, kernel, result, shape, by, Mflop, kB, us}] of a program's report and its graph."""
    nodes = {node[0]: node for state in range(graph.n_states) for node in graph.nodes(state)}
    shapes = {value["name"]: value["shape"] for value in report["values"]}
    rows = []
    for k, step in enumerate(report["steps"]):
        _, _, label, _, writes = nodes[step["node"]]
        result = max(writes, key=lambda name: math.prod(shapes.get(name, ())), default="")
        rows.append({"step": k, "kernel": label, "result": result, "shape": list(shapes.get(result, ())),
                     "by": step["by"], "Mflop": step["operations"] / 1e6, "kB": step["bytes"] / 1e3,
                     "us": step["seconds"] / step["runs"] * 1e6 if step["runs"] else None})
    return rows


def _cells(row):
    numbers = {name: "" if row[name] is None else f"{row[name]:.4g}" for name in ("Mflop", "kB", "us")}
    return [str({**row, **numbers}[name]) for name in _COLUMNS]


def _table(rows):
    cells = [list(_COLUMNS), *map(_cells, rows)]
    widths = [max(len(line[c]) for line in cells) for c in range(len(_COLUMNS))]
    return ["  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in cells]


def _memory(report):
    """Lines of the memory plan: what lies in the arena and in the saved block, by offset."""
    lines = [f"  arena {_named(report['arena_bytes'])}, saved for the backward pass {_named(report['saved_bytes'])}"]
    for place in ("arena", "saved"):
        values = [v for v in report["values"] if v["place"] == place and v["bytes"]]
        held = sorted((v["offset"], v["name"], v["bytes"]) for v in values)
        lines += [f"    {place} {offset:>10}  {name} ({_named(size)})" for offset, name, size in held]
    return lines


def _passes(report):
    """A line of what the passes took, the longest first."""
    took = sorted(report["passes"], key=lambda item: -item[1])
    each = ", ".join(f"{name} {seconds * 1e3:.2f}" for name, seconds in took)
    return f"  passes {sum(seconds for _, seconds in took) * 1e3:.2f} ms: {each}"


def programs(function):
    """[(title, graph, report)] of a core function, the forward first."""
    pairs = zip(("forward", "backward"), (function.forward_graph, function.backward_graph), function.report())
    return [(title, graph, report) for title, graph, report in pairs if report is not None]


def explain(name, function):
    """The text of DaceModule.explain."""
    lines = []
    for title, graph, report in programs(function):
        rows = steps(graph, report)
        total = sum(row["Mflop"] for row in rows)
        lines += [f"{name}, {title}: {len(rows)} kernels, {total:.4g} Mflop", *_table(rows), *_memory(report), _passes(report)]
    return "\n".join(lines)


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
                 *[f"<th>{column}" for column in _COLUMNS], "<th>"]
        for row in rows:
            bar = f"<div class=bar style='width:{(row['us'] or 0) / longest * 300:.0f}px'></div>"
            body.append("<tr>" + "".join(f"<td>{html.escape(cell)}" for cell in _cells(row)) + f"<td>{bar}")
        body += ["</table><h3>memory</h3><pre>", html.escape("\n".join(_memory(report))), "</pre>"]
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

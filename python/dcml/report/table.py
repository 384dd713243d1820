"""The steps of a program, who serves each, what it computes and moves, and where its values lie.

The one idea: the core lists steps and places by number; this file puts names to them and lays them out.
Must not know: how a program is made or run.
"""
import math
import textwrap

COLUMNS = ("step", "kernel", "result", "shape", "by", "Mflop", "kB", "us")
_YIELDING = ("result", "kernel", "shape")  # columns that give way where a line is too long, in this order


def named_bytes(size):
    """1536 -> '1.536 kB'."""
    for unit, limit in (("B", 1e3), ("kB", 1e6), ("MB", 1e9)):
        if size < limit:
            return f"{size / limit * 1e3:.4g} {unit}"
    return f"{size / 1e9:.4g} GB"


def counted(n, what):
    """3 steps, 1 step."""
    return f"{n} {what}" + ("s" if n != 1 else "")


def steps(graph, report):
    """[{step, kernel, result, shape, by, why, Mflop, kB, us, chained, channels, at_once}] of a program's report and its graph."""
    nodes = {node[0]: node for state in range(graph.n_states) for node in graph.nodes(state)}
    shapes = {value["name"]: value["shape"] for value in report["values"]}
    rows = []
    for k, step in enumerate(report["steps"]):
        _, _, label, _, writes = nodes[step["node"]]
        result = max(writes, key=lambda name: math.prod(shapes.get(name, ())), default="")
        rows.append({"step": k, "kernel": label, "result": result, "shape": list(shapes.get(result, ())),
                     "by": step["by"], "why": step["why"], "Mflop": step["operations"] / 1e6, "kB": step["bytes"] / 1e3,
                     "us": step["seconds"] / step["runs"] * 1e6 if step["runs"] else None,
                     **{name: step[name] for name in ("chained", "channels", "at_once")}})
    return rows


def number(value):
    """Four digits, and no exponent for what is large."""
    return f"{value:.4g}" if value < 1e4 else f"{value:.0f}"


def cells(row):
    """A row's texts, in the order of COLUMNS."""
    numbers = {name: "" if row[name] is None else number(row[name]) for name in ("Mflop", "kB", "us")}
    return [str({**row, **numbers}[name]) for name in COLUMNS]


def shortened(text, width):
    """The text, or its beginning and its end around '..' where it is longer than width."""
    if len(text) <= width:
        return text
    kept = max(width - 2, 2)
    return text[:kept - kept // 2] + ".." + text[len(text) - kept // 2:]


def _widths(lines, width):
    widths = [max(len(line[c]) for line in lines) for c in range(len(lines[0]))]
    for name in _YIELDING:
        c, too_long = COLUMNS.index(name), sum(widths) + 2 * len(widths) - (width or math.inf)
        if too_long > 0:
            widths[c] = max(len(name), 8, widths[c] - int(too_long))
    return widths


def table(rows, width=None):
    """Lines of a table of steps; long names are shortened to a line's width, and times left out where there are none."""
    lines = [list(COLUMNS), *map(cells, rows)]
    if not any(line[-1] for line in lines[1:]):
        lines = [line[:-1] for line in lines]
    widths = _widths(lines, width)
    return ["  " + "  ".join(shortened(cell, w).ljust(w) for cell, w in zip(line, widths)).rstrip() for line in lines]


def memory(report, width=None):
    """Lines of the memory plan: what lies in the arena and in the saved block, by offset."""
    lines = [f"  arena {named_bytes(report['arena_bytes'])}, "
             f"saved for the backward pass {named_bytes(report['saved_bytes'])}"]
    for place in ("kept", "arena", "saved", "lent"):  # kept: made once; lent: in the saved block, where it holds nothing at that time
        values = [v for v in report["values"] if v["place"] == place and v["bytes"]]
        held = sorted((v["offset"], v["name"], v["bytes"]) for v in values)
        lines += [f"    {place} {offset:>10}  {shortened(name, (width or 10**6) - 40)} ({named_bytes(size)})"
                  for offset, name, size in held]
    return lines


def choices(rows, width=None):
    """Lines for each step that a library runs because others do not, and for steps that run together."""
    lines = [f"step {row['step']} is run by {row['by']} ({row['why']})" for row in rows if row["why"]]
    lines += [f"steps {row['step']} to {row['step'] + row['chained'] - 1} run together, {row['at_once']} of {row['channels']} "
              "channels at a time" for row in rows if row["chained"]]
    return [part for line in lines
            for part in textwrap.wrap(line, width or 10**6, initial_indent="  ", subsequent_indent="    ")]


def passes(report, width=None):
    """Lines of what the passes took, the longest first."""
    took = sorted(report["passes"], key=lambda item: -item[1])
    each = ", ".join(f"{name} {seconds * 1e3:.2f}" for name, seconds in took)
    text = f"passes {sum(seconds for _, seconds in took) * 1e3:.2f} ms: {each}"
    return textwrap.wrap(text, width or 10**6, initial_indent="  ", subsequent_indent="    ")


def place(graph):
    """Where a program's values lie, as words behind its name; none for the host."""
    return ", on the GPU" if any(graph.device(name) == "cuda" for name in graph.arrays) else ""


def programs(function):
    """[(title, graph, report)] of a core function, the forward first."""
    pairs = zip(("forward", "backward"), (function.forward_graph, function.backward_graph), function.report())
    return [(title, graph, report) for title, graph, report in pairs if report is not None]


def explain(name, function, width=None):
    """The text of what a function's programs do."""
    lines = []
    for title, graph, report in programs(function):
        rows = steps(graph, report)
        total = sum(row["Mflop"] for row in rows)
        lines += [f"{name}, {title}{place(graph)}: {counted(len(rows), 'kernel')}, {total:.4g} Mflop",
                  *table(rows, width), *choices(rows, width),
                  *memory(report, width), *passes(report, width)]
    return "\n".join(lines)

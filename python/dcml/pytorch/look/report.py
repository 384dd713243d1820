"""What a compiled module does, as text.

The one idea: the core lists the steps of a program with what they compute and move; this file puts names to
them and lays them out.
Must not know: how a program is made or run.
"""
import math

COLUMNS = ("step", "kernel", "result", "shape", "by", "Mflop", "kB", "us")


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
                     "by": step["by"], "why": step["why"], "Mflop": step["operations"] / 1e6, "kB": step["bytes"] / 1e3,
                     "us": step["seconds"] / step["runs"] * 1e6 if step["runs"] else None})
    return rows


def cells(row):
    """Texts of a row, by column."""
    numbers = {name: "" if row[name] is None else f"{row[name]:.4g}" for name in ("Mflop", "kB", "us")}
    return [str({**row, **numbers}[name]) for name in COLUMNS]


def _table(rows):
    lines = [list(COLUMNS), *map(cells, rows)]
    widths = [max(len(line[c]) for line in lines) for c in range(len(COLUMNS))]
    return ["  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines]


def memory(report):
    """Lines of the memory plan: what lies in the arena and in the saved block, by offset."""
    lines = [f"  arena {_named(report['arena_bytes'])}, saved for the backward pass {_named(report['saved_bytes'])}"]
    for place in ("arena", "saved"):
        values = [v for v in report["values"] if v["place"] == place and v["bytes"]]
        held = sorted((v["offset"], v["name"], v["bytes"]) for v in values)
        lines += [f"    {place} {offset:>10}  {name} ({_named(size)})" for offset, name, size in held]
    return lines


def _choices(rows):
    """A line for each step that a library runs because others do not."""
    return [f"  step {row['step']} is run by {row['by']} ({row['why']})" for row in rows if row["why"]]


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
        lines += [f"{name}, {title}: {len(rows)} kernels, {total:.4g} Mflop", *_table(rows), *_choices(rows), *memory(report), _passes(report)]
    return "\n".join(lines)

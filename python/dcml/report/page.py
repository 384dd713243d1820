"""The HTML page of a profile: self-contained, for light and dark screens.

The one idea: a step's time is a bar, coloured by who serves the step; numbers stand beside it.
Must not know: how the times were taken.
"""
import html

from .table import counted, memory, named_bytes, number, place, steps

_STYLE = """
:root { color-scheme: light dark; --ink: #1d2430; --soft: #5d6878; --line: #dfe4ea; --paper: #f6f7f9; --card: #ffffff;
  --library: #2f7d5b; --compiled: #3867c9; --interpreted: #c2642f; --track: #edf0f4 }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ee; --soft: #96a1b0; --line: #2d3440; --paper: #14181f;
  --card: #1b2029; --library: #4fb98a; --compiled: #6f9bf5; --interpreted: #e6945f; --track: #262c37 } }
* { box-sizing: border-box }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif }
main { max-width: 1080px; margin: 0 auto; padding: 40px 24px 64px }
h1 { font-size: 26px; margin: 0 0 2px } h2 { font-size: 18px; margin: 40px 0 12px }
p { margin: 0; color: var(--soft) }
.tiles { display: flex; flex-wrap: wrap; gap: 12px; margin: 24px 0 }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 12px 18px; min-width: 132px }
.tile b { display: block; font-size: 20px; font-weight: 600 } .tile span { color: var(--soft); font-size: 13px }
.split { display: flex; height: 14px; border-radius: 7px; overflow: hidden; background: var(--track); margin: 6px 0 8px }
.legend { display: flex; flex-wrap: wrap; gap: 4px 20px; font-size: 13px; color: var(--soft) }
.legend i { display: inline-block; width: 10px; height: 10px; border-radius: 3px; margin-right: 6px }
.scroll { overflow-x: auto; background: var(--card); border: 1px solid var(--line); border-radius: 10px; margin-top: 16px }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; font-variant-numeric: tabular-nums }
th, td { padding: 6px 12px; text-align: left; white-space: nowrap; border-bottom: 1px solid var(--line) }
th { color: var(--soft); font-weight: 500 } tr:last-child td { border-bottom: 0 }
td.number, th.number { text-align: right } td.wide { width: 30%; min-width: 160px }
td.name { max-width: 220px; overflow: hidden; text-overflow: ellipsis }
.track { background: var(--track); border-radius: 4px; height: 10px } .bar { border-radius: 4px; height: 10px; min-width: 2px }
details { margin-top: 14px; color: var(--soft) } summary { cursor: pointer }
pre { overflow-x: auto; background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 14px; color: var(--ink);
  font: 12.5px/1.45 ui-monospace, monospace }
"""
_COLORS = {"compiled": "var(--compiled)", "interpreted": "var(--interpreted)"}  # anything else is a library
_HEAD = ("step", "kernel", "result", "shape", "served by", "time", "", "Mflop", "kB", "Gflop/s", "GB/s")
_NUMBERS = frozenset(("step", "time", "Mflop", "kB", "Gflop/s", "GB/s"))


def _color(by):
    return _COLORS.get(by, "var(--library)")


def _time(us):
    return f"{us:.3g} us" if us < 1e3 else f"{us / 1e3:.3g} ms"


def _rate(amount, us):
    """kflop or kB in that time as Gflop/s or GB/s."""
    return f"{amount / us:.3g}" if us and amount else ""


def _row(row, longest):
    us = row["us"] or 0
    shape = " x ".join(map(str, row["shape"])) or "scalar"
    bar = f"<div class=track><div class=bar style='width:{us / longest * 100:.1f}%;background:{_color(row['by'])}'></div></div>"
    cells = (str(row["step"]), html.escape(row["kernel"]), html.escape(row["result"]), shape, html.escape(row["by"]), _time(us),
             bar, number(row["Mflop"]), number(row["kB"]), _rate(row["Mflop"] * 1e3, us), _rate(row["kB"], us))
    classes = ["number" if name in _NUMBERS else "wide" if not name else "name" for name in _HEAD]
    return "<tr>" + "".join(f"<td class={c} title='{html.escape(str(t)) if c == 'name' else ''}'>{t}"
                            for c, t in zip(classes, cells))


def _split(rows):
    """The bar that shows who takes which part of the time, with its legend."""
    total = sum(row["us"] or 0 for row in rows) or 1
    shares = {}
    for row in rows:
        shares.setdefault(row["by"], []).append(row["us"] or 0)
    ordered = sorted(shares.items(), key=lambda item: -sum(item[1]))
    parts = "".join(f"<div style='width:{sum(us) / total * 100:.2f}%;background:{_color(by)}'></div>" for by, us in ordered)
    legend = "".join(f"<span><i style='background:{_color(by)}'></i>{html.escape(by)}: {_time(sum(us))}, "
                     f"{sum(us) / total:.0%}, {counted(len(us), 'step')}</span>" for by, us in ordered)
    return f"<div class=split>{parts}</div><div class=legend>{legend}</div>"


def _section(title, graph, report):
    rows = steps(graph, report)
    title = f"{title}{place(graph)}: {_time(sum(row['us'] or 0 for row in rows))} in {counted(len(rows), 'step')}" if title else ""
    longest = max((row["us"] or 0 for row in rows), default=0) or 1
    head = "".join(f"<th{' class=number' if name in _NUMBERS else ''}>{name}" for name in _HEAD)
    body = [f"<h2>{html.escape(title)}</h2>", _split(rows), f"<div class=scroll><table><tr>{head}"]
    body += [_row(row, longest) for row in rows]
    body += ["</table></div><details><summary>Memory plan: arena ", named_bytes(report["arena_bytes"]), "</summary><pre>",
             html.escape("\n".join(memory(report))), "</pre></details>"]
    return body


def _tile(value, label):
    return f"<div class=tile><b>{value}</b><span>{label}</span></div>"


def _tiles(programs, seconds, calls):
    rows = [row for _, graph, report in programs for row in steps(graph, report)]
    flop, in_steps = sum(row["Mflop"] for row in rows), sum(row["us"] or 0 for row in rows)
    taken = seconds * 1e6 if seconds else in_steps
    tiles = [_tile(_time(seconds * 1e6), f"a call, mean of {calls}")] if seconds else []
    return [*tiles, _tile(_time(in_steps), f"in {counted(len(rows), 'step')}" + ("" if seconds else f", mean of {calls} calls")),
            _tile(f"{number(flop)} M", "operations"), _tile(f"{_rate(flop * 1e3, taken) or 0} G", "operations a second"),
            _tile(named_bytes(sum(report["arena_bytes"] for _, _, report in programs)), "arena")]


def page(name, subtitle, programs, calls, seconds=None):
    """The page.  programs: [(title, graph, report)] with timed steps; seconds: of a whole call, if that was measured."""
    tiles = _tiles(programs, seconds, calls)
    body = ["<!DOCTYPE html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
            f"<title>{html.escape(name)}</title><style>{_STYLE}</style><main>",
            f"<h1>{html.escape(name)}</h1><p>{html.escape(subtitle)}</p><div class=tiles>", *tiles, "</div>"]
    for title, graph, report in programs:
        body += _section(title, graph, report)
    return "\n".join(body) + "</main></html>\n"

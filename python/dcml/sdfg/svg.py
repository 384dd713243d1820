"""Graphs as self-contained SVG: a column of nodes in execution order, with the containers that join them.

The one idea: a node is a box, a container that leads from one box to a later one is a curve beside the column.
Must not know: what the nodes compute.
"""
from html import escape

_BOX, _GAP, _WIDTH, _MARGIN = 22, 10, 330, 150
_COLOURS = {"library": "#dbe9f6", "map": "#e4f3e1", "tasklet": "#fdf0d5"}


def _links(nodes):
    """(from, to, name) for each value that a node takes from an earlier one; from -1: an input."""
    writer = {}
    for index, (_, _, _, reads, writes) in enumerate(nodes):
        for name in reads:
            yield writer.get(name, -1), index, name
        for name in writes:
            writer[name] = index


def graph_svg(graph, limit=120):
    """The SVG text of a core Graph.  limit: number of nodes drawn; a larger graph ends with a count of the rest."""
    nodes = [node for state in range(graph.n_states) for node in graph.nodes(state)]
    rest, nodes = len(nodes) - limit, nodes[:limit]
    height = (len(nodes) + 1 + (rest > 0)) * (_BOX + _GAP) + _GAP
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH + _MARGIN} {height}" '
             f'width="{_WIDTH + _MARGIN}" font-family="sans-serif" font-size="11">']
    for start, end, name in _links(nodes):
        if start < 0 or end - start < 1:
            continue
        y0, y1 = ((i * (_BOX + _GAP)) + _GAP + _BOX / 2 for i in (start, end))
        bend = _WIDTH + min(12 + 7 * (end - start), _MARGIN - 10)
        parts.append(f'<path d="M{_WIDTH} {y0} C{bend} {y0} {bend} {y1} {_WIDTH} {y1}" fill="none" stroke="#8899aa">'
                     f'<title>{escape(name)}</title></path>')
    for index, (_, kind, label, reads, writes) in enumerate(nodes):
        y = index * (_BOX + _GAP) + _GAP
        text = f"{label}: {', '.join(writes)}"
        text = text if len(text) < 52 else text[:49] + "..."
        parts.append(f'<g><title>{escape(", ".join(reads))} to {escape(", ".join(writes))}</title>'
                     f'<rect x="4" y="{y}" width="{_WIDTH - 4}" height="{_BOX}" rx="4" fill="{_COLOURS[kind]}" '
                     f'stroke="#667788"/><text x="12" y="{y + 15}">{escape(text)}</text></g>')
    if rest > 0:
        parts.append(f'<text x="12" y="{height - 12}">and {rest} more</text>')
    return "".join([*parts, "</svg>"])


def curves_svg(curves, title, width=520, height=220):
    """Line plots of {name: [numbers]} over their positions, as SVG text."""
    colours = ["#1f77b4", "#d62728", "#2ca02c", "#9467bd"]
    values = [v for curve in curves.values() for v in curve]
    low, high = min(values), max(values)
    span, longest = (high - low) or 1, max(len(c) for c in curves.values())
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
             f'font-family="sans-serif" font-size="12"><text x="40" y="16">{escape(title)}</text>'
             f'<text x="2" y="34">{high:.3g}</text><text x="2" y="{height - 12}">{low:.3g}</text>']
    for k, (name, curve) in enumerate(curves.items()):
        points = " ".join(f"{40 + i * (width - 60) / max(longest - 1, 1):.1f},{height - 16 - (v - low) * (height - 50) / span:.1f}"
                          for i, v in enumerate(curve))
        dash = ' stroke-dasharray="6 4"' if k % 2 else ""
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colours[k % 4]}" stroke-width="2"{dash}/>'
                     f'<text x="{width - 130}" y="{30 + 16 * k}" fill="{colours[k % 4]}">{escape(name)}</text>')
    return "".join([*parts, "</svg>"])

"""Laid-out boxes as SVG: an image that stands alone, and the one that the page moves.

The one idea: a box is a group at its place in the box around it, so that moving or hiding a group does so with what it holds.
Must not know: where things go.
"""
from functools import cache
from html import escape
from importlib.resources import files

from .boxes import FOOT, HEAD, Box

ARROW = ('<defs><marker id="dcml-arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9" '
         'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 1L8 4L0 7z"/></marker></defs>')


@cache
def asset(name):
    """The text of a file beside this one."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def image(item, told=True):
    """The SVG text of a laid-out item, with its style.  told: hovering says what a node or an edge is."""
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" class="dcml-graph" viewBox="0 0 {item.width:.0f} {item.height:.0f}" '
             f'width="{item.width:.0f}" height="{item.height:.0f}" role="img" aria-label="{escape(item.content.title)}">'
             f"<style>{asset('graph.css')}</style>{ARROW}"]
    parts += drawn(item, told)
    return "".join([*parts, "</svg>"])


def drawn(item, told):
    """The parts of the text of an item and of all that it holds.  Boxes hold each other deeper than Python calls may be nested."""
    parts, left = [], [item]
    while left:
        item = left.pop()
        if isinstance(item, str):
            parts.append(item)
            continue
        box = item.content
        size = "" if box.items is None and box.kind != "tasklet" else f' data-w="{item.width:.1f}" data-h="{item.height:.1f}"'
        if box.items is not None and box.kind != "graph":
            size += ' data-f="{:.1f} {}"'.format(*box.folded)
        parts.append(f'<g class="box {box.kind}{"".join(" " + mark for mark in box.marks)}" data-k="{box.key}"{size} '
                     f'transform="translate({item.x:.1f} {item.y:.1f})">{_title(box) if told else ""}')
        if box.items is None:
            parts += [_SHAPES.get(box.kind, _library)(item, box), "</g>"]
            continue
        parts += [_frame(item, box), '<g class="inner">', *(_edge(edge, told) for edge in box.edges)]
        left += ["</g></g>", *reversed(box.items)]
    return parts


def _title(box):
    rows = [f"{what}: {text}" for what, text in box.told if text]
    return f"<title>{escape(chr(10).join([box.title, *rows, *filter(None, [getattr(box, 'code', '')])]))}</title>"


def _text(x, y, text, kind, middle=True):
    anchor = ' text-anchor="middle"' if middle else ""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}"{anchor}>{escape(text)}</text>'


def _rectangle(item, radius, kind="shape"):
    return f'<rect class="{kind}" width="{item.width:.1f}" height="{item.height:.1f}" rx="{radius}"/>'


def _access(item, box):
    x = item.width / 2
    return _rectangle(item, item.height / 2) + _text(x, 16, box.title, "name") + _text(x, 29, box.lines[0], "small")


def _again(item, box):
    return _rectangle(item, item.height / 2) + _text(item.width / 2, 15, box.title, "name")


def _tasklet(item, box):
    w, h, c = item.width, item.height, 7
    cut = f"M{c} 0H{w - c:.1f}L{w:.1f} {c}V{h - c:.1f}L{w - c:.1f} {h:.1f}H{c}L0 {h - c:.1f}V{c}z"
    return f'<path class="shape" d="{cut}"/>' + "".join(_text(w / 2, 16 + 15 * k, line, "code") for k, line in enumerate(box.lines))


def _library(item, box):
    x = item.width / 2
    return _rectangle(item, 4) + _text(x, 18, box.title, "name") + "".join(
        _text(x, 32 + 14 * k, line, "small") for k, line in enumerate(box.lines))


_SHAPES = {"access": _access, "again": _again, "tasklet": _tasklet}


def _frame(item, box):
    """The frame of a box with its head, which says how to fold it and, when folded, what it holds."""
    if box.kind == "graph":
        return ""
    foot = f'<path class="bar foot" transform="translate(0 {item.height - FOOT:.1f})" d="{_bottom(item.width, FOOT, 8)}"/>'
    return (_rectangle(item, 8, "frame") + (foot if box.kind == "map" else "")
            + f'<g class="head"><path class="bar" d="{_top(item.width, HEAD, 8)}"/>'
            f'<path class="sign" d="M11 10l8 0l-4 6z"/>' + _text(26, 17.5, box.title, "name", False)
            + _text(26, HEAD + 12, box.within, "small within", False) + "</g>")


def _top(width, height, radius):
    return f"M0 {height}V{radius}Q0 0 {radius} 0H{width - radius:.1f}Q{width:.1f} 0 {width:.1f} {radius}V{height}z"


def _bottom(width, height, radius):
    return f"M0 0H{width:.1f}Q{width:.1f} {height} {width - radius:.1f} {height}H{radius}Q0 {height} 0 0z"


def _edge(edge, told):
    line = edge.content
    (x, y), *rest = edge.points
    d = [f"M{x:.1f} {y:.1f}"]
    for nx, ny in rest:
        middle = (y + ny) / 2
        d.append(f"C{x:.1f} {middle:.1f} {nx:.1f} {middle:.1f} {nx:.1f} {ny:.1f}")
        x, y = nx, ny
    ends = "".join(f' data-{name}="{end.content.key}"' for name, end in (("s", edge.source), ("t", edge.target)) if end)
    title = _title(Box(line.key, "", line.told[0][1], told=line.told[1:])) if told and line.told else ""
    label = _text(*edge.label_at, line.label, "memlet") if line.label and edge.label_at else ""
    return (f'<g class="edge{" update" if line.updates else ""}" data-k="{line.key}"{ends}>{title}'
            f'<path d="{"".join(d)}" marker-end="url(#dcml-arrow)"/>{label}</g>')

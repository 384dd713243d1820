"""The page of a graph: one file of HTML that needs no network.

The one idea: the drawing as it is laid out, what each node and edge is as JSON beside it, and a script that moves and hides groups.
Must not know: where things go.
"""
import json
from html import escape

from ...report.table import counted
from .draw import ARROW, asset, drawn

_BUTTONS = (("overview", "Overview", "0"), ("fit", "Read", "1"), ("fold", "Fold", "["), ("unfold", "Unfold", "]"))
_LEGEND = (("data", "argument"), ("weight", "weight, constant"), ("inside", "transient"), ("operator", "operator"), ("task", "tasklet"),
           ("map", "map"))


def page(item, subtitle):
    """The text of the page of a laid-out graph."""
    box = item.content
    told = json.dumps(dict(_told(item)), separators=(",", ":")).replace("</", "<\\/")
    buttons = "".join(f'<button data-do="{do}" title="key {key}">{name}</button>' for do, name, key in _BUTTONS)
    legend = "".join(f'<span><i style="background:var(--{name});border-color:var(--{name}-line)"></i>{text}</span>'
                     for name, text in _LEGEND)
    return (f'<!DOCTYPE html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
            f"<title>{escape(box.title)}</title><style>{asset('graph.css')}{asset('page.css')}</style>"
            f'<svg id="graph" class="dcml-graph" tabindex="0">{ARROW}<g id="root">{"".join(drawn(item, told=False))}</g></svg>'
            f'<header><div class="name"><b>{escape(box.title)}</b><span>{escape(subtitle)}</span></div>'
            f'<label class="find"><input id="find" placeholder="Search  /" aria-label="Search" autocomplete="off" spellcheck="false">'
            f'<span id="count"></span></label><div class="tools">{buttons}</div></header>'
            f'<footer>{legend}<span><kbd>/</kbd> search <kbd>[</kbd> <kbd>]</kbd> fold <kbd>0</kbd> overview</span></footer>'
            f'<div id="tip" hidden></div><script id="told" type="application/json">{told}</script>'
            f'<script>{asset("page.js")}</script></html>\n')


def _told(item):
    """(key, [title, rows, code]) of all boxes and edges."""
    left = [item]
    while left:
        box = left.pop().content
        yield box.key, [box.title, [row for row in box.told if row[1]], box.code]
        for edge in box.edges:
            line = edge.content
            if line.told:
                yield line.key, [line.told[0][1], line.told[1:], ""]
        left += box.items or []


def subtitle(graph, item):
    """What the graph is made of."""
    return ", ".join([counted(graph.n_states, "state"), counted(item.content.count, "node"), counted(len(graph.arrays), "array")])

"""Graphs to look at: a page for the browser, an image for notebooks and documents.

The one idea: a graph is laid out once, and drawn as one SVG, which the page moves and notebooks show.
Must not know: how graphs are made, changed or run.
"""
import os
import pathlib
import re
import sys
import tempfile

MOST = 400  # nodes that a notebook shows


def html(graph):
    """The text of the page of a core Graph."""
    from . import boxes, page
    item = boxes.whole(graph)
    return page.page(item, page.subtitle(graph, item))


def svg(graph, state=None):
    """The SVG text of a core Graph, or of one of its states, with its style: it stands alone, or within HTML."""
    from . import boxes, draw
    return draw.image(boxes.whole(graph, state))


def notebook(graph, state=None):
    """What a notebook shows of a graph or of one of its states: its drawing, in a frame that scrolls; of a large one, its size."""
    from html import escape

    from . import boxes, draw, page
    item = boxes.whole(graph, state)
    if item.content.count > MOST:
        return f"<b>{escape(graph.name)}</b>: {escape(page.subtitle(graph, item))}; <code>view()</code> shows it"
    return f'<div style="overflow:auto;max-height:620px">{draw.image(item)}</div>'


def notebook_node(graph, state, node):
    """What a notebook shows of a node, by its id in the flat view: its drawing, and what it reads, writes and computes."""
    from html import escape

    from . import boxes, draw
    item = boxes.one(graph, state, node)
    rows = "".join(f"<tr><th style='text-align:left'>{escape(what)}<td style='text-align:left'>{escape(text)}"
                   for what, text in item.content.told if text)
    code = f"<pre>{escape(item.content.code)}</pre>" if item.content.code else ""
    return f"{draw.image(item)}<table>{rows}</table>{code}"


def view(graph, filename=None, open=True):
    """Writes the page of a core Graph and shows it in the browser.

    filename: where it is written; None: a file in the folder for temporary files.
    open: whether a browser is asked to show it.  Where there is none, the path is printed.
    Returns the path.
    """
    if filename is None:
        name = re.sub(r"\W+", "-", graph.name).strip("-")[:60] or "sdfg"
        number, filename = tempfile.mkstemp(".html", f"{name}-")
        os.close(number)
    path = pathlib.Path(filename).absolute()
    path.write_text(html(graph), encoding="utf-8")
    if open and not _shown(path):
        print(path)
    return str(path)


def _shown(path):
    """Asks a browser to show the file; False if there is none that would not take over the terminal."""
    import webbrowser
    if sys.platform.startswith("linux") and not any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")):
        return False
    return webbrowser.open(path.as_uri())

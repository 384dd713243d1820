"""How the manual is made: pages are Markdown that a reader of the repository can read as well.

A block ``python`` is run by ``make doctest``, all blocks of a page one after the other; so is a block ``pycon``, whose results are
compared.  A directive ``graph`` holds Python code and draws the graph that its last line names; with the option
``after`` the code sees the names of the one before.
"""
import ast
import linecache
import re

import dcml
from docutils import nodes
from docutils.parsers.rst import Directive, directives

project = "dcml"
copyright = "dcml's authors"
version = release = dcml.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.doctest", "sphinx.ext.viewcode"]
html_theme = "furo"
html_title = "dcml"
html_static_path = ["static"]
html_css_files = ["graphs.css"]
exclude_patterns = ["requirements.txt"]
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence", "fieldlist", "deflist"]
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_default_options = {"members": True}
doctest_test_doctest_blocks = ""  # those of docstrings see the names of their modules: pytest runs them
doctest_global_setup = "import torch\nfrom torch import nn\nimport numpy as np\nfrom dcml.pytorch import DaceModule, dace_module"
trim_doctest_flags = True
nitpicky = False
suppress_warnings = ["myst.header"]

_TESTED = {"python": "testcode", "pycon": "doctest"}


def mark_blocks(app, document):
    """Makes tests of the blocks of code, when tests are what is made."""
    if app.builder.name != "doctest":
        return
    for block in document.findall(nodes.literal_block):
        kind = "doctest" if block.astext().startswith(">>>") else _TESTED.get(block.get("language"))
        if kind and "testnodetype" not in block:
            block["testnodetype"], block["groups"], block["options"] = kind, ["default"], {}


_NAME = r"\*{0,2}\w+(?: \([\w ]+\))?"
_ROW = re.compile(rf"({_NAME}(?:, {_NAME})*): (.*)")


def as_markup(app, what, name, thing, options, lines):
    """Docstrings name arguments as ``name: what it is`` with indented continuations; that becomes a list."""
    if what == "class" and hasattr(thing, "schema"):  # an operator's: ONNX's text, which keeps to its own layout
        lines[:] = ["::", "", *("   " + line for line in lines)]
        return
    result, in_row, in_code = [], False, False
    for line in lines:
        in_code = line.lstrip().startswith(">>>") or in_code and bool(line.strip())
        if in_code:
            in_row = False
            result.append(line)
            continue
        line = re.sub(r"(?<![\w`.])(\w+_)(?![\w`<])", r"``\1``", line).replace("_<", r"\_<")
        row = _ROW.fullmatch(line)
        if row:
            result += ([] if in_row else [""]) + [f"- **{row[1].replace('*', chr(92) + '*')}**: {row[2]}"]
            in_row = True
        elif in_row and line.startswith("  "):
            result.append("  " + line.lstrip())
        else:
            result += [""] if in_row else []
            in_row = False
            result.append(line)
    lines[:] = result


class Graph(Directive):
    """Shows the code that it holds, and the graph that the code's last line names: an SDFG, a state or a core graph."""
    has_content = True
    option_spec = {"after": directives.flag}  # goes on with the names of the block before
    names = {}

    def run(self):
        from dcml.sdfg import view
        source = "\n".join(self.content)
        tree = ast.parse(source)
        if "after" not in self.options:
            Graph.names = {"__name__": "__main__"}
        names, place = Graph.names, f"<{self.state.document['source']}:{self.lineno}>"
        linecache.cache[place] = len(source), None, source.splitlines(keepends=True), place  # programs read their own source
        exec(compile(ast.Module(tree.body[:-1], []), place, "exec"), names)
        value = eval(compile(ast.Expression(tree.body[-1].value), place, "eval"), names)
        code = nodes.literal_block(source, source, language="python")
        drawing = view.svg(getattr(value, "graph", value))
        return [code, nodes.raw("", f'<div class="drawn">{drawing}</div>', format="html")]


def setup(app):
    app.connect("doctree-read", mark_blocks)
    app.connect("autodoc-process-docstring", as_markup)
    app.add_directive("graph", Graph)

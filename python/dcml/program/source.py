"""Source of a function: its syntax tree, and errors that show the line.

Must not know: what the source means.
"""
import ast
import contextlib
import inspect
import linecache
import textwrap

from .. import _core
from .index import NeedsValue


class Source:
    """The tree of a function.  kind and name, say "program" and "gemm", begin its errors.

    Raises UnsupportedOpError where Python has no source, as for what is typed at a bare prompt.
    """

    def __init__(self, function, kind="program", name=None):
        self.kind, self.name = kind, name or function.__name__
        try:
            self.file = inspect.getsourcefile(function) or "?"
            lines, self.first = inspect.getsourcelines(function)
        except (OSError, TypeError):
            raise _core.UnsupportedOpError(f"{kind} {self.name}: its source is not to be found; write it in a file or a "
                                           "notebook") from None
        text = textwrap.dedent("".join(lines))
        self.indent = len(lines[0]) - len(lines[0].lstrip())
        try:
            parsed = ast.parse(text).body[0]
        except SyntaxError:
            parsed = None
        if not isinstance(parsed, ast.FunctionDef):
            raise _core.UnsupportedOpError(f"{kind} {self.name}: not a function by def ({self.file}:{self.first})")
        self.tree = parsed

    def error(self, node, message, error=_core.UnsupportedOpError):
        """An error at a node, with its line and a caret."""
        line = self.line(node)
        shown = linecache.getline(self.file, line).rstrip()
        caret = f"\n    {shown.strip()}\n    {' ' * self._column(shown, node)}^" if shown else ""
        made = error(f"{self.kind} {self.name}: {message} ({self.file}:{line}){caret}")
        made.located = True
        return made

    def line(self, node):
        """The line of a node in its file."""
        return self.first + getattr(node, "lineno", 1) - 1

    @contextlib.contextmanager
    def at(self, node):
        """Errors inside get the node's line, if they have none."""
        try:
            yield
        except _core.Error as error:
            if getattr(error, "located", False):
                raise
            raise self.error(node, str(error), type(error)) from error
        except NeedsValue as missing:
            if missing.error is None:
                missing.error = self.error(node, f"{missing} must be known when the program is compiled; write numbers "
                                                 "into the annotations")
            raise

    def _column(self, shown, node):
        return max(0, getattr(node, "col_offset", 0) + self.indent - (len(shown) - len(shown.lstrip())))

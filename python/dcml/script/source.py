"""Where a script's text comes from, what its Python names mean, and errors that show the line.

The one idea: a script is read as text once; names that it does not assign are looked up where Python would look: closure,
globals, the place of its decorator, builtins.
Must not know: operators, ONNX.
"""
import ast
import builtins
import inspect
import textwrap
import types

from .. import _core


class TranslationError(_core.ModelError):
    """A script that cannot become an ONNX function: the message has file and line, and says what to write instead."""


class ScriptTypeError(_core.DTypeError):
    """The same for arguments of a wrong kind: also a TypeError."""


class Source:
    """The text of a function.

    function: a Python function.  frame: where it is decorated, whose locals annotations may name, or None.
    ``tree`` is its ast.FunctionDef, whose lines are those of the file.
    Raises TranslationError if the text is not to be had, or is no ``def``.
    """

    def __init__(self, function, frame=None):
        if not isinstance(function, types.FunctionType):
            raise ScriptTypeError(f"script() decorates a Python function, not {function!r}")
        self.name, self.file = function.__name__, function.__code__.co_filename
        try:
            lines, first = inspect.getsourcelines(function)
        except (OSError, TypeError) as error:
            raise TranslationError(f"script {self.name!r}: its text is not to be had ({error}); write it in a file") from None
        self.text = textwrap.dedent("".join(lines))
        tree = self._parsed()
        ast.increment_lineno(tree, first - 1)
        self.first, self.tree = first, tree
        self._places = _places(function, frame)

    def _parsed(self):
        try:
            found = ast.parse(self.text).body[0]
        except SyntaxError as error:
            raise TranslationError(f"{self.file}: script {self.name!r}: {error}") from None
        if not isinstance(found, ast.FunctionDef):
            raise TranslationError(f"{self.file}: script {self.name!r} is not written as a def")
        return found

    def lookup(self, name):
        """The Python object of a name that the script does not assign; KeyError if there is none."""
        for place in self._places:
            if name in place:
                return place[name]
        raise KeyError(name)

    def evaluate(self, node, names=None):
        """The value of a Python expression of the script; names: {name: value} that come first."""
        code = compile(ast.Expression(ast.fix_missing_locations(node)), self.file, "eval")
        space = {}
        for place in reversed(self._places):
            space.update(place)
        return eval(code, {**space, **(names or {})})

    def error(self, node, message, kind=TranslationError):
        """An exception that shows the place of a node of the tree."""
        line = getattr(node, "lineno", self.first)
        texts = self.text.splitlines()
        text = texts[line - self.first] if 0 <= line - self.first < len(texts) else ""
        mark = " " * getattr(node, "col_offset", 0) + "^" if hasattr(node, "col_offset") else ""
        return kind(f"{self.file}:{line}: in script {self.name!r}: {message}\n    {text}\n    {mark}".rstrip())


def _places(function, frame):
    closure = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            closure[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    around = {} if frame is None or frame.f_locals is frame.f_globals else dict(frame.f_locals)
    around.pop(function.__name__, None)
    return [closure, function.__globals__, around, vars(builtins)]


def names_read(node):
    """Names that an expression or a nested function reads from around it."""
    if isinstance(node, (ast.FunctionDef, ast.Lambda)):
        arguments = node.args
        own = {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg) if a}
        body = node.body if isinstance(node.body, list) else [node.body]
        stored = {n.id for s in body for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        return {n for s in body for n in names_read(s)} - own - stored
    found = set()
    for child in ast.iter_child_nodes(node):
        if isinstance(node, ast.AnnAssign) and child is node.annotation:
            continue
        found |= names_read(child)
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        found.add(node.id)
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        found.add(node.target.id)
    return found

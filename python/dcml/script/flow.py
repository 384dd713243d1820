"""What statements assign, and which names are read after them.

The one idea: one pass backwards tells for each statement the names that are live behind it; branches and loops give as
outputs what they assign and is live.
Must not know: ONNX values.
"""
import ast

from .source import names_read


def targets(node):
    """Names that an assignment's target binds, in order."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, (ast.Tuple, ast.List)):
        return [name for item in node.elts for name in targets(item)]
    return []


def bound_by(statement):
    """Names that an assignment binds."""
    if isinstance(statement, ast.Assign):
        return [name for target in statement.targets for name in targets(target)]
    if isinstance(statement, (ast.AnnAssign, ast.AugAssign)):
        return targets(statement.target)
    return []


def is_break(statement):
    """Whether it is ``if c: break``."""
    return isinstance(statement, ast.If) and len(statement.body) == 1 and isinstance(statement.body[0], ast.Break) and not statement.orelse


class Flow:
    """keeps: a function from an ``if`` to the list of statements that remain of it, or None if both branches may run."""

    def __init__(self, keeps):
        self._keeps = keeps

    def assigned(self, statements):
        """Names that the statements bind, in order, those of nested branches and loops included."""
        names = {}
        for s in statements:
            if isinstance(s, ast.If):
                kept = self._keeps(s)
                inner = self.assigned([*s.body, *s.orelse] if kept is None else kept)
            elif isinstance(s, (ast.For, ast.While)):
                counter = targets(s.target) if isinstance(s, ast.For) else []
                inner = [name for name in self.assigned(s.body) if name not in counter]
            else:
                inner = bound_by(s)
            names.update(dict.fromkeys(inner))
        return list(names)

    def before(self, statements, live):
        """Names that are live before the statements, of which ``live`` are behind them."""
        for s in reversed(statements):
            live = self._before(s, live)
        return live

    def behind(self, statements, live):
        """For each statement the names that are live behind it."""
        found = []
        for s in reversed(statements):
            found.append(live)
            live = self._before(s, live)
        return found[::-1]

    def around(self, loop, live):
        """Names that are live where a loop's body begins and ends; live: behind the loop."""
        counter = set(targets(loop.target)) if isinstance(loop, ast.For) else set()
        at = live | (names_read(loop.test) if isinstance(loop, ast.While) else set())
        while True:
            more = at | (self.before(loop.body, at) - counter)
            if more == at:
                return at
            at = more

    def _before(self, s, live):
        if isinstance(s, ast.If):
            kept = self._keeps(s)
            if kept is not None:
                return self.before(kept, live)
            return names_read(s.test) | self.before(s.body, live) | self.before(s.orelse, live)
        if isinstance(s, ast.For):
            return names_read(s.iter) | self.around(s, live)
        if isinstance(s, ast.While):
            return self.around(s, live)
        if isinstance(s, ast.FunctionDef):
            return (live - {s.name}) | names_read(s)
        if isinstance(s, ast.Return):
            return names_read(s)
        return (live - set(bound_by(s))) | names_read(s)

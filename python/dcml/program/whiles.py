"""While loops that count, as loops over ranges, and ``continue`` as a condition.

The one idea: both are changes of the syntax tree, before a loop is translated.
Must not know: what statements become.
"""
import ast

_COUNTS = {ast.Lt: (1, 0), ast.LtE: (1, 1), ast.Gt: (-1, 0), ast.GtE: (-1, -1)}  # direction; what is added to the bound


def counter(node):
    """(name, step, bound, what is to be added to the bound) of ``while k < n: ... k += 1``; None for another loop.

    The name is changed once in each iteration, and what the bound consists of is not."""
    test = node.test
    if not (isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.left, ast.Name)) or type(test.ops[0]) not in _COUNTS:
        return None
    name, (direction, more) = test.left.id, _COUNTS[type(test.ops[0])]
    steps = [s for s in map(lambda s: _step(s, name), node.body) if s is not None]
    if len(steps) != 1 or steps[0] * direction <= 0 or len(_stores(node.body, name)) != 1 or _continues(node):
        return None
    bound = test.comparators[0]
    for part in ast.walk(bound):
        if isinstance(part, (ast.Call, ast.Subscript)) or isinstance(part, ast.Name) and _stores(node.body, part.id):
            return None
    return name, steps[0], bound, more


def _step(statement, name):
    """c of ``name += c``, ``name -= c`` and ``name = name + c``."""
    sign = 1
    if isinstance(statement, ast.AugAssign) and isinstance(statement.op, (ast.Add, ast.Sub)):
        target, value = statement.target, statement.value
        sign = 1 if isinstance(statement.op, ast.Add) else -1
    elif isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.value, ast.BinOp) \
            and isinstance(statement.value.op, (ast.Add, ast.Sub)) and getattr(statement.value.left, "id", None) == name:
        target, value = statement.targets[0], statement.value.right
        sign = 1 if isinstance(statement.value.op, ast.Add) else -1
    else:
        return None
    known = isinstance(value, ast.Constant) and type(value.value) is int
    return sign * value.value if known and getattr(target, "id", None) == name else None


def _stores(statements, name):
    return [n for s in statements for n in ast.walk(s) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store)]


def without_continue(statements):
    """``if x: ...; continue`` and what follows, as ``if x: ... else: what follows``; the list itself without any."""
    for k, node in enumerate(statements):
        if isinstance(node, ast.Continue):
            return statements[:k] or [ast.copy_location(ast.Pass(), node)]
        if not isinstance(node, ast.If) or not _continues(node):
            continue
        rest = statements[k + 1:]
        parts = []
        for branch in node.body, node.orelse:
            ends = bool(branch) and isinstance(branch[-1], ast.Continue)
            parts.append(without_continue([*branch] if ends else [*branch, *rest]))
        made = ast.If(test=node.test, body=parts[0] or [ast.Pass()], orelse=parts[1])
        return [*statements[:k], ast.fix_missing_locations(ast.copy_location(made, node))]
    return statements


def _continues(node):
    """Does a condition have a ``continue`` that belongs to the loop around it?"""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Continue) or not isinstance(child, (ast.For, ast.While, ast.FunctionDef)) and _continues(child):
            return True
    return False

"""Statements of a script: assignments, If, Loop, functions within, return.

The one idea: a branch or a loop's body is a graph of its own that gives what it assigns and what is read behind it.
Must not know: how expressions become nodes.
"""
import ast

from . import constants
from .calls import call
from .context import NOTHING, Body, Context, Value
from .expressions import as_value, evaluate, static, value_of, value_or_none
from .flow import Flow, is_break, targets
from .parameters import annotation_of
from .source import ScriptTypeError, names_read


def flow_of(c):
    """Which names are live, where branches over Python's values keep one side."""
    def keeps(statement):
        kept = static(c, statement.test)
        return None if kept is NOTHING else statement.body if kept else statement.orelse
    return Flow(keeps)


def block(c, statements, live, returns=False):
    """Writes the statements; live: names that are read behind them.  Returns the ast.Return at the end, if there is one;
    returns: there may be one."""
    flow = flow_of(c)
    statements = _flat(c, flow, statements)
    for statement, behind in zip(statements, flow.behind(statements, live)):
        c.function.place = statement
        if isinstance(statement, ast.Return):
            if not returns:
                raise c.function.fail("return is the last statement of a script: assign in each branch, "
                                      "and return behind the if or the loop")
            return statement
        write = _STATEMENTS.get(type(statement))
        if write is None:
            raise c.function.fail(f"{type(statement).__name__} is no statement of scripts: assignments, if, for, while, "
                                  "@graph() functions and return are")
        write(c, statement, behind)
    return None


def _flat(c, flow, statements):
    """The statements, with what remains of an ``if`` over Python's values in its place."""
    flat = []
    for s in statements:
        kept = flow._keeps(s) if isinstance(s, ast.If) and not is_break(s) else None
        flat += [s] if kept is None else _flat(c, flow, kept)
        if flat and isinstance(flat[-1], ast.Return):
            break
    return flat


# -- assignments ----------------------------------------------------------------------------------------
def _assign(c, statement, behind):
    if len(statement.targets) > 1:
        value = _right(c, statement.value, "tmp")
        for target in statement.targets:
            _bind(c, target, value)
        return
    target = statement.targets[0]
    if isinstance(target, (ast.Tuple, ast.List)):
        _unpack(c, target, statement.value)
    else:
        _bind(c, target, _right(c, statement.value, target.id if isinstance(target, ast.Name) else "tmp"))


def _right(c, node, hint):
    """What a name is bound to: a Value, a parameter that is an attribute, a function, or None."""
    if isinstance(node, ast.Name) and node.id in c.env and not isinstance(c.env[node.id], Value):
        return c.env[node.id]
    return value_or_none(c, node, hint)


def _bind(c, target, value):
    if not isinstance(target, ast.Name):
        instead = "op.ScatterElements or op.ScatterND" if isinstance(target, ast.Subscript) else "a name"
        raise c.function.fail(f"{ast.unparse(target)} cannot be assigned: a tensor is not changed in place; write {instead}", target)
    c.env[target.id] = value


def _unpack(c, target, node):
    if not all(isinstance(item, ast.Name) for item in target.elts):
        raise c.function.fail("a target of several names has names only", target)
    names = targets(target)
    if isinstance(node, (ast.Tuple, ast.List)):
        if len(node.elts) != len(names):
            raise c.function.fail(f"{len(names)} names for {len(node.elts)} values", target)
        values = [_right(c, item, name) for item, name in zip(node.elts, names)]
    elif isinstance(node, ast.Call):
        values = call(c, node, names)
    else:
        raise c.function.fail(f"{ast.unparse(node)} is one value, not {len(names)}: use op.Split, or indices", node)
    c.env.update(zip(names, values))


def _annotated(c, statement, behind):
    if statement.value is None:
        return
    value = _right(c, statement.value, targets(statement.target)[0] if targets(statement.target) else "tmp")
    _bind(c, statement.target, value)
    kind = annotation_of(c.function.source, ast.unparse(statement.annotation))
    if isinstance(value, Value) and hasattr(kind, "to_type_proto"):
        value.code = int(kind.dtype)
        c.function.value_infos[value.name] = kind


def _augmented(c, statement, behind):
    name = ast.Name(statement.target.id, ast.Load()) if isinstance(statement.target, ast.Name) else None
    if name is None:
        _bind(c, statement.target, None)
    node = ast.copy_location(ast.BinOp(ast.copy_location(name, statement), statement.op, statement.value), statement)
    _bind(c, statement.target, value_of(c, node, statement.target.id))


def _expression(c, statement, behind):
    if isinstance(statement.value, ast.Constant) and isinstance(statement.value.value, str) or isinstance(statement.value, ast.Call):
        if isinstance(statement.value, ast.Call):
            call(c, statement.value, None)
        return
    raise c.function.fail("an expression whose value nobody takes: assign it, or return it")


def _nothing(c, statement, behind):
    pass


# -- branches -------------------------------------------------------------------------------------------
def write_if(c, condition, write, hints):
    """An If; write(context, True or False) writes a branch and gives its Values.  Returns the If's outputs."""
    branches = []
    for part in (True, False):
        inner = Context(c.function, c)
        values = [inner.output(value, hint) for value, hint in zip(write(inner, part), hints)]
        branches.append(inner.graph("then" if part else "else", values))
    protos = [constants.attribute_proto(f"{proto.name}_branch", "GRAPH", proto) for proto in branches]
    return c.emit("If", [condition], hints, protos)


def _if(c, statement, behind):
    if is_break(statement):
        raise c.function.fail("'if ...: break' is the last statement of a loop's body")
    flow = flow_of(c)
    names = [name for name in flow.assigned([*statement.body, *statement.orelse]) if name in behind]
    condition = value_of(c, statement.test, "cond")

    def write(inner, part):
        block(inner, statement.body if part else statement.orelse, behind)
        inner.function.place = statement
        for name in names:
            if not isinstance(inner.env.get(name), Value):
                _unset(inner, name, "then" if part else "else")
        return [as_value(inner, inner.env[name], name) for name in names]
    if names:
        c.env.update(zip(names, write_if(c, condition, write, names)))
    else:
        for part in (True, False):  # its errors are told, though nobody reads what it computes
            write(Context(c.function, c), part)


def _unset(c, name, part):
    if name in c.env and c.env[name] is not None and not isinstance(c.env[name], Body):
        return
    raise c.function.fail(f"{name!r} is not set in the {part} branch: assign it before the if, or in both branches")


# -- loops ----------------------------------------------------------------------------------------------
def _for(c, statement, behind):
    if not isinstance(statement.target, ast.Name) or statement.orelse:
        raise c.function.fail("a loop is written 'for i in range(n):', without else")
    ends = statement.iter
    if not (isinstance(ends, ast.Call) and isinstance(ends.func, ast.Name) and ends.func.id == "range" and "range" not in c.function.own):
        raise c.function.fail("a loop is written 'for i in range(n):'; for slices of a tensor use op.Scan", ends)
    if len(ends.args) != 1 or ends.keywords:
        raise c.function.fail("range() of a loop has one argument, how often it runs: add the start to i in the body", ends)
    if statement.target.id in behind and statement.target.id not in c.env:
        raise c.function.fail(f"{statement.target.id!r} is the loop's own, and is not set behind it: assign it to another name in the body")
    _loop(c, statement, behind, value_of(c, ends.args[0], "trips"), None)


def _while(c, statement, behind):
    if statement.orelse:
        raise c.function.fail("a loop is written 'while c:', without else")
    _loop(c, statement, behind, None, _truth(c, statement.test))


def _truth(c, node):
    """A condition; what is true or false in Python, too."""
    known = static(c, node)
    return c.constant(bool(known), "cond") if isinstance(known, (bool, int)) else value_of(c, node, "cond")


def _loop(c, statement, behind, trips, condition):
    flow, body = flow_of(c), list(statement.body)
    around = flow.around(statement, behind)
    stop = body.pop() if is_break(body[-1]) else None
    counter = targets(statement.target) if isinstance(statement, ast.For) else []
    names = [name for name in flow.assigned(body) if name in around and name not in counter]
    for name in names:
        if not isinstance(c.env.get(name), Value) and c.env.get(name) is None:
            raise c.function.fail(f"{name!r} is set in a loop, which may not run at all: assign it before the loop", statement)
    initial = [as_value(c, c.env[name], name) for name in names]
    if stop and condition is None:
        condition = c.constant(True, "cond")  # without one the standard does not ask the body's
    inner = Context(c.function, c)
    iteration = inner.take(counter[0] if counter else "iteration", _scalar("INT64"))
    going = inner.take("cond_in", _scalar("BOOL"))
    for name in counter:
        inner.env[name] = iteration
    for name in names:
        inner.env[name] = inner.take(name)
    block(inner, body, around | (names_read(stop.test) if stop else set()))
    outputs = [_goes_on(inner, statement, stop, going)]
    outputs += [inner.output(as_value(inner, inner.env[name], name), name) for name in names]
    c.function.place = statement
    proto = inner.graph("body", outputs)
    if names:
        made = c.emit("Loop", [trips, condition, *initial], names, [constants.attribute_proto("body", "GRAPH", proto)])
        c.env.update(zip(names, made))


def _scalar(name):
    from . import onnx_types
    return getattr(onnx_types, name)


def _goes_on(c, statement, stop, going):
    """What a body gives as its condition."""
    condition = _truth(c, statement.test) if isinstance(statement, ast.While) else None
    if stop:
        c.function.place = stop
        on, = c.emit("Not", [_truth(c, stop.test)], ["cond_out"])
        condition = on if condition is None else c.emit("And", [condition, on], ["cond_out"])[0]
    return c.output(going if condition is None else condition, "cond_out")


def _break(c, statement, behind):
    raise c.function.fail("break is written 'if c: break', as the last statement of a loop's body")


# -- functions within -----------------------------------------------------------------------------------
def _function(c, statement, behind):
    marked = False
    for decorator in statement.decorator_list:
        found = evaluate(c, decorator.func if isinstance(decorator, ast.Call) else decorator)
        marked |= getattr(found, "__name__", "") == "graph" and isinstance(decorator, ast.Call)
    captured = {name: c.env[name] for name in names_read(statement) if name in c.env}
    c.env[statement.name] = Body(statement, captured, marked)


def graph_of(c, body):
    """The GraphProto of a function within the script, as it is where it is given to an operator."""
    node, before = body.node, c.function.place
    c.function.place = node
    if not body.marked:
        error = c.function.fail(f"{node.name!r} is the body of an operator: write @graph() above it", node, ScriptTypeError)
        c.function.error = c.function.error or error
    for name, binding in body.captured.items():
        if c.env.get(name) is not binding:
            raise c.function.fail(f"Outer scope variable {name!r} is read by {node.name!r} and assigned again before that is used: "
                                  "give one of them another name", before)
    a = node.args
    if a.vararg or a.kwarg or a.kwonlyargs or a.defaults:
        raise c.function.fail(f"{node.name!r} is a body: its parameters are inputs, without defaults, * and **")
    inner = Context(c.function, c)
    for p in [*a.posonlyargs, *a.args]:
        kind = annotation_of(c.function.source, ast.unparse(p.annotation)) if p.annotation else None
        inner.env[p.arg] = inner.take(p.arg, kind if hasattr(kind, "to_type_proto") else None)
    outputs = results(inner, block(inner, node.body, set(), returns=True), f"{node.name}_out")
    c.function.place = before
    return inner.graph(node.name, outputs)


def results(c, statement, hint):
    """The graph's outputs, of its return statement."""
    if statement is None or statement.value is None:
        raise c.function.fail("a script ends with 'return' and at least one value")
    c.function.place, node = statement, statement.value
    if isinstance(node, ast.Tuple):
        values = [(value_of(c, item, f"{hint}{k}"), f"{hint}{k}") for k, item in enumerate(node.elts)]
    elif isinstance(node, ast.Call) and static(c, node) is NOTHING:
        values = [(value, value.name) for value in call(c, node, _hints(c, node, hint))]
    else:
        values = [(value_of(c, node, hint), hint)]
    return [c.output(value, label) for value, label in values]


def _hints(c, node, hint):
    """Names of the values of a call that is returned; a call that gives one has the hint itself."""
    from .calls import _callee
    callee = _callee(c, node.func)
    n = len(callee.translation.proto.output) if hasattr(callee, "translation") else callee.required
    return [hint] if n == 1 else [f"{hint}{k}" for k in range(n)]


_STATEMENTS = {ast.Assign: _assign, ast.AnnAssign: _annotated, ast.AugAssign: _augmented, ast.Expr: _expression, ast.If: _if, ast.For: _for,
               ast.While: _while, ast.FunctionDef: _function, ast.Pass: _nothing, ast.Break: _break}

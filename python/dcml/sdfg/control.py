"""Loops and branches between states: edges with conditions and assignments, as maps around states.

The one idea: states and their edges are read back as sequences, loops that count, and branches; in the graph a loop is a
sequential map around what its states hold, a branch one of at most one iteration, an assigned symbol one of exactly one.
Must not know: what states hold.
"""
import ast
import collections

from .. import _core, dtypes
from .edges import InterstateEdge

_DIRECTIONS = {ast.Lt: (1, 0), ast.LtE: (1, 1), ast.Gt: (-1, 0), ast.GtE: (-1, -1)}  # direction; what is added to the bound
_NEGATED = {ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}


class _Loop:
    """Items that run for symbol in begin:end:step, or, downwards, from begin to end; symbol None: if `condition` holds."""

    def __init__(self, items, symbol=None, begin=None, end=None, step=1, condition=None):
        self.items, self.symbol, self.begin, self.end, self.step, self.condition = items, symbol, begin, end, step, condition


def is_needed(sdfg):
    """Do edges say more than that states run in order?"""
    return any(not e.data.is_unconditional() or e.data.assignments or e.src.index >= e.dst.index for e in sdfg._control)


def lower(sdfg):
    """Puts the loops and branches that the edges of an SDFG say into its graph.

    Raises UnsupportedOpError naming states for what is no loop that counts, and no branch."""
    graph, items, lowering = sdfg._graph, _Reader(sdfg).all(), _Lowering(sdfg)
    before = graph.clone()
    try:
        top = [s for item in items for s in lowering.states_of(item)]
    except _core.Error:
        graph.become(before)
        sdfg._stale_states = True
        raise
    top += [s for s in sdfg.nodes() if s not in top]  # what was put into others is empty
    graph.order_states([s.index for s in top])
    sdfg._stale_states = True
    sdfg._control.clear()
    sdfg._sync()


class _Reader:
    """From edges to items: states, _Loops and lists of them."""

    def __init__(self, sdfg):
        self.sdfg, self.states, self.seen = sdfg, sdfg.nodes(), set()
        self.open = set()  # guards of loops that are being read
        self.out = {s: [] for s in self.states}
        reached = {e.dst for e in sdfg._control}
        for e in sdfg._control:
            self.out[e.src].append(e)
        for a, b in zip(self.states, self.states[1:]):
            if not self.out[a] and b not in reached:
                self.out[a].append(sdfg._plain_edge(a, b))

    def all(self):
        reached = {e.dst for edges in self.out.values() for e in edges}
        starts = [s for s in self.states if s not in reached] or self.states[:1]
        if len(starts) > 1:
            raise self._fail(starts[1], "no edge leads to it, nor to " + repr(starts[0].label))
        return self.chain(starts[0], None, {})

    def _fail(self, state, text):
        return _core.UnsupportedOpError(f"{self.sdfg!r}: state {state.label!r}: {text}")

    def _from(self, state):
        """What can be reached from a state without leaving the loops that are being read."""
        found, todo = {}, collections.deque([state])
        while todo:
            for e in self.out[todo.popleft()]:
                if e.dst not in found and e.dst not in self.open:
                    found[e.dst] = True
                    todo.append(e.dst)
        return found

    def chain(self, state, stop, values):
        """The items from a state up to another; values: of symbols that the edge to it assigns."""
        items = []
        while state is not None and state is not stop:
            if state in self.seen:
                raise self._fail(state, "it is reached in two ways that are no loop and no branch")
            self.seen.add(state)
            if state in self._from(state):
                values, own = self.loop(state, values)
                if values:
                    rest = self.chain(own[1], stop, {})
                    return [*items, *_assigned(values, [own[0], *rest])]
                items.append(own[0])
                state = own[1]
                continue
            if values:
                self.seen.discard(state)
                return [*items, *_assigned(values, self.chain(state, stop, {}))]
            items.append(state)
            edges = self.out[state]
            if len(edges) > 1:
                join = self.join(edges, stop)
                items.append(self.branch(state, edges, join))
                state = join
                continue
            if edges and not edges[0].data.is_unconditional():
                raise self._fail(state, f"its only edge has a condition, {edges[0].data.condition!r}; expected one with the opposite too")
            values = edges[0].data.assignments if edges else {}
            state = edges[0].dst if edges else None
        return items

    # -- branches -------------------------------------------------------------------------------
    def join(self, edges, stop):
        """Where the branches meet again: the first state that all of them reach."""
        reached = [[e.dst, *self._from(e.dst)] for e in edges]
        return next((s for s in reached[0] if all(s in r for r in reached)), stop)

    def branch(self, state, edges, join):
        if len(edges) != 2 or not _are_opposite(*(e.data.condition for e in edges)):
            raise self._fail(state, f"its edges have the conditions {', '.join(repr(e.data.condition) for e in edges)}; expected one and "
                                    "its opposite")
        return [state] + [_Loop(self.chain(e.dst, join, e.data.assignments), condition=e.data.condition) for e in edges]

    # -- loops ----------------------------------------------------------------------------------
    def loop(self, guard, values):
        """({symbols that stay assigned}, (loop, state behind it)) of a state that is reached again."""
        edges = self.out[guard]
        inside = [e for e in edges if guard in (e.dst, *self._from(e.dst))]
        behind = [e for e in edges if e not in inside]
        if len(inside) != 1 or len(behind) > 1 or guard.number_of_nodes():
            raise self._fail(guard, "it is part of a circle; expected an empty state with one edge into the loop and one out of it")
        back = [e for edges in self.out.values() for e in edges if e.dst is guard and e.src in (inside[0].dst, *self._from(inside[0].dst))]
        count = _counts(inside[0].data.condition)
        step = count and len(back) == 1 and _step(back[0].data.assignments, count[0])
        others = [*inside, *behind]
        steady = step and not any(e.data.assignments for e in others) and self.is_steady(guard, inside[0].dst, *count[::2])
        fits = not behind or behind[0].data.is_unconditional() or _are_opposite(*(e.data.condition for e in others))
        if not steady or not fits or count[0] not in values or step * count[1] <= 0:
            raise self._fail(guard, f"the loop while {inside[0].data.condition!r} does not count; expected a symbol that the edge into the "
                                    "loop sets, the edge back changes by a number, and the condition compares")
        symbol, direction, bound = count
        values = dict(values)
        begin = values.pop(symbol)
        self.open.add(guard)
        items = self.chain(inside[0].dst, guard, {})
        self.open.discard(guard)
        return values, (_Loop(items, symbol, begin, bound, step), behind[0].dst if behind else None)

    def is_steady(self, guard, first, symbol, bound):
        """Does the bound of a loop stay what it was when it began?"""
        inside = {first, *self._from(first)}
        inside = [s for s in inside if guard in self._from(s)]
        names = InterstateEdge(bound).free_symbols
        changed = {symbol, *self.sdfg.arrays, *(n for s in inside for e in self.out[s] if e.dst is not guard for n in e.data.assignments)}
        return not names & changed


def _assigned(values, items):
    """Items in which symbols have values."""
    for symbol, value in values.items():
        items = [_Loop(items, symbol, value, f"({value}) + 1")]
    return items


def _are_opposite(a, b):
    try:
        a, b = (ast.parse(text, mode="eval").body for text in (a, b))
    except SyntaxError:
        return False
    return _opposite(a, b) or _opposite(b, a)


def _opposite(a, b):
    """Is b not a?"""
    if isinstance(b, ast.UnaryOp) and isinstance(b.op, ast.Not):
        return ast.dump(b.operand) == ast.dump(a)
    compares = all(isinstance(x, ast.Compare) and len(x.ops) == 1 for x in (a, b))
    same = compares and ast.dump(a.left) == ast.dump(b.left) and ast.dump(a.comparators[0]) == ast.dump(b.comparators[0])
    return same and _NEGATED.get(type(a.ops[0])) is type(b.ops[0])


def _counts(condition):
    """(symbol, direction, bound as a text, exclusive) of ``i < N``; None."""
    node = ast.parse(condition, mode="eval").body
    if not (isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.left, ast.Name) and type(node.ops[0]) in _DIRECTIONS):
        return None
    direction, more = _DIRECTIONS[type(node.ops[0])]
    return node.left.id, direction, f"({ast.unparse(node.comparators[0])}) + {more}"


def _step(assignments, symbol):
    """c of ``{symbol: "symbol + c"}``; None."""
    if list(assignments) != [symbol]:
        return None
    from .symbolic import parse
    step = parse(assignments[symbol], True) - parse(symbol)
    return step if isinstance(step, int) and step else None


class _Lowering:
    """From items to states that run one after the other."""

    def __init__(self, sdfg):
        self.sdfg, self.graph = sdfg, sdfg._graph

    def states_of(self, item):
        """The states that hold an item in the end."""
        if isinstance(item, list):
            return self.branch(*item)
        return self.loop(item) if isinstance(item, _Loop) else [item]

    def branch(self, state, *ways):
        """The condition is computed before either way, which may change what it is about."""
        asked, name = self.condition(state, ways[0].condition)
        for way, text in zip(ways, (f"{name}[]", f"not({name}[])")):
            way.begin, way.end = "0", f"i64({text})"
        return [asked, *(s for way in ways for s in self.loop(way))]

    def condition(self, state, text):
        """(a state behind another that computes a condition, the scalar that has it)."""
        name, _ = self.sdfg.add_scalar("__condition", dtypes.bool_, transient=True, find_new_name=True)
        asked = self.sdfg.add_state_after(state, "condition")
        read = sorted(InterstateEdge(text).free_symbols & set(self.sdfg.arrays))
        tasklet = asked.add_tasklet("condition", read, [name], f"{name} = {text}")
        for array in read:
            asked.add_edge(asked.add_read(array), None, tasklet, array, self.sdfg.make_array_memlet(array))
        asked.add_edge(tasklet, name, asked.add_write(name), None, self.sdfg.make_array_memlet(name))
        self.graph.flow(asked.index).build()
        return asked, name

    def loop(self, loop):
        if loop.step < 0:
            return self.loop(self.upwards(loop))
        states = [s for item in loop.items for s in self.states_of(item)]
        if not states:
            return []
        head, name = states[0].index, loop.symbol or "__once"
        step = f":{loop.step}" if loop.step > 1 else ""
        self.graph.append(head, f"sequential {name} in {loop.begin}:{loop.end}{step} {{ }}")
        self.graph.enclose([s.index for s in states], loop.symbol)
        return [states[0]]

    def upwards(self, loop):
        """A loop that counts down, as one over the numbers of its steps."""
        name, by = f"__step_of_{loop.symbol}", -loop.step
        if name not in self.sdfg.symbols:
            self.graph.add_symbol(name)
        value = f"({loop.begin}) - {by} * {name}"
        inner = _Loop(loop.items, loop.symbol, value, f"({value}) + 1")
        return _Loop([inner], name, "0", f"(({loop.begin}) - ({loop.end}) + {by - 1}) // {by}")

"""From the flat view of a graph's states to boxes within boxes, laid out.

The one idea: a map is a box whose upper edge is its entry and whose lower edge its exit; states and nested graphs are boxes too, so
that the contents of each are laid out alone, the innermost first, and count as one item in the box around them.
Must not know: how boxes are drawn.
"""
import math
from dataclasses import dataclass, field

from ...dtypes import of
from ...report.table import counted, named_bytes, shortened
from .layout import Edge, Item, place

HEAD, FOOT, PAD = 26, 8, 10
DEEPEST = 24  # graphs within graphs that are drawn
_LINES, _LETTERS = 3, 34  # of code that is drawn; the rest is told on hover


@dataclass(eq=False, slots=True)
class Box:
    """What an item of the layout is: its key, its kind (state, map, nested, access, again, tasklet, library), the texts that are
    drawn and told, and, where it holds others, these and their edges."""
    key: str
    kind: str
    title: str
    lines: list = field(default_factory=list)
    told: list = field(default_factory=list)  # (what, text)
    code: str = ""
    marks: tuple = ()  # of an access node: its role, "transient", "output"
    items: list | None = None
    edges: list = field(default_factory=list)
    count: int = 1  # of nodes, itself or within

    @property
    def folded(self):
        """Width and height while nothing within is shown."""
        return max(letters(self.title, 7.2), letters(self.within, 6)) + 44, HEAD + 18

    @property
    def within(self):
        return counted(self.count, "node")


@dataclass(eq=False, slots=True)
class Line:
    """What an edge of the layout is."""
    key: str
    label: str = ""
    told: list = field(default_factory=list)
    updates: bool = False  # adds to what is there


def letters(text, each):
    return len(text) * each


def whole(graph, only=None):
    """The laid-out Item of a core Graph, its states within.  only: the index of one state that is drawn alone."""
    return _graph(graph, "", only, DEEPEST)


def one(graph, state, node):
    """The laid-out Item of one node of a state, by its id in the flat view; a map's with what it holds."""
    view = _State(graph, *flat(graph, state), f"s{state}", DEEPEST)
    return view.item[view.entry_of.get(node, node)]


def _graph(graph, key, only, deepest):
    states = range(graph.n_states) if only is None else [only]
    items = [_state(graph, state, f"{key}s{state}", deepest) for state in states]
    follows = [Edge(above, below, content=Line(f"{key}o{k}", told=[("order", "one state after the other")]))
               for k, (above, below) in enumerate(zip(items, items[1:]))]
    box = Box(key or "g", "graph", graph.name, items=items, edges=follows, count=sum(item.content.count for item in items))
    return _filled(box, items, follows, head=0)


def _filled(box, items, edges, head=HEAD, repeat=None):
    """An Item around items, which are placed."""
    width, height = place(items, edges, repeat)
    outer = max(width + 2 * PAD, box.folded[0] if head else 0)
    left = (outer - width) / 2
    for item in items:
        item.x += left
        item.y += head + PAD
    for edge in edges:
        edge.points = [(x + left, y + (head + PAD if 0 < y else head)) for x, y in edge.points]
        edge.label_at = edge.label_at and (edge.label_at[0] + left, edge.label_at[1] + head + PAD)
    height += head + 2 * PAD
    for edge in edges:
        if edge.target is None:
            edge.points[-1] = (edge.points[-1][0], height)
    box.items, box.edges = items, edges
    return Item(outer, height + (FOOT if head else 0), content=box)


def _state(graph, state, key, deepest):
    nodes, edges = flat(graph, state)
    view = _State(graph, nodes, edges, key, deepest)
    title = f"{graph.name}_{state}" if graph.n_states > 1 else graph.name
    items, lines = view.scopes[None]
    box = Box(key, "state", title, told=[("nodes", str(len(nodes))), ("containers", str(len(graph.arrays)))], count=len(nodes))
    return _filled(box, items, lines, repeat=again)


def again(item):
    """An access node's stand-in near a far reader; other nodes have none."""
    box = item.content
    if box.kind != "access":
        return None
    return Item(letters(box.title, 7) + 24, 22, content=Box(box.key, "again", box.title, told=box.told, marks=box.marks, count=0))


def flat(graph, state):
    """({id: (kind, label, detail, inputs, outputs)}, [(id, source, connector, target, connector, memlet)]) of a state."""
    flow = graph.flow(state)
    return {n: (*flow.node(n), *flow.connectors(n)) for n in flow.nodes()}, flow.edges()


class _State:
    """The scopes of a state: {entry's id, None for the state: (items, edges)}, each but the state's within an item of another.

    A draft may be wrong in any way: what has no place in a map stands in the state.
    """

    def __init__(self, graph, nodes, edges, key, deepest):
        self.graph, self.nodes, self.key, self.deepest = graph, nodes, key, deepest
        self.outputs = set(graph.outputs)
        self.entry_of = {node[2][0]: n for n, node in nodes.items() if node[0] == "entry"}
        self.inside = inside = self._scope_of(edges)
        self.scopes = {None: ([], []), **{n: ([], []) for n, node in nodes.items() if node[0] == "entry"}}
        self.depth = self._depths()
        held = {scope: [] for scope in self.scopes}
        for n, node in nodes.items():
            if n not in self.entry_of:
                held[inside[n]].append(n)
        between = {scope: [] for scope in self.scopes}
        for edge in edges:
            between[self._scope(edge)].append(edge)
        self.item = item = {}
        for scope in sorted(self.scopes, key=lambda entry: -self.depth[entry]):
            items, lines = self.scopes[scope]
            for n in held[scope]:
                item[n] = self._item(n)
                items.append(item[n])
            lines += [self._edge(edge, scope) for edge in between[scope]]

    def _scope_of(self, edges):
        """{node: the entry whose map holds it, or None}.  What no edge ties to an entry stands in the state."""
        after, before = {}, {}
        for _, source, _, target, _, _ in edges:
            after.setdefault(source, []).append(target)
            before.setdefault(target, []).append(source)
        inside = {}
        for n in self.nodes:  # those that feed others come first
            for source in before.get(n, ()):
                if source in inside:
                    inside[n] = self._within(source, inside)
                    break
            else:
                if n not in inside and not before.get(n):
                    self._look_down(n, after, inside)
        for n, node in self.nodes.items():
            inside.setdefault(n, None)
        for n, entry in self.entry_of.items():
            if n in self.nodes:
                inside[n] = inside[entry]
        return inside

    def _within(self, source, inside):
        if self.nodes[source][0] == "entry":
            return source
        return inside[self.entry_of.get(source, source)]

    def _look_down(self, n, after, inside):
        """Scope of a node that nothing feeds: that of the first exit that it reaches without entering another map, if any."""
        depth, at, seen = 0, n, set()
        while at not in seen:
            seen.add(at)
            kind = self.nodes[at][0]
            depth += (kind == "entry") - (kind == "exit")
            if depth < 0:
                inside[n] = self.entry_of.get(at)
                return
            if not after.get(at):
                break
            at = after[at][0]
        inside[n] = None

    def _depths(self):
        """{entry: how many maps hold it and its contents}; 0 for None, the state."""
        depth = {None: 0}
        for entry in self.scopes:
            chain = []
            while entry not in depth and entry not in chain:
                chain.append(entry)
                entry = self.inside[entry]
            if entry in chain:  # maps of a draft that hold each other
                self.inside[chain[-1]] = None
            for inner in reversed(chain):
                depth[inner] = depth[self.inside[inner]] + 1
        return depth

    def _scope(self, edge):
        """The innermost scope that holds both ends, or what holds them."""
        _, source, _, target, _, _ = edge
        one = source if self.nodes[source][0] == "entry" else self.inside[source]
        other = self.entry_of[target] if target in self.entry_of else self.inside[target]
        while one != other:
            if self.depth[one] < self.depth[other]:
                one, other = other, one
            one = self.inside[one]
        return one

    def _end(self, n, scope):
        """What stands for a node in a scope that holds it."""
        n = self.entry_of.get(n, n)
        while self.inside[n] != scope:
            n = self.inside[n]
        return self.item[n]

    def _item(self, n):
        kind, label, detail, inputs, outputs = self.nodes[n]
        key = f"{self.key}n{n}"
        if kind == "entry":
            return self._map(n, key, label, *detail)
        if kind == "access":
            return self._access(key, detail)
        if kind == "nested":
            return self._nested(key, label, detail)
        if kind == "tasklet":
            code = detail[2].replace("[]", "")  # a draft's, where a connector is read as a[]
            lines = code.splitlines()
            drawn = [shortened(line, _LETTERS) for line in lines[:_LINES]] + ["..."] * (len(lines) > _LINES)
            box = Box(key, kind, label, drawn or [label], [("reads", ", ".join(inputs)), ("writes", ", ".join(outputs))], code)
            return Item(max(letters(line, 6.7) for line in box.lines) + 22, 10 + 15 * len(box.lines), content=box)
        if kind == "exit":  # of a draft, without its entry
            return Item(100, HEAD, content=Box(key, "library", "map exit", count=1))
        op, domain, opset, _, is_gradient = detail
        op = f"gradient of {op}" if is_gradient else op
        told = [("operator", f"{domain or 'ai.onnx'} {op}, opset {opset}"), ("inputs", ", ".join(inputs)), ("outputs", ", ".join(outputs))]
        box = Box(key, kind, op, [shortened(label, _LETTERS)] if label not in ("", op) else [], told)
        return Item(max(letters(op, 7.4), *(letters(line, 6) for line in box.lines), 20) + 28, 28 + 14 * len(box.lines), content=box)

    def _map(self, n, key, label, exit_id, ranges, schedule):
        text = ", ".join(f"{name}={begin}:{end}" + (f":{step}" if str(step) != "1" else "") for name, begin, end, step in ranges)
        items, lines = self.scopes[n]
        count = 2 + sum(item.content.count for item in items)
        told = [("ranges", text)] + ([("schedule", schedule)] if schedule else [])
        title = shortened(f"{label}  [{text}]" if label else f"[{text}]", 60)
        return _filled(Box(key, "map", title, told=told, count=count), items, lines, repeat=again)

    def _access(self, key, name):
        dtype, shape, role = self.graph.info(name)
        kind, bytes_each = _element(dtype)
        shown = shortened(f"{kind}[{', '.join(map(str, shape))}]", 26)
        size = volume(shape, bytes_each)
        told = [("type", kind), ("shape", " x ".join(map(str, shape)) or "scalar"), ("size", size), ("role", role)]
        marks = (role, *(["transient"] if role in ("temp", "saved") else []), *(["output"] if name in self.outputs else []))
        box = Box(key, "access", shortened(name, 26), [f"{shown}  {size}" if size else shown], told, marks=marks)
        return Item(max(letters(box.title, 7.2), letters(box.lines[0], 5.6)) + 30, 38, content=box, everywhere=role == "const")

    def _nested(self, key, label, graph):
        box = Box(key, "nested", shortened(label or graph.name, 40), told=[("SDFG", graph.name)])
        if not self.deepest:
            return Item(box.folded[0], HEAD + 18, content=Box(key, "library", box.title, ["not drawn: too deep"]))
        inner = _graph(graph, key, None, self.deepest - 1)
        box.count = inner.content.count
        return _filled(box, [inner], [])

    def _edge(self, edge, scope):
        number, source, out, target, into, memlet = edge
        source_kind, target_kind = self.nodes[source][0], self.nodes[target][0]
        line = Line(f"{self.key}e{number}")
        if memlet:
            name, subset, wcr, other = (part or "" for part in memlet)  # a draft's may lack what the ends tell
            line.label = shortened(self._memlet(name, subset, wcr, source, target), 34)
            line.told = [("memlet", f"{name}[{subset}]")] + ([("update", wcr)] if wcr else []) + (
                [("at the other end", f"[{other}]")] if other else [])
            line.updates = bool(wcr)
        line.told += [(what, connector) for what, connector in (("from", out), ("to", into)) if connector]
        return Edge(None if source == scope else self._end(source, scope),
                    None if target in self.entry_of and self.entry_of[target] == scope else self._end(target, scope),
                    letters(line.label, 5.6) + 4 if line.label else 0,
                    (_port(source_kind, self.nodes[source][4], out), _port(target_kind, self.nodes[target][3], into)), line)

    def _memlet(self, name, subset, wcr, source, target):
        """What is written at an edge: nothing where a whole container is meant that stands at its end."""
        beside = any(self.nodes[n][0] == "access" and self.nodes[n][2] == name for n in (source, target))
        everything = ", ".join(f"0:{extent}" for extent in self.graph.info(name)[1]) if name else ""
        part = f"[{subset}]" if subset not in ("", everything) else ""
        return ("" if beside else name) + part + (f" ({wcr})" if wcr else "")


def _port(kind, connectors, name):
    """Where a connector is, as a part of its node's width; connectors of maps are where their edges are."""
    if kind in ("entry", "exit"):
        return None
    return (connectors.index(name) + 1) / (len(connectors) + 1) if name in connectors else 0.5


def _element(dtype):
    """The name of an element type and its size in bytes; of one that is not yet known, "?" and 0."""
    if not dtype:
        return "?", 0
    found = of(dtype)
    return found.name, found.bytes


def volume(shape, bytes_each):
    """The size of an array as text: '1.2 MB', '256 B x N'; '' where an element has no fixed size."""
    if not bytes_each:
        return ""
    known = math.prod(extent for extent in shape if isinstance(extent, int)) * bytes_each
    return " x ".join([named_bytes(known), *(extent for extent in shape if not isinstance(extent, int))])

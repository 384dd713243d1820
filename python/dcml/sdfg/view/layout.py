"""A layered layout: where the items of a box go, and along which points its edges.

The one idea: items that feed each other stand in rows; a row is ordered by the mean place of its neighbours (Sugiyama, Tagawa,
Toda 1981), then each item is moved as near to that place as the widths allow.  Time grows with items and edges, since no edge
takes part in more than LONG rows: beyond, its source is repeated beside the target, or it is drawn without regard to others.
Must not know: what the items are, and how they are drawn.
"""
import math
from dataclasses import dataclass, field

LONG = 5  # rows
GAP_X, GAP_Y, SHELF = 18, 13, 28
HOME = 0.03  # the pull of the middle of a part, against that of a neighbour: long chains stay upright


@dataclass(eq=False, slots=True)
class Item:
    """A rectangle; x and y are of its upper left corner, within its box, once the box is laid out."""
    width: float
    height: float
    x: float = 0
    y: float = 0
    content: object = None
    original: object = None  # of an item that repeats another one
    everywhere: bool = False  # is repeated beside all that it feeds


@dataclass(eq=False, slots=True)
class Edge:
    """From an item to another; None: from the upper edge of the box, or to its lower edge.

    at: where it leaves and where it arrives, as parts of the items' widths; None: beside the other edges there, in an order that
    crosses none of them.  label: its size, 0 for none.
    """
    source: Item | None
    target: Item | None
    label: float = 0
    at: tuple = (0.5, 0.5)
    content: object = None
    points: list = field(default_factory=list)  # (x, y): curves run between them, vertical at each
    label_at: tuple | None = None


def place(items, edges, repeat=None):
    """Lays out the items of a box and routes its edges.

    items: [Item], those that feed others first, as far as there is such an order; repeated ones are appended.
    repeat: a function from an item to an Item that may stand for it near a far target, or to None.
    Returns (width, height).
    """
    ranks = _ranks(items, edges)
    if repeat:
        _repeat_far_sources(items, edges, ranks, repeat)
    parts = [_Part(*part, ranks) for part in _parts(items, edges)]
    for part in parts:
        part.lay_out()
    bound = any(edge.source is None or edge.target is None for edge in edges)
    width, height = _shelves(parts, math.inf if bound else None)
    for edge in edges:
        if edge.source is edge.target is None:
            edge.points = [(width / 2, 0.0), (width / 2, height)]
        elif edge.source is None:
            edge.points.insert(0, (edge.points[0][0], 0.0))
        elif edge.target is None:
            edge.points.append((edge.points[-1][0], height))
    return width, height


def _ranks(items, edges):
    """{item: row}: each item below all that feed it, and as far below as makes edges shorter in sum.  Edges from what nothing feeds
    do not count, since it may be repeated."""
    position = {item: k for k, item in enumerate(items)}
    pairs = [(edge.source, edge.target) for edge in edges
             if edge.source and edge.target and position[edge.source] < position[edge.target]]
    rank, fed = dict.fromkeys(items, 0), {target for _, target in pairs}
    feeds = {item: [] for item in items}
    for source, target in pairs:
        feeds[source].append(target)
    for item in items:
        for target in feeds[item]:
            rank[target] = max(rank[target], rank[item] + 1)
    inner = [pair for pair in pairs if pair[0] in fed]
    for _ in range(4):
        if not _lower(items, inner, rank):
            break
    for item in items:
        if item not in fed and feeds[item]:
            rank[item] = min(rank[target] for target in feeds[item]) - 1
    return rank


def _lower(items, pairs, rank):
    """Moves groups that edges of one row's length join, if at least as many edges leave a group as enter it.  True if any moved."""
    root = _roots(items, (pair for pair in pairs if rank[pair[1]] == rank[pair[0]] + 1))
    groups, enter, leave = {}, {}, {}
    for item in items:
        groups.setdefault(root[item], []).append(item)
    for source, target in pairs:
        if root[source] is not root[target]:
            enter[root[target]] = enter.get(root[target], 0) + 1
            leave.setdefault(root[source], []).append((source, target))
    moved = False
    for group in sorted(leave, key=lambda group: -rank[group]):
        by = min(rank[target] - rank[source] for source, target in leave[group]) - 1
        if by > 0 and len(leave[group]) >= enter.get(group, 0):
            moved = True
            for item in groups[group]:
                rank[item] += by
    return moved


def _roots(items, pairs):
    """{item: one of those that pairs join it to, the same for all of them}."""
    parent = {item: item for item in items}

    def root(item):
        while parent[item] is not item:
            parent[item] = item = parent[parent[item]]
        return item

    for one, other in pairs:
        parent[root(other)] = root(one)
    return {item: root(item) for item in items}


def _repeat_far_sources(items, edges, ranks, repeat):
    copies, seen = {}, set()
    for edge in edges:
        if not edge.source or not edge.target:
            continue
        near = ranks[edge.target] - ranks[edge.source] <= LONG
        if edge.source.everywhere:
            near, key = edge.source not in seen, (edge.source, edge.target)
            seen.add(edge.source)
        else:
            key = edge.source, ranks[edge.target]
        if near:
            continue
        if key not in copies and (copy := repeat(edge.source)):
            copy.original = edge.source
            ranks[copy] = ranks[edge.target] - 1
            items.append(copy)
            copies[key] = copy
        edge.source = copies.get(key, edge.source)


def _parts(items, edges):
    """[(items, edges)] that no edge joins, in the order of their first items."""
    root, parts = _roots(items, ((edge.source, edge.target) for edge in edges if edge.source and edge.target)), {}
    for item in items:
        parts.setdefault(root[item], ([], []))[0].append(item)
    for edge in edges:
        if end := edge.source or edge.target:
            parts[root[end]][1].append(edge)
    return list(parts.values())


@dataclass(eq=False, slots=True)
class _Cell:
    """What stands in a row: an item, or the passage of an edge, with or without its label."""
    row: int
    width: float
    place: float = 0  # in its row, then the x of its centre
    weight: float = 1
    item: Item | None = None
    above: list = field(default_factory=list)
    below: list = field(default_factory=list)


class _Part:
    """A connected part of a box.  Labels stand in even rows, items in odd ones."""

    def __init__(self, items, edges, ranks):
        self.items, self.edges = items, edges
        first = min(ranks[item] for item in items)
        self.cells = {item: _Cell(2 * (ranks[item] - first) + 1, item.width, item=item) for item in items}
        self.rows = [[] for _ in range(2 * (max(ranks[item] for item in items) - first) + 3)]
        for cell in self.cells.values():
            self.rows[cell.row].append(cell)
        self.chains = [self._chain(edge) for edge in edges]
        self.tops, self.heights, self.width, self.height = [], [], 0, 0

    def _chain(self, edge):
        """The cells through which an edge passes."""
        source, target = self.cells.get(edge.source), self.cells.get(edge.target)
        start, end = source.row if source else -1, target.row if target else len(self.rows)
        cells, previous = [], source
        if 0 < end - start <= 2 * LONG + 1:
            for row in range(start + 1, end):
                label = edge.label if row == (start + 1 if source else end - 1) else 0
                cell = _Cell(row, label, weight=0.5 if label else 2)
                self.rows[row].append(cell)
                if previous:
                    _join(previous, cell)
                previous = cell
                cells.append(cell)
            if previous and target:
                _join(previous, target)
        return cells

    def lay_out(self):
        self._order()
        self._spread()
        self._stack()
        self._choose_ports()
        for edge, chain in zip(self.edges, self.chains):
            self._route(edge, chain)
        self.width = max(cell.place + cell.width / 2 for row in self.rows for cell in row)
        self.height = self.tops[-1] + self.heights[-1]

    def move(self, x, y):
        for item in self.items:
            item.x += x
            item.y += y
        for edge in self.edges:
            edge.points = [(px + x, py + y) for px, py in edge.points]
            edge.label_at = edge.label_at and (edge.label_at[0] + x, edge.label_at[1] + y)

    def _order(self):
        for row in self.rows:
            _number(row)
        for sweep in range(6):
            down = sweep % 2 == 0
            for row in self.rows if down else reversed(self.rows):
                for cell in row:
                    if near := cell.above if down else cell.below:
                        cell.place = sum(other.place for other in near) / len(near)
                row.sort(key=_place)
                _number(row)

    def _spread(self):
        for row in self.rows:
            x = -sum(cell.width + GAP_X for cell in row) / 2
            for cell in row:
                cell.place = x + cell.width / 2
                x += cell.width + GAP_X
        for sweep in range(5):
            down, both = sweep % 2 == 0, sweep == 4
            for row in self.rows if down else reversed(self.rows):
                want = []
                for cell in row:
                    near = [*cell.above, *cell.below] if both else cell.above if down else cell.below
                    want.append((sum(other.place for other in near) / (len(near) + HOME), cell.weight) if near else (cell.place, 0.1))
                _settle(row, want)
        left = min((cell.place - cell.width / 2 for row in self.rows for cell in row), default=0)
        for row in self.rows:
            for cell in row:
                cell.place -= left
                if cell.item:
                    cell.item.x = cell.place - cell.width / 2

    def _stack(self):
        """Heights of the rows; where edges run far to the side, rows stand apart."""
        y = 0
        for number, row in enumerate(self.rows):
            aside = max((abs(cell.place - other.place) for cell in row for other in cell.above), default=0)
            y += min(GAP_Y + aside / 20, 45) if number else 0
            height = max((cell.item.height if cell.item else 13 if cell.width else 0 for cell in row), default=0)
            self.tops.append(y)
            self.heights.append(height)
            for cell in row:
                if cell.item:
                    cell.item.y = y + (height - cell.item.height) / 2
            y += height

    def _choose_ports(self):
        ends = {}
        for edge, chain in zip(self.edges, self.chains):
            for end, item, other, cell in ((0, edge.source, edge.target, chain[:1]), (1, edge.target, edge.source, chain[-1:])):
                if item and edge.at[end] is None:
                    near = cell[0] if cell else self.cells[other or item]
                    ends.setdefault((end, item), []).append((near.place, edge))
        for (end, _), found in ends.items():
            for k, (_, edge) in enumerate(sorted(found, key=lambda pair: pair[0])):
                part = (k + 1) / (len(found) + 1)
                edge.at = (edge.at[0], part) if end else (part, edge.at[1])

    def _route(self, edge, chain):
        points = []
        if edge.source:
            points.append((edge.source.x + edge.source.width * edge.at[0], edge.source.y + edge.source.height))
        for cell in chain:
            top, height = self.tops[cell.row], self.heights[cell.row]
            if height:  # an empty row bends no edge
                points += [(cell.place, top), (cell.place, top + height)]
            if cell.width:
                edge.label_at = (cell.place, top + height / 2)
        if edge.target:
            points.append((edge.target.x + edge.target.width * edge.at[1], edge.target.y))
        edge.points = points


def _place(cell):
    return cell.place


def _number(row):
    for k, cell in enumerate(row):
        cell.place = k


def _join(above, below):
    above.below.append(below)
    below.above.append(above)


def _settle(row, want):
    """Places the cells of a row, in their order and GAP_X apart, with the least sum of weighted squares of the distances from where
    they want to be: neighbours that would overlap become a block with their mean (isotonic regression)."""
    blocks, offset, offsets = [], 0, []
    for k, cell in enumerate(row):
        if k:
            offset += (row[k - 1].width + cell.width) / 2 + GAP_X
        offsets.append(offset)
        place, weight = want[k]
        block = [(place - offset) * weight, weight, 1]
        while blocks and blocks[-1][0] * block[1] >= block[0] * blocks[-1][1]:
            last = blocks.pop()
            block = [last[0] + block[0], last[1] + block[1], last[2] + block[2]]
        blocks.append(block)
    k = 0
    for total, weight, count in blocks:
        for _ in range(count):
            row[k].place = total / weight + offsets[k]
            k += 1


def _shelves(parts, limit):
    """Puts parts side by side, in shelves no wider than limit; None: such that a pleasant rectangle results.  Returns its size."""
    if limit is None:
        area = sum((part.width + SHELF) * (part.height + SHELF) for part in parts)
        limit = max([math.sqrt(2 * area), *(part.width for part in parts)])
    x = y = width = height = 0
    for part in parts:
        if x and x + part.width > limit:
            x, y = 0, y + height + SHELF
            height = 0
        part.move(x, y)
        x += part.width + SHELF
        width, height = max(width, x - SHELF), max(height, part.height)
    return width, y + height

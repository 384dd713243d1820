"""Own transformations, in Python: patterns of nodes, what must hold of a match, and what becomes of it.

The one idea: a match is a chain of nodes along edges of a state; a class says which, by PatternNode attributes or by the
parameters of its ``can_be_applied``.
Must not know: what any transformation does, or how a state holds its nodes.

>>> class Rename(SingleStateTransformation):            # tried on every node
...     def can_be_applied(self, state, node):
...         return node.kind == "tasklet"
...     def apply(self, state, node):
...         node.code = "out = 2 * a"
"""
import inspect

from .. import _core
from ..sdfg.utils import node_path_graph
from .base import Transformation


class PatternNode:
    """A node of a pattern, as an attribute of a transformation: there, the node that stands for it in a match.

    node_class: class of nodes, as dcml.sdfg.nodes.MapExit, or several; None for any.
    """

    def __init__(self, node_class=None):
        self.node_class, self.name = node_class, None

    def __set_name__(self, owner, name):
        self.name = name

    def __get__(self, instance, owner):
        return self if instance is None else instance._matched[self.name]

    def __repr__(self):
        return f"PatternNode({self.name})"

    def fits(self, node):
        return self.node_class is None or isinstance(node, self.node_class)


class _Own(Transformation):
    """``can_be_applied`` and ``apply`` take by name what they ask for: state (or graph), sdfg, expr_index, permissive,
    the attributes of pattern nodes; their other parameters are the matched nodes, in order."""

    def can_be_applied(self, state, node):
        """Does the transformation apply to this match?"""
        return True

    def apply(self, state, node):
        """Changes the state."""
        raise NotImplementedError(f"{type(self).__name__} has no apply")

    @classmethod
    def _pattern_nodes(cls):
        """{name: PatternNode} in the order of definition, those of bases first."""
        return {name: value for base in reversed(cls.__mro__) for name, value in vars(base).items() if isinstance(value, PatternNode)}

    @classmethod
    def _made(cls, options):
        """An object with its options.  Raises ValueError_ for one that the class has no attribute for."""
        self = cls()
        have = [name for name in dir(cls) if not name.startswith("_") and not callable(getattr(cls, name))
                and not isinstance(getattr(cls, name), PatternNode)]
        for name, value in options.items():
            if name not in have:
                there = f"; there are {', '.join(have)}" if have else ": it has none"
                raise _core.ValueError_(f"{cls.__name__} has no option {name!r}{there}")
            setattr(self, name, value)
        return self

    def _call(self, function, known, nodes):
        """Calls with what the function asks for."""
        left, given = list(nodes), []
        for parameter in _required(function):
            if parameter in self._matched:
                given.append(self._matched[parameter])
            elif parameter in known:
                given.append(known[parameter])
            elif left:
                given.append(left.pop(0))
            else:
                raise _core.ValueError_(f"{type(self).__name__}.{function.__name__} asks for {parameter!r}, "
                                        f"but a match has {len(nodes)} nodes")
        return function(*given)

    def _holds(self, match):
        """Is it still there, and does the transformation apply?"""
        known, nodes, self._matched = match
        if not all(node.state is known["state"] and _is_there(node) for node in nodes):
            return False
        return bool(self._call(self.can_be_applied, known, nodes))

    @classmethod
    def _apply(cls, sdfg, nodes, options):
        patterns = cls._pattern_nodes()
        fixed = {name: options[name] for name in options if name in patterns}
        self = cls._made({name: value for name, value in options.items() if name not in patterns})
        allowed = [*_flattened(nodes), *fixed.values()]
        count, matches = 0, list(self._matches(sdfg))
        for match in matches:
            if nodes and not all(any(node is one for one in allowed) for node in match[1]):
                continue
            if any(match[2].get(name) is not node for name, node in fixed.items()) or not self._holds(match):
                continue
            self._call(self.apply, match[0], match[1])
            count += 1
        if count:
            sdfg.graph.verify()
        return count


class SingleStateTransformation(_Own):
    """One on nodes of a state.

    A subclass says what matches by attributes ``PatternNode(nodes.MapExit)``, in a chain in the order of their
    definition or as ``expressions()`` (a list of chains) returns; without any, by the number of nodes that
    ``can_be_applied(self, state, node, ...)`` takes: every node, or every chain of so many, is tried.
    ``apply`` takes the same and changes the state.  Other attributes of the class are options.
    """
    _matched = {}

    @classmethod
    def expressions(cls):
        """Chains of pattern nodes."""
        named = list(cls._pattern_nodes().values())
        if named:
            return [named]
        return [[PatternNode() for parameter in _required(cls.can_be_applied)[1:] if parameter not in _KNOWN]]

    def _matches(self, sdfg):
        for expr_index, chain in enumerate(self.expressions()):
            for state in sdfg.states():
                known = {"permissive": False, "strict": False, "state": state, "graph": state, "sdfg": sdfg, "expr_index": expr_index}
                for found in _chains(state, list(chain)):
                    yield known, found, {pattern.name: node for pattern, node in zip(chain, found) if pattern.name}


_KNOWN = ("state", "graph", "sdfg", "expr_index", "permissive", "strict")


def _required(function):
    """The names of a function's parameters without defaults, and of those with that are known."""
    return [name for name, p in inspect.signature(function).parameters.items()
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and (p.default is p.empty or name in _KNOWN)]


def _is_there(node):
    try:
        node._node()
    except _core.Error:
        return False
    return True


def _flattened(nodes):
    """Nodes, and those of states among them."""
    for node in nodes:
        yield from node.nodes() if hasattr(node, "nodes") else (node,)


def _chains(state, pattern):
    """Lists of nodes that fit a chain; one empty list for an empty chain."""
    if not pattern:
        yield []
        return
    following = {}
    waiting = [[node] for node in reversed(state.nodes()) if pattern[0].fits(node)]
    while waiting:
        chain = waiting.pop()
        if len(chain) == len(pattern):
            yield chain
            continue
        last = chain[-1]
        if last not in following:
            following[last] = list(dict.fromkeys(edge.dst for edge in state.out_edges(last)))
        waiting += [[*chain, node] for node in reversed(following[last])
                    if pattern[len(chain)].fits(node) and not any(node is one for one in chain)]


__all__ = ["PatternNode", "SingleStateTransformation", "Transformation", "node_path_graph"]

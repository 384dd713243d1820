"""What a transformation is: a class that is named to the core, or one that is written in Python.

The one idea: ``apply_to`` applies a transformation wherever it can and counts; everything else counts by it.
Must not know: what any transformation does.
"""
from .. import _core


class Transformation:
    """Base of all transformations.

    ``apply_to(sdfg, *nodes, verify=True, **options)`` changes the graph and returns the number of matches.
    """

    @classmethod
    def apply_to(cls, sdfg, *nodes, verify=True, **options):
        """Applies wherever it can.

        sdfg: SDFG, changed in place; operators are left alone until they are expanded.
        nodes: if given, only these nodes of the SDFG are looked at, with all that is inside those that are maps.
        verify: raise if nodes are given and none of them matches.
        options: by name; which there are is the transformation's.
        Returns the number of places where it applied.  Raises ValueError_ for an option that there is not, saying
        which there are, and for given nodes that do not match.
        """
        count = cls._apply(sdfg, nodes, options)
        given = [*nodes, *(value for value in options.values() if hasattr(value, "state"))]
        if given and verify and not count:
            named = ", ".join(map(repr, given[:4])) + (", ..." if len(given) > 4 else "")
            raise _core.ValueError_(f"{cls.__name__} does not match {named}")
        return count

    @classmethod
    def _apply(cls, sdfg, nodes, options):
        raise _core.ValueError_(f"{cls.__name__} is a base: its subclasses can be applied")


class CoreTransformation(Transformation):
    """One that the core applies by the name of its class."""

    @classmethod
    def _apply(cls, sdfg, nodes, options):
        call = cls.__name__ + _spelled(cls, options)
        graph = sdfg.graph
        return graph.apply(call, *_targets(nodes)) if nodes else graph.apply(call)


def _targets(nodes):
    """(ids of nodes of the graph, names of arrays) that nodes of states stand for; a state stands for its nodes."""
    ids, names = set(), set()
    for node in (one for some in nodes for one in (some.nodes() if hasattr(some, "nodes") else [some])):
        if getattr(node, "state", None) is None:
            raise _core.ValueError_(f"{node!r} is no node of a state")
        if node.kind == "access":
            names.add(node.data)
        else:
            ids.add(node.id)
    return sorted(ids - {0}), sorted(names)


def _spelled(cls, options):
    """The options as the core reads them: "(tile_sizes=32,8;divides_evenly=1)"."""
    parts = []
    for name, value in options.items():
        values = list(value) if isinstance(value, (list, tuple)) else [value]
        if not values or not all(isinstance(v, int) for v in values):
            raise _core.ValueError_(f"{cls.__name__}: option {name!r} is {value!r}, expected an integer or some")
        if not all(-1 << 62 < v < 1 << 62 for v in values):
            raise _core.ValueError_(f"{cls.__name__}: option {name!r} is out of range: {value!r}")
        parts.append(f"{name}={','.join(str(int(v)) for v in values)}")
    return f"({';'.join(parts)})" if parts else ""


def listed(transformations):
    """The transformations of a call: one, or several in a list.  Raises ValueError_ for anything else."""
    several = list(transformations) if isinstance(transformations, (list, tuple, set)) else [transformations]
    for one in several:
        if not (isinstance(one, type) and issubclass(one, Transformation)):
            from . import known
            raise _core.ValueError_(f"{one!r} is no transformation: expected a class, of which dcml.transformation has "
                                    f"{', '.join(known())}")
    return several


def apply_once(sdfg, transformations, options=None):
    """Applies each transformation once, everywhere it matches; returns the number of matches.

    sdfg: SDFG, changed in place.
    transformations: a class, or a list of them.
    options: {name: value} for all of them, or a list with one for each.
    Raises ValueError_ for what is no transformation, and for options that there are not.
    """
    several = listed(transformations)
    each = list(options) if isinstance(options, (list, tuple)) else [options] * len(several)
    if len(each) != len(several):
        raise _core.ValueError_(f"{len(several)} transformations have options for {len(each)}")
    return sum(one._apply(sdfg, (), chosen or {}) for one, chosen in zip(several, each))


MOST_ROUNDS = 1000


def apply_repeated(sdfg, transformations, options=None):
    """As apply_once, until nothing matches or changes any more.

    Raises ValueError_ if something still changes after 1,000 rounds.
    """
    several, before = listed(transformations), None
    total = count = apply_once(sdfg, several, options)
    for _ in range(MOST_ROUNDS):
        now = sdfg.graph.text() if count else before
        if now == before:
            return total
        before, count = now, apply_once(sdfg, several, options)
        if count and sdfg.graph.text() != before:  # what only says how things are, as Vectorization may, counts once
            total += count
    raise _core.ValueError_(f"{', '.join(one.__name__ for one in several)} still apply after {MOST_ROUNDS} rounds")

"""Extents of symbolic dimensions: --dim N=8, those of given arrays, and what is chosen for the rest."""
import argparse
import re

from .problems import BadInput

USUAL = 8  # of a symbol that nobody speaks of


def pair(text):
    """N=8 as (name, number), for argparse."""
    name, equals, value = text.partition("=")
    try:
        number = int(value)
    except ValueError:
        number = -1
    if not name or not equals or not 0 <= number < 2**63:
        raise argparse.ArgumentTypeError(f"{text!r}: expected NAME=NUMBER, as in N=8")
    return name, number


def add_argument(parser):
    """The option --dim."""
    parser.add_argument("--dim", metavar="N=8", action="append", default=[], type=pair,
                        help="the extent of a symbolic dimension (may be repeated)")


def given(graph, args, arrays):
    """{symbol: value} of --dim and of the shapes of given arrays."""
    chosen = {}
    for name, array in arrays.items():
        extents = graph.info(name)[1] if name not in graph.host_values else ()
        chosen.update((extent, have) for extent, have in zip(extents, getattr(array, "shape", ()))
                      if isinstance(extent, str) and extent in graph.symbols)
    for name, value in args.dim:
        if name not in graph.symbols:
            known = ", ".join(graph.symbols) or "none"
            raise BadInput(f"--dim {name}={value}: the graph has no symbol {name!r}; there are: {known}")
        if chosen.get(name, value) != value:
            raise BadInput(f"--dim {name}={value}: a given array has extent {chosen[name]} there")
        chosen[name] = value
    return chosen


def complete(graph, chosen):
    """A value for every symbol."""
    rest = {name: max(least, USUAL) for name, least in graph.symbols.items() if name not in chosen}
    return graph.sizes(0, {**chosen, **rest})


def named(graph, values, arrays):
    """Those of the values that the shapes of these arrays name."""
    words = {word for name in arrays for extent in graph.info(name)[1] for word in re.findall(r"\w+", str(extent))}
    return {name: value for name, value in values.items() if name in words}


def text(sizes):
    """'N = 8, M = 3'."""
    return ", ".join(f"{name} = {value}" for name, value in sizes.items())

"""What a graph is called with: arrays from files, and random ones."""
import os

from . import files, sizes
from .problems import BadInput


def add_arguments(parser):
    """--input, --dim and --seed."""
    parser.add_argument("-i", "--input", metavar="[NAME=]FILE", action="append", default=[],
                        help="an input from a .npy, .npz or .pb; without a name: all arrays of an .npz by their names, "
                             "else the next input in order (may be repeated); other inputs are random")
    sizes.add_argument(parser)
    parser.add_argument("--seed", type=_seed, default=0, metavar="S", help="of the random inputs (default: 0)")


def _seed(text):
    number = int(text)
    if not 0 <= number < 2**63:
        raise ValueError(text)
    return number


def from_files(names, items):
    """{name: array} of what --input says, for a graph with inputs of these names."""
    found, left = {}, list(names)
    for item in items:
        name, equals, path = item.partition("=")
        if not equals or os.path.exists(item):
            name, path = "", item
        for key, array in files.read_array(path).items():
            key = name or key or (left[0] if left else "")
            if key not in names:
                raise BadInput(f"{path}: the graph has no input {key!r}; there are {', '.join(names) or 'none'}")
            if key in found:
                raise BadInput(f"{path}: input {key!r} is given twice")
            found[key] = array
            left.remove(key)
    return found


def prepare(graph, args, names):
    """({name: array} of all these inputs and weights, {symbol: value}): given ones, and random ones for the rest."""
    from .. import _core
    arrays = from_files(list(graph.inputs), args.input)
    extents = sizes.complete(graph, sizes.given(graph, args, arrays))
    for name in names:
        if name in arrays:
            continue
        known = graph.data(name) if graph.info(name)[2] == "param" else None
        try:
            arrays[name] = graph.sample(name, extents, args.seed) if known is None else known
        except _core.Error as error:
            raise BadInput(f"{args.model}: input {name!r} cannot be made up, give it with --input: {error}") from error
    return arrays, extents

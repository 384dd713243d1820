"""Runs a model on random or given inputs."""
import statistics
import time

from . import model, sizes

HELP = "run a model on random or given inputs"
EXAMPLES = """examples:
  dcml run net.onnx                           on random inputs
  dcml run net.onnx --dim batch=32 --repeat 100
  dcml run net.onnx -i image=cat.npy -o out.npz
  dcml run net.sdfg -i inputs.npz --backend interpreter --print all
"""


def add_arguments(parser):
    model.add_arguments(parser)
    parser.add_argument("--repeat", type=int, metavar="K", default=0, help="then time K more calls")
    parser.add_argument("--print", choices=("summary", "all", "nothing"), default="summary", dest="shown",
                        help="of the outputs (default: summary)")
    parser.add_argument("-o", "--output", metavar="FILE.npz", help="where to write the outputs")


def run(args):
    loaded = model.Loaded(args)
    start = time.perf_counter()
    results = loaded()
    first = time.perf_counter() - start
    times = []
    for _ in range(args.repeat):
        start = time.perf_counter()
        loaded()
        times.append(time.perf_counter() - start)
    if args.shown != "nothing":
        print("\n".join(_summary(loaded, results, args.shown == "all")))
    print(f"first call {_seconds(first)}" + _spread(times))
    if args.output:
        _save(args.output, results)
    return 0


def _summary(loaded, results, whole):
    import numpy as np
    np.set_printoptions(linewidth=78, threshold=10**9 if whole else 6, edgeitems=2, precision=6)
    lines = [loaded.name + (f"  ({sizes.text(loaded.extents)})" if loaded.extents else "")]
    lines += [f"input   {_described(name, value)}" for name, value in loaded.arrays.items()]
    for name, value in results.items():
        lines.append(f"output  {_described(name, value)}{_range(value)}")
        if whole:
            lines.append(str(value))
    return lines


def _described(name, value):
    from ..report.table import shortened
    name = shortened(name, 24)
    if hasattr(value, "dtype"):
        return f"{name}: {value.dtype}{list(value.shape)}"
    return f"{name}: {type(value).__name__}" + (f" of {len(value)}" if hasattr(value, "__len__") else "")


def _range(value):
    """What the numbers are like."""
    import numpy as np
    if not hasattr(value, "dtype") or value.size == 0 or value.dtype.kind not in "fiub":
        return ""
    if value.size == 1:
        return f" = {value.reshape(-1)[0]:.6g}"
    wide = value.astype(np.float64)
    bad = int(np.size(wide) - np.count_nonzero(np.isfinite(wide)))
    return f"  {wide.min():.4g} .. {wide.max():.4g}, mean {wide.mean():.4g}" + (f", {bad} not finite" if bad else "")


def _seconds(value):
    for unit, factor in (("s", 1), ("ms", 1e3), ("us", 1e6)):
        if value * factor >= 1:
            break
    return f"{value * factor:.3g} {unit}"


def _spread(times):
    if not times:
        return ""
    return (f"; {len(times)} more: median {_seconds(statistics.median(times))}, "
            f"{_seconds(min(times))} to {_seconds(max(times))}")


def _save(path, results):
    import numpy as np
    from .problems import BadInput
    for name, value in results.items():
        if not hasattr(value, "dtype") or value.dtype.kind == "O":
            raise BadInput(f"{path}: output {name!r} is no array of numbers, and cannot be written")
    with open(path, "wb") as file:
        np.savez(file, **results)

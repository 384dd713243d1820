"""Times each step of a model, prints a table and writes an HTML page."""
import textwrap
import time

from . import model, sizes
from .problems import BadInput

HELP = "time each step; a table and an HTML page"
EXAMPLES = """examples:
  dcml profile net.onnx                             writes dcml-profile.html
  dcml profile net.onnx --dim batch=32 --calls 200 -o net.html
"""
_WIDTH = 80


def add_arguments(parser):
    model.add_arguments(parser)
    parser.add_argument("--calls", type=int, metavar="K", default=50, help="how many calls are timed (default: 50)")
    parser.add_argument("-o", "--output", metavar="FILE.html", default="dcml-profile.html",
                        help="where to write the page (default: dcml-profile.html)")


def run(args):
    from ..report import page, table
    if args.calls < 1:
        raise BadInput(f"--calls {args.calls}: expected 1 or more")
    loaded = model.Loaded(args)
    seconds = _measure(loaded, args.calls)
    programs = [(title, graph, report) for title, function in loaded.functions()
                for _, graph, report in table.programs(function)]
    if loaded.extents:
        print(f"with {sizes.text(loaded.extents)}")
    for title, graph, report in programs:
        rows = table.steps(graph, report)
        print(f"{', '.join(filter(None, (loaded.name, title)))}: {table.counted(len(rows), 'step')}, "
              f"{sum(row['us'] or 0 for row in rows):.1f} us")
        print("\n".join(table.table(rows, _WIDTH)))
    hosted = loaded.host_operators()
    if hosted:
        print("\n".join(textwrap.wrap(f"on the host, not timed by themselves: {', '.join(hosted)}", _WIDTH, subsequent_indent="  ")))
    print(f"a call takes {seconds * 1e6:.1f} us (mean of {args.calls})")
    with open(args.output, "w", encoding="utf-8") as file:
        file.write(page.page(loaded.name, sizes.text(loaded.extents), programs, args.calls, seconds))
    print(f"page: {args.output}")
    return 0


def _measure(loaded, calls):
    """Seconds of a call, with the steps of all functions timed."""
    for _ in range(3):  # compiles, and shapes that come a second time
        loaded()
    functions = [function for _, function in loaded.functions()]
    for function in functions:
        function.time(True)
    start = time.perf_counter()
    for _ in range(calls):
        loaded()
    seconds = (time.perf_counter() - start) / calls
    for function in functions:
        function.time(False)
    return seconds

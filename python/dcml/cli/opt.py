"""Runs passes on a graph, or on kernels, and prints what becomes of it: a graph,
the kernel of each of its steps, or their code.
"""
import textwrap

from . import files, stages
from .problems import BadInput

HELP = "run passes on a graph or kernels, text out"
EXAMPLES = """examples:
  dcml opt --list                       the passes, in the order of the pipeline
  dcml opt net.onnx                     the graph of a model as text
  dcml opt net.onnx -p infer,expand     after these passes
  dcml opt net.onnx --pipeline          after all of them
  dcml opt net.onnx --gradient --pipeline -o net.sdfg
  dcml opt net.sdfg --stage kernel      kernels of a scheduled graph
  dcml opt net.onnx --pipeline --stage kernel    after the passes of both
  dcml opt net.onnx --pipeline --stage code      the C
"""
_WIDTH = 80


def add_arguments(parser):
    parser.add_argument("model", nargs="?", help="an .onnx file, or a text ('-': standard input)")
    parser.add_argument("-p", "--passes", metavar="NAME,...", action="append", default=[],
                        help="passes to run, in this order (may be repeated); kernel:NAME where a graph has one of that "
                             "name too")
    parser.add_argument("--pipeline", action="store_true",
                        help="run all passes of the pipeline, to the stage of --stage (after those of -p)")
    parser.add_argument("--gradient", action="store_true",
                        help="differentiate first: gradients of the floating outputs with respect to the floating inputs")
    parser.add_argument("--stage", choices=[stage.keyword for stage in stages.STAGES],
                        help="go on to this stage of the compiler (default: the one of the text or of the last pass)")
    parser.add_argument("--weights", choices=("data", "shapes"), default="data",
                        help="of an .onnx: print their contents, or make them parameters without any (default: data)")
    parser.add_argument("-o", "--output", metavar="FILE", help="where to write (default: standard output)")
    parser.add_argument("--list", action="store_true", help="list the passes and leave")


def run(args):
    if args.list:
        print("\n".join(_listing()))
        return 0
    if not args.model:
        raise BadInput("expected a model, or --list")
    stage, items = files.read_any(args.model, args.weights == "shapes")
    for stage, name in _plan(stage, args):
        if name is None:
            items = [made for item in items for made in stage.make(item)]
        else:
            items = [stage.run(item, name) for item in items]
    files.write_text(args.output, "".join(stage.text(item) for item in items))
    return 0


def _plan(stage, args):
    """What is done to an object of the stage."""
    is_graph = stage.keyword == stages.GRAPH.keyword
    if args.gradient and not is_graph:
        raise BadInput(f"{args.model}: a {stage.keyword} cannot be differentiated, its graph can")
    names = [*stages.GRADIENT] if args.gradient else [*stages.BEFORE] if args.pipeline and is_graph else []
    names += [name for item in args.passes for name in item.split(",") if name]
    names += stages.pipelines(stage, args.stage or stage.keyword) if args.pipeline else []
    return stages.plan(stage, names, args.stage)


def _listing():
    """A line for each pass, those of the pipeline first and in its order."""
    lines = []
    for stage in stages.STAGES:
        rows = sorted(stage.passes(), key=lambda row: row[2] or (1000,))
        if not rows:
            continue
        width = max(len(name) for name, _, _ in rows)
        lines.append(f"passes of a {stage.keyword}, with their places in the pipeline:")
        for name, summary, places in rows:
            head = f"  {','.join(map(str, places)) or '-':>5}  {name:<{width}}  "
            lines += textwrap.wrap(summary, _WIDTH, initial_indent=head, subsequent_indent=" " * len(head))
    return lines

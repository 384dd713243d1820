"""Finds the pass that makes the result of a graph differ from the interpreter's on
the unoptimised graph.  Passes run one by one; at the end come programs:
interpreted, compiled, and with libraries.
"""
import os

from . import search, sizes

HELP = "find the pass that makes the result differ"
EXAMPLES = """examples:
  dcml bisect net.onnx
  dcml bisect net.sdfg --dim N=8 --gradient --save found
  dcml bisect net.sdfg -p simplify,expand,loops --tolerance 1e-6
Exit code 1: a pass or a program differs.
"""
_WIDTH = 80


def add_arguments(parser):
    search.add_arguments(parser)
    parser.add_argument("--save", metavar="FOLDER", help="write before.sdfg and after.sdfg of the pass that differs here")


def run(args):
    found = search.prepare(args).run(_report)
    if found is None:
        print("all agree")
        return 0
    step = found.step
    print(f"{step.what} {step.verdict}: {step.why}")
    if args.save:
        _save(args.save, found)
    return 1


def _report(value):
    if isinstance(value, list):
        names = [sizes.text(one) for one in value if one]
        if names:
            print("\n".join(_wrapped("extents: ", names)))
        print(f"  {'pass':<20} {'graph':<10} largest difference")
        return
    changed = {True: "changed", False: "unchanged", None: ""}[value.changed]
    if value.verdict != "agrees":
        result = value.verdict.upper()
    elif value.changed is False:
        result = "-"
    else:
        result = f"{value.largest:.3g}" + (f" in {value.where!r}" if value.largest else "")
    print(f"  {value.what:<20} {changed:<10} {result}"[:_WIDTH], flush=True)


def _wrapped(head, names):
    lines = [head]
    for name in names:
        if len(lines[-1]) + len(name) > _WIDTH - 2 and lines[-1].strip():
            lines.append(" " * len(head))
        lines[-1] += name + "; "
    return [line.rstrip("; ") for line in lines]


def _save(folder, found):
    os.makedirs(folder, exist_ok=True)
    for name, text in (("before.sdfg", found.before), ("after.sdfg", found.after)):
        if text is not None:
            path = os.path.join(folder, name)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            print(f"saved: {path}")

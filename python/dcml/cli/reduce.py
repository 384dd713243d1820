"""Makes a graph that fails smaller: drops nodes and outputs, fixes symbols,
halves extents and simplifies values, as long as it still fails.

A graph fails if `dcml bisect` finds a pass that differs: then the graph before
that pass is made smaller, and what is written names the pass in its first line,
"agree: PASS", as tests in tests/ir/agree do.  Or it fails if a command of yours
does: what is kept is then its exit status, which is not 0.
"""
import os
import shlex
import subprocess
import sys
import tempfile

from . import files, search
from .problems import BadInput

HELP = "make a graph that fails smaller"
EXAMPLES = """examples:
  dcml reduce net.onnx -o small.sdfg
  dcml reduce net.sdfg --gradient --tolerance 1e-6
  dcml reduce net.sdfg --command './fails.sh %s'
Exit code 1: nothing fails.
"""


def add_arguments(parser):
    search.add_arguments(parser)
    parser.add_argument("--command", dest="shell", metavar="'CMD %s'", help="what fails, with %%s for the file of a graph's text")
    parser.add_argument("--timeout", type=float, metavar="S", default=60, help="of each run of the command (default: 60)")
    parser.add_argument("-o", "--output", metavar="FILE", help="where to write (default: standard output)")


def run(args):
    text = _by_command(args) if args.shell else _by_search(args)
    if text is None:
        return 1
    files.write_text(args.output, text)
    return 0


def _say(text):
    print(text, file=sys.stderr, flush=True)


def _smaller(graph, fails):
    """The reduced text, or None if the graph without its weights' contents no longer fails."""
    from .. import _core
    tried = [0]

    def still_fails(candidate):
        tried[0] += 1
        if sys.stderr.isatty():
            print(f"\r{tried[0]} graphs tried", end="", file=sys.stderr, flush=True)
        return fails(candidate)
    text = _core.reduce(graph, still_fails)
    if sys.stderr.isatty():
        print("\r", end="", file=sys.stderr)
    if text is not None:
        _say(f"{len(graph.text().splitlines())} lines became {len(text.splitlines())}, {tried[0]} graphs were tried")
    return text


# ---- bisect finds a difference ----

def _by_search(args):
    from .. import _core
    one = search.prepare(args)
    found = one.run(lambda value: None)
    if found is None:
        _say("nothing fails: all passes and programs agree with the interpreter")
        return None
    step = found.step
    _say(f"{step.what} {step.verdict}: {step.why}")
    before = _core.parse(found.before)

    def verdict(graph, apart):
        fixed = {name: value for name, value in one.fixed.items() if name in graph.symbols}
        return _core.attempt(graph, step.what, fixed, args.tolerance, apart)[0]
    text = _smaller(before, lambda graph: verdict(graph, step.verdict == "crashes") == step.verdict)
    if text is None:
        _say("it does not fail by itself on random data: here is the graph before it")
        text = found.before
    return f"agree: {step.what}\n{text}"


# ---- a command fails ----

def _by_command(args):
    try:
        words = shlex.split(args.shell)
    except ValueError as error:
        raise BadInput(f"--command {args.shell!r}: {error}") from None
    if not any("%s" in word for word in words):
        raise BadInput(f"--command {args.shell!r}: expected %s in it, for the file of the graph")
    graph = files.read_graph(args.model)
    with tempfile.TemporaryDirectory(prefix="dcml-") as folder:
        path = os.path.join(folder, "graph.sdfg")
        words = [word.replace("%s", path) for word in words]

        def status(candidate):
            with open(path, "w", encoding="utf-8") as file:
                file.write(candidate.text())
            return _status(words, args.timeout)
        wanted = status(graph)
        if wanted == 0:
            _say("nothing fails: the command ends with status 0")
            return None
        _say(f"the command ends with {wanted}")
        text = _smaller(graph, lambda candidate: status(candidate) == wanted)
    if text is None:
        _say("the command no longer fails once weights are inputs: nothing is made smaller")
    return text


def _status(words, timeout):
    """The exit status of a command, a negative signal, or 'timeout'."""
    try:
        return subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              timeout=timeout).returncode
    except subprocess.TimeoutExpired:
        return "timeout"
    except OSError as error:
        raise BadInput(f"--command: {words[0]}: {error.strerror}") from None

"""Looks for the first pass after which a graph computes something else.

The one idea: the interpreter, on the graph before its first pass, says what is right; passes run one by one, and the
interpreter runs the graph after each.  At the end come programs: of the scheduled graph, interpreted and compiled,
and of the whole pipeline with its libraries.
Must not know: how findings are shown.
"""
from typing import NamedTuple

from . import apart, sizes, stages
from .problems import BadInput

SETS = 12  # choices of Graph.sizes
PROGRAMS = ("interpreted program", "compiled program", "whole pipeline")


class Step(NamedTuple):
    """What came of a pass or a program.  verdict: "agrees", "differs", "refuses" or "crashes".  changed: is the text of the
    graph another?  None for a program.  largest: difference.  why: one line, '' if all is well."""
    what: str
    verdict: str
    changed: bool = None
    largest: float = 0.0
    where: str = ""
    why: str = ""


class Finding(NamedTuple):
    """The first step that does not agree, with the graph before and after it (None if there is none) as texts."""
    step: Step
    before: str
    after: str


class Search:
    """graph: as it was read.  args: --dim, --seed, --tolerance, --gradient, --passes, --no-programs.  arrays: given inputs."""

    def __init__(self, graph, args, arrays):
        self.graph, self.args, self.arrays = graph, args, arrays
        self.fixed = sizes.given(graph, args, arrays)
        stages.check_names(stages.GRAPH, args.passes or ())
        self.passes = args.passes or stages.pipeline()
        self.programs = () if args.no_programs else PROGRAMS

    def run(self, report):
        """The Finding, or None.  report(value): the list of sizes first, then each Step."""
        state = {"doing": None, "before": None, "found": None}

        def receive(message):
            kind, *values = message
            if kind == "doing":
                state["doing"], state["before"] = values
            elif kind == "found":
                state["found"] = Finding(*values)
            else:
                report(values[0])
        try:
            apart.run(self._work, receive)
        except apart.Crashed as crash:
            if state["doing"] is None:
                raise BadInput(f"{self.args.model}: the graph itself crashes the interpreter: {crash}") from None
            step = Step(state["doing"], "crashes", why=f"crashed: {crash}")
            report(step)
            return Finding(step, state["before"], None)
        return state["found"]

    def _work(self, send):
        graph = self.graph
        for name in stages.GRADIENT if self.args.gradient else stages.BEFORE:
            graph = stages.GRAPH.run(graph, name)
        first, wanted = graph.clone(), self._wanted(graph)
        send(("sizes", [one for one, _ in wanted]))
        for name in self.passes:
            before = graph.text()
            send(("doing", name, before))
            graph, step = self._pass(graph, name, before, wanted)
            send(("step", step))
            if step.verdict != "agrees":
                return send(("found", step, before, graph and graph.text()))
        for name in self.programs:
            source = first if name == "whole pipeline" else graph
            send(("doing", name, source.text()))
            step = self._compare(source, name, wanted, None)
            send(("step", step))
            if step.verdict != "agrees":
                return send(("found", step, source.text(), None))

    def _wanted(self, graph):
        """[(sizes, Values)] of the graph before its first pass."""
        from .. import _core
        found, problem = [], None
        for k in range(SETS):
            try:
                chosen = graph.sizes(k, self.fixed)
                if chosen not in [one for one, _ in found]:
                    found.append((chosen, self._evaluate(graph, chosen, "interpreted")))
            except _core.Error as error:
                problem = error
        if not found:
            raise BadInput(f"{self.args.model}: the interpreter cannot run the graph: {problem}")
        return found

    def _evaluate(self, graph, chosen, what):
        from .. import _core
        return _core.evaluate(graph, chosen, what, self.args.seed, self.arrays)

    def _pass(self, graph, name, before, wanted):
        """(graph after the pass or None, Step)"""
        from .. import _core
        try:
            graph = stages.GRAPH.run(graph, name)
        except _core.Error as error:
            return None, Step(name, "refuses", why=str(error))
        if graph.text() == before:
            return graph, Step(name, "agrees", changed=False)
        return graph, self._compare(graph, "interpreted", wanted, True)._replace(what=name)

    def _compare(self, graph, what, wanted, changed):
        from .. import _core
        largest, where = 0.0, ""
        for chosen, values in wanted:
            at = f" ({sizes.text(chosen)})" if chosen else ""
            try:
                found = values.difference(self._evaluate(graph, chosen, what), self.args.tolerance)
            except _core.Error as error:
                return Step(what, "refuses", changed, why=f"{error}{at}")
            if not found["same"]:
                return Step(what, "differs", changed, found["largest"], found["name"], found["text"] + at)
            if found["largest"] > largest:
                largest, where = found["largest"], found["name"]
        return Step(what, "agrees", changed, largest, where)


def add_arguments(parser):
    """What Search takes."""
    from . import inputs
    parser.add_argument("model", help="an .onnx file, or the text of a graph ('-': standard input)")
    inputs.add_arguments(parser)
    parser.add_argument("--gradient", action="store_true", help="differentiate first, and check the gradients too")
    parser.add_argument("-p", "--passes", metavar="NAME,...", type=lambda text: [n for n in text.split(",") if n],
                        help="passes to check, in this order (default: the whole pipeline)")
    parser.add_argument("--no-programs", action="store_true", help="passes only: compile and run no programs at the end")
    parser.add_argument("--tolerance", type=float, default=0.0, metavar="T",
                        help="largest difference, relative to 1 plus the largest element of an array (default: by type, "
                             "1e-3 for float32, 1e-8 for float64, exact for integers)")


def prepare(args):
    """The Search that the arguments describe."""
    from .. import _core
    from ..onnx import host
    from . import files, inputs
    graph = files.read_graph(args.model)
    try:
        if host.is_needed(graph):
            names = [op for _, op, _, _, _, _, _, known in graph.operators() if not known] or graph.host_values
            raise BadInput(f"{args.model}: the core does not run this model alone, Python functions compute "
                           f"{', '.join(dict.fromkeys(names))}")
        graph.clone().run_pass("infer")
    except _core.Error as error:
        raise BadInput(f"{args.model}: {error}") from error
    return Search(graph, args, inputs.from_files(list(graph.inputs), args.input))

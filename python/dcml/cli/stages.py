"""What texts hold, and the passes that change them.

The one idea: a stage of the compiler is a row of STAGES, which says what its texts begin with, how they are read and
printed, its passes, and how it is made of the stage before.
Must not know: what a pass does.
"""
import re
from typing import Callable, NamedTuple

from .problems import BadInput


class Stage(NamedTuple):
    """keyword: the first word of its texts.  parse: text -> [objects]; None: such texts are not read.  text: object ->
    text.  passes: () -> [(name, summary, positions in the pipeline)].  run: (object, name of a pass) -> object, perhaps
    the same one changed.  make: an object of the stage before, after its pipeline -> [objects]; None for the first."""
    keyword: str
    parse: Callable
    text: Callable
    passes: Callable
    run: Callable
    make: Callable = None


# ---- graphs ----

# What a graph needs before its first pass, and to be differentiated: types and shapes, and no operator Gradient.
BEFORE = ("infer", "gradient")
GRADIENT = (*BEFORE, "differentiate")


def _parse_graph(text):
    from .. import _core
    return [_core.parse(text)]


def _graph_passes():
    from .. import _core
    return _core.passes()


def _run_graph_pass(graph, name):
    graph.run_pass(name)
    return graph


# ---- kernels: texts, one for each step of a scheduled graph ----

def _parse_kernels(text):
    return re.split(r"(?m)^(?=kernel\b)", text)[1:]


def _kernel_passes():
    from .. import _core
    return [(name, summary, (place,)) for place, (name, summary) in enumerate(_core.kernel_passes(), 1)]


def _run_kernel_pass(text, name):
    from .. import _core
    return _core.run_kernel_pass(text, name)


def _kernels_of(graph):
    made = []
    for state in range(graph.n_states):
        for node, kind, label, *_ in graph.nodes(state):
            if kind == "library":
                raise BadInput(f"operator {label} is no kernel before the pass 'expand' has run, as in --pipeline")
            made.append(graph.kernel(node))
    return made


# ---- code ----

def _code_of(kernel):
    from .. import _core
    return [_core.kernel_code(kernel)]


GRAPH = Stage("graph", _parse_graph, lambda graph: graph.text(), _graph_passes, _run_graph_pass)
KERNEL = Stage("kernel", _parse_kernels, str, _kernel_passes, _run_kernel_pass, _kernels_of)
CODE = Stage("code", None, str, list, None, _code_of)
STAGES = (GRAPH, KERNEL, CODE)


def stage_of(path, text):
    """The stage whose text this is."""
    first = next(iter(text.split(None, 1)), "")
    readable = [stage for stage in STAGES if stage.parse]
    for stage in readable:
        if stage.keyword == first:
            return stage
    expected = " or ".join(repr(stage.keyword) for stage in readable)
    raise BadInput(f"{path}: expected a text that begins with {expected}, or a file that ends in .onnx")


def pipeline(stage=None):
    """Names of the passes that the compiler runs by itself, in order; of graphs, if no stage is given."""
    stage = stage or GRAPH
    order = {place: name for name, _, places in stage.passes() for place in places}
    return [order[place] for place in sorted(order)]


def check_names(stage, names):
    """Raises BadInput for a name that is no pass of the stage."""
    known = [name for name, _, _ in stage.passes()]
    for name in names:
        if name not in known:
            raise BadInput(f"there is no pass {name!r}; there are {', '.join(known)}")


def plan(first, names, last=None):
    """[(stage, name of a pass, or None where the stage is made of the one before)]: each pass in the first stage from
    there on that has it, or in the one that it names, as in "kernel:merge"; and on to the stage ``last`` at the end."""
    keywords = [stage.keyword for stage in STAGES]
    at, steps = keywords.index(first.keyword), []

    def go_to(place):
        return [(stage, None) for stage in STAGES[at + 1:place + 1]]
    for full in names:
        keyword, _, name = full.rpartition(":")
        place = next((k for k, stage in enumerate(STAGES) if k >= at and keyword in ("", stage.keyword)
                      and name in [row[0] for row in stage.passes()]), None)
        if place is None:
            known = [name if stage is STAGES[at] else f"{stage.keyword}:{name}"
                     for stage in STAGES[at:] for name, _, _ in stage.passes()]
            raise BadInput(f"there is no pass {full!r}; there are {', '.join(known)}")
        steps += [*go_to(place), (STAGES[place], name)]
        at = place
    end = keywords.index(last) if last else at
    if end < at:
        raise BadInput(f"a {keywords[at]} does not become a {last} again")
    return steps + go_to(end)


def pipelines(first, last):
    """Names for plan: the passes that the compiler runs by itself, from the first stage to the one with that keyword."""
    keywords = [stage.keyword for stage in STAGES]
    chosen = STAGES[keywords.index(first.keyword):keywords.index(last) + 1]
    return [f"{stage.keyword}:{name}" for stage in chosen for name in pipeline(stage)]

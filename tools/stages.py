"""Writes docs/stages.md, or the page at a given path: three examples at each stage of the compiler, as text."""
import pathlib
import sys

from dcml import _core

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs" / "stages.md"

INTRODUCTION = """# Stages
What becomes of three graphs on their way to C. Each stage is text that reads back, so that a decision can be seen between two
of them, and tested alone. A pass that changes nothing of a graph is not shown. This page is written by `tools/stages.py`;
`dcml opt net.onnx --pipeline --stage kernel` prints the same for a model, and `DCML_DUMP=folder` writes all stages of whatever is
compiled.

A **graph** holds arrays, operators, maps and statements. Its passes expand operators, fuse maps and contract what no longer
leaves an iteration. A **kernel** is what one node of the scheduled graph becomes: a tree of loops over flat buffers. Its passes
annotate the loops: which of them threads share, vectors run, and in what order sums take their terms. The **printer** spells that
in C and decides nothing.
"""

MISH = """graph mish opset 18 {
  symbol N >= 1
  input X: f32[N, 64]
  temp Y: f32[N, 64]
  outputs Y
  state main {
    Y = Mish@18(X)
  }
}
"""

LAYER_NORM = """graph layernorm opset 17 {
  symbol N >= 1
  input X: f32[N, 64]
  input W: f32[64]
  input B: f32[64]
  temp Y: f32[N, 64]
  outputs Y
  state main {
    Y = LayerNormalization@17(X, W, B)
  }
}
"""

RESNET = """graph block opset 17 {
  symbol N >= 1
  input X: f32[N, 3, 224, 224]
  input W: f32[64, 3, 7, 7]
  input scale: f32[64]
  input bias: f32[64]
  input mean: f32[64]
  input var: f32[64]
  temp C: f32[N, 64, 112, 112]
  temp B: f32[N, 64, 112, 112]
  temp R: f32[N, 64, 112, 112]
  temp P: f32[N, 64, 56, 56]
  outputs P
  state main {
    C = Conv@11(X, W) {kernel_shape = ints [7, 7], pads = ints [3, 3, 3, 3], strides = ints [2, 2]}
    B = BatchNormalization@15(C, scale, bias, mean, var)
    R = Relu@14(B)
    P = MaxPool@12(R) {kernel_shape = ints [3, 3], pads = ints [1, 1, 1, 1], strides = ints [2, 2]}
  }
}
"""

# Title, graph, passes before the pipeline, the state whose kernels are shown, whether to show their C.
EXAMPLES = [("Mish", MISH, ["infer"], 0, True),
            ("LayerNorm's backward pass", LAYER_NORM, ["infer", "differentiate"], 1, False),
            ("ResNet's first block, where no library runs the convolution", RESNET, ["infer"], 0, False)]


def pipeline():
    """The passes of graphs in the order in which they run."""
    places = {place: name for name, _, found in _core.passes() for place in found}
    return [places[place] for place in sorted(places)]


def block(text, language=""):
    return f"```{language}\n{text.rstrip()}\n```\n"


def graph_stages(text, passes):
    """(pass, text) wherever a pass changes the graph, and the graph after all."""
    graph, stages = _core.parse(text), [("the graph", text)]
    for name in passes:
        graph.run_pass(name)
        if graph.text() != stages[-1][1]:
            stages.append((f"after `{name}`", graph.text()))
    return graph, stages


def kernel_stages(text):
    """The kernel as it is built, and after its last pass, with the names of those that changed it."""
    changed, now = [], text
    for name, _ in _core.kernel_passes():
        after = _core.run_kernel_pass(now, name)
        changed += [name] if after != now else []
        now = after
    return now, changed


def own_code(code):
    """The C without the library that stands above it."""
    return code[code.index("static __attribute__((noinline)) void kernel_"):]


def page():
    parts = [INTRODUCTION]
    for title, text, first, state, shows_code in EXAMPLES:
        graph, stages = graph_stages(text, [*first, *pipeline()])
        parts.append(f"## {title}\n")
        for heading, stage in stages:
            parts += [f"{heading[0].upper()}{heading[1:]}:\n", block(stage)]
        for number, (node, kind, *_) in enumerate(graph.nodes(state), 1):
            if kind == "library":
                continue
            built = graph.kernel(node)
            final, changed = kernel_stages(built)
            parts += [f"Kernel {number}, as it is built:\n", block(built)]
            parts += [f"After {', '.join(f'`{name}`' for name in changed)}:\n", block(final)]
            if shows_code:
                parts += ["In C, without the library of kernels:\n", block(own_code(_core.kernel_code(final)), "c")]
    return "\n".join(parts)


if __name__ == "__main__":
    (pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else PAGE).write_text(page())

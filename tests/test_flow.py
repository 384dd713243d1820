"""Flat views from Python: identity of nodes, drafts, what is kept, nested graphs, errors.  What derives and builds is in tests/flow."""
import gc

import numpy as np
import pytest

import dcml
from dcml import _core

SCALE = """graph scale opset 13 {
  symbol N >= 1
  input X: f32[N]
  temp Y: f32[N]
  temp Z: f32[N]
  outputs Z
  state main {
    map i in 0:N #Mul {
      Y[i] = X[i] * 2.0f if X[i] > 0.0f #Mul
    }
    map i in 0:N #Add {
      Z[i] = Y[i] + 1.0f #Add
    }
  }
}
"""
EMPTY = """graph g opset 13 {
  symbol N >= 1
  input X: f32[N]
  temp Y: f32[N]
  temp T: f32[4]
  outputs Y
  state main {
  }
}
"""


def mapped(flow, code, source="X", target="Y"):
    """A drafted map over 0:N with one tasklet; (entry, tasklet, exit)."""
    read, write = flow.add_access(source), flow.add_access(target)
    entry, exit = flow.add_map("m", [("i", "0", "N", "1")])
    tasklet = flow.add_tasklet("t", ["x"], ["y"], code)
    flow.add_connector(entry, f"IN_{source}", True), flow.add_connector(entry, f"OUT_{source}", False)
    flow.add_connector(exit, f"IN_{target}", True), flow.add_connector(exit, f"OUT_{target}", False)
    flow.add_edge(read, None, entry, f"IN_{source}", (source, "0:N"))
    flow.add_edge(entry, f"OUT_{source}", tasklet, "x", (source, "i"))
    flow.add_edge(tasklet, "y", exit, f"IN_{target}", (target, "i"))
    flow.add_edge(exit, f"OUT_{target}", write, None, (target, "0:N"))
    return entry, tasklet, exit


def compute(graph, *arrays):
    return _core.Function(graph, backend="interp")(*arrays)[0]


def test_a_flow_is_one_object_and_derives_python_code():
    graph = _core.parse(SCALE)
    flow = graph.flow(0)
    assert graph.flow(0) is flow and not flow.is_draft
    tasklet = next(n for n in flow.nodes() if flow.node(n)[0] == "tasklet")
    assert flow.node(tasklet) == ("tasklet", "Mul", (["__in0"], ["__out"], "if __in0 > 0.0:\n    __out = __in0 * 2.0"))
    assert flow.statements(tasklet) == "__out = __in0[] * 2.0f if __in0[] > 0.0f"


def test_a_flow_that_was_looked_at_changes_nothing():
    graph = _core.parse(SCALE)
    flow = graph.flow(0)
    flow.nodes(), flow.edges(), flow.scopes(), flow.build()
    assert graph.text() == SCALE and not flow.is_draft
    flow.touch(), flow.build()
    assert graph.text() == SCALE


def test_nodes_keep_their_ids_while_they_are_the_same():
    graph = _core.parse(SCALE)
    flow = graph.flow(0)
    before = {n: flow.node(n)[:2] for n in flow.nodes()}
    graph.run_pass("tidy")
    assert {n: graph.flow(0).node(n)[:2] for n in graph.flow(0).nodes()} == before
    graph.run_pass("fuse")
    gone = [n for n in before if not graph.flow(0).has(n)]
    assert gone
    with pytest.raises(dcml.Error, match=f"node {gone[0]} is not in state 'main' any more"):
        flow.node(gone[0])


def test_what_nobody_edited_is_kept_as_it_is():
    graph = _core.parse(SCALE)
    first, flow = graph.nodes(0), graph.flow(0)
    entry = next(n for n in flow.nodes() if flow.node(n)[:2] == ("entry", "Add"))
    flow.set_schedule(entry, "sequential")
    assert flow.is_draft
    flow.build()
    assert graph.nodes(0)[0] == first[0] and graph.nodes(0)[1][0] != first[1][0]
    assert "sequential i in 0:N #Add" in graph.text() and "if X[i] > 0.0f #Mul" in graph.text()


def test_a_draft_outlives_the_objects_that_show_it():
    graph = _core.parse(EMPTY)
    entry, tasklet, exit = mapped(graph.flow(0), "y = x * 3")
    gc.collect()
    flow = graph.flow(0)
    assert flow.is_draft and flow.scopes()[tasklet] == entry and graph.nodes(0) == []
    flow.build()
    x = np.arange(5, dtype=np.float32)
    assert np.array_equal(compute(graph, x), x * 3)
    assert flow.node(tasklet)[2] == (["x"], ["y"], "y = x * 3")


def test_an_error_leaves_the_state_and_the_draft_as_they_were():
    graph = _core.parse(SCALE)
    flow = graph.flow(0)
    lost = flow.add_access("nobody")
    with pytest.raises(dcml.Error, match="access node 'nobody': there is no array of that name"):
        flow.build()
    assert graph.text() == SCALE and flow.is_draft
    flow.remove_node(lost)
    flow.build()
    assert graph.text() == SCALE


def test_code_is_checked_against_types_and_connectors():
    graph = _core.parse(EMPTY)
    _, tasklet, _ = mapped(graph.flow(0), "y = x & 1")
    with pytest.raises(dcml.Error, match="code of tasklet 't'"):
        graph.flow(0).build()
    graph.flow(0).set_code(tasklet, "t = sqrt(x); y = t / 2 if t > 1.5")
    graph.flow(0).build()
    assert "if sqrt(X[i]) > 1.5f" in graph.text()


def test_nested_graphs_become_part_of_the_state():
    inner = _core.parse(EMPTY)
    mapped(inner.flow(0), "y = exp(x)"), inner.flow(0).build()
    graph = _core.parse("""graph outer opset 13 {
  symbol M >= 1
  input A: f32[M, 4]
  temp B: f32[4, M]
  outputs B
  state main {
  }
}
""")
    flow = graph.flow(0)
    a, b, (entry, exit) = flow.add_access("A"), flow.add_access("B"), flow.add_map("rows", [("r", "0", "M", "1")])
    nested = flow.add_nested("inner", inner, ["X"], ["Y"], {"N": "4"})
    for node, name, is_input in ((entry, "IN_A", True), (entry, "OUT_A", False), (exit, "IN_B", True), (exit, "OUT_B", False)):
        flow.add_connector(node, name, is_input)
    flow.add_edge(a, None, entry, "IN_A", ("A", None)), flow.add_edge(entry, "OUT_A", nested, "X", ("A", "r, 0:4"))
    flow.add_edge(nested, "Y", exit, "IN_B", ("B", "0:4, r")), flow.add_edge(exit, "OUT_B", b, None, ("B", None))
    flow.build()
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    assert np.allclose(compute(graph, x), np.exp(x).T, rtol=1e-5)
    assert flow.node(nested)[0] == "nested" and flow.node(nested)[2].name == inner.name


def test_inline_copies_parts_for_operators_and_renames_what_is_taken():
    inner = _core.parse("""graph inner opset 13 {
  input X: f32[4]
  temp T: f32[4]
  temp Y: f32[4]
  outputs Y
  state main {
    T = Relu@14(X)
    map i in 0:4 {
      Y[i] = T[i] + T[3 - i]
    }
  }
}
""")
    graph = _core.parse(EMPTY.replace("symbol N >= 1", "symbol N >= 8"))
    graph.inline(0, inner, {"X": ("X", "2:6"), "Y": ("Y", "0:4")})
    graph.inline(0, inner, {"X": ("X", "0:8:2"), "Y": ("Y", "4:8")})
    graph.verify()
    x = np.linspace(-1, 1, 8, dtype=np.float32)
    part = [np.maximum(p, 0) for p in (x[2:6], x[::2])]
    assert np.allclose(compute(graph, x), np.concatenate([p + p[::-1] for p in part]))
    with pytest.raises(dcml.Error, match="'X' of the nested graph has 1 dimensions; the part of 'X' that it is has 0"):
        graph.inline(0, inner, {"X": ("X", "3"), "Y": ("Y", None)})
    with pytest.raises(dcml.Error, match="input 'X' of the nested graph is not connected"):
        graph.inline(0, inner, {"Y": ("Y", "0:4")})


def test_operators_are_joined_by_the_names_of_their_parameters():
    graph = _core.parse(EMPTY)
    flow = graph.flow(0)
    x, y, clip, low = flow.add_access("X"), flow.add_access("Y"), flow.add_library("clip", "Clip", "", 13), flow.add_access("T")
    for name, is_input in (("input", True), ("min", True), ("output", False)):
        flow.add_connector(clip, name, is_input)
    flow.add_edge(x, None, clip, "input", ("X", None)), flow.add_edge(clip, "output", y, None, ("Y", None))
    edge = flow.add_edge(low, None, clip, "min", ("T", "1"))
    flow.build()
    assert "Y = Clip@13(X, T_part)" in graph.text() and "T_part[] = T[1]" in graph.text()
    flow.remove_edge(edge)
    with pytest.raises(dcml.Error, match="library node 'clip': connector 'min' is not connected"):
        flow.build()
    flow.remove_connector(clip, "min", True), flow.build()
    assert "Y = Clip@13(X)" in graph.text()
    flow.add_connector(clip, "middle", True), flow.add_edge(low, None, clip, "middle", ("T", None))
    with pytest.raises(dcml.Error, match="Clip has no input 'middle'"):
        flow.build()


@pytest.mark.parametrize("edit", [lambda f: f.add_edge(1, None, 99, None), lambda f: f.node(0), lambda f: f.add_map("m", [], "fast"),
                                  lambda f: f.add_edge(1, None, 1, None, ("X", "0", "xor")), lambda f: f.remove_edge(77),
                                  lambda f: f.set_attributes(1, {}), lambda f: f.graph.flow(9)])
def test_wrong_arguments_are_errors_of_dcml(edit):
    flow = _core.parse(SCALE).flow(0)
    with pytest.raises(dcml.Error):
        edit(flow)


@pytest.mark.parametrize("edit", [lambda f: f.node("x"), lambda f: f.add_map("m", ["i"]), lambda f: f.add_edge(1, None, 1, None, "X"),
                                  lambda f: f.add_tasklet("t", 3, [], ""), lambda f: f.add_library("l", "Relu", "", 14, 5)])
def test_arguments_of_another_type_are_type_errors(edit):
    flow = _core.parse(SCALE).flow(0)
    with pytest.raises(TypeError):
        edit(flow)

"""States of an SDFG."""
import pytest

import dcml
import dcml as dace


def test_states_are_in_the_order_in_which_they_run():
    sdfg = dace.SDFG("states")
    a = sdfg.add_state("a")
    c = sdfg.add_state("c")
    b = sdfg.add_state_before(c, "b")
    d = sdfg.add_state_after(c, "d")
    first = sdfg.add_state("first", is_start_state=True)
    assert sdfg.nodes() == sdfg.states() == [first, a, b, c, d] and sdfg.node(2) is b and sdfg.start_state is first
    assert [state.label for state in sdfg.nodes()] == ["first", "a", "b", "c", "d"] == sdfg.graph.states
    assert sdfg.node_id(c) == 3 and sdfg.number_of_nodes() == 5
    assert [(e.src, e.dst) for e in sdfg.edges()] == [(first, a), (a, b), (b, c), (c, d)]
    assert sdfg.in_degree(first) == 0 and sdfg.out_degree(d) == 0 and sdfg.successors(a) == [b] and sdfg.predecessors(a) == [first]
    assert sdfg.source_nodes() == [first] and sdfg.sink_nodes() == [d]


def test_names_of_states_are_their_own():
    sdfg = dace.SDFG("states")
    labels = [sdfg.add_state("s").label for _ in range(3)] + [sdfg.add_state().label for _ in range(2)]
    assert len(set(labels)) == 5


def test_edges_between_states_say_what_is_so():
    sdfg = dace.SDFG("states")
    a, b = sdfg.add_state("a"), sdfg.add_state("b")
    assert sdfg.add_edge(a, b, dace.InterstateEdge()) == sdfg.edges()[0]
    assert repr(dace.InterstateEdge("i < 3", {"i": 0})) == "InterstateEdge('i < 3', assignments={'i': '0'})"
    sdfg.add_edge(b, a, dace.InterstateEdge())
    with pytest.raises(dcml.UnsupportedOpError, match="state 'a': the loop while '1' does not count"):
        sdfg.validate()


def test_a_state_that_is_gone_is_named():
    sdfg = dace.SDFG("states")
    a, b = sdfg.add_state("a"), sdfg.add_state("b")
    sdfg.remove_node(a)
    assert sdfg.nodes() == [b] and b.index == 0
    with pytest.raises(dcml.ValueError_, match=r"state 'a' is gone from SDFG\('states'\)"):
        a.nodes()
    assert repr(b) == "SDFGState('b' of 'states')"


def test_handles_are_the_same_objects():
    sdfg = dace.SDFG("states")
    state = sdfg.add_state("a")
    assert dace.SDFG(sdfg.graph) is sdfg and sdfg.node(0) is state and {state: 1}[sdfg.nodes()[0]] == 1
    assert repr(sdfg) == "SDFG('states')" and dace.SDFG("states") is not sdfg


def test_edits_stay_with_their_states():
    import numpy as np
    sdfg = dace.SDFG("order")
    sdfg.add_array("A", (3,), dace.float32)

    def then(state, code):
        return state.add_mapped_tasklet("t", {"i": "0:3"}, {"a": dace.Memlet("A[i]")}, code, {"b": dace.Memlet("A[i]")}, external_edges=True)

    second = sdfg.add_state("second")
    tasklet, _, _ = then(second, "b = a * 10")
    gone = sdfg.add_state_before(second, "gone")
    then(gone, "b = -1000")
    first = sdfg.add_state_before(second, "first")
    then(first, "b = a + 1")
    then(sdfg.add_state("third"), "b = a - 2")
    sdfg.remove_node(gone)
    a = np.zeros(3, np.float32)
    sdfg(A=a)
    assert (a == 8).all()
    tasklet.code = "b = a * 100"
    sdfg.add_state_before(first, "nothing")
    sdfg(A=a)
    assert (a == 898).all() and [s.label for s in sdfg.nodes()] == ["nothing", "first", "second", "third"]

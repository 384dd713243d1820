"""Looking at a state: nodes, edges, connectors, scopes."""
import pytest

import dcml as dace
from dcml.sdfg import nodes


@pytest.fixture
def program():
    N = dace.symbol("N")
    sdfg = dace.SDFG("look")
    for name in "ABC":
        sdfg.add_array(name, (N,), dace.float32)
    state = sdfg.add_state("main")
    state.add_mapped_tasklet("add", {"i": "0:N"}, {"a": dace.Memlet("A[i]"), "b": dace.Memlet("B[i]")}, "c = a + b", {"c": dace.Memlet("C[i]")},
                             external_edges=True)
    return sdfg, state


def parts(state):
    found = {type(node): node for node in state.nodes()}
    access = {node.data: node for node in state.data_nodes()}
    return found[nodes.MapEntry], found[nodes.MapExit], found[nodes.Tasklet], access


@pytest.fixture(params=["draft", "built"])
def state(program, request):
    sdfg, state = program
    if request.param == "built":
        sdfg.validate()
    return state


def test_nodes_and_edges(state):
    entry, exit, tasklet, access = parts(state)
    assert set(access) == {"A", "B", "C"} and state.number_of_nodes() == 6 and state.number_of_edges() == 6
    assert set(state.source_nodes()) == {access["A"], access["B"]} and state.sink_nodes() == [access["C"]]
    assert set(state.predecessors(entry)) == {access["A"], access["B"]} and state.successors(tasklet) == [exit]
    assert state.in_degree(tasklet) == 2 and state.out_degree(tasklet) == 1 and state.degree(exit) == 2
    edge, = state.in_edges_by_connector(tasklet, "a")
    assert (edge.src, edge.dst, edge.dst_conn) == (entry, tasklet, "a") and edge.data.data == "A" and edge.data.subset == "i"
    edge, = state.out_edges_by_connector(tasklet, "c")
    assert edge.data.wcr is None and edge.data.num_elements() == 1 and edge.dst is exit
    assert [e.data.data for e in state.out_edges(exit)] == ["C"] and state.edges_between(tasklet, exit) == [edge]
    order = state.nodes()
    assert all(order.index(e.src) < order.index(e.dst) for e in state.edges()) and state.node_id(order[3]) == 3 and state.node(3) is order[3]
    assert set(state.all_edges(tasklet)) == {*state.in_edges(tasklet), *state.out_edges(tasklet)}
    assert state.read_and_write_sets() == ({"A", "B"}, {"C"})


def test_scopes(state):
    entry, exit, tasklet, access = parts(state)
    scope = state.scope_dict()
    assert scope[tasklet] is entry and scope[exit] is entry and scope[entry] is None and scope[access["A"]] is None and scope[access["C"]] is None
    assert state.entry_node(tasklet) is entry and state.entry_node(exit) is entry and state.exit_node(entry) is exit and state.entry_node(entry) is None
    assert set(state.scope_children()[entry]) == {tasklet, exit}
    path = state.memlet_path(next(state.in_edges_by_connector(tasklet, "b")))
    assert [e.src for e in path] == [access["B"], entry] and path[-1].dst is tasklet
    path = state.memlet_path(state.out_edges(tasklet)[0])
    assert [e.dst for e in path] == [exit, access["C"]]


def test_what_nodes_tell(state):
    entry, exit, tasklet, access = parts(state)
    assert entry.map.params == ["i"] and entry.map.range == "0:N" and entry.map.range.size() == ["N"] and exit.map is entry.map
    assert set(tasklet.in_connectors) == {"a", "b"} and set(tasklet.out_connectors) == {"c"} and "a + b" in tasklet.code
    assert access["A"].data == "A" and access["A"].desc(state.sdfg).shape == ("N",) and access["A"].desc(state) is state.sdfg.arrays["A"]
    for node in state.nodes():
        assert "\n" not in repr(node) and node.label in repr(node) and node.state is state
    assert "A[0:N]" in repr(state.out_edges(access["A"])[0])


def test_handles_are_the_same_objects_each_time(state):
    assert all(a is b for a, b in zip(state.nodes(), state.nodes())) and all(a is b for a, b in zip(state.edges(), state.edges()))
    assert len(set(state.nodes())) == 6 and state.nodes()[0] is state.node(0)


def test_handles_outlive_the_build(program):
    sdfg, state = program
    before, edges = state.nodes(), state.edges()
    sdfg.validate()
    assert set(state.nodes()) == set(before)
    assert {repr(e) for e in state.edges()} == {repr(e) for e in edges}


def test_all_nodes_come_with_their_parents(program):
    sdfg, state = program
    pairs = list(sdfg.all_nodes_recursive())
    assert pairs[0] == (state, sdfg) and {parent for _, parent in pairs[1:]} == {state} and len(pairs) == 7
    assert len(list(sdfg.all_edges_recursive())) == 6 and list(sdfg.all_sdfgs_recursive()) == [sdfg]


def test_an_operator_of_a_model_is_a_library_node():
    from dcml import _core
    graph = _core.Graph("g", 21)
    x = graph.add_input("x", 1, ["n", 3])
    y, = graph.add_node("Relu", [x], ["y"], {}, "", "first")
    graph.mark_output(y)
    state = dace.SDFG(graph).node(0)
    relu, = [node for node in state.nodes() if isinstance(node, nodes.LibraryNode)]
    assert relu.op == "Relu" and [n.data for n in state.predecessors(relu)] == ["x"] and [n.data for n in state.successors(relu)] == ["y"]

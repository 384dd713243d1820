"""Programs that are built by nodes and edges, and what they compute."""
import itertools

import numpy as np
import pytest

import dcml
import dcml as dace
from dcml.sdfg import nodes

N = dace.symbol("N")


def vectors(*names, extent=N, dtype=dace.float32):
    sdfg = dace.SDFG("built")
    for name in names:
        sdfg.add_array(name, extent if isinstance(extent, tuple) else (extent,), dtype)
    return sdfg, sdfg.add_state("main")


def test_a_mapped_tasklet_with_its_edges():
    sdfg, state = vectors("A", "B", "C")
    tasklet, entry, exit = state.add_mapped_tasklet("add", {"i": "0:N"}, {"a": dace.Memlet("A[i]"), "b": dace.Memlet("B[i]")}, "c = a + 2 * b",
                                                    {"c": dace.Memlet("C[i]")}, external_edges=True)
    a, b, c = np.random.rand(3, 5).astype(np.float32)
    sdfg(A=a, B=b, C=c)
    np.testing.assert_allclose(c, a + 2 * b, rtol=1e-6)
    assert (type(tasklet), type(entry), type(exit)) == (nodes.Tasklet, nodes.MapEntry, nodes.MapExit)


def test_the_same_by_paths():
    sdfg, state = vectors("A", "B")
    entry, exit = state.add_map("twice", dict(i="0:N"))
    tasklet = state.add_tasklet("twice", {"a"}, {"b"}, "b = 2 * a")
    state.add_memlet_path(state.add_read("A"), entry, tasklet, dst_conn="a", memlet=dace.Memlet("A[i]"))
    state.add_memlet_path(tasklet, exit, state.add_write("B"), src_conn="b", memlet=dace.Memlet("B[i]"))
    sdfg.validate()
    a, b = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    sdfg(A=a, B=b)
    assert (b == 2 * a).all()


def test_parts_of_an_array_share_the_edges_of_their_paths():
    sdfg, state = vectors("A", "B", extent=(4, 2))
    entries, exits = zip(*(state.add_map(f"m{k}", {p: f"0:{n}"}) for k, (p, n) in enumerate((("i", 4), ("j", 1)))))
    tasklet = state.add_tasklet("two", ["a", "b"], ["c", "d"], "c = a + b; d = a - b")
    read, write = state.add_read("A"), state.add_write("B")
    for k, (into, out) in enumerate((("a", "c"), ("b", "d"))):
        state.add_memlet_path(read, *entries, tasklet, dst_conn=into, memlet=dace.Memlet(f"A[i, j + {k}]"))
        edge = state.add_memlet_path(tasklet, *reversed(exits), write, src_conn=out, memlet=dace.Memlet(f"B[i, j + {k}]"))
    assert edge.dst is write and [state.in_degree(n) for n in (*entries, *exits, write)] == [1, 1, 1, 2, 1]
    a, b = np.random.rand(2, 4, 2).astype(np.float32)
    sdfg(A=a, B=b)
    np.testing.assert_allclose(b, np.stack([a[:, 0] + a[:, 1], a[:, 0] - a[:, 1]], 1), rtol=1e-5, atol=1e-6)
    with pytest.raises(dcml.ValueError_, match="and a memlet"):
        state.add_memlet_path(read, write)


def test_the_same_by_single_edges_in_any_order():
    for order in itertools.permutations(range(4)):
        sdfg, state = vectors("A", "B")
        b, tasklet, a = state.add_write("B"), state.add_tasklet("twice", ["a"], ["b"], "b = 2 * a"), state.add_read("A")
        entry, exit = state.add_map("twice", {"i": "0:N"})
        entry.add_in_connector("IN_A"), entry.add_out_connector("OUT_A")
        exit.add_in_connector("IN_B"), exit.add_out_connector("OUT_B")
        edges = [(a, None, entry, "IN_A", dace.Memlet("A[0:N]")), (entry, "OUT_A", tasklet, "a", dace.Memlet("A[i]")),
                 (tasklet, "b", exit, "IN_B", dace.Memlet("B[i]")), (exit, "OUT_B", b, None, dace.Memlet("B[0:N]"))]
        for k in order:
            state.add_edge(*edges[k])
        x, y = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
        sdfg(A=x, B=y)
        assert (y == 2 * x).all()


def test_a_write_with_wcr_combines():
    for wcr, reduced in (("lambda x, y: x + y", np.sum), ("lambda x, y: max(x, y)", np.max)):
        sdfg, state = vectors("A")
        sdfg.add_array("s", (1,), dace.float32)
        state.add_mapped_tasklet("sum", {"i": "0:N"}, {"a": dace.Memlet("A[i]")}, "out = a", {"out": dace.Memlet("s[0]", wcr=wcr)}, external_edges=True)
        a, s = np.random.rand(9).astype(np.float32), np.zeros(1, np.float32)
        sdfg(A=a, s=s)
        np.testing.assert_allclose(s[0], reduced(a), rtol=1e-6)


def test_branches_and_several_outputs_of_a_tasklet():
    sdfg, state = vectors("A", "B", "C")
    code = """
    if a > 0.5:
        b = sqrt(a)
    else:
        b = -a
    c = b * b
    """
    state.add_mapped_tasklet("two", {"i": "0:N"}, {"a": dace.Memlet("A[i]")}, code, {"b": dace.Memlet("B[i]"), "c": dace.Memlet("C[i]")}, external_edges=True)
    a, b, c = np.random.rand(3, 50).astype(np.float32)
    sdfg(A=a, B=b, C=c)
    wanted = np.where(a > 0.5, np.sqrt(a), -a)
    np.testing.assert_allclose(b, wanted, rtol=1e-6), np.testing.assert_allclose(c, wanted**2, rtol=1e-6)


def test_a_connector_that_is_an_array_is_indexed():
    sdfg, state = vectors("A", "B", extent=10)
    state.add_mapped_tasklet("blur", {"i": "1:9"}, {"a": dace.Memlet("A[i-1:i+2]")}, "b = a[0] + a[1] + a[2]", {"b": dace.Memlet("B[i]")}, external_edges=True)
    a, b = np.arange(10, dtype=np.float32), np.zeros(10, np.float32)
    sdfg(A=a, B=b)
    assert (b[1:9] == a[:8] + a[1:9] + a[2:]).all() and b[0] == b[9] == 0


def test_transients_join_maps_and_states():
    sdfg, state = vectors("A", "B")
    sdfg.add_transient("T", (N,), dace.float32)
    sdfg.add_transient("U", (N,), dace.float32)
    middle = state.add_access("T")
    state.add_mapped_tasklet("one", {"i": "0:N"}, {"a": dace.Memlet("A[i]")}, "t = a + 1", {"t": dace.Memlet("T[i]")}, external_edges=True, output_nodes={"T": middle})
    state.add_mapped_tasklet("two", {"i": "0:N"}, {"t": dace.Memlet("T[i]")}, "u = t * t", {"u": dace.Memlet("U[i]")}, external_edges=True, input_nodes={"T": middle})
    after = sdfg.add_state_after(state)
    after.add_mapped_tasklet("three", {"i": "0:N"}, {"u": dace.Memlet("U[i]")}, "b = u - 1", {"b": dace.Memlet("B[i]")}, external_edges=True)
    a, b = np.random.rand(2, 6).astype(np.float32)
    sdfg(A=a, B=b)
    np.testing.assert_allclose(b, (a + 1)**2 - 1, rtol=1e-5)


def test_nested_maps():
    sdfg = dace.SDFG("nested")
    for name in "AB":
        sdfg.add_array(name, (N, 4), dace.float64)
    state = sdfg.add_state()
    outer, outer_exit = state.add_map("outer", {"i": "0:N"})
    inner, inner_exit = state.add_map("inner", {"j": "0:4"})
    tasklet = state.add_tasklet("t", {"a"}, {"b"}, "b = a + i * 10 + j")
    state.add_memlet_path(state.add_read("A"), outer, inner, tasklet, dst_conn="a", memlet=dace.Memlet("A[i, j]"))
    state.add_memlet_path(tasklet, inner_exit, outer_exit, state.add_write("B"), src_conn="b", memlet=dace.Memlet("B[i, j]"))
    assert state.entry_node(tasklet) is inner and state.entry_node(inner) is outer
    a, b = np.random.rand(2, 3, 4)
    sdfg(A=a, B=b)
    np.testing.assert_allclose(b, a + np.arange(3)[:, None] * 10 + np.arange(4))


def test_a_copy_is_an_edge_between_access_nodes():
    sdfg, state = vectors("A", "B", extent=(3, 4))
    state.add_edge(state.add_read("A"), None, state.add_write("B"), None, sdfg.make_array_memlet("A"))
    a, b = np.random.rand(2, 3, 4).astype(np.float32)
    sdfg(A=a, B=b)
    assert (a == b).all()


def test_a_reduction_node():
    for wcr, axes, wanted in (("lambda x, y: x + y", [1], lambda a: a.sum(1)), ("lambda x, y: max(x, y)", [0], lambda a: a.max(0))):
        sdfg = dace.SDFG("reduce")
        sdfg.add_array("A", (3, 4), dace.float32)
        sdfg.add_array("B", (3,) if axes == [1] else (4,), dace.float32)
        state = sdfg.add_state()
        node = state.add_reduce(wcr, axes)
        state.add_edge(state.add_read("A"), None, node, None, dace.Memlet("A[0:3, 0:4]"))
        state.add_edge(node, None, state.add_write("B"), None, sdfg.make_array_memlet("B"))
        a, b = np.random.rand(3, 4).astype(np.float32), np.zeros(sdfg.arrays["B"].shape, np.float32)
        sdfg(A=a, B=b)
        np.testing.assert_allclose(b, wanted(a), rtol=1e-6)
    with pytest.raises(dcml.UnsupportedOpError, match="from 3"):
        state.add_reduce("lambda x, y: x + y", [0], identity=3)


def test_an_sdfg_inside_another():
    inner, state = vectors("x", "y")
    state.add_mapped_tasklet("half", {"i": "0:N"}, {"a": dace.Memlet("x[i]")}, "b = a / 2", {"b": dace.Memlet("y[i]")}, external_edges=True)
    sdfg = dace.SDFG("outer")
    sdfg.add_array("A", (3, 4), dace.float32), sdfg.add_array("B", (3, 4), dace.float32)
    state = sdfg.add_state()
    entry, exit = state.add_map("rows", {"r": "0:3"})
    nested = state.add_nested_sdfg(inner, sdfg, {"x"}, {"y"}, {"N": 4})
    state.add_memlet_path(state.add_read("A"), entry, nested, dst_conn="x", memlet=dace.Memlet("A[r, 0:4]"))
    state.add_memlet_path(nested, exit, state.add_write("B"), src_conn="y", memlet=dace.Memlet("B[r, 0:4]"))
    assert nested.sdfg is inner and [n for n, _ in sdfg.all_nodes_recursive() if isinstance(n, nodes.Tasklet)]
    a, b = np.random.rand(2, 3, 4).astype(np.float32)
    sdfg(A=a, B=b)
    assert (b == a / 2).all()


def inside(code="b = a / 2"):
    """(an SDFG around another, the nested node)."""
    inner, state = vectors("x", "y")
    inner.add_transient("t", (N,), dace.float32)
    state.add_mapped_tasklet("half", {"i": "0:N"}, {"a": dace.Memlet("x[i]")}, code, {"b": dace.Memlet("t[i]")}, external_edges=True)
    inner.add_state("then").add_mapped_tasklet("more", {"i": "0:N"}, {"a": dace.Memlet("t[i]")}, "b = a + 1", {"b": dace.Memlet("y[i]")}, external_edges=True)
    sdfg, state = vectors("A", "B")
    nested = state.add_nested_sdfg(inner, sdfg, {"x"}, {"y"})
    state.add_edge(state.add_read("A"), None, nested, "x", sdfg.make_array_memlet("A"))
    state.add_edge(nested, "y", state.add_write("B"), None, sdfg.make_array_memlet("B"))
    return sdfg, nested


def test_symbols_inside_are_those_outside():
    sdfg, nested = inside()
    assert nested.symbol_mapping == {"N": "N"} and nested.sdfg.parent is sdfg
    a, b = np.random.rand(2, 5).astype(np.float32)
    sdfg(A=a, B=b)
    np.testing.assert_allclose(b, a / 2 + 1, rtol=1e-6)
    assert nested in sdfg.node(0).nodes() and nested.sdfg.arrays["t"].transient


def test_what_is_changed_inside_counts():
    sdfg, nested = inside()
    a, b = np.random.rand(2, 5).astype(np.float32)
    sdfg(A=a, B=b)
    tasklet = next(node for node, _ in nested.sdfg.all_nodes_recursive() if isinstance(node, nodes.Tasklet))
    tasklet.code = "b = a * 3"
    sdfg(A=a, B=b)
    np.testing.assert_allclose(b, a * 3 + 1, rtol=1e-6)


def test_nesting_that_cannot_be_is_refused():
    sdfg, nested = inside()
    with pytest.raises(dcml.ValueError_, match="nested in itself"):
        nested.sdfg.node(0).add_nested_sdfg(sdfg, nested.sdfg, {"A"}, {"B"})
    with pytest.raises(dcml.ValueError_, match="has no array 'q'"):
        sdfg.node(0).add_nested_sdfg(nested.sdfg, sdfg, {"q"}, {"y"})
    with pytest.raises(dcml.ValueError_, match="has no symbol 'M'; it has"):
        sdfg.node(0).add_nested_sdfg(nested.sdfg, sdfg, {"x"}, {"y"}, {"M": 3})


def test_parts_are_removed_and_put_back():
    sdfg, state = vectors("A", "B")
    tasklet, entry, exit = state.add_mapped_tasklet("t", {"i": "0:N"}, {"a": dace.Memlet("A[i]")}, "b = a", {"b": dace.Memlet("B[i]")}, external_edges=True)
    edge = state.in_edges(tasklet)[0]
    state.remove_edge(edge)
    state.remove_node(tasklet)
    with pytest.raises(dcml.ValueError_, match=r"Tasklet\(t\) is gone from state 'main'"):
        tasklet.in_connectors
    again = state.add_tasklet("again", ["a"], ["b"], "b = a * a")
    state.add_edge(entry, "OUT_A", again, "a", dace.Memlet("A[i]"))
    state.add_edge(again, "b", exit, "IN_B", dace.Memlet("B[i]"))
    a, b = np.arange(3, dtype=np.float32), np.zeros(3, np.float32)
    sdfg(A=a, B=b)
    assert (b == a * a).all()


def test_what_is_changed_after_a_call_counts_at_the_next():
    sdfg, state = vectors("A", "B")
    tasklet, entry, _ = state.add_mapped_tasklet("t", {"i": "0:N"}, {"a": dace.Memlet("A[i]")}, "b = a", {"b": dace.Memlet("B[i]")}, external_edges=True)
    a, b = np.arange(3, dtype=np.float32), np.zeros(3, np.float32)
    sdfg(A=a, B=b)
    assert (b == a).all()
    tasklet.code = "b = a + 5"
    sdfg(A=a, B=b)
    assert (b == a + 5).all() and tasklet.code == "b = a + 5"
    state.out_edges(tasklet)[0].data.wcr = "lambda x, y: x + y"
    entry.map.schedule = dace.ScheduleType.Sequential
    sdfg(A=a, B=b)
    assert (b == 2 * a + 10).all() and entry.map.schedule == dace.ScheduleType.Sequential
    state.out_edges(tasklet)[0].data = dace.Memlet("B[N - 1 - i]")
    sdfg(A=a, B=b)
    assert (b == a[::-1] + 5).all()


def test_symbols_that_were_made_need_not_be_added():
    K = dace.symbol("K")
    sdfg, state = vectors("A", "B")
    state.add_mapped_tasklet("t", {"i": (0, K - 1, 1)}, {"a": dace.Memlet("A[i]")}, "b = a * K + i", {"b": dace.Memlet("B[i]")}, external_edges=True)
    a, b = np.arange(5, dtype=np.float32), np.zeros(5, np.float32)
    sdfg(A=a, B=b, K=3)
    assert (b == [0, 4, 8, 0, 0]).all() and set(sdfg.symbols) == {"N", "K"}


def test_a_part_is_copied_to_another_place():
    sdfg, state = vectors("A", "B", extent=6)
    state.add_edge(state.add_read("A"), None, state.add_write("B"), None, dace.Memlet("A[0:3] -> [2:5]"))
    a, b = np.arange(1, 7, dtype=np.float32), np.zeros(6, np.float32)
    sdfg(A=a, B=b)
    assert (b == [0, 0, 1, 2, 3, 0]).all()


def test_a_map_gets_other_ranges():
    sdfg, state = vectors("A", "B", extent=6)
    _, entry, _ = state.add_mapped_tasklet("t", {"i": "0:6"}, {"a": dace.Memlet("A[i]")}, "b = a", {"b": dace.Memlet("B[i]")}, external_edges=True)
    a, b = np.arange(1, 7, dtype=np.float32), np.zeros(6, np.float32)
    entry.map.range = dace.subsets.Range([(2, 5, 3)])
    sdfg(A=a, B=b)
    assert (b == [0, 0, 3, 0, 0, 6]).all() and str(entry.map) == "t_map[i=2:6:3]"


@pytest.mark.parametrize("build, says", [
    (lambda sdfg, s: s.add_edge(s.add_read("A"), None, s.add_write("Z"), None, dace.Memlet("A[0:4]")), "Z"),
    (lambda sdfg, s: s.add_mapped_tasklet("t", {"i": "0:4"}, {"a": dace.Memlet("A[i, i]")}, "b = a", {"b": dace.Memlet("B[i]")}, external_edges=True), "A"),
    (lambda sdfg, s: s.add_mapped_tasklet("t", {"i": "0:5"}, {"a": dace.Memlet("A[i]")}, "b = a", {"b": dace.Memlet("B[i]")}, external_edges=True), "A|B"),
    (lambda sdfg, s: s.add_tasklet("lonely", {"a"}, {"b"}, "b = a"), "lonely"),
    (lambda sdfg, s: s.add_mapped_tasklet("t", {"i": "0:4"}, {"a": dace.Memlet("A[i]")}, "b = a + nowhere", {"b": dace.Memlet("B[i]")}, external_edges=True), "nowhere"),
    (lambda sdfg, s: s.add_edge(s.add_read("A"), None, s.add_tasklet("t", ["a"], ["b"], "b = a"), "c", dace.Memlet("A[0]")), "'c'|t"),
])
def test_what_is_wrong_is_named(build, says):
    sdfg, state = vectors("A", "B", extent=4)
    with pytest.raises(dcml.Error, match=says):
        build(sdfg, state)
        sdfg.validate()


def test_wrong_uses_are_refused_at_once():
    sdfg, state = vectors("A", "B")
    other = sdfg.add_state("other")
    read = state.add_read("A")
    with pytest.raises(dcml.ValueError_, match=r"AccessNode\(A\) is in another state, 'main'"):
        other.add_edge(read, None, other.add_write("B"), None, dace.Memlet("A[0]"))
    with pytest.raises(dcml.ValueError_, match="is no memlet"):
        state.add_edge(read, None, state.add_write("B"), None, "A[0]")
    with pytest.raises(dcml.ValueError_, match="line 1: 'b ='"):
        state.add_tasklet("t", ["a"], ["b"], "b = ")
    with pytest.raises(dcml.DeviceError, match="MPI"):
        state.add_map("m", {"i": "0:N"}, schedule=dace.ScheduleType.MPI)
    with pytest.raises(dcml.ValueError_, match="parameter 'i' has 2 ranges"):
        state.add_map("m", {"i": "0:N, 0:N"})
    with pytest.raises(dcml.ValueError_, match="3 is no node"):
        state.add_node(3)
    with pytest.raises(dcml.UnsupportedOpError, match="expected Python"):
        state.add_tasklet("t", [], ["b"], "b = 1", language="CPP")


def test_two_thousand_nodes_are_built_at_once():
    import time
    sdfg, state = vectors("A")
    began = time.thread_time()
    last = state.add_access("A")
    for k in range(500):
        sdfg.add_transient(f"T{k}", (N,), dace.float32)
        node = state.add_access(f"T{k}")
        state.add_mapped_tasklet(f"t{k}", {"i": "0:N"}, {"a": dace.Memlet(f"{last.data}[i]")}, "b = a + 1", {"b": dace.Memlet(f"T{k}[i]")},
                                 external_edges=True, input_nodes={last.data: last}, output_nodes={f"T{k}": node})
        last = node
    assert len(state.nodes()) == 2001 and len(state.edges()) == 2000
    assert sum(state.in_degree(node) for node in state.nodes()) == 2000
    assert time.thread_time() - began < 1


def test_simplify_joins_states_and_drops_copies_and_arrays():
    sdfg, state = vectors("A", "B")
    for name in ("T", "U", "unused"):
        sdfg.add_transient(name, (N,), dace.float32)
    state.add_mapped_tasklet("one", {"i": "0:N"}, {"a": dace.Memlet("A[i]")}, "t = a + 1", {"t": dace.Memlet("T[i]")}, external_edges=True)
    middle = sdfg.add_state("middle")
    middle.add_edge(middle.add_read("T"), None, middle.add_write("U"), None, dace.Memlet("T"))
    last = sdfg.add_state("last")
    last.add_mapped_tasklet("two", {"i": "0:N"}, {"u": dace.Memlet("U[i]")}, "b = u * 2", {"b": dace.Memlet("B[i]")}, external_edges=True)
    a, b = np.random.rand(2, 5).astype(np.float32)
    sdfg(A=a, B=b)
    np.testing.assert_allclose(b, (a + 1) * 2, rtol=1e-6)
    sdfg.simplify()
    assert sdfg.nodes() == [state] and set(sdfg.arrays) in ({"A", "B", "T"}, {"A", "B", "U"}) and "unused" not in str(sdfg)
    assert sum(node.kind == "entry" for node in state.nodes()) == 2
    with pytest.raises(dcml.ValueError_, match="'last' is gone"):
        last.nodes()
    b[:] = 0
    sdfg(A=a, B=b)
    np.testing.assert_allclose(b, (a + 1) * 2, rtol=1e-6)


@pytest.mark.parametrize("shape, axes", [((3, 4), None), ((1, 4), [0, 1]), ((1, 4), [1]), ((4, 1), [0]), ((4,), [0])])
def test_a_reduction_of_all_fills_an_array_of_one_element(shape, axes):
    sdfg, state = vectors("A", extent=shape)
    sdfg.add_array("B", (1,), dace.float32)
    node = state.add_reduce("lambda x, y: x + y", axes)
    state.add_edge(state.add_read("A"), None, node, None, sdfg.make_array_memlet("A"))
    state.add_edge(node, None, state.add_write("B"), None, sdfg.make_array_memlet("B"))
    a, b = np.arange(np.prod(shape), dtype=np.float32).reshape(shape), np.zeros(1, np.float32)
    sdfg(A=a, B=b)
    assert b == a.sum()


def test_extents_of_one_stay_dimensions_of_operators():
    onnx_nodes = pytest.importorskip("dcml.onnx")
    sdfg, state = vectors("A", extent=(3, 4))
    sdfg.add_array("B", (3, 1), dace.float32)
    node = onnx_nodes.ONNXReduceSum("sum", axes=[1], keepdims=1)
    state.add_node(node)
    state.add_edge(state.add_read("A"), None, node, "data", sdfg.make_array_memlet("A"))
    state.add_edge(node, "reduced", state.add_write("B"), None, sdfg.make_array_memlet("B"))
    a, b = np.arange(12, dtype=np.float32).reshape(3, 4), np.zeros((3, 1), np.float32)
    sdfg(A=a, B=b)
    np.testing.assert_array_equal(b, a.sum(1, keepdims=True))


@pytest.mark.parametrize("shape, part", [((1, 4), "i, 0, 0:4"), ((4, 1), "i, 0:4, 0"), ((4,), "i, 0, 0:4"), ((1, 4, 1), "i, 0:4, 0")])
def test_extents_of_one_stay_dimensions_of_nested_sdfgs(shape, part):
    outer_shape = (2, 1, 4) if part.endswith("4") else (2, 4, 1)
    inner = dace.SDFG("inner")
    for name in "xy":
        inner.add_array(name, shape, dace.float32)
    index = ", ".join("k" if extent == 4 else "0" for extent in shape)
    inner.add_state().add_mapped_tasklet("t", {"k": "0:4"}, {"a": dace.Memlet(f"x[{index}]")}, "b = 2 * a", {"b": dace.Memlet(f"y[{index}]")},
                                         external_edges=True)
    sdfg, state = vectors("A", "B", extent=outer_shape)
    entry, exit = state.add_map("rows", {"i": "0:2"})
    node = state.add_nested_sdfg(inner, sdfg, {"x"}, {"y"})
    state.add_memlet_path(state.add_read("A"), entry, node, dst_conn="x", memlet=dace.Memlet(f"A[{part}]"))
    state.add_memlet_path(node, exit, state.add_write("B"), src_conn="y", memlet=dace.Memlet(f"B[{part}]"))
    a, b = np.arange(8, dtype=np.float32).reshape(outer_shape), np.zeros(outer_shape, np.float32)
    sdfg(A=a, B=b)
    np.testing.assert_array_equal(b, 2 * a)


def test_strict_transformations_are_simplify():
    sdfg = dace.SDFG("strict")
    sdfg.add_array("A", [4], dace.float32)
    sdfg.add_transient("t", [4], dace.float32)
    sdfg.add_array("B", [4], dace.float32)
    first = sdfg.add_state()
    first.add_edge(first.add_read("A"), None, first.add_write("t"), None, dace.Memlet("A[0:4]"))
    second = sdfg.add_state_after(first)
    second.add_edge(second.add_read("t"), None, second.add_write("B"), None, dace.Memlet("t[0:4]"))
    sdfg.apply_strict_transformations()
    assert len(sdfg.nodes()) == 1 and "t" not in sdfg.arrays
    b = np.zeros(4, np.float32)
    sdfg(A=np.arange(4, dtype=np.float32), B=b)
    assert b.tolist() == [0, 1, 2, 3]

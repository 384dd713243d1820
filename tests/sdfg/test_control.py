"""Loops and branches between states."""
import numpy as np
import pytest

import dcml as dace
from dcml import InterstateEdge, Memlet

N = dace.symbol("N")


def step(state, code, read="A[i]", write="A[i]"):
    """A tasklet of a and the symbols, that writes b."""
    tasklet = state.add_tasklet("step", {"a"}, {"b"}, code)
    state.add_edge(state.add_read(read[0]), None, tasklet, "a", Memlet(read))
    state.add_edge(tasklet, "b", state.add_write(write[0]), None, Memlet(write))


def of_arrays(*shapes):
    sdfg = dace.SDFG("control")
    for name, shape in zip("ABC", shapes):
        sdfg.add_array(name, shape, dace.float64)
    return sdfg


def test_a_loop_by_name_runs_its_state_for_each_value():
    sdfg = of_arrays([10])
    body, before = sdfg.add_state("body"), sdfg.add_state("before")
    step(body, "b = a + i")
    assert [s.label for s in sdfg.add_loop(before, body, None, "i", "0", "i < 10", "i + 2")] == ["before", "guard", "state"]
    assert [e.data.condition for e in sdfg.edges()] == ["1", "i < 10", "not (i < 10)", "1"]
    A = np.ones(10)
    sdfg(A=A)
    np.testing.assert_array_equal(A, 1 + np.arange(10) * (np.arange(10) % 2 == 0))
    assert body.number_of_nodes()  # the map with what it held


def test_a_loop_of_edges_to_a_symbol_reads_what_it_wrote():
    sdfg = of_arrays([N])
    init, guard, body, end = (sdfg.add_state(n) for n in ("init", "guard", "body", "end"))
    step(body, "b = a * 2", "A[i-1]")
    step(end, "b = a + 1", "A[0]", "A[0]")
    sdfg.add_edge(init, guard, InterstateEdge(assignments=dict(i=1)))
    sdfg.add_edge(guard, body, InterstateEdge("i < N"))
    sdfg.add_edge(body, guard, InterstateEdge(assignments=dict(i="i + 1")))
    sdfg.add_edge(guard, end, InterstateEdge("i >= N"))
    A = np.ones(6)
    sdfg(A=A)
    np.testing.assert_array_equal(A, [2, 2, 4, 8, 16, 32])


@pytest.mark.parametrize("condition, by, expected", [("i >= 0", 1, range(5, -1, -1)), ("i > 0", 2, range(5, 0, -2))], ids=["all", "odd"])
def test_a_loop_may_count_down(condition, by, expected):
    sdfg = of_arrays([7])
    body = sdfg.add_state("body")
    step(body, "b = a + 1", "A[i + 1]", "A[i]")
    sdfg.add_loop(None, body, None, "i", "5", condition, f"i - {by}")
    A, wanted = np.zeros(7), np.zeros(7)
    for i in expected:
        wanted[i] = wanted[i + 1] + 1
    sdfg(A=A)
    assert A.tolist() == wanted.tolist()


def test_loops_in_loops_with_several_states():
    sdfg = of_arrays([3, 4], [3])
    first, inner, last = (sdfg.add_state(n) for n in ("first", "inner", "last"))
    step(first, "b = i", "B[i]", "B[i]")
    step(inner, "b = a * 10 + j", "B[i]", "A[i, j]")
    step(last, "b = a + 0.5", "A[i, 3]", "B[i]")
    _, _, after = sdfg.add_loop(first, inner, last, "j", "0", "j <= 3", "j + 1")
    sdfg.add_loop(None, first, None, "i", "0", "i < 3", "i + 1", loop_end_state=after)
    A, B = np.zeros((3, 4)), np.zeros(3)
    sdfg(A=A, B=B)
    np.testing.assert_array_equal(A, np.arange(3)[:, None] * 10 + np.arange(4))
    np.testing.assert_array_equal(B, A[:, 3] + 0.5)


@pytest.mark.parametrize("yes, no", [("k > 3", "k <= 3"), ("k > 3 and k < 9", "not (k > 3 and k < 9)"), ("k == 5", "k != 5")])
def test_a_branch_on_a_symbol(yes, no):
    sdfg = of_arrays([2])
    sdfg.add_symbol("k", dace.int64)
    start, a, b, end = (sdfg.add_state(n) for n in ("start", "a", "b", "end"))
    step(a, "b = 1", "A[0]", "A[0]")
    step(b, "b = 2", "A[0]", "A[0]")
    step(end, "b = a * 10", "A[0]", "A[1]")
    for u, v, condition in (start, a, yes), (start, b, no), (a, end, None), (b, end, None):
        sdfg.add_edge(u, v, InterstateEdge(condition))
    for k, value in (5, 1), (2, 2):
        A = np.zeros(2)
        sdfg(A=A, k=k)
        assert A.tolist() == [value, 10 * value]


def test_a_branch_in_a_loop_asks_data_before_either_way_changes_it():
    sdfg = of_arrays([6])
    start, a, b, end = (sdfg.add_state(n) for n in ("start", "a", "b", "end"))
    step(a, "b = a - 1")
    step(b, "b = a + 100")
    sdfg.add_edge(start, a, InterstateEdge("2 * A[i] > 1"))
    sdfg.add_edge(start, b, InterstateEdge("not 2 * A[i] > 1"))
    sdfg.add_edge(a, end)
    sdfg.add_edge(b, end)
    sdfg.add_loop(None, start, None, "i", "0", "i < 6", "i + 1", loop_end_state=end)
    A = np.random.default_rng(0).random(6)
    wanted = np.where(A > 0.5, A - 1, A + 100)
    sdfg(A=A)
    np.testing.assert_allclose(A, wanted)


def test_an_assigned_symbol_has_its_value_in_what_follows():
    sdfg = of_arrays([4])
    first, second = sdfg.add_state("first"), sdfg.add_state("second")
    step(second, "b = k", "A[0]", "A[k]")
    sdfg.add_edge(first, second, InterstateEdge(assignments={"k": "1 + 2"}))
    A = np.zeros(4)
    sdfg(A=A)
    assert A.tolist() == [0, 0, 0, 3]


def test_control_flow_is_saved_differentiated_and_nested(tmp_path):
    from dcml.autodiff import add_backward_pass
    sdfg = of_arrays([4])
    body = sdfg.add_state("body")
    step(body, "b = a * a", "A[i]", "A[i + 1]")
    sdfg.add_loop(None, body, None, "i", "0", "i < 3", "i + 1")
    sdfg.save(tmp_path / "loop.sdfg")
    A = np.array([1.1, 0, 0, 0])
    dace.SDFG.from_file(tmp_path / "loop.sdfg")(A=A)
    np.testing.assert_allclose(A, 1.1 ** np.array([1, 2, 4, 8]))
    outer = dace.SDFG("outer")
    outer.add_array("X", [2, 4], dace.float64)
    state = outer.add_state()
    entry, exit = state.add_map("rows", dict(r="0:2"))
    nested = state.add_nested_sdfg(dace.SDFG.from_file(tmp_path / "loop.sdfg"), outer, {"A"}, {"A"})
    state.add_memlet_path(state.add_read("X"), entry, nested, dst_conn="A", memlet=Memlet("X[r, 0:4]"))
    state.add_memlet_path(nested, exit, state.add_write("X"), src_conn="A", memlet=Memlet("X[r, 0:4]"))
    X = np.array([[1.1, 0, 0, 0], [0.9, 0, 0, 0]])
    outer(X=X)
    np.testing.assert_allclose(X, X[:, :1] ** np.array([1, 2, 4, 8]))
    sdfg.validate()
    add_backward_pass(sdfg, body, ["A"], ["A"])
    A, dA = np.array([1.1, 0, 0, 0]), np.array([0., 0, 0, 1])
    sdfg(A=A, gradient_A=dA)
    np.testing.assert_allclose(dA[0], 8 * 1.1 ** 7)


def circle(condition, assignments, back):
    sdfg = of_arrays([4])
    init, guard, body, end = (sdfg.add_state(n) for n in ("init", "guard", "body", "end"))
    step(body, "b = a + 1", "A[0]", "A[0]")
    sdfg.add_edge(init, guard, InterstateEdge(assignments=assignments))
    sdfg.add_edge(guard, body, InterstateEdge(condition))
    sdfg.add_edge(guard, end, InterstateEdge(f"not ({condition})"))
    sdfg.add_edge(body, guard, InterstateEdge(assignments=back))
    return sdfg


@pytest.mark.parametrize("condition, assignments, back", [
    ("i < A[0]", {"i": 0}, {"i": "i + 1"}), ("A[0] < 3", {}, {}), ("i < 3", {"i": 0}, {"i": "2 * i"}), ("i < 3", {}, {"i": "i + 1"}), ("i > 3", {"i": 0}, {"i": "i + 1"})],
    ids=["bound", "data", "doubling", "unset", "backwards"])
def test_loops_that_do_not_count_are_refused_by_name(condition, assignments, back):
    with pytest.raises(dace.UnsupportedOpError, match="state 'guard': the loop while .* does not count"):
        circle(condition, assignments, back).validate()


def test_other_edges_are_refused_by_name():
    sdfg = of_arrays([4])
    a, b, c = (sdfg.add_state(n) for n in "abc")
    sdfg.add_edge(a, b, InterstateEdge("k > 1"))
    with pytest.raises(dace.UnsupportedOpError, match="state 'a': its only edge has a condition, 'k > 1'"):
        sdfg.validate()
    sdfg.add_edge(a, c, InterstateEdge("k < 1"))
    with pytest.raises(dace.UnsupportedOpError, match="'k > 1', 'k < 1'; expected one and its opposite"):
        sdfg.validate()
    with pytest.raises(dace.ValueError_, match="'i <' on an edge between states is no expression"):
        sdfg.add_edge(b, c, InterstateEdge("i <"))

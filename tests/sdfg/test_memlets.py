"""Subsets and memlets."""
import pytest

import dcml
import dcml as dace
from dcml.sdfg import Memlet, Range
from dcml.sdfg.nodes import AccessNode

N = dace.symbol("N")


def test_a_memlet_is_an_array_a_subset_and_a_wcr():
    memlet = dace.Memlet("A[0:5, i]", wcr="lambda x, y: x + y")
    assert memlet.data == "A" and memlet.subset == "0:5, i" and memlet.wcr == "lambda x, y: x + y"
    assert memlet.num_elements() == 5 and memlet.size() == [5, 1] and not memlet.is_empty()
    assert memlet == Memlet(data="A", subset=Range([(0, 4, 1), ("i", "i", 1)]), wcr="lambda a, b: b + a")
    assert memlet == Memlet.simple("A", "0:5, i", wcr_str="lambda x, y: x + y") == Memlet.simple(AccessNode("A"), "0:5,i", "lambda p, q: p+q")
    assert str(memlet) == "A[0:5, i] (sum)" and repr(Memlet()) == "Memlet((nothing))"


@pytest.mark.parametrize("text, name", [("lambda x, y: x + y", "sum"), ("lambda a, b: b * a", "prod"), ("lambda x, y: min(x, y)", "min"),
                                        ("lambda x, y: max(y, x)", "max"), (lambda x, y: x * y, "prod"), (max, "max")])
def test_four_ways_to_combine(text, name):
    assert Memlet("A[i]", wcr=text)._core_form(None) == ("A", "i", name, None)


@pytest.mark.parametrize("wrong", ["lambda x, y: x - y", "lambda x: x", "x + y", "lambda x, y: x + x", 3, "(", lambda x, y: x - y, lambda x: x,
                                   "lambda x, y: f(x, y)"])
def test_other_ways_to_combine_are_refused(wrong):
    with pytest.raises(dcml.ValueError_, match="wcr"):
        Memlet("A[i]", wcr=wrong)


def test_ranges_include_their_last_element_as_in_dace():
    subset = Range.from_string("0:N, i, 2:8:3")
    assert subset.ranges == [(0, N - 1, 1), ("i", "i", 1), (2, 7, 3)]
    assert subset.size() == [N, 1, 2] and subset.num_elements() == 2 * N and len(subset) == subset.dims() == 3
    assert subset.min_element() == [0, "i", 2] and subset.max_element() == [N - 1, "i", 7] and subset.strides() == [1, 1, 3]
    assert str(subset) == "0:N, i, 2:8:3" and subset.subs({"N": 4}).size()[0] == 4 and subset.free_symbols == {"N", "i"}
    assert Range.from_array(dace.float32[N, 3]) == "0:N, 0:3" and Memlet.from_array("A", dace.float32[2]).subset == "0:2"


def test_ends_that_are_left_out_are_the_arrays():
    assert Memlet("A[:, 1:]")._core_form(lambda name: (3, N)) == ("A", "0:3, 1:N", "", None)
    assert Memlet("A")._core_form(None) == ("A", None, "", None)
    with pytest.raises(dcml.ShapeError, match="open ends"):
        Memlet("A[:]").subset


def test_an_element_of_a_scalar_may_be_its_first():
    assert Memlet("s[0]")._core_form(lambda name: ()) == ("s", "", "", None) and Memlet("s[0]")._core_form(lambda name: (3,)) == ("s", "0", "", None)


def test_subsets_of_many_forms_are_read():
    assert Range.from_string("i + 1 : i + N + 1").num_elements() == N
    assert Range.from_string("b[i], 0:3").size() == [1, 3]  # the core may tell of indices that are read
    assert Memlet("A(1)[i]").subset == "i" and Memlet("A[-i + 4]").subset == "4 - i" and Memlet("A[int_ceil(N, 2)]").num_elements() == 1
    assert Memlet(data="A", subset=[(0, 3), "i"]).subset == "0:4, i"


@pytest.mark.parametrize("wrong", ["A[", "[0]", "A]0[", "A[0:1:2:3]", "A[0:5:-1]", "A[1 +]", 3, "A[lambda: 0]b", "A[" + "(" * 400 + "]", "A[0] -> B[1"])
def test_what_is_no_memlet_is_refused(wrong):
    with pytest.raises(dcml.Error):
        Memlet(wrong)._core_form(lambda name: ())


def test_a_subset_without_an_array_is_refused():
    with pytest.raises(dcml.ValueError_, match="names no array"):
        Memlet(subset="0")
    with pytest.raises(dcml.ValueError_, match="is given data or subset too"):
        Memlet("A[0]", subset="0")


def test_copies_of_a_memlet_are_on_no_edge():
    import copy
    sdfg = dace.SDFG("copies")
    state = sdfg.add_state()
    edge = state.add_edge(state.add_array("A", (4,), dace.float32), None, state.add_array("B", (4,), dace.float32), None, Memlet("A[0:2] -> [2:4]"))
    memlet = copy.deepcopy(edge.data)
    assert memlet == edge.data
    memlet.subset = "1:3"
    assert edge.data.subset == "0:2" and edge.data.other_subset == "2:4"
    edge.data.subset = "1:3"
    assert edge.data.subset == "1:3" and "A[1:3] -> [2:4]" in repr(state.edges()[0])
    with pytest.raises(AttributeError):
        edge.src = None

"""Transformations written in Python."""
import numpy as np
import pytest

from chain import CHAIN

import dcml
from dcml import _core
from dcml.sdfg import SDFG, nodes, utils
from dcml.transformation import (MapFusion, PatternNode, SingleStateTransformation, TaskletFusion)


def chain():
    return SDFG(_core.parse(CHAIN))


def run(sdfg):
    return _core.Function(sdfg.graph)(np.arange(4, dtype=np.float32))[0]


class Sequential(SingleStateTransformation):
    """The simple form: tried on every node."""

    def can_be_applied(self, state, node):
        return node.kind == "entry" and node.map.schedule != dcml.dtypes.ScheduleType.Sequential

    def apply(self, state, node):
        node.map.schedule = dcml.dtypes.ScheduleType.Sequential


class Between(SingleStateTransformation):
    """DaCe's form: a chain of pattern nodes."""
    map_exit = PatternNode(nodes.MapExit)
    array = PatternNode(nodes.AccessNode)
    map_entry = PatternNode(nodes.MapEntry)
    seen = []
    prefix = "between"

    @classmethod
    def expressions(cls):
        return [utils.node_path_graph(cls.map_exit, cls.array, cls.map_entry)]

    def can_be_applied(self, state, expr_index, sdfg, permissive=False):
        return expr_index == 0 and self.array.desc(sdfg).transient

    def apply(self, state, sdfg):
        self.seen.append((self.prefix, self.array.data, self.map_entry.map.params))


def test_a_simple_one_is_tried_on_every_node():
    sdfg = chain()
    assert sdfg.apply_transformations_repeated(Sequential) == 2
    assert str(sdfg).count("sequential i in 0:N") == 2
    np.testing.assert_array_equal(run(sdfg), [2, 4, 6, 8])


def test_patterns_are_chains_of_nodes():
    sdfg = chain()
    Between.seen = []
    assert sdfg.apply_transformations(Between, {"prefix": "here"}) == 1
    assert Between.seen == [("here", "t", ["i"])]
    assert sdfg.apply_transformations(MapFusion) == 1 and sdfg.apply_transformations(Between) == 0


def test_apply_to_takes_the_nodes_of_one_match():
    sdfg = chain()
    first, second = (node for node in sdfg.node(0).nodes() if node.kind == "entry")
    assert Sequential.apply_to(sdfg, second) == 1 and str(sdfg).count("sequential") == 1
    with pytest.raises(dcml.ValueError_, match="Sequential does not match MapEntry"):
        Sequential.apply_to(sdfg, second)
    assert Sequential.apply_to(sdfg, second, verify=False) == 0
    Between.seen = []
    exits = [node for node in sdfg.node(0).nodes() if node.kind == "exit"]
    assert Between.apply_to(sdfg, map_exit=exits[0]) == 1
    with pytest.raises(dcml.ValueError_, match="Between does not match"):
        Between.apply_to(sdfg, map_exit=exits[1])


def test_what_an_own_one_builds_is_fused_by_those_of_the_core():
    class AddOne(SingleStateTransformation):
        def can_be_applied(self, state, node):
            return node.kind == "tasklet" and "100" not in node.code

        def apply(self, state, node):
            node.code = f"{list(node.out_connectors)[0]} = {list(node.in_connectors)[0]} + 100"

    sdfg = chain()
    assert sdfg.apply_transformations([AddOne, MapFusion, TaskletFusion]) == 4
    np.testing.assert_array_equal(run(sdfg), np.arange(4) + 200)


def test_chains_by_the_number_of_parameters():
    found = []

    class Pairs(SingleStateTransformation):
        def can_be_applied(self, state, first, second):
            return first.kind == "access" and second.kind == "entry"

        def apply(self, state, first, second):
            found.append(first.data)

    assert chain().apply_transformations(Pairs) == 2 and found == ["A", "t"]


def test_options_that_are_not_there_and_missing_methods_are_errors():
    sdfg = chain()
    with pytest.raises(dcml.ValueError_, match="Between has no option 'size'; there are.*prefix"):
        sdfg.apply_transformations(Between, {"size": 1})
    with pytest.raises(NotImplementedError, match="has no apply"):
        sdfg.apply_transformations(type("Empty", (SingleStateTransformation,), {}))


def test_inlined_graphs_are_counted():
    from dcml.transformation import InlineSDFG
    inner, outer = SDFG("inner"), SDFG("outer")
    for sdfg in (inner, outer):
        sdfg.add_array("A", [4], dcml.float32)
        sdfg.add_array("B", [4], dcml.float32)
    state = inner.add_state("s")
    state.add_mapped_tasklet("double", {"i": "0:4"}, {"a": dcml.Memlet("A[i]")}, "b = a * 2", {"b": dcml.Memlet("B[i]")}, external_edges=True)
    state = outer.add_state("s")
    node = state.add_nested_sdfg(inner, outer, {"A"}, {"B"})
    state.add_edge(state.add_read("A"), None, node, "A", dcml.Memlet("A[0:4]"))
    state.add_edge(node, "B", state.add_write("B"), None, dcml.Memlet("B[0:4]"))
    assert outer.apply_transformations_repeated(InlineSDFG) == 1
    assert all(n.kind != "nested" for n in outer.node(0).nodes())
    b = np.zeros(4, np.float32)
    outer(A=np.ones(4, np.float32), B=b)
    np.testing.assert_array_equal(b, [2, 2, 2, 2])


def test_a_parameter_becomes_a_constant_of_the_graph():
    import torch
    from dcml.pytorch import DaceModule
    from dcml.transformation import parameter_to_transient
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())
    compiled, roles = DaceModule(module), []

    def hook(hooked):
        parameter_to_transient(hooked, "0.weight")
        assert hooked.sdfg.arrays["0.weight"].transient and not hooked.sdfg.arrays["0.bias"].transient
        roles.append((hooked.sdfg.arrays["0.weight"].role, list(hooked.sdfg.graph.params)))
        with pytest.raises(dcml.ValueError_, match="no parameter 'w'; there are 0.bias"):
            parameter_to_transient(hooked, "w")

    compiled.append_post_onnx_hook("weights", hook)
    x = torch.rand(4, 3)
    torch.testing.assert_close(compiled(x), module(x))
    assert roles == [("const", ["0.bias"])]

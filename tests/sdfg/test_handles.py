"""SDFG handles on core graphs."""
import numpy as np
import pytest
import torch

import dcml
from dcml import _core
from dcml.library import change_default
from dcml.pytorch import DaceModule
from dcml.sdfg import SDFG
from dcml.sdfg.nodes import LibraryNode
from dcml.util import utils


def sdfg():
    graph = _core.Graph("g", 21)
    x = graph.add_input("x", 1, ["n", 3])
    two = graph.add_const("two", np.float32([2, 2, 2]))
    y, = graph.add_node("Mul", [x, two], ["y"], {}, "", "double")
    z, = graph.add_node("Relu", [y], ["z"], {})
    graph.mark_output(z)
    return SDFG(graph)


def operators(state):
    return [node for node in state.nodes() if isinstance(node, LibraryNode)]


def test_arrays_and_nodes_are_those_of_the_graph():
    handle = sdfg()
    assert handle.name == "g" and str(handle) == handle.graph.text()
    assert handle.arrays["x"].shape == ("n", 3) and not handle.arrays["x"].transient
    assert handle.arrays["y"].transient
    state = handle.node(0)
    mul, relu = operators(state)
    assert (mul.op, mul.label, relu.op) == ("Mul", "double", "Relu")
    assert [n.data for n in state.predecessors(mul)] == ["x", "two"] and [n.data for n in state.successors(relu)] == ["z"]


def test_saved_text_is_read_back(tmp_path):
    handle = sdfg()
    handle.save(tmp_path / "g.sdfg")
    assert str(SDFG.from_file(tmp_path / "g.sdfg")) == str(handle)
    handle.save(tmp_path / "g.onnx")
    again = SDFG.from_file(tmp_path / "g.onnx")
    assert [n.op for n in operators(again.node(0))] == ["Mul", "Relu"]
    (tmp_path / "bad.sdfg").write_text("graph {")
    with pytest.raises(dcml.Error):
        SDFG.from_file(tmp_path / "bad.sdfg")


def test_operators_expand_to_maps_and_still_compute():
    handle = sdfg()
    handle.expand_library_nodes()
    assert {n.kind for n in handle.node(0).nodes()} == {"access", "entry", "exit", "tasklet"}
    x = np.float32([[1, -1, 2]])
    result, = _core.Function(handle.graph)(x)
    np.testing.assert_array_equal(result, [[2, 0, 4]])


def test_a_reduction_begins_at_its_identity_whatever_schedule_is_asked_for():
    sdfg = dcml.SDFG("columns")
    sdfg.add_array("A", [5, 3], dcml.float64)
    sdfg.add_array("B", [9], dcml.float64)
    state = sdfg.add_state()
    node = state.add_reduce("lambda a, b: a + b", [0], 0)
    state.add_nedge(state.add_read("A"), node, dcml.Memlet("A[0:5, 0:3]"))
    state.add_nedge(node, state.add_write("B"), dcml.Memlet("B[4:7]"))
    sdfg.expand_library_nodes()
    for found, _ in sdfg.all_nodes_recursive():
        if isinstance(found, dcml.nodes.MapEntry):
            found.map.schedule = dcml.ScheduleType.Sequential
    assert " reduce k in " in str(sdfg)
    a, b = np.arange(15.0).reshape(5, 3), np.ones(9)
    sdfg(A=a, B=b)
    np.testing.assert_array_equal(b, [1, 1, 1, 1, *a.sum(0), 1, 1])


def test_auto_optimize_keeps_the_meaning():
    handle = sdfg()
    utils.auto_optimize(handle, apply_strict=True)
    result, = _core.Function(handle.graph)(np.float32([[1, -1, 2]]))
    np.testing.assert_array_equal(result, [[2, 0, 4]])


def test_change_default_is_undone():
    from dcml import onnx
    before = onnx.default_implementation
    with pytest.raises(KeyError):
        with change_default(onnx, "pure"):
            assert onnx.default_implementation == "pure"
            raise KeyError
    assert onnx.default_implementation == before


def test_change_default_decides_who_serves():
    from dcml import onnx
    x = torch.rand(5, 7)

    def kinds(implementation):
        with change_default(onnx, implementation):
            module = DaceModule(torch.nn.Linear(7, 3))
            torch.testing.assert_close(module(x), module.model(x))
        return {node.kind for node in module.forward_sdfg.node(0).nodes()} & {"entry", "library"}

    assert kinds("pure") == {"entry"}
    for library in ("onednn", "openblas", "native"):
        assert kinds(library) in ({"entry"}, {"library"})  # where the library is there, it serves
    assert kinds("no such implementation") == kinds("native")


def test_a_model_and_a_module_have_one_sdfg():
    proto = SDFG.from_json(sdfg().to_json()).graph.to_onnx()
    model = dcml.ONNXModel("named", proto)
    assert model.sdfg is model.sdfg and model.sdfg.name == "named" and model.state is model.sdfg.node(0)
    assert model.state.nodes()[0] is model.state.nodes()[0]
    module = DaceModule(torch.nn.Linear(2, 3), dummy_inputs=(torch.ones(1, 2),))
    assert module.sdfg is module.sdfg and module.sdfg.node(0) is module.sdfg.node(0)


def test_a_model_runs_as_its_sdfg_says():
    model = dcml.ONNXModel("changed", sdfg().graph.to_onnx())
    x = np.float32([[1, -1, 2]])
    np.testing.assert_array_equal(model(x), [[2, 0, 4]])
    state = model.sdfg.node(0)
    relu = operators(state)[1]
    before, after = state.in_edges(relu)[0], state.out_edges(relu)[0]
    state.remove_node(relu)
    state.add_edge(before.src, None, after.dst, None, model.sdfg.make_array_memlet("y"))
    np.testing.assert_array_equal(model(x), [[2, -2, 4]])


def test_hooks_may_edit_nodes_and_see_what_was_compiled():
    class Twice(torch.nn.Module):
        def forward(self, x):
            return x + x

    module, seen = DaceModule(Twice()), []

    def minus(module):
        module.sdfg.expand_library_nodes()
        tasklet, = [n for n in module.sdfg.node(0).nodes() if n.kind == "tasklet"]
        (first, *_), output = tasklet.in_connectors, next(iter(tasklet.out_connectors))
        tasklet.code = f"{output} = -{first}"

    module.append_post_onnx_hook("minus", minus)
    module.append_post_compile_hook("look", seen.append)
    x = torch.rand(3, 4)
    torch.testing.assert_close(module(x), -x)
    compiled, = seen
    assert compiled.sdfg.name == "dace_model" and compiled.sdfg.node(0).nodes()
    torch.testing.assert_close(torch.as_tensor(compiled(x)), -x)

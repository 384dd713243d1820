"""SDFG handles on core graphs."""
import numpy as np
import pytest
import torch

import dcml
from dcml import _core
from dcml.library import change_default
from dcml.pytorch import DaceModule
from dcml.sdfg import SDFG
from dcml.util import utils


def sdfg():
    graph = _core.Graph("g", 21)
    x = graph.add_input("x", 1, ["n", 3])
    two = graph.add_const("two", np.float32([2, 2, 2]))
    y, = graph.add_node("Mul", [x, two], ["y"], {}, "", "double")
    z, = graph.add_node("Relu", [y], ["z"], {})
    graph.mark_output(z)
    return SDFG(graph)


def test_arrays_and_nodes_are_those_of_the_graph():
    handle = sdfg()
    assert handle.name == "g" and str(handle) == handle.graph.text()
    assert handle.arrays["x"].shape == ("n", 3) and not handle.arrays["x"].transient
    assert handle.arrays["y"].transient
    state = handle.node(0)
    assert [n.label.split("@")[0] for n in state.nodes()] == ["Mul", "Relu"]
    assert state.node(0).reads == ("x", "two") and state.node(1).writes == ("z",)
    assert all(n.kind == "library" for n in state.nodes())


def test_saved_text_is_read_back(tmp_path):
    handle = sdfg()
    handle.save(tmp_path / "g.sdfg")
    assert str(SDFG.from_file(tmp_path / "g.sdfg")) == str(handle)
    handle.save(tmp_path / "g.onnx")
    again = SDFG.from_file(tmp_path / "g.onnx")
    assert [n.label.split("@")[0] for n in again.node(0).nodes()] == ["Mul", "Relu"]
    (tmp_path / "bad.sdfg").write_text("graph {")
    with pytest.raises(dcml.Error):
        SDFG.from_file(tmp_path / "bad.sdfg")


def test_operators_expand_to_maps_and_still_compute():
    handle = sdfg()
    handle.expand_library_nodes()
    assert all(n.kind == "map" for n in handle.node(0).nodes())
    x = np.float32([[1, -1, 2]])
    result, = _core.Function(handle.graph)(x)
    np.testing.assert_array_equal(result, [[2, 0, 4]])


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
        return {node.kind for node in module.forward_sdfg.node(0).nodes()}

    assert kinds("pure") == {"map"}
    for library in ("onednn", "openblas", "native"):
        assert kinds(library) in ({"map"}, {"library"})  # where the library is there, it serves
    assert kinds("no such implementation") == kinds("native")

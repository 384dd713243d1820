"""The manual's examples of library nodes (2.1, 2.2, 2.4, 6.1), as near to its text as can be."""
import json

import numpy as np
import pytest

import dcml as dace
import dcml.onnx as donnx
from dcml.onnx import ONNXConv, ONNXSum


@pytest.fixture(autouse=True)
def defaults(registrations):
    """What an example sets as default ends with it."""
    before = donnx.default_implementation
    yield
    donnx.default_implementation, donnx.ONNXMatMul.default_implementation = before, None


def test_attributes_are_passed_to_the_constructor():
    conv = ONNXConv("MyConvNode", strides=[2, 2])
    assert conv.strides == [2, 2]


def test_a_variadic_parameter_with_a_gap_is_invalid():
    sdfg = dace.SDFG("sums")
    state = sdfg.add_state()
    node = ONNXSum("sum")
    state.add_node(node)
    for k, name in enumerate("AB"):
        sdfg.add_array(name, (3,), dace.float32)
        node.add_in_connector(f"data_0__{2 * k}")
        state.add_edge(state.add_access(name), None, node, f"data_0__{2 * k}", sdfg.make_array_memlet(name))
    sdfg.add_array("S", (3,), dace.float32)
    state.add_edge(node, "sum", state.add_access("S"), None, sdfg.make_array_memlet("S"))
    with pytest.raises(dace.Error, match="data_0__1 is missing"):
        node.validate(sdfg, state)


def test_default_implementations_of_the_library_and_of_a_node():
    donnx.default_implementation = "pure"
    donnx.ONNXMatMul.default_implementation = "native"
    assert donnx.ONNXMatMul("m").default_implementation == "native"


def test_an_implementation_is_registered():
    from dcml.onnx.forward_implementation_abc import ONNXForward
    from dcml.onnx.op_implementations import op_implementation

    @op_implementation(op="MatMul", name="my_implementation_name")
    class MyMatMul(ONNXForward):
        @staticmethod
        def forward(node, state, sdfg):
            inner = dace.SDFG("mine")
            for name in ("A", "B", "Y"):
                inner.add_array(name, (4, 4), dace.float32)
            inside = inner.add_state()
            inside.add_mapped_tasklet("mine", {"i": "0:4", "j": "0:4", "k": "0:4"}, {
                "a": dace.Memlet("A[i, k]"), "b": dace.Memlet("B[k, j]")}, "y = a * b", {"y": dace.Memlet("Y[i, j]", wcr="lambda x, y: x + y")},
                external_edges=True)
            return inner

        @staticmethod
        def forward_can_be_applied(node, state, sdfg):
            return all(sdfg.arrays[edge.data.data].shape == (4, 4) for edge in state.in_edges(node))

    # can then be used with the library nodes
    donnx.ONNXMatMul.default_implementation = "my_implementation_name"
    a, b = np.random.rand(2, 4, 4).astype(np.float32)
    sdfg = dace.SDFG("product")
    for name in ("P", "Q", "R"):
        sdfg.add_array(name, (4, 4), dace.float32)
    state, node = sdfg.add_state(), donnx.ONNXMatMul("m")
    state.add_node(node)
    state.add_edge(state.add_read("P"), None, node, "A", sdfg.make_array_memlet("P"))
    state.add_edge(state.add_read("Q"), None, node, "B", sdfg.make_array_memlet("Q"))
    state.add_edge(node, "Y", state.add_write("R"), None, sdfg.make_array_memlet("R"))
    r = np.zeros((4, 4), np.float32)
    sdfg(P=a, Q=b, R=r)
    np.testing.assert_allclose(r, a @ b, rtol=1e-5)


@pytest.mark.parametrize("made", ["nested", "tasklet", "operator"])
def test_an_implementation_may_return_a_node_that_it_added_to_the_state(made):
    from dcml.onnx.forward_implementation_abc import ONNXForward
    from dcml.onnx.op_implementations import op_implementation

    @op_implementation(op="Neg", name="mine")
    class MyNeg(ONNXForward):
        @staticmethod
        def forward(node, state, sdfg):
            if made == "tasklet":
                return state.add_tasklet("mine", {"X"}, {"Y"}, "Y = 3 * X")
            if made == "operator":
                return state.add_node(donnx.ONNXAbs("mine"))
            inner = dace.SDFG("mine")
            for name in "XY":
                inner.add_array(name, (1,), dace.float32)
            inner.add_state().add_mapped_tasklet("mine", {"i": "0:1"}, {"x": dace.Memlet("X[i]")}, "y = 3 * x", {"y": dace.Memlet("Y[i]")},
                                                 external_edges=True)
            return state.add_nested_sdfg(inner, sdfg, {"X"}, {"Y"})

    sdfg, node = dace.SDFG("one"), donnx.ONNXNeg("n")
    for name in "AB":
        sdfg.add_array(name, (1,), dace.float32)
    state = sdfg.add_state()
    state.add_node(node)
    state.add_edge(state.add_read("A"), None, node, "X", sdfg.make_array_memlet("A"))
    state.add_edge(node, "Y", state.add_write("B"), None, sdfg.make_array_memlet("B"))
    node.implementation = "mine"
    b = np.zeros(1, np.float32)
    sdfg(A=np.full(1, 2, np.float32), B=b)
    assert b == (2 if made == "operator" else 6)


def test_schemas_are_property_classes_that_survive_json():
    from onnx import defs
    from dcml.onnx import ONNXSchema
    schema = ONNXSchema.from_onnx_proto(defs.get_schema("Conv"))
    assert ONNXSchema.from_json(json.loads(json.dumps(schema.to_json()))) == schema

"""Operators inside maps: parts of arrays, nested SDFGs, programs, gradients, implementations in Python."""
import numpy as np
import pytest

import dcml as dace
import dcml.onnx as donnx
from dcml import Memlet
from dcml.autodiff import add_backward_pass

N = dace.symbol("N")
RANDOM = np.random.default_rng(3)


def close(a, b):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def products(batch=3, ranges={"i": "0:3"}):
    sdfg = dace.SDFG("products")
    sdfg.add_array("A", [batch, 4, 5], dace.float32)
    sdfg.add_array("B", [5, 6], dace.float32)
    sdfg.add_array("C", [batch, 4, 6], dace.float32)
    state = sdfg.add_state()
    a, b, c = state.add_read("A"), state.add_read("B"), state.add_write("C")
    entry, exit = state.add_map("batch", ranges)
    node = donnx.ONNXMatMul("product")
    state.add_node(node)
    i = "i" if "j" not in ranges else "2 * j + i"
    state.add_memlet_path(a, entry, node, dst_conn="A", memlet=Memlet(f"A[{i}, 0:4, 0:5]"))
    state.add_memlet_path(b, entry, node, dst_conn="B", memlet=Memlet("B[0:5, 0:6]"))
    state.add_memlet_path(node, exit, c, src_conn="Y", memlet=Memlet(f"C[{i}, 0:4, 0:6]"))
    return sdfg, state, node, (a, b, c)


def arrays(batch=3):
    return RANDOM.random((batch, 4, 5), "f"), RANDOM.random((5, 6), "f"), np.zeros((batch, 4, 6), "f")


def run(sdfg, batch=3):
    A, B, C = arrays(batch)
    sdfg(A=A, B=B, C=C)
    close(C, A @ B)


@pytest.mark.parametrize("batch, ranges", [(3, {"i": "0:3"}), (N, {"i": "0:N"}), (4, {"i": "0:2", "j": "0:2"})], ids=["number", "symbol", "two"])
def test_each_iteration_of_a_map_runs_the_operator_on_its_part(batch, ranges):
    sdfg = products(batch, ranges)[0]
    sdfg.validate()
    run(sdfg, 4 if batch == 4 else 3)
    assert [n.kind for n in sdfg.node(0).nodes()].count("library") == 1  # it is still shown as what it is


def test_it_is_expanded_saved_and_read_back_in_its_map(tmp_path):
    sdfg = products()[0]
    sdfg.save(tmp_path / "products.sdfg")
    run(dace.SDFG.from_file(tmp_path / "products.sdfg"))
    sdfg.expand_library_nodes()
    assert "library" not in [n.kind for n in sdfg.node(0).nodes()]
    run(sdfg)


@pytest.mark.parametrize("batch, ranges", [(3, {"i": "0:3"}), (4, {"i": "0:2", "j": "0:2"})], ids=["one", "two"])
def test_it_is_differentiated_in_its_map(batch, ranges):
    sdfg, state, _, (a, b, c) = products(batch, ranges)
    add_backward_pass(sdfg, state, [c], [a, b])
    A, B, C = arrays(batch)
    dA, dB, dC = np.zeros_like(A), np.zeros_like(B), RANDOM.random(C.shape, "f")
    wanted = dC @ B.T, np.einsum("nij,nik->jk", A, dC)
    sdfg(A=A, B=B, C=C, gradient_A=dA, gradient_B=dB, gradient_C=dC)
    close(C, A @ B)
    close(dA, wanted[0])
    close(dB, wanted[1])


def test_a_nested_sdfg_in_a_map_may_hold_operators():
    inner = dace.SDFG("inner")
    inner.add_array("x", [4, 5], dace.float32)
    inner.add_array("y", [4, 5], dace.float32)
    state = inner.add_state()
    node = donnx.ONNXSoftmax("softmax", axis=1)
    state.add_node(node)
    state.add_edge(state.add_read("x"), None, node, "input", inner.make_array_memlet("x"))
    state.add_edge(node, "output", state.add_write("y"), None, inner.make_array_memlet("y"))
    sdfg = dace.SDFG("outer")
    sdfg.add_array("A", [3, 4, 5], dace.float32)
    sdfg.add_array("C", [3, 4, 5], dace.float32)
    state = sdfg.add_state()
    entry, exit = state.add_map("m", dict(i="0:3"))
    nested = state.add_nested_sdfg(inner, sdfg, {"x"}, {"y"})
    state.add_memlet_path(state.add_read("A"), entry, nested, dst_conn="x", memlet=Memlet("A[i, 0:4, 0:5]"))
    state.add_memlet_path(nested, exit, state.add_write("C"), src_conn="y", memlet=Memlet("C[i, 0:4, 0:5]"))
    A, C = RANDOM.random((3, 4, 5), "f"), np.zeros((3, 4, 5), "f")
    sdfg(A=A, C=C)
    close(C, np.exp(A) / np.exp(A).sum(-1, keepdims=True))


@pytest.mark.usefixtures("registrations")
def test_an_implementation_in_python_serves_a_node_in_a_map():
    from dcml.onnx.op_implementations import op_implementation
    from dcml.onnx.forward_implementation_abc import ONNXForward

    @op_implementation(op="MatMul", name="in_a_map")
    class Halved(ONNXForward):
        @staticmethod
        def forward(node, state, sdfg):
            @dace.program
            def halved(A, B, Y):
                Y[:] = 0.5 * (A @ B)
            shapes = [sdfg.arrays[e.data.data] for e in (*state.in_edges(node), *state.out_edges(node))]
            return halved.to_sdfg(*(np.zeros(d.shape, "f") for d in shapes))
    sdfg, _, node, _ = products()
    node.implementation = "in_a_map"
    A, B, C = arrays()
    sdfg(A=A, B=B, C=C)
    close(C, 0.5 * (A @ B))


@dace.program
def each(X: dace.float32[2, 3, 8, 8], W: dace.float32[4, 3, 3, 3], Y: dace.float32[2, 4, 6, 6]):
    for n in dace.map[0:2]:
        donnx.ONNXConv(X=X[n:n + 1], W=W, Y=Y[n:n + 1])


@dace.program
def powers(A: dace.float32[4, 4]):
    for k in range(3):
        donnx.ONNXMatMul(A=A, B=A, Y=A)


def test_programs_call_operators_in_maps_and_in_loops():
    torch = pytest.importorskip("torch")
    X, W, Y = RANDOM.random((2, 3, 8, 8), "f"), RANDOM.random((4, 3, 3, 3), "f"), np.zeros((2, 4, 6, 6), "f")
    each(X, W, Y)
    close(Y, torch.nn.functional.conv2d(torch.tensor(X), torch.tensor(W)).numpy())
    A = RANDOM.random((4, 4), "f")
    wanted = np.linalg.matrix_power(A, 8)
    powers(A)
    close(A / wanted, np.ones_like(A))


def test_programs_call_sdfgs_in_maps():
    @dace.program
    def double(x: dace.float64[3]):
        x[:] = x * 2
        return x + 1
    inner = double.to_sdfg()

    @dace.program
    def outer(A: dace.float64[5, 3], B: dace.float64[5, 3]):
        for j in dace.map[0:5]:
            B[j] = inner(x=A[j, :])
    A, B = RANDOM.random((5, 3)), np.zeros((5, 3))
    wanted = 2 * A
    outer(A, B)
    close(A, wanted)
    close(B, wanted + 1)


def test_what_an_operator_cannot_be_inside_is_said():
    @dace.program
    def guarded(A: dace.float32[4, 4], k: dace.int32):
        if k > 0:
            donnx.ONNXMatMul(A=A, B=A, Y=A)
    with pytest.raises(dace.UnsupportedOpError, match="ONNXMatMul under a condition on data"):
        guarded(np.zeros((4, 4), "f"), 1)
    sdfg = dace.SDFG("triangle")
    sdfg.add_array("A", [4, 4], dace.float32)
    state = sdfg.add_state()
    entry, exit = state.add_map("m", dict(i="0:4"))
    node = donnx.ONNXRelu("relu")
    state.add_node(node)
    state.add_memlet_path(state.add_read("A"), entry, node, dst_conn="X", memlet=Memlet("A[i, 0:i+1]"))
    state.add_memlet_path(node, exit, state.add_write("A"), src_conn="Y", memlet=Memlet("A[i, 0:i+1]"))
    with pytest.raises(dace.UnsupportedOpError, match="relu.*extent.*changes"):
        sdfg(A=np.zeros((4, 4), "f"))


def test_a_range_of_one_element_is_a_dimension_of_the_operator_and_an_index_is_none():
    for subset, shape in (("A[1:2, 0:4]", [1, 4]), ("A[1, 0:4]", [4])):
        sdfg = dace.SDFG("parts")
        sdfg.add_array("A", [3, 4], dace.float32)
        sdfg.add_array("C", shape, dace.float32)
        state = sdfg.add_state()
        node = donnx.ONNXRelu("relu")
        state.add_node(node)
        state.add_edge(state.add_read("A"), None, node, "X", Memlet(subset))
        state.add_edge(node, "Y", state.add_write("C"), None, sdfg.make_array_memlet("C"))
        A, C = RANDOM.standard_normal((3, 4), "f"), np.zeros(shape, "f")
        sdfg(A=A, C=C)
        close(C.reshape(4), np.maximum(A[1], 0))

"""add_backward_pass on SDFGs that are built by nodes and edges: what the manual says an SDFG may contain."""
import numpy as np
import pytest
import torch

import dcml as dace
from dcml import onnx as donnx
from dcml.autodiff import add_backward_pass


def run(sdfg, outputs, inputs, reference, **shapes):
    """Compares what the program computes, and its gradients, with torch."""
    rng = np.random.default_rng(3)
    arrays = {n: rng.standard_normal(s) for n, s in shapes.items()}
    leaves = {n: torch.tensor(a, requires_grad=n in inputs) for n, a in arrays.items()}
    wanted = reference(**leaves)
    seeds = {n: rng.standard_normal(w.shape) for n, w in zip(outputs, wanted)}
    gradients = torch.autograd.grad(wanted, [leaves[n] for n in inputs], [torch.tensor(seeds[n]) for n in outputs])
    add_backward_pass(sdfg=sdfg, state=sdfg.nodes()[0], outputs=outputs, inputs=inputs)
    given = {f"gradient_{n}": s.copy() for n, s in seeds.items()} | {f"gradient_{n}": np.full_like(arrays[n], 7.0) for n in inputs}
    results = {n: arrays[n].copy() if n in arrays else np.zeros(w.shape) for n, w in zip(outputs, wanted)}
    sdfg(**{**arrays, **results, **given})
    for n, w in zip(outputs, wanted):
        np.testing.assert_allclose(results[n], w.detach().numpy(), rtol=1e-9, atol=1e-12)
    for n, g in zip(inputs, gradients):
        np.testing.assert_allclose(given[f"gradient_{n}"], g.numpy(), rtol=1e-8, atol=1e-11, err_msg=n)


def gemm():
    """The manual's dace_gemm: Z = X @ Y, then S accumulates the sum of Z."""
    sdfg = dace.SDFG("dace_gemm")
    for name, shape in (("X", [5, 4]), ("Y", [4, 3]), ("S", [1])):
        sdfg.add_array(name, shape, dace.float64)
    sdfg.add_transient("Z", [5, 3], dace.float64)
    state = sdfg.add_state()
    product, z = donnx.ONNXMatMul("product"), state.add_access("Z")
    for connector, name in (("A", "X"), ("B", "Y")):
        state.add_edge(state.add_read(name), None, product, connector, sdfg.make_array_memlet(name))
    state.add_edge(product, "Y", z, None, sdfg.make_array_memlet("Z"))
    state.add_mapped_tasklet("summap", {"i": "0:5", "j": "0:3"}, {"z": dace.Memlet("Z[i, j]")}, "s = z",
                             {"s": dace.Memlet("S[0]", wcr="lambda x, y: x + y")}, external_edges=True, input_nodes={"Z": z})
    return sdfg


def test_the_manuals_gemm():
    run(gemm(), ["S"], ["X", "Y"], lambda X, Y, S: [S + (X @ Y).sum()], X=(5, 4), Y=(4, 3), S=(1,))


def test_access_nodes_name_arrays():
    sdfg = gemm()
    nodes = {n.data: n for n in sdfg.node(0).data_nodes()}
    add_backward_pass(sdfg, sdfg.node(0), outputs=[nodes["S"]], inputs=[nodes["X"], nodes["Y"]])
    assert {"gradient_S", "gradient_X", "gradient_Y"} <= set(sdfg.arrays) and not sdfg.arrays["gradient_X"].transient
    x = np.ones((5, 4))
    dx = np.zeros((5, 4))
    sdfg(X=x, Y=np.ones((4, 3)), S=np.zeros(1), gradient_S=np.ones(1), gradient_X=dx, gradient_Y=np.zeros((4, 3)))
    np.testing.assert_allclose(dx, np.full((5, 4), 3.0))


def test_tasklets_with_several_statements_and_outputs():
    sdfg = dace.SDFG("several")
    for name in "ABYZ":
        sdfg.add_array(name, [6], dace.float64)
    sdfg.add_state().add_mapped_tasklet(
        "two", {"i": "0:6"}, {"a": dace.Memlet("A[i]"), "b": dace.Memlet("B[5 - i]")},
        "t = sin(a) * b\ny = t * t\nif a > 0:\n    z = t\nelse:\n    z = a * b",
        {"y": dace.Memlet("Y[i]"), "z": dace.Memlet("Z[i]")}, external_edges=True)

    def reference(A, B):
        t = torch.sin(A) * B.flip(0)
        return [t * t, torch.where(A > 0, t, A * B.flip(0))]
    run(sdfg, ["Y", "Z"], ["A", "B"], reference, A=(6,), B=(6,))


@pytest.mark.parametrize("wcr, reduce", [("lambda a, b: a + b", lambda x: x.sum(1)), ("lambda a, b: max(a, b)", lambda x: x.max(1).values),
                                         ("lambda a, b: min(a, b)", lambda x: x.min(1).values)])
def test_reductions(wcr, reduce):
    sdfg = dace.SDFG("reduction")
    sdfg.add_array("A", [4, 5], dace.float64), sdfg.add_array("B", [4], dace.float64)
    state = sdfg.add_state()
    node = state.add_reduce(wcr, [1])
    state.add_edge(state.add_read("A"), None, node, None, sdfg.make_array_memlet("A"))
    state.add_edge(node, None, state.add_write("B"), None, sdfg.make_array_memlet("B"))
    run(sdfg, ["B"], ["A"], lambda A: [reduce(A)], A=(4, 5))


def test_nested_sdfgs():
    inner = dace.SDFG("inner")
    inner.add_array("a", [3], dace.float64), inner.add_array("b", [3], dace.float64)
    inner.add_state().add_mapped_tasklet("square", {"k": "0:3"}, {"x": dace.Memlet("a[k]")}, "y = x * x", {"y": dace.Memlet("b[k]")}, external_edges=True)
    sdfg = dace.SDFG("outer")
    sdfg.add_array("A", [4, 3], dace.float64), sdfg.add_array("B", [4, 3], dace.float64)
    state = sdfg.add_state()
    entry, exit = state.add_map("rows", {"i": "0:4"})
    nested = state.add_nested_sdfg(inner, sdfg, {"a"}, {"b"})
    state.add_memlet_path(state.add_read("A"), entry, nested, dst_conn="a", memlet=dace.Memlet("A[i, 0:3]"))
    state.add_memlet_path(nested, exit, state.add_write("B"), src_conn="b", memlet=dace.Memlet("B[i, 0:3]"))
    run(sdfg, ["B"], ["A"], lambda A: [A * A], A=(4, 3))


def test_an_update_in_place_between_nodes():
    sdfg = dace.SDFG("update")
    sdfg.add_array("A", [6], dace.float64), sdfg.add_array("B", [6], dace.float64)
    state = sdfg.add_state()
    a, b, again = state.add_read("A"), state.add_access("A"), state.add_write("B")
    state.add_mapped_tasklet("first", {"i": "0:6"}, {"x": dace.Memlet("A[i]")}, "y = x * x", {"y": dace.Memlet("A[i]")}, external_edges=True,
                             input_nodes={"A": a}, output_nodes={"A": b})
    state.add_mapped_tasklet("second", {"i": "0:6"}, {"x": dace.Memlet("A[i]")}, "y = sin(x) * x", {"y": dace.Memlet("B[i]")}, external_edges=True,
                             input_nodes={"A": b}, output_nodes={"B": again})
    run(sdfg, ["B"], ["A"], lambda A: [torch.sin(A * A) * A * A], A=(6,))

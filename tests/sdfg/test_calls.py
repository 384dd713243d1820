"""Calls of SDFGs."""
import time

import numpy as np
import pytest
import torch

import dcml
import dcml as dace
from dcml.sdfg.compiled import CompiledSDFG

N = dace.symbol("N")


def axpy(out="C", shape=(N,)):
    sdfg = dace.SDFG("axpy")
    for name in ("A", "B", out):
        sdfg.add_array(name, shape, dace.float32)
    sdfg.add_state().add_mapped_tasklet("axpy", {"i": "0:N"}, {"a": dace.Memlet("A[i]"), "b": dace.Memlet("B[i]")}, "c = 2 * a + b",
                                        {"c": dace.Memlet(f"{out}[i]")}, external_edges=True)
    return sdfg


@pytest.mark.parametrize("kind", [lambda a: a, torch.from_numpy], ids=["numpy", "torch"])
def test_arrays_of_the_caller_are_filled(kind):
    sdfg = axpy()
    for extent in (5, 7):
        a, b, c = (kind(x) for x in np.random.rand(3, extent).astype(np.float32))
        assert sdfg(A=a, B=b, C=c) is None
        np.testing.assert_allclose(c, 2 * a + b, rtol=1e-6)


def test_what_is_called_return_is_returned():
    a, b = np.random.rand(2, 5).astype(np.float32)
    np.testing.assert_allclose(axpy("__return")(A=a, B=b), 2 * a + b, rtol=1e-6)
    sdfg = dace.SDFG("two")
    sdfg.add_array("A", (3,), dace.float32)
    for k in range(2):
        sdfg.add_array(f"__return_{k}", (3,), dace.float32)
    sdfg.add_state().add_mapped_tasklet("t", {"i": "0:3"}, {"a": dace.Memlet("A[i]")}, "b = a; c = -a",
                                        {"b": dace.Memlet("__return_0[i]"), "c": dace.Memlet("__return_1[i]")}, external_edges=True)
    x = np.float32([1, 2, 3])
    first, second = sdfg(A=x)
    assert (first == x).all() and (second == -x).all()


def test_symbols_and_scalars_are_given_by_name():
    sdfg = dace.SDFG("symbols")
    K = dace.symbol("K")
    sdfg.add_array("A", (N,), dace.float64)
    sdfg.add_scalar("s", dace.float64)
    sdfg.add_symbol("K")
    sdfg.add_state().add_mapped_tasklet("t", {"i": K if False else "0:K"}, {"x": dace.Memlet("s[0]")}, "a = x + K", {"a": dace.Memlet("A[i]")}, external_edges=True)
    a = np.zeros(6)
    sdfg(A=a, s=2.5, K=4)
    assert (a == [6.5] * 4 + [0, 0]).all()
    sdfg(A=a, s=0.5, K=2, N=6)
    assert (a == [2.5, 2.5, 6.5, 6.5, 0, 0]).all()
    with pytest.raises(dcml.Error, match="K"):
        sdfg(A=a, s=1.0)
    with pytest.raises(dcml.Error, match="N|A"):
        sdfg(A=a, s=1.0, K=2, N=7)


def test_arguments_that_do_not_fit_are_named():
    sdfg = axpy()
    a, b, c = np.random.rand(3, 5).astype(np.float32)
    for wrong, says in (({"A": a, "B": b}, "C"), ({"A": a, "B": b, "C": c, "D": c}, "D"), ({"A": a, "B": b.astype(np.float64), "C": c}, "B"),
                        ({"A": a, "B": b[:4], "C": c}, "B|C"), ({"A": a, "B": b, "C": 3}, "C"), ({"A": a, "B": b, "C": None}, "C")):
        with pytest.raises(dcml.Error, match=says):
            sdfg(**wrong)
    read_only = c.copy()
    read_only.flags.writeable = False
    with pytest.raises(dcml.Error, match="C"):
        sdfg(A=a, B=b, C=read_only)


def test_what_is_not_written_stays():
    sdfg = dace.SDFG("part")
    sdfg.add_array("A", (4,), dace.float32)
    sdfg.add_state().add_mapped_tasklet("t", {"i": "1:3"}, {"a": dace.Memlet("A[i]")}, "b = a + 1", {"b": dace.Memlet("A[i]")}, external_edges=True)
    a = np.zeros(4, np.float32)
    sdfg(A=a)
    assert (a == [0, 1, 1, 0]).all()


def test_a_compiled_sdfg_is_called_and_tells_its_sdfg():
    sdfg = axpy()
    compiled = sdfg.compile()
    assert isinstance(compiled, CompiledSDFG) and compiled.sdfg is sdfg and repr(compiled) == "CompiledSDFG('axpy')" and compiled.name == "axpy"
    a, b, c = np.random.rand(3, 5).astype(np.float32)
    compiled(A=a, B=b, C=c)
    np.testing.assert_allclose(c, 2 * a + b, rtol=1e-6)
    compiled(a, b, c)


def test_results_of_a_models_graph_may_be_given_too():
    from dcml import _core
    graph = _core.Graph("g", 21)
    x = graph.add_input("x", 1, ["n", 3])
    y, = graph.add_node("Relu", [x], ["y"], {}, "", "first")
    graph.mark_output(y)
    sdfg = dace.SDFG(graph)
    x, y = np.float32([[1, -1, 2]]), np.zeros((1, 3), np.float32)
    assert (sdfg(x=x) == [[1, 0, 2]]).all()
    assert sdfg(x=x, y=y) is None and (y == [[1, 0, 2]]).all()
    with pytest.raises(dcml.ShapeError, match="output 'y'"):
        sdfg(x=x, y=np.zeros((1, 4), np.float32))


def test_a_call_costs_ten_microseconds():
    sdfg = axpy()
    a, b, c = np.random.rand(3, 8).astype(np.float32)
    sdfg(A=a, B=b, C=c)

    def once(calls=200):
        began = time.thread_time_ns()
        for _ in range(calls):
            sdfg(A=a, B=b, C=c)
        return (time.thread_time_ns() - began) / calls / 1000

    assert min(once() for _ in range(20)) < 10


@pytest.mark.parametrize("make", [np.asfortranarray, lambda a: np.repeat(a, 2, 1)[:, ::2]], ids=["columns", "gaps"])
def test_an_array_with_strides_is_read_and_written_where_it_lies(make):
    sdfg = dace.SDFG("strided")
    A, B = make(np.random.default_rng(0).random((4, 5))), make(np.zeros((4, 5)))
    for name, array in ("A", A), ("B", B):
        sdfg.add_array(name, (4, 5), dace.float64, strides=[s // 8 for s in array.strides])
    sdfg.add_transient("t", (4, 5), dace.float64, strides=(10, 2))
    state, after = sdfg.add_state(), sdfg.add_state()
    for where, source, target in (state, "A", "t"), (after, "t", "B"):
        where.add_mapped_tasklet("double", dict(i="0:4", j="0:5"), {"a": dace.Memlet(f"{source}[i, j]")}, "b = a * 2",
                                 {"b": dace.Memlet(f"{target}[i, j]")}, external_edges=True)
    A.flags.writeable = False
    sdfg(A, B=B)
    np.testing.assert_allclose(B, 4 * A)


def test_an_array_of_one_element_serves_as_a_scalar():
    @dace.program
    def total(A: dace.float64[3]):
        s = dace.define_local_scalar(dace.float64)
        s[:] = np.sum(A) + 1
        return s[0]
    sdfg, A, out = total.to_sdfg(), np.arange(3.0), np.zeros(1)
    assert sdfg(A) == 4 and sdfg(A, __return=out) is None and out == [4]
    dcml.autodiff.add_backward_pass(sdfg, sdfg.node(0), ["__return"], ["A"])
    slope = np.zeros(3)
    sdfg(A, gradient___return=np.full(1, 2.0), gradient_A=slope)
    np.testing.assert_array_equal(slope, [2, 2, 2])

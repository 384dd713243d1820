"""Chapters 4.3 and 7.2 of the manual: gradients of library nodes that are nested SDFGs, as DaCeML's own are written."""
import numpy as np
import pytest
import torch

import dcml as dace
import dcml.onnx as donnx
from dcml.autodiff import BackwardImplementation, BackwardResult, add_backward_pass, autoregister_params


@pytest.fixture(autouse=True)
def forget():
    before = list(BackwardImplementation._registered)
    yield
    BackwardImplementation._registered[:] = before


def operator(sdfg, node, inputs, outputs):
    """Puts a node with its edges into the first state; inputs, outputs: {connector: array}."""
    state = sdfg.node(0)
    state.add_node(node)
    for connector, array in inputs.items():
        node.add_in_connector(connector)
        state.add_edge(state.add_read(array), None, node, connector, sdfg.make_array_memlet(array))
    for connector, array in outputs.items():
        state.add_edge(node, connector, state.add_write(array), None, sdfg.make_array_memlet(array))
    return sdfg


def sdfg_of(shapes, transients=(), name="sdfg"):
    sdfg = dace.SDFG(name)
    sdfg.add_state()
    for array, shape in shapes.items():
        sdfg.add_array(array, shape, dace.float32, transient=array in transients)
    return sdfg


def values(*shapes):
    return [np.random.default_rng(k).random(shape).astype(np.float32) for k, shape in enumerate(shapes)]


def descriptor(context, node, connector):
    edges = [*context.forward_state.in_edges_by_connector(node, connector), *context.forward_state.out_edges_by_connector(node, connector)]
    return context.forward_sdfg.arrays[edges[0].data.data]


def test_softmax():
    seen = []

    @autoregister_params(op="Softmax", name="default")
    class DefaultSoftmaxBackward(BackwardImplementation):
        @staticmethod
        def backward(forward_node, context, given_gradients, required_gradients):
            seen.append((given_gradients, required_gradients))
            shape, dim = list(descriptor(context, forward_node, "input").shape), forward_node.axis
            sums = [1 if d == dim % len(shape) else extent for d, extent in enumerate(shape)]
            nsdfg = sdfg_of({"output": shape, "output_grad": shape, "input_grad": shape, "prod": shape, "sums": sums, "part": shape},
                            ("prod", "sums", "part"), "softmax_backward")
            operator(nsdfg, donnx.ONNXMul("mul"), {"A": "output", "B": "output_grad"}, {"C": "prod"})
            prod = next(n for n in nsdfg.node(0).sink_nodes())
            total = donnx.ONNXReduceSum("sum", axes=[dim], keepdims=1)
            state = nsdfg.node(0)
            state.add_node(total)
            state.add_edge(prod, None, total, "data", nsdfg.make_array_memlet("prod"))
            summed, part = state.add_access("sums"), state.add_access("part")
            state.add_edge(total, "reduced", summed, None, nsdfg.make_array_memlet("sums"))
            for op, a, b, c in ((donnx.ONNXSub("sub"), "output_grad", summed, part), (donnx.ONNXMul("scale"), "output", part, "input_grad")):
                a, c = (state.add_access(x) if isinstance(x, str) else x for x in (a, c))
                state.add_node(op)
                for source, connector in ((a, "A"), (b, "B")):
                    state.add_edge(source, None, op, connector, nsdfg.make_array_memlet(source.data))
                state.add_edge(op, "C", c, None, nsdfg.make_array_memlet(c.data))
            node = context.backward_state.add_nested_sdfg(nsdfg, None, {"output", "output_grad"}, {"input_grad"})
            return node, BackwardResult(required_grad_names={"input": "input_grad"}, given_grad_names={"output": "output_grad"})

    sdfg = operator(sdfg_of({"X": (3, 4), "Y": (3, 4)}), donnx.ONNXSoftmax("softmax", axis=1), {"input": "X"}, {"output": "Y"})
    add_backward_pass(sdfg=sdfg, state=sdfg.nodes()[0], inputs=["X"], outputs=["Y"])
    assert seen == [(["output"], ["input"])]
    X, Y, gradient_X, gradient_Y = values(*[(3, 4)] * 4)
    sdfg(X=X, Y=Y, gradient_X=gradient_X, gradient_Y=gradient_Y)
    x = torch.tensor(X, requires_grad=True)
    torch.softmax(x, 1).backward(torch.from_numpy(gradient_Y))
    np.testing.assert_allclose(Y, torch.softmax(x, 1).detach(), rtol=1e-5)
    np.testing.assert_allclose(gradient_X, x.grad, rtol=1e-4, atol=1e-6)


def test_einsum_by_other_einsums():
    seen = []

    @autoregister_params(op="Einsum", name="default")
    class DefaultEinsumBackward(BackwardImplementation):
        @staticmethod
        def backward_can_be_applied(node, state, sdfg):
            return "..." not in node.equation

        @staticmethod
        def backward(forward_node, context, given_gradients, required_gradients):
            seen.append(required_gradients)
            terms, result = forward_node.equation.split("->")
            terms = terms.split(",")
            names = [f"Inputs__{k}" for k in range(len(terms))]
            shapes = {c: descriptor(context, forward_node, c).shape for c in [*names, "Output"]}
            nsdfg = sdfg_of({"Output_grad": shapes["Output"], **{c: shapes[c] for c in names}, **{c + "_grad": shapes[c] for c in required_gradients}})
            for connector in required_gradients:
                k = names.index(connector)
                others = [n for n in range(len(names)) if n != k]
                equation = ",".join([result, *(terms[n] for n in others)]) + "->" + terms[k]
                inputs = ["Output_grad", *(names[n] for n in others)]
                operator(nsdfg, donnx.ONNXEinsum(f"d{k}", equation=equation), {f"Inputs__{n}": a for n, a in enumerate(inputs)},
                         {"Output": connector + "_grad"})
            node = context.backward_state.add_nested_sdfg(nsdfg, None, {"Output_grad", *names}, {c + "_grad" for c in required_gradients})
            return node, BackwardResult({c: c + "_grad" for c in required_gradients}, {"Output": "Output_grad"})

    sdfg = operator(sdfg_of({"A": (3, 4), "B": (4, 5), "C": (3, 5)}), donnx.ONNXEinsum("product", equation="ij,jk->ik"),
                    {"Inputs__0": "A", "Inputs__1": "B"}, {"Output": "C"})
    add_backward_pass(sdfg=sdfg, state=sdfg.nodes()[0], inputs=["A", "B"], outputs=["C"])
    assert seen == [["Inputs__0", "Inputs__1"]]
    A, B, C, dA, dB, dC = values((3, 4), (4, 5), (3, 5), (3, 4), (4, 5), (3, 5))
    sdfg(A=A, B=B, C=C, gradient_A=dA, gradient_B=dB, gradient_C=dC)
    for got, want in ((C, A @ B), (dA, dC @ B.T), (dB, A.T @ dC)):
        np.testing.assert_allclose(got, want, rtol=1e-5)

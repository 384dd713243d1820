"""Random graphs in which ordinary and host operators alternate give what the reference evaluator gives."""
import random

import numpy as np
import pytest

from dcml.onnx import ONNXModel

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

pytestmark = pytest.mark.usefixtures("interpreted")

F64, I64, BOOL = TensorProto.DOUBLE, TensorProto.INT64, TensorProto.BOOL
CONSTANTS = {"two": np.array([2.0]), "zero": np.array(0.0), "first": np.array(0), "second": np.array(1), "flat": np.array([-1]),
             "yes": np.array(True), "trips": np.array(2)}


def value(name, dtype=F64, shape=None):
    return helper.make_tensor_value_info(name, dtype, shape)


def branch(op, *inputs):
    return helper.make_graph([helper.make_node(op, inputs, ["r"])], "branch", [], [value("r")])


def loop_body():
    nodes = [helper.make_node("Concat", ["v", "two"], ["w"], axis=0), helper.make_node("Identity", ["again"], ["more"])]
    return helper.make_graph(nodes, "body", [value("k", I64, []), value("again", BOOL, []), value("v")], [value("more", BOOL, []), value("w")])


# Each makes the vector o of vectors a and b (and of a sequence s): (operator, inputs, outputs, attributes)...
STEPS = (
    lambda a, b, s, o: [("Add", [a, "two"], [o], {})],
    lambda a, b, s, o: [("Mul", [a, "two"], [o + "m"], {}), ("Tanh", [o + "m"], [o], {})],
    lambda a, b, s, o: [("ReduceSum", [a], [o + "s"], {"keepdims": 0}), ("Mul", [b, o + "s"], [o + "m"], {}), ("Tanh", [o + "m"], [o], {})],
    lambda a, b, s, o: [("SequenceAt", [s, "second"], [o], {})],
    lambda a, b, s, o: [("ConcatFromSequence", [s], [o], {"axis": 0})],
    lambda a, b, s, o: [("Concat", [a, b], [o], {"axis": 0})],
    lambda a, b, s, o: [("Greater", [a, "zero"], [o + "g"], {}), ("Compress", [a, o + "g"], [o], {"axis": 0})],
    lambda a, b, s, o: [("Shape", [a], [o + "h"], {}), ("Expand", ["two", o + "h"], [o], {})],
    lambda a, b, s, o: [("NonZero", [a], [o + "n"], {}), ("Reshape", [o + "n", "flat"], [o + "r"], {}), ("Gather", [a, o + "r"], [o], {})],
    lambda a, b, s, o: [("ReduceSum", [b], [o + "s"], {"keepdims": 0}), ("Greater", [o + "s", "zero"], [o + "c"], {}),
                        ("If", [o + "c"], [o], {"then_branch": branch("Tanh", a), "else_branch": branch("Add", a, "two")})],
    lambda a, b, s, o: [("Loop", ["trips", "yes", a], [o], {"body": loop_body()})],
    lambda a, b, s, o: [("Cast", [a], [o + "q"], {"to": TensorProto.STRING}), ("Cast", [o + "q"], [o], {"to": F64})],
)


def random_model(seed):
    rng = random.Random(seed)
    nodes, vectors = [helper.make_node("SequenceConstruct", ["x", "y"], ["s0"])], ["x", "y"]
    for k in range(rng.randint(4, 20)):
        if k % 5 == 4:
            nodes.append(helper.make_node("SequenceInsert", [f"s{k // 5}", rng.choice(vectors), "first"], [f"s{k // 5 + 1}"]))
        steps = rng.choice(STEPS)(rng.choice(vectors), rng.choice(vectors), f"s{(k + 1) // 5}", f"v{k}")
        nodes += [helper.make_node(op, inputs, outputs, **attributes) for op, inputs, outputs, attributes in steps]
        vectors.append(f"v{k}")
    graph = helper.make_graph(nodes, "random", [value("x", F64, ["n"]), value("y", F64, ["m"])], [value(v) for v in vectors[-3:]],
                              [numpy_helper.from_array(a, n) for n, a in CONSTANTS.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs_give_what_the_reference_evaluator_gives(seed):
    from onnx.reference import ReferenceEvaluator
    proto, rng = random_model(seed), np.random.default_rng(seed)
    reference, compiled = ReferenceEvaluator(proto), ONNXModel("random", proto)
    for n, m in ((3, 3), (4, 2), (5, 3)):
        inputs = {"x": rng.standard_normal(n), "y": rng.standard_normal(m)}
        for got, want in zip(compiled(**inputs), reference.run(None, inputs), strict=True):
            assert got.dtype == want.dtype
            np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-9)

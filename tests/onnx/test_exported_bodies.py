"""Graphs with bodies, written as ONNX: they compute the same in ONNX's reference and when they are read again."""
import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import parser, reference  # noqa: E402

import dcml  # noqa: E402

CHOICE_IN_LOOP = """<ir_version: 10, opset_import: ["" : 17]>
m (float[3] A, int64 n, bool c) => (float[3] y, float[k, 3] all) {
    two = Constant <value = float {2}> ()
    go = Constant <value = bool {1}> ()
    y, all = Loop (n, go, A) <body = body (int64 i, bool cond, float[3] x) => (bool cond, float[3] z, float[3] z) {
        z = If (c) <then_branch = yes () => (float[3] b) { t = Mul (x, two) b = Add (t, A) },
                    else_branch = no () => (float[3] b) { t = Sub (x, two) b = Identity (t) }>
    }>
}"""
NAMES_MEET = """<ir_version: 10, opset_import: ["" : 17]>
m (float[3] A, bool c) => (float[3] y) {
    t = Neg (A)
    r = If (c) <then_branch = yes () => (float[3] q) { s = Exp (t) q = Abs (s) }, else_branch = no () => (float[3] t_2) { t_2 = Relu (t) }>
    y = Add (r, t)
}"""
SCAN = """<ir_version: 10, opset_import: ["" : 17]>
m (float[2] s, float[3, 2] X) => (float[2] last, float[3, 2] Y) {
    last, Y = Scan <num_scan_inputs: int = 1, body = body (float[2] a, float[2] x) => (float[2] b, float[2] c) { b = Add (a, x) c = Identity (b) }> (s, X)
}"""
A = np.float32([1, -2, 3])


def runs(model, feeds):
    """What ONNX's reference and dcml make of a model."""
    numpys = reference.ReferenceEvaluator(model).run(None, feeds)
    mine = dcml.ONNXModel("m", model)(**feeds)
    return [np.asarray(v) for v in numpys], [np.asarray(v) for v in (mine if isinstance(mine, (tuple, list)) else [mine])]


@pytest.mark.parametrize("text, feeds", [
    (CHOICE_IN_LOOP, {"A": A, "n": np.array(3), "c": np.array(True)}), (CHOICE_IN_LOOP, {"A": A, "n": np.array(2), "c": np.array(False)}),
    (NAMES_MEET, {"A": A, "c": np.array(True)}), (NAMES_MEET, {"A": A, "c": np.array(False)}),
    (SCAN, {"s": A[:2], "X": np.float32([[1, 2], [3, 4], [5, 6]])})], ids=["loop", "loop-else", "names", "names-else", "scan"])
def test_what_is_written_computes_the_same(text, feeds):
    model = parser.parse_model(text)
    written = onnx.load_from_string(dcml.ONNXModel("m", model).sdfg.graph.to_onnx())
    onnx.checker.check_model(written)
    again = onnx.load_from_string(dcml.ONNXModel("m", written).sdfg.graph.to_onnx())
    wanted, ours = runs(model, feeds)
    for other in (written, again):
        for found, want in zip(runs(other, feeds), (wanted, ours)):
            assert all(np.array_equal(a, b) for a, b in zip(found, want)) and len(found) == len(wanted)
    assert all(np.allclose(a, b) for a, b in zip(wanted, ours))


def test_an_sdfg_with_a_body_is_saved_as_a_model(tmp_path):
    sdfg = dcml.SDFG("choice")
    for name, shape, dtype in (("A", [3], dcml.float32), ("c", [1], dcml.bool_), ("__return", [3], dcml.float32)):
        sdfg.add_array(name, shape, dtype)
    then, other = (parser.parse_graph(f"g () => (float[3] {name}) {{ {name} = {op} (A) }}") for name, op in (("__return", "Exp"), ("b", "Neg")))
    state, node = sdfg.add_state(), dcml.onnx.ONNXIf("choose", then_branch=then, else_branch=other)
    state.add_node(node)
    node.add_out_connector("outputs__0")
    state.add_edge(state.add_read("c"), None, node, "cond", dcml.Memlet("c[0]"))
    state.add_edge(node, "outputs__0", state.add_write("__return"), None, dcml.Memlet("__return[0:3]"))
    path = tmp_path / "choice.onnx"
    sdfg.save(path)
    names = [n.output[0] for a in onnx.load(path).graph.node[0].attribute for n in a.g.node]
    assert sorted(names) == ["__return_2", "b"]  # a body's names are none of those around it
    for condition in (True, False):
        feeds = {"A": A, "c": np.array([condition])}
        want = sdfg(**feeds)
        assert np.allclose(want, np.exp(A) if condition else -A)
        assert np.allclose(reference.ReferenceEvaluator(onnx.load(path)).run(None, feeds)[0], want)
        assert np.array_equal(dcml.SDFG.from_file(path)(**feeds), want)


def test_a_sequence_is_told_by_name():
    model = parser.parse_model("""<ir_version: 10, opset_import: ["" : 17]>
m (seq(float[3]) s, float[3] A) => (seq(float[3]) y) {
    y = SequenceMap <body = b (float[3] x) => (float[3] z) { z = Add (x, A) }> (s)
}""")
    with pytest.raises(dcml.UnsupportedOpError, match="'s' is a sequence, an optional or a map.*ONNXModel.save"):
        dcml.ONNXModel("m", model).sdfg.graph.to_onnx()

"""What few bytes ask for that neither memory nor sense allows is refused before it runs; loops around nothing run nothing."""
import os
import resource
import subprocess
import sys
import time

import numpy as np
import pytest
from onnx import AttributeProto, TensorProto, helper, numpy_helper

import dcml
from dcml import _core
from dcml.onnx import ONNXModel

FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
HUGE = 1 << 31


def ints(*values):
    return np.array(values, np.int64)


def floats(*shape):
    return np.ones(shape, np.float32)


def graph(nodes, inputs, outputs, constants=()):
    """inputs and outputs: (name, type, shape)."""
    return helper.make_graph(nodes, "g", [helper.make_tensor_value_info(*i) for i in inputs],
                             [helper.make_tensor_value_info(*o) for o in outputs],
                             [numpy_helper.from_array(np.asarray(value), name) for name, value in dict(constants).items()])


def model(nodes, inputs, constants=(), kind=FLOAT, opset=18):
    return helper.make_model(graph(nodes, inputs, [("y", kind, None)], constants), opset_imports=[helper.make_opsetid("", opset)])


def one(op, shapes=(), constants=(), opset=18, **attributes):
    """A node 'evil' of inputs of ones, then constants; and the inputs."""
    inputs = [(f"x{k}", FLOAT, list(shape)) for k, shape in enumerate(shapes)]
    names = [name for name, _, _ in inputs] + [f"c{k}" if c is not None else "" for k, c in enumerate(constants)]
    made = model([helper.make_node(op, names, ["y"], name="evil", **attributes)], inputs,
                 {f"c{k}": c for k, c in enumerate(constants) if c is not None}, opset=opset)
    return made, [floats(*shape) for shape in shapes]


def two(op, constants, then, *more, **attributes):
    """A node whose result another one takes, so that it need not be stored."""
    names = list(constants)
    return model([helper.make_node(op, [n for n in names if n not in more], ["e"]),
                  helper.make_node(then, ["e", *more], ["y"], name="evil", **attributes)], [], constants), []


TWO_BY_TWO, BOX = (1, 1, 2, 2), (1, 4)
WINDOW = {"kernel_shape": [1 << 17, 1 << 16], "pads": [1 << 16, 1 << 15] * 2}
REFUSED = {
    "LRN of 2^31 channels": one("LRN", [TWO_BY_TWO], size=HUGE),
    "LRN of 2^40 channels": one("LRN", [TWO_BY_TWO], size=1 << 40),
    "RoiAlign of 2^32 bins": one("RoiAlign", [TWO_BY_TWO, BOX], [ints(0)], output_height=1 << 16, output_width=1 << 16),
    "RoiAlign of 2^40 samples": one("RoiAlign", [TWO_BY_TWO, BOX], [ints(0)], sampling_ratio=1 << 20),
    "MaxRoiPool of 2^33 bins": one("MaxRoiPool", [TWO_BY_TWO, (1, 5)], pooled_shape=[1 << 17, 1 << 16]),
    "HannWindow of 2^31": one("HannWindow", constants=[np.int64(HUGE)]),
    "HammingWindow of 2^31": one("HammingWindow", constants=[np.int64(HUGE)]),
    "BlackmanWindow of 2^33": one("BlackmanWindow", constants=[np.int64(4 * HUGE)]),
    "MelWeightMatrix": one("MelWeightMatrix", constants=[np.int64(1 << 20), np.int64(1 << 20), np.int64(16000), np.float32(0), np.float32(8000)]),
    "DFT of 2^33": one("DFT", [(1, 4, 1)], [np.int64(4 * HUGE)], opset=17),
    "STFT with frames of 2^33": one("STFT", [(1, 8, 1)], [np.int64(1), None, np.int64(4 * HUGE)], opset=17),
    "MaxPool with a window of 2^80": one("MaxPool", [(1, 1, 1, 1)], kernel_shape=[1 << 40] * 2, pads=[1 << 39, 1 << 39, (1 << 39) - 1, (1 << 39) - 1]),
    "AveragePool with a window of 2^33": one("AveragePool", [(1, 1, 1, 1)], count_include_pad=1, **WINDOW),
    "LpPool that pads to keep extents": one("LpPool", [(1, 1, 4, 4)], kernel_shape=[1 << 16, 1 << 17], auto_pad="SAME_UPPER"),
    "Conv with pads of 2^16": one("Conv", [(1, 1, 4, 4), (1, 1, 3, 3)], pads=[1 << 16] * 4),
    "ConvTranspose with a stride of 2^16": one("ConvTranspose", [(1, 1, 4, 4), (1, 1, 3, 3)], strides=[1 << 16] * 2),
    "ConvTranspose with a dilation of 2^16": one("ConvTranspose", [(1, 1, 1, 1), (1, 1, 2, 2)], dilations=[1 << 16] * 2),
    "Multinomial": one("Multinomial", [(1, 3)], sample_size=4 * HUGE),
    "Range": one("Range", constants=[np.int64(0), np.int64(HUGE), np.int64(1)]),
    "Expand": one("Expand", [(1,)], [ints(HUGE)]),
    "Tile": one("Tile", [(1,)], [ints(HUGE)]),
    "Pad": one("Pad", [(1, 1)], [ints(0, HUGE, 0, 0)]),
    "Resize": one("Resize", [(1, 1, 1, 1)], [floats(0), floats(0), ints(1, 1, 1 << 16, 1 << 15)]),
    "Upsample": one("Upsample", [(1, 1, 1, 1)], [np.float32([1, 1, 1 << 16, 1 << 15])], opset=9),
    "CenterCropPad": one("CenterCropPad", [(1, 1)], [ints(1 << 16, 1 << 15)]),
    "AffineGrid": one("AffineGrid", [(1, 2, 3)], [ints(1, 1, 1 << 16, 1 << 15)], opset=20),
    "RandomUniform": one("RandomUniform", shape=[HUGE]),
    "ConstantOfShape": one("ConstantOfShape", constants=[ints(HUGE)]),
    "Einsum of 40 letters": one("Einsum", [(2,) * 10] * 4, equation="abcdefghij,klmnopqrst,uvwxyzABCD,EFGHIJKLMN"),
    "a sum of what is never stored": two("Expand", {"v": floats(1, 1), "s": ints(1 << 20, 1 << 20)}, "ReduceSum"),
    "a row sum of what is never stored": two("ConstantOfShape", {"s": ints(1 << 20, 1 << 20), "axis": ints(1)}, "ReduceSum", "axis"),
    "an arg-max of what is never stored": two("ConstantOfShape", {"s": ints(8, 1 << 30)}, "ArgMax", axis=1),
}


def body(nodes, states=1, scans=0, shape=None):
    """Of a Loop: its condition goes on, as it is or as 'co'."""
    keeps = [] if any("co" in n.output for n in nodes) else [helper.make_node("Identity", ["c"], ["co"])]
    names = [f"s{k}" for k in range(states)]
    results = [f"{n}_out" for n in names] + [f"z{k}" for k in range(scans)]
    return graph([*keeps, *nodes], [("i", INT, []), ("c", BOOL, []), *((n, FLOAT, shape) for n in names)],
                 [("co", BOOL, []), *((n, FLOAT, shape) for n in results)])


def loop(nodes, trips, scans=0, condition=True):
    made = model([helper.make_node("Loop", ["t" if trips is not None else "", "k" if condition else "", "x"],
                                   ["y", *(f"z{k}" for k in range(scans))], name="evil", body=body(nodes, scans=scans))],
                 [("x", FLOAT, ["n"])], {"t": np.int64(trips or 0), "k": np.bool_(True)})
    return made, [floats(1)]


def scan(nodes, x):
    inner = graph(nodes, [("s", FLOAT, None), ("a", FLOAT, None)], [("s_out", FLOAT, None), ("a_out", FLOAT, None)])
    return model([helper.make_node("Scan", ["x", "q"], ["y", "z"], name="evil", body=inner, num_scan_inputs=1)],
                 [("x", FLOAT, ["n"]), ("q", FLOAT, ["m", "l"])]), [floats(1), x]


DOUBLED = helper.make_node("Concat", ["s0", "s0"], ["s0_out"], axis=0)
KEPT, SEEN = helper.make_node("Identity", ["s0"], ["s0_out"]), helper.make_node("Identity", ["s0"], ["z0"])
GOES_ON = [helper.make_node("ReduceSum", ["s0"], ["sum"], keepdims=0), helper.make_node("Cast", ["sum"], ["co"], to=BOOL)]
SLICES = [helper.make_node("Concat", ["s", "s"], ["s_out"], axis=0), helper.make_node("Identity", ["a"], ["a_out"])]
STRINGS = [helper.make_node("StringConcat", [f"s{k}"] * 2, [f"s{k + 1}"], name="evil") for k in range(60)]
REFUSED_ON_HOST = {
    "a Loop that doubles its value": loop([DOUBLED], 64),
    "a Loop that doubles its value while data say so": loop([DOUBLED, *GOES_ON], None),
    "a Loop of 2^40 iterations": loop([KEPT, SEEN], 1 << 40, scans=1),
    "a Loop without end": loop([KEPT], None),
    "a Loop without end whose condition is not asked": loop([KEPT], (1 << 63) - 1, condition=False),
    "a Scan of 2^40 empty slices": scan([helper.make_node("Identity", ["s"], ["s_out"]), SLICES[1]], np.zeros((1 << 40, 0), np.float32)),
    "a Scan that doubles its state": scan(SLICES, np.zeros((64, 0), np.float32)),
    "SplitToSequence into 2^40 parts": (
        model([helper.make_node("SplitToSequence", ["x"], ["q"], name="evil"), helper.make_node("SequenceLength", ["q"], ["y"])],
              [("x", FLOAT, ["a", "b"])], kind=INT), [np.zeros((1 << 40, 0), np.float32)]),
    "NonMaxSuppression of 2^40 batches": (
        model([helper.make_node("NonMaxSuppression", ["b", "s"], ["y"], name="evil")], [("b", FLOAT, "abc"), ("s", FLOAT, "abc")], kind=INT),
        [np.zeros((1 << 40, 0, 4), np.float32), np.zeros((1 << 40, 1, 0), np.float32)]),
    "StringConcat of a string with itself, 60 times": (
        model([*STRINGS, helper.make_node("Identity", ["s60"], ["y"])], [("s0", TensorProto.STRING, [1])], kind=TensorProto.STRING, opset=20),
        [np.array(["ab"], object)]),
    "TfIdfVectorizer with a far place": (
        model([helper.make_node("TfIdfVectorizer", ["x"], ["y"], name="evil", min_gram_length=1, max_gram_length=1, max_skip_count=0, mode="TF",
                                ngram_counts=[0], ngram_indexes=[(1 << 24) - 1], pool_int64s=[1])], [("x", INT, "ab")]),
        [np.zeros((1 << 10, 1), np.int64)]),
}


def _is_refused(made, inputs, seconds, clock=time.process_time):
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, clock()
    with pytest.raises(dcml.Error, match="evil"):
        ONNXModel("m", made)(*inputs)
    assert clock() - start < seconds
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 5 << 18  # kB: some copies of the 256 MB that are allowed


def _own_time():
    """Without the system's: where a gigabyte is touched, what a fresh page costs is the machine's affair."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime


@pytest.mark.parametrize("name", REFUSED)
def test_what_few_bytes_ask_for_is_refused_by_the_name_of_the_node(name):
    _is_refused(*REFUSED[name], seconds=2)


@pytest.mark.parametrize("name", REFUSED_ON_HOST)
def test_what_grows_on_the_host_is_refused_by_the_name_of_the_node(name):
    _is_refused(*REFUSED_ON_HOST[name], seconds=4, clock=_own_time)  # iterations that are still small run


def _free(op, shape, constants=(), opset=18, **attributes):
    """An input of free extents: a model for any of them, and one of these."""
    inputs = [("x", FLOAT, [f"d{k}" for k in range(len(shape))])]
    names = ["x", *(f"c{k}" for k in range(len(constants)))]
    return model([helper.make_node(op, names, ["y"], **attributes)], inputs, {f"c{k}": c for k, c in enumerate(constants)}, opset=opset), \
        [np.zeros(shape, np.float32)]


LONG, WIDE = (1 << 40, 0), (0, 1 << 40)
NOTHING = {
    "Relu": (_free("Relu", LONG), LONG),
    "Softmax": (_free("Softmax", LONG), LONG),
    "CumSum": (_free("CumSum", WIDE, [np.int64(0)]), WIDE),
    "Transpose": (_free("Transpose", WIDE), LONG),
    "LRN": (_free("LRN", (1 << 40, 0, 1), size=3), (1 << 40, 0, 1)),
    "MaxPool": (_free("MaxPool", (1 << 40, 0, 1 << 20), kernel_shape=[1]), (1 << 40, 0, 1 << 20)),
    "Pad": (_free("Pad", LONG, [ints(0, 0, 0, 0)]), LONG),
    "OneHot": (_free("OneHot", LONG, [np.int64(0), floats(2)]), (*LONG, 0)),
    "EyeLike": (_free("EyeLike", LONG), LONG),
    "MeanVarianceNormalization": (_free("MeanVarianceNormalization", WIDE, axes=[0]), WIDE),
    "SpaceToDepth": (one("SpaceToDepth", [(1, 1, 0, 0)], blocksize=1 << 20), (1, 1 << 40, 0, 0)),
    "Tile": (one("Tile", [(1, 0)], [ints(1 << 40, 1 << 10)]), LONG),
    "RandomUniform": (one("RandomUniform", shape=[1 << 40, 0]), LONG),
    "a product of nothing": (one("Einsum", [(1, 1 << 20, 0), (0, 1 << 20)], equation="abc,cd->"), ()),
    "a sum over an empty inner axis": (two("ConstantOfShape", {"s": ints(1 << 40, 0)}, "ReduceSum", keepdims=0), ()),
}


@pytest.mark.parametrize("backend", ["interp", "cpu"])
@pytest.mark.parametrize("name", NOTHING)
def test_loops_around_nothing_run_nothing(name, backend):
    (made, inputs), shape = NOTHING[name]
    function = _core.Function(_core.import_onnx(made.SerializeToString(), None, False), backend=backend)
    start = time.process_time()
    (y,) = function(*inputs)
    assert time.process_time() - start < 2
    assert y.shape == shape and not y.any()


def test_a_box_far_larger_than_its_map_costs_what_the_map_does():
    made, inputs = one("RoiAlign", [(1, 1, 3, 3), BOX], [ints(0)], output_height=2, output_width=2, sampling_ratio=0)
    start = time.process_time()
    far = ONNXModel("m", made)(inputs[0], np.float32([[0, 0, 1e9, 1e9]]))
    assert time.process_time() - start < 5 and np.isfinite(far).all()


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("box", [[-9, -7, 40, 30], [1, 1, 2.5, 3], [-20, 3, -5, 4], [2, 2, 1, 1]])
def test_samples_beside_the_map_count_as_zero(mode, box):
    made, _ = one("RoiAlign", [(1, 1, 6, 5), BOX], [ints(0)], output_height=2, output_width=3, mode=mode, sampling_ratio=0)
    x, box = np.random.default_rng(0).standard_normal((1, 1, 6, 5)).astype(np.float32) - 2, np.float32([box])
    from onnx.reference import ReferenceEvaluator
    wanted = ReferenceEvaluator(made).run(None, {"x0": x, "x1": box})[0] if mode == "avg" else _max_of_samples(x[0, 0], box[0], 2, 3)
    np.testing.assert_allclose(ONNXModel("m", made)(x, box), wanted, rtol=1e-4, atol=1e-5)


def _max_of_samples(x, box, rows, columns):
    """RoiAlign's maximum as dcml defines it: of each sample's largest share, with zero for samples beside the map."""
    (h, w), y = x.shape, np.zeros((1, 1, rows, columns), np.float32)
    x0, y0, x1, y1 = box - 0.5
    high, wide = (y1 - y0) / rows, (x1 - x0) / columns
    parts = [int(np.ceil(high)), int(np.ceil(wide))]
    for p in range(rows):
        for q in range(columns):
            seen = []
            for i in range(parts[0]):
                for j in range(parts[1]):
                    b, a = y0 + p * high + (i + 0.5) * high / parts[0], x0 + q * wide + (j + 0.5) * wide / parts[1]
                    if not (-1 <= b <= h and -1 <= a <= w):
                        seen.append(0)
                        continue
                    b, a = min(max(b, 0), h - 1), min(max(a, 0), w - 1)
                    lows = min(int(b), h - 1), min(int(a), w - 1)
                    for s in (0, 1):
                        for t in (0, 1):
                            k, m = min(lows[0] + s, h - 1), min(lows[1] + t, w - 1)
                            seen.append(max(1 - abs(b - lows[0] - s), 0) * max(1 - abs(a - lows[1] - t), 0) * x[k, m])
            y[0, 0, p, q] = max(seen, default=0)
    return y


def test_what_is_passed_in_justifies_steps():
    x = np.random.default_rng(0).standard_normal((1, 8, 64, 64)).astype(np.float32)  # 128 KB: as many steps as 2^37
    made, _ = one("LRN", [x.shape], size=(1 << 31) // x.size * 2)  # 2^32 of them
    graph = _core.import_onnx(made.SerializeToString(), None, False)
    start = time.process_time()
    assert _core.Function(graph)(x)[0].shape == x.shape
    assert time.process_time() - start < 200


def test_weights_of_a_loops_body_justify_what_it_stacks():
    weight = np.zeros((64, 1024), np.float32)  # 256 KB: as much as 4 GB
    nodes = [helper.make_node("Identity", ["s0"], ["s0_out"]), helper.make_node("Add", ["s0", "w"], ["z0"])]
    inner = body(nodes, scans=1)
    inner.initializer.append(numpy_helper.from_array(weight, "w"))
    made = model([helper.make_node("Loop", ["t", "", "x"], ["last", "y"], name="evil", body=inner)], [("x", FLOAT, ["n"])],
                 {"t": np.int64(1100)})
    assert ONNXModel("m", made)(floats(1)).shape == (1100, *weight.shape)  # 275 MB, more than nothing justifies


@pytest.mark.parametrize("allow, code", [("1", 1), ("nonsense", 1), ("0.5", 1), ("4", 0), ("inf", 0)])
def test_the_user_may_allow_more(allow, code):
    program = ("import numpy as np, dcml; from dcml import _core\n"
               "graph = _core.parse('''graph g opset 18 {\\n  const n: i64[1] = {3000000000}\\n  temp e: none\\n  temp y: none\\n  outputs y\\n"
               "  state main {\\n    e = ConstantOfShape@9(n)\\n    y = ReduceSum@13(e)\\n  }\\n}''')\n"
               "try: _core.Function(graph, backend='cpu')()\n"
               "except dcml.Error as error: raise SystemExit('DCML_ALLOW' in str(error) or 2)\n")
    run = subprocess.run([sys.executable, "-c", program], env={**os.environ, "DCML_ALLOW": allow}, capture_output=True, text=True)
    assert run.returncode == code, run.stderr


@pytest.mark.parametrize("kind, dtype", [("INTS", np.int64), ("FLOATS", np.float32), ("STRINGS", object)])
def test_an_empty_list_in_constant_is_an_empty_tensor(kind, dtype):
    node = helper.make_node("Constant", [], ["y"])
    node.attribute.append(AttributeProto(name=f"value_{kind.lower()}", type=getattr(AttributeProto, kind)))
    code = {"INTS": INT, "FLOATS": FLOAT, "STRINGS": TensorProto.STRING}[kind]
    y = ONNXModel("m", model([node], [], kind=code))()
    assert y.shape == (0,) and y.dtype == dtype


def test_an_empty_list_of_extents_reshapes_to_a_number():
    node = helper.make_node("Constant", [], ["s"])
    node.attribute.append(AttributeProto(name="value_ints", type=AttributeProto.INTS))
    made = model([node, helper.make_node("Reshape", ["x", "s"], ["y"])], [("x", FLOAT, [1])])
    assert ONNXModel("m", made)(np.float32([7])).tolist() == 7


def test_a_chain_that_doubles_is_refused_before_memory_is_taken():
    nodes = [helper.make_node("Concat", [f"c{k}"] * 2, [f"c{k + 1}"], name=f"evil{k}", axis=0) for k in range(33)]
    _is_refused(model([*nodes, helper.make_node("ReduceSum", ["c33"], ["y"])], [("c0", FLOAT, [1])]), [floats(1)], seconds=2)

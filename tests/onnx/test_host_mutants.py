"""Models with control flow, sequences and strings, changed at random: each gives a result or a dcml.Error."""
import random
import signal

import numpy as np
import pytest

import backend_cases
import dcml
from dcml.onnx import ONNXModel

onnx = pytest.importorskip("onnx")
from onnx import numpy_helper  # noqa: E402

pytestmark = pytest.mark.usefixtures("interpreted")

NAMES = ("test_loop11", "test_loop13_seq", "test_loop16_seq_none", "test_scan_sum", "test_scan9_multi_state", "test_if", "test_if_seq",
         "test_if_opt", "test_sequence_map_add_2_sequences_expanded", "test_sequence_map_add_1_sequence_1_tensor", "test_string_split_basic",
         "test_string_concat", "test_strnormalizer_export_monday_casesensintive_lower", "test_tfidfvectorizer_tf_only_bigrams_skip0",
         "test_ai_onnx_ml_label_encoder_string_int", "test_optional_get_element_sequence", "test_nonmaxsuppression_suppress_by_IOU",
         "test_unique_sorted_with_axis_3d", "test_compress_0", "test_range_float_type_positive_delta_expanded", "test_flexattention_score_mod",
         "test_gradient_of_add_and_mul", "test_split_to_sequence_1", "test_regex_full_match_basic", "test_affine_grid_2d_expanded")
CASES = {case.name: case for case in backend_cases.collect_all() if case.name in NAMES}
OPERATORS = ("Identity", "Add", "SequenceAt", "SequenceConstruct", "Optional", "OptionalGetElement", "StringConcat", "NonZero", "Unique",
             "Compress", "Concat", "If", "Loop", "Scan", "SequenceMap", "SplitToSequence", "ConcatFromSequence", "Cast", "Reshape", "Shape",
             "Equal", "StringSplit", "TfIdfVectorizer", "SequenceInsert", "Where", "Expand", "Range")


def graphs(graph):
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == attribute.GRAPH:
                yield from graphs(attribute.g)


def change_tensor(rng, tensor):
    array = numpy_helper.to_array(tensor).copy()
    if array.size and array.dtype.kind in "if":
        array.flat[rng.randrange(array.size)] = rng.choice([-1, 0, 1, 7, 1000])
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def change_attribute(rng, a):
    value = rng.choice([-1, 0, 1, 2, 5, -7, 1 << 31, 1 << 62, -(1 << 63)])
    if a.type == a.INT:
        a.i = value
    elif a.type == a.INTS and a.ints:
        a.ints[rng.randrange(len(a.ints))] = value
    elif a.type == a.STRING:
        a.s = rng.choice([b"", b"x", b"\xff", b"TF", b"(", b"LOWER"])
    elif a.type == a.TENSOR:
        change_tensor(rng, a.t)


def mutate(rng, model):
    all_graphs = list(graphs(model.graph))
    graph = rng.choice(all_graphs)
    names = [n for g in all_graphs for node in g.node for n in (*node.input, *node.output)] + [v.name for g in all_graphs for v in g.input] + [""]
    if not graph.node:
        return
    node = rng.choice(graph.node)

    def pick(items, act):
        return items and act(rng.randrange(len(items)))

    rng.choice([
        lambda: pick(node.input, lambda k: node.input.__setitem__(k, rng.choice(names))),
        lambda: pick(node.output, lambda k: node.output.__setitem__(k, rng.choice(names))),
        lambda: pick(node.attribute, lambda k: node.attribute.__delitem__(k)),
        lambda: pick(node.attribute, lambda k: change_attribute(rng, node.attribute[k])),
        lambda: setattr(node, "op_type", rng.choice(OPERATORS)),
        lambda: pick(node.input, lambda k: node.input.__delitem__(k)),
        lambda: node.input.append(rng.choice(names)),
        lambda: node.output.append(f"extra{rng.randrange(99)}"),
        lambda: pick(graph.initializer, lambda k: change_tensor(rng, graph.initializer[k])),
        lambda: pick(graph.output, lambda k: setattr(graph.output[k], "name", rng.choice(names))),
    ])()


class EndlessLoop(Exception):
    """A loop may run for ever: that is the model's right, and not what is tested here."""


def stop(*_):
    raise EndlessLoop


@pytest.mark.parametrize("name", NAMES)
def test_mutants_give_a_result_or_an_error(name):
    case, rng, endless = CASES[name], random.Random(name), 0
    inputs = [backend_cases._value(x) for x in list(case.data_sets)[0][0]]
    before = signal.signal(signal.SIGALRM, stop)
    try:
        for _ in range(30):
            model = onnx.ModelProto()
            model.CopyFrom(case.model)
            for _ in range(rng.randint(1, 3)):
                mutate(rng, model)
            signal.alarm(5)
            try:
                with np.errstate(all="ignore"):
                    ONNXModel("mutant", model)(*inputs)
            except dcml.Error:
                continue
            except EndlessLoop:
                assert any(node.op_type == "Loop" for g in graphs(model.graph) for node in g.node)
                endless += 1
            finally:
                signal.alarm(0)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert endless <= 2

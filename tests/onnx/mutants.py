"""2,000 mutants of real models, each within 5 seconds, the process within 1 GB more than it starts with.

Run as a program by test_hostile_files.py: limits on memory and time are a process's.
"""
import pathlib
import random
import resource
import signal
import sys

import numpy as np
import onnx

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import backend_cases  # noqa: E402

import dcml  # noqa: E402
from dcml import _core  # noqa: E402
from dcml.onnx import ONNXModel  # noqa: E402

MUTANTS = 2000
LIGHT = ("bvlc_alexnet", "squeezenet", "zfnet512", "vgg19")
CASES = ("simple/test_sequence_model5", "pytorch-converted/test_Conv2d_strided", "pytorch-converted/test_BatchNorm2d_eval",
         "pytorch-operator/test_operator_addmm", "pytorch-operator/test_operator_pad", "pytorch-operator/test_operator_reduced_mean_keepdim")

HOSTED = {"test_loop11", "test_loop13_seq", "test_loop16_seq_none", "test_if", "test_if_seq", "test_if_opt", "test_scan9_sum", "test_scan_sum",
          "test_sequence_map_add_2_sequences", "test_sequence_insert_at_front", "test_split_to_sequence_1", "test_optional_get_element_sequence",
          "test_string_split_basic", "test_string_concat", "test_nonzero_example", "test_unique_sorted_with_axis", "test_compress_0",
          "test_nonmaxsuppression_suppress_by_IOU", "test_reshape_reordered_all_dims", "test_ai_onnx_ml_label_encoder_tensor_mapping"}


def seeds():
    """(model, inputs): networks of the onnx package, cases of its operators, and those of what the host runs."""
    data = pathlib.Path(onnx.__file__).parent / "backend" / "test" / "data"
    paths = [data / "light" / f"light_{name}.onnx" for name in LIGHT] + [data / name / "model.onnx" for name in CASES]
    found = [(path.read_bytes(), None) for path in paths]
    for case in backend_cases.collect():
        if case.name in HOSTED:
            found.append((case.model.SerializeToString(), [backend_cases._value(v) for v in case.data_sets[0][0]]))
    return found


NUMBERS = (0, 1, -1, 2, 7, 255, 65536, -(1 << 31), (1 << 31) - 1, 1 << 40, (1 << 63) - 1, -(1 << 63))


def _number(field, rng):
    if field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return rng.choice((0.0, -1.0, 1e30, float("nan"), float("inf")))
    if field.enum_type is not None:
        return rng.choice(sorted(field.enum_type.values_by_number))
    bits = 31 if field.cpp_type == field.CPPTYPE_INT32 else 63
    return rng.choice([n for n in NUMBERS if -(1 << bits) <= n < 1 << bits and (n >= 0 or field.cpp_type != field.CPPTYPE_UINT64)])


def _leaf(field, value, rng, words):
    if isinstance(value, str):
        return rng.choice(words)
    return rng.choice((b"", value * 2, value[:-1], value[::-1])) if isinstance(value, bytes) else _number(field, rng)


def _change(message, rng, words):
    """One field of a message, or of one inside it, gets another value, is dropped, repeated or moved."""
    fields = message.ListFields()
    if not fields:
        return
    field, value = rng.choice(fields)
    if isinstance(value, (str, bytes, int, float)):
        setattr(message, field.name, _leaf(field, value, rng, words))
    elif hasattr(value, "ListFields"):
        _change(value, rng, words)
    else:
        at, nested = rng.randrange(len(value)), field.type == field.TYPE_MESSAGE
        kind = rng.randrange(8 if nested else 4)
        if kind == 0:
            del value[at]
        elif kind == 1:
            value.append(value[at])
        elif kind == 2 and nested:
            value.insert(rng.randrange(len(value)), value.pop(at))
        elif nested:
            _change(value[at], rng, words)
        else:
            value[at] = _leaf(field, value[at], rng, words)


def _words(message):
    for field, value in message.ListFields():
        for item in value if hasattr(value, "append") else [value]:
            if isinstance(item, str):
                yield item
            elif hasattr(item, "ListFields"):
                yield from _words(item)


def mutant(data, rng):
    """A model with one to three fields changed; now and then a file with a few bytes changed."""
    if rng.randrange(4) == 0:
        return _changed_bytes(data, rng)
    model = onnx.ModelProto.FromString(data)
    words = sorted(set(_words(model)))
    for _ in range(rng.randint(1, 3)):
        _change(model, rng, words)
    return model.SerializeToString()


def _changed_bytes(data, rng):
    out = bytearray(data)
    for _ in range(rng.randint(1, 6)):
        at, kind = rng.randrange(len(out)), rng.randrange(3)
        if kind == 0:
            out[at] = rng.randrange(256)
        elif kind == 1:
            del out[at:at + rng.randint(1, 4)]
        else:
            out[at:at] = bytes(rng.randrange(256) for _ in range(rng.randint(1, 4)))
    return bytes(out)


def attempt(data, inputs):
    """Runs a host's model on its inputs; imports any other, infers every shape, and runs on zeros what has small inputs."""
    if inputs is not None:
        ONNXModel("mutant", data)(*inputs)
        return
    graph = _core.import_onnx(data, None, False)
    graph.to_onnx()
    shapes = [graph.info(name)[1] for name in graph.inputs]
    shapes = [[d if isinstance(d, int) else 1 for d in shape] for shape in shapes]
    if sum(int(np.prod(shape, dtype=np.float64)) for shape in shapes) < 4096:
        _core.Function(graph, backend="interp")(*[np.zeros(shape, np.float32) for shape in shapes])


def main():
    held = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + (1 << 30), resource.RLIM_INFINITY))
    rng, originals, refused = random.Random(0), seeds(), 0
    for k in range(MUTANTS):
        data, inputs = originals[k % len(originals)]
        signal.alarm(5)
        try:
            attempt(mutant(data, rng), inputs)
        except dcml.Error:
            refused += 1
    signal.alarm(0)
    print(f"{MUTANTS} mutants, {refused} refused")


if __name__ == "__main__":
    sys.exit(main())

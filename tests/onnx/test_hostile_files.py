"""Model files that lie: each gives a result or a dcml.Error, never a crash or a hang."""
import pathlib
import resource
import struct
import subprocess
import sys
import time

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dcml
from dcml import _core


def _model(nodes, inputs=("x",), outputs=("y",), initializers=(), opset=18, functions=()):
    value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3]) for n in inputs]
    results = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs]
    graph = helper.make_graph(list(nodes), "g", value, results, list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], functions=list(functions))


def _node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs, outputs, **attributes)


def _small():
    weight = helper.make_tensor("w", TensorProto.FLOAT, [3, 4], np.arange(12, dtype=np.float32))
    nodes = [_node("MatMul", ["x", "w"], ["m"]), _node("Relu", ["m"], ["r"]), _node("Softmax", ["r"], ["y"], axis=-1)]
    return _model(nodes, initializers=[weight])


def _tensor(**fields):
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT)
    for name, value in fields.items():
        if isinstance(value, list):
            getattr(tensor, name).extend(value)
        else:
            setattr(tensor, name, value)
    return tensor


def _nested(depth):
    inner = b""
    for _ in range(depth):
        inner = b"\x22" + _varint(len(inner)) + inner  # TypeProto.sequence_type.elem_type, again and again
        inner = b"\x0a" + _varint(len(inner)) + inner
    return b"\x3a" + _varint(len(inner)) + inner


def _varint(n):
    out = b""
    while True:
        out += bytes([n & 127 | (128 if n > 127 else 0)])
        n >>= 7
        if not n:
            return out


def _function(name, calls):
    return helper.make_function("f", name, ["a"], ["b"], [helper.make_node(calls, ["a"], ["b"], domain="f")],
                                [helper.make_opsetid("", 18), helper.make_opsetid("f", 1)])


def _twice(node):
    node.attribute.append(node.attribute[0])
    return _model([node])


BAD = {
    "not protobuf": b"hello, world",
    "empty": b"",
    "nested 5000 deep": _nested(5000),
    "no graph": onnx.ModelProto().SerializeToString(),
    "unknown input": _model([_node("Relu", ["nobody"], ["y"])]),
    "names that agree up to a zero byte": _model([_node("Add", ["x\0a", "x\0b"], ["y"])], inputs=("x\0a", "x\0b")),
    "cyclic graph": _model([_node("Relu", ["b"], ["a"]), _node("Relu", ["a"], ["b"]), _node("Relu", ["b"], ["y"])]),
    "value computed twice": _model([_node("Relu", ["x"], ["y"]), _node("Abs", ["x"], ["y"])]),
    "two inputs of one name": _model([_node("Relu", ["x"], ["y"])], inputs=("x", "x")),
    "two outputs of one name": _model([_node("Relu", ["x"], ["y"])], outputs=("y", "y")),
    "two initialisers of one name": _model([_node("Add", ["x", "w"], ["y"])], initializers=[_tensor(dims=[1], raw_data=b"1234")] * 2),
    "two functions of one name": _model([helper.make_node("F", ["x"], ["y"], domain="f")], functions=[_function("F", "G"), _function("F", "G")]),
    "an input computed again": _model([_node("Relu", ["x"], ["x"]), _node("Relu", ["x"], ["y"])]),
    "attribute given twice": _twice(_node("Softmax", ["x"], ["y"], axis=0)),
    "node without outputs": _model([_node("Relu", ["x"], []), _node("Relu", ["x"], ["y"])]),
    "output not computed": _model([_node("Relu", ["x"], ["z"])]),
    "huge dims, small data": _model([_node("Add", ["x", "w"], ["y"])], initializers=[_tensor(dims=[1 << 40, 1 << 40], raw_data=b"1234")]),
    "negative dim": _model([_node("Add", ["x", "w"], ["y"])], initializers=[_tensor(dims=[-3], raw_data=b"")]),
    "raw data too short": _model([_node("Add", ["x", "w"], ["y"])], initializers=[_tensor(dims=[3], raw_data=b"1234")]),
    "unknown data type": _model([_node("Add", ["x", "w"], ["y"])], initializers=[_tensor(dims=[1], data_type=99, raw_data=b"1")]),
    "rank bomb": _model([_node("Add", ["x", "w"], ["y"])], initializers=[_tensor(dims=[1] * 5000, raw_data=b"1234")]),
    "external data without a folder": _model([_node("Add", ["x", "w"], ["y"])], initializers=[_tensor(
        dims=[3], data_location=TensorProto.EXTERNAL, external_data=[onnx.StringStringEntryProto(key="location", value="../secret")])]),
    "function that calls itself": _model([helper.make_node("F", ["x"], ["y"], domain="f")], functions=[_function("F", "F")]),
    "functions that call each other": _model([helper.make_node("F", ["x"], ["y"], domain="f")],
                                             functions=[_function("F", "G"), _function("G", "F")]),
    "wrong attribute kind": _model([_node("Softmax", ["x"], ["y"], axis="last")]),
    "axis out of range": _model([_node("Softmax", ["x"], ["y"], axis=9)]),
    "permutation with repeats": _model([_node("Transpose", ["x"], ["y"], perm=[0, 0])]),
    "kernel larger than the image": _model([_node("MaxPool", ["x"], ["y"], kernel_shape=[1 << 40])]),
    "tile into exabytes": _model([_node("Tile", ["x", "w"], ["y"])], initializers=[
        helper.make_tensor("w", TensorProto.INT64, [2], [1 << 30, 1 << 30])]),
}


def _made(op, *values, inputs=("x",), opset=18, **attributes):
    """A model of one operator whose further inputs are constants."""
    names = [f"c{k}" for k in range(len(values))]
    constants = [numpy_helper.from_array(np.asarray(v), n) for v, n in zip(values, names)]
    return _model([_node(op, [*inputs, *names], ["y"], **attributes)], initializers=constants, opset=opset)


def _ints(*values):
    return np.array(values, np.int64)


HUGE = {
    "ConstantOfShape of a terabyte": _made("ConstantOfShape", _ints(1 << 19, 1 << 19), inputs=()),
    "ConstantOfShape beyond 64 bits": _made("ConstantOfShape", _ints(1 << 40, 1 << 40), inputs=()),
    "Expand": _made("Expand", _ints(1 << 36, 2, 3)),
    "Tile": _made("Tile", _ints(1 << 19, 1 << 19)),
    "Pad": _made("Pad", _ints(1 << 19, 1 << 19, 1 << 19, 1 << 19)),
    "Resize": _made("Resize", np.float32([]), np.float32([1e6, 1e6])),
    "Resize to infinity": _made("Resize", np.float32([]), np.float32([1e30, 1e30])),
    "Range": _made("Range", np.float32(0), np.float32(1e15), np.float32(1), inputs=()),
    "OneHot": _made("OneHot", _ints(1, 2), np.int64(1 << 45), np.float32([0, 1]), inputs=()),
    "MaxUnpool": _made("MaxUnpool", np.ones((1, 1, 1, 1), np.float32), np.zeros((1, 1, 1, 1), np.int64), _ints(1, 1, 1 << 20, 1 << 20),
                       inputs=(), kernel_shape=[2, 2]),
    "Conv with wide padding": _made("Conv", np.ones((1, 1, 1, 1), np.float32), np.ones((1, 1, 1, 1), np.float32), inputs=(), pads=[1 << 20] * 4),
    "RandomNormal": _made("RandomNormal", inputs=(), shape=[1 << 20, 1 << 20]),
}


@pytest.mark.parametrize("name", HUGE)
def test_a_run_that_needs_too_much_memory_is_an_error(name):
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises(dcml.Error):
        _run(HUGE[name].SerializeToString())
    assert time.process_time() - start < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 18


def _run(data, folder=None):
    """Imports and, if that succeeds, calls on zeros."""
    graph = _core.import_onnx(data, folder, False)
    shapes = [graph.info(name)[1] for name in graph.inputs]
    inputs = [np.zeros([d if isinstance(d, int) and d < 100 else 1 for d in s], np.float32) for s in shapes]
    return _core.Function(graph, backend="interp")(*inputs)


@pytest.mark.parametrize("name", BAD)
def test_bad_file_is_an_error(name):
    data = BAD[name] if isinstance(BAD[name], bytes) else BAD[name].SerializeToString()
    with pytest.raises(dcml.Error):
        _run(data)


@pytest.mark.parametrize("location", ["/etc/hostname", "../outside.bin", "link.bin", "folder/../../outside.bin", "missing.bin"])
def test_external_data_stays_inside_the_folder(tmp_path, location):
    inside = tmp_path / "model"
    inside.mkdir()
    (tmp_path / "outside.bin").write_bytes(struct.pack("3f", 1, 2, 3))
    (inside / "folder").mkdir()
    (inside / "link.bin").symlink_to(tmp_path / "outside.bin")
    tensor = _tensor(dims=[3], data_location=TensorProto.EXTERNAL,
                     external_data=[onnx.StringStringEntryProto(key="location", value=location)])
    with pytest.raises(dcml.ModelError):
        _run(_model([_node("Add", ["x", "w"], ["y"])], initializers=[tensor]).SerializeToString(), str(inside))


@pytest.mark.parametrize("offset, length", [("4", "12"), ("0", "13"), ("-4", "12"), ("9999999999999999999999", "12"), ("0", "x")])
def test_external_data_stays_inside_the_file(tmp_path, offset, length):
    (tmp_path / "w.bin").write_bytes(struct.pack("3f", 1, 2, 3))
    entries = [onnx.StringStringEntryProto(key=k, value=v) for k, v in (("location", "w.bin"), ("offset", offset), ("length", length))]
    tensor = _tensor(dims=[3], data_location=TensorProto.EXTERNAL, external_data=entries)
    with pytest.raises(dcml.ModelError):
        _run(_model([_node("Add", ["x", "w"], ["y"])], initializers=[tensor]).SerializeToString(), str(tmp_path))


def test_external_data_larger_than_memory_is_an_error(tmp_path):
    with open(tmp_path / "w.bin", "wb") as file:
        file.truncate(1 << 40)  # a hole: it takes no room on the disk
    entry = onnx.StringStringEntryProto(key="location", value="w.bin")
    tensor = _tensor(dims=[1 << 38], data_location=TensorProto.EXTERNAL, external_data=[entry])
    with pytest.raises(dcml.Error):
        _run(_model([_node("Add", ["x", "w"], ["y"])], initializers=[tensor]).SerializeToString(), str(tmp_path))


def test_external_data_is_read(tmp_path):
    (tmp_path / "w.bin").write_bytes(struct.pack("4f", 0, 1, 2, 3))
    entries = [onnx.StringStringEntryProto(key=k, value=v) for k, v in (("location", "w.bin"), ("offset", "4"), ("length", "12"))]
    tensor = _tensor(dims=[3], data_location=TensorProto.EXTERNAL, external_data=entries)
    (result,) = _run(_model([_node("Add", ["x", "w"], ["y"])], initializers=[tensor]).SerializeToString(), str(tmp_path))
    np.testing.assert_array_equal(result, [[1, 2, 3], [1, 2, 3]])


def test_every_prefix_of_a_model_is_an_error_or_a_model():
    data = _small().SerializeToString()
    for n in range(len(data)):
        try:
            _run(data[:n])
        except dcml.Error:
            continue


def test_2000_mutants_of_real_models_give_a_result_or_an_error():
    run = subprocess.run([sys.executable, pathlib.Path(__file__).with_name("mutants.py")], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-1000:] + run.stderr[-3000:]

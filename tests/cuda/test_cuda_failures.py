"""What goes wrong on the CUDA target: errors say what and where, nothing leaks, the next call works."""
import itertools
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from onnx import TensorProto, helper

import dcml
from dcml import _core
from dcml.onnx import ONNXModel

UNIQUE = itertools.count(int.from_bytes(os.urandom(2), "little"))  # makes kernels that no cache has


def _model(n=64):
    """y = x * factor for x >= 0, with a constant that no other model has."""
    factor = helper.make_tensor("factor", TensorProto.FLOAT, [n], np.arange(n, dtype=np.float32) + 1)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [n]) for name in "xy")
    slope = 1 + next(UNIQUE) / 2**20
    nodes = [helper.make_node("LeakyRelu", ["x"], ["e"], alpha=slope), helper.make_node("Mul", ["e", "factor"], ["y"])]
    return helper.make_model(helper.make_graph(nodes, "scaled", [x], [y], [factor]), opset_imports=[helper.make_opsetid("", 17)])


X = np.linspace(1, 2, 64, dtype=np.float32)
Y = X * np.arange(1, 65, dtype=np.float32)


@pytest.mark.parametrize("failure", ["cuMemAllocAsync:1", "cuMemAllocAsync:2", "cuMemcpyHtoDAsync_v2:1", "cuMemcpyHtoDAsync_v2:2", "cuLaunchKernel:1",
                                     "cuMemcpyDtoHAsync_v2:1", "cuModuleLoadData:1", "cuModuleGetFunction:1", "nvrtcCreateProgram:1",
                                     "nvrtcCompileProgram:1", "nvrtcGetCUBIN:1", "cuStreamSynchronize:1", "cuCtxPushCurrent_v2:1"])
def test_a_call_that_fails_says_so_leaves_nothing_and_the_next_one_works(fake, failure):
    ONNXModel("first", _model(), cuda=True)(X)  # whatever a session makes once
    before = fake.alive()
    model = ONNXModel("scaled", _model(), cuda=True)
    with fake.logged() as calls:
        fake.set(FAIL=failure)
        try:
            y = model(X)
        except dcml.Error as error:
            assert re.search("CUDA_ERROR|NVRTC|cannot get [0-9]+ bytes|lacks its kernels", str(error)), error
        else:  # what is not called cannot fail
            np.testing.assert_array_equal(y, Y)
            assert failure.partition(":")[0] not in [name for name, *_ in calls]
    fake.unset("FAIL")
    np.testing.assert_array_equal(model(X), Y)
    del model
    after = fake.alive()
    assert after._replace(modules=0) == before._replace(modules=0)


def test_memory_that_does_not_suffice_is_told_with_its_size(fake):
    model = ONNXModel("scaled", _model(), cuda=True)
    model(X)
    before = fake.alive()
    fake.set(MEMORY=before.bytes + 100)
    with pytest.raises((dcml.Error, MemoryError), match="cannot get 256 bytes"):
        model(X)
    fake.unset("MEMORY")
    np.testing.assert_array_equal(model(X), Y)
    assert fake.alive() == before


def test_a_dropped_program_gives_all_back(fake):
    ONNXModel("first", _model(), cuda=True)(X)
    before = fake.alive()
    for _ in range(3):
        model = ONNXModel("scaled", _model(), cuda=True)
        model(X)
        del model
        after = fake.alive()
        assert after._replace(modules=0) == before._replace(modules=0)


def test_a_dropped_program_gives_all_back_though_its_work_is_not_done(fake):
    ONNXModel("first", _model(), cuda=True)(X)
    before = fake.alive()
    fake.set(LAZY=1)
    model = ONNXModel("scaled", _model(), cuda=True)
    y = model(X)
    del model
    np.testing.assert_array_equal(y, Y)
    assert fake.alive()._replace(modules=0) == before._replace(modules=0)


def _gather():
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [5])
    i = helper.make_tensor_value_info("i", TensorProto.INT64, [3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])
    node = helper.make_node("Gather", ["x", "i"], ["y"], name="picks")
    return helper.make_model(helper.make_graph([node], "gather", [x, i], [y]), opset_imports=[helper.make_opsetid("", 17)])


def test_an_index_out_of_range_is_told_by_the_next_call_at_the_latest(fake):
    model, x, good = ONNXModel("gather", _gather(), cuda=True), np.arange(5, dtype=np.float32), np.array([4, 0, -1])
    np.testing.assert_array_equal(model(x, good), x[good])
    with pytest.raises(dcml.Error, match="picks|Gather"):
        model(x, np.array([0, 5, 1]))
        model(x, good)
    np.testing.assert_array_equal(model(x, good), x[good])
    assert not fake.fault()


def test_a_device_that_is_not_there_is_named(fake):
    graph = _core.import_onnx(_model().SerializeToString())
    with pytest.raises(dcml.DeviceError, match="cuda:7"):
        _core.Function(graph, backend="cuda", ordinal=7)(X)


RUN = """
import sys, numpy as np, dcml
from dcml.onnx import ONNXModel
try:
    print(ONNXModel("m", sys.stdin.buffer.read(), cuda=True)(np.ones(64, np.float32)).sum())
except dcml.DeviceError as error:
    print("DeviceError:", error)
"""


def _run(**environment):
    """What a process of its own says."""
    done = subprocess.run([sys.executable, "-c", RUN], input=_model().SerializeToString(), env={**os.environ, **environment},
                          capture_output=True, timeout=100)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


@pytest.mark.parametrize("environment, why", [
    ({"DCML_CUDA_DRIVER": "/nowhere/libcuda.so"}, "/nowhere/libcuda.so"),
    ({"DCML_NVRTC": "/nowhere/libnvrtc.so"}, "/nowhere/libnvrtc.so"),
    ({"FAKE_CUDA_DEVICES": "0"}, "no GPU"),
    ({"FAKE_CUDA_VERSION": "11080"}, "CUDA 12"),
    ({"FAKE_CUDA_ARCH": "52"}, "compute capability 5.2"),
    ({"FAKE_CUDA_ARCH": "70"}, "does not compile for compute capability 7.0.*pip install nvidia-cuda-nvrtc-cu12"),
    ({"FAKE_CUDA_ARCH": "130"}, "does not compile for compute capability 13.0.*newer one"),
    ({"FAKE_CUDA_FAIL": "cuInit:1:804"}, "cannot|not start"),
    ({"FAKE_CUDA_FAIL": "cuDevicePrimaryCtxRetain:1:101"}, "cuda:0"),
], ids=["no driver", "no compiler", "no device", "an old driver", "an old device", "a device before the compiler",
        "a device after the compiler", "a driver that refuses", "a device that refuses"])
def test_a_machine_that_cannot_run_it_is_told_why(fake, environment, why):
    said = _run(**environment)
    assert said.startswith("DeviceError:") and re.search(why, said), said


def test_a_process_ends_with_nothing_left(fake, tmp_path):
    log = tmp_path / "log"
    said = _run(FAKE_CUDA_LOG=str(log))
    assert float(said) == 64 * 65 / 2
    names = [line.split(" ")[0] for line in log.read_text().splitlines()]
    assert names.count("cuLaunchKernel") >= 1 and "fault" not in names
    assert names.count("cuMemAllocAsync") == names.count("cuMemFreeAsync")

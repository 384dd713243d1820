"""The cases of test_device_tensors.py, run in a process of its own, since the core remembers which torch it met first.

Arguments: a file, to which it writes {case: None, or what it raised} as JSON, and a folder for logs of the driver."""
import ctypes
import gc
import json
import os
import sys
import traceback

import dcml
import device_tensors as d
import numpy as np
import pytest
import simulated
from dcml import _core

library = simulated.library(os.environ["DCML_CUDA_DRIVER"])
d.stand_for_torch(pytest.MonkeyPatch(), library)
TEXT = '''graph g opset 21 {
  symbol N >= 0
  input x: f32[N]
  input y: f32[N]
  input a: f32[]
  temp h: f32[N]
  temp s: f32[]
  temp z: f32[N]
  outputs z
  state main {
    map i in 0:N {
      h[i] = x[i] * a[] + y[i]
    }
    s[] = 0
    scatter i in 0:N {
      s[] sum= h[i]
    }
    map i in 0:N {
      z[i] = h[i] * s[]
    }
  }
}'''
x, y = np.arange(5, dtype=np.float32), np.ones(5, np.float32)
h = x * 3 + y
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def alive():
    gc.collect()
    counts = (ctypes.c_longlong * 8)()
    library.fake_cuda_alive(counts)
    return counts[0]


@case
def results_are_where_the_arguments_are_and_nothing_is_left():
    f = _core.Function(_core.parse(TEXT), torch=True, backend="cuda", ordinal=0)
    z, = f(d.put(x), d.put(y), 3.0)
    before = alive()
    for _ in range(3):
        z, = f(d.put(x), d.put(y), d.put(np.float32(3), None))
        assert isinstance(z, d.DeviceTensor) and z.device == "cuda:0" and z.dtype == np.float32
        np.testing.assert_allclose(z.get(), h * h.sum(), rtol=1e-6)
    assert alive() == before


@case
def a_function_without_a_device_goes_where_its_arguments_are():
    f = _core.Function(_core.parse(TEXT))
    z, = f(d.put(x), d.put(y), 3.0)
    assert z.device == "cuda:0"
    np.testing.assert_allclose(z.get(), h * h.sum(), rtol=1e-6)
    z, = f(x, y, 3.0)
    assert isinstance(z, np.ndarray)
    np.testing.assert_allclose(z, h * h.sum(), rtol=1e-6)


@case
def gradients_come_with_zeros_where_none_is_given():
    f = _core.Function(_core.parse(TEXT), torch=True, backend="cuda", ordinal=0, wrt=["x", "a"])
    a = d.put(np.float32(3))
    (z,), (gx, ga) = f.vjp((d.put(x), d.put(y), a), (d.put(np.ones(5, np.float32)),))
    assert gx.device == ga.device == "cuda:0" and ga.shape == ()
    np.testing.assert_allclose(gx.get(), np.full(5, 6 * h.sum()), rtol=1e-5)
    np.testing.assert_allclose(ga.get(), 2 * h.sum() * x.sum(), rtol=1e-5)
    outputs, call = f._run((d.put(x), d.put(y), a))
    before = alive()
    for _ in range(3):
        gx, ga = call.backward((d.put(np.ones(5, np.float32)),))
        np.testing.assert_allclose(gx.get(), np.full(5, 6 * h.sum()), rtol=1e-5)
        none = call.backward((None,))
        with pytest.raises(dcml.DeviceError, match="'z'"):
            call.backward((np.ones(5, np.float32),))
    del gx, ga, none
    gc.collect()
    del call
    assert alive() < before


@case
def a_call_of_one_kernel_is_one_launch():
    text = "graph g opset 21 {\n input x: f32[16]\n temp z: f32[16]\n outputs z\n state main {\n map i in 0:16 { z[i] = x[i] + 1.0f } } }"
    f = _core.Function(_core.parse(text), torch=True, backend="cuda", ordinal=0, wrt=["x"])
    a, log = d.put(np.ones(16, np.float32)), os.path.join(sys.argv[2], "one")
    f._run((a,))[1].backward((a,))
    d.Memory.call("cuCtxPushCurrent_v2", d.Memory.contexts[0])  # as torch leaves it
    os.environ["FAKE_CUDA_LOG"] = log
    try:
        outputs, call = f._run((a,))
        call.backward((a,))
    finally:
        del os.environ["FAKE_CUDA_LOG"]
        d.Memory.call("cuCtxPopCurrent_v2", None)
    with open(log) as file:
        names = [line.split(" ")[0] for line in file]
    allocator = {"cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "cuMemAllocAsync", "cuMemFreeAsync"}
    assert [name for name in names if name not in allocator | {"cuCtxGetCurrent"}] == ["cuLaunchKernel"]
    assert names.count("cuCtxGetCurrent") == 1 and names.count("cuMemAllocAsync") <= 2, names


@case
def programs_work_in_the_memory_of_torch_on_its_stream():
    stream = ctypes.c_void_p()
    d.Memory.inside("cuStreamCreate", ctypes.byref(stream), 1)
    f = _core.Function(_core.parse(TEXT), torch=True, backend="cuda", ordinal=0, wrt=["x"])
    f.vjp((d.put(x), d.put(y), 3.0), (d.put(np.ones(5, np.float32)),))
    tensors, taken, log = (d.put(x), d.put(y), d.put(np.float32(3))), d.Memory.taken, os.path.join(sys.argv[2], "log")
    d.Memory.stream = stream
    grad = d.put(np.ones(5, np.float32))
    os.environ["FAKE_CUDA_LOG"] = log
    try:
        outputs, call = f._run(tensors)
        call.backward((grad,))
    finally:
        del os.environ["FAKE_CUDA_LOG"]
        d.Memory.stream = None
    with open(log) as file:
        calls = file.read().splitlines()
    launches = [line for line in calls if line.startswith("cuLaunchKernel")]
    streams = {word for line in launches for word in line.split() if word.startswith("stream=")}
    assert len(streams) == 1 and streams != {"stream=0"}, launches
    assert not [line for line in calls if "Synchronize" in line]
    assert d.Memory.taken > taken, "neither arena nor saved block is torch's"


@case
def arguments_on_several_devices_are_named():
    f = _core.Function(_core.parse(TEXT), torch=True, backend="cuda", ordinal=0)
    for other, where in ((d.put(y, 1), "cuda:1"), (d.put(y, None), "CPU")):
        with pytest.raises(dcml.DeviceError, match=f"'x' is on cuda:0.*'y' is on .*{where}"):
            f(d.put(x), other, 3.0)
    with pytest.raises(dcml.DeviceError, match="made for cuda:0"):
        f(d.put(x, 1), d.put(y, 1), 3.0)


@case
def what_is_written_in_place_is_the_tensor_itself():
    text = '''graph g opset 21 {
      symbol N >= 0
      input x: f32[N]
      input a: f32[]
      state main {
        map i in 0:N {
          x[i] = x[i] * a[]
        }
      }
    }'''
    f, t, n = _core.Function(_core.parse(text), flat=True), d.put(x), x.copy()
    f(t, 2.0)
    np.testing.assert_array_equal(t.get(), 2 * x)
    g = _core.Function(_core.parse(text), backend="cuda")
    g(n, 2.0)
    np.testing.assert_array_equal(n, 2 * x)


@case
def empty_tensors_are_no_matter():
    f = _core.Function(_core.parse(TEXT), torch=True, backend="cuda", ordinal=0, wrt=["x"])
    (z,), (gx,) = f.vjp((d.put(x[:0]), d.put(y[:0]), 3.0), (d.put(x[:0]),))
    assert z.shape == gx.shape == (0,)


def outcome(function):
    try:
        function()
    except Exception:
        return traceback.format_exc()
    return None


if __name__ == "__main__":
    found = {name: outcome(function) for name, function in CASES.items()}
    with open(sys.argv[1], "w") as file:
        json.dump(found, file)

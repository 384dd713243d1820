"""Memory stays where it is: over training steps, over models made and dropped, over errors."""
import gc
import itertools
import pathlib
import resource
import weakref

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import dcml
from dcml import _core
from dcml.onnx import ONNXModel
from dcml.pytorch import DaceModule

STEPS, WARM_STEPS = 500, 60


def _resident_bytes():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def _tensors():
    gc.collect()
    return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())


def _growth(step, times, warm):
    """Bytes by which the process grows over `times` calls that follow `warm` others."""
    for _ in range(warm):
        step()
    gc.collect()
    before = _resident_bytes()
    for _ in range(times):
        step()
    gc.collect()
    return _resident_bytes() - before


def _network():
    nn = torch.nn
    return nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.1), nn.Flatten(),
                         nn.Linear(128, 10), nn.LogSoftmax(-1))


def test_500_training_steps_keep_memory_and_tensors_constant():
    model = DaceModule(_network(), backward=True, training=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    images, labels = torch.randn(32, 1, 8, 8), torch.randint(10, (32,))

    def step():
        optimizer.zero_grad()
        torch.nn.functional.nll_loss(model(images), labels).backward()
        optimizer.step()

    assert _growth(step, 0, WARM_STEPS) == 0
    tensors = _tensors()
    assert _growth(step, STEPS - WARM_STEPS, 0) < 1 << 20
    assert _tensors() == tensors


def _onnx_model(width):
    rng = np.random.default_rng(0)
    weights = [numpy_helper.from_array(rng.standard_normal((8, width)).astype(np.float32), "w")]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Softmax", ["m"], ["y"], axis=-1)]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


@pytest.mark.parametrize("backend", ["interp", "cpu"])
def test_functions_made_and_dropped_leave_nothing(backend):
    data, x = _onnx_model(512).SerializeToString(), np.ones((4, 8), np.float32)

    def make_and_drop():
        function = _core.Function(_core.import_onnx(data), wrt=["x"], backend=backend)
        (y,), _ = function.vjp([x], [np.ones((4, 512), np.float32)])
        assert y.shape == (4, 512)

    assert _growth(make_and_drop, 200, 40) < 1 << 20


def test_onnx_models_made_and_dropped_leave_nothing():
    proto, x = _onnx_model(512), np.ones((4, 8), np.float32)
    assert _growth(lambda: ONNXModel("m", proto)(x), 200, 40) < 1 << 20


def test_many_shapes_stay_within_the_caches():
    graph = _core.parse("graph g opset 18 { symbol n >= 0 input x: f32[n, 8] temp y: f32[n, 8] outputs y state main { y = Softmax@13(x) } }")
    function, sizes = _core.Function(graph, backend="interp"), itertools.cycle(range(1, 300))
    assert _growth(lambda: function(np.ones((next(sizes), 8), np.float32)), 900, 600) < 1 << 20


def test_errors_leave_nothing():
    function = _core.Function(_core.import_onnx(_onnx_model(16).SerializeToString()), wrt=["x"])
    bad = onnx.ModelProto(ir_version=8, graph=onnx.GraphProto(node=[helper.make_node("Relu", ["nobody"], ["y"])])).SerializeToString()

    def fail():
        for call in (lambda: function(np.ones((4, 9), np.float32)), lambda: function(np.ones((4, 8), np.float64)), lambda: function(),
                     lambda: function.vjp([np.ones((4, 8), np.float32)], [np.ones(3, np.float32)]), lambda: _core.import_onnx(bad)):
            with pytest.raises(dcml.Error):
                call()

    assert _growth(fail, 1000, 200) < 1 << 20


def test_a_dropped_module_is_collected():
    model = DaceModule(_network(), backward=True)
    model(torch.randn(2, 1, 8, 8)).sum().backward()
    inner, outer = weakref.ref(model.model), weakref.ref(model)
    del model
    gc.collect()
    assert inner() is None and outer() is None


def test_a_module_with_hooks_is_collected_though_they_refer_to_it():
    model = DaceModule(torch.nn.Linear(2, 2), backward=True)
    seen = []
    model.append_post_onnx_hook("look", lambda module: seen.append(len(module.sdfg.arrays)))
    model.append_post_compile_hook("look", lambda sdfg: seen.append(model.training))  # noqa: F821
    model(torch.ones(1, 2)).sum().backward()
    assert seen
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None

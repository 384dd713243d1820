"""Import is cheap, and lazy where it must be."""
import inspect
import os
import subprocess
import sys


def loaded_by(code):
    result = subprocess.run([sys.executable, "-c", code + "; import sys; print(*sys.modules)"], capture_output=True,
                            text=True, check=True)
    return set(result.stdout.split())


def test_import_loads_neither_torch_nor_onnx():
    modules = loaded_by("import dcml")
    assert not {"torch", "onnx", "numpy", "dcml._core"} & modules


def test_modules_can_be_imported_without_what_captures_them():
    more = loaded_by("import torch, dcml.pytorch") - loaded_by("import torch")
    assert not more & {"torch.export", "sympy", "torch._dynamo"}


def test_operators_of_spox_load_nothing_before_they_are_called():
    assert not {"numpy", "torch", "onnx", "onnxruntime", "spox"} & loaded_by("import dcml; dcml.spox, dcml.op")
    assert not {"numpy", "torch", "onnx"} & loaded_by("import dcml.spox.opset.ai.onnx.v21, dcml.spox.opset.ai.onnx.ml.v3")


def test_neon_loads_numpy_only_with_its_backends():
    assert not {"numpy", "torch", "onnx"} & loaded_by("import dcml.neon")


def test_every_public_name_can_be_had():
    import dcml
    for name in dcml.__all__:
        assert getattr(dcml, name) is not None


def test_public_modules_are_attributes_and_listed():
    import dcml
    for name in ("autodiff", "data", "dtypes", "library", "memlet", "nodes", "onnx", "optim", "program", "pytorch", "registry", "sdfg", "subsets",
                 "symbolic", "testing", "transformation", "util"):
        assert inspect.ismodule(getattr(dcml, name)) and name in dir(dcml)


def test_unknown_name_is_an_attribute_error():
    import dcml
    assert not hasattr(dcml, "no_such_name")


def test_without_a_compiler_graphs_run_and_what_is_missing_is_said_once():
    code = """
import numpy as np
from dcml import _core
graph = _core.parse('graph g { input X: f32[300000] temp Y: f32[300000] outputs Y state s { map i in 0:300000 { Y[i] = X[i] + 1.0f } } }')
for _ in range(2):
    print(_core.Function(graph)(np.ones(300000, np.float32))[0].sum())
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                            env={**os.environ, "CC": "/nonexistent/cc"})
    assert result.stdout.split() == ["600000.0", "600000.0"]
    assert result.stderr.count("dcml: ") == 1 and "'/nonexistent/cc' was not found" in result.stderr


def test_mxnets_interface_loads_neither_torch_nor_onnx():
    loaded = loaded_by("from dcml.mx import np, npx, autograd; x = np.ones(3); x.attach_grad(); autograd.record()(lambda: npx.softmax(x))().backward()")
    assert "numpy" in loaded and not {"torch", "onnx", "onnxruntime", "mxnet"} & loaded

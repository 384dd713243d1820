"""Fixtures, markers and options for all tests, which verify the graph after each pass.

Argument ``gpu`` of a test: it runs with False and, given --gpu, with True.  Argument ``default_implementation``: it runs with
"pure" and "onnxruntime" as the default of operators, as do tests marked ``pure`` or ``ort``.  Tests marked ``gpu`` want --gpu,
those marked ``all`` --all.
"""
import importlib.util
import os

import pytest

import dcml.onnx
from dcml.library import change_default

os.environ.setdefault("DCML_VERIFY", "1")
os.environ.setdefault("DCML_KEEP_CAPTURES", "0")  # so that each test traces what it calls

_IMPLEMENTATIONS = {"pure": "pure", "ort": "onnxruntime"}  # marker -> implementation


def pytest_addoption(parser):
    parser.addoption("--gpu", action="store_true", help="also run what wants a GPU")
    parser.addoption("--all", action="store_true", help="also run what takes hours: tests marked all, every sample of torch's databases")
    parser.addoption("--cuda-all", action="store_true", help="run every case of tests/cuda on the fake GPU, not some of them")


def pytest_generate_tests(metafunc):
    if "gpu" in metafunc.fixturenames:
        metafunc.parametrize("gpu", [False, pytest.param(True, marks=pytest.mark.gpu)], ids=["cpu", "gpu"])
    if "default_implementation" in metafunc.fixturenames:
        metafunc.parametrize("default_implementation", [pytest.param(implementation, marks=getattr(pytest.mark, marker))
                                                        for marker, implementation in _IMPLEMENTATIONS.items()])


def pytest_collection_modifyitems(config, items):
    no_gpu = pytest.mark.skip(reason="needs --gpu")
    not_all = pytest.mark.skip(reason="needs --all")
    no_runtime = pytest.mark.skip(reason="needs the package onnxruntime")
    for item in items:
        if item.get_closest_marker("gpu") and not config.getoption("--gpu"):
            item.add_marker(no_gpu)
        if item.get_closest_marker("all") and not config.getoption("--all"):
            item.add_marker(not_all)
        if item.get_closest_marker("ort") and not importlib.util.find_spec("onnxruntime"):
            item.add_marker(no_runtime)


@pytest.fixture(autouse=True)
def _marked_implementation(request):
    """The implementation that a marker of the test names, if any."""
    name = next((implementation for marker, implementation in _IMPLEMENTATIONS.items() if request.node.get_closest_marker(marker)), None)
    if name is None:
        yield
        return
    with change_default(dcml.onnx, name):
        yield


@pytest.fixture
def registrations():
    """Operators and implementations that a test registers end with it."""
    from dcml.onnx import pure
    from dcml.onnx.op_implementations import utils
    registries = pure._NEW, utils._IMPLEMENTATIONS
    before = [dict(registry) for registry in registries]
    yield
    for registry, old in zip(registries, before):
        registry.clear()
        registry.update(old)


@pytest.fixture(scope="module")
def interpreted():
    """What these tests run once is not worth a compilation; the kernels are compared in test_backends_agree.py."""
    with change_default(dcml.onnx, "interpreted"):
        yield

"""Markers, options and fixtures of tests/conftest.py, on small files of tests."""
import pathlib

import pytest

import dcml.onnx

CONFTEST = pathlib.Path(__file__).with_name("conftest.py")
pytest_plugins = ["pytester"]

FILE = """
import pytest
import dcml.onnx

def test_as_always():
    assert dcml.onnx.default_implementation == "native"

@pytest.mark.pure
def test_marked():
    assert dcml.onnx.default_implementation == "pure"

def test_both(default_implementation):
    assert dcml.onnx.default_implementation == default_implementation

def test_devices(gpu):
    assert gpu in (True, False)

@pytest.mark.gpu
def test_only_on_a_gpu():
    pass
"""


@pytest.mark.pure
def test_a_marker_sets_the_implementation():
    assert dcml.onnx.default_implementation == "pure"


def test_without_a_marker_the_default_stands():
    assert dcml.onnx.default_implementation == "native"


@pytest.fixture
def run(pytester):
    """Runs FILE with these options; returns how many tests passed and were skipped."""
    pytester.makeconftest(CONFTEST.read_text())
    pytester.makeini("[pytest]\nmarkers =\n  pure\n  ort\n  gpu\naddopts = --strict-markers -p no:cacheprovider")
    pytester.makepyfile(FILE)

    def counts(*options):
        outcomes = pytester.inline_run(*options).listoutcomes()
        return tuple(len(kind) for kind in outcomes)
    return counts


@pytest.fixture
def no_onnxruntime(monkeypatch):
    import importlib.util
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "onnxruntime" else find(name, *rest))


def test_what_needs_a_gpu_or_onnxruntime_is_skipped(run, no_onnxruntime):
    assert run() == (4, 3, 0)


def test_with_gpu_both_devices_run(run, no_onnxruntime):
    assert run("--gpu") == (6, 1, 0)


def test_markers_choose_tests(run, no_onnxruntime):
    assert run("-m", "pure") == (2, 0, 0)
    assert run("-m", "gpu", "--gpu") == (2, 0, 0)

"""Tests of the CUDA target on machines without a GPU: a fake driver (folder fake) stands where libcuda, NVRTC, cuBLASLt and
cuDNN would.

Its library is named to dcml before anything opens a driver, and built when the first test wants it.  With --gpu the machine's own
driver is left in place, and what only the fake can show is skipped.  A test marked ``some(k, cases)`` runs with every k-th of the
cases as its argument ``case``, with --cuda-all with each.
"""
import os
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "fake"), str(HERE.parent), str(HERE.parent / "onnx")]
import build  # noqa: E402
import simulated  # noqa: E402

SETTINGS = [f"FAKE_CUDA_{name}" for name in ("LOG", "FAIL", "SEED", "LAZY", "DEVICES", "MEMORY", "ARCH", "PROCESSORS")]
WITH_GPU = "--gpu" in sys.argv

if not WITH_GPU:
    os.environ.update(dict.fromkeys(("DCML_CUDA_DRIVER", "DCML_NVRTC", "DCML_CUBLASLT", "DCML_CUDNN"), str(build.path())))


def pytest_configure(config):
    config.addinivalue_line("markers", "some(k, cases): every k-th case, with --cuda-all each")


def pytest_generate_tests(metafunc):
    for mark in metafunc.definition.iter_markers("some"):
        step, cases = mark.args
        metafunc.parametrize("case", cases[::1 if metafunc.config.getoption("--cuda-all") else step])


def pytest_configure(config):
    config.addinivalue_line("markers", "some(k, cases): every k-th case, with --cuda-all each")


def pytest_generate_tests(metafunc):
    for mark in metafunc.definition.iter_markers("some"):
        step, cases = mark.args
        metafunc.parametrize("case", cases[::1 if metafunc.config.getoption("--cuda-all") else step])


@pytest.fixture(scope="session", autouse=True)
def _library():
    """The fake is there before the first test asks for it."""
    if WITH_GPU:
        yield None
        return
    if not build.compiler():
        pytest.skip("no C++ compiler for the fake CUDA driver")
    yield simulated.library(build.build())


@pytest.fixture
def fake(_library, monkeypatch, tmp_path):
    """The fake driver as a test sees it: settings that end with the test, what is alive, what was called."""
    if _library is None:
        pytest.skip("only the fake driver can show this")
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    yield simulated.Fake(_library, monkeypatch, tmp_path)
    _library.fake_cuda_forgive()

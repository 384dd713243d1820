"""Fixtures for all tests, which verify the graph after each pass."""
import os

import pytest

import dcml.onnx
from dcml.library import change_default

os.environ.setdefault("DCML_VERIFY", "1")


@pytest.fixture(scope="module")
def interpreted():
    """What these tests run once is not worth a compilation; the kernels are compared in test_backends_agree.py."""
    with change_default(dcml.onnx, "interpreted"):
        yield

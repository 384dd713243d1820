"""Published architectures in small, trained beside eager PyTorch in float64; without --all some of them, interpreted."""
import contextlib

import generative  # noqa: F401  these add their families
import graphs  # noqa: F401
import language  # noqa: F401
import others  # noqa: F401
import pytest
import speech  # noqa: F401
import vision  # noqa: F401
from family import FAMILIES
from follow import check

import dcml.onnx
from dcml.library import change_default

SOME = ("ResNet", "Llama", "GAT", "NeuralODE", "VAE", "DLRM")  # of each kind one that is quickly traced


@pytest.mark.parametrize("name", [name if name in SOME else pytest.param(name, marks=pytest.mark.all) for name in FAMILIES])
def test_a_family_trains_as_in_eager(name, request):
    compiled = request.config.getoption("--all")
    with contextlib.nullcontext() if compiled else change_default(dcml.onnx, "interpreted"):
        check(FAMILIES[name])

"""The autograd node that is not the default one passes the tests of semantics too, in a process of its own."""
import os
import subprocess
import sys

import pytest

from dcml.pytorch.call import autograd, node


def test_semantics_with_the_python_node():
    if node.apply is autograd.apply_in_python:
        pytest.skip("the Python node is the one that all other tests use")
    here = os.path.dirname(__file__)
    files = [os.path.join(here, f"test_{name}.py") for name in ("semantics", "parts", "lent_memory", "zero_gradients", "results_that_stay")]
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-x", *files],
                          capture_output=True, text=True, timeout=600,
                          env={**os.environ, "DCML_AUTOGRAD": "python", "PYTHONPATH": os.pathsep.join(sys.path)})
    assert done.returncode == 0, done.stdout[-3000:]

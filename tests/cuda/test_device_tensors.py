"""What the binding does with tensors of a GPU: their streams, memory and devices, on the fake driver (device_tensor_cases.py)."""
import ast
import json
import os
import pathlib
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).with_name("device_tensor_cases.py")
NAMES = [node.name for node in ast.parse(SCRIPT.read_text()).body if isinstance(node, ast.FunctionDef) and node.decorator_list]


@pytest.fixture(scope="module")
def outcomes(_library, tmp_path_factory):
    if _library is None:
        pytest.skip("only the fake driver can show this")
    folder = tmp_path_factory.mktemp("cases")
    path = os.pathsep.join([str(SCRIPT.parent), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": path, "FAKE_CUDA_DEVICES": "2"}
    done = subprocess.run([sys.executable, str(SCRIPT), str(folder / "found"), str(folder)], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((folder / "found").read_text())


@pytest.mark.parametrize("name", NAMES)
def test_tensors_of_a_gpu(outcomes, name):
    assert outcomes[name] is None, outcomes[name]

"""dcml doctor."""
import os
import re

import pytest
from commands import in_a_process

from dcml.cli import doctor


def states(text):
    return dict(reversed(pair) for pair in re.findall(r"^(ok|missing|absent) +(\S.*?)  ", text, re.M))


def test_what_is_there_is_found(dcml):
    code, text, _ = dcml("doctor", "--no-torch")
    found = states(text)
    assert found["C compiler"] == "ok" and found["kernel cache"] == "ok" and "PyTorch" not in found
    needed = {"oneDNN", "C compiler", "kernel cache"}
    assert code == (1 if any(found.get(name) == "missing" for name in needed) else 0)
    assert re.search(r"kernel cache +/.*,\s+\d+ files,\s+\d+\.\d MB", text)  # lines are as wide as the terminal


def test_torch_and_its_node_are_looked_at(dcml, monkeypatch):
    assert re.search(r"^ok +PyTorch +2\.", dcml("doctor")[1], re.M)
    monkeypatch.setattr(doctor, "_torch", lambda: [doctor.Check("PyTorch", "missing", "no module", "pip install torch")])
    code, text, _ = dcml("doctor")
    assert code == 1 and "needed to run fast: PyTorch" in text and "PyTorch: pip install torch" in text


def test_what_is_missing_comes_with_a_command(tmp_path):
    env = {**os.environ, "PATH": str(tmp_path), "DCML_CACHE": "/proc/none", "CC": "no-such-compiler", "DCML_NATIVE": "none"}
    done = in_a_process("doctor", "--no-torch", env=env)
    found = states(done.stdout)
    assert done.returncode == 1 and found["C compiler"] == "missing" and found["kernel cache"] == "missing"
    assert "$CC = 'no-such-compiler' is not found" in done.stdout and "install gcc" in done.stdout
    assert "export DCML_CACHE=" in done.stdout


@pytest.mark.parametrize("mode, state", [(0o777, "missing"), (0o700, "ok")])
def test_a_cache_that_others_may_write_is_not_used(tmp_path, mode, state):
    env = {**os.environ, "DCML_CACHE": str(tmp_path / "cache")}
    assert states(in_a_process("doctor", "--no-torch", env=env).stdout)["kernel cache"] == "ok"
    folder, = (tmp_path / "cache").iterdir()
    folder.chmod(mode)
    assert states(in_a_process("doctor", "--no-torch", env=env).stdout)["kernel cache"] == state

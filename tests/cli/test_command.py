"""The command itself: help, errors, exit codes, what it imports."""
import os
import subprocess
import sys

import pytest
from commands import MISH, ROOT, in_a_process

from dcml import cli


def test_help_of_every_command_has_examples_and_exit_codes(dcml):
    code, text, _ = dcml("--help")
    assert code == 0 and all(name in text for name in cli.COMMANDS)
    for name in cli.COMMANDS:
        code, text, _ = dcml(name, "--help")
        assert code == 0 and "examples:" in text and "exit codes: 0" in text
        assert all(len(line) <= 80 for line in text.splitlines())


def test_without_a_command_help_is_shown(dcml):
    code, text, _ = dcml()
    assert code == 2 and "COMMAND" in text
    assert dcml("--version")[:2] == (0, "dcml 0.1.0\n")
    assert dcml("fly")[0] == 2


def test_help_imports_neither_numpy_nor_torch():
    done = subprocess.run([sys.executable, "-X", "importtime", "-m", "dcml", "--help"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "usage: dcml" in done.stdout
    assert not any(f" {name}\n" in done.stderr for name in ("torch", "numpy", "dcml._core"))


def test_models_run_without_torch():
    done = in_a_process("run", MISH, env={**os.environ, "PYTHONPROFILEIMPORTTIME": "1"})
    assert done.returncode == 0 and " torch\n" not in done.stderr


def test_a_process_ends_with_the_exit_code(tmp_path):
    done = in_a_process("opt", tmp_path / "missing.sdfg")
    assert done.returncode == 2 and done.stderr == f"dcml opt: error: {tmp_path}/missing.sdfg: No such file or directory\n"
    assert in_a_process("opt", "-", input=open(MISH).read()).stdout.startswith("graph mish")


def test_a_reader_that_leaves_is_no_error():
    done = subprocess.run(f"{sys.executable} -m dcml opt --list | head -1; exit ${{PIPESTATUS[0]}}", shell=True, executable="/bin/bash",
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stderr == ""


@pytest.mark.parametrize("command", ["opt", "run", "explain", "profile", "bisect", "reduce"])
@pytest.mark.parametrize("name, content, expected", [
    ("missing.onnx", None, "No such file"), ("folder.onnx", "", "Is a directory"), ("folder", "", "Is a directory"),
    ("empty.sdfg", b"", "begins with 'graph' or"), ("prose.txt", b"once upon a time\n", "begins with 'graph' or"),
    ("bytes.sdfg", bytes(range(256)), "neither text"), ("empty.onnx", b"", "no graph"), ("junk.onnx", b"\xff" * 99, "ONNX"),
    ("cut.sdfg", b"graph g {\n  input X: f32[4]\n", "graph text"), ("half.sdfg", b"graph g {\n  input X: f32[\n", "line 3"),
    ("lost.sdfg", b"graph g {\n  outputs Z\n  state main {\n  }\n}\n", "'Z'"),
    ("zero.sdfg", b"graph g {\n\x00}\n", "graph text")])
def test_bad_files_are_named_on_one_line(dcml, tmp_path, command, name, content, expected):
    path = tmp_path / name
    if content == "":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    code, text, problem = dcml(command, path)
    assert code == 2 and text == "" and problem.count("\n") == 1
    assert str(path) in problem and expected in problem and "Traceback" not in problem


def test_half_a_model_is_refused(dcml, dense):
    content = dense.read_bytes()
    for part in (1, 2, 3):
        dense.write_bytes(content[:len(content) * part // 4])
        code, _, problem = dcml("run", dense)
        assert code == 2 and problem.startswith(f"dcml run: error: {dense}: ")


HUGE = ("graph huge {{\n  input X: f32[{0}, {0}]\n  temp Y: f32[{0}, {0}]\n  outputs Y\n  state main {{\n"
        "    map i in 0:{0}, j in 0:{0} {{\n      Y[i, j] = X[i, j] * 2.0f\n    }}\n  }}\n}}\n")


@pytest.mark.parametrize("extent", [10**6, 4 * 10**9, 2**62])
@pytest.mark.parametrize("command", ["run", "bisect"])
def test_huge_shapes_are_refused_before_memory_is_taken(dcml, tmp_path, command, extent):
    (tmp_path / "huge.sdfg").write_text(HUGE.format(extent))
    code, _, problem = dcml(command, tmp_path / "huge.sdfg")
    assert code == 2 and "GiB" in problem and "huge.sdfg" in problem


def test_graphs_without_inputs_or_nodes_work(dcml, tmp_path):
    (tmp_path / "none.sdfg").write_text("graph none {\n  temp Y: f32[4]\n  outputs Y\n  state main {\n    map i in 0:4 {\n"
                                        "      Y[i] = 2.0f\n    }\n  }\n}\n")
    (tmp_path / "same.sdfg").write_text("graph same {\n  input X: f32[4]\n  outputs X\n  state main {\n  }\n}\n")
    for name in ("none.sdfg", "same.sdfg"):
        for command in ("opt", "run", "explain", "bisect"):
            assert dcml(command, tmp_path / name)[0] == 0, (name, command)


def test_every_file_of_the_ir_tests_can_be_read(dcml):
    for path in sorted((ROOT / "tests" / "ir").glob("*/*.txt")):
        assert dcml("opt", path)[0] == 0, path

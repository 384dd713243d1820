"""The architecture, checked: includes go downward, files stay small, each says what it is."""
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent / "csrc"
LAYER = {"base": 0, "expr": 1, "ir": 2, "ops": 3, "onnx": 3, "passes": 4, "autodiff": 4, "backends": 5, ".": 6, "python": 7}
FILES = sorted(p for p in ROOT.rglob("*") if p.suffix in (".c", ".h", ".cpp"))


def layer(path):
    parts = path.relative_to(ROOT).parts
    return LAYER[parts[0] if len(parts) > 1 else "."]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_includes_go_downward(path):
    for included in re.findall(r'^#include "([^"]+)"', path.read_text(), re.M):
        target = ROOT / included
        if target.exists():
            assert layer(target) <= layer(path), f"{path.name} includes {included} of a higher layer"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_are_small_and_say_what_they_are(path):
    text = path.read_text()
    assert text.startswith("/*"), "a file opens with a comment that says what it does"
    assert text.count("\n") < 800


def test_only_the_binding_sees_python():
    for path in FILES:
        if "Python.h" in path.read_text():
            assert path.relative_to(ROOT).parts[0] == "python"


def test_rows_of_the_operator_table_can_be_read_without_scrolling():
    for number, line in enumerate((ROOT / "ops" / "ops.def").read_text().splitlines(), 1):
        assert len(line) <= 140, f"line {number} has {len(line)} columns"

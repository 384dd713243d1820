"""The architecture, checked: includes and imports go downward, files stay small, each says what it is."""
import ast
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent / "csrc"
LAYER = {"base": 0, "expr": 1, "ir": 2, "ops": 3, "onnx": 3, "passes": 4, "autodiff": 4, "backends": 5, "check": 6, ".": 6, "python": 7}
FILES = sorted(p for p in ROOT.rglob("*") if p.suffix in (".c", ".h"))
NODE = ROOT.parent / "python" / "dcml" / "torch_node" / "torch_node.cpp"


def layer(path):
    parts = path.relative_to(ROOT).parts
    return LAYER[parts[0] if len(parts) > 1 else "."]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_includes_go_downward(path):
    for included in re.findall(r'^#include "([^"]+)"', path.read_text(), re.M):
        target = ROOT / included
        if target.exists():
            assert layer(target) <= layer(path), f"{path.name} includes {included} of a higher layer"


@pytest.mark.parametrize("path", [*FILES, NODE], ids=lambda p: str(p.relative_to(ROOT.parent)))
def test_files_are_small_and_say_what_they_are(path):
    text = path.read_text()
    assert text.startswith("/*"), "a file opens with a comment that says what it does"
    assert text.count("\n") < 800


def test_only_the_binding_sees_python():
    for path in FILES:
        if "Python.h" in path.read_text():
            assert path.relative_to(ROOT).parts[0] == "python"


def calls_between(files):
    """By file: the other files whose functions it calls; static functions belong to one file and cannot be called from others."""
    texts = {path: re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S) for path in files}
    home = {name: path for path, text in texts.items() for name in re.findall(r"^(?!static)[a-zA-Z_][\w \*]*?\b(dc_\w+)\([^;]*?\) \{", text, re.M)}
    used = {path: {home[name] for name in re.findall(r"\b(dc_\w+)\b", text) if name in home} - {path} for path, text in texts.items()}
    return used


def circles(calls):
    """Files that reach themselves through others."""
    def reached(start):
        seen, left = set(), [start]
        while left:
            for path in calls[left.pop()] - seen:
                seen.add(path)
                left.append(path)
        return seen
    return sorted(path.name for path in calls if path in reached(path))


def test_no_two_files_of_backends_call_each_other_in_a_loop():
    files = [path for path in FILES if path.suffix == ".c" and path.relative_to(ROOT).parts[0] == "backends"]
    calls = calls_between(files)
    assert sum(map(len, calls.values())) > len(files), "the calls were not found"
    assert circles(calls) == []


def test_a_circle_is_found():
    assert circles({(a := pathlib.Path("a.c")): {(b := pathlib.Path("b.c"))}, b: {a}, pathlib.Path("c.c"): {a}}) == ["a.c", "b.c"]


# A kernel knows nothing of how it is printed, the printer and who compiles its text nothing of a language.
KERNEL_PARTS = ["kernel", "printer", "jit", "cpu"]


@pytest.mark.parametrize("part", KERNEL_PARTS)
def test_kernels_are_printed_without_knowing_the_target(part):
    later = KERNEL_PARTS[KERNEL_PARTS.index(part) + 1:]
    for path in (ROOT / "backends" / part).iterdir():
        for included in re.findall(r'^#include "backends/(\w+)/', path.read_text(), re.M):
            assert included not in later, f"{path.name} includes {included}/"


def test_rows_of_the_operator_table_can_be_read_without_scrolling():
    for number, line in enumerate((ROOT / "ops" / "ops.def").read_text().splitlines(), 1):
        assert len(line) <= 140, f"line {number} has {len(line)} columns"


def test_definitions_of_the_operator_table_have_a_name_of_their_own():
    names = re.findall(r"^def (\w+)", (ROOT / "ops" / "ops.def").read_text(), re.MULTILINE)
    assert names and sorted(set(names)) == sorted(names), "of two, the first would serve for both"


# -- Python ----------------------------------------------------------------------------------------
FRONT_END = ROOT.parent / "python" / "dcml" / "pytorch"
MODULES = sorted(FRONT_END.rglob("*.py"))
MAY_IMPORT = {  # package of dcml.pytorch -> packages below it, or those of their files that hold only data
    "aten": [],
    "guard": [],
    "look": [],
    "call": ["guard", "look.profile"],
    "lower": ["record", "aten", "guard.extents", "guard.place", "call.results"],
    "record": [],
    "trace": ["lower", "record", "aten", "guard", "call.trees", "call.altered"],
    "kept": ["guard", "call", "lower.captured"],
    "": ["trace", "kept", "guard", "call", "look"],
}
NAMES_BELOW = {"_core", "_torch_node", "torch_node", "arguments", "library", "verbose", "onnx", "report", "sdfg"}  # of dcml itself


def dotted(path):
    """The name of a file within dcml.pytorch: 'call.keys', '' for the package itself."""
    parts = path.relative_to(FRONT_END).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {dotted(path) for path in MODULES}


def imports_of(path):
    """Names within dcml.pytorch, or of dcml with a dot in front, that a file imports anywhere, functions included."""
    package = list(path.parent.relative_to(FRONT_END).parts)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names if alias.name.split(".")[0] == "dcml"]
            assert not found, f"{path.name} imports {found} by a name that is not relative"
        if not isinstance(node, ast.ImportFrom):
            continue
        assert node.level or node.module.split(".")[0] != "dcml", f"{path.name} imports {node.module} not relatively"
        base = package[:len(package) + 1 - node.level] if node.level else None
        outside = node.level > len(package) + 1
        for alias in node.names if node.level else ():
            name = ".".join([*([] if outside else base), *(node.module.split(".") if node.module else [])])
            full = f"{name}.{alias.name}" if name else alias.name
            yield "." + full if outside else full if full in NAMES else name


def package_of(name):
    return name.partition(".")[0] if name.partition(".")[0] in MAY_IMPORT else ""


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(FRONT_END)))
def test_python_imports_go_downward(path):
    package = package_of(dotted(path))
    for name in imports_of(path):
        if name.startswith("."):
            assert name.split(".")[1] in NAMES_BELOW, f"{path.name} imports {name} of dcml"
        elif package_of(name) != package:
            allowed = MAY_IMPORT[package]
            assert package_of(name) in allowed or name in allowed, f"{package or 'top'}: {path.name} may not import {name}"


def test_no_files_of_the_front_end_import_each_other():
    edges = {dotted(p): {n for n in imports_of(p) if not n.startswith(".") and n != dotted(p)} for p in MODULES}
    while leaves := [name for name, found in edges.items() if not found & edges.keys()]:
        for name in leaves:
            del edges[name]
    assert not edges, f"a circle of imports: {sorted(edges)}"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(FRONT_END)))
def test_python_files_are_small_and_say_what_they_are(path):
    text = path.read_text()
    assert text.startswith('"""'), "a file opens with a text that says what it does"
    assert text.count("\n") < 800


def test_names_of_test_files_are_unique():
    names = [path.name for path in (ROOT.parent / "tests").rglob("test_*.py")]
    assert len(names) > 100
    assert sorted(names) == sorted(set(names))  # pytest takes files of one name for one module

"""Kernels of every C compiler that may be here give the same results, and each is found where the others are not."""
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

PROGRAM = """
import json, sys
import numpy as np
from dcml import _core
rng = np.random.default_rng(3)
GRAPHS = {
    "element by element": "graph g { input X: f32[1000] temp Y: f32[1000] outputs Y"
                          " state s { map i in 0:1000 { Y[i] = tanh(exp(X[i])) + log(abs(X[i]) + 1.0f) * erf(X[i]) } } }",
    "a sum of each row": "graph g { input X: f32[37, 129] temp Y: f32[37] outputs Y"
                         " state s { map i in 0:37 { reduce j in 0:129 { Y[i] sum= X[i, j] * X[i, j] } } } }",
    "the largest of each column": "graph g { input X: f32[37, 129] temp Y: f32[129] outputs Y"
                                  " state s { map j in 0:129 { reduce i in 0:37 { Y[j] max= X[i, j] } } } }",
    "a product": "graph g { input X: f32[33, 33] temp Y: f32[33, 33] outputs Y"
                 " state s { map i in 0:33, j in 0:33 { reduce k in 0:33 { Y[i, j] sum= X[i, k] * X[k, j] } } } }",
    "in float64": "graph g { input X: f64[501] temp Y: f64[501] outputs Y"
                  " state s { map i in 0:501 { Y[i] = sqrt(abs(X[i])) / (X[i] * X[i] + 1.0) } } }",
    "integers": "graph g { input X: i32[501] temp Y: i32[501] outputs Y state s { map i in 0:501 { Y[i] = X[i] * X[i] - X[i] } } }",
}
KINDS = {"f32": np.float32, "f64": np.float64, "i32": np.int32}
found = {}
for name, text in GRAPHS.items():
    kind, extents = text.split("input X: ")[1].split("]")[0].split("[")
    x = (rng.standard_normal(eval(f"({extents},)")) * 3).astype(KINDS[kind])
    found[name] = _core.Function(_core.parse(text), backend="cpu")(x)[0].tolist()
print(json.dumps([_core.toolchain()[0], found]))
"""


def _results(folder, **environment):
    """(program that compiled, results by graph) of a process with this environment."""
    kept = {name: value for name, value in os.environ.items() if name not in ("CC", "ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR")}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=500,
                          env={**kept, "DCML_CACHE": str(folder), "PYTHONPATH": os.pathsep.join(sys.path), **environment})
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def _assert_same(got, expected):
    for name, want in expected.items():
        if name == "integers":
            assert got[name] == want, name
        else:
            np.testing.assert_allclose(got[name], want, rtol=1e-12 if name == "in float64" else 2e-6, atol=2e-5, err_msg=name)


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    if not shutil.which("gcc"):
        pytest.skip("there is no gcc")
    return _results(tmp_path_factory.mktemp("gcc"), CC="gcc")[1]


def test_where_there_is_no_other_the_compiler_of_a_wheel_serves_and_leaves_only_what_it_needs_again(usual, tmp_path):
    if not importlib.util.find_spec("ziglang"):
        pytest.skip("the wheel is not installed")
    program, found = _results(tmp_path / "cache", PATH=str(tmp_path), HOME="/dev/null")
    assert pathlib.Path(program).name == "zig"
    _assert_same(found, usual)
    left = [path.name for path in (tmp_path / "cache" / "kernels-v1").iterdir()]
    assert "zig" in left and not [name for name in left if name.startswith("tmp-")]


@pytest.mark.parametrize("named", [True, False])
def test_clang_is_known_by_its_name_or_by_what_it_says(named, usual, tmp_path):
    clang = shutil.which("clang")
    if not clang:
        pytest.skip("there is no clang")
    script = tmp_path / "compiler"
    script.write_text(f'#!/bin/sh\nexec {clang} "$@"\n')
    script.chmod(0o755)
    _assert_same(_results(tmp_path / "cache", CC=clang if named else str(script))[1], usual)


def test_what_to_install_is_said_where_there_is_none(tmp_path):
    code = PROGRAM.replace('backend="cpu"', 'backend="auto"').replace("import json, sys", "import json, sys; sys.modules['ziglang'] = None")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          env={**{k: v for k, v in os.environ.items() if k != "CC"}, "PATH": str(tmp_path),
                               "PYTHONPATH": os.pathsep.join(sys.path)})
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("dcml: ")]
    assert "no C compiler (cc, gcc, clang) was found" in line and "pip install 'dcml[compiler]'" in line


_LATER = """
import os, shutil, sys
import numpy as np
from dcml import _core
def twice(k):
    text = f"graph g {{ input X: f32[8] temp Y: f32[8] outputs Y state s {{ map i in 0:8 {{ Y[i] = X[i] * {k}.0f }} }} }}"
    assert _core.Function(_core.parse(text), backend="cpu")(np.ones(8, np.float32))[0].tolist() == [k] * 8
twice(2)
if sys.argv[1:]:
    shutil.rmtree(sys.argv[1])
twice(3)
"""


def _run_later(*arguments, **environment):
    done = subprocess.run([sys.executable, "-c", _LATER, *map(str, arguments)], capture_output=True, text=True, timeout=300,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment})
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stderr


def test_where_the_cache_takes_no_more_files_a_temporary_folder_serves_and_goes_with_the_process(tmp_path):
    cache, temporary = tmp_path / "cache", tmp_path / "temporary"
    temporary.mkdir()
    said = _run_later(cache, DCML_CACHE=str(cache), TMPDIR=str(temporary))
    assert f"{cache}/kernels-v1 takes no more files" in said and not list(temporary.iterdir())


def test_a_full_disk_does_not_stop_a_program(tmp_path):
    small, temporary = tmp_path / "small", tmp_path / "temporary"
    small.mkdir()
    temporary.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", small], capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        assert "takes no more files" in _run_later(DCML_CACHE=str(small), TMPDIR=str(temporary))
    finally:
        subprocess.run(["umount", small], check=True)


_FORWARD = """
import sys, torch
from dcml.pytorch import DaceModule
torch.manual_seed(0)
y = DaceModule(torch.nn.Sequential(torch.nn.LayerNorm(8), torch.nn.GELU()), backward=True)(torch.rand(4, 8))
print("called", file=sys.stderr)
if sys.argv[1:]:
    y.sum().backward()
"""


@pytest.mark.parametrize("backward", [(), ("and back",)], ids=["forward", "and back"])
def test_what_is_compiled_is_what_runs(backward, tmp_path):
    done = subprocess.run([sys.executable, "-c", _FORWARD, *backward], capture_output=True, text=True, timeout=300,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "DCML_CACHE": str(tmp_path), "DCML_VERBOSE": "compile"})
    assert done.returncode == 0, done.stderr[-3000:]
    lines = ["compiled" if "0 from the cache" in line else line for line in done.stderr.splitlines() if "functions" in line or line == "called"]
    assert lines == ["compiled", "called", *["compiled" for _ in backward]]
    assert not list(tmp_path.glob("*/tmp-*"))

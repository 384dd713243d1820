"""The source archive, and the wheel made from it, in an environment that has nothing of the checkout."""
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tarfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = """
import os, sys
import numpy, onnx, torch, dcml
from dcml.onnx import ONNXModel
from dcml.pytorch import DaceModule
assert dcml.__file__.startswith(sys.prefix), dcml.__file__
value = lambda name: onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2])
graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", [value("x")], [value("y")])
model = ONNXModel("relu", onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)]))
assert model(numpy.float32([-1, 2])).tolist() == [0, 2]
net = DaceModule(torch.nn.Linear(3, 2), backward=True)
net(torch.ones(4, 3)).sum().backward()
assert all(torch.equal(p.grad, torch.full_like(p, 4)) for p in net.parameters())
from dcml.pytorch.call import node
from dcml.torch_node import build
from dcml.sdfg import view
assert "</script>" in view.html(net.forward_sdfg.graph)
assert node.status()["state"] == "prebuilt" and os.path.exists(build.SOURCE), node.status()
"""


def _run(*command, **options):
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """A source archive, made from a copy of the sources so that no build output slips in."""
    folder = tmp_path_factory.mktemp("source")
    for name in _run("git", "ls-files", "-co", "--exclude-standard", cwd=ROOT).splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    _run(sys.executable, "-c", "from setuptools import build_meta; build_meta.build_sdist('dist')", cwd=folder)
    return next((folder / "dist").glob("*.tar.gz"))


@pytest.fixture(scope="module")
def empty_python(tmp_path_factory):
    """An interpreter without dcml; numpy, onnx and torch are borrowed from the environment of the tests."""
    folder = tmp_path_factory.mktemp("environment")
    _run(sys.executable, "-m", "venv", "--without-pip", folder)
    site = next((folder / "lib").glob("python*/site-packages"))
    (site / "borrowed.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return folder / "bin" / "python"


def test_the_archive_holds_every_source_that_the_build_reads(archive):
    names = {name.split("/", 1)[-1] for name in tarfile.open(archive).getnames()}
    sources = {str(path.relative_to(ROOT)) for folder in ("csrc", "tools", "python") for path in (ROOT / folder).rglob("*")
               if path.suffix in (".c", ".h", ".def", ".cpp", ".py")}
    assert not sources - names


def test_a_wheel_made_from_the_archive_runs_models_in_an_empty_environment(archive, empty_python, tmp_path):
    _run(sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "-w", tmp_path, archive)
    wheel = next(tmp_path.glob("*.whl"))
    _run(sys.executable, "-m", "pip", f"--python={empty_python}", "install", "--no-deps", "--no-index", wheel)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    _run(empty_python, "-c", PROGRAM, cwd=tmp_path, env=clean)

"""Looks for what dcml needs to run fast: a C compiler, libraries, PyTorch and its
autograd node, a GPU, the kernel cache.  What is found is tried: a kernel is
compiled, a product is given to each library.
"""
import ctypes
import os
import platform
import shutil
import subprocess
import sys
import textwrap
from typing import NamedTuple

HELP = "what is found on this machine, and what to install"
EXAMPLES = """examples:
  dcml doctor
  dcml doctor --no-torch      in a tenth of a second, PyTorch is not looked at
Exit code 1: something that dcml needs to run fast is missing.
"""


class Check(NamedTuple):
    """state: "ok", "missing" (needed to run fast) or "absent" (is not needed).  todo: a command, or ''."""
    name: str
    state: str
    found: str
    todo: str = ""


def add_arguments(parser):
    parser.add_argument("--no-torch", action="store_true", help="do not import PyTorch")


def run(args):
    checks = [check for find in _finders(args) for check in find()]
    width = max(len(check.name) for check in checks)
    for check in checks:
        head = f"{check.state:<8} {check.name:<{width}}  "
        print(textwrap.fill(check.found, 80, initial_indent=head, subsequent_indent=" " * len(head), break_long_words=False,
                            break_on_hyphens=False))
    todo = [check for check in checks if check.todo]
    if todo:
        print("\nto do:")
    for check in todo:
        print(f"  {check.name}: {check.todo}" + ("" if check.state == "missing" else "  (optional)"))
    missing = [check.name for check in checks if check.state == "missing"]
    print("\neverything needed to run fast is here" if not missing else f"\nneeded to run fast: {', '.join(missing)}")
    return 1 if missing else 0


def _finders(args):
    return [_versions, _compiler, _libraries, *([] if args.no_torch else [_torch]), _onnx, _gpu, _cache]


def _versions():
    from .. import __version__
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return [Check("dcml", "ok", f"{__version__}, Python {platform.python_version()}, {platform.machine()}, {cores} cores")]


# ---- the compiler ----

_SCALE = """graph doctor {
  input X: f32[64]
  temp Y: f32[64]
  outputs Y
  state main {
    map i in 0:64 {
      Y[i] = X[i] * 3.0f
    }
  }
}
"""


def _compile():
    """The error of compiling and running a kernel, None if there is none."""
    import numpy as np
    from .. import _core
    function = _core.Function(_core.parse(_SCALE), backend="cpu")
    try:
        y, = function(np.ones(64, np.float32))
    except _core.Error as error:
        return " ".join(str(error).split())[:200]
    by = function.report()[0]["steps"][0]["by"]
    if by != "compiled" or y[0] != 3:
        return f"a kernel was {by}, and gave {y[0]} for 3"
    return None


def _compiler():
    from .. import _core
    command = _core.toolchain()[0]
    if command is None:
        own = os.environ.get("CC")
        why = f"$CC = {own!r} is not found" if own else "no cc, gcc, clang or zig is found"
        return [Check("C compiler", "missing", why, f"{_install('gcc')}, or {_pip()} install ziglang")]
    problem = _compile()
    if problem:
        return [Check("C compiler", "missing", f"{command}: {problem}", _install("gcc"))]
    return [Check("C compiler", "ok", f"{command}: {_version_line(command)}")]


def _version_line(command):
    """The first line of what a compiler says of itself."""
    try:
        said = subprocess.run([command, "version" if os.path.basename(command).startswith("zig") else "--version"],
                              capture_output=True, text=True, timeout=20).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return (said.splitlines() or [""])[0]


def _install(package):
    """How this system installs a package of its own, or of PyPI where it is also there."""
    for manager, command in (("apt-get", "apt-get install -y"), ("dnf", "dnf install -y"), ("apk", "apk add"),
                             ("pacman", "pacman -S"), ("brew", "brew install")):
        if shutil.which(manager):
            return f"{'' if manager == 'brew' or os.geteuid() == 0 else 'sudo '}{command} {package}"
    return f"install {package}"


# ---- libraries ----

_PRODUCT = """graph doctor opset 13 {
  input A: f32[128, 128]
  input B: f32[128, 128]
  temp C: f32[128, 128]
  outputs C
  state main {
    C = MatMul@13(A, B)
  }
}
"""


def _served_by(library):
    """Does the library serve a product?"""
    import numpy as np
    from .. import _core
    function = _core.Function(_core.parse(_PRODUCT), backend="interp", natives=library)
    ones = np.ones((128, 128), np.float32)
    result, = function(ones, ones)
    return function.report()[0]["steps"][0]["by"] == library and result[0, 0] == 128


def _loaded(part):
    """Path of the library of this process whose file name contains a text, or None."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            paths = {line.split(None, 5)[5].strip() for line in maps if len(line.split(None, 5)) == 6}
    except OSError:
        return None
    found = sorted(path for path in paths if part in os.path.basename(path) and "numpy" not in path)
    return found[0] if found else None


class _OneDNNVersion(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in ("major", "minor", "patch")]


def _onednn_version(path):
    version = ctypes.CDLL(path).dnnl_version
    version.restype = ctypes.POINTER(_OneDNNVersion)
    numbers = version().contents
    return f"{numbers.major}.{numbers.minor}.{numbers.patch}"


def _openblas_version(path):
    library = ctypes.CDLL(path)
    for name in ("scipy_openblas_get_config", "openblas_get_config"):
        if hasattr(library, name):
            config = getattr(library, name)
            config.restype = ctypes.c_char_p
            return config().decode().replace("OpenBLAS ", "").strip()
    return ""


def _library(title, name, part, version, package, needed):
    if not _served_by(name):
        masked = os.environ.get("DCML_NATIVE")
        why = f"not used: DCML_NATIVE={masked}" if masked else "not found"
        return Check(title, "missing" if needed else "absent", why, "" if masked else f"{_pip()} install {package}")
    path = _loaded(part)
    return Check(title, "ok", f"{version(path)}, {path}" if path else "found")


def _pip():
    return f"{sys.executable} -m pip"


def _libraries():
    intel = platform.machine() in ("x86_64", "AMD64")
    onednn = _library("oneDNN", "onednn", "libdnnl", _onednn_version, "onednn-cpu-gomp", intel)
    openblas = _library("OpenBLAS", "openblas", "openblas", _openblas_version, "scipy-openblas32", not intel)
    return [onednn, openblas]


# ---- PyTorch, ONNX ----

def _torch():
    try:
        import torch
    except ImportError as error:
        return [Check("PyTorch", "missing", f"{error}", f"{_pip()} install 'torch>=2.10'")]
    return [Check("PyTorch", "ok", f"{torch.__version__}, {os.path.dirname(torch.__file__)}"), _node()]


_STATES = {"building": "is being compiled", "unused": "is compiled at the first call with gradients",
           "off": "in Python, as DCML_AUTOGRAD=python asks"}


def _node():
    from ..pytorch.call.node import status
    node = status()
    if node["file"] or node["node"] == "c++":
        return Check("autograd node", "ok", f"in C++, {node['state']}, for torch {node['torch']}")
    if node["state"] in _STATES:
        return Check("autograd node", "ok", _STATES[node["state"]])
    return Check("autograd node", "missing", f"in Python, calls with gradients cost about 10 us more: {node['why']}", _install("g++"))


def _onnx():
    from importlib import metadata
    try:
        return [Check("onnx", "ok", metadata.version("onnx"))]
    except metadata.PackageNotFoundError:
        return [Check("onnx", "absent", "not found; reads models without it, but no .pb tensors", f"{_pip()} install onnx")]


# ---- GPU, cache ----

def _gpu():
    from . import gpus
    return gpus.checks(Check, (_SCALE, _PRODUCT), _loaded, _pip())


def _cache():
    from .. import _core
    _, folder, lasts = _core.toolchain()
    if not lasts:
        return [Check("kernel cache", "missing", f"{folder} lasts for one process only: the usual folder cannot be written, or others can",
                      "export DCML_CACHE=/a/folder/of/yours")]
    sizes = [size for at, _, names in os.walk(folder) for name in names if (size := _size(os.path.join(at, name))) is not None]
    return [Check("kernel cache", "ok", f"{folder}, {len(sizes)} files, {sum(sizes) / 1e6:.1f} MB")]


def _size(path):
    try:
        return os.path.getsize(path)
    except FileNotFoundError:  # another process has just removed it
        return None

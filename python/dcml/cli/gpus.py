"""What `dcml doctor` says of GPUs: the device, and the libraries of NVIDIA's packages that run on it.

The one idea: what is there is tried; a kernel and a product run on the device, and what served them is looked up.
Must not know: how the core finds libraries.
"""
import ctypes
import os
import shutil
import subprocess

from .problems import one_line

_PACKAGES = {"NVRTC": "nvidia-cuda-nvrtc", "cuBLASLt": "nvidia-cublas", "cuDNN": "nvidia-cudnn-cu13"}


def seen():
    """What nvidia-smi calls the GPUs, None where there is none of either."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    try:
        said = subprocess.run([tool, "--query-gpu=name,memory.total", "--format=csv,noheader"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return "; ".join(said.stdout.split("\n")[:4]).strip("; ") if said.returncode == 0 else None


def checks(make, graphs, loaded, pip):
    """Rows of the table.

    make(title, state, found, to do): a row.  graphs: (a map, a product) as texts.  loaded(part): the path of a library of
    this process.  pip: the command that installs packages.
    """
    kernel, product = graphs
    there, problem = seen(), _failure(kernel)
    if problem:
        if there is None:
            return [make("GPU", "absent", "none found; dcml runs on the processor")]
        return [make("GPU", "missing", f"{there}: {problem}", f"{pip} install 'dcml[cuda]'")]
    driver, compiler = loaded("libcuda.so") or os.environ.get("DCML_CUDA_DRIVER"), loaded("libnvrtc.so") or os.environ.get("DCML_NVRTC")
    rows = [make("GPU", "ok", there or f"found, {driver}"), _row(make, "NVRTC", compiler, _nvrtc_version, pip)]
    served = _served(product)
    rows.append(_row(make, "cuBLASLt", loaded("libcublasLt.so") if served == "cublas" else None, _cublas_version, pip))
    rows.append(_row(make, "cuDNN", loaded("libcudnn.so"), _cudnn_version, pip))
    return rows


def _row(make, title, path, version, pip):
    if path is None:
        return make(title, "absent", "not found; kernels of our own", f"{pip} install {_PACKAGES[title]}")
    try:
        return make(title, "ok", f"{version(path)}, {path}")
    except (OSError, AttributeError) as error:  # the path of an environment variable, where that library is not
        return make(title, "missing", f"{path} cannot be used: {error}", f"{pip} install {_PACKAGES[title]}")


def _run(text):
    """(results, who ran the first step) of a graph whose inputs are squares of ones."""
    import numpy as np
    from .. import _core
    graph = _core.parse(text)
    function = _core.Function(graph, backend="cuda")
    results = function(*[np.ones(graph.info(name)[1], np.float32) for name in graph.inputs])
    return results, function.report()[0]["steps"][0]["by"]


def _failure(text):
    """Why a kernel does not run on the device, None where it does."""
    from .. import _core
    try:
        (result, ), by = _run(text)
    except _core.Error as error:
        return one_line(error)[:200]
    return None if by == "compiled" and (result == 3).all() else f"a kernel was {by}, and gave {result[0]} for 3"


def _served(text):
    from .. import _core
    try:
        return _run(text)[1]
    except _core.Error:
        return None


def _nvrtc_version(path):
    major, minor = ctypes.c_int(), ctypes.c_int()
    ctypes.CDLL(path).nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}"


def _cublas_version(path):
    get = ctypes.CDLL(path).cublasLtGetVersion
    get.restype = ctypes.c_size_t
    return _dotted(get())


def _cudnn_version(path):
    get = ctypes.CDLL(path).cudnnGetVersion
    get.restype = ctypes.c_size_t
    return _dotted(get())


def _dotted(number):
    """91200 -> 9.12.0."""
    return f"{number // 10000}.{number % 10000 // 100}.{number % 100}"

"""Kernels as CUDA C++ compile: those of the gradient cases, forward and backward, and of the graphs in tests/ir, by NVRTC.

NVRTC needs no GPU: the wheel `nvidia-cuda-nvrtc` (`pip install dcml[cuda]`) holds it. Older and newer architectures compile
every fifth kernel.
"""
import concurrent.futures
import ctypes
import importlib.util
import pathlib
import re
import sys

import numpy as np
import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tools")]
import gradient_cases  # noqa: E402
import stages  # noqa: E402

import dcml  # noqa: E402
from dcml import _core  # noqa: E402

CODES = {"float64": 11, "float32": 1, "int64": 7, "int32": 6, "bool": 9, "uint8": 2, "int8": 3}


def _nvrtc():
    """The library of the wheel, or None."""
    found = importlib.util.find_spec("nvidia")
    folders = [pathlib.Path(folder) for folder in (found.submodule_search_locations if found else ())]
    paths = [path for folder in folders for part in ("cu13", "cuda_nvrtc") for path in sorted((folder / part / "lib").glob("libnvrtc.so*"))]
    return ctypes.CDLL(str(paths[0])) if paths else None


def _case_graph(case, fixed):
    """fixed: integers are constants, for where shapes follow from them."""
    def add(name, array):
        if fixed and array.dtype.kind == "i":
            return graph.add_const(name, array)
        return graph.add_input(name, 1 if array.dtype == np.float64 else CODES[array.dtype.name], list(array.shape))

    graph = _core.Graph(case.op, case.opset)
    arrays = [None if a is None else np.asarray(a) for a in gradient_cases.arrays(case)]
    names = [None if a is None else add(f"x{k}", a) for k, a in enumerate(arrays)]
    for output in graph.add_node(case.op, names, case.outputs, case.attrs, case.domain):
        graph.mark_output(output)
    return graph


def _file_graph(path):
    text = path.read_text().partition("\n")[2].partition("\n---\n")[0]
    return _core.parse(text)


def _kernels(graph, differentiated):
    """Texts of the kernels of a graph after all passes, for cuda."""
    for name in ["infer", "complexes", *["differentiate"] * differentiated, *stages.pipeline()]:
        graph.run_pass(name)
    for state in range(graph.n_states):
        for node, kind, *_ in graph.nodes(state):
            if kind != "library":
                text = graph.kernel(node)
                for name, _ in _core.kernel_passes("cuda"):
                    text = _core.run_kernel_pass(text, name)
                yield text


def _all_kernels():
    found, refused = {}, []
    makers = [(lambda c=case, f=f: _case_graph(c, f), d) for case in gradient_cases.CASES for d in (False, True) for f in (False, True)]
    makers += [(lambda p=path: _file_graph(p), False) for path in sorted((HERE / "ir").glob("*/*.txt"))]
    for make, differentiated in makers:
        try:
            found.update(dict.fromkeys(_kernels(make(), differentiated)))
        except dcml.Error as error:  # a case that wants values of its inputs, or a text that is no graph
            refused.append(error)
    return list(found), refused


@pytest.fixture(scope="module")
def kernels():
    """(the library, the text of each kernel)."""
    texts, refused = _all_kernels()
    assert len(texts) > 1000 and len(refused) < 200, (len(texts), len(refused))
    codes = [_core.kernel_code(text, "cuda") for text in texts]
    starts = [code.index('extern "C" __global__') for code in codes]
    return codes[0][:starts[0]], [re.sub(r"\bkernel(?=\w*\()", f"k{number}", code[start:]) for number, (code, start) in enumerate(zip(codes, starts))]


def _problem(nvrtc, text, architecture):
    """What NVRTC says of a text, '' where it compiles."""
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernels.cu", 0, None, None) == 0
    options = [f"--gpu-architecture={architecture.replace('sm', 'compute')}".encode(), b"-w"]
    failed = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    assert nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size)) == 0
    log = ctypes.create_string_buffer(size.value)
    assert nvrtc.nvrtcGetProgramLog(program, log) == 0
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return log.value.decode() if failed else ""


def test_no_kernel_adds_or_multiplies_floats_in_the_order_in_which_threads_come(kernels):
    _, codes = kernels
    for code in codes:
        assert not re.search(r"atomic_update\(.*\((float|double) was\).*( \+ | \* |fma_)", code), code
        for buffer in re.findall(r"atomicAdd\(&(b\d+)\[", code):
            assert not re.search(rf"(float|double) \*(__restrict__ )?{buffer}\b", code), code


@pytest.mark.parametrize("architecture, every", [("sm_80", 5), ("sm_90", 1), ("sm_100", 5)])
def test_kernels_compile_for(architecture, every, kernels):
    nvrtc = _nvrtc()
    if nvrtc is None:
        pytest.skip("nvidia-cuda-nvrtc is not installed")
    library, codes = kernels
    halves = [library + "".join(codes[start::2 * every]) for start in (0, every)]
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        for problem in threads.map(lambda text: _problem(nvrtc, text, architecture), halves):
            assert not problem, problem[:4000]

"""The fake driver seen from Python: its settings and counts, and kernels written by hand that run on it.

It knows nothing of dcml; ``ctypes`` calls the same functions of the driver that dcml calls.
"""
import contextlib
import ctypes
from typing import NamedTuple

import numpy as np


class Alive(NamedTuple):
    """What was made and not given back."""
    allocations: int
    bytes: int
    pinned: int
    streams: int
    events: int
    modules: int
    graphs: int
    executable_graphs: int


def library(path):
    found = ctypes.CDLL(str(path))
    found.fake_cuda_fault.restype = ctypes.c_char_p
    found.nvrtcGetErrorString.restype = ctypes.c_char_p
    return found


class Fake:
    """``set(SEED=3)`` sets FAKE_CUDA_SEED until the test ends."""

    def __init__(self, loaded, monkeypatch, folder):
        self.library, self._monkeypatch, self._folder = loaded, monkeypatch, folder

    def set(self, **settings):
        for name, value in settings.items():
            self._monkeypatch.setenv(f"FAKE_CUDA_{name}", str(value))

    def unset(self, *names):
        for name in names:
            self._monkeypatch.delenv(f"FAKE_CUDA_{name}", raising=False)

    def alive(self):
        counts = (ctypes.c_longlong * len(Alive._fields))()
        self.library.fake_cuda_alive(counts)
        return Alive(*counts)

    def fault(self):
        """What the last kernel did wrong, or ''."""
        return self.library.fake_cuda_fault().decode()

    @contextlib.contextmanager
    def logged(self):
        """Fills a list with the calls made inside: (name, {word: value}, result)."""
        path, calls = self._folder / f"log{len(list(self._folder.iterdir()))}", []
        self.set(LOG=path)
        try:
            yield calls
        finally:
            self.unset("LOG")
            calls += [_call(line) for line in path.read_text().splitlines() if " -> " in line] if path.exists() else []


def _call(line):
    words, _, result = line.rpartition(" -> ")
    name, *rest = words.split(" ")
    return name, dict(word.partition("=")[::2] for word in rest), int(result)


class Failed(Exception):
    """A function of the driver returned an error; ``code`` has it."""

    def __init__(self, name, code, text=""):
        super().__init__(f"{name}: {code} {text}")
        self.code = code


class Gpu:
    """One device of the fake, for kernels written by hand; ``with Gpu(fake) as gpu``."""

    def __init__(self, fake, ordinal=0):
        self.fake, self._ordinal, self._modules, self._memory = fake, ordinal, [], []

    def __enter__(self):
        context = ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._ordinal)
        self.call("cuCtxPushCurrent_v2", context)
        return self

    def __exit__(self, *_):
        self.fake.library.fake_cuda_forgive()
        for memory in self._memory:
            self.call("cuMemFree_v2", memory)
        for module in self._modules:
            self.call("cuModuleUnload", module)
        self.call("cuCtxPopCurrent_v2", None)
        self.call("cuDevicePrimaryCtxRelease_v2", self._ordinal)

    def call(self, name, *arguments):
        code = getattr(self.fake.library, name)(*arguments)
        if code:
            raise Failed(name, code)

    def module(self, text, *options):
        """A function that finds kernels of this text by name."""
        image = self.compiled(text, *options)
        module = ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), image)
        self._modules.append(module)

        def find(name):
            function = ctypes.c_void_p()
            self.call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
            return function
        return find

    def compiled(self, text, *options):
        program, size = ctypes.c_void_p(), ctypes.c_size_t()
        options = ["--gpu-architecture=sm_90", *options]
        self.call("nvrtcCreateProgram", ctypes.byref(program), text.encode(), b"by_hand.cu", 0, None, None)
        try:
            words = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
            code = self.fake.library.nvrtcCompileProgram(program, len(options), words)
            if code:
                self.call("nvrtcGetProgramLogSize", program, ctypes.byref(size))
                log = ctypes.create_string_buffer(size.value)
                self.call("nvrtcGetProgramLog", program, log)
                raise Failed("nvrtcCompileProgram", code, log.value.decode())
            self.call("nvrtcGetCUBINSize", program, ctypes.byref(size))
            image = ctypes.create_string_buffer(size.value)
            self.call("nvrtcGetCUBIN", program, image)
            return image
        finally:
            self.call("nvrtcDestroyProgram", ctypes.byref(program))

    def take(self, n_bytes, stream=None, pooled=False):
        address = ctypes.c_uint64()
        if pooled:
            self.call("cuMemAllocAsync", ctypes.byref(address), ctypes.c_size_t(n_bytes), stream)
        else:
            self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(n_bytes))
            self._memory.append(address)
        return address

    def put(self, array):
        array = np.ascontiguousarray(array)
        address = self.take(array.nbytes)
        self.call("cuMemcpyHtoD_v2", address, ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes))
        return address

    def get(self, address, shape, dtype):
        array = np.empty(shape, dtype)
        self.call("cuMemcpyDtoH_v2", ctypes.c_void_p(array.ctypes.data), address, ctypes.c_size_t(array.nbytes))
        return array

    def launch(self, kernel, blocks, threads, *arguments, shared=0, stream=None):
        """Integers are i64, others as ctypes has them."""
        arguments = [ctypes.c_int64(a) if isinstance(a, int) else a for a in arguments]
        addresses = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(a) for a in arguments))
        grid, block = ((*v, 1, 1)[:3] if isinstance(v, tuple) else (v, 1, 1) for v in (blocks, threads))
        self.call("cuLaunchKernel", kernel, *grid, *block, shared, stream, addresses, None)

    def stream(self):
        stream = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(stream), 1)
        return stream

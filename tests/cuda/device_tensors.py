"""Tensors that show themselves by DLPack's exchange interface as torch's do, in memory of the fake driver.

They stand where torch.Tensor would, so that what the binding does with tensors of a GPU runs without one.  They know no
arithmetic; ``put`` and ``get`` copy arrays of numpy.
"""
import ctypes

import numpy as np
import torch

CODES = {"float32": (2, 32), "float64": (2, 64), "int64": (0, 64), "int32": (0, 32), "bool": (6, 8), "uint8": (1, 8)}
CPU, CUDA = 1, 2


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("type", ctypes.c_int32), ("id", ctypes.c_int32), ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8),
                ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("offset", ctypes.c_uint64)]


class DLManaged(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
                ("flags", ctypes.c_uint64), ("tensor", DLTensor)]


class Memory:
    """What torch's allocator and streams are: ``library`` is the fake driver; ``stream`` the current one; ``taken`` counts blocks."""
    library, stream, taken, held, contexts = None, None, 0, {}, {}

    @classmethod
    def call(cls, name, *arguments):
        code = getattr(cls.library, name)(*arguments)
        if code:
            raise RuntimeError(f"{name}: {code}")

    @classmethod
    def inside(cls, name, *arguments, ordinal=0):
        if ordinal not in cls.contexts:  # retained as long as the process runs, as torch does
            cls.contexts[ordinal] = ctypes.c_void_p()
            cls.call("cuInit", 0)
            cls.call("cuDevicePrimaryCtxRetain", ctypes.byref(cls.contexts[ordinal]), ordinal)
        cls.call("cuCtxPushCurrent_v2", cls.contexts[ordinal])
        try:
            cls.call(name, *arguments)
        finally:
            cls.call("cuCtxPopCurrent_v2", None)

    @classmethod
    def take(cls, n_bytes, ordinal=0):
        address = ctypes.c_uint64()
        cls.inside("cuMemAllocAsync", ctypes.byref(address), ctypes.c_size_t(max(n_bytes, 1)), cls.stream, ordinal=ordinal)
        return address.value

    @classmethod
    def give(cls, address, ordinal=0):
        cls.inside("cuMemFreeAsync", ctypes.c_uint64(address), cls.stream, ordinal=ordinal)


class DeviceTensor:
    """Of a GPU, or with ordinal None of the CPU."""
    layout = "strided"

    def __init__(self, shape, dtype, ordinal=0):
        self.shape, self.dtype, self.ordinal, self.requires_grad = tuple(shape), np.dtype(dtype), ordinal, False
        self.dims = (ctypes.c_int64 * max(len(self.shape), 1))(*self.shape)
        steps = [int(np.prod(self.shape[k + 1:], dtype=np.int64)) for k in range(len(self.shape))]
        self.strides = (ctypes.c_int64 * max(len(self.shape), 1))(*steps)
        self.nbytes = int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize
        self.host = np.zeros(self.shape, self.dtype) if ordinal is None else None
        self.address = self.host.ctypes.data if ordinal is None else Memory.take(self.nbytes, ordinal)

    def __del__(self):
        if self.host is None:
            Memory.give(self.address, self.ordinal)

    def get(self):
        if self.host is not None:
            return self.host
        out = np.empty(self.shape, self.dtype)
        Memory.inside("cuMemcpyDtoHAsync_v2", ctypes.c_void_p(out.ctypes.data), ctypes.c_uint64(self.address), ctypes.c_size_t(self.nbytes), Memory.stream)
        Memory.inside("cuStreamSynchronize", Memory.stream)
        return out

    @property
    def device(self):
        return "cpu" if self.ordinal is None else f"cuda:{self.ordinal}"


def put(array, ordinal=0):
    array = np.asarray(array, order="C")
    made = DeviceTensor(array.shape, array.dtype, ordinal)
    if ordinal is None:
        made.host[...] = array
    elif made.nbytes:
        Memory.inside("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(made.address), ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(made.nbytes), Memory.stream,
                      ordinal=ordinal)
        Memory.inside("cuStreamSynchronize", Memory.stream, ordinal=ordinal)
    return made


# ---- the interface ----

def _borrow(tensor, out):
    code, bits = CODES[tensor.dtype.name]
    out[0] = DLTensor(tensor.address if tensor.nbytes else None, CPU if tensor.ordinal is None else CUDA, tensor.ordinal or 0, len(tensor.shape), code, bits, 1,
                      ctypes.cast(tensor.dims, ctypes.POINTER(ctypes.c_int64)), ctypes.cast(tensor.strides, ctypes.POINTER(ctypes.c_int64)), 0)
    return 0


def _allocate(like, out, context, fail):
    n_bytes = int(np.prod([like[0].shape[k] for k in range(like[0].ndim)], dtype=np.int64)) * like[0].bits // 8
    try:
        address = Memory.take(n_bytes, like[0].id)
    except RuntimeError:
        return -1
    made = DLManaged(1, 0, None, ctypes.cast(_DELETE, ctypes.c_void_p), 0, DLTensor(address, CUDA, like[0].id))
    Memory.held[ctypes.addressof(made)] = made
    Memory.taken += 1
    out[0] = ctypes.addressof(made)
    return 0


def _delete(managed):
    made = Memory.held.pop(managed)
    Memory.give(made.tensor.data, made.tensor.id)


def _stream(kind, ordinal, out):
    out[0] = Memory.stream.value if Memory.stream else None
    return 0


_POINTER = ctypes.POINTER(ctypes.c_void_p)
_DELETE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_delete)
_KEPT = [ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(DLTensor), _POINTER, ctypes.c_void_p, ctypes.c_void_p)(_allocate), None, None,
         ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(DLTensor))(_borrow),
         ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, _POINTER)(_stream)]
_TABLE = (ctypes.c_void_p * 7)(1, None, *[ctypes.cast(f, ctypes.c_void_p) if f else None for f in _KEPT])
_CAPSULE = ctypes.pythonapi.PyCapsule_New
_CAPSULE.restype, _CAPSULE.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
_NAME = ctypes.create_string_buffer(b"dlpack_exchange_api")  # which the capsule points to
DeviceTensor.__dlpack_c_exchange_api__ = _CAPSULE(ctypes.addressof(_TABLE), _NAME, None)


def empty(shape, dtype, device):
    """As torch.empty, for results."""
    return DeviceTensor(shape, str(dtype).removeprefix("torch."), device.index if device.type == "cuda" else None)


def stand_for_torch(monkeypatch, library):
    """The core takes these for torch's tensors until the test ends."""
    Memory.library, Memory.stream, Memory.taken = library, None, 0
    monkeypatch.setattr(torch, "Tensor", DeviceTensor)
    monkeypatch.setattr(torch, "empty", empty)

"""Arrays of NumPy in the core's memory: where they lie, and how long."""
import numpy as np
import pytest

import dcml
from dcml import _core, memory
from dcml.mx import np as mnp

LINE = 64  # of the cache


def place(array):
    return array.ctypes.data % LINE


@pytest.mark.parametrize("shape", [(1024,), (33, 32), (3, 1000)])
def test_results_and_arrays_begin_at_a_line_of_the_cache(shape):
    x = np.ones(shape, "float32")
    assert place(_core.eager("Exp", "", 13, [x], None, 1)[0]) == 0
    for made in (mnp.array(x), mnp.zeros(shape), mnp.full(shape, 2.0), mnp.exp(mnp.ones(shape)), mnp.random.normal(size=shape)):
        assert place(made._value()) == 0 and made._value().flags.writeable


def test_large_results_begin_pages():
    for extent in (1 << 18, 300_000, 1 << 20, (1 << 20) + 1, 1 << 18):
        one = _core.eager("Mul", "", 14, [np.ones(extent, "float32"), np.ones(extent, "float32")], None, 1)[0]
        assert one.ctypes.data % 4096 == 0 and (one == 1).all()


def test_results_that_are_held_keep_their_values():
    held = [_core.eager("Mul", "", 14, [np.full(2048, k, "float32"), np.ones(2048, "float32")], None, 1)[0] for k in range(8)]
    views = [one[::2] for one in held]
    del held
    [_core.eager("Mul", "", 14, [np.full(2048, 99, "float32"), np.ones(2048, "float32")], None, 1) for _ in range(8)]
    assert [float(v[0]) for v in views] == list(range(8)) and all((v == v[0]).all() for v in views)


@pytest.mark.parametrize("dtype", ["float64", "bool", "int8", "complex64"])
def test_copies_are_those_of_numpy(dtype):
    x = np.arange(6000).reshape(60, 100)[:, ::-1].astype(dtype).T
    for given in (x, x[:2, :2], x.tolist(), 3):
        made, wanted = memory.copy(given, dtype), np.array(given, dtype, order="C")
        assert made.dtype == wanted.dtype and made.shape == wanted.shape and made.flags.c_contiguous and (made == wanted).all()


def test_memory_refuses_what_is_no_number_of_bytes():
    assert len(memoryview(_core.Memory(5000))) == 5000 and len(memoryview(_core.Memory(0))) == 0
    for bad, error in ((-1, dcml.Error), (1 << 60, dcml.Error), ("8", TypeError), (1 << 70, OverflowError)):
        with pytest.raises(error):
            _core.Memory(bad)

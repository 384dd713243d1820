"""A program against the same function, run by NumPy."""
import numpy as np
import pytest


def check(program, *args, rtol=1e-5, **kwargs):
    """Results, and arguments afterwards, are NumPy's: values, shapes and types."""
    mine, numpys = ([a.copy() if isinstance(a, np.ndarray) else a for a in args] for _ in range(2))
    got = program(*mine, **kwargs)
    with np.errstate(all="ignore"):
        want = program.f(*numpys, **kwargs)
    pairs = list(zip(mine, numpys))
    assert isinstance(got, tuple) == isinstance(want, tuple)
    pairs += list(zip(got, want)) if isinstance(want, tuple) else [(got, want)] if want is not None else []
    assert not isinstance(want, tuple) or len(got) == len(want)
    for a, b in pairs:
        if not isinstance(b, (np.ndarray, np.generic, int, float, complex, bool)):
            continue
        assert np.asarray(a).dtype == np.asarray(b).dtype and np.shape(a) == np.shape(b)
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-6)
    return got


@pytest.fixture
def agree():
    return check


@pytest.fixture
def f32():
    return lambda *shape: np.random.default_rng(len(shape) + sum(shape)).standard_normal(shape).astype(np.float32)

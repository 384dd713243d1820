"""Neon's op-trees against numpy: ten element-wise operators on a large tensor, and a small tree.

Both run in turns in one process; the same ten operators are written with numpy's functions and temporaries.
"""
from turns import medians

_LARGE, _SMALL = (2048, 1024), (4, 4)


def _by_numpy(np, a, b):
    return np.maximum(np.sqrt(np.square(np.exp(-np.tanh((a + b) * 0.5)) - a) + 0.5), b)


def _contenders(np, be, shape):
    a, b = (np.random.RandomState(k).uniform(0, 1, shape).astype(np.float32) for k in range(2))
    x, y, out, found = be.array(a), be.array(b), be.empty(shape), np.empty_like(a)

    def ours():
        out[:] = _by_numpy(be, x, y)

    def theirs():
        found[:] = _by_numpy(np, a, b)
    ours(), theirs()
    assert np.allclose(out.get(), found, rtol=1e-5, atol=1e-6)
    return ours, theirs


def lines():
    import numpy as np
    from dcml.neon.backends import gen_backend
    be = gen_backend()
    large, small = medians(_contenders(np, be, _LARGE), 40), medians(_contenders(np, be, _SMALL), 4000)
    return [f"{title:<56} {ours / theirs:.2f} of numpy: {factor * ours:.2f} against {factor * theirs:.2f} {unit}"
            for title, (ours, theirs), factor, unit in (("an op-tree of ten operators, [2048, 1024], float32", large, 1e3, "ms"),
                                                        ("the same tree on [4, 4]", small, 1e6, "µs"))]

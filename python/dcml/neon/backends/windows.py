"""Convolutions and pooling in Neon's layout, feature maps first and images last, by the core's operators.

The one idea: dimensions are put in the order that the core's convolutions take; pooling takes the five dimensions as
they are, as the extents of one image with one channel.  Must not know: layers (layers.py).
"""
import numpy as np

_IMAGES_FIRST = (4, 0, 1, 2, 3)
_IMAGES_LAST = (1, 2, 3, 4, 0)


def _moved(e, a, perm):
    return e.value("Transpose", a.dtype, a, perm=list(perm))


def _used(d):
    """The dimensions in space that matter: a depth of 1 is left out."""
    flat = d["dhw"][0] == d["trs"][0] == d["mpq"][0] == 1 and d["pads"][0] == 0
    return (1, 2) if flat else (0, 1, 2)


def _flatter(e, a, used):
    """Without the dimensions in space that are not used; the first two stay."""
    shape = e.shape(a)
    return a if len(used) == 3 else e.reshape(a, shape[:2] + tuple(shape[2 + k] for k in used))


def _geometry(d, used, strides, dilations):
    return {"pads": [d["pads"][k] for k in used] * 2, "strides": [strides[k] for k in used], "dilations": [dilations[k] for k in used]}


def _pair(e, a, b):
    a, b = e.pair(a, b)
    return e.floating(a), e.floating(b)


def conv(e, d, a, b):
    """(C, D, H, W, N) and (C, T, R, S, K) -> (K, M, P, Q, N)."""
    a, b = _pair(e, a, b)
    used, (n, _, k) = _used(d), d["nck"]
    image, filters = (_flatter(e, _moved(e, x, _IMAGES_FIRST), used) for x in (a, b))
    found = e.value("Conv", a.dtype, image, filters, **_geometry(d, used, d["strides"], d["dilation"]))
    return _moved(e, e.reshape(found, (n, k, *d["mpq"])), _IMAGES_LAST)


def conv_data(e, d, a, b):
    """(C, T, R, S, K) and errors (K, M, P, Q, N) -> gradient (C, D, H, W, N)."""
    b, a = _pair(e, b, a)
    used, (n, c, _) = _used(d), d["nck"]
    error, filters = _flatter(e, _moved(e, b, _IMAGES_FIRST), used), _flatter(e, _moved(e, a, _IMAGES_FIRST), used)
    rest = [d["dhw"][i] - (d["mpq"][i] - 1) * d["strides"][i] + 2 * d["pads"][i] - d["dilation"][i] * (d["trs"][i] - 1) - 1 for i in used]
    found = e.value("ConvTranspose", a.dtype, error, filters, output_padding=rest, **_geometry(d, used, d["strides"], d["dilation"]))
    return _moved(e, e.reshape(found, (n, c, *d["dhw"])), _IMAGES_LAST)


def conv_filter(e, d, a, b):
    """(C, D, H, W, N) and errors (K, M, P, Q, N) -> gradient (C, T, R, S, K): errors are the filters of a convolution."""
    a, b = _pair(e, a, b)
    used, (_, c, k) = _used(d), d["nck"]
    image, error = (_flatter(e, _moved(e, x, (0, 4, 1, 2, 3)), used) for x in (a, b))
    found = e.value("Conv", a.dtype, image, error, **_geometry(d, used, d["dilation"], d["strides"]))
    size = [d["trs"][i] for i in used]
    if e.shape(found)[2:] != tuple(size):  # steps that the last window does not fill
        bounds = [0] * len(used), size, [2 + i for i in range(len(used))]
        found = e.value("Slice", a.dtype, found, *(e.const(np.array(x, np.int64), None) for x in bounds))
    return _moved(e, e.reshape(found, (c, k, *d["trs"])), (0, 2, 3, 4, 1))


def _pool_ends(d):
    """What is to be padded behind, so that the last window begins where it has to."""
    return [max(0, (o - 1) * s + k - n - p) for o, s, k, n, p in zip(d["output"], d["strides"], d["window"], d["input"], d["pads"])]


def _windows(d):
    return {"window": [*d["window"], 1], "output": [*d["output"], d["images"]], "pads": [*d["pads"], 0], "strides": [*d["strides"], 1]}


def pool(e, d, a, b):
    """(C, D, H, W, N) -> (K, M, P, Q, N) by 'max', 'avg' or 'l2' over windows, of which only what is inside counts."""
    a = e.floating(a)
    if d["kind"] == "l2":
        return e.value("L2Pool", a.dtype, a, domain="dcml.neon", **_windows(d))
    image = e.reshape(a, (1, 1, *d["input"], d["images"]))
    found = e.value("MaxPool" if d["kind"] == "max" else "AveragePool", a.dtype, image, kernel_shape=[*d["window"], 1],
                    pads=[*d["pads"], 0, *_pool_ends(d), 0], strides=[*d["strides"], 1])
    return e.reshape(found, (*d["output"], d["images"]))


def place(e, d, a, b):
    """Where in its window, as far as that is inside, each maximum stands."""
    return e.value("WindowPlace", np.dtype("i8"), e.floating(a), domain="dcml.neon", **_windows(d))


def from_place(e, d, a, b):
    """Errors (K, M, P, Q, N) brought to those places."""
    a = e.floating(a)
    places = e.cast(b, np.dtype("i8"))
    return e.value("FromWindowPlace", a.dtype, a, places, domain="dcml.neon", input=[*d["input"], d["images"]], **_windows(d))

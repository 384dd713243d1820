"""Operators at about a million elements, forward and gradient, against eager PyTorch; the worst come last.

One process runs both in turns: dcml's kernels and torch's share a pool of threads.  A time is the least of many, since
neighbours on the machine only add; with OMP_NUM_THREADS=1 it is the processor's, which they hardly touch.  Values and
gradients are compared before.
"""
import argparse
import os
import sys
import time

if __name__ == "__main__" and "MALLOC_TOP_PAD_" not in os.environ:  # as contenders.py has it, which glibc reads at its start
    from contenders import RETAINED
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **RETAINED})

import torch
import torch.nn.functional as F

FLAT, SQUARE, IMAGES, WIDE = (1 << 20,), (1024, 1024), (16, 64, 32, 32), (8, 128, 32, 32)


def _seeds(n, *shape):
    return torch.randint(0, n, shape, generator=torch.Generator().manual_seed(2))


def _state(kind, **options):
    torch.manual_seed(3)
    return kind(256, 256, batch_first=True, **options)


def _unary():
    for name in ("abs", "neg", "exp", "sin", "cos", "sinh", "cosh", "asinh", "tanh", "sigmoid", "erf", "relu", "atan", "square", "expm1",
                 "floor", "ceil", "round", "sign"):
        yield name, getattr(torch, name), [FLAT]
    for name in ("softplus", "softsign", "hardswish", "mish", "leaky_relu", "elu", "celu", "selu", "hardsigmoid", "gelu", "silu",
                 "hardtanh", "logsigmoid", "softshrink", "hardshrink", "relu6", "tanhshrink"):
        yield name, getattr(F, name), [FLAT]
    yield "gelu tanh", lambda x: F.gelu(x, approximate="tanh"), [FLAT]
    for name in ("log", "log1p", "sqrt", "reciprocal", "rsqrt"):
        yield name, lambda x, f=getattr(torch, name): f(x.abs() + 0.5), [FLAT]
    for name in ("asin", "acos", "atanh", "tan"):
        yield name, lambda x, f=getattr(torch, name): f(x * 0.1), [FLAT]
    yield "clamp", lambda x: x.clamp(-0.5, 0.7), [FLAT]
    yield "glu", lambda x: F.glu(x), [SQUARE]
    yield "tril", torch.tril, [SQUARE]
    yield "prelu", F.prelu, [IMAGES, (64,)]


def _binary():
    for name in ("add", "sub", "mul", "maximum", "minimum", "atan2"):
        yield name, getattr(torch, name), [SQUARE, SQUARE]
        yield name + " of a row", getattr(torch, name), [SQUARE, (1024,)]
        yield name + " of a column", getattr(torch, name), [SQUARE, (1024, 1)]
    yield "div", lambda x, y: x / (y.abs() + 0.5), [SQUARE, SQUARE]
    yield "pow", lambda x, y: (x.abs() + 0.5) ** y, [SQUARE, SQUARE]
    yield "where", lambda x, y: torch.where(x > 0, x, y), [SQUARE, SQUARE]
    yield "addcmul", torch.addcmul, [SQUARE] * 3


def _shapes():
    yield "permute", lambda x: x.permute(2, 0, 1).contiguous(), [(128, 64, 128)]
    yield "transpose", lambda x: x.t().contiguous(), [SQUARE]
    yield "expand", lambda x: x.expand(1024, 1024).contiguous(), [(1024, 1)]
    yield "tile", lambda x: x.repeat(4, 4), [(256, 256)]
    yield "cat", lambda x, y: torch.cat([x, y], 1), [(1024, 512)] * 2
    yield "split", lambda x: torch.cat(x.split([300, 724], 1)[::-1], 1), [SQUARE]
    yield "slice", lambda x: x[:, 1::2] * 1, [(1024, 2048)]
    yield "flip", lambda x: x.flip(1), [SQUARE]
    yield "roll", lambda x: x.roll(5, 1), [SQUARE]
    for mode in ("constant", "reflect", "replicate", "circular"):
        yield f"pad {mode}", lambda x, m=mode: F.pad(x, (1, 2, 2, 1), mode=m), [IMAGES]
    yield "pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), [IMAGES]
    yield "pixel_unshuffle", lambda x: F.pixel_unshuffle(x, 2), [IMAGES]
    yield "gather rows", lambda x: x[_ROWS], [(4096, 256)]
    yield "embedding", lambda w: F.embedding(_ROWS, w), [(4096, 256)]
    yield "gather", lambda x: x.gather(1, _PLACES), [SQUARE]
    yield "scatter_add", lambda x, y: x.scatter_add(1, _PLACES, y), [SQUARE, SQUARE]
    yield "index_add", lambda x, y: x.index_add(0, _ROWS, y), [(4096, 256)] * 2
    yield "one_hot", lambda x: F.one_hot(_ROWS % 256, 256) * x, [(4096, 1)]


_ROWS, _PLACES, _CLASSES, _PIXELS = _seeds(4096, 4096), _seeds(1024, 1024, 1024), _seeds(1024, 1024), _seeds(64, 16, 32, 32)


def _sums():
    for name in ("sum", "mean", "amax", "amin", "prod", "logsumexp", "var"):
        for axis, where in ((1, "rows"), (0, "columns")):
            yield f"{name} of {where}", lambda x, f=getattr(torch, name), a=axis: f(x, a), [SQUARE]
    yield "sum of all", torch.sum, [FLAT]
    yield "norm", lambda x: torch.linalg.vector_norm(x, dim=1), [SQUARE]
    yield "argmax", lambda x: x.argmax(1) + x[:, 0], [SQUARE]
    for axis in (0, 1):
        yield f"cumsum {axis}", lambda x, a=axis: x.cumsum(a), [SQUARE]
    yield "cumsum of a vector", lambda x: x.cumsum(0), [FLAT]
    yield "cumprod", lambda x: (1 + 0.01 * x).cumprod(1), [SQUARE]
    yield "topk", lambda x: x.topk(16, 1)[0], [SQUARE]
    yield "topk of a vector", lambda x: x.topk(100)[0], [FLAT]
    yield "sort", lambda x: x.sort(1)[0], [SQUARE]


def _norms():
    for name in ("softmax", "log_softmax"):
        yield name, lambda x, f=getattr(F, name): f(x, -1), [SQUARE]
        yield name + " of columns", lambda x, f=getattr(F, name): f(x, 0), [SQUARE]
    yield "normalize", lambda x: F.normalize(x, dim=1), [SQUARE]
    yield "layer_norm", lambda x, w, b: F.layer_norm(x, (1024,), w, b), [SQUARE, (1024,), (1024,)]
    yield "rms_norm", lambda x, w: F.rms_norm(x, (1024,), w), [SQUARE, (1024,)]
    yield "batch_norm", lambda x, w, b: F.batch_norm(x, None, None, w, b, True), [IMAGES, (64,), (64,)]
    yield "instance_norm", lambda x, w, b: F.instance_norm(x, None, None, w, b), [IMAGES, (64,), (64,)]
    yield "group_norm", lambda x, w, b: F.group_norm(x, 8, w, b), [IMAGES, (64,), (64,)]
    yield "local_response_norm", lambda x: F.local_response_norm(x, 5), [IMAGES]
    yield "cross_entropy", lambda x: F.cross_entropy(x, _CLASSES), [SQUARE]
    yield "cross_entropy of pixels", lambda x: F.cross_entropy(x, _PIXELS), [IMAGES]
    yield "mse_loss", F.mse_loss, [SQUARE, SQUARE]
    yield "binary_cross_entropy", lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()), [SQUARE, SQUARE]


def _products():
    yield "matmul", torch.matmul, [(512, 512)] * 2
    yield "linear", F.linear, [SQUARE, (256, 1024), (256,)]
    yield "bmm", torch.bmm, [(64, 128, 128)] * 2
    yield "matrix by vector", torch.mv, [SQUARE, (1024,)]
    yield "einsum", lambda x, y: torch.einsum("bij,jkb->bik", x, y), [(32, 64, 64), (64, 64, 32)]
    yield "conv2d", lambda x, w, b: F.conv2d(x, w, b, padding=1), [WIDE, (64, 128, 3, 3), (64,)]
    yield "conv2d, stride 2, groups", lambda x, w: F.conv2d(x, w, None, 2, 1, 1, 4), [WIDE, (128, 32, 3, 3)]
    yield "conv2d, depthwise", lambda x, w: F.conv2d(x, w, None, 1, 1, 1, 128), [WIDE, (128, 1, 3, 3)]
    yield "conv1d", lambda x, w: F.conv1d(x, w, padding=2), [(16, 64, 1024), (64, 64, 5)]
    yield "conv3d", lambda x, w: F.conv3d(x, w, padding=1), [(2, 16, 32, 32, 32), (16, 16, 3, 3, 3)]
    yield "conv_transpose2d", lambda x, w: F.conv_transpose2d(x, w, None, 2, 1), [(8, 64, 32, 32), (64, 32, 4, 4)]
    yield "conv_transpose1d", lambda x, w: F.conv_transpose1d(x, w, None, 2, 1), [(16, 64, 512), (64, 32, 4)]
    yield "conv_transpose2d, groups", lambda x, w: F.conv_transpose2d(x, w, None, 2, 1, 0, 4), [(8, 64, 32, 32), (64, 8, 4, 4)]
    yield "fold", lambda x: F.fold(x, 64, 3, padding=1, stride=2), [(4, 288, 1024)]
    yield "unfold", lambda x: F.unfold(x, 3, padding=1), [(4, 32, 32, 32)]
    yield "attention", F.scaled_dot_product_attention, [(8, 8, 128, 64)] * 3
    for name in ("RNN", "GRU", "LSTM"):
        module = _state(getattr(torch.nn, name))
        yield name, lambda x, m=module: m(x)[0], [(16, 32, 256)]


def _images():
    for name, options in (("max_pool2d", {}), ("avg_pool2d", {}), ("lp_pool2d", {"norm_type": 2})):
        yield name, lambda x, f=getattr(F, name), o=options: f(x, kernel_size=3, stride=2, **o), [IMAGES]
    yield "max_pool2d, overlapping", lambda x: F.max_pool2d(x, 3, 1, 1), [IMAGES]
    yield "adaptive_avg_pool2d", lambda x: F.adaptive_avg_pool2d(x, 1), [IMAGES]
    yield "adaptive_avg_pool2d to 5", lambda x: F.adaptive_avg_pool2d(x, 5), [IMAGES]
    yield "adaptive_max_pool2d", lambda x: F.adaptive_max_pool2d(x, 4), [IMAGES]
    for mode in ("nearest", "bilinear", "bicubic"):
        yield f"interpolate {mode}", lambda x, m=mode: F.interpolate(x, scale_factor=2, mode=m), [(8, 32, 32, 32)]
    yield "interpolate, smaller", lambda x: F.interpolate(x, size=(20, 20), mode="bilinear", antialias=True), [(8, 64, 48, 48)]
    for mode in ("bilinear", "nearest"):
        yield (f"grid_sample {mode}", lambda x, g, m=mode: F.grid_sample(x, g.tanh(), mode=m, align_corners=False),
               [(8, 32, 64, 64), (8, 64, 64, 2)])
    yield "affine_grid", lambda t: F.affine_grid(t, (8, 3, 256, 256), align_corners=False), [(8, 2, 3)]


def _transforms():
    for n in (1024, 1000, 1009):
        yield f"fft of {n}", lambda x: torch.view_as_real(torch.fft.fft(x)), [(512, n)]
        yield f"rfft of {n}", lambda x: torch.view_as_real(torch.fft.rfft(x)), [(512, n)]
    yield "irfft", lambda x: torch.fft.irfft(torch.view_as_complex(x)), [(512, 513, 2)]
    yield "fft of a vector", lambda x: torch.view_as_real(torch.fft.fft(x)), [(1 << 16,)]
    yield "det", torch.linalg.det, [(4096, 8, 8)]


GROUPS = (_unary, _binary, _shapes, _sums, _norms, _products, _images, _transforms)


class _Module(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def _least(runs, seconds):
    """For each, its fastest call, taken in turns."""
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    best, begin, rounds = [float("inf")] * len(runs), clock(), 0
    while rounds < 3 or clock() - begin < seconds:
        rounds += 1
        for k, run in enumerate(runs):
            start = clock()
            run()
            best[k] = min(best[k], clock() - start)
    return best


def measure(function, shapes, seconds):
    """((dcml, eager) of the forward, the same of forward and gradient or None)."""
    from dcml.pytorch import DaceModule
    generator = torch.Generator().manual_seed(1)
    inputs = [torch.randn(s, generator=generator) for s in shapes]
    with torch.no_grad():
        ours, theirs = DaceModule(_Module(function)), function
        torch.testing.assert_close(ours(*inputs), theirs(*inputs), rtol=1e-2, atol=1e-2)
        forward = _least([lambda: ours(*inputs), lambda: theirs(*inputs)], seconds)
    inputs = [x.requires_grad_() for x in inputs]
    result = theirs(*inputs)
    if not result.requires_grad:
        return forward, None
    trained, cotangent = DaceModule(_Module(function), backward=True), torch.randn(result.shape, generator=generator)

    def step(run):
        for x in inputs:
            x.grad = None
        run(*inputs).backward(cotangent)
        return [x.grad for x in inputs]

    for a, b in zip(step(trained), step(theirs)):
        assert b is None or float((a - b).norm()) <= 1e-2 * float(b.norm()) + 1e-6, "gradients differ"
    return forward, _least([lambda: step(trained), lambda: step(theirs)], seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="operators whose name holds this text")
    parser.add_argument("--seconds", type=float, default=0.2, help="for each measurement (0.2)")
    parser.add_argument("--worst", type=int, default=20, help="how many to show at the end (20)")
    arguments = parser.parse_args()
    rows = []
    for name, function, shapes in (row for group in GROUPS for row in group()):
        if arguments.only not in name:
            continue
        try:
            found = measure(function, shapes, arguments.seconds)
        except Exception as error:  # noqa: BLE001  (one operator that fails is a row of the table)
            print(f"{name:<32} {type(error).__name__}: {str(error).splitlines()[0][:90]}", flush=True)
            continue
        for what, times in zip(("forward", "training"), found):
            if times:
                ours, eager = times[0], times[1]
                title = f"{name}, {what}"
                rows.append((ours / eager, f"{title:<40} {ours / eager:6.2f} of eager: {1e3 * ours:.3f} against {1e3 * eager:.3f} ms"))
                print(rows[-1][1], flush=True)
    rows.sort()
    above = sum(ratio > 1.05 for ratio, _ in rows)
    print(f"\n{above} of {len(rows)} above 1.05; the worst:", *(text for _, text in rows[-arguments.worst:]), sep="\n")


if __name__ == "__main__":
    main()

"""npx against eager torch, and against MXNet where it is installed: operators on [4096, 1024], a training step of a small
convolutional network, a call on 16 floats.

All run in turns in one process; the same weights give the same losses.
"""
import importlib.util

from turns import medians

_SHAPES = ((16, 3, 3, 3), (16,), (32, 16, 3, 3), (32,), (10, 2048), (10,))


def _step(np, npx, autograd, weights, images, labels):
    weights = [np.array(w) for w in weights]
    x, y = np.array(images), np.array(labels)
    for w in weights:
        w.attach_grad()

    def step():
        with autograd.record():
            h = npx.relu(npx.convolution(x, *weights[:2], kernel=(3, 3), pad=(1, 1), num_filter=16))
            h = npx.pooling(h, kernel=(2, 2), stride=(2, 2))
            h = npx.relu(npx.convolution(h, *weights[2:4], kernel=(3, 3), pad=(1, 1), num_filter=32))
            h = npx.pooling(h, kernel=(2, 2), stride=(2, 2))
            loss = -npx.pick(npx.log_softmax(npx.fully_connected(h, *weights[4:], num_hidden=10)), y).mean()
        loss.backward()
        for w in weights:
            w -= 0.01 * w.grad
        return loss.item()
    return step


def _torch_step(weights, images, labels):
    import torch
    from torch.nn import functional as F
    weights = [torch.tensor(w, requires_grad=True) for w in weights]
    x, y, optimizer = torch.tensor(images), torch.tensor(labels), torch.optim.SGD(weights, 0.01)

    def step():
        h = F.max_pool2d(F.relu(F.conv2d(x, *weights[:2], padding=1)), 2)
        h = F.max_pool2d(F.relu(F.conv2d(h, *weights[2:4], padding=1)), 2)
        loss = F.cross_entropy(F.linear(h.flatten(1), *weights[4:]), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()
    return step


def _operators(onp, np, npx):
    import torch
    from torch.nn import functional as F
    data = onp.random.default_rng(0).standard_normal((4096, 1024)).astype("float32")
    x, t, ones, zeros = np.array(data), torch.tensor(data), np.ones(1024), np.zeros(1024)
    weights = torch.ones(1024), torch.zeros(1024)
    yield "softmax", lambda: npx.softmax(x).wait_to_read(), lambda: F.softmax(t, -1)
    yield "layer_norm", lambda: npx.layer_norm(x, ones, zeros).wait_to_read(), lambda: F.layer_norm(t, (1024,), *weights)
    yield "gelu", lambda: npx.leaky_relu(x, act_type="gelu").wait_to_read(), lambda: F.gelu(t)


def lines():
    import numpy as onp
    from dcml.mx import autograd, np, npx
    rng = onp.random.default_rng(0)
    given = ([(0.1 * rng.standard_normal(s)).astype("float32") for s in _SHAPES], rng.standard_normal((32, 3, 32, 32)).astype("float32"),
             rng.integers(0, 10, 32))
    found = [(f"npx.{name}, [4096, 1024]", (ours, theirs), 40, "torch") for name, ours, theirs in _operators(onp, np, npx)]
    step, eager = _step(np, npx, autograd, *given), _torch_step(*given)
    assert all(abs(step() - eager()) < 1e-3 for _ in range(3))
    few, vector = np.ones(16), onp.ones(16, "float32")
    found += [("a training step of a small CNN by npx", (step, eager), 40, "torch"),
              ("a call of npx on 16 floats", (lambda: npx.softmax(few), lambda: onp.exp(vector)), 4000, "numpy.exp")]
    if importlib.util.find_spec("mxnet"):
        import mxnet
        theirs = mxnet.np.ones(16)
        found += [("the same step", (step, _step(mxnet.np, mxnet.npx, mxnet.autograd, *given)), 40, "MXNet"),
                  ("the same call", (lambda: npx.softmax(few), lambda: mxnet.npx.softmax(theirs)), 4000, "MXNet")]
    lines = []
    for title, runs, n, whose in found:
        ours, theirs = medians(runs, n)
        lines.append(f"{title:<56} {ours / theirs:.2f} of {whose}: {1e3 * ours:.4f} against {1e3 * theirs:.4f} ms")
    return lines

"""A convolutional network of MXNet's npx learns scikit-learn's digits.

    python examples/mx_cnn.py [epochs]

The training step is recorded, compiled as one graph at its second iteration, and differentiated by the core.
"""
import sys
import time

import numpy as onp
from sklearn.datasets import load_digits

from dcml.mx import autograd, np, npx, random

random.seed(3)
images, labels = load_digits(return_X_y=True)
images = (images.reshape(-1, 1, 8, 8) / 16).astype("float32")
order = onp.random.default_rng(3).permutation(len(images))
images, labels = images[order], labels[order]
train, test = slice(0, 1500), slice(1500, None)

shapes = {"conv1": (16, 1, 3, 3), "conv2": (32, 16, 3, 3), "dense": (10, 128)}
weights = {name: np.random.normal(0, (2 / onp.prod(shape[1:]))**0.5, shape) for name, shape in shapes.items()}
biases = {name: np.zeros(shape[0]) for name, shape in shapes.items()}
scale, shift, mean, var = np.ones(16), np.zeros(16), np.zeros(16), np.ones(16)
parameters = [*weights.values(), *biases.values(), scale, shift]
for parameter in parameters:
    parameter.attach_grad()


def network(x):
    x = npx.convolution(x, weights["conv1"], biases["conv1"], kernel=(3, 3), pad=(1, 1), num_filter=16)
    x = npx.relu(npx.batch_norm(x, scale, shift, mean, var, fix_gamma=False))
    x = npx.pooling(x, kernel=(2, 2), stride=(2, 2))
    x = npx.relu(npx.convolution(x, weights["conv2"], biases["conv2"], kernel=(3, 3), pad=(1, 1), num_filter=32))
    x = npx.dropout(npx.pooling(x, kernel=(2, 2), stride=(2, 2)), p=0.1)
    return npx.fully_connected(x, weights["dense"], biases["dense"], num_hidden=10)


def accuracy(part):
    return float((network(np.array(images[part])).argmax(1) == np.array(labels[part])).astype("float32").mean())


epochs, batch = int(sys.argv[1]) if len(sys.argv) > 1 else 5, 50
print(f"before: accuracy {100 * accuracy(test):.1f}%")
for epoch in range(epochs):
    begin, total = time.perf_counter(), 0.0
    for k in range(0, 1500, batch):
        x, y = np.array(images[k:k + batch]), np.array(labels[k:k + batch])
        with autograd.record():
            loss = -npx.pick(npx.log_softmax(network(x)), y).mean()
        loss.backward()
        for parameter in parameters:
            parameter -= 0.2 * parameter.grad
        total += loss.item()
    print(f"epoch {epoch + 1}: loss {total * batch / 1500:.4f}, {time.perf_counter() - begin:.2f} s")
print(f"after: accuracy {100 * accuracy(test):.1f}%")

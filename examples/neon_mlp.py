"""A perceptron with one hidden layer in Neon's op-trees, trained by Autodiff: two spirals are told apart.

A training step is three assignments: the tree of the loss is differentiated, and each weight's update is one compiled graph.

    python examples/neon_mlp.py [steps]
"""
import sys

import numpy as np

from dcml.neon import NervanaObject
from dcml.neon.backends import gen_backend
from dcml.neon.backends.autodiff import Autodiff

POINTS, HIDDEN = 256, 32


def spirals(random):
    """Points of two spirals in columns, and 0 or 1 for each."""
    labels = np.arange(POINTS) % 2
    along = np.sqrt(random.uniform(0.02, 1, POINTS)) * 4
    angle = along + np.pi * labels
    return np.stack([along * np.cos(angle), along * np.sin(angle)]) / 2 + random.normal(0, 0.03, (2, POINTS)), labels


class Perceptron(NervanaObject):
    """Weights of two layers; ``loss`` is an op-tree that sees them as they are when it is run."""

    def __init__(self, inputs, hidden, classes, random):
        super().__init__()
        self.w1 = self.be.array(random.normal(0, 1, (hidden, inputs)))
        self.b1 = self.be.array(random.normal(0, 1, (hidden, 1)))
        self.w2 = self.be.array(random.normal(0, 1 / np.sqrt(hidden), (classes, hidden)))
        self.b2 = self.be.zeros((classes, 1))
        self.weights = [self.w1, self.b1, self.w2, self.b2]

    def probabilities(self, x):
        be = self.be
        scores = be.dot(self.w2, be.tanh(be.dot(self.w1, x) + self.b1)) + self.b2
        raised = be.exp(scores - be.max(scores, axis=0))
        return raised / be.sum(raised, axis=0)

    def loss(self, x, labels):
        be = self.be
        return -be.sum(be.safelog(self.probabilities(x)) * be.onehot(labels, axis=0)) / x.shape[1]


steps = int(sys.argv[1]) if len(sys.argv) > 1 else 400
be = gen_backend(rng_seed=0)
points, labels = spirals(be.rng)
x, targets = be.array(points), be.array(labels, dtype=np.int32)

model = Perceptron(2, HIDDEN, 2, be.rng)
loss = model.loss(x, targets)
gradients = [be.zeros_like(w) for w in model.weights]
squares = [be.zeros_like(w) for w in model.weights]
ad = Autodiff(loss, be)
print("the loss is", loss.pp()[:70], "...")
for step in range(steps):
    ad.back_prop_grad(model.weights, gradients)
    for weight, gradient, square in zip(model.weights, gradients, squares):
        square[:] = square * 0.99 + be.square(gradient) * 0.01
        weight[:] = weight - gradient * 0.01 / (be.sqrt(square) + 1e-6)
    if step % max(1, steps // 5) == 0:
        print(f"step {step}: loss {loss.asnumpyarray()[0, 0]:.4f}")

found = be.argmax(model.probabilities(x), axis=0).asnumpyarray()[0]
print(f"after {steps} steps: loss {loss.asnumpyarray()[0, 0]:.4f}, accuracy {100 * np.mean(found == labels):.1f}%")

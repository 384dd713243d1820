"""Fine-tunes a model that comes as an .onnx file on handwritten digits, and saves it back as ONNX.

Any ONNX model with an input of 8x8 images and ten log-probabilities will do.  Without a file, one is made first: a
network that has only ever seen the digits 0 to 4.  Usage: train_onnx.py [epochs [in.onnx [out.onnx]]]
"""
import os
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from digits import load
from dcml.onnx import ONNXModel
from dcml.pytorch import DaceModule

BATCH = 64


def make(path, x, y):
    """Writes a network trained on the digits below 5."""
    network = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                            nn.Linear(16 * 4 * 4, 10), nn.LogSoftmax(-1))
    module = DaceModule(network, backward=True)
    few = y < 5
    fit(module, module.parameters(), x[few], y[few], 4)
    module.dace_model.save(path)


def fit(model, parameters, x, y, epochs):
    """Trains in place by Adam; returns the mean loss of each epoch."""
    optimizer, losses = torch.optim.Adam(parameters, lr=1e-2), []
    for epoch in range(epochs):
        order, total = torch.randperm(len(y), generator=torch.Generator().manual_seed(epoch)), 0.0
        batches = order[:len(y) - len(y) % BATCH].split(BATCH)
        for batch in batches:
            optimizer.zero_grad()
            loss = F.nll_loss(model(x[batch]), y[batch])
            loss.backward()
            optimizer.step()
            total += loss.item()
        losses.append(total / len(batches))
    return losses


def accuracy(model, x, y):
    """Share of images that a model classifies correctly, from numpy arrays."""
    return float((np.asarray(model(x.numpy())).argmax(1) == y.numpy()).mean())


def main(epochs=6, source="before.onnx", target="after.onnx"):
    torch.manual_seed(0)
    x, y, held_x, held_y = load()
    if not os.path.exists(source):
        make(source, x, y)
        print(f"made {source}")
    model = ONNXModel("digits", source)
    print(f"before: accuracy {accuracy(model, held_x, held_y):.2%}")
    for name, weight in model.named_parameters():
        print(f"  {name:>12} {list(weight.shape)}")
    for k, loss in enumerate(fit(model, model.parameters(), x, y, epochs)):
        print(f"epoch {k + 1}: loss {loss:.4f}")
    model.save(target)
    print(f"after, from {target}: accuracy {accuracy(ONNXModel('tuned', target), held_x, held_y):.2%}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]), *sys.argv[2:4])

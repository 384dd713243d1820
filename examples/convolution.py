"""A convolution in two ways: as a call in a program of NumPy, and as a node of an SDFG made by hand.

Usage: convolution.py [file.html]   (where the page of the SDFG is written; none, if no file is named)
"""
import sys

import numpy as np
import torch
import torch.nn.functional as F

import dcml
import dcml.onnx as donnx


@dcml.program
def convolved(X_arr: dcml.float32[5, 3, 10, 10], W_arr: dcml.float32[16, 3, 3, 3]):
    output = dcml.define_local([5, 16, 4, 4], dcml.float32)
    donnx.ONNXConv(X=X_arr, W=W_arr, Y=output, strides=[2, 2])
    return output


def by_hand():
    """The same as an SDFG: arrays, a state, access nodes, the operator, and memlets between them."""
    sdfg = dcml.SDFG("convolution")
    sdfg.add_array("X_arr", (5, 3, 10, 10), dcml.float32)
    sdfg.add_array("W_arr", (16, 3, 3, 3), dcml.float32)
    sdfg.add_array("Z_arr", (5, 16, 4, 4), dcml.float32)
    state = sdfg.add_state()
    node = donnx.ONNXConv("conv", strides=[2, 2])
    state.add_node(node)
    state.add_edge(state.add_access("X_arr"), None, node, "X", sdfg.make_array_memlet("X_arr"))
    state.add_edge(state.add_access("W_arr"), None, node, "W", sdfg.make_array_memlet("W_arr"))
    state.add_edge(node, "Y", state.add_access("Z_arr"), None, sdfg.make_array_memlet("Z_arr"))
    return sdfg


def main(page=None):
    generator = np.random.default_rng(0)
    x = generator.standard_normal((5, 3, 10, 10), np.float32)
    w = generator.standard_normal((16, 3, 3, 3), np.float32)
    expected = F.conv2d(torch.from_numpy(x), torch.from_numpy(w), stride=2).numpy()

    result = convolved(X_arr=x, W_arr=w)
    print(f"program: differs from torch by {np.abs(result - expected).max():.1e}")

    sdfg, z = by_hand(), np.zeros((5, 16, 4, 4), np.float32)
    sdfg(X_arr=x, W_arr=w, Z_arr=z)
    print(f"SDFG: differs from torch by {np.abs(z - expected).max():.1e}")
    if page:
        print("its page:", sdfg.view(page, open=False))


if __name__ == "__main__":
    main(*sys.argv[1:2])

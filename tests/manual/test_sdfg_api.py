"""The manual's examples that build an SDFG by its API, with `dcml` for `daceml` and `dace`."""
import numpy as np
import pytest

import dcml.onnx as donnx
from dcml.library import change_default


@pytest.fixture(autouse=True, params=["native", "pure"])
def default(request):
    with change_default(donnx, request.param):
        yield


def test_conv_by_the_sdfg_api_of_section_2_1_4():
    import dcml as dace
    from dcml.onnx import ONNXConv

    sdfg = dace.SDFG("conv_example")
    sdfg.add_array("X_arr", (5, 3, 10, 10), dace.float32)
    sdfg.add_array("W_arr", (16, 3, 3, 3), dace.float32)
    sdfg.add_array("Z_arr", (5, 16, 8, 8), dace.float32)

    state = sdfg.add_state()
    access_X = state.add_access("X_arr")
    access_W = state.add_access("W_arr")
    access_Z = state.add_access("Z_arr")

    conv = ONNXConv("MyConvNode")

    state.add_node(conv)
    state.add_edge(access_X, None, conv, "X", sdfg.make_array_memlet("X_arr"))
    state.add_edge(access_W, None, conv, "W", sdfg.make_array_memlet("W_arr"))
    state.add_edge(conv, "Y", access_Z, None, sdfg.make_array_memlet("Z_arr"))

    X = np.random.rand(5, 3, 10, 10).astype(np.float32)
    W = np.random.rand(16, 3, 3, 3).astype(np.float32)
    Z = np.zeros((5, 16, 8, 8)).astype(np.float32)

    sdfg(X_arr=X, W_arr=W, Z_arr=Z)

    import torch
    torch_result = torch.nn.functional.conv2d(torch.from_numpy(X), torch.from_numpy(W)).numpy()
    assert np.allclose(torch_result, Z, atol=1e-5)


def test_conv_with_strides_of_section_6_1():
    import torch
    import torch.nn.functional as F

    import dcml as dace
    from dcml.onnx import ONNXConv

    sdfg = dace.SDFG("conv_example")
    sdfg.add_array("X_arr", (5, 3, 10, 10), dace.float32)
    sdfg.add_array("W_arr", (16, 3, 3, 3), dace.float32)
    sdfg.add_array("Z_arr", (5, 16, 4, 4), dace.float32)

    state = sdfg.add_state()
    access_X = state.add_access("X_arr")
    access_W = state.add_access("W_arr")
    access_Z = state.add_access("Z_arr")

    conv = ONNXConv("MyConvNode", strides=[2, 2])

    state.add_node(conv)
    state.add_edge(access_X, None, conv, "X", sdfg.make_array_memlet("X_arr"))
    state.add_edge(access_W, None, conv, "W", sdfg.make_array_memlet("W_arr"))
    state.add_edge(conv, "Y", access_Z, None, sdfg.make_array_memlet("Z_arr"))

    assert repr(sdfg) == "SDFG('conv_example')"

    X = np.random.rand(5, 3, 10, 10).astype(np.float32)
    W = np.random.rand(16, 3, 3, 3).astype(np.float32)
    torch_result = F.conv2d(torch.from_numpy(X), torch.from_numpy(W), stride=2).numpy()

    Z = np.zeros((5, 16, 4, 4)).astype(np.float32)
    sdfg(X_arr=X, W_arr=W, Z_arr=Z)
    assert np.allclose(torch_result, Z, atol=1e-5)
    np.linalg.norm(torch_result - Z)

"""Element types, storage and schedules."""
import copy
import pickle

import numpy as np
import pytest
import torch

import dcml
import dcml as dace
from dcml import dtypes

NAMES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
         "complex64", "complex128"]


@pytest.mark.parametrize("name", NAMES)
def test_a_type_equals_what_numpy_and_torch_call_it(name):
    ours, theirs = getattr(dace, name), getattr(np, name)
    assert ours == theirs and theirs == ours and ours == np.dtype(theirs) and np.dtype(theirs) == ours
    assert ours == getattr(torch, name) and dtypes.of(theirs) is ours and dtypes.of(getattr(torch, name)) is ours
    assert ours.bytes == np.dtype(theirs).itemsize and ours.type is theirs and repr(ours) == name
    assert np.zeros(2, ours).dtype == theirs


def test_types_are_told_apart():
    assert dace.float32 != dace.float64 and dace.float32 != np.float64 and dace.float32 != "float64"
    assert dace.bool_ == bool and dace.bool_ == np.bool_ and dace.bool_ != dace.uint8  # noqa: E721
    assert len({dace.float32, dtypes.of("float32"), dtypes.of(1)}) == 1


def test_a_type_is_a_function_and_a_maker_of_descriptors():
    three = dace.float32(3)
    assert three == 3 and three.dtype == np.float32
    N = dace.symbol("N")
    desc = dace.float32[N, 4]
    assert desc.shape == (N, 4) and desc.dtype == np.float32 and not desc.transient and desc.strides == (4, 1)
    assert dace.int64[7].shape == (7,) and dace.int64[[2, 3]].shape == (2, 3)


def test_types_go_through_pickle_and_copies():
    assert pickle.loads(pickle.dumps(dace.float32)) is dace.float32
    assert copy.deepcopy(dace.float32) == dace.float32


@pytest.mark.parametrize("what", ["float31", object, None, 1.5, 99, np.generic])
def test_what_is_no_type_is_named(what):
    with pytest.raises(dcml.DTypeError, match="is no element type"):
        dtypes.of(what)


def test_the_core_takes_a_type_as_its_number():
    assert int(dace.float32) == 1 and dace.float32 == 1 and int(dace.complex128) == 15

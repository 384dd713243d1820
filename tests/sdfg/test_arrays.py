"""Arrays, scalars and symbols of an SDFG."""
import copy

import numpy as np
import pytest

import dcml
import dcml as dace

N = dace.symbol("N")


def test_what_is_added_is_returned_and_found():
    sdfg = dace.SDFG("arrays")
    name, desc = sdfg.add_array("A", (N, 2 * N + 1, 3), dace.float32)
    assert name == "A" and desc is sdfg.arrays["A"] is sdfg.arrays["A"]
    assert desc.shape == (N, 2 * N + 1, 3) and desc.dtype == np.float32 and not desc.transient
    assert desc.strides == (6 * N + 3, 3, 1) and desc.total_size == 6 * N * N + 3 * N
    assert desc.storage == dace.StorageType.Default and desc.free_symbols == {"N"}
    assert sdfg.add_transient("T", [4], np.float64)[1].transient
    name, scalar = sdfg.add_scalar("s", dace.int32)
    assert scalar.shape == (1,) and scalar.total_size == 1 and scalar.dtype == dace.int32
    assert sdfg.add_symbol("M", dace.int64) == ("M", dace.symbol("M")) and sdfg.symbols == {"N": dace.int64, "M": dace.int64}
    assert sdfg.add_datadesc("D", dace.float16[5, N])[1].shape == (5, N)
    assert list(sdfg.arrays) == ["A", "T", "s", "D"] and len(sdfg.arrays) == 4 and "A" in sdfg.arrays and "B" not in sdfg.arrays


def test_layout_is_what_was_asked_for():
    sdfg = dace.SDFG("layout")
    assert sdfg.add_array("A", (3, N), dace.float32, strides=(1, 3))[1].strides == (1, 3)
    register = sdfg.add_transient("r", (4,), dace.float32, storage=dace.StorageType.Register)[1]
    assert register.storage == dace.StorageType.Register
    register.storage = dace.StorageType.CPU_Heap
    assert register.storage == dace.StorageType.Default
    register.transient = False
    assert not register.transient and list(sdfg.arglist()) == ["A", "r"]
    register.transient = True
    assert list(sdfg.arglist()) == ["A"]


def test_arrays_are_removed_and_renamed():
    sdfg = dace.SDFG("names")
    sdfg.add_array("A", (N,), dace.float32)
    _, b = sdfg.add_array("B", (N,), dace.float64)
    del sdfg.arrays["A"]
    assert list(sdfg.arrays) == ["B"] and "A" not in str(sdfg)
    assert sdfg.add_array("A", (3,), dace.int8)[1].dtype == dace.int8
    sdfg.replace("B", "C")
    sdfg.replace("N", "K")
    assert list(sdfg.arrays) == ["C", "A"] and sdfg.arrays["C"].shape == ("K",)
    with pytest.raises(dcml.ValueError_, match="no container 'B'"):
        b.shape
    with pytest.raises(KeyError):
        sdfg.arrays["B"]
    with pytest.raises(KeyError):
        del sdfg.arrays["B"]
    for wrong in (("C", "A"), ("X", "Y"), ("C", "K"), ("C", "")):
        with pytest.raises(dcml.ValueError_):
            sdfg.replace(*wrong)


def test_taken_names_are_refused_or_changed():
    sdfg = dace.SDFG("taken")
    sdfg.add_array("A", (N,), dace.float32)
    with pytest.raises(dcml.ValueError_, match=r"SDFG\('taken'\) has an array 'A' already"):
        sdfg.add_transient("A", (3,), dace.float32)
    with pytest.raises(dcml.ValueError_, match="has a symbol 'N' already"):
        sdfg.add_scalar("N", dace.float32)
    with pytest.raises(dcml.ValueError_, match="a symbol needs another name"):
        sdfg.add_symbol("A")
    assert sdfg.add_transient("A", (3,), dace.float32, find_new_name=True)[0] == "A_0"
    assert sdfg.add_temp_transient((3,), dace.float32)[0] != sdfg.add_temp_transient((3,), dace.float32)[0]


@pytest.mark.parametrize("arguments, error", [
    (("A", (-1,), dace.float32), "negative extent"), (("A", (2,), "float31"), "no element type"), (("", (2,), dace.float32), "no name"),
    (("A", (1.5,), dace.float32), "no size"), (("A", ("2 +",), dace.float32), "no size"), ((3, (2,), dace.float32), "no name"),
    (("A", (2,) * 65, dace.float32), "65"), (("A", (2**70,), dace.float32), "no memory")])
def test_what_is_no_array_is_refused(arguments, error):
    with pytest.raises(dcml.Error, match=error):
        dace.SDFG("wrong").add_array(*arguments)


def test_memory_that_there_is_none_of_is_refused():
    sdfg = dace.SDFG("wrong")
    with pytest.raises(dcml.ValueError_, match="expected a StorageType"):
        sdfg.add_array("A", (2,), dace.float32, storage="FPGA_Global")
    with pytest.raises(dcml.ShapeError, match="cannot have 1 strides"):
        sdfg.add_array("A", (2, 2), dace.float32, strides=(1,))
    with pytest.raises(dcml.ValueError_, match="no name for an SDFG"):
        dace.SDFG("")


def test_descriptors_are_copied_as_they_are():
    sdfg = dace.SDFG("one")
    sdfg.add_transient("A", (N, 3), dace.float32, strides=(1, N))
    copied = copy.deepcopy(sdfg.arrays["A"])
    other = dace.SDFG("other")
    assert other.add_datadesc("B", copied)[1].strides == (1, N) and other.arrays["B"].transient
    assert repr(other.arrays["B"]) == "B: Array(float32[N, 3], transient)"


def test_constants_are_arrays():
    sdfg = dace.SDFG("constant")
    name, desc = sdfg.add_constant("two", [2, 2, 2], dace.float32)
    assert desc.shape == (3,) and desc.dtype == dace.float32 and desc.role == "const" and desc.transient

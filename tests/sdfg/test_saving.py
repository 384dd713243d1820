"""SDFGs as files and JSON."""
import copy
import json
import pickle

import numpy as np
import pytest

import dcml
import dcml as dace

N = dace.symbol("N")


def program():
    sdfg = dace.SDFG("saved")
    sdfg.add_array("A", (N, 3), dace.float32), sdfg.add_array("B", (N, 3), dace.float32)
    sdfg.add_state("main").add_mapped_tasklet("t", {"i": "0:N", "j": "0:3"}, {"a": dace.Memlet("A[i, j]")}, "b = exp(a)", {"b": dace.Memlet("B[i, j]")},
                                              external_edges=True)
    return sdfg


def same(a, b):
    x, y, z = np.random.rand(3, 4, 3).astype(np.float32)
    a(A=x, B=y), b(A=x, B=z)
    return str(a) == str(b) and (y == z).all()


@pytest.mark.parametrize("ending", ["sdfg", "json"])
def test_files_are_read_back(tmp_path, ending):
    sdfg = program()
    sdfg.save(tmp_path / f"one.{ending}")
    again = dace.SDFG.from_file(tmp_path / f"one.{ending}")
    assert again is not sdfg and again.name == "saved" and same(sdfg, again)


def test_json_is_readable_and_the_same_program():
    sdfg = program()
    value = json.loads(json.dumps(sdfg.to_json()))
    assert value["arrays"]["A"] == {"type": "Array", "dtype": "float32", "shape": ["N", 3], "strides": [3, 1], "transient": False, "storage": "Default"}
    state, = value["states"]
    assert {node["type"] for node in state["nodes"]} == {"AccessNode", "MapEntry", "MapExit", "Tasklet"} and len(state["edges"]) == 4
    assert "A[i, j]" in [edge["memlet"] for edge in state["edges"]]
    assert same(sdfg, dace.SDFG.from_json(value)) and same(sdfg, dace.SDFG.from_json(json.dumps(value)))


@pytest.mark.parametrize("wrong", ["", "{", "[]", "3", {}, {"type": "SDFG", "format": 1, "program": ["graph {"]}, {"type": "SDFG", "format": 1, "program": [3]}, None])
def test_other_json_is_refused(wrong):
    with pytest.raises(dcml.Error):
        dace.SDFG.from_json(wrong)


def test_copies_are_programs_of_their_own():
    sdfg = program()
    other = copy.deepcopy(sdfg)
    assert same(sdfg, other) and same(sdfg, pickle.loads(pickle.dumps(sdfg)))
    other.add_state("more")
    assert len(sdfg.nodes()) == 1

"""Transformations that the core applies: counts, options, nodes, results."""
import numpy as np
import pytest

from chain import CHAIN

import dcml
from dcml import _core
from dcml.sdfg import SDFG
from dcml.transformation import (ConstantFolding, InlineSDFG, InputToConstant, MapCollapse, MapExpansion, MapFusion, MapTiling,
                                 RedundantArray, StateFusion, SubgraphFusion, TaskletFission, TaskletFusion, Transformation,
                                 TrivialMapRangeElimination, Vectorization, dataflow, interstate, known, subgraph)

DIAMOND = """graph diamond opset 18 {
  symbol N >= 1
  input A: f32[N]
  temp t: f32[N]
  temp u: f32[N]
  temp B: f32[N]
  outputs B
  state main {
    map i in 0:N { t[i] = A[i] + 1.0f }
    map i in 0:N { u[i] = A[i] * 3.0f }
    map i in 0:N { B[i] = t[i] + u[i] }
  }
}"""
MATRIX = """graph matrix opset 18 {
  input A: f32[6, 8]
  temp B: f32[6, 8]
  outputs B
  state main {
    map i in 0:6, j in 0:8 { B[i, j] = A[i, j] * 2.0f }
  }
}"""


def parsed(text):
    return SDFG(_core.parse(text))


def run(sdfg, x):
    return _core.Function(sdfg.graph)(x)[0]


X = np.arange(7, dtype=np.float32)


@pytest.mark.parametrize("apply", ["apply_transformations", "apply_transformations_repeated"])
def test_counts_of_a_chain_and_a_diamond_are_those_of_dace(apply):
    chain, diamond = parsed(CHAIN), parsed(DIAMOND)
    assert (getattr(chain, apply)(MapFusion), getattr(chain, apply)(TaskletFusion)) == (1, 1)
    assert (getattr(diamond, apply)(MapFusion), getattr(diamond, apply)(TaskletFusion)) == (2, 2)
    np.testing.assert_array_equal(run(chain, X), (X + 1) * 2)
    np.testing.assert_array_equal(run(diamond, X), X + 1 + X * 3)


def test_fused_maps_leave_their_tasklets_joined():
    sdfg = parsed(DIAMOND)
    assert SubgraphFusion.apply_to(sdfg, *sdfg.node(0).nodes()) == 2
    kinds = [node.kind for node in sdfg.node(0).nodes()]
    assert kinds.count("tasklet") == 3 and kinds.count("entry") == 1
    assert sdfg.apply_transformations_repeated(TaskletFusion) == 2
    assert [node.kind for node in sdfg.node(0).nodes()].count("tasklet") == 1


def test_a_tasklet_comes_apart_and_together_again():
    sdfg = parsed(DIAMOND)
    sdfg.apply_transformations([MapFusion, TaskletFusion])
    assert sdfg.apply_transformations_repeated(TaskletFission) == 2
    assert sdfg.apply_transformations_repeated(TaskletFusion) == 2
    np.testing.assert_array_equal(run(sdfg, X), X + 1 + X * 3)


def test_maps_expand_tile_and_collapse():
    x = np.random.rand(6, 8).astype(np.float32)
    sdfg = parsed(MATRIX)
    assert sdfg.apply_transformations_repeated(MapExpansion) == 1
    assert sdfg.apply_transformations_repeated(MapCollapse) == 1
    assert sdfg.apply_transformations_repeated(MapTiling, {"tile_sizes": (4, 2), "divides_evenly": False}) == 1
    entries = [node for node in sdfg.node(0).nodes() if node.kind == "entry"]
    assert [e.map.params for e in entries] == [["tile_i", "tile_j"], ["i", "j"]]
    np.testing.assert_array_equal(run(sdfg, x), x * 2)
    assert parsed(MATRIX).apply_transformations(MapTiling, {"tile_sizes": 2, "divides_evenly": True}) == 1
    with pytest.raises(dcml.ValueError_, match="tiles of 4 do not divide the range of 'i'"):
        parsed(MATRIX).apply_transformations(MapTiling, {"tile_sizes": 4, "divides_evenly": True})


def test_vectorization_counts_once():
    assert parsed(DIAMOND).apply_transformations_repeated(Vectorization) == 3


def test_states_fuse():
    sdfg = parsed(CHAIN.replace("    map i in 0:N { B", "  }\n  state second {\n    map i in 0:N { B"))
    assert len(sdfg.nodes()) == 2 and sdfg.apply_transformations(StateFusion) == 1 and len(sdfg.nodes()) == 1
    assert sdfg.apply_transformations(StateFusion) == 0
    np.testing.assert_array_equal(run(sdfg, X), (X + 1) * 2)


def test_copies_and_constants_go():
    sdfg = parsed("""graph g opset 18 {
  input A: f32[4]
  param W: f32[4] = {1.0, 2.0, 3.0, 4.0}
  temp c: f32[4]
  temp d: f32[4]
  temp B: f32[4]
  outputs B
  state main {
    map i in 0:4 { c[i] = A[i] }
    map i in 0:4 { d[i] = W[i] * 2.0f }
    map i in 0:4 { B[i] = c[i] + d[i] }
  }
}""")
    counts = [sdfg.apply_transformations(t) for t in (RedundantArray, ConstantFolding, InputToConstant, ConstantFolding)]
    assert counts == [1, 0, 1, 1]
    np.testing.assert_array_equal(run(sdfg, X[:4]), X[:4] + [2, 4, 6, 8])


def test_only_given_nodes_are_looked_at():
    text = DIAMOND.replace("outputs B", "outputs B, t, u")
    sdfg = parsed(text)
    entries = [node for node in sdfg.node(0).nodes() if node.kind == "entry"]
    assert SubgraphFusion.apply_to(sdfg, entries[0], entries[1]) == 1
    assert [node.kind for node in sdfg.node(0).nodes()].count("entry") == 2


def test_given_nodes_that_do_not_match_are_an_error():
    sdfg = parsed(MATRIX)
    with pytest.raises(dcml.ValueError_, match="MapFusion does not match"):
        MapFusion.apply_to(sdfg, *sdfg.node(0).nodes())
    assert MapFusion.apply_to(sdfg, *sdfg.node(0).nodes(), verify=False) == 0
    assert MapFusion.apply_to(sdfg) == 0 and sdfg.apply_transformations(MapFusion) == 0


def test_unknown_transformations_and_options_say_what_there_is():
    sdfg = parsed(MATRIX)
    with pytest.raises(dcml.ValueError_, match="no transformation: expected a class.*MapFusion.*Vectorization"):
        sdfg.apply_transformations("MapFusion")
    with pytest.raises(dcml.ValueError_, match="MapTiling has no option 'size'; there are tile_sizes, divides_evenly"):
        sdfg.apply_transformations(MapTiling, {"size": 3})
    with pytest.raises(dcml.ValueError_, match="MapFusion has no option 'a': it has none"):
        MapFusion.apply_to(sdfg, a=1)
    for bad in ("4", 0, -1, (), (1, "x"), 1 << 40, 1 << 80):
        with pytest.raises(dcml.ValueError_, match="tile_sizes"):
            sdfg.apply_transformations(MapTiling, {"tile_sizes": bad})
    with pytest.raises(dcml.ValueError_, match="is a base"):
        sdfg.apply_transformations(Transformation)


def test_every_name_is_one_of_the_core_or_of_python():
    python = {"GPUTransformSDFG", "InlineSDFG"}
    with pytest.raises(dcml.ValueError_) as raised:
        parsed(MATRIX).graph.apply("?")
    assert set(known()) - python == set(str(raised.value).split("there are ")[1].split(", "))
    assert InlineSDFG in (getattr(interstate, n) for n in interstate.__all__)
    assert dataflow.MapFusion is MapFusion and subgraph.SubgraphFusion is SubgraphFusion
    assert not hasattr(dcml, "scripts")


def test_trivial_ranges_go_with_their_map():
    sdfg = parsed(CHAIN.replace("map i in 0:N { t[i] = A[i]", "map i in 0:N, j in 0:1 { t[i + j] = A[i + j]"))
    assert sdfg.apply_transformations_repeated(TrivialMapRangeElimination) == 1
    np.testing.assert_array_equal(run(sdfg, X), (X + 1) * 2)

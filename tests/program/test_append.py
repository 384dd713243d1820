"""Text appended to a graph: names, errors, and accesses that stay inside."""
import numpy as np
import pytest

import dcml
from dcml import _core


@pytest.fixture
def graph():
    made = _core.Graph("g")
    made.add_input("X", 1, ["N"])
    made.add_input("Z", 1, [4])
    return made


def state(graph):
    return graph.text().partition("state main {")[2]


def test_declarations_maps_statements_and_operators_are_added(graph):
    graph.append(0, "temp t: f32[N]\nsymbol M >= 1\nequal [M, N]\nmap i in 0:N { t[i] = X[i] * 2.0f }\nt = Relu@14(t)")
    graph.append(0, "Z[0] = 1.0f")
    assert [kind for _, kind, *_ in graph.nodes(0)] == ["map", "library", "tasklet"] and "equal" in graph.text()
    assert _core.parse(graph.text()).text() == graph.text()


def test_an_error_names_the_place_and_leaves_the_state(graph):
    graph.append(0, "Z[0] = 1.0f")
    before = state(graph)
    for text, says in [("Z[0] = 1.0f Z[1] = nothing[2]", "'nothing'"), ("Z[0, 0] = 1.0f", "one index for each dimension"),
                       ("map i in 0:N { Z[i] = X[i]", "line 1"), ("Z[0] = X[0] +", "line 1"), ("input X: f32[3]", "declared twice"),
                       ("const c: f32[1] = {1}", "declared container"), ("}", "name")]:
        with pytest.raises(dcml.ModelError, match=f"graph 'g'.*{says}"):
            graph.append(0, text)
        assert state(graph) == before
    with pytest.raises(dcml.ValueError_, match="no state 3"):
        graph.append(3, "Z[0] = 1.0f")


def test_accesses_that_are_not_proven_are_bounded(graph):
    graph.append(0, "map i in 0:N { Z[i] = X[i + 1] if i > 0 }")
    graph.append(0, "map i in 0:4 { Z[i] sum= 1.0f }")
    z = np.zeros(4, np.float32)
    _core.Function(graph)(np.arange(1, 8, dtype=np.float32), z)
    assert z.tolist() == [1, 4, 5, 6]
    assert "Z[i] sum= 1.0f\n" in graph.text()


def test_negative_indices_count_from_the_end(graph):
    graph.append(0, "map i in 0:3 { Z[i - 2] = X[-1 - i] }")
    z = np.zeros(4, np.float32)
    _core.Function(graph)(np.arange(5, dtype=np.float32), z)
    assert z.tolist() == [2, 0, 4, 3]


@pytest.mark.parametrize("name", ["map", "reduce", "scatter", "sequential", "let", "input"])
def test_arrays_may_have_names_that_begin_statements(name):
    graph = _core.Graph("g")
    graph.add_input(name, 1, [3])
    graph.append(0, f'"{name}"[0] = 1.0f')
    assert _core.parse(graph.text()).text() == graph.text()


def test_arguments_may_have_such_names_too():
    @dcml.program
    def f(input, map, temp):
        map[:] = input + temp

    z = np.zeros(3)
    f(np.ones(3), z, np.ones(3))
    assert z.tolist() == [2, 2, 2]


@pytest.mark.parametrize("backend", ["cpu", "interp"])
def test_an_empty_array_is_read_as_zero(backend):
    graph = _core.parse("graph g { symbol N >= 0 input X: f32[N] temp Y: f32[1] outputs Y state s { } }")
    graph.append(0, "Y[0] = X[7]")
    function = _core.Function(graph, backend=backend)
    assert [function(np.arange(n, dtype=np.float32))[0][0] for n in (0, 1, 9)] == [0, 0, 7]

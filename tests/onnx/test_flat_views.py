"""Flat views: each state of each ONNX backend case, expanded, computes the same when it is built anew from its flat view."""
import pytest

import backend_cases
import dcml
import dcml.onnx
from dcml.library import change_default

CASES = [case for case in backend_cases.collect_all() if case.kind != "real"]


def rebuild(model):
    """Expands what can be, and builds each state from its flat view, node by node; the number of nodes of the views."""
    graph, nodes = model.sdfg.graph, 0
    for name in ("infer", "expand"):
        try:
            graph.run_pass(name)
        except dcml.Error:  # a value decides about shapes: the operators stay
            break
    for state in range(graph.n_states):
        flow = graph.flow(state)
        flow.touch()
        flow.build()
        graph.verify()
        nodes += len(flow.nodes())
    return nodes


def _without_digits(outcome):
    """By how much a known gap misses may change: what is expanded here, a library may run elsewhere."""
    return outcome.partition(" differ by ")[0]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case):
    with change_default(dcml.onnx, "interpreted"):
        expected = backend_cases.run(case)
        assert _without_digits(backend_cases.run(case, prepare=rebuild)) == _without_digits(expected)

"""Second derivatives of the operators, in float64, against central differences of their gradients.

A graph in which dcml.SeedGradient and dcml.GradientOf stand for the gradients of an operator is a graph like any other: the
cases and the comparison are those of test_gradients.py.
"""
import numpy as np
import pytest
import test_gradients as first
from gradient_cases import CASES, arrays

import dcml
from dcml import _core

TOLERANCE = 2e-6
# A product that is combined into what is there, sums in a loop that changes what they read, and loops as long as data say.
REFUSED = {"ScatterElements-18-axis=0-reduction=mul-3", "ScatterND-18-reduction=mul-3", "Det-22-default-1",
           *(f"Orthogonal-1-family={family}-2" for family in ("legendre-shifted=0", "w-shifted=1", "hermite-shifted=0", "hermite_e-shifted=1",
                                                              "laguerre-shifted=0", "t-shifted=1"))}


def with_gradients(graph, values):
    """A graph with the gradients of its floating outputs as further outputs; its inputs, then random cotangents."""
    rng = np.random.default_rng(5)
    results = _core.Function(graph, backend="interp")(*values)
    wrt = [n for n, v in zip(graph.inputs, values) if v.dtype == np.float64 and v.size]
    ours = graph.clone()
    seeds = [rng.standard_normal(r.shape) if r.dtype == np.float64 else None for r in results]
    for name, seed in zip(graph.outputs, seeds):
        if seed is not None:
            given = ours.add_input(f"cotangent_{name}", first.CODES["float64"], list(seed.shape))
            ours.add_node("SeedGradient", [name, given], [f"unread_{name}"], {}, "dcml")
    for name in wrt:
        ours.mark_output(ours.add_node("GradientOf", [name], [f"gradient_{name}"], {}, "dcml")[0])
    return ours, [*values, *[s for s in seeds if s is not None]]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_second_derivative_of_a_variant_is_the_slope_of_its_gradient(case):
    given = [(f"x{k}", a) for k, a in enumerate(arrays(case))]
    graph = first._graph(case.op, given, case.outputs, case.attrs, case.opset, case.domain)
    made = with_gradients(graph, [a for _, a in given if a is not None])
    if str(case) in REFUSED:
        with pytest.raises(dcml.UnsupportedOpError, match=case.op):
            first._error(*made, False)
    else:
        error = first._error(*made, False)
        assert error is None or error < TOLERANCE

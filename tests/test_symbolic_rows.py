"""Each operator with every extent of its floating inputs a symbol: the same results and gradients as with numbers."""
import numpy as np
import pytest

import gradient_cases
from dcml import _core

CODES = {"float64": 11, "float32": 1, "int64": 7, "int32": 6, "bool": 9, "uint8": 2}
STATISTICS = {"BatchNormalization", "LayerNormalization"}  # further outputs are constants to the gradient
# The number of dimensions or of unrolled parts depends on an extent.
NEEDS_NUMBERS = {"RNN", "GRU", "LSTM", "Squeeze"}


def _function(case, arrays, symbolic, **how):
    graph, symbols, names = _core.Graph(case.op, case.opset), 0, []
    for k, array in enumerate(arrays):
        shape = [] if array is None else list(array.shape)
        if symbolic and array is not None and array.dtype == np.float64:
            shape = [f"s{symbols + d}" for d in range(len(shape))]
            symbols += len(shape)
        names.append(None if array is None else graph.add_input(f"x{k}", CODES[array.dtype.name], shape))
    for name in graph.add_node(case.op, names, case.outputs, case.attrs, case.domain):
        graph.mark_output(name)
    return _core.Function(graph, backend="interp", **how)


@pytest.mark.parametrize("case", [c for c in gradient_cases.CASES if c.op not in NEEDS_NUMBERS], ids=str)
def test_symbolic_extents_change_nothing(case):
    arrays = gradient_cases.arrays(case)
    given = [a for a in arrays if a is not None]
    wrt = [f"x{k}" for k, a in enumerate(arrays) if a is not None and a.dtype == np.float64]
    results = _function(case, arrays, False)(*given)
    seeds = [np.random.default_rng(0).standard_normal(r.shape) if r.dtype == np.float64 else None for r in results]
    seeds[1:] = [None] * (len(seeds) - 1) if case.op in STATISTICS else seeds[1:]
    wanted = _function(case, arrays, False, wrt=wrt).vjp(given, seeds)
    found = _function(case, arrays, True, wrt=wrt).vjp(given, seeds)
    for want, got in zip([*wanted[0], *wanted[1]], [*found[0], *found[1]]):
        assert (want is None) == (got is None)
        if want is not None:
            np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)

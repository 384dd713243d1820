"""The operator case table and the variants of gradients on the CUDA target, forward and backward, beside the interpreter."""
import gradient_cases
import numpy as np
import operator_cases
import pytest
from test_gradients import _graph

import dcml
from dcml import _core

SOME = 6  # of the variants of gradients, every how many run without --cuda-all


@pytest.mark.parametrize("model, arrays", [pytest.param(model, arrays, id=name) for name, model, arrays in operator_cases.table()])
def test_results_and_gradients_are_those_of_the_interpreter(model, arrays):
    graph = _core.import_onnx(model.SerializeToString())
    try:
        expected, _ = operator_cases.run(graph, arrays, backend="interp", natives="none")
    except dcml.UnsupportedOpError as error:
        pytest.skip(str(error))
    results = operator_cases.run_again(graph, arrays, expected, backend="cuda", natives="none")
    assert len(results) == len(expected)
    for k, (got, want) in enumerate(zip(results, expected)):
        operator_cases.check(got, want, f"result {k} of {model.graph.node[0].op_type}")


@pytest.mark.some(SOME, [pytest.param(case, id=str(case)) for case in gradient_cases.CASES])
def test_gradients_of_variants_are_those_of_the_interpreter(case):
    given = [(f"x{k}", a) for k, a in enumerate(gradient_cases.arrays(case))]
    graph = _graph(case.op, given, case.outputs, case.attrs, case.opset, case.domain)
    arrays = [np.asarray(a) for _, a in given if a is not None]
    expected, _ = operator_cases.run(graph, arrays, backend="interp", natives="none")
    results = operator_cases.run_again(graph, arrays, expected, backend="cuda", natives="none")
    for k, (got, want) in enumerate(zip(results, expected)):
        operator_cases.check(got, want, f"result {k} of {case}")

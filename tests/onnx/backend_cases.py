"""The ONNX package's own node cases, run through the core.

``run(case)`` gives "pass", "unsupported: ..." or "fail: ..."; it never raises.
"""
import warnings

import numpy as np


def collect():
    """Every node case that the installed onnx package defines."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases
        return collect_testcases(None)


def _array(value):
    """A case's value as an array; sequences and strings stay as they are."""
    from onnx import TensorProto, numpy_helper
    if isinstance(value, TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value) if not isinstance(value, (list, dict, type(None))) else value


def _compare(got, want, rtol, atol):
    want = _array(want)
    if got.dtype != want.dtype:
        return f"dtype {got.dtype}, expected {want.dtype}"
    if got.shape != want.shape:
        return f"shape {got.shape}, expected {want.shape}"
    if want.dtype.kind in "biu":
        return "" if np.array_equal(got, want) else "values differ"
    close = np.allclose(got.astype(np.float64), want.astype(np.float64), rtol=rtol, atol=atol, equal_nan=True)
    return "" if close else f"values differ by {np.nanmax(np.abs(got.astype(np.float64) - want.astype(np.float64))):.3g}"


def run(case, backend="auto"):
    import dcml
    from dcml import _core
    try:
        graph = _core.import_onnx(case.model.SerializeToString(), None, False)
        function = _core.Function(graph, backend=backend)
        for inputs, outputs in case.data_sets:
            given = {v.name: _array(x) for v, x in zip(case.model.graph.input, inputs)}
            results = function(*[given[name] for name in graph.inputs])
            for name, got, want in zip(graph.outputs, results, outputs):
                problem = _compare(got, want, case.rtol or 1e-3, case.atol or 1e-7)
                if problem:
                    return f"fail: output {name}: {problem}"
        return "pass"
    except dcml.UnsupportedOpError as error:
        return f"unsupported: {error}"
    except dcml.Error as error:
        return f"error: {error}"

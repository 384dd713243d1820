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


def _value(value):
    """A case's value as an array, a list of arrays, or None."""
    from onnx import OptionalProto, SequenceProto, TensorProto, numpy_helper
    for kind, read in ((TensorProto, numpy_helper.to_array), (SequenceProto, numpy_helper.to_list),
                       (OptionalProto, numpy_helper.to_optional)):
        if isinstance(value, kind):
            return read(value)
    return np.asarray(value) if not isinstance(value, (list, dict, type(None))) else value


def _compare(got, want, rtol, atol):
    """What is wrong, or ''."""
    want = _value(want)
    if isinstance(want, list) or want is None:
        if type(got) is not type(want) or (want is not None and len(got) != len(want)):
            return f"{type(got).__name__}, expected {type(want).__name__}"
        return next(filter(None, (_compare(g, w, rtol, atol) for g, w in zip(got or (), want or ()))), "")
    if got.dtype != want.dtype and not (got.dtype.kind == want.dtype.kind == "O"):
        if want.dtype.kind in "US" and got.dtype.kind == "O":
            want = want.astype(object)
    if got.dtype != want.dtype:
        return f"dtype {got.dtype}, expected {want.dtype}"
    if got.shape != want.shape:
        return f"shape {got.shape}, expected {want.shape}"
    if want.dtype.kind in "biuO":
        return "" if np.array_equal(got, want) else "values differ"
    close = np.allclose(got.astype(np.float64), want.astype(np.float64), rtol=rtol, atol=atol, equal_nan=True)
    return "" if close else f"values differ by {np.nanmax(np.abs(got.astype(np.float64) - want.astype(np.float64))):.3g}"


def run(case):
    import dcml
    from dcml.onnx import ONNXModel
    try:
        model = ONNXModel(case.name, case.model)
        for inputs, outputs in case.data_sets:
            given = {v.name: _value(x) for v, x in zip(case.model.graph.input, inputs)}
            results = model(**{name: given[name] for name in model.inputs})
            results = results if len(model.outputs) > 1 else (results,)
            for name, got, want in zip(model.outputs, results, outputs):
                problem = _compare(got, want, case.rtol or 1e-3, case.atol or 1e-7)
                if problem:
                    return f"fail: output {name}: {problem}"
        return "pass"
    except dcml.UnsupportedOpError as error:
        return f"unsupported: {error}"
    except dcml.Error as error:
        return f"error: {error}"

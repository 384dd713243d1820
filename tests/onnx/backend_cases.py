"""The ONNX package's own backend cases, run through ONNXModel.

``run(case, prepare)``, with options of ONNXModel, gives "pass", "unsupported: ...", "error: ..." or "fail: ..."; it never
raises.  Values are compared as the package's runner compares them: types and shapes exactly, numbers within rtol 1e-3 and atol
1e-7 or what the case states, two units in the last place for bfloat16.
"""
import json
import pathlib
import warnings
from functools import cached_property

import numpy as np

KINDS = ("simple", "pytorch-converted", "pytorch-operator", "real")  # "real": models without weights, "light"


def collect():
    """Every node case that the installed onnx package defines."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases
        return collect_testcases(None)


class StoredCase:
    """A case whose model and data lie in the onnx package's folder."""

    def __init__(self, folder, kind):
        self.name, self.kind, self._folder = folder.name, kind, folder
        about = json.loads((folder / "data.json").read_text()) if (folder / "data.json").exists() else {}
        self.rtol, self.atol = about.get("rtol", 1e-3), about.get("atol", 1e-7)
        self._light = folder.parents[1] / "light" / pathlib.Path(about["url"]).name if "url" in about else None

    @cached_property
    def model(self):
        import onnx
        return onnx.load(self._light or self._folder / "model.onnx")

    @property
    def data_sets(self):
        weights = {t.name for t in self.model.graph.initializer}
        formal = [v for v in self.model.graph.input if v.name not in weights]
        if self._light:
            shape = [d.dim_value for d in formal[0].type.tensor_type.shape.dim]
            n = np.prod(shape)  # the runner's own input
            yield [(np.arange(n).reshape(shape) / n).astype(np.float32)], [_read(self._light.with_name(
                self._light.stem + "_output_0.pb"), self.model.graph.output[0].type)]
        for folder in sorted(self._folder.glob("test_data_set_*")):
            inputs, outputs = ([folder / f"{what}_{k}.pb" for k in range(len(list(folder.glob(f"{what}_*.pb"))))]
                               for what in ("input", "output"))
            yield ([_read(path, v.type) for path, v in zip(inputs, formal)],
                   [_read(path, v.type) for path, v in zip(outputs, self.model.graph.output)])


def _read(path, kind):
    from onnx import OptionalProto, SequenceProto, TensorProto
    proto = {"sequence_type": SequenceProto, "optional_type": OptionalProto}.get(kind.WhichOneof("value"), TensorProto)()
    proto.ParseFromString(path.read_bytes())
    return proto


def collect_all():
    """The node cases and the stored ones."""
    import onnx.backend.test
    data = pathlib.Path(onnx.backend.test.__file__).parent / "data"
    folders = [(folder, kind) for kind in KINDS for folder in sorted((data / kind).glob("test_*")) if folder.is_dir()]
    return [*collect(), *(StoredCase(*pair) for pair in folders)]


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
    if want.dtype.kind in "US":
        want = want.astype(object)
    if got.dtype != want.dtype:
        return f"dtype {got.dtype}, expected {want.dtype}"
    if got.shape != want.shape:
        return f"shape {got.shape}, expected {want.shape}"
    if want.dtype.kind in "biuO":
        return "" if np.array_equal(got, want) else "values differ"
    if want.dtype.name == "bfloat16":
        rtol = max(rtol, 2**-6)
    got, want = got.astype(np.float64), want.astype(np.float64)
    close = np.allclose(got, want, rtol=rtol, atol=atol, equal_nan=True)
    return "" if close else f"values differ by {np.nanmax(np.abs(got - want)):.3g}"


def run(case, prepare=None, **options):
    import dcml
    from dcml.onnx import ONNXModel
    try:
        model = ONNXModel(case.name, case.model, **options)
        if prepare:
            prepare(model)
        for inputs, outputs in case.data_sets:
            results = model(*map(_value, inputs))
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

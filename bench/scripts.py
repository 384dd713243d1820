"""Scripts: an operator called alone, Gelu as a model, imports; against ONNX's reference evaluator, ONNX Script and ONNX Runtime.

Who is installed is measured.  Calls run in turns in one process; Gelu in a process for each contender, whose threads would
wait for work beside the other's; imports in processes of their own, in turns.
"""
import importlib.util
import statistics

from turns import answer_of

_CALL = """
import json, sys, time, numpy as np, onnx
from onnx.reference import ReferenceEvaluator
from dcml.script import opset18 as op
a = np.ones(16, np.float32)
info = onnx.helper.make_tensor_value_info
node = onnx.helper.make_node("Add", ["a", "b"], ["c"])
graph = onnx.helper.make_graph([node], "g", [info("a", 1, [16]), info("b", 1, [16])], [info("c", 1, [16])])
model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)])
runs = {"dcml": lambda: op.Add(a, a), "reference": lambda: ReferenceEvaluator(model).run(None, {"a": a, "b": a})}
if "onnxscript" in sys.argv:
    from onnxscript import opset18 as theirs
    runs["onnxscript"] = lambda: theirs.Add(a, a)
times = {name: [] for name in runs}
for k in range(60):
    for name, run in runs.items():
        for _ in range(10):
            begin = time.perf_counter(); run(); times[name].append(time.perf_counter() - begin)
print(json.dumps({name: sorted(found[100:])[250] for name, found in times.items()}))
"""
_GELU = """
import json, math, sys, time, numpy as np
from dcml.script import script, FLOAT, opset18 as op
from dcml.onnx import ONNXModel
text = '''
@script()
def Gelu(X: FLOAT["N", "M"]) -> FLOAT["N", "M"]:
    phiX = 0.5 * (op.Erf(math.sqrt(0.5) * X) + 1.0)
    return X * phiX
'''
import linecache; linecache.cache["<gelu>"] = len(text), None, text.splitlines(True), "<gelu>"
exec(compile(text, "<gelu>", "exec"))
model, x = Gelu.to_model_proto(), np.random.default_rng(0).standard_normal((2048, 1024)).astype(np.float32)
if "onnxruntime" in sys.argv:
    import onnxruntime
    session = onnxruntime.InferenceSession(model.SerializeToString())
    run = lambda: session.run(None, {"X": x})
else:
    loaded = ONNXModel("gelu", model)
    run = lambda: loaded(x)
times = []
for k in range(60):
    begin = time.perf_counter(); run(); times.append(time.perf_counter() - begin)
print(json.dumps(sorted(times[10:])[25]))
"""
_IMPORT = "import json, time; begin = time.perf_counter(); {}; print(json.dumps(time.perf_counter() - begin))"


def _in_turns(run, contenders, rounds):
    """The median of each contender's rounds."""
    found = {name: [] for name in contenders}
    for _ in range(rounds):
        for name in contenders:
            found[name].append(run(name))
    return {name: statistics.median(times) for name, times in found.items()}


def _import(name):
    package = {"dcml": "dcml.script", "onnxscript": "onnxscript"}[name]
    return answer_of(_IMPORT.format(f"from {package} import script, graph, opset18, FLOAT"))


def _is_here(name):
    return importlib.util.find_spec(name) is not None


def _line(title, found, scale, unit):
    ours, others = found["dcml"], {name: time for name, time in found.items() if name != "dcml"}
    told = [f"{ours / time:.3f} of {name} ({scale * time:.2f} {unit})" for name, time in others.items()]
    return f"{title:<56} {scale * ours:.2f} {unit}: {', '.join(told) or 'nobody beside it is installed'}"


def lines():
    script = ["onnxscript"] if _is_here("onnxscript") else []
    runtime = ["onnxruntime"] if _is_here("onnxruntime") else []
    calls = answer_of(_CALL, *script)
    gelu = _in_turns(lambda name: answer_of(_GELU, name), ["dcml", *runtime], 5)
    loaded = _in_turns(_import, ["dcml", *script], 5)
    return [_line("op.Add of 16 floats, by itself", calls, 1e6, "µs"), _line("Gelu of a script as a model, [2048, 1024]", gelu, 1e3, "ms"),
            _line("import of dcml.script with an opset", loaded, 1e3, "ms")]

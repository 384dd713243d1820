"""From a file to the first result: an ONNX ResNet-18 of 45 MB, in a new process each time, against ONNX Runtime.

dcml is measured with empty caches, and as in each process after the first.
"""
import importlib.util
import os
import statistics
import tempfile

from turns import answer_of

_EXPORT = """
import sys, torch, workloads
torch.manual_seed(0)
module, arguments = workloads.resnet18(1)
torch.onnx.export(module.eval(), arguments, sys.argv[1], dynamo=False, opset_version=17)
"""
_LOAD = """
import json, sys, time, numpy as np
{imports}
x = np.random.default_rng(0).random((1, 3, 224, 224), dtype=np.float32)
begin = time.perf_counter()
{load}
seconds = time.perf_counter() - begin
print(json.dumps([seconds, float(np.abs(np.asarray(y)).sum())]))
"""
_DCML = _LOAD.format(imports="import dcml, dcml.onnx", load="y = dcml.onnx.ONNXModel('net', sys.argv[1])(x)")
_ONNXRUNTIME = _LOAD.format(imports="import onnxruntime", load="""
session = onnxruntime.InferenceSession(sys.argv[1], providers=['CPUExecutionProvider'])
y = session.run(None, {session.get_inputs()[0].name: x})[0]""")
_ROUNDS = 5


def lines():
    if not importlib.util.find_spec("onnxruntime"):
        return []
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "net.onnx")
        answer_of(_EXPORT, path)
        cold = [answer_of(_DCML, path, DCML_CACHE=os.path.join(folder, f"cache{k}")) for k in range(_ROUNDS)]
        theirs, warm = [], []
        for _ in range(_ROUNDS):
            theirs.append(answer_of(_ONNXRUNTIME, path))
            warm.append(answer_of(_DCML, path, DCML_CACHE=os.path.join(folder, "cache0")))
    sums = {round(total / theirs[0][1], 3) for _, total in [*cold, *theirs, *warm]}
    if sums != {1.0}:
        return [f"{'ONNX ResNet-18, load and first run':<56} the results differ: {sums}"]
    ort, first, later = (statistics.median(seconds for seconds, _ in runs) for runs in (theirs, cold, warm))
    return [f"{'ONNX ResNet-18 (45 MB), load and first run':<56} {later / ort:.2f} of ONNX Runtime: "
            f"{1e3 * later:.0f} against {1e3 * ort:.0f} ms; with empty caches {first / ort:.2f}"]


if __name__ == "__main__":
    print("\n".join(lines()))

"""Who runs workloads: dcml and its opponents, each as strong as its users can easily have it."""
import importlib.util
import os
import tempfile
from dataclasses import dataclass, field
from typing import Callable

# glibc gives large blocks back to the system at once, and each step pays for their pages anew.
RETAINED = {"MALLOC_MMAP_THRESHOLD_": str(1 << 32), "MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_TOP_PAD_": str(1 << 26)}


@dataclass(frozen=True)
class Contender:
    """start(module, arguments, workload, folder) -> (what to call, arguments).  needs: the package it is in.
    serves(workload): does it run it at all?"""
    start: Callable
    needs: str = "torch"
    serves: Callable = lambda workload: True
    environment: dict = field(default_factory=dict)

    def is_here(self):
        return importlib.util.find_spec(self.needs) is not None


def _dcml(module, arguments, workload, folder):
    from dcml.pytorch import DaceModule
    return DaceModule(module, backward=workload.training, **workload.options), arguments


def _autocast(run, workload):
    """Calls under autocast where the workload asks for bfloat16."""
    import torch
    return torch.autocast("cpu", torch.bfloat16)(run) if workload.autocasts else run


def _eager(module, arguments, workload, folder):
    return _autocast(module, workload), arguments


def _channels_last(module, arguments, workload, folder):
    import torch
    module.to(memory_format=torch.channels_last)
    lying = [a.detach().contiguous(memory_format=torch.channels_last).requires_grad_(a.requires_grad) if a.dim() == 4 else a
             for a in arguments]
    return _autocast(module, workload), tuple(lying)


def _compile(module, arguments, workload, folder):
    import torch
    return _autocast(torch.compile(module), workload), arguments


def _exported(module, arguments, folder):
    import torch
    path = os.path.join(tempfile.mkdtemp(dir=folder), "model.onnx")
    torch.onnx.export(module, arguments, path, dynamo=False, opset_version=17)
    return path


def _onnxruntime(module, arguments, workload, folder):
    import onnxruntime
    session = onnxruntime.InferenceSession(_exported(module, arguments, folder), providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    given = dict(zip(names, [a.numpy() for a in arguments]))
    return (lambda *_: session.run(None, given)[0]), arguments


def _openvino(module, arguments, workload, folder):
    import openvino
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(_exported(module, arguments, folder)), "CPU",
                                  {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"})
    request, given = compiled.create_infer_request(), [a.numpy() for a in arguments]
    return (lambda *_: request.infer(given, share_inputs=True, share_outputs=True)[0]), arguments


def _images(workload):
    return workload.images


def _inference(workload):
    return not workload.training


CONTENDERS = {
    "dcml": Contender(_dcml, "dcml"),
    "eager": Contender(_eager),
    "keep": Contender(_eager, environment=RETAINED),
    "channels-last": Contender(_channels_last, serves=_images, environment=RETAINED),
    "compile": Contender(_compile),
    "onnxruntime": Contender(_onnxruntime, "onnxruntime", _inference),
    "openvino": Contender(_openvino, "openvino", _inference),
}

"""dcml.op: the operators of the newest ai.onnx, the same module as dcml.spox.opset.ai.onnx's newest."""
import importlib
import sys

from .opsets import newest

sys.modules[__name__] = importlib.import_module(f"dcml.spox.opset.ai.onnx.v{newest('')}")

"""The operators of ai.onnx: modules v17 to the newest version, which are made when they are first imported."""
from ...modules import provide

provide(__name__, "ai.onnx", 17)

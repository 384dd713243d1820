"""The operators of ai.onnx.ml: modules v3 to the newest version, which are made when they are first imported."""
from ....modules import provide

provide(__name__, "ai.onnx.ml", 3)

"""Operators by domain and version: ``dcml.spox.opset.ai.onnx.v17`` and its like."""

"""ONNX models with values that only the host holds: sequences, optionals, maps, strings, and shapes that are computed.

The one idea: a model is cut into segments, which the core compiles, and host operators, which are Python functions
on the values between them.  Control flow is a host operator whose body is again such a program, so that torch's tape
differentiates loops and branches for free.  A model without such nodes never comes here.
"""
from .program import Program, is_needed

__all__ = ["Program", "is_needed"]

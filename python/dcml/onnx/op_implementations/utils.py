"""The registry of implementations of ONNX operators in Python.

>>> from dcml.onnx.op_implementations import op_implementation
>>> from dcml.onnx.forward_implementation_abc import ONNXForward
>>> @op_implementation(op="MatMul", name="mine")
... class MyMatMul(ONNXForward):
...     @staticmethod
...     def forward(node, state, sdfg):
...         ...
>>> implementations_of("MatMul")["mine"] is MyMatMul
True
>>> del _IMPLEMENTATIONS["MatMul", "mine"]

Must not know: who chooses among implementations, or when they are called.
"""
from ..forward_implementation_abc import ONNXForward

BUILT_IN = ("native", "pure", "onednn", "openblas", "onnxruntime", "interpreted")  # what dcml.library can choose by itself

_IMPLEMENTATIONS = {}  # (operator, name) -> class


def op_implementation(op, name):
    """Decorator: registers a subclass of ONNXForward.

    op: name of the ONNX operator, without "ONNX".
    name: name of the implementation, for ``default_implementation`` and ``node.implementation``; under "pure" it comes
        before the operator's own expansion.  One registered before under both names is replaced.
    Raises TypeError if the class is no ONNXForward or lacks ``forward``, ValueError_ for a name that dcml uses itself.
    """
    if name in BUILT_IN and name != "pure":
        from ... import _core
        raise _core.ValueError_(f"an implementation of {op} cannot be called {name!r}; dcml uses the names {', '.join(BUILT_IN)}")

    def register(cls):
        if not (isinstance(cls, type) and issubclass(cls, ONNXForward)):
            raise TypeError(f"the implementation {name!r} of {op} is {cls!r}, expected a subclass of ONNXForward")
        if cls.__abstractmethods__:
            raise TypeError(f"the implementation {name!r} of {op}, {cls.__name__}, has no method {sorted(cls.__abstractmethods__)[0]!r}")
        _IMPLEMENTATIONS[op, name] = cls
        return cls
    return register


def implementations_of(op):
    """{name: class} of what is registered for an operator."""
    return {name: cls for (other, name), cls in _IMPLEMENTATIONS.items() if other == op}


__all__ = ["implementations_of", "op_implementation"]

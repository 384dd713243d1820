"""script() and graph(): the decorators.

Must not know: how a script is translated or run.
"""
import inspect
import sys

from .values import OnnxClosure, OnnxFunction, Opset

THIS = ("this", 1)  # the opset of scripts that name none


def script(opset=None, default_opset=None, **kwargs):
    """Decorator: makes a function an OnnxFunction.

    opset: the Opset that the function becomes a member of; None: Opset("this", 1).
    default_opset: the Opset of ``+`` and its like, of constants and of control flow; None: the one of the operators that
        the function calls.
    Raises TranslationError (a dcml.ModelError and ValueError), with file and line, for what no ONNX function can say, and
    TypeError for arguments that operators do not take.
    """
    for name, value in (("opset", opset), ("default_opset", default_opset)):
        if value is not None and not isinstance(value, Opset):
            raise TypeError(f"script(): {name} is an Opset, not {type(value).__name__}; write @script() with brackets")

    def decorate(function):
        from .parameters import parameters_of
        from .source import Source
        from .translate import translate
        source = Source(function, sys._getframe(1))
        parameters = parameters_of(function, source)
        home = opset or Opset(*THIS)
        translation = translate(source, parameters, home, default_opset)
        made = OnnxFunction(home, function, source.text, parameters, translation, kwargs)
        if opset is not None:
            opset.add_function_def(made)
        return made
    return decorate


def graph():
    """Decorator of a function inside a script: it becomes the body of a Scan, Loop, If or SequenceMap.

    It sees the values around it, which must not be assigned again before it is used.
    """
    def decorate(function):
        if not inspect.isfunction(function):
            raise TypeError(f"graph() decorates a Python function, not {function!r}")
        return OnnxClosure(function)
    return decorate

"""What scripts are made of: opsets, and functions that are ONNX functions and run.

The one idea: an Opset's members are Python functions that run at once; an OnnxFunction is the Python function it was
written as, and the FunctionProto that was made of it.
Must not know: how a script is translated, or how an operator runs.
"""
import functools
import inspect
import typing

from .. import opsets

_KNOWN = ("", "ai.onnx.ml", "ai.onnx.preview.training")  # domains that ONNX declares


class Opset:
    """The operators of a domain as of a version, or a domain of one's own.

    ``opset18.Add`` is a function with the operator's signature; ``opset18["Add"]`` its schema.  Opset("mine", 1) is one
    object for each domain and version; scripts made with ``@script(mine)`` are its members, other names are operators
    that nobody declared, which a model may hold but nothing runs.
    Raises AttributeError for an operator that a version of ONNX's does not have.
    """
    _made = {}

    def __new__(cls, domain, version):
        if not isinstance(domain, str) or isinstance(version, bool) or not isinstance(version, int) or version < 1:
            raise TypeError(f"an opset has a domain, a str, and a version, a positive int, not {domain!r} and {version!r}")
        domain = "" if domain == "ai.onnx" else domain
        key = (cls, domain, version)
        if key not in cls._made:
            cls._made[key] = self = object.__new__(cls)
            self.domain, self.version, self.functions = domain, version, {}
        return cls._made[key]

    def __getattr__(self, name):
        if name.startswith("__") or name in ("domain", "version", "functions"):
            raise AttributeError(name)
        if name in self.functions:
            return self.functions[name]
        from .operators import Operator, function_of
        schema = self.schema(name)
        if schema is not None:
            value = function_of(Operator(self, name, schema))
            vars(self)[name] = value
            return value
        if self.domain in _KNOWN:
            raise AttributeError(f"{self!r} has no operator {name!r}")
        return Undeclared(Operator(self, name))

    def schema(self, name):
        """ONNX's schema of an operator; None if this version has no such operator."""
        return opsets.schema_of(self.domain, name, self.version) if self.domain in _KNOWN else None

    def add_function_def(self, function):
        """Makes a script a member; functions that were there by its name are replaced."""
        self.functions[function.name] = function

    def __contains__(self, name):
        return name in self.functions or self.schema(name) is not None

    def __getitem__(self, name):
        found = self.schema(name)
        if found is None:
            raise KeyError(f"{self!r} has no operator {name!r}")
        return found

    def __dir__(self):
        known = opsets.operators_of(self.domain) if self.domain in _KNOWN else ()
        return sorted({"domain", "version", *self.functions, *(name for name in known if self.schema(name))})

    def __repr__(self):
        return f"Opset({self.domain!r}, {self.version})"

    def __reduce__(self):
        return Opset, (self.domain, self.version)


class Undeclared:
    """An operator of a domain of one's own that no schema describes."""

    def __init__(self, operator):
        self.operator, self.name = operator, operator.name

    def __call__(self, *args, **kwargs):
        from .eager import apply
        return apply(self.operator, args, kwargs)

    def __repr__(self):
        return f"<operator {self.name} of {self.operator.opset_name}>"


class ParamSchema(typing.NamedTuple):
    """A parameter of a script: an input, or an attribute with its type and default."""
    name: str
    type: object = None
    default: object = inspect.Parameter.empty
    required: bool = True
    is_input: bool = True
    is_variadic_input: bool = False

    @property
    def is_attribute(self):
        return not self.is_input


class OnnxFunction:
    """What ``@script()`` makes of a function.

    Called with arrays, Tensors or numbers, it runs the function's own body, operator by operator; ``to_function_proto``
    and ``to_model_proto`` give it as ONNX.  ``name``, ``opset``, ``source`` (its text) and ``function`` tell where it
    comes from; signature, hints and documentation are the function's.
    """

    def __init__(self, opset, function, source, parameters, translation, kwargs):
        functools.update_wrapper(self, function)
        self.opset, self.function, self.source, self.kwargs = opset, function, source, kwargs
        self.name = function.__name__
        self._parameters, self._translation = parameters, translation

    def __call__(self, *args, **kwargs):
        """Runs the script.  Inputs are arrays, Tensors, numbers, lists (sequences) or None, attributes Python values.

        Returns what the function returns: arrays if any input is one, else Tensors.  TypeError for unknown or missing
        arguments; dcml's errors for what an operator refuses.
        """
        from .eager import run
        return run(self, args, kwargs)

    def param_schemas(self):
        """A ParamSchema for each parameter."""
        return tuple(ParamSchema(p.name, p.annotation, p.default, p.default is inspect.Parameter.empty, p.kind is None)
                     for p in self._parameters.values())

    @property
    def has_schema(self):
        return True

    @property
    def op_schema(self):
        """The function as an onnx.defs.OpSchema."""
        from .models import schema_of
        return schema_of(self)

    @property
    def translation(self):
        """What the translator made of it; raises the error that it kept for those who ask for a model."""
        if self._translation.error is not None:
            raise self._translation.error
        return self._translation

    @property
    def function_ir(self):
        """What has to_function_proto(): ONNX Script's translation, here the script itself."""
        return self

    def to_function_proto(self):
        """An onnx.FunctionProto, of the script's opset.  Raises TranslationError for what could not be translated."""
        import onnx
        proto = onnx.FunctionProto()
        proto.CopyFrom(self.translation.proto)
        return proto

    def to_model_proto(self, io_types=None, input_types=None, output_types=None, value_infos=None, functions=None, **fields):
        """An onnx.ModelProto that computes what the script does.

        io_types: a type for every input and output that has no annotation.  input_types, output_types: a list, for
        each.  value_infos: {name: type} of values within.  functions: OnnxFunctions or FunctionProtos to use in place of,
        or beside, those that it calls.  fields: of the ModelProto: producer_name, ir_version, ...
        Attributes of the script have their defaults in the model.
        Raises TypeError for unknown fields and wrong types, ValueError for a number of types that is not the number of
        values, or an attribute without default.
        """
        from .models import model_of
        return model_of(self, io_types, input_types, output_types, value_infos, functions, fields)

    def __repr__(self):
        return f"OnnxFunction({self.function!r})"


class TracedOnnxFunction:
    """A Python function that calls operators of an opset, and is no ONNX function of its own: opset, func, name."""

    def __init__(self, opset, func):
        functools.update_wrapper(self, func)
        self.opset, self.func, self.name = opset, func, func.__name__

    def __call__(self, *args, **kwargs):
        return self.func(*args, **kwargs)

    def __repr__(self):
        return f"TracedOnnxFunction({self.func!r})"


class OnnxClosure:
    """What ``@graph()`` makes of a function: the body of a Scan, Loop, If or SequenceMap.  function: the function itself."""

    def __init__(self, function):
        functools.update_wrapper(self, function)
        self.function = function

    def __call__(self, *args, **kwargs):
        return self.function(*args, **kwargs)

    def __repr__(self):
        return f"OnnxClosure({self.function!r})"

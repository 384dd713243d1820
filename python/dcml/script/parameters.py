"""Parameters of a script: inputs, and attributes, which the annotation tells apart.

Must not know: graphs.
"""
import ast
import collections.abc
import inspect
import types
import typing

from .source import TranslationError

_KINDS = {int: "INT", bool: "INT", float: "FLOAT", str: "STRING"}


class Parameter:
    """kind: ONNX's kind of an attribute, or None for an input; annotation: the object, or None."""

    def __init__(self, name, annotation, default, position):
        self.name, self.annotation, self.default, self.position = name, annotation, default, position
        self.kind, self.is_bool = _attribute_kind(annotation)

    @property
    def is_required(self):
        return self.default is inspect.Parameter.empty

    @property
    def type(self):
        """The tensor type of an input that is annotated with one, or None."""
        found = _without_none(self.annotation)
        return found if hasattr(found, "to_type_proto") and self.kind is None else None


class Attribute(typing.NamedTuple):
    """What the name of such a parameter is bound to."""
    name: str
    kind: str
    is_bool: bool


def _without_none(annotation):
    """X of Optional[X] and X | None."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        left = [a for a in typing.get_args(annotation) if a is not type(None)]
        return left[0] if len(left) == 1 else annotation
    return annotation


def _attribute_kind(annotation):
    annotation = _without_none(annotation)
    if isinstance(annotation, type) and annotation in _KINDS:
        return _KINDS[annotation], annotation is bool
    origin, items = typing.get_origin(annotation), [a for a in typing.get_args(annotation) if a is not ...]
    if not isinstance(origin, type) or not issubclass(origin, collections.abc.Sequence) or len(set(items)) != 1:
        return None, False
    if isinstance(items[0], type) and items[0] in _KINDS:
        return _KINDS[items[0]] + "S", items[0] is bool
    return None, False


def parameters_of(function, source):
    """{name: Parameter} of a script's function."""
    found = {}
    for position, p in enumerate(inspect.signature(function).parameters.values()):
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            raise source.error(source.tree, f"parameter {p.name!r}: an ONNX function has a fixed number of inputs; write each by itself")
        found[p.name] = Parameter(p.name, annotation_of(source, p.annotation), p.default, position)
    return found


def annotation_of(source, annotation):
    """The object that an annotation is, evaluated if it is text."""
    if annotation is inspect.Parameter.empty:
        return None
    if isinstance(annotation, str):
        try:
            return source.evaluate(ast.parse(annotation, mode="eval").body)
        except Exception as error:
            raise source.error(source.tree, f"the annotation {annotation!r} cannot be evaluated: {error}", TranslationError) from error
    return annotation


def bind(name, parameters, positional, named):
    """[(Parameter, value or None where there is none)] of a call; TypeError for arguments that are too many or unknown."""
    order = list(parameters)
    if len(positional) > len(order):
        raise TypeError(f"{name}() takes {len(order)} arguments, {len(positional)} were given")
    given = dict(zip(order, positional))
    for label, value in named.items():
        if label not in parameters:
            raise TypeError(f"{name}() got an unexpected keyword argument {label!r}; its parameters are {', '.join(order)}")
        if label in given:
            raise TypeError(f"{name}() got multiple values for argument {label!r}")
        given[label] = value
    return [(parameters[label], given.get(label)) for label in order]

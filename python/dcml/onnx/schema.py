"""Schemas of ONNX operators as plain Python objects, and how such objects are made of anything that ONNX defines.

The one idea: a class with annotated defaults says what it keeps of a protobuf message (or of a class of onnx.defs);
onnx_representation adds the constructor, the conversion from ONNX and the way to JSON and back.
Must not know: the operator table, nodes, or graphs.
"""
import base64
import enum
import inspect
import re
import typing

from google.protobuf.message import Message
from onnx import AttributeProto, TensorProto, helper, numpy_helper
from onnx.defs import OpSchema

from .. import _core, dtypes

_CONVERT = {}  # class of a protobuf message or of onnx.defs -> function that makes our value of it
_CLASSES = {}  # name in JSON -> class
_DEEPEST = 64  # levels of a JSON value


# -- from ONNX ------------------------------------------------------------------------------------
def convert_onnx_attribute(value):
    """A field of a protobuf message, or an attribute of an onnx.defs class, as a Python value.

    Represented classes become their representations, tensors numpy arrays, attributes their values, enumerations their
    names, sets sorted lists; another message is a dict of the fields that are set.
    """
    if type(value) in _CONVERT:
        return _CONVERT[type(value)](value)
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return value
    if isinstance(value, TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, AttributeProto):
        return _attribute_value(value)
    if isinstance(value, Message):
        return {field.name: convert_onnx_attribute(content) for field, content in value.ListFields()}
    if hasattr(value, "items"):
        return {key: convert_onnx_attribute(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(map(convert_onnx_attribute, value))
    if hasattr(value, "__members__") and hasattr(value, "name"):
        return value.name
    if hasattr(value, "__len__") and hasattr(value, "__getitem__"):
        return [convert_onnx_attribute(item) for item in value]
    raise _core.ModelError(f"{value!r} of type {type(value).__name__} has no representation; register one with onnx_representation")


def _attribute_value(proto):
    """The value of an AttributeProto, with texts as str; None if it has none."""
    if not proto.type:
        return None
    value = convert_onnx_attribute(helper.get_attribute_value(proto))
    if isinstance(value, list):
        return [_text(item) for item in value]
    return _text(value)


def _text(value):
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _field(proto, name, fallback):
    """The field as a Python value; a message that is not set is the property's default."""
    if isinstance(proto, Message):
        field = proto.DESCRIPTOR.fields_by_name.get(name)
        if field is None:
            raise _core.ModelError(f"{type(proto).__name__} has no field {name!r}")
        if field.has_presence and not proto.HasField(name):
            return fallback
    return convert_onnx_attribute(getattr(proto, name))


# -- to JSON and back -----------------------------------------------------------------------------
def _encode(value):
    """A value of json.dumps; what JSON lacks is a dict that names its type under "$type"."""
    if type(value).__name__ in _CLASSES and isinstance(value, _CLASSES[type(value).__name__]):
        return {"$type": type(value).__name__, "value": value.name} if isinstance(value, enum.Enum) else value.to_json()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, dtypes.typeclass):
        return {"$type": "typeclass", "name": value.name}
    if isinstance(value, bytes):
        return {"$type": "bytes", "base64": base64.b64encode(value).decode()}
    if isinstance(value, (list, tuple)):
        return [_encode(item) for item in value]
    if isinstance(value, dict):
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {key: _encode(item) for key, item in value.items()}
        return {"$type": "dict", "items": [[_encode(key), _encode(item)] for key, item in value.items()]}
    if hasattr(value, "tobytes"):
        head = {"$type": "ndarray", "dtype": str(value.dtype), "shape": list(value.shape)}
        if value.dtype.hasobject:
            return {**head, "items": _encode(value.ravel().tolist())}
        return {**head, "base64": base64.b64encode(value.tobytes()).decode()}
    raise _core.ValueError_(f"{value!r} of type {type(value).__name__} cannot be written as JSON")


def _decode_array(json, depth):
    import numpy as np
    shape = tuple(json["shape"])
    if "items" in json:
        array = np.empty(len(json["items"]), object)
        array[:] = _decode(json["items"], depth)
        return array.reshape(shape)
    return np.frombuffer(base64.b64decode(json["base64"]), np.dtype(json["dtype"])).reshape(shape).copy()


def _decode(json, depth=0):
    if depth > _DEEPEST:
        raise _core.ModelError(f"a JSON value of more than {_DEEPEST} levels")
    if isinstance(json, list):
        return [_decode(item, depth + 1) for item in json]
    if not isinstance(json, dict):
        return json
    kind = json.get("$type")
    if kind is None:
        return {key: _decode(item, depth + 1) for key, item in json.items()}
    try:
        if kind == "bytes":
            return base64.b64decode(json["base64"])
        if kind == "typeclass":
            return dtypes.of(json["name"])
        if kind == "dict":
            return {_decode(key, depth + 1): _decode(item, depth + 1) for key, item in json["items"]}
        if kind == "ndarray":
            return _decode_array(json, depth + 1)
        cls = _CLASSES[kind]
        return cls[json["value"]] if issubclass(cls, enum.Enum) else cls._from_json(json, depth)
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, _core.Error):
            raise
        raise _core.ModelError(f"the JSON value of type {kind!r} is malformed: {type(error).__name__}: {error}") from error


# -- representations ------------------------------------------------------------------------------
def _same(a, b):
    if hasattr(a, "tobytes") or hasattr(b, "tobytes"):
        same_kind = hasattr(a, "tobytes") and hasattr(b, "tobytes") and a.dtype == b.dtype and a.shape == b.shape
        return same_kind and (a.tolist() == b.tolist() if a.dtype.hasobject else a.tobytes() == b.tobytes())
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    return a == b


class _Representation:
    """What onnx_representation adds to a class; ``_properties`` is {name: default}."""

    def __init__(self, *args, **kwargs):
        try:
            bound = self.__signature__.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{type(self).__name__}: {error}") from None
        for name, default in self._properties.items():
            value = bound.arguments.get(name, default)
            setattr(self, name, value.copy() if isinstance(value, (list, dict)) and value is default else value)

    def __setattr__(self, name, value):
        if name not in self._properties:
            raise AttributeError(f"{type(self).__name__} has no property {name!r}")
        wanted = self._types[name]
        if wanted and not isinstance(value, wanted):
            raise TypeError(f"{type(self).__name__}.{name} is a {wanted.__name__}, not {value!r}")
        object.__setattr__(self, name, value)

    @classmethod
    def from_onnx_proto(cls, onnx_proto):
        """Makes one of what ONNX defines.  Raises TypeError if that is of another type."""
        if not isinstance(onnx_proto, cls._represents):
            raise TypeError(f"{cls.__name__} represents {cls._represents.__name__}, not {type(onnx_proto).__name__}")
        values = {}
        for name, default in cls._properties.items():
            source = cls._mapping.get(name, name)
            values[name] = source(onnx_proto) if callable(source) else _field(onnx_proto, source, default)
        return cls(**values)

    def to_json(self):
        """A dict that json.dumps takes."""
        return {"$type": type(self).__name__, **{name: _encode(getattr(self, name)) for name in self._properties}}

    @classmethod
    def from_json(cls, json, context=None):
        """Makes one of what to_json gave.  context: not needed.  Raises ModelError if it is malformed."""
        if not isinstance(json, dict) or json.get("$type") != cls.__name__:
            raise _core.ModelError(f"expected the JSON object of a {cls.__name__}, found {str(json)[:60]!r}")
        return _decode(json)

    @classmethod
    def _from_json(cls, json, depth):
        unknown = json.keys() - cls._properties.keys() - {"$type"}
        if unknown:
            raise _core.ModelError(f"a {cls.__name__} has no property {sorted(unknown)[0]!r}")
        return cls(**{name: _decode(item, depth + 1) for name, item in json.items() if name != "$type"})

    construct_from_onnx_proto, construct_from_json = from_onnx_proto, from_json  # as the decorator's manual calls them

    def __eq__(self, other):
        if type(other) is not type(self):
            return NotImplemented
        return all(_same(getattr(self, name), getattr(other, name)) for name in self._properties)

    __hash__ = None

    def __repr__(self):
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self._properties)})"


def _represent_enum(cls, represents, mapping):
    """mapping: our member -> ONNX's name; a member Unsupported stands for all others."""
    ours = {theirs: member for member, theirs in mapping.items()} or {name: name for name in cls.__members__}

    def convert(value):
        name = value.name if value.name in ours else None
        if name is None and "Unsupported" not in cls.__members__:
            raise _core.ModelError(f"{cls.__name__} has no member for {value.name}")
        return cls[ours[name] if name else "Unsupported"]
    _CONVERT[represents] = cls.from_onnx_proto = convert
    return cls


def onnx_representation(represents, **mapping):
    """Decorator: makes a class the Python representation of something that ONNX defines.

    represents: the class of a protobuf message, or a class of onnx.defs.
    mapping: by property of the class, the name of ONNX's field, or a function from the ONNX object to the value; a
        property that it lacks has the name of its field.  For an enum.Enum: by member, the name that ONNX gives it.
    The properties are the class's annotations with their defaults (``doc: str = ""``).  The class gets a constructor
    with these parameters, ``from_onnx_proto``, ``to_json``, ``from_json``, equality and a repr.  Fields whose types are
    represented too become their representations.
    Raises TypeError for a property without default, or a mapping of something that is no property.

    >>> import onnx
    >>> @onnx_representation(onnx.StringStringEntryProto, name="key")
    ... class Entry:
    ...     name: str = ""
    ...     value: str = ""
    >>> Entry.from_onnx_proto(onnx.StringStringEntryProto(key="a", value="b"))
    Entry(name='a', value='b')
    """
    def decorate(cls):
        _CLASSES[cls.__name__] = cls
        if issubclass(cls, enum.Enum):
            return _represent_enum(cls, represents, mapping)
        hints = typing.get_type_hints(cls)
        lacking = [name for name in hints if not hasattr(cls, name)] + [name for name in mapping if name not in hints]
        if lacking:
            raise TypeError(f"{cls.__name__}.{lacking[0]} needs an annotation and a default")
        properties = {name: getattr(cls, name) for name in hints}
        parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default)
                      for name, default in properties.items()]
        body = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")}
        body.update(_properties=properties, _mapping=mapping, _represents=represents, __signature__=inspect.Signature(parameters),
                    _types={name: kind if isinstance(kind, type) else None for name, kind in hints.items()})
        made = _CLASSES[cls.__name__] = type(cls.__name__, (*(b for b in cls.__bases__ if b is not object), _Representation), body)
        _CONVERT[represents] = made.from_onnx_proto
        return made
    return decorate


# -- the parts of a schema ------------------------------------------------------------------------
@onnx_representation(OpSchema.FormalParameterOption)
class ONNXParameterType(enum.Enum):
    """How often a parameter of an operator may be given."""
    Single = 1    #: once: it is required
    Optional = 2  #: once, or not
    Variadic = 3  #: any number of times


@onnx_representation(OpSchema.AttrType, Int="INT", Float="FLOAT", String="STRING", Ints="INTS", Floats="FLOATS", Strings="STRINGS",
                     Tensor="TENSOR")
class ONNXAttributeType(enum.Enum):
    """The type of an attribute, by the Python value that stands for it."""
    Int = 1          #: int
    Float = 2        #: float
    String = 3       #: str
    Ints = 4         #: List[int]
    Floats = 5       #: List[float]
    Strings = 6      #: List[str]
    Tensor = 7       #: numpy.ndarray
    Unsupported = 8  #: anything else: graphs, types, sparse tensors


@onnx_representation(OpSchema.Attribute, attribute_type="type")
class ONNXAttribute:
    """An attribute of an operator: name, description, whether it is required, its type (ONNXAttributeType), its default."""
    name: str = ""
    description: str = ""
    required: bool = False
    attribute_type: ONNXAttributeType = ONNXAttributeType.Int
    default_value: object = None


def element_type(text):
    """tensor(float) as dcml.float32; another type, of sequences or of elements that dcml lacks, as ONNX writes it."""
    found = re.fullmatch(r"tensor\((\w+)\)", text)
    number = TensorProto.DataType.Value(found[1].upper()) if found and found[1].upper() in TensorProto.DataType.keys() else 0
    try:
        return dtypes.of(number) if number else text
    except _core.DTypeError:
        return text


@onnx_representation(OpSchema.TypeConstraintParam, type_str="type_param_str",
                     types=lambda c: [element_type(t) for t in c.allowed_type_strs])
class ONNXTypeConstraint:
    """A type variable of an operator (type_str) and what it may stand for (types: dcml.float32 and the like for tensors, others
    as ONNX writes them)."""
    type_str: str = ""
    types: list = []


@onnx_representation(OpSchema.FormalParameter, param_type="option", homogeneous="is_homogeneous", name=lambda p: p.name.rstrip("."))
class ONNXParameter:
    """An input or output of an operator: name, description, type variable or type (type_str), how often it may be given
    (param_type), and whether all items of a variadic one have the same type (homogeneous)."""
    name: str = ""
    description: str = ""
    type_str: str = ""
    param_type: ONNXParameterType = ONNXParameterType.Single
    homogeneous: bool = False


def _parameters(schema, side):
    """Inputs or outputs; a name that is among both gets a prefix, as connectors of a node have one name space."""
    sides = {"in": [ONNXParameter.from_onnx_proto(p) for p in schema.inputs],
             "out": [ONNXParameter.from_onnx_proto(p) for p in schema.outputs]}
    both = {p.name for p in sides["in"]} & {p.name for p in sides["out"]}
    for parameter in sides[side]:
        if parameter.name in both:
            parameter.name = f"{side}_{parameter.name}"
    return sides[side]


@onnx_representation(OpSchema,
                     type_constraints=lambda s: {c.type_param_str: ONNXTypeConstraint.from_onnx_proto(c) for c in s.type_constraints},
                     inputs=lambda s: _parameters(s, "in"), outputs=lambda s: _parameters(s, "out"), doc=lambda s: s.doc or "")
class ONNXSchema:
    """An operator in one version: its name, domain, documentation, the opset that brought this version (since_version),
    attributes ({name: ONNXAttribute}), type_constraints ({type_str: ONNXTypeConstraint}), inputs and outputs (lists of
    ONNXParameter).  A parameter that ONNX names alike among inputs and outputs is called in_<name> and out_<name>."""
    name: str = ""
    domain: str = ""
    doc: str = ""
    since_version: int = 0
    attributes: dict = {}
    type_constraints: dict = {}
    inputs: list = []
    outputs: list = []


__all__ = ["ONNXAttribute", "ONNXAttributeType", "ONNXParameter", "ONNXParameterType", "ONNXSchema", "ONNXTypeConstraint",
           "convert_onnx_attribute", "element_type", "onnx_representation"]

"""Documentation of operators, written from their schemas.

Must not know: nodes.
"""
import inspect
import textwrap

from ..schema import element_type
from .values import type_word


def _type(kind):
    """A type of a constraint, or the type of a parameter, as dcml calls it; other types as ONNX writes them."""
    return str(element_type(kind)) if isinstance(kind, str) else str(kind)


def _entry(head, text):
    text = " ".join(text.split())
    return textwrap.indent(textwrap.fill(f"{head}: {text}" if text else head, 100, subsequent_indent="    "), "    ")


def _parameters(title, parameters):
    lines = [_entry(f"{p.name} ({_type(p.type_str)}, {p.param_type.name.lower()})", p.description) for p in parameters]
    return "\n".join([f"Node {title}:", *lines]) if lines else f"Node {title}: none"


def _attribute(attribute):
    kind = type_word(attribute.attribute_type)
    return _entry(f"{attribute.name} ({kind if attribute.required else f'Optional[{kind}], default={attribute.default_value!r}'})",
                  attribute.description)


def class_doc(title, schema):
    """The documentation of an operator's class.

    schema: ONNXSchema, or None for the base of the classes.
    """
    if schema is None:
        return title
    constraints = [_entry(c.type_str, ", ".join(map(_type, c.types))) for c in schema.type_constraints.values()]
    parts = [f"{schema.name}, as of opset {schema.since_version}" + (f" of {schema.domain}." if schema.domain else "."),
             inspect.cleandoc(schema.doc), _parameters("inputs", schema.inputs), _parameters("outputs", schema.outputs),
             "\n".join(["Type constraints:", *constraints]) if constraints else "",
             "\n".join(["Parameters:", _entry("name", "the name of the node."),
                        *(_attribute(a) for _, a in sorted(schema.attributes.items()))])]
    return "\n\n".join(part for part in parts if part)


__all__ = ["class_doc"]

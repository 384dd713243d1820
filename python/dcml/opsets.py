"""Which operators a version of a domain has, and what ONNX says of them: shared by the front ends of operators.

The one idea: names and versions are the operator table's (and the host's), the rest is asked of onnx.defs when someone
wants it.  No operator is written here, and importing this imports nothing.
Must not know: what a front end makes of an operator.
"""
import textwrap

from . import _core


def operators_of(domain):
    """{operator: first version or None} of what the core and the host run, for a domain as ONNX writes it ("" is ai.onnx)."""
    from .onnx.host.table import under_their_own_names
    first = {}
    for where, op, since in _core.operators():
        if where == domain:
            first[op] = min(since, first.get(op, since))
    first.update((op, None) for where, op in under_their_own_names() if where == domain and op not in first)
    return first


def newest(domain):
    """The newest version of a domain that the operator table speaks of."""
    return max(since for where, _, since in _core.operators() if where == domain)


def schema_of(domain, op, version):
    """The schema of an operator as of a version; None if it is not there, or deprecated."""
    from onnx import defs
    try:
        schema = defs.get_schema(op, version, domain)
    except defs.SchemaError:
        return None
    return None if schema.deprecated else schema


def default_of(attribute):
    """The default of a schema's attribute as Python writes it, lists as tuples; None if it has none."""
    if not attribute.default_value.type:
        return None
    from onnx import helper
    value = helper.get_attribute_value(attribute.default_value)
    return tuple(map(_plain, value)) if isinstance(value, list) else _plain(value)


def _plain(value):
    if isinstance(value, float):  # of single precision, as it is written
        import numpy as np
        return float(str(np.float32(value)))
    return value.decode() if isinstance(value, bytes) else value


def where(schema):
    """Name and version of an operator, for messages."""
    return f"{schema.domain or 'ai.onnx'}@{schema.since_version}::{schema.name}"


def documentation(schema, kind):
    """The text of a schema as a docstring; kind: what the front end calls a value."""
    parts = [textwrap.dedent(schema.doc or "").strip()]
    described = [(p.name, f"Type {p.type_str}.", p.description) for p in schema.inputs]
    described += [(name, "Attribute.", schema.attributes[name].description) for name in sorted(schema.attributes)]
    if described:
        parts.append(_section("Parameters", described))
    parts.append(_section("Returns", [(f"{p.name.rstrip('.')} : {kind}", f"Type {p.type_str}.", p.description) for p in schema.outputs]))
    types = [f" - {c.type_param_str}: {', '.join(f'`{t}`' for t in sorted(c.allowed_type_strs))}" for c in schema.type_constraints]
    notes = ["Notes", "=====", f"Signature: ``{where(schema)}``."]
    parts.append("\n".join([*notes, *(["", "Type constraints:", *types] if types else [])]))
    return "\n\n".join(filter(None, parts))


def _section(title, items):
    lines = [title, "=" * len(title)]
    for name, what, description in items:
        lines += [name, f"    {what}", *(f"    {line}".rstrip() for line in textwrap.dedent(description).strip().splitlines())]
    return "\n".join(lines)

"""Rows against the onnx package's schemas: every operator and version, names, defaults and types.

MISSING and DIFFERENT hold what is known not to agree, with the reason; an entry that no longer applies fails.
"""
import ast

import numpy as np
import pytest
from onnx import defs
from onnx.helper import get_attribute_value

from dcml import _core
from dcml.onnx.host.table import HOST

DOMAINS = ("", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training")

# (domain, operator): why there is no row of some version.
MISSING = {
    ("ai.onnx.preview", "FlexAttention"): "the importer puts rows for scores and values around its graphs",
}
# In ONNX's domain, but no operators of ONNX: ONNX Runtime's own, and experimental ones that ONNX 1.5 dropped.
OTHERS = {"SimplifiedLayerNormalization", "Affine", "ParametricSoftplus", "ScaledTanh", "ImageScaler"}
# (operator, version, what): why the row differs from the schema.
DIFFERENT = {}

ROWS = {(row["domain"], row["name"], row["since"]): row for row in _core.ops()}
SCHEMAS = {(s.domain, s.name, s.since_version): s for s in defs.get_all_schemas_with_history() if s.domain in DOMAINS}
COMMON = sorted(ROWS.keys() & SCHEMAS.keys())
NUMBERS = {f"tensor({name})": number for name, number in {
    "float": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "bool": 9, "float16": 10, "double": 11,
    "uint32": 12, "uint64": 13, "bfloat16": 16, "float8e4m3fn": 17, "float8e4m3fnuz": 18, "float8e5m2": 19, "float8e5m2fnuz": 20,
    "uint4": 21, "int4": 22, "float4e2m1": 23, "float8e8m0": 24, "uint2": 25, "int2": 26}.items()}


def test_every_version_of_every_operator_has_a_row():
    lacking = {key for key in SCHEMAS.keys() - ROWS.keys() if key[:2] not in HOST and key[:2] not in MISSING}
    assert not lacking
    assert not [key for key in MISSING if all((*key, s.since_version) in ROWS for s in SCHEMAS.values() if (s.domain, s.name) == key)]


def test_every_row_is_an_operator():
    assert not [key for key in ROWS.keys() - SCHEMAS.keys() if key[0] in DOMAINS and key[1] not in OTHERS]


def _literal(text):
    """A default that is written out, or None: absent, or computed from shapes."""
    if text is None or text == "none":
        return None
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None


def _default(attribute):
    if not attribute.default_value.name:
        return None
    value = get_attribute_value(attribute.default_value)
    if isinstance(value, bytes):
        return value.decode()
    return [v.decode() if isinstance(v, bytes) else v for v in value] if isinstance(value, list) else value


def _same(ours, theirs):
    if isinstance(theirs, float):
        return isinstance(ours, float) and np.float32(ours) == np.float32(theirs)
    return ours == theirs


def _variadic(argument):
    return argument.option == defs.OpSchema.FormalParameterOption.Variadic


def _differences(row, schema):
    """What a row says otherwise than the schema, as {(what, ours, theirs)}."""
    for kind, theirs in (("inputs", schema.inputs), ("outputs", schema.outputs)):
        names = [a.name.rstrip(".") for a in theirs]
        if [a["name"] for a in row[kind]] != names:
            yield kind, [a["name"] for a in row[kind]], names
            continue
        for ours, argument in zip(row[kind], theirs):
            if ours["variadic"] != _variadic(argument):
                yield f"{ours['name']} variadic", ours["variadic"], _variadic(argument)
            optional = argument.option == defs.OpSchema.FormalParameterOption.Optional
            if kind == "inputs" and optional and not ours["optional"]:
                yield f"{ours['name']} optional", False, True
            if kind == "inputs":
                refused = sorted(t for t in argument.types if NUMBERS.get(t) and NUMBERS[t] not in ours["types"])
                if refused:
                    yield f"types of {ours['name']}", "refused", refused
    theirs = {n: a for n, a in schema.attributes.items() if not str(a.type).endswith(("GRAPH", "TYPE_PROTO"))}
    if row["attributes"].keys() != theirs.keys():
        yield "attributes", sorted(row["attributes"]), sorted(theirs)
        return
    for name, attribute in theirs.items():
        ours = row["attributes"][name]
        if attribute.required != (ours is None):
            yield f"{name} required", ours is None, attribute.required
        elif _default(attribute) is not None and not _same(_literal(ours), _default(attribute)):
            yield f"default of {name}", ours, _default(attribute)


@pytest.mark.parametrize("key", COMMON, ids=lambda key: f"{key[1]}-{key[2]}")
def test_row_says_what_the_schema_says(key):
    found = {what: (ours, theirs) for what, ours, theirs in _differences(ROWS[key], SCHEMAS[key])}
    known = {what for name, version, what in DIFFERENT if (name, version) == key[1:]}
    assert found.keys() == known, {what: found[what] for what in found.keys() - known} or f"no difference any more: {known - found.keys()}"


def test_known_differences_name_rows():
    assert {(name, version) for name, version, _ in DIFFERENT} <= {key[1:] for key in COMMON}

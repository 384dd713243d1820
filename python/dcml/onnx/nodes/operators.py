"""What operators there are, and the schema of each in each version.

The one idea: the operator table says what runs; onnx.defs describes what ONNX defines, the row itself what it does not.
Must not know: nodes, graphs, implementations.
"""
import ast
import functools

from ... import _core, dtypes

OPSETS = {"": 12, "ai.onnx.ml": 2}  # of nodes made by hand; an operator that came later is of its first version
_PUBLIC = ("", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training")

_table = {}  # operator -> (domain, {version: row or None}); filled at first use, and again when a name is not found


def _fill():
    from ..host.table import under_their_own_names
    table = {}
    for row in _core.ops():
        domain, versions = table.setdefault(row["name"], (row["domain"], {}))
        if domain == row["domain"]:  # the first that has the name
            versions[row["since"]] = row
    for domain, name in under_their_own_names():
        table.setdefault(name, (domain, dict.fromkeys(_versions_in_onnx(domain, name))))
    _table.update(table)


def _versions_in_onnx(domain, name):
    return _history().get((domain, name), (1,))


@functools.lru_cache(maxsize=1)
def _history():
    """{(domain, operator): versions} of onnx.defs."""
    from onnx import defs
    versions = {}
    for schema in defs.get_all_schemas_with_history():
        versions.setdefault((schema.domain, schema.name), set()).add(schema.since_version)
    return {key: tuple(sorted(found)) for key, found in versions.items()}


def _entry(name):
    if name not in _table:
        _fill()  # a row may have been added since
    return _table.get(name)


def exists(name):
    """Is there an operator of this name, in whatever domain?"""
    return _entry(name) is not None


def domain_of(name):
    """The domain of an operator; raises UnsupportedOpError if there is none of this name."""
    entry = _entry(name)
    if entry is None:
        raise _core.UnsupportedOpError(f"there is no operator {name!r}")
    return entry[0]


def names():
    """The operators of ONNX's domains that dcml runs, in order."""
    _fill()
    return sorted(name for name, (domain, _) in _table.items() if domain in _PUBLIC)


def versions(name):
    """The opset versions in which an operator changed, in order."""
    domain_of(name)
    return tuple(sorted(_table[name][1]))


def default_opset(name):
    """The opset of a node made by hand: the manual's, or the first version of an operator that came later."""
    opset = OPSETS.get(domain_of(name), 1)
    return max(opset, versions(name)[0])


@functools.lru_cache(maxsize=None)
def _onnx_schema(domain, name, version):
    from onnx import defs
    from ..schema import ONNXSchema
    if version not in _history().get((domain, name), ()):
        return None
    return ONNXSchema.from_onnx_proto(defs.get_schema(name, version, domain))


def schema(name, opset):
    """The ONNXSchema of an operator as of an opset: onnx.defs', or what the row says if ONNX does not define it.

    Raises UnsupportedOpError if the operator came later.
    """
    known = [version for version in versions(name) if version <= opset]
    if not known:
        raise _core.UnsupportedOpError(f"{name} came with opset {versions(name)[0]}, it is not in opset {opset}")
    domain, rows = _table[name]
    return _onnx_schema(domain, name, known[-1]) or _schema_of_row(rows[known[-1]])


def accepted(name, opset, side, place):
    """The element types that an operator's row takes for a parameter, by number; ONNX may say fewer.

    side: "inputs" or "outputs"; place: of the parameter among them.
    """
    known = [version for version in versions(name) if version <= opset]
    row = _table[name][1][known[-1]] if known else None
    return frozenset(row[side][place]["types"]) if row and place < len(row[side]) else frozenset()


# -- what a row says of its operator --------------------------------------------------------------
def _schema_of_row(row):
    from ..schema import ONNXAttribute, ONNXSchema, ONNXTypeConstraint
    arguments = [*row["inputs"], *row["outputs"]]
    constraints = {a["type"]: ONNXTypeConstraint(a["type"], [dtypes.of(number) for number in a["types"]]) for a in arguments}
    attributes = {name: ONNXAttribute(name, "", text is None, _type_of(_literal(text)), _literal(text))
                  for name, text in row["attributes"].items()}
    text = row["text"].split("\n\n")[0].split("\n--")[0].rstrip()
    return ONNXSchema(row["name"], row["domain"], text, row["since"], attributes, constraints,
                      [_parameter(a) for a in row["inputs"]], [_parameter(a) for a in row["outputs"]])


def _parameter(argument):
    from ..schema import ONNXParameter, ONNXParameterType
    kind = "Variadic" if argument["variadic"] else "Optional" if argument["optional"] else "Single"
    return ONNXParameter(argument["name"], "", argument["type"], ONNXParameterType[kind], True)


def _literal(text):
    """A default that is written out; None if there is none, or it is computed from shapes."""
    try:
        return ast.literal_eval(text) if text not in (None, "none") else None
    except (ValueError, SyntaxError):
        return None


def _type_of(value):
    from ..schema import ONNXAttributeType
    plural = "s" if isinstance(value, list) else ""
    item = value[0] if isinstance(value, list) and value else value
    kinds = {int: "Int", float: "Float", str: "String"}
    return ONNXAttributeType[kinds[type(item)] + plural] if type(item) in kinds else ONNXAttributeType.Unsupported


__all__ = ["OPSETS", "accepted", "default_opset", "domain_of", "exists", "names", "schema", "versions"]

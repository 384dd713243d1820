"""Every operator that ONNX has a case for: its constructor takes the case's inputs and gives types that fit, eager() its values."""
import doctest
import pathlib
import sys
import warnings

import onnx
import pytest

from dcml.onnx.eager import eager
from dcml.spox import Var, argument, types
from dcml.spox.operators import Opset, python_name
from dcml.spox.opset.modules import DOMAINS

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "onnx"))
import backend_cases  # noqa: E402

DRAWS = ("Random", "Bernoulli", "Multinomial", "Dropout")
SUBGRAPHS, SPARSE = {5, 10}, {11, 12}


def cases():
    """The first case of each operator in each version, of those of one node."""
    found = {}
    for case in backend_cases.collect():
        node = case.model.graph.node[0]
        domain = "" if node.domain == "ai.onnx" else node.domain
        if len(case.model.graph.node) != 1 or case.model.functions or domain not in DOMAINS.values():
            continue
        version = served(node.op_type, domain, max(i.version for i in case.model.opset_import if i.domain in (node.domain, domain)))
        if version and not {a.type for a in node.attribute} & (SUBGRAPHS | SPARSE) and node.op_type != "ImageDecoder":
            found.setdefault((domain, version, node.op_type), case)
    return found


def served(op, domain, version):
    """The version that a module has for a case: a newer one if the operator is the same there; else None."""
    newer = max(version, 3 if domain else 17)
    same = onnx.defs.get_schema(op, version, domain).since_version == onnx.defs.get_schema(op, newer, domain).since_version
    return newer if same and not onnx.defs.get_schema(op, newer, domain).deprecated else None


def value_of(attribute):
    value = onnx.helper.get_attribute_value(attribute)
    if attribute.type == onnx.AttributeProto.TENSOR:
        return onnx.numpy_helper.to_array(value)
    if attribute.type in (onnx.AttributeProto.STRING, onnx.AttributeProto.STRINGS):
        return value.decode() if isinstance(value, bytes) else [v.decode() for v in value]
    return value


def for_constructor(attribute):
    value = value_of(attribute)
    if attribute.type == onnx.AttributeProto.TYPE_PROTO:
        return types.from_proto(value)
    return types._dtype(value) if attribute.name in ("to", "dtype") and isinstance(value, int) else value


def apply(constructor, schema, case):
    """The variables that the constructor gives for the case's inputs and attributes."""
    node, declared = case.model.graph.node[0], {i.name: i.type for i in case.model.graph.input}
    given, made = [], {}
    for k, name in enumerate(node.input):
        var = made.setdefault(name, argument(types.from_proto(declared[name]))) if name else None
        if k < len(schema.inputs) - 1 or schema.inputs[-1].option.name != "Variadic":
            given.append(var)
        elif k == len(schema.inputs) - 1:
            given.append([var])
        else:
            given[-1].append(var)
    named = {a.name: for_constructor(a) for a in node.attribute}
    if "outputs_count" in constructor.__annotations__:
        named["outputs_count"] = len(node.output)
    results = constructor(*given, **named)
    return [results] if isinstance(results, Var) else [v for item in results for v in ([item] if isinstance(item, Var) else item)]


def check(case, key):
    domain, version, op = key
    opset, node = Opset(domain, version), case.model.graph.node[0]
    results = apply(opset.constructor(python_name(op)), onnx.defs.get_schema(op, version, domain), case)
    for var, name, info in zip(results, node.output, case.model.graph.output):
        assert not name or var.type._accepts(types.from_proto(info.type)), f"{key}: {var.type} for {types.from_proto(info.type)}"
    inputs, outputs = ([backend_cases._value(v) for v in part] for part in next(iter(case.data_sets)))
    values = dict(zip((i.name for i in case.model.graph.input), inputs))
    got = eager(op, domain, version, [values[n] if n else None for n in node.input], {a.name: value_of(a) for a in node.attribute}, len(node.output))
    got = [g for g, name in zip(got, node.output) if name]
    if not op.startswith(DRAWS):
        wrong = [w for g, want in zip(got, outputs) if (w := backend_cases._compare(g, want, case.rtol, max(case.atol, 1e-6)))]
        assert not wrong, f"{key}: {wrong}"


def test_constructors_and_eager_serve_every_operator_of_onnxs_cases():
    found, failed = cases(), []
    assert len(found) > 150
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for key, case in found.items():
            try:
                check(case, key)
            except Exception as error:
                failed.append(f"{key}: {type(error).__name__}: {error}")
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("page", ["spox.md"])
def test_what_the_page_shows_is_so(page):
    result = doctest.testfile(str(ROOT / "docs" / page), module_relative=False)
    assert result.attempted > 8 and not result.failed

"""Schemas as Python objects: constructors, conversion from ONNX, JSON."""
import inspect
import json

import numpy as np
import onnx
import pytest
from onnx import defs, helper, numpy_helper, onnx_ml_pb2

import dcml
from dcml import dtypes
from dcml.onnx.schema import (ONNXAttribute, ONNXAttributeType, ONNXParameter, ONNXParameterType, ONNXSchema, ONNXTypeConstraint,
                              onnx_representation)


def there_and_back(value):
    return type(value).from_json(json.loads(json.dumps(value.to_json())))


def test_every_schema_of_onnx_survives_json():
    schemas = defs.get_all_schemas_with_history()
    assert len(schemas) > 600
    for schema in schemas:
        ours = ONNXSchema.from_onnx_proto(schema)
        assert there_and_back(ours) == ours, schema.name
        assert (ours.name, ours.domain, ours.since_version) == (schema.name, schema.domain, schema.since_version)
        assert list(ours.attributes) == list(schema.attributes)
        assert [p.param_type.name for p in ours.inputs] == [p.option.name for p in schema.inputs]


@pytest.mark.parametrize("cls, signature", [
    (ONNXAttribute, "(name='', description='', required=False, attribute_type=<ONNXAttributeType.Int: 1>, default_value=None)"),
    (ONNXTypeConstraint, "(type_str='', types=[])"),
    (ONNXParameter, "(name='', description='', type_str='', param_type=<ONNXParameterType.Single: 1>, homogeneous=False)"),
    (ONNXSchema, "(name='', domain='', doc='', since_version=0, attributes={}, type_constraints={}, inputs=[], outputs=[])")])
def test_constructors_are_the_manuals(cls, signature):
    assert str(inspect.signature(cls)) == signature
    assert str(inspect.signature(cls.from_json)) == "(json, context=None)"
    assert str(inspect.signature(cls.from_onnx_proto)) == "(onnx_proto)"


def test_enumerations_have_the_manuals_numbers():
    assert [ONNXParameterType(k).name for k in (1, 2, 3)] == ["Single", "Optional", "Variadic"]
    assert [ONNXAttributeType(k).name for k in range(1, 9)] == ["Int", "Float", "String", "Ints", "Floats", "Strings", "Tensor", "Unsupported"]


def test_a_convolution_is_described():
    schema = ONNXSchema.from_onnx_proto(defs.get_schema("Conv", 12))
    assert [(p.name, p.param_type) for p in schema.inputs] == [
        ("X", ONNXParameterType.Single), ("W", ONNXParameterType.Single), ("B", ONNXParameterType.Optional)]
    assert schema.attributes["strides"].attribute_type is ONNXAttributeType.Ints
    assert schema.attributes["auto_pad"].default_value == "NOTSET"
    assert schema.type_constraints["T"].types == [dtypes.float16, dtypes.float32, dtypes.float64]
    assert "seq(tensor(float))" in ONNXSchema.from_onnx_proto(defs.get_schema("SequenceAt", 11)).type_constraints["S"].types


def test_a_name_among_inputs_and_outputs_says_which_it_is():
    schema = ONNXSchema.from_onnx_proto(defs.get_schema("BatchNormalization", 9))
    assert [p.name for p in schema.inputs] == ["X", "scale", "B", "in_mean", "in_var"]
    assert [p.name for p in schema.outputs][:3] == ["Y", "out_mean", "out_var"]


def test_lists_are_not_shared():
    ONNXSchema().inputs.append(1)
    assert ONNXSchema().inputs == []


@pytest.mark.parametrize("act", [lambda: ONNXAttribute(nam="x"), lambda: ONNXAttribute(name=3), lambda: ONNXSchema.from_onnx_proto(3),
                                 lambda: setattr(ONNXParameter(), "homogeneous", "yes")])
def test_wrong_properties_are_type_errors(act):
    with pytest.raises(TypeError, match="ONNX"):
        act()


@pytest.mark.parametrize("json", [3, {}, {"$type": "ONNXParameter"}, {"$type": "ONNXSchema", "nam": 1}, {"$type": "ONNXSchema", "inputs": 1},
                                  {"$type": "ONNXSchema", "inputs": [{"$type": "Unknown"}]},
                                  {"$type": "ONNXSchema", "attributes": {"a": {"$type": "ndarray", "dtype": "f4", "shape": [7], "base64": ""}}}])
def test_malformed_json_is_a_model_error(json):
    with pytest.raises(dcml.ModelError):
        ONNXSchema.from_json(json)


def test_json_of_any_depth_is_refused():
    deep = []
    for _ in range(500):
        deep = [deep]
    with pytest.raises(dcml.ModelError, match="levels"):
        ONNXSchema.from_json({"$type": "ONNXSchema", "inputs": deep})


def test_any_message_can_be_represented():
    @onnx_representation(onnx.ValueInfoProto, element=lambda v: v.type.tensor_type.elem_type, shape="type")
    class ValueInfo:
        """An input or output."""
        name: str = ""
        element: int = 0
        shape: object = None

        def is_float(self):
            return self.element == 1
    value = ValueInfo.from_onnx_proto(helper.make_tensor_value_info("X", 1, [2, "N"]))
    assert value.name == "X" and value.is_float()
    assert value.shape == {"tensor_type": {"elem_type": 1, "shape": {"dim": [{"dim_value": 2}, {"dim_param": "N"}]}}}
    assert there_and_back(value) == value and ValueInfo() == ValueInfo("", 0, None)

    @onnx_representation(onnx.GraphProto)
    class Graph:
        input: list = []
        initializer: list = []
    weights = numpy_helper.from_array(np.float32([[1, np.nan]]), "w")
    graph = Graph.from_onnx_proto(helper.make_graph([], "g", [helper.make_tensor_value_info("X", 1, [2, "N"])], [], [weights]))
    assert graph.input == [value]
    np.testing.assert_array_equal(graph.initializer[0], [[1, np.nan]])
    assert there_and_back(graph) == graph


MESSAGES = [m for m in vars(onnx_ml_pb2).values() if isinstance(m, type) and hasattr(m, "DESCRIPTOR")]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: m.__name__)
def test_every_message_of_onnx_can_be_represented(message, monkeypatch):
    monkeypatch.setattr("dcml.onnx.schema._CONVERT", {})
    monkeypatch.setattr("dcml.onnx.schema._CLASSES", {})
    fields = message.DESCRIPTOR.fields_by_name
    cls = onnx_representation(message)(type("Any" + message.__name__, (), {"__annotations__": dict.fromkeys(fields, object), **dict.fromkeys(fields)}))
    assert there_and_back(cls.from_onnx_proto(message())) == cls.from_onnx_proto(message())


def test_an_unknown_field_or_property_is_named():
    with pytest.raises(TypeError, match="Lacking.key"):
        @onnx_representation(onnx.StringStringEntryProto)
        class Lacking:
            key: str

    @onnx_representation(onnx.StringStringEntryProto)
    class Wrong:
        nothing: str = ""
    with pytest.raises(dcml.ModelError, match="'nothing'"):
        Wrong.from_onnx_proto(onnx.StringStringEntryProto())

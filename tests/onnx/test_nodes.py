"""Operators as library nodes: classes, signatures, attributes, versions, connectors."""
import inspect
import pydoc
import subprocess
import sys

import numpy as np
import pytest

import dcml
import dcml.onnx as donnx
from dcml.onnx.nodes import operators
from dcml.onnx.nodes.onnx_op import connectors_in_order, library_class

# A few of the manual's signatures; all 167 were compared when this was written.
SIGNATURES = {
    "Abs": "(name)", "Conv": "(name, *, auto_pad='NOTSET', dilations=None, group=1, kernel_shape=None, pads=None, strides=None)",
    "ReduceSum": "(name, *, axes=None, keepdims=1)", "Cast": "(name, *, to)", "Softmax": "(name, *, axis=1)",
    "BatchNormalization": "(name, *, epsilon=9.999999747378752e-06, momentum=0.8999999761581421)",
    "AveragePool": "(name, *, auto_pad='NOTSET', ceil_mode=0, count_include_pad=0, kernel_shape, pads=None, strides=None)",
    "Split": "(name, *, axis=0, split=None)", "Dropout": "(name, *, seed=None)", "MeanVarianceNormalization": "(name, *, axes=[0, 2, 3])",
    "RNN": "(name, *, activation_alpha=None, activation_beta=None, activations=['Tanh', 'Tanh'], clip=None, direction='forward', "
           "hidden_size=None)",
    "LabelEncoder": "(name, *, default_float=-0.0, default_int64=-1, default_string='_Unused', keys_floats=None, keys_int64s=None, "
                    "keys_strings=None, values_floats=None, values_int64s=None, values_strings=None)",
    "Momentum": "(name, *, alpha, beta, mode, norm_coefficient)", "Upsample": "(name, *, mode='nearest')", "Scatter": "(name, *, axis=0)"}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures_are_the_manuals(name):
    assert str(inspect.signature(getattr(donnx, "ONNX" + name))) == SIGNATURES[name]


def test_every_operator_has_a_class():
    names = operators.names()
    assert len(names) > 220 and {"GlobalMaxPool", "If", "Gelu", "Adam", "TreeEnsembleRegressor"} <= set(names)
    for name in names:
        cls = getattr(donnx, "ONNX" + name)
        assert cls is donnx.get_onnx_node(name) and donnx.has_onnx_node(name) and issubclass(cls, donnx.ONNXOp)
        assert cls.schema.name == name and "ONNX" + name in dir(donnx)


def test_what_is_no_operator_has_none():
    assert not donnx.has_onnx_node("GraphCall") and not hasattr(donnx, "ONNXGraphCall") and not hasattr(donnx, "Conv")
    with pytest.raises(dcml.UnsupportedOpError, match="'GraphCall'"):
        donnx.get_onnx_node("GraphCall")
    with pytest.raises(TypeError, match="no operator"):
        donnx.ONNXOp("x")


def test_importing_loads_no_onnx_package():
    code = "import dcml.onnx, dcml.sdfg, sys; print(sorted({'onnx', 'torch'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_help_shows_parameters_types_and_attributes():
    text = pydoc.render_doc(donnx.ONNXConv, renderer=pydoc.plaintext)
    for part in ("W (T, single): The weight", "B (T, optional)", "T: float16, float32, float64", "strides (Optional[List[int]], default=None)",
                 "Node outputs:"):
        assert part in text


# -- attributes -----------------------------------------------------------------------------------
def test_attributes_are_python_values():
    conv = donnx.ONNXConv("c", strides=(np.int64(2), 2), group=np.int32(1))
    assert conv.strides == [2, 2] and conv.group == 1 and conv.auto_pad == "NOTSET" and conv.pads is None and conv.label == "c"
    conv.strides = [3, 3]
    assert conv.strides == [3, 3]
    conv.strides = None
    assert conv.strides is None
    np.testing.assert_array_equal(donnx.ONNXConstant("k", value=[1.0, 2.0]).value, [1, 2])
    assert type(donnx.ONNXLeakyRelu("l", alpha=1).alpha) is float


@pytest.mark.parametrize("act, part", [
    (lambda: donnx.ONNXConv("c", stride=2), "ONNXConv has no attribute 'stride'.*strides"), (lambda: donnx.ONNXCast("c"), "ONNXCast.*'to'"),
    (lambda: donnx.ONNXConv("c", strides="a"), "'strides'.*List.int.*'a'"), (lambda: donnx.ONNXConv("c", strides=[1, "a"]), r"'strides'\[1\]"),
    (lambda: donnx.ONNXConv(), "'name'"), (lambda: donnx.ONNXConv("a", [1, 1]), "keyword"), (lambda: donnx.ONNXConv("a", group=1.5), "'group'"),
    (lambda: setattr(donnx.ONNXConv("c"), "stride", 1), "'stride'"), (lambda: setattr(donnx.ONNXCast("c", to=1), "to", None), "'to'"),
    (lambda: setattr(donnx.ONNXCast("c", to=1), "to", "float"), "'to'"), (lambda: setattr(donnx.ONNXAbs("c"), "implementation", 3), "implementation"),
    (lambda: donnx.ONNXAbs("c", axis=1), "it has none"), (lambda: donnx.ONNXConstant("k", value="a"), "'value'")])
def test_wrong_attributes_are_type_errors(act, part):
    with pytest.raises(TypeError, match=part):
        act()


@pytest.mark.parametrize("node, opset", [
    (lambda: donnx.ONNXReduceSum("r", axes=[1]), 12), (lambda: donnx.ONNXReduceSum("r", noop_with_empty_axes=1), 13),
    (lambda: donnx.ONNXBatchNormalization("b", training_mode=1), 14), (lambda: donnx.ONNXClip("c", min=0.0), 6),
    (lambda: donnx.ONNXGelu("g"), 20), (lambda: donnx.ONNXGelu("g", approximate="tanh"), 20), (lambda: donnx.ONNXNormalizer("n"), 2),
    (lambda: donnx.ONNXAdagrad("a"), 1), (lambda: donnx.ONNXReshape("r", allowzero=1), 14)])
def test_a_node_is_of_the_first_version_that_has_what_it_is_given(node, opset):
    assert node().opset == opset


def test_an_attribute_set_later_changes_the_version():
    node = donnx.ONNXBatchNormalization("b")
    node.training_mode = 1
    assert node.opset == 14 and node.schema.since_version == 14 and donnx.ONNXBatchNormalization.schema.since_version == 9


def test_requests_are_no_attributes():
    node = donnx.ONNXConv("c")
    assert node.implementation is None and node.backward_implementation is None
    node.implementation, node.backward_implementation = "pure", "mine"
    node.group = 2
    assert (node.implementation, node.backward_implementation, node.group) == ("pure", "mine", 2)
    node.implementation = None
    assert node.implementation is None and node.backward_implementation == "mine"


# -- connectors -----------------------------------------------------------------------------------
def test_required_parameters_are_connectors():
    assert list(donnx.ONNXConv("c").in_connectors) == ["X", "W"] and list(donnx.ONNXConv("c").out_connectors) == ["Y"]
    assert list(donnx.ONNXBatchNormalization("b").in_connectors) == ["X", "scale", "B", "in_mean", "in_var"]
    assert list(donnx.ONNXSum("s").in_connectors) == [] and list(donnx.ONNXSum("s").out_connectors) == ["sum"]


def test_a_connector_can_ask_for_a_later_version():
    node = donnx.ONNXReduceSum("r")
    assert node.add_in_connector("axes") and node.opset == 13


def test_connectors_have_a_place_in_onnx():
    assert connectors_in_order(donnx.ONNXSum.schema.inputs, ["data_0__1", "data_0__0"]) == ["data_0__0", "data_0__1"]
    assert connectors_in_order(donnx.ONNXClip.schema.inputs, ["max", "input"]) == ["input", None, "max"]


def test_nodes_of_graphs_find_their_class():
    assert library_class("", "Conv", 11) is donnx.ONNXConv and library_class("ai.onnx", "Conv", 21) is donnx.ONNXConv
    assert library_class("com.example", "Conv", 1) is None and library_class("", "Nothing", 1) is None
    assert library_class("dcml", "Rng", 1).__name__ == "ONNXRng"

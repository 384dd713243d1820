"""What scripts become: names, functions, attributes, control flow; and what is refused, with the line."""
import re
import typing
import warnings
from typing import List, Optional, Sequence

import numpy as np
import onnx
import pytest

import dcml
from dcml.onnx import ONNXModel
from dcml.script import BOOL, DOUBLE, FLOAT, INT64, TranslationError, graph, opset14, opset16, script
from dcml.script import opset11 as op11
from dcml.script import opset18 as op
from dcml.script.onnx_types import FLOAT16, TensorType, tensor_type_registry
from dcml.script.values import Opset


def nodes(script):
    return [node.op_type for node in script.to_function_proto().node]


# -- functions and models -----------------------------------------------------------------------------------
def test_a_function_has_names_text_and_documentation():
    @script()
    def square(x: FLOAT["N"], k: int = 3) -> FLOAT["N"]:
        """The square."""
        return op.Mul(x, x)
    assert square.name == square.__name__ == "square" and square.__doc__ == "The square." and square.opset == Opset("this", 1)
    assert "def square(x" in square.source and square.function(2.0).value == 4
    proto = square.to_function_proto()
    assert (proto.name, proto.domain, proto.doc_string, list(proto.input), list(proto.output)) == ("square", "this", "The square.", ["x"], ["return_val"])
    assert [(o.domain, o.version) for o in proto.opset_import] == [("", 18)] and proto.attribute_proto[0].i == 3
    x, k = square.param_schemas()
    assert (x.name, x.is_input, x.required) == ("x", True, True) and (k.name, k.is_attribute, k.required, k.default) == ("k", True, False, 3)
    assert square.op_schema.name == "square" and square.op_schema.attributes["k"].default_value.i == 3


def test_types_are_given_to_models_in_three_ways():
    @script()
    def add(x, y: INT64["N"] = None):
        z = op.Mul(x, op.CastLike(y, x))
        return z
    assert not add.to_model_proto().graph.input[0].HasField("type")
    both = add.to_model_proto(io_types=FLOAT["N"])
    assert [v.type.tensor_type.elem_type for v in (*both.graph.input, *both.graph.output)] == [1, 7, 1]
    each = add.to_model_proto(input_types=[DOUBLE["N"], INT64["N"]], output_types=[DOUBLE["N"]], producer_name="me", ir_version=9)
    assert [v.type.tensor_type.elem_type for v in (*each.graph.input, *each.graph.output)] == [11, 7, 11]
    assert each.producer_name == "me" and each.ir_version == 9 and each.graph.output[0].name == "z"
    onnx.checker.check_model(each, full_check=True)
    with pytest.raises(TypeError, match="producer"):
        add.to_model_proto(producer="me")
    with pytest.raises(ValueError, match="input_types has 1 types, expected 2"):
        add.to_model_proto(input_types=[FLOAT])


def test_value_infos_are_given_or_annotated():
    @script()
    def twice(x: FLOAT["N"]) -> FLOAT["N"]:
        square: FLOAT["N"] = op.Mul(x, x)
        return op.Add(square, square)
    info, = twice.to_model_proto().graph.value_info
    assert info.name == "square" and info.type.tensor_type.shape.dim[0].dim_param == "N"
    assert [v.name for v in twice.to_model_proto(value_infos={"square": FLOAT[3]}).graph.value_info] == ["square"]


def test_scripts_that_are_called_are_local_functions_once_and_give_their_opset():
    from dcml.script import opset19

    @script()
    def double(x):
        return opset19.Add(x, x)

    @script()
    def quadruple(x):
        return double(double(x))

    @script()
    def outer(x: FLOAT["N"]):
        return double(quadruple(x))
    model = outer.to_model_proto()
    assert sorted(f.name for f in model.functions) == ["double", "quadruple"]
    assert [(o.domain, o.version) for o in model.opset_import if o.domain == ""] == [("", 19)] and len(model.opset_import) == 2
    assert ONNXModel("m", model)(np.ones(2, np.float32)).tolist() == [8, 8] and outer(np.ones(2, np.float32)).tolist() == [8, 8]


def test_outputs_of_a_model_have_its_names_whatever_functions_have():
    @script()
    def inner(x):
        y = op.Neg(x)
        return y

    @script()
    def outer(x: FLOAT["N"]):
        z = inner(x)
        y = op.Abs(z)
        return y, z
    model = ONNXModel("m", outer.to_model_proto())
    assert model.outputs == ["y", "z"] and [r.tolist() for r in model(np.float32([1]))] == [[1], [-1]]


def test_a_script_runs_without_opset_but_a_model_needs_one():
    @script(default_opset=opset16)
    def increment(x):
        return x + 1
    assert [(o.domain, o.version) for o in increment.to_function_proto().opset_import] == [("", 16)]
    with pytest.raises(TranslationError, match="default_opset"):
        @script()
        def nothing(x):
            return x + 1


def test_two_versions_in_one_function_are_refused():
    with pytest.raises(TranslationError, match="two versions.*18 and 16|two versions.*16 and 18"):
        @script()
        def mixed(x):
            return opset16.Add(op.Neg(x), x)


def test_before_castlike_a_known_type_is_cast_to():
    @script(default_opset=opset14)
    def increment(x: DOUBLE["N"]):
        return x + 1
    assert nodes(increment) == ["Constant", "Cast", "Add"] and ONNXModel("m", increment.to_model_proto())(np.ones(1)).tolist() == [2]
    with pytest.raises(TranslationError, match="CastLike.*ai.onnx 15"):
        @script(default_opset=opset14)
        def unknown(x):
            return x + 1


# -- constants and attributes -------------------------------------------------------------------------------
def test_a_captured_bool_keeps_one_branch():
    def made(flag):
        @script()
        def model(x: FLOAT[10]):
            if flag:
                y = op.Add(x, x)
            else:
                y = op.Sub(x, x)
            return y
        return nodes(model)
    assert made(True) == ["Add"] and made(False) == ["Sub"]


def test_attributes_refer_to_parameters():
    @script()
    def softmax(x, axis: int = -1, names: Sequence[str] = ("a",), sizes: List[int] = None, low: Optional[float] = None):
        return op.Add(op.Softmax(x, axis=axis), op.CastLike(op.Constant(value_ints=sizes), x))
    proto = softmax.to_function_proto()
    assert list(proto.attribute) == ["sizes", "low"] and [a.name for a in proto.attribute_proto] == ["axis", "names"]
    reference = proto.node[0].attribute[0]
    assert (reference.name, reference.ref_attr_name, reference.type) == ("axis", "axis", onnx.AttributeProto.INT) and not reference.HasField("i")


def test_operands_that_are_attributes_take_the_type_beside_them():
    @script(default_opset=op)
    def scaled(x, alpha: float, flag: bool):
        return op.Where(flag, x * alpha, x)
    assert nodes(scaled) == ["Constant", "Cast", "Constant", "CastLike", "Mul", "Where"]
    with pytest.raises(ValueError, match="alpha|flag"):
        scaled.to_model_proto(io_types=FLOAT["N"])


def test_none_leaves_attributes_and_inputs_out():
    @script()
    def absent(x):
        return op.Clip(op11.Squeeze(x, axes=None), None, x) if False else op11.Squeeze(x, axes=None)
    assert not absent.to_function_proto().node[0].attribute

    @script()
    def clipped(x):
        return op.Clip(x, None, x)
    assert list(clipped.to_function_proto().node[0].input) == ["x", "", "x"]


def test_every_value_has_a_name_of_its_own():
    @script()
    def many(x, tmp, const_0):
        y = op.Add(op.Shape(x)[-1], 1) + op.CastLike(1, op.Shape(x))
        y = y + 1
        if op.Size(x) > 1:
            y = y + 2
        else:
            y = y + 3
        return y, y
    names = []

    def collect(found):
        for node in found:
            names.extend(node.output)
            for attribute in node.attribute:
                collect(attribute.g.node)
    proto = many.to_function_proto()
    collect(proto.node)
    assert len(names) == len(set(names)) and not {"x", "tmp", "const_0"} & set(names) and proto.output[0] != proto.output[1]


def test_signs_are_operators():
    @script(default_opset=op)
    def signs(a, b):
        c = (a + b) - (a * b) / (a ** b)
        d = (a == b) & (a != b) | (a < b)
        return c, d, a @ b, -a, a % 1.5, a >= b
    assert nodes(signs) == ["Add", "Mul", "Pow", "Div", "Sub", "Equal", "Equal", "Not", "And", "Less", "Or", "MatMul", "Neg", "Constant", "CastLike",
                            "Mod", "GreaterOrEqual"]
    assert next(n for n in signs.to_function_proto().node if n.op_type == "Mod").attribute[0].i == 1


# -- domains of one's own -----------------------------------------------------------------------------------
def test_unknown_operators_are_nodes_with_empty_names_for_none():
    mine = Opset("mine.unknown", 1)

    @script(default_opset=op)
    def custom(x):
        return mine.Anything(x, None, x, beta=3, names=["a"])
    node, = custom.to_function_proto().node
    assert (node.domain, list(node.input)) == ("mine.unknown", ["x", "", "x"]) and [a.type for a in node.attribute] == [2, 8]
    with pytest.warns(UserWarning, match="UnknownOp"):
        @script()
        def unknown(x):
            return op.UnknownOp(x, None, x)
    assert list(unknown.to_function_proto().node[0].input) == ["x", "", "x"]


def test_libraries_of_functions_with_attributes_run_and_train():
    torch = pytest.importorskip("torch")
    library, common = Opset("test.library", 1), Opset("test.library.common", 1)
    kind = typing.TypeVar("kind", bound=typing.Union[FLOAT, DOUBLE])

    @script(common)
    def is_scalar(x):
        return op.Size(op.Shape(x)) == op.Constant(value_int=0)

    @script(library)
    def softmax(x: kind, dim: int) -> kind:
        scalar = is_scalar(x)
        if scalar:
            x = op.Unsqueeze(x, op.Constant(value_ints=[0]))
        result = op.Softmax(x, axis=dim)
        if scalar:
            result = op.Squeeze(result)
        return result

    @script(library)
    def elu(x: kind, alpha: float = 1.0, scale: float = 1.0) -> kind:
        return op.Mul(op.CastLike(scale, x), op.Elu(x, alpha=alpha))

    @script(library)
    def cat(parts: Sequence[kind], dim: int = 0) -> kind:
        return op.ConcatFromSequence(parts, axis=dim)

    @script(default_opset=op)
    def model(x: FLOAT["N", 3]):
        y = softmax(x, dim=-1)
        return cat([y, elu(-x, 2.0, scale=0.5)], dim=1)
    proto = model.to_model_proto()
    assert sorted(f.name for f in proto.functions) == ["cat", "elu", "is_scalar", "softmax"] and len(proto.opset_import) == 3
    x = np.float32([[1, -2, 3]])
    e = np.exp(x - 3)
    want = np.concatenate([e / e.sum(), np.where(-x > 0, -x, 2 * np.expm1(-x)) / 2], 1)
    t = torch.from_numpy(x).requires_grad_()
    y = ONNXModel("m", proto)(t)
    y[0, 3:].sum().backward()
    assert np.allclose(model(x), want, atol=1e-6) and np.allclose(y.detach(), want, atol=1e-6)
    assert np.allclose(t.grad, np.where(-x > 0, -1, -2 * np.exp(-x)) / 2, atol=1e-6) and softmax(np.float32(3), 0) == 1


# -- control flow -------------------------------------------------------------------------------------------
def test_a_loop_with_a_break_has_a_true_condition():
    @script()
    def searching(x: FLOAT["N"]):
        for i in range(10):
            x = x * 2
            if op.ReduceSum(x, keepdims=0) > 10:
                break
        return x

    @script()
    def counting(x: FLOAT["N"]):
        for i in range(10):
            x = op.Mul(x, x)
        return x
    first = searching.to_function_proto().node
    loop = first[-1]
    made = {name: node for node in first for name in node.output}
    assert made[loop.input[1]].op_type == "Constant" and onnx.numpy_helper.to_array(made[loop.input[1]].attribute[0].t) == True  # noqa: E712
    assert counting.to_function_proto().node[-1].input[1] == ""


def test_bodies_may_be_used_twice_and_within_each_other():
    @script(default_opset=op)
    def twice(x: FLOAT["N"]):
        @graph()
        def add(s, e):
            t = s + e
            return t, op.Identity(t)
        zero = op.CastLike(0, x)
        a, _ = op.Scan(zero, x, body=add, num_scan_inputs=1)
        _, b = op.Scan(a, x, body=add, num_scan_inputs=1)
        return b
    x = np.float32([1, 2])
    assert twice(x).tolist() == [4, 6] == ONNXModel("m", twice.to_model_proto())(x).tolist()


def test_a_body_without_graph_is_told_of_when_it_runs_and_in_models():
    @script(default_opset=op)
    def forgotten(x: INT64):
        def body(i: INT64, going: BOOL, total: INT64):
            return op.Identity(going), total + i
        return op.Loop(x, None, 0, body=body)
    for call in (lambda: forgotten(np.int64(3)), forgotten.to_model_proto, forgotten.to_function_proto):
        with pytest.raises(TypeError, match="@graph"):
            call()


# -- what is refused -----------------------------------------------------------------------------------------
def unbound():
    @script()
    def f(x):
        return op.Mul(undefined, x)  # noqa: F821


def one_branch():
    @script()
    def f(x, c):
        if c:
            y = op.Neg(x)
        return y


def in_the_loop_only():
    @script()
    def f(x, n):
        for i in range(n):
            y = op.Neg(x)
        return y


def captured_and_assigned():
    @script()
    def f(x):
        temp = op.Neg(x)

        @graph()
        def inner(s, e):
            return s, op.Add(e, temp)
        temp = op.Abs(x)
        return op.Scan(x, x, body=inner, num_scan_inputs=1)


def returned_early():
    @script()
    def f(x, c):
        if c:
            return x
        return op.Neg(x)


def module_function():
    @script()
    def f(x):
        return np.sin(x)


def plain_function():
    def helper(x):
        return x

    @script()
    def f(x):
        return helper(op.Neg(x))


def comprehension():
    @script()
    def f(x):
        return [op.Neg(y) for y in x]


def computed_attribute():
    @script()
    def f(x):
        n = op.Size(x)
        return op.Softmax(x, axis=n)


def wrong_argument():
    @script()
    def f(x):
        return op.Add(x, C=x)


def wrong_attribute():
    @script()
    def f(x):
        return op.Softmax(x, axis="last")


def no_tensor():
    @script()
    def f(x):
        return op.Add(x, op.Constant(value=[1, op]))


def a_range_of_two():
    @script()
    def f(x):
        for i in range(1, 3):
            x = op.Neg(x)
        return x


def break_in_the_middle():
    @script()
    def f(x):
        for i in range(3):
            if op.Size(x) > 3:
                break
            x = op.Neg(x)
        return x


def changed_in_place():
    @script()
    def f(x):
        x[0] = op.Neg(x)
        return x


def no_return():
    @script()
    def f(x):
        y = op.Neg(x)  # noqa: F841


def too_many_names():
    @script()
    def f(x):
        a, b, c = op.TopK(x, [1])
        return a


def floor_division():
    @script(default_opset=op)
    def f(x):
        return x // 2


def variadic():
    @script()
    def f(*x):
        return op.Neg(x)


REFUSED = {unbound: "Unbound name: undefined", one_branch: "'y' is not set in the else branch", in_the_loop_only: "'y' is set in a loop",
           captured_and_assigned: "Outer scope variable 'temp'", returned_early: "return is the last statement", module_function: "np.sin is",
           plain_function: r"helper is a plain Python function: put @script\(\)", comprehension: "ListComp", computed_attribute: "'axis' must be known",
           wrong_argument: r"Add\(\).*'C'", wrong_attribute: "'axis' is an int", no_tensor: "list of Opset and int is no tensor", a_range_of_two: "one argument", break_in_the_middle: "last statement of a loop",
           changed_in_place: "ScatterElements", no_return: "return", too_many_names: "2 outputs, 3 are wanted", floor_division: "op.Floor",
           variadic: "fixed number of inputs"}


@pytest.mark.parametrize("define", REFUSED, ids=lambda define: define.__name__)
def test_what_no_function_can_say_is_refused_with_file_and_line(define):
    with pytest.raises((ValueError, TypeError), match=REFUSED[define]) as told, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        define()
    assert isinstance(told.value, dcml.Error)
    line = int(re.search(r"test_script_translation.py:(\d+): in script 'f'", str(told.value))[1])
    first = define.__code__.co_firstlineno
    assert first < line < first + 14


# -- types ----------------------------------------------------------------------------------------------------
def test_types_are_one_object_for_each_shape_and_have_no_instances():
    assert FLOAT["N", 3] is FLOAT["N", 3] and FLOAT[...] is FLOAT[...] and FLOAT[3] is not FLOAT[4] and FLOAT is not DOUBLE
    assert (FLOAT.dtype, FLOAT.shape, FLOAT[...].shape, FLOAT["N", None].shape, FLOAT16.dtype) == (1, None, ..., ("N", None), 10)
    assert not FLOAT.to_type_proto().tensor_type.shape.dim and FLOAT.to_type_proto().tensor_type.HasField("shape")
    assert not FLOAT[...].to_type_proto().tensor_type.HasField("shape") and FLOAT["N"].to_string() == "tensor(float)"
    assert repr(FLOAT["N", 3]) == "FLOAT['N', 3]" and len(tensor_type_registry) >= 16
    assert {kind.dtype: kind.to_type_proto().tensor_type.elem_type for kind in tensor_type_registry.values()} == {k: k for k in tensor_type_registry}
    for wrong, error in ((lambda: FLOAT(), NotImplementedError), (lambda: TensorType(), NotImplementedError), (lambda: FLOAT[...](), NotImplementedError),
                         (lambda: FLOAT[1][2], ValueError), (lambda: FLOAT[1.5], TypeError), (lambda: FLOAT[-1], TypeError)):
        with pytest.raises(error):
            wrong()


# -- names that ONNX Script's users meet ----------------------------------------------------------------------
def test_annotated_values_that_branches_and_bodies_give_have_their_types():
    @script()
    def absolute(x: DOUBLE["N"]) -> DOUBLE["N"]:
        if op.ReduceSum(x) > 0.0:
            y: DOUBLE["N"] = op.Identity(x)
            z: DOUBLE["N"] = x
        else:
            y: DOUBLE["N"] = op.Neg(x)
            z = y
        return y + z
    branches = [a.g for node in absolute.to_function_proto().node if node.op_type == "If" for a in node.attribute]
    kinds = {g.name: [o.type.tensor_type.elem_type for o in g.output] for g in branches}
    assert kinds == {"then": [11, 11], "else": [11, 11]}
    model = absolute.to_model_proto()
    onnx.checker.check_model(model, full_check=True)
    assert ONNXModel("m", model)(np.array([-1., -2.])).tolist() == [2, 4]


def test_arithmetic_under_an_opset_of_ones_own_is_its_operators_and_constants_are_the_newest_onnxs():
    mine = Opset("mine.arithmetic", 1)

    @script(default_opset=mine)
    def shifted(x, by: float):
        return mine.Shift(x + x, by)
    proto = shifted.to_function_proto()
    assert [(node.domain, node.op_type) for node in proto.node][0] == ("mine.arithmetic", "Add")
    assert {o.domain for o in proto.opset_import} == {"", "mine.arithmetic"}


def test_a_traced_function_is_the_python_function_with_an_opset():
    from dcml.script.values import TracedOnnxFunction

    def twice(x, times: int = 2):
        return op.Mul(x, times)
    traced = TracedOnnxFunction(Opset("mine.traced", 1), twice)
    assert traced.name == "twice" and traced.func is twice and traced.opset.domain == "mine.traced"
    assert typing.get_type_hints(traced) == {"times": int} and traced(np.int64(3)).value == 6


def test_types_are_shown_as_scripts_write_them():
    from dcml.script.onnx_types import onnx_type_to_onnxscript_repr as shown
    for kind, text in ((FLOAT, "FLOAT"), (FLOAT[...], "FLOAT[...]"), (FLOAT["N", 3, None], "FLOAT['N',3,None]")):
        assert shown(kind.to_type_proto()) == text
    sequence = onnx.helper.make_sequence_type_proto(INT64[2].to_type_proto())
    assert shown(sequence, reversible=False) == "List[INT64[2]]"
    with pytest.raises(NotImplementedError, match="no name"):
        shown(sequence)

"""Arguments that cannot be read are errors of dcml's that name them; what ends the process passes; odd layouts are read right."""
import numpy as np
import pytest
import torch
from onnx import TensorProto, helper

import dcml
from dcml import _core
from dcml.autodiff import vjp
from dcml.onnx import ONNXModel
from dcml.pytorch import dace_module

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def _tensor(name, shape):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _sequence(name):
    return helper.make_value_info(name, helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, None)))


def _model(node, inputs, output):
    return helper.make_model(helper.make_graph([node], "g", inputs, [output]), opset_imports=[helper.make_opsetid("", 18)])


NEG = _model(helper.make_node("Neg", ["x"], ["y"]), [_tensor("x", ["a", "b"])], _tensor("y", None))
INSERT = _model(helper.make_node("SequenceInsert", ["x", "item"], ["y"]), [_sequence("x"), _tensor("item", ["a", "b"])], _sequence("y"))


class Net(torch.nn.Module):
    def forward(self, x):
        return -x


def _core_call(x):
    return _core.Function(_core.import_onnx(NEG.SerializeToString(), None, False))(x)[0]


CALLS = {
    "ONNXModel": lambda x: ONNXModel("m", NEG)(x),
    "host program": lambda x: ONNXModel("m", INSERT)(x, X),
    "core": _core_call,
    "vjp": lambda x: vjp(NEG, {"x": x}, {"y": X}),
    "module": lambda x: dace_module(Net)()(x),
}
GRADIENT = {"gradient": lambda x: vjp(NEG, {"x": X}, {"y": x})}


class Rude(Exception):
    pass


class Mute(Exception):
    def __str__(self):
        raise Rude("even its text")


def _fails(kind):
    def method(*unused, **also_unused):
        raise kind("rude")
    return method


def _kind(**members):
    return type("Odd", (), members)()


class Untorchlike(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        raise Rude("rude")


def _holds_itself(kind):
    made = kind()
    made.append(made) if kind is list else made.update(a=made)
    return made


def _nested(depth):
    made = []
    for _ in range(depth):
        made = [made]
    return made


RUDE = {
    "a list that holds itself": lambda: _holds_itself(list),
    "a dictionary that holds itself": lambda: _holds_itself(dict),
    "a list 100,000 deep": lambda: _nested(100000),
    "an array method that raises": lambda: _kind(__array__=_fails(Rude)),
    "an array method whose error has no text": lambda: _kind(__array__=_fails(Mute)),
    "an array method that gives no array": lambda: _kind(__array__=lambda *a, **k: "no", dtype=np.dtype("float32"), shape=(1,)),
    "a type that raises": lambda: _kind(dtype=property(_fails(Rude)), shape=(2, 3)),
    "a shape that raises": lambda: _kind(dtype=np.dtype("float32"), shape=property(_fails(Rude))),
    "a shape of nonsense": lambda: _kind(dtype=np.dtype("float32"), shape=(-1, "x")),
    "a class that raises": lambda: _kind(__class__=property(_fails(Rude))),
    "an interface that raises": lambda: _kind(__array_interface__=property(_fails(Rude)), __dlpack__=_fails(Rude)),
    "every attribute raises": lambda: _kind(__getattr__=_fails(Rude)),
    "a tensor that raises": lambda: torch.ones(2, 3).as_subclass(Untorchlike),
    "a structured type": lambda: np.zeros((2, 3), [("a", "f4")]),
    "an array of objects": lambda: np.array([[1, None]], object),
    "numbers too large": lambda: [[10**400] * 3],
    "rows of different lengths": lambda: [[1, 2, 3], [1]],
    "a generator": lambda: (k for k in range(3)),
}
# What is read after all: lists of anything are sequences for the host, the core looks at no method of a tensor's.
READ = {("host program", "numbers too large"), ("host program", "rows of different lengths"), ("host program", "a class that raises"),
        ("core", "a tensor that raises"), ("gradient", "a structured type")}
# A module's forward may take whatever torch.export can trace, and says so by the line of forward.
OF_THE_TYPE = [name for name in RUDE if name not in (
    "a list that holds itself", "a dictionary that holds itself", "a list 100,000 deep", "a class that raises", "a tensor that raises")]
# Sequences of objects and maps are values of host programs.
OF_THE_HOST = ["a dictionary that holds itself", "an array of objects", "a generator", "a structured type", "a type that raises",
               "a shape that raises", "a shape of nonsense"]


def _names(call, name):
    return r"argument 0\b" if call == "module" and name not in OF_THE_TYPE else None if call == "module" else \
        "output 'y'" if call == "gradient" else "Sequence" if call == "host program" and name in OF_THE_HOST else "'x'"


@pytest.mark.parametrize("call, name", [(c, n) for c in (*CALLS, *GRADIENT) for n in RUDE if (c, n) not in READ])
def test_an_argument_that_cannot_be_read_is_an_error_that_names_it(call, name):
    with pytest.raises(dcml.Error, match=_names(call, name)):
        {**CALLS, **GRADIENT}[call](RUDE[name]())


@pytest.mark.parametrize("call", ["ONNXModel", "host program", "vjp", "gradient"])
def test_what_an_argument_raised_is_the_cause(call):
    with pytest.raises(dcml.Error) as caught:
        {**CALLS, **GRADIENT}[call](RUDE["an array method that raises"]())
    assert isinstance(caught.value.__cause__, Rude)


def test_what_an_array_like_raised_is_the_cause_where_the_core_reads_it():
    with pytest.raises(_core.ValueError_, match="input 'x': Rude: rude") as caught:
        _core_call(_kind(__array__=_fails(Rude), dtype=np.dtype("float32"), shape=(2, 3)))
    assert isinstance(caught.value.__cause__, Rude)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("call", ["ONNXModel", "host program", "core", "vjp", "gradient"])
def test_what_ends_the_process_passes(call, kind):
    with pytest.raises(kind):
        {**CALLS, **GRADIENT}[call](_kind(__array__=_fails(kind), dtype=np.dtype("float32"), shape=(2, 3)))


def test_an_object_that_claims_more_elements_than_it_has_is_read_as_what_it_has():
    liar = _kind(__array__=lambda *a, **k: X, dtype=np.dtype("float64"), shape=(1000, 1000))
    np.testing.assert_array_equal(_core_call(liar), -X)


ODD = {
    "another byte order": X.astype(">f4"),
    "negative strides": X[::-1, ::-1],
    "no permission to write": np.frombuffer(X.tobytes(), np.float32).reshape(2, 3),
    "an odd address": np.frombuffer(b"0" + X.tobytes(), np.uint8)[1:].view(np.float32).reshape(2, 3),
    "Fortran's order": np.asfortranarray(X),
    "a repeated row": np.broadcast_to(X[0], (4, 3)),
}


@pytest.mark.parametrize("call", ["ONNXModel", "core"])
@pytest.mark.parametrize("name", ODD)
def test_odd_layouts_are_read_right(name, call):
    np.testing.assert_array_equal(CALLS[call](ODD[name]), -np.asarray(ODD[name], np.float32))


@pytest.mark.parametrize("call", ["ONNXModel", "core"])
@pytest.mark.parametrize("x", [np.broadcast_to(np.float32(1), (1 << 40, 3)), torch.ones(1, 1).expand(1 << 40, 3)], ids=["numpy", "torch"])
def test_a_view_far_larger_than_memory_is_an_error_that_names_it(x, call):
    with pytest.raises(dcml.Error, match="'x'"):
        CALLS[call](x)


def test_results_that_numpy_cannot_hold_are_an_error_that_names_them():
    twice = _model(helper.make_node("Concat", ["x"] * 8, ["y"], axis=0), [_tensor("x", ["a", "b"])], _tensor("y", None))
    with pytest.raises(dcml.Error, match="'y'"):
        ONNXModel("m", twice)(np.zeros((1 << 58, 0), np.float32))


def test_a_gradient_of_another_shape_names_its_output():
    with pytest.raises(dcml.ShapeError, match="output 'y'"):
        vjp(NEG, {"x": X}, {"y": np.zeros(7, np.float32)})


def test_the_second_of_a_modules_arguments_is_named():
    class Two(torch.nn.Module):
        def forward(self, x, y):
            return x

    with pytest.raises(_core.ValueError_, match="argument 'y'"):
        dace_module(Two)()(torch.ones(2), y=_holds_itself(list))

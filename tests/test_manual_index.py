"""tools/manual_index.py: what it reads from a manual's text, and what it calls missing."""
import importlib.util
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
spec = importlib.util.spec_from_file_location("manual_index", ROOT / "tools" / "manual_index.py")
manual_index = importlib.util.module_from_spec(spec)
spec.loader.exec_module(manual_index)

MANUAL = r"""
7.1 Generating Backward Passes

add_thing (*first*, \*, *sec-
ond*=[0, 1], **mapping*)

**class ONNX Two** (*name*, \*, *al\_pha*=- 1.5)

#### **put** (*a, b=None*)

class PureTwo

8.3.1 Image-related Implementations

class PureThree

## PYTHON MODULE INDEX
`daceml.onnx`, 27
## Symbols
al\_pha (*ONNXTwo attribute*), 3
add\_thing() (in module *daceml.onnx*), 4  `ONNXTwo` (class in
*daceml.onnx.nodes*), 3
put() (*ONNXTwo method*), 3
daceml.onnx
   module, 27
"""


def test_names_come_from_the_index_and_parameters_from_the_chapters():
    assert list(manual_index.with_parameters(MANUAL, manual_index.index_entries(MANUAL))) == [
        "module onnx",
        "function onnx.add_thing(first, *, second=[0, 1], **mapping)",
        "class onnx.nodes.ONNXTwo(name, *, al_pha=-1.5)",
        "attribute onnx.nodes.ONNXTwo.al_pha",
        "method onnx.nodes.ONNXTwo.put(a, b=None)",
        "class onnx.op_implementations.img_op_implementations.PureThree",
        "class onnx.op_implementations.pure_implementations.PureTwo",
    ]


@pytest.mark.parametrize("function, text, wrong", [
    (lambda a, *, b=1e-5: 0, "a, *, b=9.999999747378752e-06", ""),
    (lambda a=None, *, b, c=0: 0, "a, *, b", ""),
    (lambda a, b=1.0: 0, "a, b=1", "b=1 is b=1.0"),
    (lambda a, *, b: 0, "a, *, b='X'", "b='X' is b"),
    (lambda a, *, b=None: 0, "a, *, b", "b has a default"),
    (lambda b, a: 0, "a, b", "a is passed otherwise"),
    (lambda a, b: 0, "a", "wants b"),
    (lambda a: 0, "a, b=[0, 1]", "no parameter b"),
    (lambda *inputs, **options: 0, "*args, **kwargs", ""),
    (lambda inputs: 0, "*inputs", "no parameter inputs"),
])
def test_parameters_are_compared(function, text, wrong):
    assert manual_index.difference(function, "function", text) == wrong


def test_a_name_is_missing_or_there():
    lines = ["module onnx", "class onnx.ONNXModel(name, model)", "method onnx.ONNXModel.fly(far)", "class onnx.nothing.ONNXNone(name)"]
    assert list(manual_index.missing(lines)) == [("onnx.ONNXModel.fly", "no dcml.onnx.ONNXModel.fly"),
                                                 ("onnx.nothing.ONNXNone", "no dcml.onnx.nothing")]


def test_every_line_of_the_list_is_understood():
    lines = [line for line in manual_index.NAMES.read_text().splitlines() if not line.startswith("#")]
    assert sum(not line.startswith("module ") for line in lines) == 613
    list(manual_index.missing(lines))

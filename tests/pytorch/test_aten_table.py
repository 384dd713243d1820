"""aten.def: each row names an overload that torch has and an operator that the core has, and says what both take."""
import ast
import importlib
import pathlib

import pytest
import torch

from dcml import _core
from dcml.pytorch import aten
from dcml.pytorch.aten.named import NamedRow, rows
from dcml.pytorch.trace import own_gradient

TEXT = (pathlib.Path(aten.__file__).parent / "aten.def").read_text()
ROWS = list(rows(TEXT))
OPERATORS = {}
for _one in _core.ops():
    OPERATORS.setdefault((_one["domain"], _one["name"]), []).append(_one)


def overload(name):
    space, operator, kind = name.split(".")
    if space == "prims":
        importlib.import_module("torch._inductor.inductor_prims")
    return getattr(getattr(getattr(torch.ops, space), operator), kind)


def operators(tree):
    """(domain, name, number of inputs, attributes) of each operator in an expression."""
    for call in [node for node in ast.walk(tree) if isinstance(node, ast.Call)]:
        name = ast.unparse(call.func)
        if name not in ("as_is", "bool", "float", "int"):
            domain, _, operator = name.rpartition(".")
            yield domain, operator, len(call.args), {one.arg for one in call.keywords}


def test_each_overload_has_one_row():
    names = [row.overload for row in ROWS]
    assert len(names) == len(set(names)) > 100
    assert [name for name in names if not isinstance(aten.TABLE[name], NamedRow)] == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.overload)
def test_a_row_takes_what_its_overload_takes_and_gives_it_to_an_operator(row):
    names, defaults, open_ended, expression = row.parse()
    own_gradient.define_border()
    taken = overload(row.overload)._schema.arguments
    assert len(names) <= len(taken) if open_ended else len(names) == len(taken)
    assert [a.name for a, name in zip(taken, names) if a.kwarg_only and a.name != name] == []
    assert [name for a, name in zip(taken, names) if a.has_default_value() and not open_ended and name not in defaults] == []
    for domain, name, n, attributes in operators(expression):
        assert (domain, name) in OPERATORS, f"there is no operator {name}"
        fits = [one for one in OPERATORS[domain, name] if attributes <= one["attributes"].keys()
                and (n <= len(one["inputs"]) or one["inputs"][-1]["variadic"])
                and n >= sum(not i["optional"] and not i["variadic"] for i in one["inputs"])]
        assert fits, f"{name} does not take {n} inputs and {attributes}"


@pytest.mark.parametrize("arguments, expression, message", [
    ("x", "Abs(y)", "'y' is no argument"), ("x", "Abs(x", "never closed|EOF"), ("x, 2", "Abs(x)", "id"),
    ("x", "Clip(x, 'a')", "'a'"), ("x", "Elu(x, alpha=x + 1)", "attribute 'alpha'"), ("x", "x + 1", "no argument, number or"),
    ("x", "bool(Abs(x))", "converts no argument"), ("x", "(lambda: x)()", "names no operator")])
def test_a_bad_row_is_refused(arguments, expression, message):
    with pytest.raises(ValueError, match=message):
        NamedRow("aten.abs.default", arguments, expression).parse()


def test_arguments_that_a_row_does_not_know_are_refused():
    with pytest.raises(TypeError, match="aten.abs.default takes x, not 2 arguments"):
        aten.TABLE["aten.abs.default"](None, None, 1, 2)

"""Reads aten.def: overloads that are operators by another name.

The one idea: the operator that a row names, as in ``Mul(x, Sigmoid(x))``, is an expression of Python's own syntax.  It is
walked when the overload is first met; until then a row is a line of text.
Must not know: which operators there are.
"""
import ast
import os

import torch

from .builder import TABLE, meta

_CASTS = {"as_is": None, "bool": torch.bool}
_NUMBERS = {"float": float, "int": int}


class NamedRow:
    """A row as TABLE has them; ``parse`` raises ValueError for one that is none."""

    def __init__(self, overload, arguments, expression):
        self.overload, self._text = overload, (arguments, expression)
        self._parsed = None  # (names, defaults, does the rest not matter?, expression)

    def __call__(self, b, node, *args, **kwargs):
        names, defaults, open_ended, expression = self._parsed or self.parse()
        if not open_ended and len(args) > len(names) or kwargs.keys() - names and not open_ended:
            raise TypeError(f"{self.overload} takes {', '.join(names)}, not {len(args)} arguments and {sorted(kwargs)}")
        given = {**defaults, **dict(zip(names, args)), **{k: v for k, v in kwargs.items() if k in names}}
        return _Call(b, meta(node).dtype, given).value(expression)

    def parse(self):
        arguments, expression = self._text
        try:
            spec = ast.parse(f"f({arguments})", mode="eval").body
            rest = [one for one in spec.args if isinstance(one, ast.Constant) and one.value is ...]
            names = [one.id for one in spec.args if one not in rest] + [one.arg for one in spec.keywords]
            defaults = {one.arg: ast.literal_eval(one.value) for one in spec.keywords}
            tree = ast.parse(expression, mode="eval").body
            _check(tree, names)
        except (SyntaxError, AttributeError, ValueError) as error:
            raise ValueError(f"row {self.overload} of aten.def: {error}") from None
        self._parsed = names, defaults, bool(rest), tree
        return self._parsed


def _check(tree, names):
    """Raises ValueError unless all of an expression is a name, a number, a conversion or an operator of such."""
    if isinstance(tree, ast.Constant) and isinstance(tree.value, (int, float)) or isinstance(tree, ast.Name) and tree.id in names:
        return
    if not isinstance(tree, ast.Call):
        raise ValueError(f"{ast.unparse(tree)!r} is no argument, number or operator")
    if isinstance(tree.func, ast.Name) and tree.func.id in _CASTS:
        if tree.keywords or len(tree.args) != 1 or not isinstance(tree.args[0], ast.Name):
            raise ValueError(f"{ast.unparse(tree)!r} converts no argument")
    _operator(tree.func)
    for one in tree.args:
        _check(one, names)
    for one in tree.keywords:
        value = one.value.args[0] if _is_number(one.value) else one.value
        if not isinstance(value, ast.Constant) and not (isinstance(value, ast.Name) and value.id in names):
            raise ValueError(f"attribute {one.arg!r} is neither a constant nor an argument")


def _is_number(tree):
    return isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id in _NUMBERS and len(tree.args) == 1


def _operator(tree):
    """(domain, name) of what stands before a parenthesis."""
    if isinstance(tree, ast.Name):
        return "", tree.id
    if isinstance(tree, ast.Attribute) and isinstance(tree.value, ast.Name):
        return tree.value.id, tree.attr
    raise ValueError(f"{ast.unparse(tree)!r} names no operator")


class _Call:
    """An expression evaluated for one node: each argument is converted once."""

    def __init__(self, b, dtype, given):
        self._b, self._dtype, self._given, self._made = b, dtype, given, {}

    def value(self, tree):
        if isinstance(tree, ast.Constant):
            return self._b.const(tree.value, self._dtype)
        if isinstance(tree, ast.Name):
            return self._argument(tree.id, self._dtype)
        domain, name = _operator(tree.func)
        if name in _CASTS:
            return self._argument(tree.args[0].id, _CASTS[name])
        inputs = [self.value(one) for one in tree.args]
        return self._b.op(name, *inputs, domain=domain, **{one.arg: self._attribute(one.value) for one in tree.keywords})

    def _argument(self, name, dtype):
        if (name, dtype) not in self._made:
            self._made[name, dtype] = self._b(self._given[name], dtype)
        return self._made[name, dtype]

    def _attribute(self, tree):
        if _is_number(tree):
            return _NUMBERS[tree.func.id](self._attribute(tree.args[0]))
        return tree.value if isinstance(tree, ast.Constant) else self._given[tree.id]


def rows(text):
    """The NamedRows of the text of a table."""
    for line in text.splitlines():
        if line and not line.startswith("#"):
            overloads, arguments, expression = line.split("|")
            for overload in overloads.split(","):
                yield NamedRow(_full_name(overload.strip()), arguments.strip(), expression.strip())


def _full_name(overload):
    """'aten.abs.default' of 'abs'."""
    space = "" if overload.startswith(("dcml.", "dcml_border.", "prims.")) else "aten."
    return space + overload if "." in overload and space else f"{space}{overload}.default"


with open(os.path.join(os.path.dirname(__file__), "aten.def"), encoding="utf-8") as _file:
    TABLE.update({one.overload: one for one in rows(_file.read())})

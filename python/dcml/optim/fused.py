"""One compiled function for a step over many tensors.

The one idea: what happens to one element of a parameter is a few assignments; a graph repeats them for each of a number of
slots, whose extents are symbols, and writes its arguments in place.  Slots that a call does not need get empty tensors, so
that few graphs serve any number of parameters.  It must not know what an optimiser is.
"""
import functools
import re
from dataclasses import dataclass

import torch

from .. import _core

MOST_SLOTS = 192  # in one call: each takes some bytes of a graph, whether it is used or not
_TYPES = {torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16", torch.float16: "f16"}


@dataclass(frozen=True)
class Rule:
    """arrays: names of one letter, the first is the parameter.  scalars: names.  body: lines ``name = expression``, where
    the name is an array's, or that of a value that later lines use."""
    name: str
    arrays: str
    scalars: tuple
    body: tuple


def _slots(n):
    """At least n, one of 1, 2, 3, 4, 6, 8, 12, ...: a third at most is in vain."""
    power = 1 << max(n - 1, 0).bit_length()
    return n if n < 3 else power * 3 // 4 if n <= power * 3 // 4 else power


def _text(rule, kind, slots):
    work = "f64" if kind == "f64" else "f32"  # smaller types are computed in float32, and rounded where they are stored
    array = re.compile(rf"\b([{rule.arrays}])\b")
    lines = ["graph " + rule.name + " opset 21 {", *(f"  symbol N{k} >= 0" for k in range(slots))]
    lines += [f"  input {name}: {work}[]" for name in rule.scalars]
    lines += [f"  input {a}{k}: {kind}[N{k}]" for k in range(slots) for a in rule.arrays]
    lines.append("  state main {")
    for k in range(slots):
        lines.append(f"    map i in 0:N{k} {{")
        values = {}  # what the lines so far have given names, in full: the graph's "let" holds for one assignment only
        for line in rule.body:
            name, expression = line.split(" = ")
            expression = re.sub(r"\b[a-z]+\b", lambda m: values.get(m[0], m[0] + "[]" if m[0] in rule.scalars else m[0]), expression)  # noqa: B023
            if name not in rule.arrays:
                values[name] = f"({expression})"
                continue
            value = array.sub(rf"\g<1>{k}[i]" if kind == work else rf"{work}(\g<1>{k}[i])", expression)
            lines.append(f"      {name}{k}[i] = {value if kind == work else f'{kind}({value})'}")
        lines.append("    }")
    return "\n".join([*lines, "  }", "}"])


@functools.lru_cache(maxsize=128)
def _function(rule, kind, slots):
    return _core.Function(_core.parse(_text(rule, kind, slots)), flat=True)


@functools.lru_cache(maxsize=None)
def _empty(dtype, device):
    return torch.empty(0, dtype=dtype, device=device)


def apply(rule, dtype, scalars, tensors):
    """Changes the tensors as the rule says.

    scalars: numbers.  tensors: list of len(rule.arrays) a slot, which have one shape and the strides of a tensor without
    gaps; their versions are left alone.
    Raises dcml.DTypeError for a type that is none of torch's four floating-point types of two to eight bytes; dcml.ShapeError
    for tensors of a slot that lie otherwise; dcml.ValueError_ where memory of two arguments overlaps and one is written;
    dcml.DeviceError for tensors on several devices.  Nothing has changed then.
    """
    if dtype not in _TYPES:
        raise _core.DTypeError(f"a parameter has type {dtype}, expected one of {', '.join(map(str, _TYPES))}")
    width = len(rule.arrays)
    for begin in range(0, len(tensors), MOST_SLOTS * width):
        part = tensors[begin:begin + MOST_SLOTS * width]
        slots = _slots(len(part) // width)
        spare = [_empty(dtype, part[0].device)] * (slots * width - len(part))
        _function(rule, _TYPES[dtype], slots)(*scalars, *part, *spare)

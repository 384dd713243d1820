"""Whether a capture serves inputs of other extents than those that it was made for.

The one idea: what torch assumed of symbolic extents, while it traced and while it decomposed, is asked of each new input.
Must not know: graphs or how a call is run.
"""
import contextlib
import math

import torch

from ... import _core


class Doubt(Exception):
    """Something that cannot be said in a file; the message says what."""


class Guard:
    """Says whether a capture serves other inputs: extents, symbols with their ranges, and torch's own conditions."""

    def __init__(self, program, conditions, shapes):
        """conditions: of torch.export as text, of decompositions as (expression in symbols, value)."""
        self.shapes = shapes  # per graph input: list of int | symbol name
        ranges = {str(k): v for k, v in program.ranges.items()}
        symbols = {s for shape in shapes for s in shape if isinstance(s, str)}
        self._ranges = {s: (int(ranges[s].lower), _upper(ranges[s])) if s in ranges else (2, None) for s in symbols}
        self._conditions = [(compile(text, "<guard>", "eval"), text) for text in conditions if isinstance(text, str)]
        # by a number that values tell (u0), torch decides only what always holds
        self._decisions = [one for one in conditions if isinstance(one, tuple) and one[0].free_symbols
                           and not any(str(s).startswith(("u", "zuf")) for s in one[0].free_symbols)]
        unknown = [e for e, _ in self._decisions if not {str(s) for s in e.free_symbols} <= self._ranges.keys()]
        if unknown:
            raise _core.UnsupportedOpError(f"decomposing the program decides by {unknown[0]}, which no extent tells")
        self.symbolic = bool(self._ranges)

    @classmethod
    def known(cls, shapes, ranges):
        """Of extents and ranges that ``told`` gave."""
        made = cls.__new__(cls)
        made.shapes, made._ranges, made._conditions, made._decisions, made.symbolic = shapes, ranges, [], [], bool(ranges)
        return made

    def told(self):
        """(extents, {symbol: (lowest, highest or None)}); raises Doubt where there are conditions besides."""
        if self._conditions or self._decisions:
            raise Doubt("conditions between extents")
        return self.shapes, self._ranges

    def __str__(self):
        return ", ".join(f"[{', '.join(map(str, shape))}]" for shape in self.shapes)

    def refusal(self, tensors, arguments):
        """None if the capture serves these inputs, else the reason as text.

        tensors: graph inputs in order; arguments(): the call's arguments by parameter name.
        """
        values = {}
        for k, (tensor, shape) in enumerate(zip(tensors, self.shapes)):
            if len(shape) != tensor.dim():
                return f"tensor {k} has {tensor.dim()} dimensions, not {len(shape)}"
            for axis, (have, want) in enumerate(zip(tensor.shape, shape)):
                if (values.setdefault(want, have) if isinstance(want, str) else want) != have:
                    return f"extent {axis} of tensor {k} is {have}, not {values.get(want, want)}"
        for symbol, value in values.items():
            low, high = self._ranges[symbol]
            if value < low or high is not None and value > high:
                return f"extent {symbol} is {value}, outside [{low}, {'' if high is None else high}]"
        for expression, decided in self._decisions:
            if expression.subs({s: values[str(s)] for s in expression.free_symbols}) != decided:
                return f"not {expression} == {decided}"
        if not self._conditions:
            return None
        scope = {"L": arguments(), "torch": torch, "math": math}
        for code, text in self._conditions:
            try:
                met = eval(code, scope)  # noqa: S307  (text made by torch.export)
            except Exception:  # a guard that cannot be evaluated is not met
                met = False
            if not met:
                return f"not {text}"
        return None


def _upper(interval):
    with contextlib.suppress(Exception):
        bound = int(interval.upper)
        return bound if bound < 2**62 else None
    return None

"""What Spox offers as experimental: arithmetic on variables, initializers, and what is warned of.

Must not know: how operators are made.
"""
import contextlib
import enum

import numpy as np

from . import types
from .model import initializer
from .infer import _Levels
from .var import Var, pop_dispatcher, push_dispatcher


class TypeWarningLevel(enum.IntEnum):
    """What is warned of: nothing, types that are missing, incomplete ones too."""
    NONE = 0
    CRITICAL = 1
    INITIAL = 2
    OUTPUTS = 3


def set_type_warning_level(level):
    """Sets what is warned of from now on."""
    _Levels.warn = ("none", "critical", "initial", "initial")[TypeWarningLevel(level)]


@contextlib.contextmanager
def type_warning_level(level):
    """The same within a block."""
    before = _Levels.warn
    set_type_warning_level(level)
    try:
        yield
    finally:
        _Levels.warn = before


class _Arithmetic:
    def __init__(self, op, type_promotion, constant_promotion):
        self.op, self.promotes, self.takes_constants = op, type_promotion, constant_promotion

    def _both(self, *values, real=False):
        """The operands as variables of one type."""
        kinds = [v.unwrap_tensor().dtype if isinstance(v, Var) else v for v in values]
        for value in kinds:
            if not isinstance(value, (np.dtype, *((np.generic, int, float) if self.takes_constants else ()))):
                raise TypeError(f"{type(value).__name__} is no operand of a Var")
        dtypes = {k for k in kinds if isinstance(k, np.dtype)}
        if self.promotes:
            target = np.result_type(*kinds)
            target = np.dtype(float) if real and target.kind != "f" else target
        elif len(dtypes) > 1:
            raise TypeError(f"operands of types {' and '.join(sorted(map(str, dtypes)))}, which type_promotion=False leaves as they are")
        else:
            target, = dtypes
            wrong = [k for k in kinds if not isinstance(k, np.dtype) and target.kind in "biu" and np.result_type(k).kind == "f"]
            if wrong:
                raise TypeError(f"{wrong[0]!r} is no operand of a Var of type {target}")
        return [self._as(v, target) for v in values]

    def _as(self, value, target):
        if not isinstance(value, Var):
            return self.op.const(np.array(value, target))
        return self.op.cast(value, to=target) if self.promotes else value

    def add(self, a, b):
        return self.op.add(*self._both(a, b))

    def sub(self, a, b):
        return self.op.sub(*self._both(a, b))

    def mul(self, a, b):
        return self.op.mul(*self._both(a, b))

    def truediv(self, a, b):
        return self.op.div(*self._both(a, b, real=True))

    def floordiv(self, a, b):
        result = self.op.div(*self._both(a, b))
        kind = result.type
        return self.op.floor(result) if isinstance(kind, types.Tensor) and kind.dtype.kind not in "iu" else result

    def neg(self, a):
        return self.op.neg(a)

    def and_(self, a, b):
        return self.op.and_(a, b)

    def or_(self, a, b):
        return self.op.or_(a, b)

    def xor(self, a, b):
        return self.op.xor(a, b)

    def not_(self, a):
        return self.op.not_(a)


@contextlib.contextmanager
def operator_overloading(op, type_promotion=False, constant_promotion=True):
    """Within the block, or the function it decorates, variables have + - * / // & | ^ ~ and unary -.

    op: an opset module of ai.onnx.  type_promotion: cast operands as numpy would.  constant_promotion: numbers become
    constants.  Raises TypeError for operands that do not go together.
    """
    dispatcher = _Arithmetic(op, type_promotion, constant_promotion)
    push_dispatcher(dispatcher)
    try:
        yield
    finally:
        pop_dispatcher(dispatcher)


__all__ = ["TypeWarningLevel", "initializer", "operator_overloading", "set_type_warning_level", "type_warning_level"]

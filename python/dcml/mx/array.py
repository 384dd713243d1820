"""The array: NumPy's memory with operators of the core, and a place on the tape.

The one idea: an array is a name for a value.  A recorded one gets its value later, in-place operations give a name
another value, so that what was recorded before keeps what it read.
Must not know: how operators are called on the page of npx, files, random numbers.
"""
import weakref
from functools import update_wrapper

import numpy as onp

from .. import _core, memory
from . import tape
from .tape import state, types


class ndarray(_core.Array):
    """An array on the processor, as MXNet's ``mx.np.ndarray``; ``np.array`` makes one.

    ``dtype``, ``shape``, ``size``, ``ndim``; arithmetic, comparisons and indexing as NumPy's; ``attach_grad()``, ``grad``,
    ``backward()`` for what ``autograd.record()`` recorded.
    """
    # _data: NumPy's array, or None: its value comes with the tape's; _look: then (ONNX type, shape)
    # _tape: (segment, value) or None; _shared: its memory is also another array's; all are the core's members
    __slots__ = ()
    __array_priority__ = 1000.0
    __array_ufunc__ = None  # NumPy's arrays leave arithmetic with ours to us

    def _value(self):
        """NumPy's array, which is not to be written; what was recorded is run if it has to."""
        if self._data is None:
            self._tape[0].run()
            if self._data is None:
                raise _core.ValueError_("the array has no value: what was recorded with it could not be run")
        return self._data

    def _adopt(self, other):
        """Becomes what another array is, which nobody else holds: an in-place operation."""
        if self._shared and other._tape is None:
            onp.copyto(self._data, other._value().astype(self._data.dtype, copy=False))
            self._tape = None
            return self
        self._data, self._look, self._tape, self._shared = other._data, other._look, other._tape, False
        if other._tape is not None and other._tape[0].pending:
            segment, value = other._tape
            segment.holders[value] = (weakref.ref(self), value)
        return self

    # -- what it is ---------------------------------------------------------------------------------------
    @property
    def shape(self):
        return self._look[1] if self._data is None else self._data.shape

    @property
    def dtype(self):
        return tape.dtype_of(self._look[0]) if self._data is None else self._data.dtype

    @property
    def ndim(self):
        return len(self.shape)

    @property
    def size(self):
        n = 1
        for extent in self.shape:
            n *= extent
        return n

    @property
    def itemsize(self):
        return self.dtype.itemsize

    @property
    def device(self):
        from .device import Device
        return Device()

    ctx = context = device

    @property
    def stype(self):
        return "default"

    # -- gradients ----------------------------------------------------------------------------------------
    def attach_grad(self, grad_req="write", stype=None):
        """Gives the array a gradient, zeros at first; the array becomes a leaf, whatever it was computed from.

        grad_req: "write" (each backward() replaces it), "add" (adds to it) or "null" (no gradient).  The gradient of an array that
        is not of floats stays zeros."""
        if grad_req not in ("write", "add", "null"):
            raise _core.ValueError_(f"attach_grad: grad_req is 'write', 'add' or 'null', got {grad_req!r}")
        data = self._value()
        self._tape = None
        self._grad_req = None if grad_req == "null" else grad_req
        self._grad = None if grad_req == "null" else ndarray(memory.full(data.shape, 0, data.dtype))

    def drop_grad(self):
        """Takes the gradient away."""
        self._grad = self._grad_req = None

    @property
    def grad(self):
        """The gradient, an array; None without attach_grad()."""
        return self._grad

    def detach(self):
        """The same value without a history."""
        array = ndarray(self._value())
        self._shared = array._shared = True
        return array

    def backward(self, out_grad=None, retain_graph=False, train_mode=True):
        """Computes the gradients of this array, of which out_grad is the gradient (ones if None), by every leaf that it
        was computed from, and stores them in their ``grad``."""
        from .autograd import backward
        backward([self], None if out_grad is None else [out_grad], retain_graph, train_mode)

    # -- values -------------------------------------------------------------------------------------------
    def asnumpy(self):
        """A copy as NumPy's array."""
        return self._value().copy()

    def __array__(self, dtype=None, copy=None):
        data = self._value()
        return data.copy() if dtype is None else data.astype(dtype)

    def item(self, *args):
        """An element as a Python number: of an array with one element, or at an index."""
        return self._value().item(*args)

    def tolist(self):
        return self._value().tolist()

    def asscalar(self):
        return self._value().item()

    def wait_to_read(self):
        """Returns when the value is there."""
        self._value()

    def copy(self, order="C"):
        return invoke("Identity", "", 21, (self, ))[0]

    __copy__ = copy

    def __deepcopy__(self, memo):
        return ndarray(self._value().copy())

    def __reduce__(self):
        return ndarray, (self._value(), )

    def copyto(self, other):
        """Copies the value into another array, or to a device."""
        if not isinstance(other, ndarray):
            return self.copy()
        other[...] = self
        return other

    def to_device(self, device):
        """The array itself: there is one device."""
        from .device import check
        check(device)
        return self

    as_in_ctx = as_in_context = to_device

    def as_np_ndarray(self):
        return self

    as_nd_ndarray = as_np_ndarray

    def __len__(self):
        if not self.shape:
            raise TypeError("an array without dimensions has no length")
        return self.shape[0]

    def __iter__(self):
        return (self[k] for k in range(len(self)))

    def __bool__(self):
        return bool(self._value())

    def __float__(self):
        return float(self._value().item())

    def __int__(self):
        return int(self._value().item())

    def __index__(self):
        data = self._value()
        if data.dtype.kind not in "iu":
            raise TypeError(f"only an array of integers with one element is an index, this one is of {data.dtype}")
        return int(data.item())

    def __complex__(self):
        return complex(self._value().item())

    def __repr__(self):
        text = repr(self._value())
        return text.replace(", dtype=float32", "") if self.dtype == onp.float32 else text

    def __str__(self):
        return str(self._value())

    def __format__(self, spec):
        return format(self._value().item() if not self.shape else self._value(), spec)

    __hash__ = object.__hash__

    # -- indexing -----------------------------------------------------------------------------------------
    def __getitem__(self, key):
        from .indexing import get
        return get(self, key)

    def __setitem__(self, key, value):
        from .indexing import put
        put(self, key, value)

    # -- arithmetic ---------------------------------------------------------------------------------------
    def __mod__(self, other):
        return binary("Mod", self, other)

    def __rmod__(self, other):
        return binary("Mod", other, self)

    def __floordiv__(self, other):
        return floor_divide(self, other)

    def __rfloordiv__(self, other):
        return floor_divide(other, self)

    def __pow__(self, other):
        return power(self, other)

    def __rpow__(self, other):
        return power(other, self)

    def __ne__(self, other):
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else invoke("Not", "", 21, (equal, ))[0]

    def __and__(self, other):
        return logical("And", "BitwiseAnd", self, other)

    __rand__ = __and__

    def __or__(self, other):
        return logical("Or", "BitwiseOr", self, other)

    __ror__ = __or__

    def __xor__(self, other):
        return logical("Xor", "BitwiseXor", self, other)

    __rxor__ = __xor__

    def __invert__(self):
        return invoke("Not" if self.dtype.kind == "b" else "BitwiseNot", "", 21, (self, ))[0]

    def __pos__(self):
        return self

    def _in_place(self, result):
        if result is NotImplemented:
            return result
        if state.recording and self._grad_req is not None:
            raise _core.ValueError_("in-place operations on an array with attach_grad() cannot be recorded")
        if result.shape != self.shape:
            raise _core.ShapeError(f"an in-place operation gives shape {result.shape}, the array has {self.shape}")
        if result.dtype != self.dtype:
            result = invoke("Cast", "", 21, (result, ), {"to": types.of(self.dtype)})[0]
        return self._adopt(result)

    def __iadd__(self, other):
        return self._in_place(self.__add__(other))

    def __isub__(self, other):
        return self._in_place(self.__sub__(other))

    def __imul__(self, other):
        return self._in_place(self.__mul__(other))

    def __itruediv__(self, other):
        return self._in_place(self.__truediv__(other))

    def __imod__(self, other):
        return self._in_place(binary("Mod", self, other))

    def __ifloordiv__(self, other):
        return self._in_place(floor_divide(self, other))

    def __ipow__(self, other):
        return self._in_place(power(self, other))

    def __imatmul__(self, other):
        return self._in_place(self.__matmul__(other))

    def __iand__(self, other):
        return self._in_place(self & other)

    def __ior__(self, other):
        return self._in_place(self | other)

    def __ixor__(self, other):
        return self._in_place(self ^ other)


# -- running an operator ------------------------------------------------------------------------------------
# invoke(op, domain, opset, inputs, attributes=None, outputs=None): a list of the arrays that an operator makes: run at once, or
# recorded where an input has a gradient.
# inputs: a tuple of arrays; None: absent; NumPy's arrays: constants, which shapes may depend on.
# attributes: {name: number, text or tuple}; outputs: how many, None: those that are never left out.
invoke = _core.ArrayCalls(ndarray, state, tape.record)


def as_operator(otherwise, op, domain="", opset=21, least=1, most=1, types="inputs", attributes=None, reflected=False):
    """A function of ``least`` to ``most`` arrays that applies an operator, or asks ``otherwise``, which serves all calls in Python.

    types: "inputs": as the operator takes them; "floats", "numbers" (no truths) or "any": arrays of one such type, and Python's
    numbers beside them.  reflected: the operands are turned round."""
    return update_wrapper(_core.ArrayOperator(invoke, otherwise, op, domain, opset, least, most, types, attributes, reflected), otherwise)


def as_array(value, dtype=None):
    """An array of what a caller gave where one is expected: NumPy's array, a number, a list."""
    if type(value) is ndarray:
        return value
    data = onp.asarray(value)
    if dtype is None and not isinstance(value, (onp.ndarray, onp.generic)) and data.dtype.kind in "fiu":
        dtype = default_dtype()
    data = onp.ascontiguousarray(data, dtype) if data.ndim else onp.array(data, dtype)
    types.of(data.dtype)
    return ndarray(data)


_DEFAULT = [onp.dtype("float32")]


def default_dtype():
    """The type of floats that nothing says the type of: float32, or float64 after ``npx.set_np(dtype=True)``."""
    return _DEFAULT[0]


# -- arithmetic ---------------------------------------------------------------------------------------------
def joint(a, b):
    """The type in which two arrays meet: floats win over integers, then the wider one."""
    if a == b:
        return a
    if (a.kind in "fV") != (b.kind in "fV"):
        return a if a.kind in "fV" else b
    return onp.result_type(a, b)


def cast(array, dtype):
    """The array in another type; the array itself if it has that type."""
    return array if array.dtype == dtype else invoke("Cast", "", 21, (array, ), {"to": types.of(dtype)})[0]


def _scalar_dtype(dtype, value):
    """The type in which an array of a type meets a Python number."""
    if type(value) is bool:
        return dtype
    if dtype.kind in "fV":
        return dtype
    if type(value) is float:
        return default_dtype()
    return onp.dtype("int64") if dtype.kind == "b" else dtype


_NUMBERS = frozenset((int, float, bool))


def operands(a, b):
    """Two operands as arrays of one type; None where one of them is neither array nor number."""
    if type(a) is ndarray and type(b) is ndarray:
        da = a._data.dtype if a._data is not None else a.dtype
        db = b._data.dtype if b._data is not None else b.dtype
        if da is db or da == db:
            return a, b
        dtype = joint(da, db)
        return cast(a, dtype), cast(b, dtype)
    if type(a) is not ndarray and type(b) is not ndarray:
        a = as_array(a)
    array, number = (a, b) if type(a) is ndarray else (b, a)
    if type(number) not in _NUMBERS:
        if isinstance(number, onp.generic):
            number = number.item()
        elif isinstance(number, onp.ndarray):
            number = as_array(number)
        else:
            return None
    if type(number) is ndarray:
        return operands(array, number) if array is a else operands(number, array)
    dtype = _scalar_dtype(array.dtype, number)
    try:
        number = ndarray(onp.array(number, dtype))
    except OverflowError:
        raise _core.ValueError_(f"{number} is no value of {dtype}") from None
    array = cast(array, dtype)
    return (array, number) if type(a) is ndarray else (number, array)


_ON_NUMBERS = frozenset(("Add", "Sub", "Mul"))


def binary(op, a, b, real=False):
    """a op b with broadcasting; real: of integers too the result is a float."""
    pair = operands(a, b)
    if pair is None:
        return NotImplemented
    a, b = pair
    if a.dtype.kind == "b" and (op in _ON_NUMBERS or op in ("Mod", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "MatMul")):
        a, b = cast(a, onp.dtype("int64")), cast(b, onp.dtype("int64"))
    if real and a.dtype.kind in "biu":
        a, b = cast(a, default_dtype()), cast(b, default_dtype())
    if op == "Mod":
        return remainder(a, b)
    return invoke(op, "", 21, (a, b))[0]


def _add_arithmetic():
    """Gives arrays the operators of Python that are one of the core's."""
    def two(op, real, reflected):
        return (lambda self, other: binary(op, other, self, real)) if reflected else lambda self, other: binary(op, self, other, real)

    methods = {"__neg__": as_operator(lambda self: invoke("Neg", "", 21, (self, ))[0], "Neg"),
               "__abs__": as_operator(lambda self: invoke("Abs", "", 21, (self, ))[0], "Abs")}
    for name, op, taken in (("add", "Add", "numbers"), ("sub", "Sub", "numbers"), ("mul", "Mul", "numbers"), ("truediv", "Div", "floats"),
                            ("matmul", "MatMul", "numbers")):
        for reflected in (False, True):
            method = as_operator(two(op, taken == "floats", reflected), op, least=2, most=2, types=taken, reflected=reflected)
            methods[f"__{'r' * reflected}{name}__"] = method
    for name, op, taken in (("eq", "Equal", "any"), ("lt", "Less", "numbers"), ("le", "LessOrEqual", "numbers"),
                            ("gt", "Greater", "numbers"), ("ge", "GreaterOrEqual", "numbers")):
        methods[f"__{name}__"] = as_operator(two(op, False, False), op, least=2, most=2, types=taken)
    for name, method in methods.items():
        method.__name__, method.__qualname__ = name, f"ndarray.{name}"
        setattr(ndarray, name, method)


_add_arithmetic()


def floor_divide(a, b):
    """a // b, rounded towards minus infinity."""
    pair = operands(a, b)
    if pair is None:
        return NotImplemented
    a, b = pair
    if a.dtype.kind in "fV":
        return invoke("Floor", "", 21, (invoke("Div", "", 21, (a, b))[0], ))[0]
    rest = invoke("Mod", "", 21, (a, b))[0]
    return invoke("Div", "", 21, (invoke("Sub", "", 21, (a, rest))[0], b))[0]


def remainder(a, b):
    """a - floor(a / b) b, of operands of one type."""
    if a.dtype.kind not in "fV":
        return invoke("Mod", "", 21, (a, b))[0]
    whole = invoke("Floor", "", 21, (invoke("Div", "", 21, (a, b))[0], ))[0]
    return invoke("Sub", "", 21, (a, invoke("Mul", "", 21, (whole, b))[0]))[0]


def power(a, b):
    """a ** b; squares and roots by their own operators."""
    if type(a) is ndarray and type(b) in _NUMBERS:
        if b == 2:
            return binary("Mul", a, a)
        if b == 0.5 and a.dtype.kind in "fV":
            return invoke("Sqrt", "", 21, (a, ))[0]
        if b == 1 and a.dtype.kind in "fV":
            return a.copy()
    return binary("Pow", a, b)


def logical(op, bitwise, a, b):
    """``a & b`` and its like: of truths, or of the bits of integers."""
    pair = operands(a, b if type(b) is not bool else onp.bool_(b)) if type(a) is ndarray or type(b) is ndarray else None
    if pair is None:
        return NotImplemented
    return invoke(op if pair[0].dtype.kind == "b" else bitwise, "", 21, pair)[0]

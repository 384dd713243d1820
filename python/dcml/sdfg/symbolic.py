"""Sizes and indices with symbols: integer polynomials over symbols, floor divisions, remainders, minima and maxima.

The one idea: an expression is a sum of products with integer factors, so that equal ones have equal terms; what has no
symbol in it is an int.  The text form is Python's and the core's.
Must not know: what the numbers are extents or indices of.
"""
import ast

from .. import _core

MADE = set()  # names of the symbols that programs have made
_DEPTH = 100  # of nested atoms, and of the text that is read


class Symbolic:
    """An integer expression with symbols.  Immutable, hashable; equal to its own text, up to how that is written.

    ``+ - * // % **`` with ints and others give a Symbolic, or an int where no symbol is left.  ``free_symbols``: names.
    """
    __slots__ = ("_terms", "_text")

    def __init__(self, terms):
        self._terms = terms  # {tuple of sorted atoms: factor}; an atom is a name or (operator, argument, argument)
        self._text = None

    # -- arithmetic -----------------------------------------------------------------------------
    def __add__(self, other):
        other = _terms_of(other)
        if other is None:
            return NotImplemented
        sum_ = dict(self._terms)
        for product, factor in other.items():
            sum_[product] = sum_.get(product, 0) + factor
        return _made(sum_)

    __radd__ = __add__

    def __mul__(self, other):
        other = _terms_of(other)
        if other is None:
            return NotImplemented
        out = {}
        for a, x in self._terms.items():
            for b, y in other.items():
                product = tuple(sorted(a + b, key=_atom_text))
                out[product] = out.get(product, 0) + x * y
        return _made(out)

    __rmul__ = __mul__

    def __neg__(self):
        return self * -1

    def __pos__(self):
        return self

    def __sub__(self, other):
        return NotImplemented if _terms_of(other) is None else self + -1 * _from_terms(_terms_of(other))

    def __rsub__(self, other):
        return -self + other

    def __floordiv__(self, other):
        return _operation("//", self, other)

    def __rfloordiv__(self, other):
        return _operation("//", other, self)

    def __mod__(self, other):
        return _operation("%", self, other)

    def __rmod__(self, other):
        return _operation("%", other, self)

    def __truediv__(self, other):
        """Where it leaves no remainder; else raises ValueError_: ``//`` says what is wanted."""
        exact = _exact(self, other) if type(other) is int else None
        if exact is None:
            raise _core.ValueError_(f"({self}) / ({other}) may be no integer: write (({self}) // ({other}))")
        return exact

    def __pow__(self, exponent):
        if type(exponent) is not int or not 0 <= exponent <= 16:
            raise _core.ValueError_(f"({self}) ** {exponent}: expected an exponent from 0 to 16")
        out = 1
        for _ in range(exponent):
            out = self * out
        return out

    # -- looking --------------------------------------------------------------------------------
    @property
    def free_symbols(self):
        """Names of the symbols in it, as a set."""
        found = set()
        for product in self._terms:
            for atom in product:
                if isinstance(atom, str):
                    found.add(atom)
                elif atom[0] != "opaque":
                    found = found.union(*(a.free_symbols for a in atom[1:] if isinstance(a, Symbolic)))
        return found

    def subs(self, values):
        """The expression with symbols replaced: {name or symbol: int, Symbolic or text}."""
        values = {str(name): parse(value) for name, value in values.items()}
        return self._replaced(values)

    def _replaced(self, values):
        out = 0
        for product, factor in self._terms.items():
            term = factor
            for atom in product:
                term = term * _atom_replaced(atom, values)
            out = out + term
        return out

    def __eq__(self, other):
        if isinstance(other, str):
            try:
                other = parse(other)
            except _core.Error:
                return False
        return isinstance(other, Symbolic) and self._terms == other._terms

    def __hash__(self):
        return hash(str(self))

    def __str__(self):
        if self._text is None:
            self._text = _text(self._terms)
        return self._text

    def __repr__(self):
        return str(self)

    def __index__(self):
        raise TypeError(f"{self} has no value before the program is called")

    __bool__ = __int__ = __index__


class symbol(Symbolic):
    """A size that is known when a program is called: ``N = dcml.symbol("N")``.

    name: an identifier; dtype: an integer type, int64 in any case; the other arguments of DaCe's symbols (positive,
    ...) are accepted: a size is never negative.
    """
    __slots__ = ("name", "dtype")
    _unnamed = 0

    def __init__(self, name=None, dtype=None, **_):
        if name is None:
            symbol._unnamed += 1
            name = f"sym_{symbol._unnamed - 1}"
        if not str(name).isidentifier():
            raise _core.ValueError_(f"{name!r} is no name for a symbol")
        super().__init__({(str(name),): 1})
        from ..dtypes import int64, of
        MADE.add(str(name))
        self.name, self.dtype = str(name), int64 if dtype is None else of(dtype)

    def __reduce__(self):
        return symbol, (self.name,)


def parse(value, opaque=False):
    """An int or Symbolic from an int, a Symbolic, or a text as in Python, with min, max, int_floor and int_ceil.

    opaque: what is no arithmetic of these stays as it is, as an atom, instead of raising.
    Raises ValueError_ for a text that is no such expression, and for other values.
    """
    if type(value) is int or isinstance(value, Symbolic):
        return value
    if isinstance(value, str):
        name = value.strip()
        if name.isdecimal() and len(name) < 19:
            return int(name)
        if name.isidentifier():
            return Symbolic({(name,): 1})
        return _parsed(value, opaque)
    if hasattr(value, "__index__") and not isinstance(value, float):
        return value.__index__()
    raise _core.ValueError_(f"{value!r} is no size: expected an integer, a symbol or an expression of them")


def free_symbols(value):
    """Names of the symbols of an int, a Symbolic or a text."""
    value = parse(value)
    return value.free_symbols if isinstance(value, Symbolic) else set()


def evaluate(value, values):
    """The int that an expression is for {name: int}.  Raises ValueError_ naming a symbol without a value."""
    value = parse(value)
    if isinstance(value, Symbolic):
        value = value.subs(values)
    if isinstance(value, Symbolic):
        raise _core.ValueError_(f"symbol {sorted(value.free_symbols)[0]!r} has no value")
    return value


def minimum(a, b):
    return _operation("min", a, b)


def maximum(a, b):
    return _operation("max", a, b)


# -- terms ------------------------------------------------------------------------------------------
def _terms_of(value):
    """The terms of an int or Symbolic, None for another value."""
    if isinstance(value, Symbolic):
        return value._terms
    if hasattr(value, "__index__"):
        value = value.__index__()
        return {(): value} if value else {}
    return None


def _from_terms(terms):
    return terms.get((), 0) if not terms or tuple(terms) == ((),) else Symbolic(terms)


def _made(terms):
    return _from_terms({product: factor for product, factor in terms.items() if factor})


def _exact(value, divisor):
    """The quotient if it has no remainder for any value of the symbols, else None."""
    if divisor == 0 or any(factor % divisor for factor in value._terms.values()):
        return None
    return _made({product: factor // divisor for product, factor in value._terms.items()})


_NUMBERS = {"//": lambda a, b: a // b if b else 0, "%": lambda a, b: a % b if b else 0, "min": min, "max": max}


def _operation(operator, a, b):
    """``//`` and ``%`` (by 0: 0, as in the core), ``min`` and ``max`` as an int or an atom of its own."""
    if _terms_of(a) is None or _terms_of(b) is None:
        return NotImplemented
    a, b = _from_terms(_terms_of(a)), _from_terms(_terms_of(b))
    if type(a) is int and type(b) is int:
        return _NUMBERS[operator](a, b)
    if operator in ("//", "%") and type(b) is int and b:
        exact = _exact(a, b)
        if exact is not None:
            return exact if operator == "//" else 0
    if operator in ("min", "max"):
        difference = a - b
        if type(difference) is int:
            return (a if difference < 0 else b) if operator == "min" else (b if difference < 0 else a)
        a, b = sorted((a, b), key=str)
    atom = (operator, a, b)
    if _depth(atom) > _DEPTH:
        raise _core.ValueError_("a size is nested too deeply")
    return Symbolic({(atom,): 1})


def _depth(atom):
    if isinstance(atom, str):
        return 0
    return 1 + max((_depth(inner) for arg in atom[1:] if isinstance(arg, Symbolic) for product in arg._terms for inner in product),
                   default=0)


def _atom_replaced(atom, values):
    if isinstance(atom, str):
        return values.get(atom, Symbolic({(atom,): 1}))
    if atom[0] == "opaque":
        return Symbolic({(atom,): 1})
    return _operation(atom[0], *(a._replaced(values) if isinstance(a, Symbolic) else a for a in atom[1:]))


# -- text -------------------------------------------------------------------------------------------
def _atom_text(atom):
    if isinstance(atom, str):
        return atom
    operator = atom[0]
    if operator == "opaque":
        return atom[1]
    if operator in ("min", "max"):
        return f"{operator}({atom[1]}, {atom[2]})"
    return f"({_operand(atom[1])}{operator}{_operand(atom[2])})"


def _operand(value):
    text = str(value)
    return text if text.isidentifier() or text.isdecimal() else f"({text})"


def _text(terms):
    parts = []
    for product in sorted(terms, key=lambda p: (not p, [_atom_text(a) for a in p])):
        factor, text = terms[product], "*".join(_atom_text(a) for a in product)
        size = abs(factor)
        text = str(size) if not text else text if size == 1 else f"{size}*{text}"
        parts += [" - " if factor < 0 else " + ", text] if parts else ["-" if factor < 0 else "", text]
    return "".join(parts)


_BINARY = {ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b,
           ast.FloorDiv: lambda a, b: _operation("//", a, b), ast.Mod: lambda a, b: _operation("%", a, b),
           ast.Div: lambda a, b: a / b if isinstance(a, Symbolic) else _divided(a, b), ast.Pow: lambda a, b: a**b}
_CALLS = {"min": minimum, "Min": minimum, "max": maximum, "Max": maximum, "int_floor": lambda a, b: _operation("//", a, b),
          "int_ceil": lambda a, b: _operation("//", a + b - 1, b)}


def _divided(a, b):
    if type(b) is not int or b == 0 or a % b:
        raise _core.ValueError_(f"({a}) / ({b}) may be no integer: write //")
    return a // b


def _parsed(text, opaque):
    try:
        return of_ast(ast.parse(text.strip(), mode="eval").body, opaque)
    except _core.Error as error:
        raise type(error)(f"{text!r}: {error}") from None
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        if opaque:
            return Symbolic({(("opaque", text.strip()),): 1})
        raise _core.ValueError_(f"{text[:200]!r} is no size: expected an integer, a symbol or an expression of them") from None


def of_ast(node, opaque=False, depth=0):
    """An int or Symbolic of a Python expression.  Raises ValueError_ for what is none."""
    if depth > _DEPTH:
        raise _core.ValueError_("a size is nested too deeply")
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        return Symbolic({(node.id,): 1})
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        value = of_ast(node.operand, opaque, depth + 1)
        return -1 * value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        a, b = of_ast(node.left, opaque, depth + 1), of_ast(node.right, opaque, depth + 1)
        if isinstance(node.op, ast.Pow) and not (type(b) is int and 0 <= b <= 64):
            raise _core.ValueError_(f"exponent {b}: expected one from 0 to 64")
        return _BINARY[type(node.op)](a, b)
    if isinstance(node, ast.Call) and not node.keywords and len(node.args) >= 2:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
        if name in _CALLS and (len(node.args) == 2 or name.lower() in ("min", "max")):
            args = [of_ast(arg, opaque, depth + 1) for arg in node.args]
            out = args[0]
            for arg in args[1:]:
                out = _CALLS[name](out, arg)
            return out
    if opaque:
        return Symbolic({(("opaque", ast.unparse(node)),): 1})
    raise _core.ValueError_(f"{ast.unparse(node)[:100]!r} is no integer, symbol or expression of them")

"""Extents that stand for any number from 2 on: polynomials in symbols, as the nodes of torch.SymInt.

The one idea: each operator is asked what it gives for several values of the symbols at once, the least and large primes among
them; an extent is the one polynomial that has these values.  What is not decided alike for all values, or is no polynomial,
is beyond this.
Must not know: tensors, graphs, or who records.
"""
import itertools
import math
import operator

import torch

_NO_EXTENT = 1 << 62
LEAST = 2  # of what a symbol stands for: 0 and 1 are extents of their own
_LARGE = ((10007, 10009, 10037, 10039, 10061, 10067, 10069, 10079),
          (1000003, 1000033, 1000037, 1000039, 1000081, 1000099, 1000117, 1000121))
MOST_SYMBOLS = len(_LARGE[0])
LEAST_RANGE = 4 * MOST_SYMBOLS  # between bounds of a symbol, which have room for different values of all
_MOST_TERMS = 6  # of a sum of symbols


class Beyond(BaseException):
    """What runs cannot be written down here; the message says why.  No error of what runs, which may catch its own.
    decided: what Python had decided by values of tensors until then."""
    decided = ()


class Merge(Beyond):
    """Symbols that are one, in all calls that this recording serves."""

    def __init__(self, symbols):
        super().__init__(f"{' and '.join(sorted(symbols))} are one")
        self.symbols = symbols


class Fixed(Beyond):
    """Symbols that are numbers, in all calls that this recording serves."""

    def __init__(self, symbols, reason):
        super().__init__(reason)
        self.symbols = symbols


class Bounded(Beyond):
    """Symbols whose bounds are narrower, in all calls that this recording serves: {symbol: (lowest, highest or None)}."""

    def __init__(self, bounds, reason):
        super().__init__(reason)
        self.bounds = bounds


class Polynomial:
    """coefficients: {symbols, sorted, each as often as its power: integer}, none of them 0."""
    __slots__ = ("coefficients", "_key")

    def __init__(self, coefficients):
        self.coefficients = {symbols: c for symbols, c in coefficients.items() if c}
        self._key = frozenset(self.coefficients.items())

    def __eq__(self, other):
        return isinstance(other, Polynomial) and self._key == other._key

    def __hash__(self):
        return hash(self._key)

    def __add__(self, other):
        sum_of = dict(self.coefficients)
        for symbols, c in other.coefficients.items():
            sum_of[symbols] = sum_of.get(symbols, 0) + c
        return Polynomial(sum_of)

    def __mul__(self, other):
        product = {}
        for a, c in self.coefficients.items():
            for b, d in other.coefficients.items():
                symbols = tuple(sorted(a + b))
                product[symbols] = product.get(symbols, 0) + c * d
        return Polynomial(product)

    def __sub__(self, other):
        return self + other * number(-1)

    def at(self, values):
        """What it is for {symbol: value}."""
        return sum(c * _product([values[s] for s in symbols]) for symbols, c in self.coefficients.items())

    def signs(self, bounds):
        """Those of -1, 0 and 1 that it may have for values of the symbols within {symbol: (lowest, highest or None)}."""
        if (s := self.only_symbol()) and bounds[s][1] is not None:
            first, last = (self.at({s: value}) for value in bounds[s])
            signs = {(first > 0) - (first < 0), (last > 0) - (last < 0)}
            return signs if len(signs) == 1 or first * last >= 0 else {-1, 0, 1}
        above = number(0)
        for symbols, c in self.coefficients.items():  # in what the symbols are above the lowest
            above += _product([Polynomial({(s,): 1, (): bounds[s][0]}) for s in symbols], number(c))
        first, rest = above.coefficients.get((), 0), {c > 0 for symbols, c in above.coefficients.items() if symbols}
        sign = (first > 0) - (first < 0)
        if not rest or abs(first) > _NO_EXTENT:  # x[k:] ends there
            return {sign}
        if len(rest) == 1 and (first == 0 or rest == {first > 0}):
            return {sign, 1 if rest == {True} else -1}
        return {-1, 0, 1}

    def only_symbol(self):
        """The symbol that this is linear in; None where it is not linear in one."""
        symbols = [own for own in self.coefficients if own]
        return symbols[0][0] if len(symbols) == 1 and len(symbols[0]) == 1 else None

    def side(self, s, hint, with_root):
        """(lowest, highest), or None, of what the only symbol s may be where it lies on the side of the root on which the hint lies."""
        root, rest = divmod(-self.coefficients.get((), 0), self.coefficients[s,])
        at_root = rest == 0 and with_root
        if hint < root or hint == root and rest:
            return None, root if rest or at_root else root - 1
        return root if at_root else root + 1, None

    # as expressions of sympy, which torch.export has here, are asked
    is_number = property(lambda self: self.coefficients.keys() <= {()})
    is_Integer = is_number
    is_Symbol = property(lambda self: [(len(symbols), c) for symbols, c in self.coefficients.items()] == [(1, 1)])
    free_symbols = property(lambda self: {s for symbols in self.coefficients for s in symbols})

    @property
    def operation(self):
        """'Add' or 'Mul', of ``args``."""
        return "Add" if len(self.coefficients) > 1 else "Mul"

    @property
    def args(self):
        if self.operation == "Add":
            return [Polynomial({symbols: c}) for symbols, c in self.coefficients.items()]
        (symbols, c), = self.coefficients.items()
        return [*([number(c)] if c != 1 else []), *[symbol(s) for s in symbols]]

    def __int__(self):
        return self.coefficients.get((), 0)

    def __str__(self):
        terms = ["*".join([*([str(c)] if c != 1 or not symbols else []), *symbols]) for symbols, c in self.coefficients.items()]
        return " + ".join(terms) or "0"


def _product(factors, first=1):
    for factor in factors:
        first = first * factor
    return first


def number(value):
    return Polynomial({(): value})


def symbol(name):
    return Polynomial({(name,): 1})


class Worlds:
    """Values of symbols, {symbol: value} for each world: those of the call that is recorded, the least, and two large ones.

    hints: {symbol: its value in the call}; bounds: {symbol: (lowest, highest or None)}, by default from LEAST on.
    """

    def __init__(self, hints, bounds=()):
        self.hints, self.bounds = dict(hints), {**dict.fromkeys(hints, (LEAST, None)), **dict(bounds)}
        self.values = [self.hints]
        if hints:
            self.values += [{s: self.bounds[s][0] for s in hints}, *map(self._large, range(len(_LARGE)))]
        self._known = {}  # values in the worlds -> Polynomial

    def __len__(self):
        return len(self.values)

    def _large(self, k):
        """Different values for the symbols, within their bounds."""
        values = dict(zip(self.hints, _LARGE[k]))
        for which, s in enumerate(values):
            low, high = self.bounds[s]
            if high is not None:
                values[s] = high - 1 - which if k else (low + high) // 2 - which
        return values

    def alike(self, symbols):
        """Two or more of these symbols that are the same number in the call, or none."""
        groups = {}
        for s in symbols:
            groups.setdefault(self.hints[s], set()).add(s)
        return next((group for group in groups.values() if len(group) > 1), set())

    def narrowed(self, s, low, high):
        """Bounds of a symbol that are also these."""
        lowest, highest = self.bounds[s]
        return lowest if low is None else max(low, lowest), highest if high is None else high if highest is None else min(high, highest)

    def int_of(self, polynomial):
        """An int or torch.SymInt."""
        if polynomial.is_number:
            return int(polynomial)
        self._known.setdefault(tuple([polynomial.at(values) for values in self.values]), polynomial)
        return torch.SymInt(Number(polynomial, self))

    def fitted(self, found):
        """The int or torch.SymInt that has these values in the worlds."""
        if len(found) == 1 or all(value == found[0] for value in found):
            return found[0]
        if found not in self._known:
            self._known[found] = self._fit(found)
        return self.int_of(self._known[found])

    def _fit(self, found):
        one = number(1)
        for factor in self._factors(found):
            low, high = factor.at(self.values[1]), factor.at(self.values[-1])
            slope, rest = divmod(found[-1] - found[1], high - low)
            line = factor * number(slope) + one * number(found[1] - slope * low)
            if not rest and all(line.at(values) == value for values, value in zip(self.values, found)):
                return line
        raise Beyond(f"an extent that is {', '.join(map(str, found))} where {self.values}")

    def _factors(self, found):
        """What this extent may be a multiple of, but for a number, likely ones first."""
        symbols, known = [symbol(s) for s in self.hints], list(self._known.values())
        products = [a * b for k, a in enumerate(symbols) for b in symbols[k:]]
        yield from symbols
        yield from products
        yield from known
        yield from (a * b for a in symbols for b in known)
        yield from self._sums(found, symbols)
        yield from itertools.starmap(operator.add, itertools.combinations(dict.fromkeys([*symbols, *known, *products]), 2))

    def _sums(self, found, symbols):
        """Of the symbols, as of what is concatenated, as many as tell the largest world from the least."""
        if any(bounds != (LEAST, None) for bounds in self.bounds.values()):
            return
        count = (found[-1] - found[1]) // (min(self.values[-1].values()) - LEAST)
        common = math.gcd(*[value - found[1] + LEAST * count for value in found])
        for terms in range(2, _MOST_TERMS + 1) if common else ():
            if count >= terms and count % terms == 0 and common % (count // terms) == 0:
                yield from (sum(some, number(0)) for some in itertools.combinations_with_replacement(symbols, terms))


def _decided(positive, zero, negative):
    """A comparison of two numbers, by the sign of their difference."""
    def compare(self, other):
        difference, worlds = self.expr - other.expr, self.worlds or other.worlds
        found = {(negative, zero, positive)[sign + 1] for sign in difference.signs(worlds.bounds if worlds else {})}
        if len(found) == 1:
            return Truth(found.pop())
        symbols, value = difference.free_symbols, difference.at(worlds.hints)
        reason = f"Python code asks for the sign of {difference}"
        if value == 0 and worlds.alike(symbols):
            raise Merge(worlds.alike(symbols))
        s = difference.only_symbol()
        if s is None:
            raise Beyond(reason)
        here = zero if value == 0 else positive if value > 0 else negative
        if value == 0 and positive == negative:
            raise Fixed(symbols, reason)
        if value == 0:  # which side is like the root?
            value = 1 if positive == zero else -1
            hint = worlds.hints[s] + (1 if value * difference.coefficients[s,] > 0 else -1)
        else:
            hint = worlds.hints[s]
        raise Bounded({s: worlds.narrowed(s, *difference.side(s, hint, here == zero))}, reason)
    return compare


class _Node:
    """What torch asks nodes of numbers of any kind."""
    nested = False

    def is_int(self):
        return False

    is_float = is_bool = is_nested_int = is_constant = is_int

    def has_hint(self):
        return True

    def constant_int(self):
        return None

    constant_bool = maybe_as_float = constant_int

    def wrap_int(self, value):
        return Number(number(value), getattr(self, "worlds", None))

    def wrap_bool(self, value):
        return Truth(value)

    def wrap_float(self, value):
        raise Beyond("Python code computes a fraction of an extent")

    def clone(self):
        return self

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise Beyond(f"Python code asks an extent for its {name!r}")


class Number(_Node):
    """The node of a torch.SymInt."""

    def __init__(self, expr, worlds):
        self.expr, self.worlds = expr, worlds

    def is_int(self):
        return True

    def is_symbolic(self):
        return True

    def maybe_as_int(self):
        return int(self.expr) if self.expr.is_number else None

    @property
    def hint(self):
        return self.expr.at(self.worlds.hints if self.worlds else {})

    def _graph_repr(self):
        return str(self.expr)

    str = _graph_repr

    def guard_int(self, file, line):
        return self.int_()

    def int_(self):
        if not self.expr.is_number:
            raise Fixed(self.expr.free_symbols, f"Python code takes the extent {self.expr} for a number")
        return int(self.expr)

    def _made(self, expr, other):
        return Number(expr, self.worlds or other.worlds)

    def add(self, other):
        return self._made(self.expr + other.expr, other)

    def sub(self, other):
        return self._made(self.expr - other.expr, other)

    def mul(self, other):
        return self._made(self.expr * other.expr, other)

    def neg(self):
        return self._made(self.expr * number(-1), self)

    pos = _Node.clone

    def int_floordiv(self, other):
        quotient = self._exact(other)
        if quotient is None:
            raise Beyond(f"Python code divides {self.expr} by {other.expr}")
        return self._made(quotient, other)

    floordiv = int_floordiv

    def mod(self, other):
        if self._exact(other) is None:
            raise Beyond(f"Python code divides {self.expr} by {other.expr}")
        return self._made(number(0), other)

    def _exact(self, other):
        """The quotient, None if there is a rest or may be."""
        if len(other.expr.coefficients) != 1:
            return None
        (symbols, divisor), = other.expr.coefficients.items()
        found = {}
        for own, c in self.expr.coefficients.items():
            rest = list(own)
            if c % divisor or any(own.count(s) < symbols.count(s) for s in symbols):
                return None
            for s in symbols:
                rest.remove(s)
            found[tuple(rest)] = c // divisor
        return Polynomial(found)

    def pow_by_natural(self, other):
        return self._made(_product([self.expr] * other.int_(), number(1)), other)

    eq, ne = _decided(False, True, False), _decided(True, False, True)
    lt, le = _decided(False, False, True), _decided(False, True, True)
    gt, ge = _decided(True, False, False), _decided(True, True, False)

    def sym_max(self, other):
        return self if self.ge(other).value else other

    def sym_min(self, other):
        return self if self.le(other).value else other

    # -- what C++ asks of the extents and strides of a tensor ---------------------------------------
    def _lie(self, sizes, strides, order):
        """Do elements lie densely, with the axes in this order from the nearest on?"""
        expected = number(1)
        for axis in order:
            size = sizes[axis].expr
            if size != number(1):
                if strides[axis].expr != expected:
                    return Truth(False)
                expected = expected * size
        return Truth(True)

    def is_contiguous(self, sizes, strides):
        return self._lie(sizes, strides, range(len(sizes))[::-1])

    def is_channels_last_contiguous_2d(self, sizes, strides):
        return self._lie(sizes, strides, (1, 3, 2, 0)) if len(sizes) == 4 else Truth(False)

    def is_channels_last_contiguous_3d(self, sizes, strides):
        return self._lie(sizes, strides, (1, 4, 3, 2, 0)) if len(sizes) == 5 else Truth(False)

    is_channels_last_strides_2d, is_channels_last_strides_3d = is_channels_last_contiguous_2d, is_channels_last_contiguous_3d

    def is_non_overlapping_and_dense(self, sizes, strides):
        order = sorted(range(len(sizes)), key=lambda axis: (strides[axis].hint, -axis))
        return self._lie(sizes, strides, order)

    is_non_overlapping_and_dense_indicator = is_non_overlapping_and_dense


class Truth(_Node):
    """The node of a torch.SymBool, always decided."""

    def __init__(self, value):
        self.value = value

    def is_bool(self):
        return True

    def is_symbolic(self):
        return False

    def bool_(self):
        return self.value

    maybe_as_bool = bool_

    def guard_bool(self, file, line):
        return self.value

    guard_size_oblivious = guard_or_false = guard_or_true = expect_true = statically_known_true = guard_bool

    def sym_not(self):
        return Truth(not self.value)

    def sym_and(self, other):
        return Truth(self.value and other.value)

    def sym_or(self, other):
        return Truth(self.value or other.value)

    and_, or_ = sym_and, sym_or

    def _graph_repr(self):
        return str(self.value)

    def hint(self):
        return self.value

"""Integers that are known only when a program runs: symbols, loop variables, and arithmetic on them.

The one idea: a sum of multiples of texts, so that equal sums are equal objects; what has no text left is an int.
Must not know: arrays or Python source.
"""
import numbers


class NeedsValue(Exception):
    """The number of an extent must be known here; whoever chose to leave it open may translate again with it.

    error: what to tell where that cannot be.
    """
    error = None


class Index:
    """sum(coefficient * text) + constant; equal and hashable by value.  Arithmetic gives an Index or an int."""
    __slots__ = ("terms", "constant")

    def __init__(self, terms, constant=0):
        self.terms, self.constant = terms, constant

    @classmethod
    def of(cls, text):
        """The value of an atom of the text form: a name, a call, or something in parentheses."""
        return cls({text: 1})

    def __add__(self, other):
        if not isinstance(other, (Index, numbers.Integral)):
            return NotImplemented
        terms, more = dict(self.terms), other.terms if isinstance(other, Index) else {}
        for text, n in more.items():
            terms[text] = terms.get(text, 0) + n
        return _made(terms, self.constant + (other.constant if isinstance(other, Index) else int(other)))

    __radd__ = __add__

    def __neg__(self):
        return self * -1

    def __sub__(self, other):
        return self + -other if isinstance(other, (Index, numbers.Integral)) else NotImplemented

    def __rsub__(self, other):
        return -self + other

    def __mul__(self, other):
        if isinstance(other, numbers.Integral):
            return _made({t: n * int(other) for t, n in self.terms.items()}, self.constant * int(other))
        if not isinstance(other, Index):
            return NotImplemented
        total = self * other.constant + other * self.constant - self.constant * other.constant
        for a, n in self.terms.items():
            for b, m in other.terms.items():
                total = total + Index({"(" + "*".join(sorted((a, b))) + ")": n * m})
        return total

    __rmul__ = __mul__

    def __floordiv__(self, other):
        if isinstance(other, numbers.Integral) and other > 0 and _divides(int(other), self):
            return _made({t: n // int(other) for t, n in self.terms.items()}, self.constant // int(other))
        return _atom("//", self, other)

    def __mod__(self, other):
        return _atom("%", self, other)

    def __rfloordiv__(self, other):
        return _atom("//", other, self)

    def __rmod__(self, other):
        return _atom("%", other, self)

    def __eq__(self, other):
        return isinstance(other, Index) and self.terms == other.terms and self.constant == other.constant

    def __hash__(self):
        return hash((frozenset(self.terms.items()), self.constant))

    def __bool__(self):
        raise NeedsValue(f"whether {self} is zero")

    def __index__(self):
        raise NeedsValue(f"the number {self}")

    def __str__(self):
        out = ""
        for text, n in sorted(self.terms.items()):
            out += " - " if n < 0 and out else "-" if n < 0 else " + " if out else ""
            out += text if abs(n) == 1 else f"{abs(n)}*{text}"
        if not self.constant:
            return out
        return f"{out} {'-' if self.constant < 0 else '+'} {abs(self.constant)}"

    __repr__ = __str__

    def replace(self, text, value):
        """With another value for an atom; atoms that contain it keep it."""
        n = self.terms.get(text)
        return self if n is None else _made({t: m for t, m in self.terms.items() if t != text}, self.constant) + n * value

    @property
    def names(self):
        """All words in it: symbols, parameters and functions."""
        return set().union(*map(_words, self.terms))

    def mentions(self, name):
        return name in self.names


def _made(terms, constant):
    terms = {t: n for t, n in terms.items() if n}
    return Index(terms, constant) if terms else constant


def _divides(n, index):
    return all(m % n == 0 for m in (*index.terms.values(), index.constant))


def _atom(operator, a, b):
    if not isinstance(a, (Index, numbers.Integral)) or not isinstance(b, (Index, numbers.Integral)):
        return NotImplemented
    return Index.of(f"(({a}) {operator} ({b}))")


def _words(text):
    word, words = "", set()
    for c in text + " ":
        if c.isalnum() or c == "_":
            word += c
        elif word:
            words.add(word)
            word = ""
    return {w for w in words if not w.isdecimal()}


def is_index(value):
    """An integer, known or not (and no bool)."""
    return isinstance(value, (Index, numbers.Integral)) and not isinstance(value, bool)


def least(a, b):
    """The smaller of two integers."""
    if isinstance(a, Index) or isinstance(b, Index):
        difference = a - b
        if not isinstance(difference, Index):
            return a if difference <= 0 else b
        return Index.of(f"min({a}, {b})")
    return min(a, b)


def ceil_div(a, b):
    return a if b == 1 else -(-a // b) if not isinstance(a, Index) else (a + (b - 1)) // b


def mentions(value, name):
    return isinstance(value, Index) and value.mentions(name)


def product(values):
    out = 1
    for value in values:
        out = out * value
    return out

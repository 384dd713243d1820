"""Memlets: which elements of an array an edge carries, and how what is written is combined with what is there.

The one idea: a memlet is an array's name, a subset and one of four ways to combine.
Must not know: edges.
"""
import ast

from .. import _core
from .subset import Range

_WCR_TEXT = {"sum": "lambda x, y: x + y", "prod": "lambda x, y: x * y", "min": "lambda x, y: min(x, y)",
             "max": "lambda x, y: max(x, y)"}
_FIRST = Range([(0, 0, 1)])
_WCR_BY_OPERATOR = {ast.Add: "sum", ast.Mult: "prod"}
_WCR_NUMBERS = {"sum": lambda a, b: a + b, "prod": lambda a, b: a * b, "min": min, "max": max}


class Memlet:
    """What an edge carries.

    expr: ``"A[0:5, i]"``, or ``"A"`` for all of an array; None for nothing.
    data, subset: the same apart: a name, and a Range or text.
    wcr: ``"lambda x, y: x + y"`` (or ``*``, ``min(x, y)``, ``max(x, y)``, or a function that computes one of these);
    None overwrites.
    other_subset: of a copy between two arrays, the part of the one that is not ``data``; as text also behind an arrow,
    ``"A[0:5] -> [2:7]"``.  Other arguments of DaCe's memlets (volume, dynamic, ...) say nothing that is not derived here.
    Raises ValueError_ for what is none of these.

    ``data``, ``subset`` (a Range, or None until the array's shape is known), ``other_subset`` and ``wcr`` can be set.
    """
    __slots__ = ("_data", "_subset", "_wcr", "_changed", "_open", "_other")

    def __init__(self, expr=None, data=None, subset=None, wcr=None, other_subset=None, *, volume=None, dynamic=False, debuginfo=None,
                 wcr_nonatomic=False, allow_oob=False):
        self._changed = None
        if expr is not None:
            if data is not None or subset is not None:
                raise _core.ValueError_(f"Memlet({expr!r}) is given data or subset too")
            data, subset, arrow = _split(expr)
            other_subset = arrow if other_subset is None else other_subset
        if data is None and subset is not None:
            raise _core.ValueError_(f"a memlet with subset {str(subset)!r} names no array")
        self._data = None if data is None else _name(data)
        self._subset, self._open = _subset(subset)
        self._other, _ = _subset(other_subset)
        self._wcr = wcr_name(wcr)

    @classmethod
    def simple(cls, data, subset_str, wcr_str=None, other_subset_str=None, wcr_conflict=True, num_accesses=None,
               debuginfo=None, dynamic=False):
        """As ``Memlet(data=, subset=, wcr=)``; data: a name or an access node."""
        return cls(data=data, subset=subset_str, wcr=wcr_str, other_subset=other_subset_str)

    @classmethod
    def from_array(cls, dataname, datadesc, wcr=None):
        """All of an array."""
        return cls(data=dataname, subset=Range.from_array(datadesc), wcr=wcr)

    @classmethod
    def from_memlet(cls, memlet):
        """A copy that is on no edge."""
        copy = cls(wcr=memlet._wcr)
        copy._data, copy._subset, copy._open, copy._other = memlet._data, memlet._subset, memlet._open, memlet._other
        return copy

    def __copy__(self):
        return Memlet.from_memlet(self)

    def __deepcopy__(self, memo):
        return Memlet.from_memlet(self)

    @classmethod
    def _of_core(cls, memlet, shape_of, changed=None):
        """Of the core's (container, subset text or None for all, wcr name, other subset) or None.

        ``shape_of(name)`` is asked for all of an array; ``changed(memlet)`` is called when the memlet is set."""
        self = cls()
        if memlet is not None and memlet[0] is not None:
            self._data, text, wcr, other = memlet
            self._subset = Range.of_shape(shape_of(self._data)) if text is None else Range.from_string(text)
            self._subset = self._subset if len(self._subset) else _FIRST
            self._wcr, self._other = wcr or None, None if other is None else Range.from_string(other)
        self._changed = changed
        return self

    def _core_form(self, shape_of):
        """(container, subset text or None, wcr name, other subset) for the core, or None for an empty memlet.

        ``shape_of(name)`` is asked for open ends, and where ``0`` may be the element of a scalar."""
        if self._data is None:
            return None
        if self._open is not None:
            self._subset, self._open = Range.from_string(self._open, shape_of(self._data)), None
        text = None if self._subset is None else str(self._subset)
        if text == "0" and shape_of(self._data) == ():
            text = ""
        return self._data, text, self._wcr or "", None if self._other is None else str(self._other)

    # -- parts ----------------------------------------------------------------------------------
    @property
    def data(self):
        return self._data

    @data.setter
    def data(self, name):
        self._data = _name(name)
        self._notify()

    @property
    def subset(self):
        if self._subset is None and self._open is not None:
            raise _core.ShapeError(f"memlet {self._data}[{self._open}] has open ends until it is on an edge")
        return self._subset

    @subset.setter
    def subset(self, subset):
        self._subset, self._open = _subset(subset)
        self._notify()

    @property
    def other_subset(self):
        return self._other

    @other_subset.setter
    def other_subset(self, subset):
        self._other, _ = _subset(subset)
        self._notify()

    @property
    def wcr(self):
        return _WCR_TEXT.get(self._wcr)

    @wcr.setter
    def wcr(self, wcr):
        self._wcr = wcr_name(wcr)
        self._notify()

    def _notify(self):
        if self._changed is not None:
            self._changed(self)

    def num_elements(self):
        """How many elements it carries; 0 for nothing."""
        return 0 if self.subset is None else self.subset.num_elements()

    @property
    def volume(self):
        return self.num_elements()

    def size(self):
        """The extent of each dimension."""
        return [] if self.subset is None else self.subset.size()

    def is_empty(self):
        return self._data is None

    @property
    def free_symbols(self):
        """Names in its subset."""
        return set() if self._subset is None else self._subset.free_symbols

    def __eq__(self, other):
        return (isinstance(other, Memlet) and
                (self._data, self._subset, self._open, self._wcr, self._other) ==
                (other._data, other._subset, other._open, other._wcr, other._other))

    def __hash__(self):
        return hash((self._data, self._subset, self._wcr))

    def __str__(self):
        if self._data is None:
            return "(nothing)"
        subset = self._open if self._open is not None else self._subset
        return self._data + ("" if subset is None else f"[{subset}]") + (f" -> [{self._other}]" if self._other else "") + (
            f" ({self._wcr})" if self._wcr else "")

    def __repr__(self):
        return f"Memlet({str(self)})"


def wcr_name(wcr):
    """"sum", "prod", "min" or "max" of a lambda's text or a function, None for none.  Raises ValueError_ for others."""
    if wcr is None or wcr in _WCR_TEXT:
        return wcr
    found = _wcr_of_function(wcr) if callable(wcr) else _wcr_of_text(wcr) if isinstance(wcr, str) else None
    if found is None:
        raise _core.ValueError_(f"wcr={wcr!r}: expected one of {', '.join(map(repr, _WCR_TEXT.values()))}")
    return found


def _wcr_of_text(text):
    try:
        node = ast.parse(text.strip().strip("()") if text.strip().startswith("(lambda") else text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if not isinstance(node, ast.Lambda) or len(node.args.args) != 2:
        return None
    names, body = {a.arg for a in node.args.args}, node.body
    if isinstance(body, ast.BinOp) and {getattr(body.left, "id", None), getattr(body.right, "id", None)} == names:
        return _WCR_BY_OPERATOR.get(type(body.op))
    if isinstance(body, ast.Call) and {getattr(a, "id", None) for a in body.args} == names and len(body.args) == 2:
        called = getattr(body.func, "attr", getattr(body.func, "id", ""))
        return called if called in ("min", "max") else None
    return None


def _wcr_of_function(function):
    """By what it computes, since a function need not have a source."""
    pairs = [(2, 3), (5, 0.5), (-1, 4), (-3, -7)]
    try:
        values = [function(*pair) for pair in pairs]
        return next((name for name, f in _WCR_NUMBERS.items() if values == [f(*pair) for pair in pairs]), None)
    except Exception as error:  # the caller's own code
        raise _core.ValueError_(f"wcr={function!r} raises {type(error).__name__}: {error}") from error


def _name(data):
    name = data if isinstance(data, str) else getattr(data, "data", None)
    if not isinstance(name, str):
        raise _core.ValueError_(f"{data!r} is no array's name")
    return name


def _split(expr):
    """(name, subset text or None, the other's or None) of ``A[0:5, i] -> [0:5]``, ``A[0:5, i]`` or ``A``; ``A(1)[0]``, with a
    volume, is the same without it."""
    if not isinstance(expr, str):
        raise _core.ValueError_(f"Memlet({expr!r}): expected a text such as 'A[0:5, i]'")
    text, arrow, other = (part.strip() for part in expr.partition("->"))
    head, bracket, rest = text.partition("[")
    head = head.partition("(")[0].strip()
    if not head or (bracket and not rest.endswith("]")):
        raise _core.ValueError_(f"{expr!r} is no memlet: expected a text such as 'A[0:5, i]'")
    if arrow and other.endswith("]"):
        other = other.partition("[")[2][:-1]
    return head, rest[:-1] if bracket else None, other if arrow else None


def _subset(subset):
    """(Range or None, text with open ends or None)."""
    if subset is None or isinstance(subset, Range):
        return subset, None
    if isinstance(subset, str):
        try:
            return Range.from_string(subset), None
        except _core.ShapeError:
            return None, subset
    if isinstance(subset, (list, tuple)):
        return Range([r if isinstance(r, (list, tuple)) else (r, r, 1) for r in subset]), None
    return Range.from_indices([subset]), None

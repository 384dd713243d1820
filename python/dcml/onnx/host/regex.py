"""Regular expressions that match in time proportional to the text: a model's pattern must not hang its host.

The one idea: the pattern, as Python parses it, becomes a list of instructions, and all places that a match may have
reached are followed side by side, character by character (Pike's machine, as in RE2, whose dialect ONNX names).
Must not know: operators.
"""
import re

try:
    from re import _constants as c, _parser as parser
except ImportError:  # Python 3.10
    import sre_constants as c
    import sre_parse as parser

MAX_INSTRUCTIONS, MAX_WORK = 20_000, 50_000_000
_CATEGORIES = {c.CATEGORY_DIGIT: str.isdigit, c.CATEGORY_SPACE: lambda x: x in " \t\n\r\f\v",
               c.CATEGORY_WORD: lambda x: x.isalnum() or x == "_"}
_NEGATED = {c.CATEGORY_NOT_DIGIT: c.CATEGORY_DIGIT, c.CATEGORY_NOT_SPACE: c.CATEGORY_SPACE,
            c.CATEGORY_NOT_WORD: c.CATEGORY_WORD}


def _category(kind):
    """A test of a character; the classes hold ASCII characters only, as in RE2."""
    if kind in _NEGATED:
        test = _category(_NEGATED[kind])
        return lambda x: not test(x)
    return lambda x: x.isascii() and _CATEGORIES[kind](x)


def _one_of(items, flags):
    tests, negate = [], False
    for op, value in items:
        if op is c.NEGATE:
            negate = True
        elif op is c.CATEGORY:
            tests.append(_category(value))
        else:
            low, high = (value, value) if op is c.LITERAL else value
            tests.append(lambda x, low=low, high=high: low <= ord(x) <= high)

    def test(x):
        forms = {x, x.lower(), x.upper()} if flags & re.IGNORECASE else (x,)
        return any(t(f) for t in tests for f in forms if len(f) == 1) != negate
    return test


def _is_word(text, k):
    return 0 <= k < len(text) and _category(c.CATEGORY_WORD)(text[k])


def _place(kind, flags):
    """A test of a position in a text."""
    lines = flags & re.MULTILINE
    return {c.AT_BEGINNING: lambda s, k: k == 0 or lines and s[k - 1] == "\n", c.AT_BEGINNING_STRING: lambda s, k: k == 0,
            c.AT_END: lambda s, k: k == len(s) or lines and s[k] == "\n", c.AT_END_STRING: lambda s, k: k == len(s),
            c.AT_BOUNDARY: lambda s, k: _is_word(s, k - 1) != _is_word(s, k),
            c.AT_NON_BOUNDARY: lambda s, k: _is_word(s, k - 1) == _is_word(s, k)}[kind]


class Pattern:
    """A compiled pattern.  Raises re.error for a malformed one, or one with look-around, back-references and such."""

    def __init__(self, text):
        self._code = []  # ("char", test), ("at", test), ("split", other place), ("jump", place)
        self._parts = 0
        try:
            tree = parser.parse(text)
            self._sequence(tree, tree.state.flags)
        except (RecursionError, OverflowError):
            raise re.error("the pattern is nested too deeply or too large") from None

    def _emit(self, *instruction):
        if len(self._code) >= MAX_INSTRUCTIONS:
            raise re.error("the pattern is too large")
        self._code.append(instruction)
        return len(self._code) - 1

    def _sequence(self, items, flags):
        self._parts += 1
        if self._parts > MAX_INSTRUCTIONS:
            raise re.error("the pattern is too large")
        for op, value in items:
            if op in (c.MAX_REPEAT, c.MIN_REPEAT):
                self._repeat(*value, flags)
            elif op is c.BRANCH:
                self._branch(value[1], flags)
            elif op is c.SUBPATTERN:
                self._sequence(value[3], (flags | value[1]) & ~value[2])
            elif op is c.AT:
                self._emit("at", _place(value, flags))
            elif op is c.ANY:
                self._emit("char", lambda x, dot=flags & re.DOTALL: bool(dot) or x != "\n")
            elif op is c.IN:
                self._emit("char", _one_of(value, flags))
            elif op in (c.LITERAL, c.NOT_LITERAL):
                test = [(c.LITERAL, value)]
                self._emit("char", _one_of(test if op is c.LITERAL else [(c.NEGATE, None), *test], flags))
            else:
                raise re.error(f"{str(op).lower()} is not supported")

    def _repeat(self, low, high, items, flags):
        for _ in range(low):
            self._sequence(items, flags)
        if high is c.MAXREPEAT:
            start = self._emit("split", None)
            self._sequence(items, flags)
            self._code[start] = ("split", self._emit("jump", start) + 1)
            return
        splits = []
        for _ in range(high - low):
            splits.append(self._emit("split", None))
            self._sequence(items, flags)
        for k in splits:
            self._code[k] = ("split", len(self._code))

    def _branch(self, choices, flags):
        jumps = []
        for choice in choices[:-1]:
            split = self._emit("split", None)
            self._sequence(choice, flags)
            jumps.append(self._emit("jump", None))
            self._code[split] = ("split", len(self._code))
        self._sequence(choices[-1], flags)
        for k in jumps:
            self._code[k] = ("jump", len(self._code))

    def _reach(self, places, text, k):
        """All places that are reached from some without reading a character."""
        seen, queue = set(), list(places)
        while queue:
            at = queue.pop()
            if at in seen:
                continue
            seen.add(at)
            kind, value = self._code[at] if at < len(self._code) else ("end", None)
            if kind in ("split", "jump"):
                queue.append(value)
            if kind == "split" or kind == "at" and value(text, k):
                queue.append(at + 1)
        return seen

    def full_match(self, text):
        """Whether the whole text matches.  Raises ValueError for a text that is too long for the pattern."""
        if len(text) * len(self._code) > MAX_WORK:
            raise ValueError(f"a text of {len(text)} characters for a pattern of {len(self._code)} instructions")
        places = self._reach([0], text, 0)
        for k, x in enumerate(text):
            step = [at + 1 for at in places
                    if at < len(self._code) and self._code[at][0] == "char" and self._code[at][1](x)]
            if not step:
                return False
            places = self._reach(step, text, k + 1)
        return len(self._code) in places

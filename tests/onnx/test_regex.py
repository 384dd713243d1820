"""Regular expressions of RegexFullMatch: Python's answers, in time proportional to the text."""
import random
import re
import time

import pytest

from dcml.onnx.host.regex import Pattern


def random_pattern(rng, depth):
    kind = rng.randrange(9) if depth else 0
    if kind < 2:
        return rng.choice(["a", "b", ".", r"\w", r"\d", r"\s", "[ab]", "[^a]", "[a-c1]", r"\.", r"\W"])
    inner = random_pattern(rng, depth - 1)
    return {2: inner + random_pattern(rng, depth - 1), 3: f"({inner}|{random_pattern(rng, depth - 1)})",
            4: f"(?:{inner})" + rng.choice(["*", "+", "?", "{2}", "{0,2}", "{1,}", "*?"]), 5: inner * 2, 6: "^" + inner,
            7: inner + r"\b", 8: f"(?i:{inner})"}[kind]


def test_patterns_match_what_python_matches():
    rng = random.Random(0)
    for _ in range(1500):
        text = random_pattern(rng, 4)
        pattern, theirs = Pattern(text), re.compile(text, re.ASCII)
        for _ in range(4):
            s = "".join(rng.choice("abcAB1 ._\n") for _ in range(rng.randrange(7)))
            assert pattern.full_match(s) == (theirs.fullmatch(s) is not None), (text, s)


def test_patterns_that_backtrack_for_ever_do_not_here():
    start = time.process_time()
    assert not Pattern("(a+)+b").full_match("a" * 3000)
    assert not Pattern("(a|aa)*c").full_match("a" * 3000)
    assert time.process_time() - start < 2


@pytest.mark.parametrize("text", [r"(a)\1", "(?=a)a", "(", "(?:a{1000}){1000}", "((){20000}){20000}", "(" * 50000,
                                  "(?:" * 3000 + "a" + ")" * 3000])
def test_patterns_that_cannot_run_are_errors(text):
    start = time.process_time()
    with pytest.raises(re.error):
        Pattern(text)
    assert time.process_time() - start < 2

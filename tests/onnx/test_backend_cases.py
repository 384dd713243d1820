"""All node cases of the onnx package: what is not listed as a known gap must pass, what is listed must not."""
import pathlib

import pytest

import backend_cases

LIST = pathlib.Path(__file__).with_name("known_gaps.txt")
GAPS = {line.split("\t")[0] for line in LIST.read_text().splitlines() if line}
CASES = backend_cases.collect()


def test_at_least_nine_hundred_cases_pass():
    assert len(CASES) - len(GAPS) >= 900


def test_known_gaps_are_cases():
    assert GAPS <= {case.name for case in CASES}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case):
    outcome = backend_cases.run(case)
    if case.name in GAPS:
        assert outcome != "pass", "this case passes now: take it off known_gaps.txt"
    else:
        assert outcome == "pass"

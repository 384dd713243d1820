"""All backend cases of the onnx package: what is not listed as a known gap must pass, what is listed must not."""
import pathlib

import pytest

import backend_cases

LIST = pathlib.Path(__file__).with_name("known_gaps.txt")
LINES = LIST.read_text().splitlines()
GAPS = {line.split("\t")[0] for line in LINES}
CASES = backend_cases.collect_all()


def test_most_cases_pass():
    assert len(CASES) - len(GAPS) >= 1850


def test_known_gaps_are_cases_with_a_reason_in_order():
    assert GAPS <= {case.name for case in CASES}
    assert all(line.partition("\t")[2] for line in LINES)
    assert LINES == sorted(set(LINES))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case):
    outcome = backend_cases.run(case)
    if case.name in GAPS:
        assert outcome != "pass", "this case passes now: take it off known_gaps.txt"
    else:
        assert outcome == "pass"

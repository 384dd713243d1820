"""An operator of torch's own database follows eager in results and gradients, or is refused as docs/refused.md says.

With --all; DCML_OP_DB samples of each (0 unless told: all).  For one operator at a time, by -k: tools/refused.py runs them all.
"""
import os
import pathlib
import re

import pytest
from operators_db import DTYPES, EXCEPT, cases, judged, name_of, operators

import dcml

pytestmark = [pytest.mark.usefixtures("interpreted"), pytest.mark.all]

LIMIT = int(os.environ.get("DCML_OP_DB", "0")) or None
TOGETHER = 32  # samples in a graph
REFUSED = pathlib.Path(__file__).resolve().parents[2] / "docs" / "refused.md"


@pytest.fixture(scope="module")
def listed():
    """Names of what the page says is refused."""
    return set(re.findall(r"^\| `([^`]+)` \|", REFUSED.read_text(), re.M))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", operators(), ids=name_of)
def test_an_operator_follows_eager_or_is_refused_by_name(op, dtype, listed):
    if DTYPES[dtype] not in op.dtypes:
        pytest.skip(f"torch has no {dtype} of it")
    if op.name in EXCEPT:
        pytest.skip(EXCEPT[op.name])
    found = list(cases(op, DTYPES[dtype], LIMIT))
    for begin in range(0, len(found), TOGETHER):
        some = found[begin:begin + TOGETHER]
        for (k, _), became in zip(some, judged([case for _, case in some])):
            if isinstance(became, dcml.Error):
                assert name_of(op) in listed, f"sample {k}: {became}"
                assert re.search(r"captur|argument|trace", str(became)), f"sample {k}: the refusal does not say why: {became}"
            elif isinstance(became, Exception):
                raise AssertionError(f"sample {k}: {became}") from became

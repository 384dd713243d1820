"""Every operator of torch's own database in four types: results and gradients as in eager, or a refusal that docs/refused.md lists.

With --all; DCML_OP_DB samples of each (0 unless told: all, some 75,000, which takes hours).
"""
import os
import pathlib
import re

import pytest
from operators_db import DTYPES, EXCEPT, judged, name_of, operators

import dcml

pytestmark = [pytest.mark.usefixtures("interpreted"), pytest.mark.all]

LIMIT = int(os.environ.get("DCML_OP_DB", "0")) or None
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
    for k, became in judged(op, DTYPES[dtype], LIMIT):
        if isinstance(became, dcml.Error):
            assert name_of(op) in listed, f"sample {k}: {became}"
            assert re.search(r"captur|argument|trace", str(became)), f"sample {k}: the refusal does not say why: {became}"
        elif isinstance(became, Exception):
            raise AssertionError(f"sample {k}: {became}") from became

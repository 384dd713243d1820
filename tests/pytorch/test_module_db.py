"""Every module of torch's own database, in eval and train mode, forward and gradient, against eager: none is refused.  In float32; with
--all in float64, bfloat16 and float16 as well.

At most DCML_MODULE_DB samples of a module and mode run (1 unless told; 0 means all 3,618, which takes half an hour).
"""
import copy
import os

import pytest
from modules import DTYPES, all_infos, cases, check_random, compare, draws_numbers, run

pytestmark = pytest.mark.usefixtures("interpreted")

TYPES = [dtype if dtype == "float32" else pytest.param(dtype, marks=pytest.mark.all) for dtype in DTYPES]
PER_MODE = int(os.environ.get("DCML_MODULE_DB", "1")) or None


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("info", all_infos(), ids=lambda info: info.name)
def test_module_follows_eager(info, dtype):
    for case, module, args, kwargs in cases(info, PER_MODE, DTYPES[dtype]):
        if dtype != "float32" and not _runs(module, args, kwargs):
            continue
        try:
            if not draws_numbers(case):
                compare(module, args, kwargs, DTYPES[dtype])
            elif dtype == "float32":
                check_random(module, *args)
        except Exception as error:
            raise AssertionError(f"case {case!r}, {module}: {error}") from error


def _runs(module, args, kwargs):
    """Has torch kernels for this type?"""
    try:
        run(copy.deepcopy(module), args, kwargs)
    except (RuntimeError, ValueError) as error:
        return "not differentiable with respect to" in str(error)
    return True

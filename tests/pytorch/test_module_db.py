"""Every module of torch's own database, in eval and train mode, forward and gradient, against eager: none is refused.

At most DCML_MODULE_DB samples of a module and mode run (1 unless told; 0 means all 3,618, which takes half an hour).
"""
import os

import pytest
from modules import all_infos, cases, check_random, compare, draws_numbers

pytestmark = pytest.mark.usefixtures("interpreted")

PER_MODE = int(os.environ.get("DCML_MODULE_DB", "1")) or None


@pytest.mark.parametrize("info", all_infos(), ids=lambda info: info.name)
def test_module_follows_eager(info):
    for case, module, args, kwargs in cases(info, PER_MODE):
        try:
            if draws_numbers(case):
                check_random(module, *args)
            else:
                compare(module, args, kwargs)
        except Exception as error:
            raise AssertionError(f"case {case!r}, {module}: {error}") from error

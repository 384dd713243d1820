"""Every module of torch's own database, in eval and train mode, forward and gradient, against eager.

At most DCML_MODULE_DB samples of a module and mode run (1 unless told; 0 means all 3,618, which takes half an hour).
What is refused stands in known_refusals.txt with what the error names.
"""
import os

import pytest
from modules import all_infos, cases, check_random, compare, draws_numbers

import dcml

_HERE = os.path.dirname(__file__)
PER_MODE = int(os.environ.get("DCML_MODULE_DB", "1")) or None
with open(os.path.join(_HERE, "known_refusals.txt"), encoding="utf-8") as file:
    REFUSED = dict(line.split() for line in file if not line.startswith("#"))
INFOS = {info.name: info for info in all_infos()}


@pytest.mark.parametrize("name", [name for name in INFOS if name not in REFUSED])
def test_module_follows_eager(name):
    for case, module, args, kwargs in cases(INFOS[name], PER_MODE):
        try:
            if draws_numbers(case):
                check_random(module, *args)
            else:
                compare(module, args, kwargs)
        except Exception as error:
            raise AssertionError(f"case {case!r}, {module}: {error}") from error


@pytest.mark.parametrize("name", REFUSED)
def test_refusal_names_overload_and_line(name):
    for _, module, args, kwargs in cases(INFOS[name], PER_MODE):
        with pytest.raises(dcml.UnsupportedOpError, match=r"\.py:\d+: ") as refusal:
            compare(module, args, kwargs)
        assert REFUSED[name] in str(refusal.value)


def test_at_least_95_percent_of_the_samples_are_served():
    counts = {name: sum(1 for _ in cases(info)) for name, info in INFOS.items()}
    refused = sum(counts[name] for name in REFUSED)
    assert refused <= 0.05 * sum(counts.values()), (refused, sum(counts.values()))

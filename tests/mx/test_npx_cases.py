"""Every operator of npx: its value against NumPy, its gradients against central differences."""
import pytest
from mx_harness import check_gradients, check_value
from mx_layer_cases import CASES as LAYERS
from mx_levels_cases import CASES as LEVELS
from mx_vision_cases import CASES as VISION

CASES = LAYERS + VISION + LEVELS


@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_are_numpys(case):
    check_value(case)


@pytest.mark.parametrize("case", [c for c in CASES if c.gradients], ids=str)
def test_gradients_are_those_of_central_differences(case):
    check_gradients(case)

"""Makes the helpers of this folder importable; each file and each test draws the same random numbers in every run."""
import os
import sys

import pytest
import torch

sys.path.insert(0, os.path.dirname(__file__))
torch.set_num_threads(1)


def pytest_collectstart(collector):
    if isinstance(collector, pytest.Module):  # whose import may draw the parameters of modules
        torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)

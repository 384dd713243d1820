"""The search for garbage while a module is traced: what it runs is no part of forward."""
import gc
import subprocess
import sys

import pytest
import torch
from torch import nn

import dcml
from dcml.pytorch import DaceModule
from dcml.pytorch.guard.garbage import loading

SEARCHES = []


def noted(phase, info):
    SEARCHES.append(phase)


class Busy(nn.Module):
    """Makes enough objects for a search."""

    def forward(self, x):
        return x * len([[] for _ in range(5000)])


class Refused(nn.Module):
    def forward(self, x):
        return torch.hash_tensor(x)


@pytest.fixture
def searching():
    """Sets whether searches are on; they are on afterwards."""
    yield lambda on: (gc.enable if on else gc.disable)()
    gc.enable()


def test_a_callback_of_searches_is_no_part_of_forward():
    gc.callbacks.append(noted)
    try:
        y = DaceModule(Busy())(torch.ones(3))
    finally:
        gc.callbacks.remove(noted)
    assert torch.equal(y, torch.full((3,), 5000.))


@pytest.mark.parametrize("on", [True, False])
def test_searches_are_as_before_a_capture(on, searching):
    searching(on)
    DaceModule(Busy())(torch.ones(3))
    assert gc.isenabled() is on


@pytest.mark.parametrize("on", [True, False])
def test_searches_are_as_before_what_is_refused(on, searching):
    searching(on)
    with pytest.raises(dcml.UnsupportedOpError):
        DaceModule(Refused())(torch.ones(3))
    assert gc.isenabled() is on


def test_what_is_loaded_is_old_at_once():
    with loading():
        made = [[]]
    assert any(one is made for one in gc.get_objects(generation=2))


def test_what_a_caller_has_frozen_stays_frozen():
    gc.freeze()
    try:
        count = gc.get_freeze_count()
        with loading():
            pass
        assert 0 < gc.get_freeze_count() <= count
    finally:
        gc.unfreeze()


def test_what_captures_is_loaded_without_searches_among_torchs_modules():
    code = ("import gc, torch, dcml.pytorch.captures as captures\nfound = []\ngc.collect()\n"
            "gc.callbacks.append(lambda phase, info: found.append((phase, info['generation'])))\n"
            "captures._tracer()\nassert found == [('start', 1), ('stop', 1)], found\n")  # of what was young before
    subprocess.run([sys.executable, "-c", code], check=True)

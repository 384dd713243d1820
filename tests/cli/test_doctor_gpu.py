"""dcml doctor on GPUs, real and not there."""
import pytest

from dcml.cli import gpus
from dcml.cli.doctor import _PRODUCT, _SCALE, Check


def rows(monkeypatch, there, failure, loaded=lambda part: None, served="compiled"):
    monkeypatch.setattr(gpus, "seen", lambda: there)
    monkeypatch.setattr(gpus, "_failure", lambda text: failure)
    monkeypatch.setattr(gpus, "_served", lambda text: served)
    return {row.name: row for row in gpus.checks(Check, (_SCALE, _PRODUCT), loaded, "pip")}


def test_without_a_gpu_nothing_is_missing(monkeypatch):
    found = rows(monkeypatch, None, "no driver")
    assert list(found) == ["GPU"] and found["GPU"].state == "absent" and not found["GPU"].todo


def test_a_gpu_that_cannot_be_used_is_missing_and_says_why(monkeypatch):
    row = rows(monkeypatch, "H100, 80 GB", "NVRTC is not found")["GPU"]
    assert row.state == "missing" and row.found == "H100, 80 GB: NVRTC is not found" and row.todo == "pip install 'dcml[cuda]'"


def test_libraries_that_are_not_there_can_be_installed(monkeypatch):
    found = rows(monkeypatch, "H100", None)
    assert found["GPU"].state == "ok" and found["cuDNN"].state == "absent" and found["cuDNN"].todo == "pip install nvidia-cudnn-cu13"


def test_a_library_that_is_named_but_cannot_be_opened_is_missing(monkeypatch):
    monkeypatch.setenv("DCML_NVRTC", "/nowhere/libnvrtc.so")
    row = rows(monkeypatch, "H100", None)["NVRTC"]
    assert row.state == "missing" and "/nowhere/libnvrtc.so" in row.found


def test_versions_are_numbers_with_dots():
    assert gpus._dotted(91200) == "9.12.0" and gpus._dotted(130100) == "13.1.0"


def test_a_reason_is_one_line(monkeypatch):
    reason = gpus._failure(_SCALE)  # without a GPU; with one, or a fake driver, it is None
    assert reason is None or (reason and "\n" not in reason)


@pytest.mark.gpu
def test_a_gpu_that_is_there_is_found(dcml):
    import re
    found = dict(reversed(pair) for pair in re.findall(r"^(ok|missing|absent) +(\S.*?)  ", dcml("doctor", "--no-torch")[1], re.M))
    assert found["GPU"] == found["NVRTC"] == "ok"

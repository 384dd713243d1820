"""dcml bisect and reduce."""
import os
import signal

import numpy as np
import pytest
from commands import MISH, ROOT

from dcml import _core
from dcml.cli import stages

SOFTMAX = str(ROOT / "tests" / "ir" / "fuse" / "softmax.txt")


@pytest.fixture
def broken(monkeypatch):
    """broken(name, change): what that pass leaves is changed further, change(text) -> text."""
    def install(name, change):
        def run(graph, pass_name):
            graph.run_pass(pass_name)
            return _core.parse(change(graph.text())) if pass_name == name else graph
        monkeypatch.setattr(stages, "GRAPH", stages.GRAPH._replace(run=run))
    return install


def test_passes_and_programs_agree(dcml):
    code, text, _ = dcml("bisect", SOFTMAX)
    assert code == 0 and text.endswith("all agree\n")
    for name in ("simplify", "expand", "interpreted program", "compiled program", "whole pipeline"):
        assert f"\n  {name} " in text
    assert all(len(line) <= 80 for line in text.splitlines())


def test_gradients_agree(dcml):
    assert dcml("bisect", MISH, "--gradient", "--dim", "N=2", "--no-programs")[0] == 0


def test_a_wrong_pass_is_found_and_its_texts_are_kept(dcml, broken, tmp_path):
    broken("rewrite", lambda text: text.replace("2.0f", "5.0f", 1))
    code, text, _ = dcml("bisect", MISH, "--save", tmp_path / "found")
    assert code == 1 and "\n  rewrite " in text and "DIFFERS" in text and "rewrite differs: 'Y' differs in" in text
    before, after = ((tmp_path / "found" / f"{when}.sdfg").read_text() for when in ("before", "after"))
    assert "5.0f" in after and "5.0f" not in before
    _core.parse(before).run_pass("rewrite")


def test_a_pass_that_refuses_is_found(dcml, broken):
    broken("merge", lambda text: text.replace("outputs Y", "outputs nothing"))
    code, text, _ = dcml("bisect", MISH)
    assert code == 1 and "merge refuses: " in text


def test_a_pass_that_crashes_is_found(dcml, broken):
    broken("merge", lambda text: os.kill(os.getpid(), signal.SIGKILL))
    code, text, _ = dcml("bisect", MISH)
    assert code == 1 and "merge crashes: crashed: SIGKILL" in text


def test_rounding_is_a_difference_where_it_is_asked_for(dcml, dense):
    code, text, _ = dcml("bisect", dense, "--tolerance", "1e-12")
    assert code == 1 and "differs: 'y' differs in" in text


def test_only_some_passes_are_checked(dcml):
    code, text, _ = dcml("bisect", MISH, "-p", "simplify,expand", "--no-programs", "--dim", "N=3")
    assert code == 0 and "extents: N = 3" in text and "fission" not in text
    assert dcml("bisect", MISH, "-p", "fly")[0] == 2


def test_given_inputs_are_compared(dcml, dense, tmp_path):
    np.save(tmp_path / "x.npy", np.full((2, 12), np.nan, np.float32))
    code, text, _ = dcml("bisect", dense, "-i", tmp_path / "x.npy")
    assert code == 0 and "extents: batch = 2\n" in text


def test_a_model_of_the_host_is_refused(dcml, positives):
    code, _, problem = dcml("bisect", positives)
    assert code == 2 and "NonZero" in problem and str(positives) in problem


def test_a_difference_is_made_small(dcml, dense, tmp_path):
    code, text, said = dcml("reduce", dense, "--tolerance", "1e-12", "-o", tmp_path / "small.sdfg")
    small = (tmp_path / "small.sdfg").read_text()
    assert code == 0 and text == "" and "differs" in said
    assert len(small.splitlines()) < len(dcml("opt", dense, "--pipeline")[1].splitlines())
    head, _, small = small.partition("\n")
    assert _core.attempt(_core.parse(small), head.removeprefix("agree: "), {}, 1e-12, False)[0] == "differs"


def test_nothing_is_made_small_where_all_agree(dcml):
    code, text, said = dcml("reduce", MISH, "--dim", "N=2")
    assert code == 1 and text == "" and "all passes and programs agree" in said


def test_what_a_command_says_is_kept(dcml):
    code, text, _ = dcml("reduce", MISH, "--command", "sh -c 'if grep -q Tanh %s; then exit 7; fi'")
    assert code == 0 and "Tanh@" in text and "Softplus@" not in text and "Mul@" not in text
    assert "[1, 1, 1, 1]" in text and "symbol" not in text  # extents are halved, symbols fixed


def test_a_command_that_never_fails_or_cannot_run(dcml):
    assert dcml("reduce", MISH, "--command", "true %s")[0] == 1
    for command in ("true", "no-such-program %s", "'"):
        code, _, problem = dcml("reduce", MISH, "--command", command)
        assert code == 2 and "--command" in problem and problem.count("\n") == 1


def test_what_a_predicate_raises_comes_out():
    def fails(graph):
        raise KeyError("mine")
    with pytest.raises(KeyError, match="mine"):
        _core.reduce(_core.Graph("g"), fails)

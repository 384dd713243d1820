"""dcml opt."""
import re

import pytest
from commands import MISH, ROOT

from dcml import _core
from dcml.cli import stages


def test_the_text_of_a_model_is_printed_and_read_back(dcml, dense, tmp_path):
    code, text, _ = dcml("opt", dense)
    assert code == 0 and re.search(r"h = MatMul@\d+\(x, W\)", text)
    (tmp_path / "again.sdfg").write_text(text)
    assert dcml("opt", tmp_path / "again.sdfg") == (0, text, "")


def test_passes_run_in_the_order_given(dcml):
    code, text, _ = dcml("opt", MISH, "-p", "infer,expand", "-p", "fuse")
    assert code == 0 and text.count("map ") == 1 and "Softplus@" not in text
    assert dcml("opt", MISH, "-p", "expand")[0] == 2  # nothing has a shape yet


def test_the_pipeline_is_what_the_core_runs(dcml):
    graph = _core.parse(dcml("opt", MISH, "-p", "infer")[1])
    by_hand = graph.clone()
    order = {place: name for name, _, places in _core.passes() for place in places}
    for name in ["infer", "gradient", *[order[place] for place in sorted(order)]]:
        by_hand.run_pass(name)
    assert dcml("opt", MISH, "--pipeline")[1] == by_hand.text()


def test_gradients_are_arrays_that_the_caller_gives(dcml):
    code, text, _ = dcml("opt", MISH, "--gradient")
    assert code == 0 and all(re.search(rf"^  input gradient_{name}: ", text, re.M) for name in "XY")
    assert re.search(r"gradient_X\[.*\] = ", text)


def test_weights_can_be_left_out(dcml, dense, tmp_path):
    assert re.search(r"const W: f32\[12, 4\] = ", dcml("opt", dense)[1])
    dcml("opt", dense, "--weights", "shapes", "-o", tmp_path / "net.sdfg")
    text = (tmp_path / "net.sdfg").read_text()
    assert re.search(r"param W: f32\[12, 4\]$", text, re.M)
    assert dcml("run", tmp_path / "net.sdfg")[0] == 0  # on weights that are made up


def test_every_pass_is_listed_with_a_line_that_fits(dcml):
    code, text, _ = dcml("opt", "--list")
    assert code == 0 and all(len(line) <= 80 for line in text.splitlines())
    assert {name for name, _, _ in _core.passes()} <= set(text.split())


def test_an_unknown_pass_is_refused_before_any_runs(dcml):
    code, text, problem = dcml("opt", MISH, "-p", "infer,fly")
    assert code == 2 and text == "" and "'fly'" in problem and "simplify" in problem


def test_output_goes_to_a_file(dcml, tmp_path):
    assert dcml("opt", MISH, "-o", tmp_path / "out.sdfg")[:2] == (0, "")
    assert (tmp_path / "out.sdfg").read_text() == dcml("opt", MISH)[1]


@pytest.mark.parametrize("place", ["no/such/folder/x.sdfg", "."])
def test_a_file_that_cannot_be_written_is_named(dcml, place):
    code, _, problem = dcml("opt", MISH, "-o", place)
    assert code == 2 and place in problem and problem.count("\n") == 1


@pytest.fixture
def words(monkeypatch):
    """A stage behind graphs: of each graph two texts, and a pass that makes them loud."""
    stage = stages.Stage("words", lambda text: [text], str, lambda: [("shout", "capital letters", (1,))], lambda text, name: text.upper(),
                         lambda graph: [f"words of {graph.name} {k}\n" for k in (0, 1)])
    monkeypatch.setattr(stages, "STAGES", (stages.GRAPH, stage))


def test_a_further_stage_is_one_row(dcml, words, tmp_path):
    assert dcml("opt", MISH, "--stage", "words")[1] == "words of mish 0\nwords of mish 1\n"
    assert dcml("opt", MISH, "-p", "infer,shout")[1] == "WORDS OF MISH 0\nWORDS OF MISH 1\n"
    (tmp_path / "text").write_text("words of mine\n")
    assert dcml("opt", tmp_path / "text", "--pipeline")[1] == "WORDS OF MINE\n"
    assert dcml("opt", tmp_path / "text", "-p", "shout")[1] == "WORDS OF MINE\n"
    assert dcml("opt", tmp_path / "text", "--stage", "graph")[0] == 2
    assert dcml("opt", MISH, "-p", "shout,infer")[0] == 2
    assert "shout" in dcml("opt", "--list")[1]
    assert "expected a graph" in dcml("run", tmp_path / "text")[2]


def test_kernels_and_their_code_are_printed(dcml, tmp_path):
    scheduled = tmp_path / "mish.sdfg"
    assert dcml("opt", MISH, "--pipeline", "-o", scheduled)[0] == 0
    plain = dcml("opt", scheduled, "--stage", "kernel")[1]
    assert plain.startswith("kernel {") and plain == dcml("opt", MISH, "-p", "infer,gradient", "-p", order(), "--stage", "kernel")[1]
    (tmp_path / "plain").write_text(plain)
    through = dcml("opt", tmp_path / "plain", "--pipeline")[1]
    assert through == dcml("opt", MISH, "--pipeline", "--stage", "kernel")[1] != plain
    code = dcml("opt", MISH, "--pipeline", "--stage", "code")[1]
    assert "exp" in code and ";" in code


def order():
    """The names of the pipeline's passes, with commas between them."""
    at = {place: name for name, _, places in _core.passes() for place in places}
    return ",".join(at[place] for place in sorted(at))


def test_several_kernels_are_read_and_written(dcml, dense, tmp_path):
    text = dcml("opt", dense, "-p", "infer,expand", "--stage", "kernel")[1]
    assert text.count("kernel {") > 2
    (tmp_path / "kernels").write_text(text)
    assert dcml("opt", tmp_path / "kernels")[1] == text
    assert dcml("opt", tmp_path / "kernels", "-p", "merge")[1] == dcml("opt", dense, "-p", "infer,expand,kernel:merge")[1]


def test_operators_are_no_kernels(dcml, dense):
    code, _, problem = dcml("opt", dense, "-p", "infer", "--stage", "kernel")
    assert code == 2 and "expand" in problem and problem.count("\n") == 1


def test_every_file_of_the_kernel_tests_can_be_read(dcml):
    paths = sorted((ROOT / "tests" / "kernel").glob("*/*.txt"))
    assert paths and all(dcml("opt", path)[0] == 0 for path in paths)

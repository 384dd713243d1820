"""Passes by name, and what the environment asks of the pipeline: dumps, verification, stopping early."""
import numpy as np
import pytest

import dcml
from dcml import _core

TEXT = """graph {name} opset 18 {{
  symbol N >= 1
  input X: f32[N, 6]
  input W: f32[6, 6]
  temp H: none
  temp S: none
  temp Y: none
  outputs Y
  state main {{
    H = MatMul@13(X, W)
    S = Softmax@13(H)
    Y = Mul@14(S, H)
  }}
}}
"""


def order():
    places = {place: name for name, _, positions in _core.passes() for place in positions}
    return [places[k] for k in range(1, len(places) + 1)]


def function(name="model", **options):
    return _core.Function(_core.parse(TEXT.format(name=name)), wrt=["X", "W"], natives="", **options)


def run(f):
    rng = np.random.default_rng(0)
    X, W = rng.standard_normal((5, 6), np.float32), rng.standard_normal((6, 6), np.float32)
    outputs, gradients = f.vjp([X, W], [rng.standard_normal((5, 6), np.float32)])
    return [*outputs, *gradients]


def test_passes_have_names_summaries_and_places():
    passes = _core.passes()
    names = [name for name, _, _ in passes]
    assert len(set(names)) == len(names) and all(summary and not summary.endswith(".") for _, summary, _ in passes)
    assert order()[0] == order()[-1] == "simplify" and {"expand", "merge", "contract", "rewrite"} < set(order())
    assert all(name in _core.Graph.run_pass.__doc__.split("there are ")[1].rstrip(".").split() for name in names)
    with pytest.raises(dcml.Error, match="there is no pass 'fly'; there are " + ", ".join(names)):
        _core.parse(TEXT.format(name="g")).run_pass("fly")


def test_fuse_is_its_parts_in_order():
    whole, parts = _core.parse(TEXT.format(name="g")), _core.parse(TEXT.format(name="g"))
    for graph in (whole, parts):
        graph.run_pass("infer")
        graph.run_pass("expand")
    whole.run_pass("fuse")
    for name in ("inline", "merge", "contract", "rewrite", "order"):
        parts.run_pass(name)
    assert whole.text() == parts.text()


def test_each_stage_is_dumped_as_text_that_parses(tmp_path, monkeypatch):
    monkeypatch.setenv("DCML_DUMP", str(tmp_path / "stages"))
    f = function(backend="interp")
    run(f)
    stages = ["operators", *order()]
    wanted = [f"model.{side}.{k:02}-{name}.sdfg" for side in ("backward", "forward") for k, name in enumerate(stages)]
    assert sorted(path.name for path in (tmp_path / "stages").iterdir()) == sorted(wanted)
    texts = [(tmp_path / "stages" / name).read_text() for name in wanted]
    assert all(_core.parse(text).text() == text for text in texts)
    assert texts[-1] == f.forward_graph.text() and "Softmax@13" in texts[len(stages)]


def test_no_name_leaves_the_folder(tmp_path, monkeypatch):
    folder = tmp_path / "a" / "stages"
    folder.mkdir(parents=True)
    monkeypatch.setenv("DCML_DUMP", str(folder))
    for name in ('"../../evil"', '"/tmp/evil"', '".."', '"a\\x0ab\\x5cc"', '"' + "long" * 200 + '"', '""'):
        run(function(name, backend="interp"))
    assert [path.name for path in tmp_path.iterdir()] == ["a"] and [path.name for path in (tmp_path / "a").iterdir()] == ["stages"]
    names = {path.name.split(".")[0] for path in folder.iterdir()}
    assert names == {"______evil", "_tmp_evil", "__", "a_b_c", "long" * 20, "_"}


def test_a_dump_that_cannot_be_written_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DCML_DUMP", str(tmp_path / "file" / "stages"))
    with pytest.raises(dcml.Error, match="DCML_DUMP: cannot make the folder"):
        run(function(backend="interp"))


@pytest.mark.parametrize("backend", ["interp", "cpu"])
def test_the_pipeline_may_stop_after_any_pass(backend, monkeypatch):
    wanted, last = run(function(backend="interp", optimize=False)), len(order())
    for n in range(0, last + 1, 1 if backend == "interp" else 5):
        monkeypatch.setenv("DCML_STOP_AFTER", str(n))
        f = function(backend=backend)
        for got, want in zip(run(f), wanted):
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)
        ran = [name for name, _ in f.report()[0]["passes"]]
        assert ran == order()[:n] + [name for name in ("natives", "expand") if name not in order()[:n]]


@pytest.mark.parametrize("text", ["-1", "99", "two", "3x"])
def test_stopping_after_what_is_no_pass_is_an_error(text, monkeypatch):
    monkeypatch.setenv("DCML_STOP_AFTER", text)
    with pytest.raises(dcml.Error, match=f"DCML_STOP_AFTER is '{text}', expected a number of passes from 0 to {len(order())}"):
        run(function(backend="interp"))


def test_the_report_has_seconds_for_each_pass():
    f = function(backend="interp")
    run(f)
    for report in f.report():
        assert [name for name, _ in report["passes"]] == order() and all(0 <= seconds < 60 for _, seconds in report["passes"])

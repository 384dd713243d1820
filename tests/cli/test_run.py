"""dcml run, explain and profile."""
import re

import numpy as np
import pytest
from commands import MISH


def saved(path):
    with np.load(path) as arrays:
        return dict(arrays)


def test_backends_give_the_same(dcml, dense, tmp_path):
    for backend in ("compiled", "interpreter"):
        assert dcml("run", dense, "--dim", "batch=3", "--backend", backend, "-o", tmp_path / f"{backend}.npz")[0] == 0
    one, other = saved(tmp_path / "compiled.npz"), saved(tmp_path / "interpreter.npz")
    assert one["y"].shape == (3, 4)
    np.testing.assert_allclose(one["y"], other["y"], rtol=1e-5, atol=1e-6)


def test_given_inputs_are_used_and_give_extents(dcml, dense, tmp_path):
    x = np.random.default_rng(0).standard_normal((5, 12)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "x.npz", x=x)
    weight = np.linspace(-1, 1, 48, dtype=np.float32).reshape(12, 4)
    hidden = x @ weight
    for given in (f"{tmp_path}/x.npy", f"x={tmp_path}/x.npy", f"{tmp_path}/x.npz"):
        code, text, _ = dcml("run", dense, "-i", given, "-o", tmp_path / "out.npz")
        assert code == 0 and "batch = 5" in text
        expected = hidden * np.tanh(np.log1p(np.exp(hidden)))
        np.testing.assert_allclose(saved(tmp_path / "out.npz")["y"], expected, rtol=1e-4, atol=1e-5)


def test_a_tensor_proto_is_read(dcml, dense, tmp_path):
    from onnx import numpy_helper
    tensor = numpy_helper.from_array(np.ones((2, 12), np.float32))
    (tmp_path / "x.pb").write_bytes(tensor.SerializeToString())
    assert "batch = 2" in dcml("run", dense, "-i", tmp_path / "x.pb")[1]


def test_a_seed_chooses_the_random_inputs(dcml, tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        dcml("run", MISH, "--seed", seed, "-o", tmp_path / name)
    a, b, c = (saved(tmp_path / name)["Y"] for name in "abc")
    assert np.array_equal(a, b) and not np.array_equal(a, c)


def test_all_elements_are_printed_on_request(dcml):
    text = dcml("run", MISH, "--dim", "N=2", "--print", "all")[1]
    assert "..." not in text and len(re.findall(r"-?\d\.\d*", text)) > 2 * 8 * 16
    assert dcml("run", MISH, "--print", "nothing")[1].count("\n") == 1


def test_calls_are_timed(dcml):
    assert re.search(r"first call \S+ \w+; 3 more: median \S+ \w+", dcml("run", MISH, "--repeat", 3)[1])


def test_weights_of_a_text_are_made_up_too(dcml, tmp_path):
    (tmp_path / "scale.sdfg").write_text("graph scale {\n  input X: f32[4]\n  param W: f32[4]\n  temp Y: f32[4]\n  outputs Y\n"
                                         "  state main {\n    map i in 0:4 {\n      Y[i] = X[i] * W[i]\n    }\n  }\n}\n")
    code, text, _ = dcml("run", tmp_path / "scale.sdfg")
    assert code == 0 and "input   W: float32[4]" in text


def test_a_model_with_host_operators_runs_and_says_which(dcml, positives):
    code, text, _ = dcml("run", positives, "--dim", "n=3", "--dim", "m=4")
    assert code == 0 and "y: float32[2, " in text
    assert "on the host: node NonZero" in dcml("explain", positives)[1]


def test_explain_shows_steps_servers_and_memory(dcml, dense):
    code, text, _ = dcml("explain", dense, "--dim", "batch=2")
    assert code == 0 and "with batch = 2" in text and "arena" in text
    assert re.search(r"^ +0 +MatMul .*(onednn|openblas|compiled) ", text, re.M)
    assert not re.search("onednn|openblas", dcml("explain", dense, "--libraries", "none")[1])
    assert "interpreted" in dcml("explain", MISH, "--backend", "interpreter")[1]
    assert all(len(line) <= 80 for line in text.splitlines())


def test_long_names_leave_a_line_its_width(dcml, tmp_path):
    name = "a_very_long_name_of_an_intermediate_result_" * 3
    text = open(MISH).read().replace(" Y", f" {name}")
    (tmp_path / "long.sdfg").write_text(text)
    code, shown, problem = dcml("explain", tmp_path / "long.sdfg")
    assert code == 0, problem
    assert all(len(line) <= 80 for line in shown.splitlines()) and "a_very" in shown


def test_profile_prints_a_table_and_writes_a_page(dcml, dense, tmp_path):
    code, text, _ = dcml("profile", dense, "--calls", 2, "-o", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert code == 0 and re.search(r"a call takes \d+\.\d us", text)
    assert re.search(r"^ +0 +MatMul .* \d\S*$", text, re.M)
    assert page.startswith("<!DOCTYPE html>") and "class=bar" in page and "prefers-color-scheme: dark" in page
    assert "http" not in page  # it needs nothing from elsewhere


def test_names_of_a_model_are_no_markup(dcml, tmp_path):
    text = open(MISH).read().replace("graph mish", 'graph "<script>alert(1)</script>"')
    (tmp_path / "x.sdfg").write_text(text)
    assert dcml("profile", tmp_path / "x.sdfg", "--calls", 1, "-o", tmp_path / "page.html")[0] == 0
    assert "<script>" not in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("arguments, expected", [
    (["--dim", "N=0"], "at least 1"), (["--dim", "M=3"], "no symbol 'M'"), (["--dim", "N=x"], "NAME=NUMBER"),
    (["--dim", "N=99999999999999999999"], "NAME=NUMBER"), (["--dim", "N=1000000000000"], "GiB"), (["--seed", "-1"], "--seed"),
    (["-i", "nowhere.npy"], "nowhere.npy: No such file"), (["-i", "."], "Is a directory"),
    (["--libraries", "none", "--backend", "interpreter"], "--libraries"), (["--libraries", "fast"], "there are all, none, onednn"),
    (["--backend", "fast"], "invalid choice")])
def test_wrong_arguments_are_said_on_one_line(dcml, arguments, expected):
    code, _, problem = dcml("run", MISH, *arguments)
    assert code == 2 and expected in problem and problem.count("\n") == 1


def test_wrong_arrays_are_named(dcml, dense, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((2, 11), np.float32))
    assert "x" in dcml("run", dense, "-i", tmp_path / "x.npy")[2]
    np.save(tmp_path / "x.npy", np.zeros((2, 12), np.int32))
    assert "has type i32" in dcml("run", dense, "-i", tmp_path / "x.npy")[2]
    np.save(tmp_path / "o.npy", np.array([{}], object), allow_pickle=True)
    np.savez(tmp_path / "two.npz", x=np.zeros((2, 12), np.float32), z=np.zeros(1))
    (tmp_path / "junk.npz").write_bytes(b"PK\x03\x04 no archive")
    (tmp_path / "junk.pb").write_bytes(b"\xff\xff\xff")
    for name in ("o.npy", "two.npz", "junk.npz", "junk.pb"):
        code, _, problem = dcml("run", dense, "-i", tmp_path / name)
        assert code == 2 and name in problem and problem.count("\n") == 1

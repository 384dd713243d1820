"""The examples run, on small input."""
import ast
import pathlib
import subprocess
import sys

EXAMPLES = pathlib.Path(__file__).resolve().parent.parent / "examples"


def _run(folder, name, *arguments):
    done = subprocess.run([sys.executable, EXAMPLES / name, *arguments], cwd=folder, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_digits_trains_like_eager_and_runs_from_its_onnx_file(tmp_path):
    out = _run(tmp_path, "digits.py", "12")
    drift = float(out.split("losses differ by ")[1].split()[0])
    assert drift < 1e-4
    accuracy = out.split("accuracy")[1].split()[0]
    assert float(accuracy.rstrip("%")) >= 97
    assert out.split("from digits.onnx: accuracy ")[1].split()[0] == accuracy
    assert (tmp_path / "digits-report.html").read_text().count("<svg") == 4


def test_mish_walk_through(tmp_path):
    out = _run(tmp_path, "mish.py", "1")
    assert "compiled" in out and out.count("\ndcml") == 2
    assert out.index("trivial ranges removed") < out.index("subgraphs fused") < out.index("tasklets fused") < out.index("maps vectorized")


def test_a_convolution_two_ways(tmp_path):
    out = _run(tmp_path, "convolution.py", "page.html")
    assert out.count("differs from torch by") == 2 and all(float(line.rsplit(" by ", 1)[1]) < 1e-5 for line in out.splitlines()[:2])
    assert "Conv" in (tmp_path / "page.html").read_text()


def test_an_operator_of_ones_own_and_its_gradient(tmp_path):
    out = _run(tmp_path, "own_operator.py")
    assert all(float(line.rsplit(" by ", 1)[1]) < 1e-6 for line in out.splitlines()) and out.count(" by ") == 2


def test_a_gradient_of_ones_own(tmp_path):
    eager, own = (ast.literal_eval(line.partition(": ")[2]) for line in _run(tmp_path, "own_gradient.py").splitlines())
    assert eager == [0] * 6 and own == [0, 0.0625, 0.0625, 0.0625, 0.0625, 0]


def test_an_onnx_file_is_trained_and_saved(tmp_path):
    out = _run(tmp_path, "train_onnx.py", "6")
    before, after = (float(out.split(word)[1].split("accuracy ")[1].split("%")[0]) for word in ("before:", "after,"))
    assert before < 60 and after > 94
    assert (tmp_path / "after.onnx").stat().st_size > 1000


def test_two_processes_train_the_weights_of_one(tmp_path):
    out = _run(tmp_path, "ddp.py", "2", "20")
    assert "process 0 of 2" in out
    assert float(out.split("weights differ by ")[1].split()[0]) < 1e-3


def test_torchrun_trains_two_processes_with_gradients_that_accumulate(tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", EXAMPLES / "torchrun.py", "20"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert "weights differ" in done.stdout, done.stderr  # not the exit status: threads of torch's may abort a process that leaves
    first, last = (float(done.stdout.split(word)[1].split()[0]) for word in ("loss", "at first,"))
    assert last < first * 0.7 and float(done.stdout.rsplit("differ by ", 1)[1]) == 0


def test_a_spox_model_with_a_loop_finds_square_roots_and_their_derivatives(tmp_path):
    out = _run(tmp_path, "spox_loop.py")
    assert float(out.split("differ from numpy's by ")[1].split()[0]) < 1e-5
    assert float(out.split("derivatives by ")[1].split()[0]) < 1e-5
    assert (tmp_path / "roots.onnx").stat().st_size > 100


def test_a_network_solves_a_differential_equation(tmp_path):
    assert float(_run(tmp_path, "heat_equation.py", "150").rsplit(" ", 1)[1]) < 0.2


def test_a_network_learns_to_learn(tmp_path):
    out = _run(tmp_path, "maml.py", "200")
    before, after = (float(out.split(word)[1].split()[0].rstrip(",")) for word in ("new tasks", "gradient descent"))
    assert after < before * 0.7


def test_a_perceptron_in_neons_op_trees_learns(tmp_path):
    out = _run(tmp_path, "neon_mlp.py", "150")
    first, last = (float(line.split("loss ")[1].split(",")[0]) for line in (out.split("step 0: ")[1].splitlines()[0], out.splitlines()[-1]))
    assert last < first / 5 and float(out.rsplit("accuracy ", 1)[1].rstrip("%\n")) >= 95


def test_gelu_as_a_script_runs_at_once_compiled_and_trained(tmp_path):
    out = _run(tmp_path, "script_gelu.py")
    assert "calls this.Gelu" in out and float(out.split("script by ")[1].split()[0]) < 1e-6
    assert float(out.split("torch's by ")[1].split()[0]) < 1e-4 and (tmp_path / "gelu.onnx").stat().st_size > 100


def test_dropout_as_a_script_is_right_in_both_branches(tmp_path):
    out = _run(tmp_path, "script_dropout.py")
    assert out.count("is right") == 2 and out.count("drops 0.2") == 2


def test_a_network_of_npx_learns(tmp_path):
    out = _run(tmp_path, "mx_cnn.py", "3")
    before, after = (float(out.split(word)[1].split("accuracy ")[1].split("%")[0]) for word in ("before:", "after:"))
    assert before < 40 and after > 88

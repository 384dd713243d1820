"""One function in many threads, many functions at once, functions made at once, and processes that fork."""
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch

from dcml import _core
from dcml.pytorch import DaceModule

THREADS = 4
NET = """graph g opset 18 {
  symbol n >= 0
  input x: f32[n, 32]
  param w: f32[32, 16]
  temp m: f32[n, 16]
  temp y: f32[n, 16]
  outputs y
  state main { m = MatMul@13(x, w) y = Softmax@13(m) }
}"""


def _together(work, n=THREADS):
    """Runs work(k) in n threads that start at one moment; raises what the first of them raised."""
    start, errors = threading.Barrier(n), []

    def run(k):
        try:
            start.wait()
            work(k)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]


def _softmax(m):
    e = np.exp(m - m.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _function(backend, wrt=None):
    function = _core.Function(_core.parse(NET), wrt=wrt, backend=backend)
    weights = np.random.default_rng(1).standard_normal((32, 16)).astype(np.float32)
    function.set_params([weights])
    return function, weights


def _check_calls(function, weights, seed, times):
    rng = np.random.default_rng(seed)
    for _ in range(times):
        x = rng.standard_normal((rng.integers(1, 90), 32)).astype(np.float32)
        (y,) = function(x)
        np.testing.assert_allclose(y, _softmax(x @ weights), rtol=2e-4, atol=1e-6)


@pytest.mark.parametrize("backend", ["interp", "cpu", "auto"])
def test_one_function_serves_many_threads(backend):
    function, weights = _function(backend)
    _together(lambda k: _check_calls(function, weights, k, 60))


@pytest.mark.parametrize("backend", ["interp", "cpu", "auto"])
def test_functions_made_and_run_at_once_are_independent(backend):
    def work(k):
        for _ in range(4):
            _check_calls(*_function(backend), seed=k, times=10)

    _together(work)


def test_gradients_in_many_threads_are_those_of_one():
    function, weights = _function("cpu", wrt=["x", "w"])
    rng = np.random.default_rng(3)
    cases = [(rng.standard_normal((n, 32)).astype(np.float32), rng.standard_normal((n, 16)).astype(np.float32)) for n in (1, 7, 64, 200)]
    alone = [function.vjp([x], [g])[1] for x, g in cases]

    def work(k):
        for _ in range(40):
            for got, want in zip(function.vjp([cases[k][0]], [cases[k][1]])[1], alone[k]):
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)

    _together(work)


def test_hooks_of_functions_made_at_once_may_let_other_threads_run():
    seen = []

    def hook(graph, _=None):
        event = threading.Event()
        event.wait(0.02)  # other threads get in here
        seen.append(len(graph.nodes()))

    function = _core.Function(_core.parse(NET), post_onnx=hook, post_compile=hook, backend="interp")
    weights = np.ones((32, 16), np.float32)
    function.set_params([weights])
    _together(lambda k: _check_calls(function, weights, k, 3))
    assert len(seen) >= 2


def test_a_graph_that_a_hook_keeps_outlives_a_compilation_that_fails():
    kept = []

    def fail(forward, _=None):
        kept.append(forward)
        raise RuntimeError("no")

    function = _core.Function(_core.parse(NET), post_onnx=lambda graph, _=None: kept.append(graph), post_compile=fail)
    function.set_params([np.ones((32, 16), np.float32)])
    with pytest.raises(RuntimeError):
        function(np.ones((1, 32), np.float32))
    del function
    assert "MatMul" in kept[0].text() and "input x" in kept[1].text()
    for graph in kept:
        graph.verify()


def _train(module, x, steps):
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        module(x).square().sum().backward()
        optimizer.step()
    return [p.detach().clone() for p in module.parameters()]


def test_modules_trained_in_threads_learn_what_they_learn_alone():
    torch.manual_seed(0)
    x, plain = torch.randn(16, 8) / 8, [torch.nn.Linear(8, 4 + k) for k in range(THREADS)]
    compiled = [DaceModule(torch.nn.Linear(8, 4 + k), backward=True) for k in range(THREADS)]
    for a, b in zip(plain, compiled):
        b.load_state_dict(a.state_dict())
    expected, learnt = [_train(module, x, 20) for module in plain], [None] * THREADS

    def work(k):
        learnt[k] = _train(compiled[k], x, 20)

    _together(work)
    for got, want in zip(learnt, expected):
        for a, b in zip(got, want):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


FORK = """
import os
import numpy as np
import torch
from dcml import _core
function = _core.Function(_core.parse({net!r}), backend={backend!r})
function.set_params([np.ones((32, 16), np.float32)])
if {used}:
    function(np.ones((2, 32), np.float32))
child = os.fork()
(y,) = function(np.ones((3, 32), np.float32))
assert abs(y - 1 / 16).max() < 1e-6
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.parametrize("backend", ["interp", "cpu"])
@pytest.mark.parametrize("used", [False, True])
def test_a_child_forked_after_the_import_or_after_calls_computes(backend, used):
    subprocess.run([sys.executable, "-c", FORK.format(net=NET, backend=backend, used=used)], check=True, timeout=60)


TRAINING = """
import os
import torch
from dcml.pytorch import DaceModule
torch.set_num_threads(2)
net = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.BatchNorm2d(16), torch.nn.ReLU(), torch.nn.Flatten(),
                          torch.nn.Linear(16 * 30 * 30, 64), torch.nn.LayerNorm(64), torch.nn.GELU()).eval()
module, x = DaceModule(net, backward=True), torch.rand(16, 3, 32, 32)
def step():
    net.zero_grad()
    module(x).square().sum().backward()
    return [p.grad.clone() for p in net.parameters()]
first = step()
child = os.fork()
for a, b in zip(step(), first):
    torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


def test_a_child_forked_after_training_in_threads_trains_on():
    """OpenMP's team, which is torch's too, does not survive a fork: the child goes on with one thread, in libraries as well."""
    subprocess.run([sys.executable, "-c", TRAINING], check=True, timeout=120)


def test_a_child_leaves_the_kernels_of_its_parent_alone(tmp_path):
    """Without a cache folder the kernels lie in a folder of the process, which is the parent's to remove."""
    code = "import os, sys\n" + FORK.format(net=NET, backend="cpu", used=True).replace("os._exit(0)", "sys.exit(0)") + """
function = _core.Function(_core.parse({net!r}.replace("Softmax", "LogSoftmax")), backend="cpu")
function.set_params([np.ones((32, 16), np.float32)])
function(np.ones((2, 32), np.float32))
""".format(net=NET)
    environment = dict(os.environ, OMP_NUM_THREADS="1", DCML_CACHE="/proc/nowhere", TMPDIR=str(tmp_path))
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, env=environment)
    assert not list(tmp_path.iterdir())

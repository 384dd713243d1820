"""The autograd node in C++ for a torch that dcml was not built with: made once, in the background, and kept.

One test compiles it; in the others $CXX is a script that hands out what that one made, or fails.
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch

from dcml.torch_node.build import Job

START = """
import json, os, sys
sys.modules["dcml._torch_node"] = None  # as if it had not been built
import torch
from dcml import _core
from dcml.pytorch.call import node
TEXT = "graph g { input X: f32[3] temp Y: f32[3] outputs Y state s { map i in 0:3 { Y[i] = X[i] * X[i] } } }"
function = _core.Function(_core.parse(TEXT), wrt=["X"], backend="interp")

def step():
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    function(x)[0].sum().backward()
    return x.grad.tolist()

def wait():
    if node._thread is not None:
        node._thread.join()
    return node.status()

def tell(**found):
    os.write(1, (json.dumps(found) + os.linesep).encode())  # at once: a child may write beside its parent
"""
RIGHT = [2.0, 4.0, 6.0]


def _environment(folder, **changes):
    kept = {name: value for name, value in os.environ.items() if name not in ("DCML_AUTOGRAD", "DCML_VERBOSE", "CXX")}
    return {**kept, "DCML_CACHE": str(folder), "PYTHONPATH": os.pathsep.join(sys.path), **changes}


def _start(code, folder, **changes):
    return subprocess.Popen([sys.executable, "-c", START + code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=_environment(folder, **changes))


def _finish(process, timeout=300):
    out, err = process.communicate(timeout=timeout)
    assert process.returncode == 0, err[-3000:]
    return [json.loads(line) for line in out.splitlines()], err


def _run(code, folder, **changes):
    found, err = _finish(_start(code, folder, **changes))
    return found[0], err


def _script(path, body):
    """A compiler: a shell script that notes each call of it in a file beside it."""
    path.write_text(f'#!/bin/sh\necho $$ >> {path}.log\n{body}\n')
    path.chmod(0o755)
    return str(path)


def _calls(compiler):
    log = pathlib.Path(compiler + ".log")
    return log.read_text().split() if log.exists() else []


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The folder of a cache in which a real compiler has made the node, and what the process said that asked for it."""
    missing = Job("", os.path.dirname(torch.__file__), ()).missing()
    if missing:
        pytest.skip(missing)
    folder = tmp_path_factory.mktemp("made")
    found = _run("""
from dcml.pytorch import DaceModule
torch.manual_seed(0)
net, x = DaceModule(torch.nn.Linear(3, 2), backward=True), torch.randn(4, 3)

def train():
    net.zero_grad()
    result = net(x)
    result.sum().backward()
    return [t.tolist() for t in (result, *(p.grad for p in net.parameters()))]

meanwhile, state = train(), node.status()
train(), train()  # the check for calls like the last one is there
check = net._repeats[0][0]
after = wait()
later = [train() for _ in range(3)]
tell(meanwhile=meanwhile, state=state, after=after, later=later, kind=type(net(x).grad_fn).__module__, anew=net._repeats[0][0] is not check)
""", folder)[0]
    return folder, found


@pytest.fixture
def handed_out(made, tmp_path):
    """A compiler that takes two seconds to hand out the node."""
    node = made[1]["after"]["file"]
    return _script(tmp_path / "slow-c++", f'for w; do if [ "$last" = -o ]; then to=$w; fi; last=$w; done; sleep 2; cp {node} "$to"')


def test_calls_switch_to_the_node_when_it_is_ready_and_results_stay_the_same(made):
    found = made[1]
    assert (found["state"]["node"], found["state"]["state"]) == ("python", "building")
    assert (found["after"]["node"], found["after"]["state"], found["after"]["why"]) == ("c++", "cached", None)
    assert all(values == found["meanwhile"] for values in found["later"])
    assert found["anew"], "the check of a call still asks for the modes by the callables of the node in Python"


def test_the_next_process_has_it_at_its_first_call_without_a_compiler(made):
    found, _ = _run("tell(unused=node.status(), value=step(), after=node.status())", made[0], CXX="/nonexistent/c++")
    assert (found["unused"]["state"], found["unused"]["node"]) == ("cached", "python")
    assert found["after"]["node"] == "c++" and found["value"] == RIGHT


def test_a_damaged_file_is_not_loaded(made, tmp_path):
    shutil.copytree(made[0], tmp_path / "cache")
    file = next((tmp_path / "cache").rglob("node-*.so"))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    found, err = _run("tell(value=step(), after=wait())", tmp_path / "cache", CXX="/nonexistent/c++", DCML_VERBOSE="compile")
    assert (found["after"]["node"], found["after"]["state"], found["value"]) == ("python", "missing", RIGHT)
    assert "'/nonexistent/c++' was not found" in found["after"]["why"] and found["after"]["why"] in err


def test_a_compiler_that_failed_is_not_asked_again(tmp_path):
    compiler = _script(tmp_path / "c++", "echo this header is too new; exit 1")
    for _ in range(2):
        found, err = _run("tell(value=step(), after=wait())", tmp_path / "cache", CXX=compiler, DCML_VERBOSE="compile")
        assert (found["after"]["node"], found["after"]["state"], found["value"]) == ("python", "failed", RIGHT)
        assert "this header is too new" in found["after"]["why"] and "this header is too new" in err
    assert len(_calls(compiler)) == 1
    os.utime(compiler, ns=(0, 0))  # another compiler, for all that is known
    _run("step(); tell(after=wait())", tmp_path / "cache", CXX=compiler)
    assert len(_calls(compiler)) == 2


def test_processes_that_need_it_at_the_same_time_wait_for_one(handed_out, tmp_path):
    code = "tell(value=step(), after=wait(), again=step())"
    both = [_start(code, tmp_path / "cache", CXX=handed_out) for _ in range(2)]
    for process in both:
        (found,), _ = _finish(process)
        assert found["value"] == found["again"] == RIGHT and found["after"]["node"] == "c++"
    assert len(_calls(handed_out)) == 1


def test_a_process_that_ends_early_leaves_it_to_the_next(handed_out, tmp_path):
    begin = time.monotonic()
    assert _run("tell(value=step(), now=node.status())", tmp_path / "cache", CXX=handed_out)[0]["now"]["state"] == "building"
    while not list((tmp_path / "cache").rglob("node-*.so")):
        assert time.monotonic() - begin < 300
        time.sleep(0.1)
    assert _run("tell(value=step(), now=node.status())", tmp_path / "cache", CXX=handed_out)[0]["now"]["state"] == "cached"
    assert len(_calls(handed_out)) == 1


def test_a_forked_child_finds_it_too(handed_out, tmp_path):
    found, _ = _finish(_start("""
step()
child = os.fork()
tell(value=step(), after=wait(), again=step())
if not child:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
""", tmp_path / "cache", CXX=handed_out))
    assert len(found) == 2 and len(_calls(handed_out)) == 1
    assert all(one["value"] == one["again"] == RIGHT and one["after"]["node"] == "c++" for one in found)


def test_without_a_home_it_is_made_for_the_process_alone(handed_out, tmp_path):
    lonely = {"HOME": "/dev/null", "XDG_CACHE_HOME": "", "TMPDIR": str(tmp_path), "CXX": handed_out}
    found, _ = _run("tell(value=step(), after=wait(), again=step())", "", **lonely)
    assert found["value"] == found["again"] == RIGHT and found["after"]["node"] == "c++"
    assert found["after"]["file"].startswith(str(tmp_path))


def test_a_compiler_ends_with_the_process_if_nobody_else_can_use_what_it_makes(tmp_path):
    lonely = {"HOME": "/dev/null", "XDG_CACHE_HOME": "", "TMPDIR": str(tmp_path)}
    endless = _script(tmp_path / "endless-c++", "exec sleep 600")
    _run(f"""
step()
import time
while not os.path.exists({endless + '.log'!r}):
    time.sleep(0.05)
tell(now=node.status())
""", "", CXX=endless, **lonely)
    child, begin = int(_calls(endless)[0]), time.monotonic()
    try:
        while os.path.exists(f"/proc/{child}") and "(zombie)" not in pathlib.Path(f"/proc/{child}/status").read_text():
            assert time.monotonic() - begin < 20
            time.sleep(0.05)
    except AssertionError:
        os.kill(child, signal.SIGKILL)
        raise


def test_asked_for_by_name_it_is_waited_for_or_an_error(handed_out, tmp_path):
    found, _ = _run("tell(value=step(), now=node.status())", tmp_path / "cache", CXX=handed_out, DCML_AUTOGRAD="c++")
    assert found["now"]["node"] == "c++" and found["value"] == RIGHT
    found, _ = _run("""
said = []
for _ in range(2):
    try:
        step()
    except ImportError as error:
        said.append(str(error))
tell(said=said)
""", tmp_path / "other", CXX=_script(tmp_path / "c++", "echo no room; exit 1"), DCML_AUTOGRAD="c++")
    assert found["said"] == ["DCML_AUTOGRAD=c++: no room"] * 2

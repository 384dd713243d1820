"""Which autograd node a compiled function gets: the one in C++ for the torch that runs, or the one in Python.

The one idea: the one in Python serves until the other is there, and calls cannot tell them apart but by the clock.
What was built with dcml is taken where it fits; else the first call with gradients looks into the cache of kernels,
and has the node compiled there, while it goes on.
DCML_AUTOGRAD=python or c++ asks for one of them; c++ waits for it and is an ImportError where there is none.
Must not know: plans, graphs or modules.
"""
import atexit
import contextlib
import fcntl
import importlib.util
import os
import signal
import sysconfig
import threading
import time

import torch

from ... import _core
from ...torch_node.build import Job
from ...verbose import say
from .autograd import apply_in_python


def forward_level():
    """Depth of torch.autograd.forward_ad levels in this thread, -1 for none."""
    return torch.autograd.forward_ad._current_level


MODES = (torch.is_grad_enabled, torch._C._is_any_autocast_enabled, torch.is_inference_mode_enabled,
         torch.autograd._profiler_enabled, torch.get_default_dtype, torch._C._functorch.peek_interpreter_stack,
         forward_level)

_wanted = os.environ.get("DCML_AUTOGRAD", "")
if _wanted not in ("", "python", "c++"):
    raise ValueError(f"DCML_AUTOGRAD={_wanted!r}: expected 'python' or 'c++'")
_lock = threading.RLock()  # around the search, and what a fork must not come between
_held = None    # descriptor of the file that is locked, or waited for, while a node is made
_thread = None  # that waits for it


def _first(function, inputs):
    """apply, at the first call with gradients."""
    _search()
    if _wanted == "c++" and _thread is not None:
        _thread.join()
    return apply(function, inputs)


def _refuse(function, inputs):
    """apply, where the node in C++ is wanted and there is none."""
    raise ImportError(f"DCML_AUTOGRAD=c++: {_why}")


def _prebuilt():
    try:
        from ... import _torch_node
    except ImportError:  # not built, or against another torch
        return None
    return _torch_node if torch.__version__.split("+")[0] == _torch_node.torch_version else None


# apply(function, inputs) runs a core function made with ``wrt`` on a tuple of tensors; the results carry an autograd node.
# The node's backward raises RuntimeError when it is run a second time without retain_graph, or when an input or
# parameter that it reads was changed in place since.  With create_graph=True gradients carry nodes too (twice.py).
# modes: callables that return the same objects as long as torch's modes are the same; another tuple when the node changes.
apply, modes, _state, _why, _file = apply_in_python, MODES, "off", None, None
if _wanted != "python":
    found = _prebuilt()
    apply, _state = (found.apply, "prebuilt") if found else (_first, "unused")
    if found:
        modes, _file = (found.modes,), found.__file__
        _core.make_empty_by(found.empty_maker)


def is_final():
    """Will apply and modes stay what they are?"""
    return _state not in ("unused", "building")


def status():
    """How it stands, as a dict.

    node: 'c++' or 'python', which serves now.
    state: 'prebuilt' with dcml; 'cached', made at a first use; 'building'; 'unused', no call with gradients has asked for
        it so far; 'missing', something to make it with is not there; 'failed'; 'off', by DCML_AUTOGRAD.
    why: the reason, if it is missing or failed.  file: the one in C++, where there is one.
    torch: the version it has to fit.
    """
    state, why, file = _state, _why, _file
    if state == "unused":
        job = _job()
        state, why = _stand(job)
        file = job.path if state == "cached" else None
    return {"node": "python" if modes is MODES else "c++", "state": state, "why": why, "file": file, "torch": torch.__version__}


# ---- making it ----

def _job():
    """The node for this torch and this Python."""
    identity = (torch.__version__, str(torch.version.git_version), str(torch._C._GLIBCXX_USE_CXX11_ABI),
                sysconfig.get_config_var("EXT_SUFFIX"))
    return Job(_core.toolchain()[1], os.path.dirname(torch.__file__), identity)


def _stand(job):
    """(state, why) of a node by what lies in the cache."""
    if job.is_made():
        return "cached", None
    why = job.missing()
    if why:
        return "missing", why
    why = job.failure()
    return ("failed", why) if why else ("unused", None)


def _search():
    """Takes the node from the cache, or has it made while the one in Python serves."""
    global apply, _state, _held, _thread
    with _lock:
        if apply is not _first:
            return
        apply = apply_in_python
        try:
            job = _job()
            state, why = _stand(job)
            if state == "unused":
                _state = "building"
                _held = os.open(job.lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                _thread = threading.Thread(target=_make, args=(job, _begin(job)), name="dcml autograd node", daemon=True)
                _thread.start()
            else:
                _settle(job, state, why)
        except (OSError, RuntimeError) as error:
            _settle(None, "failed", str(error))


def _begin(job):
    """The process that makes the node, or None if another process is at it.

    It is started before the call returns, as the caller may end at once.
    """
    try:
        fcntl.flock(_held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None
    return _builder(job)


def _builder(job):
    """The process that makes the node, once the lock is ours; None if it has been made meanwhile."""
    if _stand(job)[0] != "unused":
        return None
    say("compile", f"autograd node: compiling it for torch {torch.__version__} with {job.compiler[0]}")
    builder = job.start(_held)
    if not _core.toolchain()[2]:  # the folder that it writes to ends with this process
        atexit.register(_end, builder)
    return builder


def _end(builder):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(builder, signal.SIGKILL)


def _make(job, builder):
    """Waits until the node is made, here or by another process, and switches to it."""
    global _held
    begin = time.monotonic()
    try:
        if builder is None:
            fcntl.flock(_held, fcntl.LOCK_EX)
            builder = _builder(job)
        if builder is not None:
            with contextlib.suppress(ChildProcessError):  # the application lets nobody wait for children
                os.waitpid(builder, 0)
            atexit.unregister(_end)
        with _lock:
            os.close(_held)
            _held = None
        state, why = _stand(job)
        unfinished = state == "unused"
        _settle(job, "failed" if unfinished else state, "the process that compiled it ended early" if unfinished else why)
    except (OSError, RuntimeError) as error:
        _settle(None, "failed", str(error))
    say("compile", f"autograd node: {_state} after {time.monotonic() - begin:.1f} s")


def _settle(job, state, why):
    """What is found is loaded; from here on nothing changes."""
    global apply, modes, _state, _why, _file
    if state == "cached":
        try:
            spec = importlib.util.spec_from_file_location("dcml._torch_node", job.path)
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            apply, modes, _file = module.apply, (module.modes,), job.path
            _core.make_empty_by(module.empty_maker)
        except ImportError as error:  # it stays: where it was made it may load
            state, why = "failed", str(error)
    _state, _why = state, why
    if why and _wanted == "c++":
        apply = _refuse
    if why:
        say("compile", f"autograd node: the one in Python serves: {why}")


def _after_fork():
    """The thread that waits is not in the child, where the next call with gradients looks again."""
    global apply, _lock, _held, _thread, _state
    _lock = threading.RLock()
    if _held is not None:
        os.close(_held)
    _held = _thread = None
    if _state == "building":
        apply, _state = _first, "unused"


os.register_at_fork(before=lambda: _lock.acquire(), after_in_parent=lambda: _lock.release(), after_in_child=_after_fork)

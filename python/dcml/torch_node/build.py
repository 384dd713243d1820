"""Compiles the autograd node for one torch into the cache of kernels.

The one idea: a file's name is the hash of all that its contents depend on, and what lies under a name is sealed, as
kernels are.  What a compiler said when it failed lies there too, by a hash that covers the compiler, so that it is
not asked again.  A process of its own compiles, and outlives the one that asked: the next finds the node ready.
Must not import torch, or at its head anything of dcml: setup.py reads it before there is a core.
"""
import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import uuid

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_node.cpp")
FLAGS = ("-std=c++20", "-O2", "-g0", "-fvisibility=hidden", "-D_GLIBCXX_USE_CXX11_ABI=1", "-w")
LIBRARIES = ("torch_python", "torch_cpu", "c10")
_CHILD = ("import sys; sys.path[:] = [sys.argv[1], *filter(None, sys.path)]; import json; "
          "from dcml.torch_node.build import Job; Job(*json.loads(sys.argv[2])).compile()")


def include_flags(torch_folder):
    headers = os.path.join(torch_folder, "include")
    return [f"-isystem{headers}", f"-isystem{os.path.join(headers, 'torch', 'csrc', 'api', 'include')}"]


def _compiler():
    """The C++ compiler, as words: $CXX (if set, only that), else c++, g++ or clang++ in $PATH; none: an empty list."""
    given = os.environ.get("CXX", "").split()
    for command in [given] if given else [["c++"], ["g++"], ["clang++"]]:
        path = shutil.which(command[0])
        if path:
            return [path, *command[1:]]
    return []


def _hash(*texts):
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:32]


class Job:
    """One node.  identity: strings that name the torch and the Python it is for, as precisely as they are known."""

    def __init__(self, folder, torch_folder, identity):
        self.arguments = (folder, torch_folder, list(identity))
        self.folder, self.torch_folder, self.compiler = folder, torch_folder, _compiler()
        with open(SOURCE, encoding="utf-8") as file:
            node = _hash(file.read(), *FLAGS, *LIBRARIES, *identity)
        self.path = os.path.join(folder, f"node-{node}.so")
        self.failure_path = os.path.join(folder, f"node-{_hash(node, *self._compiler_identity())}.txt")
        self.lock_path = os.path.join(folder, f"tmp-{node}.lock")

    def _compiler_identity(self):
        if not self.compiler:
            return []
        path = os.path.realpath(self.compiler[0])
        found = os.stat(path)
        return [path, str(found.st_size), str(found.st_mtime_ns), *self.compiler[1:]]

    def missing(self):
        """What is not there to compile with, as a sentence with what to install; None: nothing."""
        python = os.path.join(sysconfig.get_path("include"), "Python.h")
        torch = os.path.join(self.torch_folder, "include", "ATen", "ATen.h")
        if not self.compiler:
            asked = os.environ.get("CXX")
            nothing = "no C++ compiler (c++, g++, clang++) was found in $PATH: install g++"
            return f"the compiler $CXX = '{asked}' was not found" if asked else nothing
        if not sys.executable:
            return "sys.executable does not name the interpreter"
        if not os.path.exists(python):
            return f"{python} was not found: install the headers of Python (python3-dev)"
        return None if os.path.exists(torch) else f"{torch} was not found: this torch came without its headers"

    def failure(self):
        """What the compiler said when it failed on this, or None."""
        from .._core import is_sealed
        if not is_sealed(self.failure_path):
            return None
        with open(self.failure_path, "rb") as file:
            return file.read().split(b"\0")[0].decode(errors="replace")

    def is_made(self):
        from .._core import is_sealed
        return is_sealed(self.path)

    def remember_failure(self, text):
        scratch = self._scratch()
        with open(scratch, "w", encoding="utf-8") as file:
            file.write((text.strip() or "(it said nothing)") + "\0")  # where the text ends and the seal begins
        self._seal(scratch, self.failure_path)

    def start(self, lock):
        """Starts a process that compiles, and holds the lock (a descriptor) until it is done; its id.

        Not by subprocess: that waits for a pipe, which a child that another thread forks meanwhile would hold open.
        """
        home = os.path.dirname(os.path.dirname(os.path.dirname(SOURCE)))
        quiet = [(os.POSIX_SPAWN_OPEN, k, os.devnull, os.O_RDWR, 0) for k in (0, 1, 2)]
        return os.posix_spawn(sys.executable, [sys.executable, "-c", _CHILD, home, json.dumps(self.arguments)], os.environ,
                              file_actions=[*quiet, (os.POSIX_SPAWN_DUP2, lock, lock)], setsid=True)

    def compile(self):
        os.nice(19)
        scratch = self._scratch()
        try:
            done = subprocess.run(self._command(scratch), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            if done.returncode == 0:
                self._seal(scratch, self.path)
            else:
                self.remember_failure(done.stdout.decode(errors="replace")[-4000:])
        finally:
            if os.path.exists(scratch):
                os.unlink(scratch)

    def _command(self, target):
        libraries = os.path.join(self.torch_folder, "lib")
        return [*self.compiler, *FLAGS, "-fPIC", "-shared", *include_flags(self.torch_folder), f"-I{sysconfig.get_path('include')}",
                SOURCE, "-o", target, f"-L{libraries}", *[f"-l{name}" for name in LIBRARIES]]

    def _scratch(self):
        return os.path.join(self.folder, f"tmp-{uuid.uuid4().hex}")

    @staticmethod
    def _seal(scratch, path):
        from .._core import seal
        seal(scratch, path)

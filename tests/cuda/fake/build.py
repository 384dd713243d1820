"""Builds the fake CUDA driver and NVRTC as one shared library, once for each content: ``build()`` gives its path.

It knows nothing of dcml; ``python tests/cuda/fake/build.py`` prints the path, for use by hand::

    export DCML_CUDA_DRIVER=$(python tests/cuda/fake/build.py) DCML_NVRTC=$DCML_CUDA_DRIVER
"""
import fcntl
import hashlib
import os
import pathlib
import shlex
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
FOLDER = HERE.parents[2] / "build" / "fake-cuda"
SOURCES = sorted(HERE.glob("*.cpp"))
FLAGS = ["-std=c++17", "-Wall", "-Wextra", "-fPIC", "-fvisibility=hidden", f'-DFAKE_FOLDER="{HERE}"']

LEVELS = {"machine": "-O1", "memory": "-O1"}  # what runs often; tests wait for the compiler longer than for the rest


def compiler():
    """The C++ compiler that builds it, and that it runs for kernels; None where there is none."""
    for command in filter(None, (os.environ.get("CXX"), "g++", "c++", "clang++")):
        words = shlex.split(command)
        try:
            subprocess.run([*words, "--version"], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        return words
    return None


def path():
    """Where ``build`` puts the library: its name is its content."""
    content = hashlib.sha256(" ".join(FLAGS).encode())
    for source in [*SOURCES, *sorted(HERE.glob("*.h"))]:
        content.update(source.read_bytes())
    return FOLDER / f"libfake_cuda_{content.hexdigest()[:16]}.so"


def build():
    """The path of the library, which is built if nobody has done so; one process builds, others wait for it."""
    library = path()
    FOLDER.mkdir(parents=True, exist_ok=True)
    with open(FOLDER / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            _link(library)
    return library


def _link(library):
    command = compiler()
    with tempfile.TemporaryDirectory(dir=FOLDER) as scratch:
        objects = [pathlib.Path(scratch) / f"{source.stem}.o" for source in SOURCES]
        running = [subprocess.Popen([*command, *FLAGS, LEVELS.get(source.stem, "-O0"), "-c", "-o", str(made), str(source)])
                   for source, made in zip(SOURCES, objects)]
        if any([process.wait() for process in running]):
            raise RuntimeError("the fake CUDA driver does not compile")
        fresh = pathlib.Path(scratch) / "fake.so"
        subprocess.run([*command, "-shared", "-o", str(fresh), *map(str, objects), "-ldl", "-lm", "-lpthread"], check=True)
        os.replace(fresh, library)


if __name__ == "__main__":
    print(build())

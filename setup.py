"""Builds dcml._core, the C core and its binding, and dcml._torch_node, the autograd node for the installed torch."""
import glob
import importlib.util
import os
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = os.path.dirname(os.path.abspath(__file__))
GENERATED = os.path.join("build", "gen")


def generate():
    os.makedirs(GENERATED, exist_ok=True)
    subprocess.check_call([sys.executable, "tools/embed.py", "csrc/ops/ops.def", f"{GENERATED}/ops_text.h", "ops_text"])
    subprocess.check_call([sys.executable, "tools/proto.py", GENERATED])


class Build(build_ext):
    """Compiles the sources side by side."""

    def build_extension(self, ext):
        if ext.name != "dcml._core":
            return super().build_extension(ext)
        generate()
        ext.sources = sorted(glob.glob("csrc/**/*.c", recursive=True)) + [f"{GENERATED}/onnx.pb-c.c"]
        compile_one = self.compiler._compile
        pool = ThreadPoolExecutor(os.cpu_count())
        jobs = []

        def queue(obj, src, *rest):
            if not os.path.exists(obj) or os.path.getmtime(obj) < newest(src):
                jobs.append(pool.submit(compile_one, obj, src, *rest))

        def finish(link):
            def run(*args, **kwargs):
                for job in jobs:
                    job.result()
                return link(*args, **kwargs)
            return run

        self.compiler._compile = queue
        self.compiler.link_shared_object = finish(self.compiler.link_shared_object)
        super().build_extension(ext)


HEADERS = glob.glob("csrc/**/*.h", recursive=True) + glob.glob("csrc/**/*.def", recursive=True)


def newest(source):
    return max(os.path.getmtime(path) for path in [source, *HEADERS])


def find_torch():
    """The folder of the torch that dcml will run with, or None.

    An isolated build, as `pip install .` makes, cannot import it, but runs the interpreter that it is installed for.
    """
    spec = importlib.util.find_spec("torch")
    folders = [os.path.dirname(spec.origin)] if spec and spec.origin else []
    folders += [os.path.join(sysconfig.get_path(name), "torch") for name in ("purelib", "platlib")]
    return next((folder for folder in folders if os.path.exists(os.path.join(folder, "include", "ATen", "ATen.h"))), None)


def torch_node():
    """The autograd node in C++ for the torch that is installed; for any other it is built at first use."""
    torch = find_torch()
    if torch is None:
        return []
    spec = importlib.util.spec_from_file_location("build_node", os.path.join("python", "dcml", "torch_node", "build.py"))
    node = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(node)
    return [Extension("dcml._torch_node", sources=[os.path.relpath(node.SOURCE, ROOT)], optional=True, language="c++",
                      extra_compile_args=[*node.FLAGS, *node.include_flags(torch)],
                      library_dirs=[os.path.join(torch, "lib")], libraries=list(node.LIBRARIES))]


WARNINGS = ["-Wall", "-Wextra", "-Wno-maybe-uninitialized"] + (["-Werror"] if os.environ.get("CI") == "true" else [])

# Torch's own libgomp, also where dcml comes first: one pool of threads, and no need of the system's.
RUN_TIME_PATH = ["-Wl,-rpath,$ORIGIN/../torch/lib"] if sys.platform == "linux" else []

setup(ext_modules=[Extension(
    "dcml._core", sources=["csrc/python/module.c"], include_dirs=["csrc", GENERATED],
    depends=glob.glob("csrc/**/*.[ch]", recursive=True) + HEADERS,
    extra_compile_args=["-std=gnu11", "-O2", "-g1", "-fopenmp", "-fvisibility=hidden", *WARNINGS],
    extra_link_args=["-fopenmp", *RUN_TIME_PATH], libraries=["protobuf-c", "dl", "m", "pthread"]), *torch_node()],
    cmdclass={"build_ext": Build})

"""Builds dcml._core: the C core and its binding, with the generated headers that they include."""
import glob
import os
import subprocess
import sys
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


WARNINGS = ["-Wall", "-Wextra", "-Wno-maybe-uninitialized"] + (["-Werror"] if os.environ.get("CI") == "true" else [])

setup(ext_modules=[Extension(
    "dcml._core", sources=["csrc/python/module.c"], depends=glob.glob("csrc/**/*.[ch]", recursive=True) + HEADERS, include_dirs=["csrc", GENERATED],
    extra_compile_args=["-std=gnu11", "-O2", "-g1", "-fopenmp", "-fvisibility=hidden", *WARNINGS],
    extra_link_args=["-fopenmp"], libraries=["protobuf-c", "dl", "m", "pthread"])],
    cmdclass={"build_ext": Build})

"""Measures dcml on a GPU: `python bench/cuda.py`, at most 10 minutes, one table in Markdown; --help says what else.

The rest lies in bench/gpu: no folder with a file cuda.py may be on the path of modules, since torch looks for a package
of that name.
"""
import os
import runpy
import sys

if __name__ == "__main__":
    sys.path[0] = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gpu")
    runpy.run_module("cuda_table", run_name="__main__")

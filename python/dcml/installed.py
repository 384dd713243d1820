"""Where this Python's packages keep what the core opens: native libraries, and a C compiler for where the system has none.

Must not import what it finds.
"""
import importlib.util
import os
import site
import sys
import sysconfig


def places():
    """(folder with the libraries of wheels, the program zig of the wheel `ziglang`); None for what is not there."""
    roots = [sysconfig.get_path("data"), sys.prefix, *([site.getuserbase()] if site.ENABLE_USER_SITE else [])]
    folders = [os.path.join(root, "lib") for root in roots]
    libraries = next((folder for folder in folders if os.path.exists(os.path.join(folder, "libdnnl.so.3"))), folders[0])
    spec = importlib.util.find_spec("ziglang")
    programs = [os.path.join(folder, "zig") for folder in (spec.submodule_search_locations or () if spec else ())]
    return libraries, next((program for program in programs if os.access(program, os.X_OK)), None)

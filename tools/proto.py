"""Compiles the .proto file of the installed onnx package for C: proto.py OUTPUT_FOLDER."""
import importlib.util
import os
import shutil
import subprocess
import sys


def onnx_proto() -> str:
    """The file that covers ai.onnx and ai.onnx.ml, without importing the package."""
    for folder in importlib.util.find_spec("onnx").submodule_search_locations:
        for name in ("onnx-ml.proto", "onnx.proto"):
            path = os.path.join(folder, name)
            if os.path.exists(path):
                return path
    raise SystemExit("the onnx package ships no .proto file")


def compile_proto(folder: str) -> None:
    os.makedirs(folder, exist_ok=True)
    source, target = onnx_proto(), os.path.join(folder, "onnx.pb-c.c")
    if os.path.exists(target) and os.path.getmtime(target) > os.path.getmtime(source):
        return
    if not shutil.which("protoc-c"):
        raise SystemExit("protoc-c was not found: install protobuf-c-compiler and libprotobuf-c-dev (Debian's names), or dcml as a wheel")
    shutil.copyfile(source, os.path.join(folder, "onnx.proto"))
    subprocess.check_call(["protoc-c", f"--proto_path={folder}", f"--c_out={folder}", os.path.join(folder, "onnx.proto")])


if __name__ == "__main__":
    compile_proto(sys.argv[1])

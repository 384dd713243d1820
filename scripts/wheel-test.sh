#!/bin/sh
# The tests with what is in dist/, in empty environments: all of them with the wheel, a few with the source archive.
# Run by `make wheel-test`.  No compiler of the system is in reach of the wheel: kernels are compiled by the wheel `ziglang`.
set -e

PYTHON3="${PYTHON3:-python3}"
TORCH="${TORCH:-torch>=2.10}"
TESTS="${TESTS:-tests}"
JOBS="${JOBS:-2}" # processes of pytest-xdist; 0: none

# environment FOLDER REQUIREMENT: an empty virtual environment with that and what it asks for.
environment() {
  rm -rf "$1"
  "$PYTHON3" -m venv "$1"
  "$1/bin/python" -m pip --disable-pip-version-check -q install "$TORCH"
  "$1/bin/python" -m pip --disable-pip-version-check -q install "$2"
  "$1/bin/python" -c 'import sys, dcml; assert dcml.__file__.startswith(sys.prefix), dcml.__file__'
}

wheel=$(ls "$PWD"/dist/*.whl)
archive=$(ls "$PWD"/dist/*.tar.gz)

environment build/wheel-env "dcml[test,compiler] @ file://$wheel"
rm -rf build/no-compiler
mkdir -p build/no-compiler
for program in sh bash env cat cp ls rm sleep uname dirname basename head grep true; do
  ln -s "$(which $program)" build/no-compiler/$program  # a path also of what the shell has built in
done
PATH="$PWD/build/wheel-env/bin:$PWD/build/no-compiler" DCML_CACHE="$PWD/build/wheel-cache" \
  build/wheel-env/bin/python -m pytest -q -n "$JOBS" --ignore tests/test_build.py $TESTS

environment build/archive-env "dcml[test] @ file://$archive"
build/archive-env/bin/python -m pytest -q tests/test_import.py tests/pytorch/test_module.py tests/onnx/test_model.py

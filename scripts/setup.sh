#!/bin/sh
# Installs what is missing and builds the extension into VENV_PATH, made if need be; '': into $PYTHON3.  Run by `make setup`.
set -e

PYTHON3="${PYTHON3:-python3}"
TORCH="${TORCH:-torch>=2.10}"
VENV_PATH="${VENV_PATH-.venv}"

missing=""
command -v cc >/dev/null 2>&1 || missing="$missing gcc libc6-dev"
command -v c++ >/dev/null 2>&1 || missing="$missing g++"
command -v protoc-c >/dev/null 2>&1 || missing="$missing protobuf-c-compiler"
[ -f /usr/include/protobuf-c/protobuf-c.h ] || missing="$missing libprotobuf-c-dev"
"$PYTHON3" -c 'import ensurepip, venv' >/dev/null 2>&1 || missing="$missing python3-venv"
"$PYTHON3" -c 'import os, sysconfig; assert os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h"))' \
  >/dev/null 2>&1 || missing="$missing python3-dev"

if [ -n "$missing" ]; then
  if [ "$(id -u)" = 0 ]; then sudo=""
  elif sudo -n true >/dev/null 2>&1; then sudo="sudo -n"
  else
    echo "Please run this once, then try again:"
    echo "  sudo apt-get update && sudo apt-get install -y$missing"
    exit 1
  fi
  $sudo apt-get update -qq
  # shellcheck disable=SC2086  (a list of packages)
  DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq $missing
fi

if [ -n "$VENV_PATH" ]; then
  [ -x "$VENV_PATH/bin/python" ] || "$PYTHON3" -m venv "$VENV_PATH"
  PYTHON3="$VENV_PATH/bin/python"
fi
pip="$PYTHON3 -m pip --disable-pip-version-check -q"
$pip install "setuptools>=68" wheel numpy onnx
if [ -n "$TORCH_VERSION" ] || ! "$PYTHON3" -c 'import torch' >/dev/null 2>&1; then $pip install "$TORCH"; fi
$pip install pytest pytest-xdist scikit-learn
$pip install "nvidia-cuda-nvrtc>=13" || echo "NVRTC is not available here; kernels for GPUs are not compiled in tests."
$pip install "onednn-cpu-gomp>=2023.2" || echo "oneDNN is not available here; the built-in kernels serve."
$pip install scipy-openblas32 || echo "OpenBLAS is not available here; the built-in kernels serve."
$pip install --no-build-isolation --no-deps -e .

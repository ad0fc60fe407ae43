"""Runs a test of training in a Python that has PyTorch and transformers; says so and passes without one.

  with_torch.py SITE SCRIPT ARGUMENT...      SITE has the package

The Python is this one, or the one that the environment variable QWEN_TRAIN_PYTHON names. Tests do not install PyTorch: with the packages of
CUDA that it needs, also on a machine without a GPU, it has gigabytes.
"""
import os
import subprocess
import sys

PYTHON = os.environ.get("QWEN_TRAIN_PYTHON", sys.executable)
site, *script = sys.argv[1:]
needed = "torch, transformers, peft, accelerate, gguf"
if subprocess.run([PYTHON, "-c", f"import {needed}"], capture_output=True).returncode:
    print(f"skipped: {PYTHON} lacks one of {needed}; QWEN_TRAIN_PYTHON may name another Python")
    sys.exit(0)
sys.exit(subprocess.run([PYTHON, "-B", *script], env=os.environ | {"PYTHONPATH": site}).returncode)

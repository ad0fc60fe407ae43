"""mypy --strict reads the Python package, its examples and a program with all public names, and stubtest finds no difference.

  python_types.py SOURCE SITE PACKAGES      SITE has the package

Installs mypy in the folder PACKAGES once. Says so and passes where a registry cannot be reached.
"""
import os
import pathlib
import re
import subprocess
import sys

from packages import python_with

SOURCE, SITE, PACKAGES = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
PROGRAM = SOURCE / "test/Inputs/python_program.py"
sys.path.insert(0, str(SITE))
import qwen_compiler  # noqa: E402

missing = [name for name in qwen_compiler.__all__ if not re.search(rf"\b{name}\b", PROGRAM.read_text())]
if missing:
    sys.exit(f"{PROGRAM.name} uses no {missing}")
python = python_with("mypy==2.4.1", PACKAGES)
if not python:
    print("skipped: no mypy")
    sys.exit(0)
# Tests install neither lm-eval, which is 930 MB, nor PyTorch, which is larger.
allowed = SITE / "allowed.txt"
allowed.write_text("qwen_compiler\\.(lm_eval|train).*\n")
environment = os.environ | {"PYTHONPATH": str(SITE), "MYPYPATH": str(SITE), "MYPY_CACHE_DIR": str(SITE / "mypy_cache")}
status = 0
for command in (["mypy", "--strict", SITE / "qwen_compiler"], ["mypy", "--strict", PROGRAM, *sorted((SOURCE / "examples").glob("*.py"))],
                ["mypy.stubtest", "qwen_compiler", "--allowlist", allowed, "--ignore-unused-allowlist"]):
    status |= subprocess.run([python, "-m", *command], env=environment, cwd=SITE).returncode
sys.exit(status)

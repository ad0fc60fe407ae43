"""The wheel of a build, where a system has a Python interpreter, its library and the C library, and nothing else.

  archive_python.py WHEEL MODEL
"""
import base64
import csv
import hashlib
import io
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile

import pip
from archive_roots import Root, enter
from checks import Checks

WHEEL, MODEL = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
# What a program of vLLM's shape does.
PROGRAM = """
import qwen_compiler
from qwen_compiler import SamplingParams
with qwen_compiler.load("/model") as model:
    outputs = model.generate(["Once upon a time", "The king"], SamplingParams(temperature=0, max_tokens=8))
    for output in outputs:
        print(output.outputs[0].text)
"""
enter()
checks = Checks()


def check_record():
    """RECORD has all files with their hashes."""
    with zipfile.ZipFile(WHEEL) as archive:
        name, = (each for each in archive.namelist() if each.endswith("/RECORD"))
        rows = {path: (digest, size) for path, digest, size in csv.reader(io.StringIO(archive.read(name).decode()))}
        expected = {name: ("", "")}
        for each in archive.namelist():
            if each != name:
                digest = base64.urlsafe_b64encode(hashlib.sha256(archive.read(each)).digest()).rstrip(b"=").decode()
                expected[each] = (f"sha256={digest}", str(archive.getinfo(each).file_size))
        checks.expect("RECORD", rows, expected)
        checks.check(len(archive.namelist()) == len(set(archive.namelist())), "a file comes twice")


def bind(root, path):
    """The same file or folder in the root."""
    target = root.path / str(path).lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.mkdir(exist_ok=True) if os.path.isdir(path) else target.touch()
    subprocess.run(["mount", "--bind", path, target], check=True)


def add_interpreter(root):
    """This interpreter with its library. Returns its path."""
    interpreter = os.path.realpath(sys.executable)
    library = sysconfig.get_path("stdlib", vars={"installed_base": sys.base_prefix})
    # Modules of the library that need others: the package has _ctypes, pip has zlib.
    loaded = [interpreter, *pathlib.Path(library, "lib-dynload").glob("_ctypes.*.so"), *pathlib.Path(library, "lib-dynload").glob("zlib.*.so")]
    for file in loaded:
        for name in re.findall(r"/\S+", subprocess.run(["ldd", file], capture_output=True, text=True, check=True).stdout):
            target = root.path / name.lstrip("/")
            if os.path.isfile(name) and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(name, target)
    shutil.copy(next(pathlib.Path("/lib/x86_64-linux-gnu").glob("libgcc_s.so.1")), root.path / "lib/x86_64-linux-gnu")
    target = root.path / interpreter.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(interpreter, target)
    bind(root, library)
    return interpreter


check_record()
root = Root()
python = add_interpreter(root)
for name in ("home", "tmp"):
    (root.path / name).mkdir()
shutil.copytree(MODEL, root.path / "model")
shutil.copy(WHEEL, root.path / "tmp")
shutil.copytree(pathlib.Path(pip.__file__).parent, root.path / "pip/pip")
root.run(python, "-m", "pip", "install", "--no-index", "--target", "/site", f"/tmp/{WHEEL.name}", PYTHONPATH="/pip")
text = root.run(python, "-W", "error", "-c", PROGRAM, PYTHONPATH="/site")
checks.check("there lived" in text and len(text.splitlines()) == 2, f"the answers are {text!r}")
for program in ("qwen-run", "qwen-opt"):
    checks.check(root.run(f"/site/bin/{program}", "--version", PYTHONPATH="/site").startswith(program), f"{program} does not start")
# The cache is that of the command.
checks.check(root.run("/site/bin/qwen-run", "cache", "list", PYTHONPATH="/site").count("\n") == 1, "the package and qwen-run have two caches")
subprocess.run(["mount", "-t", "tmpfs", "-o", "noexec", "none", root.path / "home"], check=True)
shutil.copytree(root.path / "site", root.path / "home/site")
text = root.run(python, "-c", PROGRAM.replace('"/model"', '"/nothing.qwen"'), PYTHONPATH="/home/site", status=1)
checks.check("noexec" in text.splitlines()[-1], f"a folder that is mounted with noexec is told as {text!r}")
checks.finish()

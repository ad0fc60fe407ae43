"""The archive of a build, where a system has the C library and nothing else: not even a shell.

  archive_empty.py ARCHIVE MODEL
"""
import pathlib
import re
import shutil
import subprocess
import sys

from archive_roots import Root, answer_of, enter
from checks import Checks

ARCHIVE, MODEL = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
enter()
checks = Checks()
root = Root()
subprocess.run(["tar", "--zstd", "-xf", ARCHIVE, "-C", root.path], check=True)
folder = next(path for path in root.path.iterdir() if path.name.startswith("qwen-compiler"))
program = f"/{folder.name}/bin/qwen-run"
# The loader and the libraries that it names for the program.
for line in subprocess.run(["ldd", f"{root.path}{program}"], capture_output=True, text=True, check=True).stdout.splitlines():
    for name in re.findall(r"/\S+", line):
        target = root.path / name.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(name, target)
libraries = sorted(path.name for path in root.path.rglob("*.so*") if folder not in path.parents)
checks.expect("libraries", libraries, ["ld-linux-x86-64.so.2", "libc.so.6", "libgcc_s.so.1", "libm.so.6"])
shutil.copytree(MODEL, root.path / "model")
(root.path / "home").mkdir()
(root.path / "tmp").mkdir()
# It compiles the model with the qwen-opt of the archive.
text = root.run(program, "generate", "/model", "-p", "Once upon a time", "-n", "8", "--temperature", "0")
checks.check("there lived" in text, f"an answer is {text!r}")
server = root.serve(program, "/model")
checks.check('"text"' in answer_of(server), "the server does not answer")
server.stop()
checks.expect("what is left", sorted(path.name for path in root.path.iterdir()),
              sorted({folder.name, "dev", "home", "lib", "lib64", "model", "proc", "tmp"}))
checks.expect("what is left in home", [path.name for path in (root.path / "home").iterdir()], [".cache"])
checks.finish()

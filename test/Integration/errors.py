"""Every error of the two programs and of the server is one line with the words of a table, and leaves nothing behind.

  errors.py TABLE MODEL WORKDIR [REGEX]      TABLE is compiler, runtime or server; MODEL is models/stories, compiled

The tables are errors_TABLE.py. With a regular expression, only rows with such a name are checked.
"""
import contextlib
import importlib
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

from checks import Checks, matches, own_lines
from errors_files import BAD, FIXTURES, NotTried, fixture
from server import Server

TEST = pathlib.Path(__file__).resolve().parents[1]
SOURCE = TEST.parent
checks = Checks()


def place(model):
    """Links that commands name by their last part."""
    links = {"stories": SOURCE / "models" / "stories", "stories.qwen": model, "inputs": TEST / "Inputs", "scripts": TEST / "Integration",
             "aarch64-qwen-run": SOURCE / "build" / "aarch64" / "bin" / "qwen-run"}
    links |= {path.name: path for folder in ("checkpoints", "gguf", "adapters") for path in (TEST / "Inputs" / folder).iterdir()}
    for name, path in links.items():
        os.symlink(path, name)
    pathlib.Path("out").mkdir()
    pathlib.Path("key").write_text("secret")


def clear():
    for path in (BAD, pathlib.Path("bad.qwen")):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def present():
    return {os.path.join(folder, name) for folder, _, names in os.walk(".") for name in names}


def check_command(row):
    words = shlex.split(row.command)
    for word in words:
        if word in FIXTURES:
            fixture(word)
    if any(os.path.islink(word) and not os.path.exists(word) for word in words):
        raise NotTried("build/aarch64 is needed")
    with contextlib.ExitStack() as stack:
        stack.callback(clear)
        if row.files and (clean_up := row.files()):
            stack.callback(clean_up)
        before = present()
        result = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
        left = present() - before
    error = "\n".join(own_lines(result.stderr))
    checks.check(matches(row.message, error), f"{row.name}: {row.command}\n     expected: {row.message}\n     but is:   {error}")
    checks.check(result.returncode == row.status, f"{row.name}: {row.command}: status is {result.returncode}")
    checks.check(not result.stdout, f"{row.name}: {row.command}: standard output is {result.stdout!r}")
    checks.check(not left, f"{row.name}: {row.command}: left {left}")


def check_request(server, row):
    status, _, text = server.send(*row.request.split(" "), row.body, row.headers)
    what = f"{row.name}: {row.request} {str(row.body)[:80]}"
    checks.check(status == row.status, f"{what}: status is {status}")
    error = json.loads(text)["error"]
    checks.check(matches(row.message, error["message"]), f"{what}\n     expected: {row.message}\n     but is:   {error['message']}")
    fields = {key: value for key, value in error.items() if key not in ("message", "type")}
    expected = {"param": row.param, "code": row.code, **row.more}
    checks.check(fields == expected, f"{what}: the fields are {fields}, not {expected}")


def main():
    table, model, work = sys.argv[1], pathlib.Path(sys.argv[2]).resolve(), pathlib.Path(sys.argv[3])
    wanted = re.compile(sys.argv[4] if len(sys.argv) > 4 else "")
    rows = [row for row in importlib.import_module(f"errors_{table}").ROWS if wanted.search(row.name)]
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    os.chdir(work)
    place(model)
    servers = {}
    for row in rows:
        if table == "server":
            if row.options not in servers:
                servers[row.options] = Server("stories.qwen", *row.options)
            check_request(servers[row.options], row)
            continue
        try:
            check_command(row)
        except NotTried as reason:
            print(f"not tried: {row.name}: {reason}")
    for server in servers.values():
        checks.check(server.stop()[0] == 0, "a server ends with an error")
    checks.finish()


main()

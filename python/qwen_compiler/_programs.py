"""The programs of the package: qwen-opt compiles, qwen-run has the cache of compiled models."""
from __future__ import annotations

import importlib
import json
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from ._errors import Error
from ._library import FOLDER

LOGGER = logging.getLogger("qwen_compiler")
# Gets the stage of a compile, and how many of how many parts of it are done.
Progress = Callable[[str, int, int], None]


def program(name: str) -> str:
    """The path of a program of this package."""
    return str(FOLDER / "bin" / name)


def exec_program(name: str) -> NoReturn:
    """Turns this process into a program of the package."""
    try:
        os.execv(program(name), [name, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"{name}: cannot run {program(name)}: {error.strerror}; its folder must not be mounted with noexec")


def qwen_opt() -> NoReturn:
    """The command qwen-opt."""
    exec_program("qwen-opt")


def qwen_run() -> NoReturn:
    """The command qwen-run."""
    exec_program("qwen-run")


def qwen_train() -> NoReturn:
    """The command qwen-train, which needs more than this package does."""
    try:
        command = importlib.import_module("qwen_compiler.train._command")
    except ImportError as error:
        sys.exit(f"qwen-train: {error.name or error} is missing; install it: pip install 'qwen_compiler[train]'")
    sys.exit(command.main())


def option_words(options: Mapping[str, Any]) -> list[str]:
    """Options as words of a command line: max_tokens=8 is --max-tokens 8, a list repeats the option, True is a flag."""
    words = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        for each in value if isinstance(value, (list, tuple)) else [value]:
            if each is None or each is False:
                continue
            words.append(flag if each is True else f"{flag}={os.fspath(each) if isinstance(each, os.PathLike) else each}")
    return words


def run(name: str, arguments: list[str], on_line: Callable[[str], None]) -> None:
    """Runs a program, whose output goes to `on_line`. Raises Error with its last line if it fails; the lines before are logged."""
    with tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen([program(name), *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
                                       encoding=sys.getfilesystemencoding(), errors=sys.getfilesystemencodeerrors())
        except OSError as error:
            raise Error(f"cannot run {program(name)}: {error.strerror}; its folder must not be mounted with noexec") from None
        with process:
            assert process.stdout
            try:
                for line in process.stdout:
                    on_line(line.rstrip("\n"))
            except BaseException:
                process.terminate()
                raise
        errors.seek(0)
        said = errors.read().decode(errors="replace").splitlines()
    for line in said[:-1] if process.returncode else said:
        LOGGER.info("%s", line)
    if process.returncode:
        last = said[-1] if said else f"{name} ended with status {process.returncode}"
        words = last.split(": ", 1)
        raise Error(words[1] if words[0].startswith(name) and len(words) > 1 else last, process.returncode)


def cached_file(model: str, options: Mapping[str, Any]) -> str:
    """The compiled file of a model, which the cache of qwen-run has or gets now."""
    lines: list[str] = []
    run("qwen-run", ["cache", "add", *option_words(options), "--", model], lines.append)
    return "\n".join(lines)


def compile(checkpoint: str | os.PathLike[str], out: str | os.PathLike[str], *, progress: Progress | None = None, **options: Any) -> None:
    """Compiles a checkpoint, a folder or a GGUF file, into the file `out`.

    `options` are those of qwen-opt, such as weights="q4_0", calibrate=True or target="znver4,x86-64-v3". Raises Error with the
    line of qwen-opt; no file is left then.
    """

    def on_line(line: str) -> None:
        if progress:
            told = json.loads(line)
            progress(told["stage"], told["done"], told["total"])

    run("qwen-opt", ["-o", os.fspath(out), "--progress=1", *option_words(options), "--", os.fspath(checkpoint)], on_line)
